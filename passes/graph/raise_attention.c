/*
 * Attention: contract(softmax(scale * contract(q, k) + mask), v) becomes one op, whatever the order
 * of dims and operands, with the scale on scores, q or k, and a mask that is added or selected. A
 * mask that hides just the future becomes `causal`.
 *
 * Works on letters: those of the scores are matched to roles, which say how q, k and v must be
 * transposed; simplify then turns these transposes into letters of the contractions before and
 * after. Heads that only q has (grouped queries) are merged with the heads they share. Masked
 * scores below -1e4 count as hidden where no row is hidden entirely.
 */
#include "passes/graph/contract_spec.h"
#include "passes/graph/raise.h"
#include "passes/graph/simplify.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- Scalars behind contractions ---- */

/* Strips factors that are one number from *v, which keeps its shape; returns their product. */
static double take_scalar(const MotGraph *g, MotValue *v)
{
    double product = 1, c;
    for (;;) {
        const MotOp *op = mot_graph_def(g, *v);
        if (op->kind != MOT_OP_MUL && op->kind != MOT_OP_DIV)
            return product;
        int i = mot_value_is_uniform(g, op->in[1], &c) ? 0 : 1;
        if (i == 1 && (op->kind == MOT_OP_DIV || !mot_value_is_uniform(g, op->in[0], &c)))
            return product;
        if (!mot_dims_equal(mot_graph_type(g, op->in[i]), mot_graph_type(g, *v)))
            return product;
        product = op->kind == MOT_OP_DIV ? product / c : product * c;
        *v = op->in[i];
    }
}

static MotValue move_scalars_behind(MotMatch *m)
{
    const MotOp op = *mot_match_root(m);
    MotValue in[2] = {op.in[0], op.in[1]};
    if (mot_dtype_class(mot_graph_type(m->graph, m->root)->dtype) != MOT_CLASS_FLOAT)
        return 0;
    double scalar = take_scalar(m->graph, &in[0]) * take_scalar(m->graph, &in[1]);
    if (in[0] == op.in[0] && in[1] == op.in[1])
        return 0;
    MotSpec spec = mot_spec_of(&op);
    return mot_mul_scalar(m->b, mot_spec_contract(m->b, &op, in[0], in[1], &spec), scalar);
}

/* ---- What the scores are made of ---- */

typedef struct {
    MotMatch *m;
    MotGraph *g;
    MotValue scores; /* what is left to take apart */
    double scale;    /* of `scores` within the softmax's operand */
    MotValue mask;   /* added outside; 0: none */
    double mask_scale;
    bool is_causal;
    const MotOp *product; /* contract(q, k); set last */
} Scores;

static const double hidden = -1e4;    /* exp of it is 0 in f32 */
static const double absorbing = -1e9; /* what is added to it no longer counts in f32 */

typedef enum { NO_PATTERN, ALL_SEEN, FUTURE_HIDDEN } MaskPattern;

/* Element [t, s] of a mask: whether it lets position t see s. */
static bool sees(const MotTensor *mask, bool true_sees, int64_t i)
{
    if (mask->type.dtype == MOT_BOOL)
        return (mot_tensor_get_int(mask, i) != 0) == true_sees;
    return mot_tensor_get(mask, i) == 0;
}

static bool is_mask_element(const MotTensor *mask, double scale, int64_t i)
{
    if (mask->type.dtype == MOT_BOOL)
        return true;
    double x = mot_tensor_get(mask, i);
    return x == 0 || x * scale <= hidden;
}

/*
 * What a mask over [.., T, S] that varies along the last two dims only, and is scaled after it was
 * applied, hides.
 */
static MaskPattern read_pattern(const MotTensor *mask, double scale, bool true_sees, int64_t times,
                                int64_t keys)
{
    int rank = mask->type.rank;
    if (rank < 2 || mot_type_elements(&mask->type) != times * keys ||
        mask->type.dims[rank - 1] != keys)
        return NO_PATTERN;
    bool is_causal = keys >= times, is_open = true;
    for (int64_t i = 0; i < times * keys; i++) {
        bool is_past = i % keys <= i / keys + keys - times, is_seen = sees(mask, true_sees, i);
        if (!is_mask_element(mask, scale, i))
            return NO_PATTERN;
        is_causal &= is_seen == is_past;
        is_open &= is_seen;
    }
    return is_open ? ALL_SEEN : is_causal ? FUTURE_HIDDEN : NO_PATTERN;
}

