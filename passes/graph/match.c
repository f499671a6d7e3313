/*
 * The pattern parser and the matcher. Matching is a search over a list of goals (a pattern and a
 * value each); a choice (operand order, association of a product) is tried with the goals behind
 * it, so that a wrong one is taken back.
 */
#include "passes/graph/match.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGS = 6, MAX_FACTORS = 8, MAX_UNIFORM_ELEMENTS = 4096 };
static const double near_tolerance = 1e-4;

typedef enum {
    ANY,
    NUMBER,
    CAPTURE,
    OP,
    OP_OF_ANY_OPERANDS,
    ANY_POINTWISE,
    ANY_OP,
    PRODUCT
} NodeKind;

typedef struct Node Node;
struct Node {
    NodeKind kind;
    char name; /* the letter it binds, or 0 */
    MotOpKind op;
    bool is_near;
    double number;
    const Node *args[MAX_ARGS];
    uint32_t n_args;
};

struct MotPattern {
    Node root;
};

/* ---- Parser ---- */

typedef struct {
    MotCtx *ctx;
    const char *text, *p;
} Parser;

static MotStatus fail_parse(const Parser *c, const char *what)
{
    return mot_fail(c->ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "pattern \"%s\", byte %d: %s", c->text,
                    (int)(c->p - c->text), what);
}

static void skip_blanks(Parser *c)
{
    while (*c->p == ' ')
        c->p++;
}

static MotStatus parse_node(Parser *c, Node *node);

static MotStatus parse_args(Parser *c, Node *node)
{
    do {
        c->p++; /* ( or , */
        if (node->n_args == MAX_ARGS)
            return fail_parse(c, "too many operands");
        Node *arg = mot_arena_new(&c->ctx->arena, Node);
        MOT_TRY(parse_node(c, arg));
        node->args[node->n_args++] = arg;
        skip_blanks(c);
    } while (*c->p == ',');
    if (*c->p != ')')
        return fail_parse(c, "expected , or )");
    c->p++;
    return MOT_OK;
}

static MotStatus parse_op(Parser *c, Node *node)
{
    size_t n = strspn(c->p, "abcdefghijklmnopqrstuvwxyz_");
    const char *name = mot_arena_strndup(&c->ctx->arena, c->p, n);
    if (strcmp(name, "pointwise") == 0)
        node->kind = ANY_POINTWISE;
    else if (strcmp(name, "product") == 0)
        node->kind = PRODUCT;
    else
        node->op = mot_op_find(name);
    if (node->kind == ANY && node->op == MOT_OP_NONE)
        return fail_parse(c, "no such op");
    c->p += n;
    if (node->kind == ANY)
        node->kind = *c->p == '(' ? OP : OP_OF_ANY_OPERANDS;
    return *c->p == '(' ? parse_args(c, node) : MOT_OK;
}

static MotStatus parse_number(Parser *c, Node *node)
{
    char *end;
    node->kind = NUMBER;
    node->is_near = *c->p == '~';
    c->p += node->is_near;
    node->number = strtod(c->p, &end);
    if (end == c->p)
        return fail_parse(c, "expected a pattern");
    c->p = end;
    return MOT_OK;
}

static MotStatus parse_node(Parser *c, Node *node)
{
    skip_blanks(c);
    if (*c->p == '*') {
        node->kind = ANY_OP;
        c->p++;
        return MOT_OK;
    }
    if (*c->p != '?' && *c->p != '#')
        return *c->p >= 'a' && *c->p <= 'z' ? parse_op(c, node) : parse_number(c, node);
    bool is_capture = *c->p == '#';
    char name = c->p[1];
    if (name < 'a' || name > 'z')
        return fail_parse(c, "a name is a small letter");
    c->p += 2;
    if (*c->p == '=') {
        c->p++;
        MOT_TRY(parse_op(c, node));
    } else {
        node->kind = is_capture ? CAPTURE : ANY;
    }
    node->name = name;
    return MOT_OK;
}

MotStatus mot_pattern_parse(MotCtx *ctx, const char *text, MotPattern **out_pattern)
{
    Parser c = {.ctx = ctx, .text = text, .p = text};
    *out_pattern = mot_arena_new(&ctx->arena, MotPattern);
    MOT_TRY(parse_node(&c, &(*out_pattern)->root));
    return *c.p ? fail_parse(&c, "expected the end") : MOT_OK;
}