/* The pattern of value `mask`, if its contents are known. */
static MaskPattern find_pattern(Scores *s, MotValue mask, bool true_sees)
{
    const MotType *scores = mot_graph_type(s->g, s->scores);
    MotArenaMark mark = mot_arena_mark(&s->g->ctx->arena);
    MotTensor contents;
    MaskPattern pattern = NO_PATTERN;
    if (scores->rank >= 2 && mot_value_known(s->g, mask, &contents))
        pattern = read_pattern(&contents, s->scale, true_sees, scores->dims[scores->rank - 2],
                               scores->dims[scores->rank - 1]);
    mot_arena_rewind(&s->g->ctx->arena, mark);
    return pattern;
}

/* Takes note of a mask; false if there is one already. */
static bool take_mask(Scores *s, MotValue mask)
{
    if (s->mask || s->scale <= 0)
        return false;
    s->mask = mask;
    s->mask_scale = s->scale;
    return true;
}

static bool leads_to_product(const MotGraph *g, MotValue v)
{
    const MotOp *op = mot_graph_def(g, v);
    while (op->kind == MOT_OP_MUL || op->kind == MOT_OP_DIV || op->kind == MOT_OP_ADD ||
           op->kind == MOT_OP_SELECT) {
        uint32_t next = op->n_in;
        double number;
        for (uint32_t i = 0; i < op->n_in; i++)
            if (!mot_value_is_uniform(g, op->in[i], &number) &&
                mot_graph_type(g, op->in[i])->rank == mot_graph_type(g, op->out[0])->rank &&
                mot_graph_type(g, op->in[i])->dtype != MOT_BOOL &&
                mot_graph_def(g, op->in[i])->n_in > 0)
                next = i;
        if (next == op->n_in)
            return false;
        op = mot_graph_def(g, op->in[next]);
    }
    return op->kind == MOT_OP_CONTRACT && !mot_contract_index(op);
}

/* scores + mask */
static bool peel_sum(Scores *s, const MotOp *op)
{
    int i = leads_to_product(s->g, op->in[0]) ? 0 : 1;
    MotValue mask = op->in[1 - i];
    MaskPattern pattern = find_pattern(s, mask, true);
    if (!mot_dims_equal(mot_graph_type(s->g, op->in[i]), mot_graph_type(s->g, s->scores)))
        return false;
    if (pattern == FUTURE_HIDDEN)
        s->is_causal = true;
    else if (pattern != ALL_SEEN && !take_mask(s, mask))
        return false;
    s->scores = op->in[i];
    return true;
}

/* condition ? scores : -inf, or the other way round */
static bool peel_select(Scores *s, const MotOp *op)
{
    double fill;
    bool true_sees = mot_value_is_uniform(s->g, op->in[2], &fill);
    MotValue inner = op->in[true_sees ? 1 : 2];
    if ((!true_sees && !mot_value_is_uniform(s->g, op->in[1], &fill)) || fill * s->scale > hidden ||
        !mot_dims_equal(mot_graph_type(s->g, inner), mot_graph_type(s->g, s->scores)))
        return false;
    MaskPattern pattern = find_pattern(s, op->in[0], true_sees);
    if (pattern == FUTURE_HIDDEN) {
        s->is_causal = true;
    } else if (pattern != ALL_SEEN) {
        MotBuilder *b = s->m->b;
        MotDtype dtype = mot_graph_type(s->g, inner)->dtype;
        if (fill > absorbing || s->mask || s->scale <= 0)
            return false;
        MotValue zero = mot_scalar(b, dtype, 0), low = mot_scalar(b, dtype, fill);
        take_mask(s, true_sees ? mot_select(b, op->in[0], zero, low)
                               : mot_select(b, op->in[0], low, zero));
    }
    s->scores = inner;
    return true;
}

/* scores * c or scores / c */
static bool peel_scale(Scores *s)
{
    MotValue before = s->scores;
    s->scale *= take_scalar(s->g, &s->scores);
    return s->scores != before;
}

/* Takes apart what stands between the softmax and the product of q and k. */
static bool peel(Scores *s)
{
    for (;;) {
        const MotOp op = *mot_graph_def(s->g, s->scores);
        bool is_peeled = op.kind == MOT_OP_ADD      ? peel_sum(s, &op)
                         : op.kind == MOT_OP_SELECT ? peel_select(s, &op)
                                                    : peel_scale(s);
        if (!is_peeled)
            return op.kind == MOT_OP_CONTRACT && !mot_contract_index(&op);
    }
}

/* ---- Roles of the letters ---- */

/* Letters of the scores' dims, and those that only q and k, or only v, have. */
typedef struct {
    char heads[MOT_MAX_RANK + 1];  /* in q, k and v, but for the first, which is the batch */
    char groups[MOT_MAX_RANK + 1]; /* heads that only q has */
    char batch, time, key, size, value_size;
    MotSpec qk, pv;
    MotValue q, k, v;
} Roles;

static bool has(const char *letters, char letter)
{
    return mot_spec_find(letters, letter) >= 0;
}

static void push(char *letters, char letter)
{
    size_t n = strlen(letters);
    letters[n] = letter;
    letters[n + 1] = 0;
}

/*
 * Gives the product's letters the names that the second contraction has for the same dims of the
 * scores (capitals are free).
 */
static void rename_product(Roles *r, const char *scores)
{
    MotSpec old = r->qk;
    for (int side = 0; side < 2; side++)
        for (char *p = r->qk.in[side]; *p; p++) {
            int at = mot_spec_find(old.out, *p);
            *p = at >= 0 ? scores[at] : *p;
        }
}

/*
 * The one letter of q and k that the product sums. Its name must not be one of the second
 * contraction's.
 */
static bool find_size(Roles *r, const MotSpec *old)
{
    char size = 0;
    for (int side = 0; side < 2; side++)
        for (const char *p = old->in[side]; *p; p++) {
            if (has(old->out, *p))
                continue;
            if (!has(old->in[1 - side], *p) || (size && size != *p))
                return false;
            size = *p;
        }
    if (!size)
        return false;
    for (int side = 0; side < 2; side++)
        r->qk.in[side][mot_spec_find(old->in[side], size)] = '$';
    r->size = '$';
    return true;
}

/* Sorts the letters of the scores, `key` being the softmax's. */
static bool sort_letters(Roles *r, const char *scores)
{
    const char *q = r->qk.in[0], *k = r->qk.in[1], *v = r->pv.in[1];
    for (const char *p = scores; *p; p++) {
        if (*p == r->key)
            continue;
        if (!has(r->pv.out, *p) || !has(q, *p) || has(k, *p) != has(v, *p))
            return false;
        if (!has(k, *p)) {
            if (r->time)
                push(r->groups, r->time);
            r->time = *p;
        } else if (!r->batch) {
            r->batch = *p;
        } else {
            push(r->heads, *p);
        }
    }
    for (const char *p = v; *p; p++) {
        if (has(scores, *p))
            continue;
        if (r->value_size || !has(r->pv.out, *p))
            return false;
        r->value_size = *p;
    }
    return r->time && r->value_size && has(v, r->key) && !has(r->pv.out, r->key) &&
           has(k, r->key) && !has(q, r->key);
}

/* Reads both contractions; `p` is the side of the second on which the softmax stands. */
static bool find_roles(Roles *r, const MotOp *second, int p, const MotOp *product, int64_t axis)
{
    r->pv = mot_spec_of(second);
    r->qk = mot_spec_of(product);
    r->q = product->in[0];
    r->k = product->in[1];
    r->v = second->in[1 - p];
    if (p == 1) {
        MotSpec swapped = r->pv;
        memcpy(swapped.in[0], r->pv.in[1], sizeof swapped.in[0]);
        memcpy(swapped.in[1], r->pv.in[0], sizeof swapped.in[1]);
        r->pv = swapped;
    }
    const char *scores = r->pv.in[0];
    MotSpec old = r->qk;
    r->key = scores[axis];
    rename_product(r, scores);
    if (!find_size(r, &old))
        return false;
    if (has(r->qk.in[0], r->key)) {
        MotSpec swapped = r->qk;
        memcpy(r->qk.in[0], swapped.in[1], sizeof swapped.in[0]);
        memcpy(r->qk.in[1], swapped.in[0], sizeof swapped.in[1]);
        MotValue q = r->k;
        r->k = r->q;
        r->q = q;
    }
    return sort_letters(r, scores);
}

/* ---- Building ---- */

/* x, whose dims are `letters`, transposed to `wanted`; every letter of wanted is in letters. */
static MotValue arrange(MotBuilder *b, MotValue x, const char *letters, const char *wanted)
{
    int64_t perm[MOT_MAX_RANK];
    for (int d = 0; wanted[d]; d++)
        perm[d] = mot_spec_find(letters, wanted[d]);
    return mot_transpose(b, x, perm);
}

/*
 * x transposed to [batch, rows, heads, columns], each of which may be several letters or none, and
 * these merged.
 */