bool mot_pattern_may_match(const MotPattern *pattern, MotOpKind kind)
{
    const Node *root = &pattern->root;
    MotOpClass class = mot_op_info(kind)->class;
    switch (root->kind) {
    case OP:
    case OP_OF_ANY_OPERANDS:
        return root->op == kind;
    case ANY_POINTWISE:
        return class == MOT_POINTWISE;
    case ANY_OP:
        return class != MOT_SOURCE && class != MOT_SINK;
    case PRODUCT:
        return kind == MOT_OP_MUL || kind == MOT_OP_DIV;
    default:
        return false;
    }
}

/* ---- Numbers ---- */

static bool is_uniform_tensor(const MotTensor *t, double *out_number)
{
    int64_t n = mot_type_elements(&t->type);
    if (n < 1 || n > MAX_UNIFORM_ELEMENTS)
        return false;
    *out_number = mot_tensor_get(t, 0);
    for (int64_t i = 1; i < n; i++)
        if (mot_tensor_get(t, i) != *out_number)
            return false;
    return true;
}

bool mot_value_is_uniform(const MotGraph *g, MotValue v, double *out_number)
{
    const MotOp *op = mot_graph_def(g, v);
    while (op->kind == MOT_OP_BROADCAST || op->kind == MOT_OP_RESHAPE)
        op = mot_graph_def(g, op->in[0]);
    return op->kind == MOT_OP_CONSTANT &&
           is_uniform_tensor(&mot_attrs(op, constant)->data, out_number);
}

static bool is_number(const Node *node, double number)
{
    if (!node->is_near)
        return number == node->number;
    return fabs(number - node->number) <= near_tolerance * fabs(node->number);
}

/* ---- Search ---- */

typedef struct Goal {
    const Node *node;
    MotValue value;
    const struct Goal *next;
} Goal;

static bool solve(MotMatch *m, const Goal *goal);

static bool is_commutative(MotOpKind kind)
{
    return kind == MOT_OP_ADD || kind == MOT_OP_MUL || kind == MOT_OP_MAX || kind == MOT_OP_MIN ||
           kind == MOT_OP_EQ || kind == MOT_OP_AND || kind == MOT_OP_OR || kind == MOT_OP_XOR;
}

static bool solve_op(MotMatch *m, const Node *node, const MotOp *op, const Goal *next)
{
    Goal goals[MAX_ARGS];
    if (op->n_in != node->n_args)
        return false;
    for (int order = 0; order < (is_commutative(op->kind) ? 2 : 1); order++) {
        for (uint32_t i = 0; i < op->n_in; i++)
            goals[i] = (Goal){node->args[i], op->in[order ? 1 - i : i],
                              i + 1 < op->n_in ? &goals[i + 1] : next};
        if (solve(m, op->n_in ? goals : next))
            return true;
    }
    return false;
}

/*
 * A product taken apart as far as `leaf`, the rest still whole in `open`; `scalar` is what was
 * constant.
 */
typedef struct {
    const Node *node, *number;
    uint32_t n_factors; /* of the pattern */
    MotValue leaf[MAX_FACTORS], open[MAX_FACTORS];
    uint32_t n_leaf, n_open;
    double scalar;
    const Goal *next;
} Product;

/* Tries the leaves that are not in `used` for the pattern's factor i and those behind it. */
static bool assign_factors(MotMatch *m, const Product *p, uint32_t i, unsigned used,
                           const Goal *goals)
{
    while (i < p->node->n_args && p->node->args[i] == p->number)
        i++;
    if (i == p->node->n_args)
        return solve(m, goals);
    for (uint32_t k = 0; k < p->n_leaf; k++) {
        Goal goal = {p->node->args[i], p->leaf[k], goals};
        if (!(used & 1u << k) && assign_factors(m, p, i + 1, used | 1u << k, &goal))
            return true;
    }
    return false;
}

static bool solve_scalar(MotMatch *m, const Product *p)
{
    if (p->n_leaf != p->n_factors)
        return false;
    if (p->number && p->number->kind == CAPTURE) {
        m->number[p->number->name - 'a'] = p->scalar;
        m->value[p->number->name - 'a'] = 0;
    } else if (p->number ? !is_number(p->number, p->scalar) : p->scalar != 1) {
        return false;
    }
    return assign_factors(m, p, 0, 0, p->next);
}

static bool solve_product(MotMatch *m, Product p);