static MotValue to_four_dims(MotBuilder *b, MotValue x, const char *letters,
                             const char *const part[4])
{
    char wanted[4 * MOT_MAX_RANK] = "";
    int64_t dims[4];
    for (int i = 0; i < 4; i++)
        strcat(wanted, part[i]);
    const MotType type = *mot_graph_type(b->graph, x);
    for (int i = 0; i < 4; i++) {
        dims[i] = 1;
        for (const char *p = part[i]; *p; p++)
            dims[i] *= type.dims[mot_spec_find(letters, *p)];
    }
    return mot_reshape(b, arrange(b, x, letters, wanted), 4, dims);
}

/* out [B,T,H,E] back to the dims of the second contraction's result. */
static MotValue from_four_dims(MotMatch *m, MotValue out, const char *letters, const Roles *r)
{
    const MotType root = *mot_graph_type(m->graph, m->root);
    int64_t dims[MOT_MAX_RANK];
    int rank = (int)strlen(letters);
    for (int d = 0; d < rank; d++)
        dims[d] = root.dims[mot_spec_find(r->pv.out, letters[d])];
    return arrange(m->b, mot_reshape(m->b, out, rank, dims), letters, r->pv.out);
}

/* Whether a value of this type broadcasts as one of these 4 dims does. */
static bool is_aligned(const MotType *type, const int64_t *dims)
{
    for (int d = 0; d < 4; d++) {
        int own = d - (4 - type->rank);
        if ((own < 0 ? 1 : type->dims[own]) != dims[d])
            return false;
    }
    return true;
}

/* The mask, or what it was reshaped from, as it is if it is aligned with `dims`; else reshaped. */
static MotValue align_mask(MotMatch *m, MotValue mask, const int64_t *dims)
{
    const MotOp *op = mot_graph_def(m->graph, mask);
    MotValue source = op->kind == MOT_OP_RESHAPE ? op->in[0] : mask;
    const MotValue candidates[] = {source, mask};
    for (int i = 0; i < 2; i++)
        if (mot_graph_type(m->graph, candidates[i])->rank <= 4 &&
            is_aligned(mot_graph_type(m->graph, candidates[i]), dims))
            return candidates[i];
    return mot_reshape(m->b, mask, 4, dims);
}

/*
 * The mask as the op wants it: f32, aligned at the last dim with [B,H,T,S]. It is aligned with the
 * scores, so these must be in that order. Several head dims are merged where the mask varies along
 * all of them or none; a batch or head dim that is not there is put in. 0: not possible.
 */
static MotValue fit_mask(MotMatch *m, const Scores *s, const Roles *r, const char *scores)
{
    const MotType type = *mot_graph_type(m->graph, s->mask);
    int64_t dims[4] = {1, 1, 1, 1}, full[MOT_MAX_RANK] = {0};
    char order[4 * MOT_MAX_RANK] = {r->batch};
    strcat(strcat(order, r->heads), r->groups);
    push(order, r->time);
    push(order, r->key);
    int rank = (int)strlen(scores), n_ones = 0, n_heads = 0;
    if (strcmp(order, scores) != 0 || type.dtype != MOT_F32 || type.rank > rank)
        return 0;
    for (int d = 0; d < rank; d++) {
        full[d] = mot_graph_type(m->graph, s->scores)->dims[d];
        int own = d - (rank - type.rank);
        int64_t size = own < 0 ? 1 : type.dims[own];
        bool is_head = d < rank - 2 && !(d == 0 && r->batch);
        dims[d >= rank - 2 ? 4 - (rank - d) : is_head ? 1 : 0] *= size;
        n_ones += is_head && size == 1 && full[d] != 1;
        n_heads += is_head && full[d] != 1;
    }
    return n_ones == 0 || n_ones == n_heads ? align_mask(m, s->mask, dims) : 0;
}

static MotOpId build_attention(MotMatch *m, const Scores *s, const Roles *r, const char *scores)
{
    char batch[2] = {r->batch}, time[2] = {r->time}, key[2] = {r->key}, size[2] = {r->size},
         columns[2] = {r->value_size};
    char heads[2 * MOT_MAX_RANK] = "";
    strcat(strcat(heads, r->heads), r->groups);
    MotValue mask = 0;
    if (s->mask) {
        mask = fit_mask(m, s, r, scores);
        if (!mask)
            return 0;
        mask = s->mask_scale == 1 ? mask : mot_mul_scalar(m->b, mask, s->mask_scale);
    }
    MotValue in[4] = {
        to_four_dims(m->b, r->q, r->qk.in[0], (const char *const[]){batch, time, heads, size}),
        to_four_dims(m->b, r->k, r->qk.in[1], (const char *const[]){batch, key, r->heads, size}),
        to_four_dims(m->b, r->v, r->pv.in[1], (const char *const[]){batch, key, r->heads, columns}),
        mask};
    MotAttr_attention attrs = {.scale = s->scale, .causal = s->is_causal};
    return mot_build(m->b, MOT_OP_ATTENTION, in, mask ? 4 : 3, &attrs);
}

/*
 * The logarithm of the sum of exponentials that an expansion computes beside: max + log(sum); 0 if
 * nothing reads it.
 */
static MotValue find_lse(const MotMatch *m)
{
    const MotGraph *g = m->graph;
    MotValue max = mot_match_value(m, 'm'), sum = mot_match_value(m, 's');
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_ADD)
            continue;
        for (int k = 0; k < 2; k++) {
            const MotOp *log = mot_graph_def(g, op->in[1 - k]);
            if (op->in[k] == max && log->kind == MOT_OP_LOG && log->in[0] == sum)
                return op->out[0];
        }
    }
    return 0;
}

static void replace_lse(MotMatch *m, MotOpId attention)
{
    MotValue lse = mot_match_value(m, 'm') ? find_lse(m) : 0;
    if (!lse)
        return;
    const MotType type = *mot_graph_type(m->graph, lse);
    mot_match_replace(m, lse,
                      mot_reshape(m->b, mot_result(m->b, attention, 1), type.rank, type.dims));
}

/* ?x is the softmax's operand, ?p the probabilities; `axis` is what the softmax runs over. */
static MotValue build_from(MotMatch *m, int64_t axis)
{
    const MotOp second = *mot_match_root(m);
    int p = mot_match_value(m, 'p') == second.in[0] ? 0 : 1;
    Scores s = {.m = m, .g = m->graph, .scores = mot_match_value(m, 'x'), .scale = 1};
    Roles r = {0};
    if (second.in[0] == second.in[1] || !mot_match_is_single_use(m, mot_match_value(m, 'p')) ||
        !peel(&s))
        return 0;
    const MotOp product = *mot_graph_def(m->graph, s.scores);
    if (!find_roles(&r, &second, p, &product, axis))
        return 0;
    const char *scores = r.pv.in[0];
    bool is_last = scores[axis + 1] == 0 && axis > 0 && scores[axis - 1] == r.time;
    if (s.is_causal && !is_last)
        return 0;
    MotOpId attention = build_attention(m, &s, &r, scores);
    if (!attention)
        return 0;
    char letters[4 * MOT_MAX_RANK] = {0};
    if (r.batch)
        push(letters, r.batch);
    push(letters, r.time);
    strcat(strcat(letters, r.heads), r.groups);
    push(letters, r.value_size);
    replace_lse(m, attention);
    return from_four_dims(m, mot_result(m->b, attention, 0), letters, &r);
}

static MotValue softmax_to_attention(MotMatch *m)
{
    return build_from(m, mot_attrs(mot_match_def(m, 'p'), softmax)->axis);
}

/* The expansion's softmax, which keeps maximum and sum in range for rows that see nothing. */
static MotValue guarded_to_attention(MotMatch *m)
{
    int64_t axis, axis_of_max;
    if (!mot_raise_reduces_axis(mot_match_def(m, 't'), &axis) ||
        !mot_raise_reduces_axis(mot_match_def(m, 'u'), &axis_of_max) || axis != axis_of_max ||
        mot_match_number(m, 'l') > -FLT_MAX || !(mot_match_number(m, 'n') <= FLT_MIN))
        return 0;
    return build_from(m, axis);
}

#define GUARDED                                                                                    \
    "?p=div(?e=exp(sub(?x, ?m=max(?u=reduce_max(?x), #l))), ?s=max(?t=reduce_sum(?e), #n))"

static const MotRule rules[] = {
    {"contract-scaled", "contract", move_scalars_behind},
    {"attention-left", "contract(?p=softmax(?x), ?v)", softmax_to_attention},
    {"attention-right", "contract(?v, ?p=softmax(?x))", softmax_to_attention},
    {"attention-guarded-left", "contract(" GUARDED ", ?v)", guarded_to_attention},
    {"attention-guarded-right", "contract(?v, " GUARDED ")", guarded_to_attention},
};
const MotRules mot_rules_raise_attention = MOT_RULES(rules);