/* Goes on with the open factor v replaced by the two below it. */
static bool open_factor(MotMatch *m, Product p, MotValue a, MotValue b)
{
    if (p.n_open + 2 > MAX_FACTORS)
        return false;
    p.open[p.n_open++] = a;
    p.open[p.n_open++] = b;
    return solve_product(m, p);
}

/* Each factor is taken apart first, and kept whole if that finds nothing. */
static bool solve_product(MotMatch *m, Product p)
{
    if (p.n_open == 0)
        return solve_scalar(m, &p);
    MotValue v = p.open[--p.n_open];
    const MotOp *op = mot_graph_def(m->graph, v);
    double number;
    if (mot_value_is_uniform(m->graph, v, &number)) {
        p.scalar *= number;
        return solve_product(m, p);
    }
    if (p.n_leaf == p.n_factors)
        return false;
    if (op->kind == MOT_OP_MUL && open_factor(m, p, op->in[0], op->in[1]))
        return true;
    Product whole = p;
    if (op->kind == MOT_OP_DIV && mot_value_is_uniform(m->graph, op->in[1], &number)) {
        p.scalar /= number;
        p.open[p.n_open++] = op->in[0];
        if (solve_product(m, p))
            return true;
    } else if (op->kind == MOT_OP_NEG) {
        p.scalar = -p.scalar;
        p.open[p.n_open++] = op->in[0];
        if (solve_product(m, p))
            return true;
    }
    whole.leaf[whole.n_leaf++] = v;
    return solve_product(m, whole);
}

static bool start_product(MotMatch *m, const Node *node, MotValue v, const Goal *next)
{
    Product p = {.node = node, .open = {v}, .n_open = 1, .scalar = 1, .next = next};
    for (uint32_t i = 0; i < node->n_args; i++) {
        if (node->args[i]->kind == NUMBER || node->args[i]->kind == CAPTURE)
            p.number = node->args[i];
        else
            p.n_factors++;
    }
    return solve_product(m, p);
}

static bool solve_node(MotMatch *m, const Node *node, MotValue v, const Goal *next)
{
    const MotOp *op = mot_graph_def(m->graph, v);
    MotOpClass class = mot_op_info(op->kind)->class;
    bool is_first = m->graph->values.data[v].def_index == 0;
    double number;
    switch (node->kind) {
    case ANY:
        return solve(m, next);
    case NUMBER:
        return mot_value_is_uniform(m->graph, v, &number) && is_number(node, number) &&
               solve(m, next);
    case CAPTURE:
        return mot_value_is_uniform(m->graph, v, &m->number[node->name - 'a']) && solve(m, next);
    case OP:
        return is_first && op->kind == node->op && solve_op(m, node, op, next);
    case OP_OF_ANY_OPERANDS:
        return is_first && op->kind == node->op && solve(m, next);
    case ANY_POINTWISE:
        return class == MOT_POINTWISE && solve(m, next);
    case ANY_OP:
        return class != MOT_SOURCE && class != MOT_SINK && solve(m, next);
    case PRODUCT:
        return start_product(m, node, v, next);
    }
    return false;
}

static bool solve(MotMatch *m, const Goal *goal)
{
    if (!goal)
        return true;
    const Node *node = goal->node;
    if (goal->value == 0)
        return false;
    if (!node->name)
        return solve_node(m, node, goal->value, goal->next);
    MotValue *bound = &m->value[node->name - 'a'], before = *bound;
    if (before)
        return before == goal->value && solve_node(m, node, goal->value, goal->next);
    *bound = goal->value;
    bool is_solved = solve_node(m, node, goal->value, goal->next);
    *bound = is_solved ? *bound : before;
    return is_solved;
}

bool mot_pattern_match(const MotPattern *pattern, MotMatch *match, MotValue root)
{
    memset(match->value, 0, sizeof match->value);
    match->root = root;
    match->n_replaced = 0;
    return solve(match, &(Goal){.node = &pattern->root, .value = root});
}

void mot_match_replace(MotMatch *m, MotValue old, MotValue new)
{
    if (old == 0 || m->n_replaced == 2)
        return;
    m->old[m->n_replaced] = old;
    m->new[m->n_replaced++] = new;
}

bool mot_match_is_single_use(const MotMatch *m, MotValue v)
{
    return v >= m->n_uses || m->uses[v] <= 1;
}
