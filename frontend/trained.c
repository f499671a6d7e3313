/*
 * What an initializer does. From each param the uses are followed through views and through
 * whatever is computed from parameters alone, up to the ops where it meets activations; the first
 * use that speaks for training decides, else the first that speaks against it.
 */
#include "frontend/trained.h"

#include "ir/builder.h"

#include <string.h>

typedef struct {
    MotOpId op;
    uint32_t operand;
} Use;

/* The graph with what the rules ask of it. */
typedef struct {
    MotCtx *ctx;
    MotGraph *g;
    uint32_t *first_use; /* by value: its uses are uses[first_use[v]] .. uses[first_use[v + 1]] */
    Use *uses;
    uint8_t *is_active;  /* by value: follows from an input of the model */
    uint8_t *is_reached; /* by value: the gradient of some output arrives */
    uint32_t *seen;      /* by op: the last walk that was there */
    uint32_t walk;
} Uses;

/* ---- The uses of values, and how far gradients come ---- */

static void index_uses(Uses *u)
{
    const MotGraph *g = u->g;
    MotArena *arena = &u->ctx->arena;
    u->first_use = mot_arena_array(arena, uint32_t, g->values.n + 1);
    for (MotOpId id = 1; id < g->ops.n; id++)
        for (uint32_t k = 0; k < mot_graph_op(g, id)->n_in; k++)
            u->first_use[mot_graph_op(g, id)->in[k] + 1]++;
    for (uint32_t v = 0; v < g->values.n; v++)
        u->first_use[v + 1] += u->first_use[v];
    uint32_t *next = mot_arena_copy(arena, u->first_use, (g->values.n + 1) * sizeof *next);
    u->uses = mot_arena_array(arena, Use, u->first_use[g->values.n] + 1);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++)
            u->uses[next[op->in[k]]++] = (Use){g->body.data[i], k};
    }
}

static bool is_float(const MotGraph *g, MotValue v)
{
    return mot_dtype_class(mot_graph_type(g, v)->dtype) == MOT_CLASS_FLOAT;
}

/*
 * Whether the gradient of the op's result passes to operand k: not to integers and bools, nor
 * through steps.
 */
static bool passes_gradient(const MotGraph *g, const MotOp *op, uint32_t k)
{
    bool is_step = op->kind == MOT_OP_SIGN || op->kind == MOT_OP_FLOOR || op->kind == MOT_OP_CEIL;
    return !is_step && is_float(g, op->in[k]);
}

static void spread(Uses *u)
{
    const MotGraph *g = u->g;
    u->is_active = mot_arena_array(&u->ctx->arena, uint8_t, g->values.n);
    u->is_reached = mot_arena_array(&u->ctx->arena, uint8_t, g->values.n);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        bool is_active = op->kind == MOT_OP_INPUT;
        for (uint32_t k = 0; k < op->n_in; k++)
            is_active = is_active || u->is_active[op->in[k]];
        for (uint32_t k = 0; k < op->n_out; k++)
            u->is_active[op->out[k]] = is_active;
    }
    for (uint32_t i = g->body.n; i-- > 0;) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        bool is_reached = op->kind == MOT_OP_OUTPUT;
        for (uint32_t k = 0; k < op->n_out; k++)
            is_reached = is_reached || (u->is_reached[op->out[k]] && is_float(g, op->out[k]));
        for (uint32_t k = 0; k < op->n_in && is_reached; k++)
            u->is_reached[op->in[k]] |= passes_gradient(g, op, k);
    }
}

/* ---- What a use says ---- */

typedef enum { SAYS_NOTHING, FOLLOW, TRAIN, FREEZE } Verdict;

typedef struct {
    Verdict verdict;
    const char *reason;
} Opinion;

static int count_long_dims(const MotType *type)
{
    int n = 0;
    for (int i = 0; i < type->rank; i++)
        n += type->dims[i] > 1;
    return n;
}

static bool is_view(MotOpKind kind)
{
    return kind == MOT_OP_RESHAPE || kind == MOT_OP_TRANSPOSE || kind == MOT_OP_BROADCAST ||
           kind == MOT_OP_SLICE || kind == MOT_OP_CAST || kind == MOT_OP_PAD ||
           kind == MOT_OP_CONCAT;
}

static bool is_arithmetic(MotOpKind kind)
{
    return kind == MOT_OP_ADD || kind == MOT_OP_SUB || kind == MOT_OP_MUL || kind == MOT_OP_DIV ||
           kind == MOT_OP_SELECT;
}

/* The op under casts and views that defines v. */
static const MotOp *look_through(const MotGraph *g, MotValue v)
{
    const MotOp *op = mot_graph_def(g, v);
    while (is_view(op->kind) && op->kind != MOT_OP_CONCAT)
        op = mot_graph_def(g, op->in[0]);
    return op;
}

/*
 * Whether v is x / sqrt(…), x * rsqrt(…) or x * (1 / sqrt(…)): what a norm scale is multiplied
 * with.
 */
static bool is_normalized(const MotGraph *g, MotValue v)
{
    const MotOp *op = look_through(g, v);
    if (op->kind != MOT_OP_DIV && op->kind != MOT_OP_MUL)
        return false;
    for (uint32_t k = 0; k < 2; k++) {
        const MotOp *factor = look_through(g, op->in[k]);
        bool is_root = factor->kind == MOT_OP_SQRT || factor->kind == MOT_OP_RSQRT;
        if (factor->kind == MOT_OP_DIV)
            is_root = look_through(g, factor->in[1])->kind == MOT_OP_SQRT;
        if (is_root && (op->kind == MOT_OP_MUL || k == 1))
            return true;
    }
    return false;
}

/*
 * Whether v arrives at a softmax, or as the mask of an attention, through pointwise arithmetic and
 * views alone.
 */
static bool feeds_softmax(Uses *u, MotValue v)
{
    const MotGraph *g = u->g;
    MotVec(MotValue) stack = {0};
    mot_vec_push(&u->ctx->arena, &stack, v);
    u->walk++;
    while (stack.n) {
        v = stack.data[--stack.n];
        for (uint32_t i = u->first_use[v]; i < u->first_use[v + 1]; i++) {
            const MotOp *op = mot_graph_op(g, u->uses[i].op);
            if (op->kind == MOT_OP_SOFTMAX ||
                (op->kind == MOT_OP_ATTENTION && u->uses[i].operand == 3))
                return true;
            bool goes_on = is_view(op->kind) || is_arithmetic(op->kind);
            if (!goes_on || u->seen[u->uses[i].op] == u->walk)
                continue;
            u->seen[u->uses[i].op] = u->walk;
            mot_vec_push(&u->ctx->arena, &stack, op->out[0]);
        }
    }
    return false;
}

/* Where a parameter meets activations: operand `k` of `op`, with the type it has there. */
typedef struct {
    const MotOp *op;
    uint32_t k;
    const MotType *type;
} Meeting;

typedef Opinion (*Judge)(Uses *u, const Meeting *m);

static Opinion judge_contract(Uses *u, const Meeting *m)
{
    (void)u, (void)m;
    return (Opinion){TRAIN, "weight"};
}

static Opinion judge_gather(Uses *u, const Meeting *m)
{
    (void)u, (void)m;
    return (Opinion){TRAIN, "table of lookups"};
}

static Opinion judge_norm(Uses *u, const Meeting *m)
{
    (void)u;
    return (Opinion){TRAIN, m->k == 1 ? "scale of a norm" : "bias of a norm"};
}

/* A bias or a table of positions, unless it is a mask. */
static Opinion judge_add(Uses *u, const Meeting *m)
{
    bool is_table = count_long_dims(m->type) >= 2;
    if (is_table && feeds_softmax(u, m->op->out[0]))
        return (Opinion){FREEZE, "added before a softmax (a mask)"};
    return (Opinion){TRAIN, is_table ? "table added to activations" : "bias"};
}

static Opinion judge_sub(Uses *u, const Meeting *m)
{
    return m->k == 1 ? (Opinion){FREEZE, "subtracted (a running mean)"} : judge_add(u, m);
}

static Opinion judge_product(Uses *u, const Meeting *m)
{
    bool is_scale = count_long_dims(m->type) < 2 || is_normalized(u->g, m->op->in[1 - m->k]);
    return is_scale ? (Opinion){TRAIN, "scale"}
                    : (Opinion){FREEZE, "product with a table (rotary embedding)"};
}

static Opinion judge_select(Uses *u, const Meeting *m)
{
    return feeds_softmax(u, m->op->out[0]) ? (Opinion){FREEZE, "chosen before a softmax (a mask)"}
                                           : (Opinion){TRAIN, "chosen by a condition"};
}

static Opinion judge_attention(Uses *u, const Meeting *m)
{
    (void)u;
    return m->k == 3 ? (Opinion){FREEZE, "mask of an attention"}
                     : (Opinion){TRAIN, "operand of an attention"};
}

static Opinion judge_root(Uses *u, const Meeting *m)
{
    (void)u, (void)m;
    return (Opinion){FREEZE, "under a root (a running variance)"};
}

/*
 * `anywhere`: decides although only parameters are involved; else those are followed to where
 * activations come in.
 */
static const struct {
    Judge judge;
    bool anywhere;
} judges[MOT_N_OPS] = {
    [MOT_OP_CONTRACT] = {judge_contract, false},
    [MOT_OP_GATHER] = {judge_gather, true},
    [MOT_OP_LAYER_NORM] = {judge_norm, false},
    [MOT_OP_ADD] = {judge_add, false},
    [MOT_OP_SUB] = {judge_sub, false},
    [MOT_OP_MUL] = {judge_product, false},
    [MOT_OP_DIV] = {judge_product, false},
    [MOT_OP_SELECT] = {judge_select, false},
    [MOT_OP_ATTENTION] = {judge_attention, false},
    [MOT_OP_SQRT] = {judge_root, true},
    [MOT_OP_RSQRT] = {judge_root, true},
};

static Opinion judge_use(Uses *u, Use use, MotValue v)
{
    const MotOp *op = mot_graph_op(u->g, use.op);
    if (op->kind == MOT_OP_OUTPUT)
        return (Opinion){TRAIN, "part of an output"};
    bool is_reached = false;
    for (uint32_t k = 0; k < op->n_out; k++)
        is_reached = is_reached || u->is_reached[op->out[k]];
    if (!is_reached || !passes_gradient(u->g, op, use.operand))
        return (Opinion){SAYS_NOTHING, NULL};
    if (!judges[op->kind].anywhere && (is_view(op->kind) || !u->is_active[op->out[0]]))
        return (Opinion){FOLLOW, NULL};
    if (!judges[op->kind].judge)
        return (Opinion){TRAIN, "part of the activations"};
    return judges[op->kind].judge(u, &(Meeting){op, use.operand, mot_graph_type(u->g, v)});
}

/* The strongest opinion of all uses of a parameter, and the op that gave it. */
static Opinion judge_param(Uses *u, MotValue param, const MotOp **out_op)
{
    Opinion best = {SAYS_NOTHING, "not reached by the gradient"};
    MotVec(MotValue) stack = {0};
    uint8_t *is_seen = mot_arena_array(&u->ctx->arena, uint8_t, u->g->ops.n);
    mot_vec_push(&u->ctx->arena, &stack, param);
    while (stack.n && best.verdict != TRAIN) {
        MotValue v = stack.data[--stack.n];
        for (uint32_t i = u->first_use[v]; i < u->first_use[v + 1] && best.verdict != TRAIN; i++) {
            const MotOp *op = mot_graph_op(u->g, u->uses[i].op);
            Opinion opinion = judge_use(u, u->uses[i], v);
            if (opinion.verdict == FOLLOW && !is_seen[u->uses[i].op]++)
                mot_vec_push(&u->ctx->arena, &stack, op->out[0]);
            bool decides =
                opinion.verdict == TRAIN || (opinion.verdict == FREEZE && best.verdict != FREEZE);
            if (decides) {
                best = opinion;
                *out_op = op;
            }
        }
    }
    return best;
}

/* ---- Globs ---- */

static bool matches_any(const char *const *globs, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (mot_glob_match(globs[i], name))
            return true;
    return false;
}

static MotStatus check_globs(MotCtx *ctx, const MotTrained *trained, const char *flag,
                             const char *const *globs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bool is_used = false;
        for (uint32_t k = 0; k < trained->n && !is_used; k++)
            is_used = mot_glob_match(globs[i], trained->rows[k].name);
        if (!is_used) {
            mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                     "%s %s matches no initializer that could train", flag,
                     mot_quote(&ctx->arena, globs[i]));
            mot_hint(ctx, "`motley import MODEL` lists them; integers and scalars never train");
            return ctx->status;
        }
    }
    return MOT_OK;
}

static MotStatus apply_globs(MotCtx *ctx, const MotTrainOpts *opts, MotTrained *trained)
{
    MOT_TRY(check_globs(ctx, trained, "--train", opts->train, opts->n_train));
    MOT_TRY(check_globs(ctx, trained, "--freeze", opts->freeze, opts->n_freeze));
    for (uint32_t i = 0; i < trained->n; i++) {
        MotTrainedRow *row = &trained->rows[i];
        bool trains = matches_any(opts->train, opts->n_train, row->name);
        bool freezes = matches_any(opts->freeze, opts->n_freeze, row->name);
        if (trains && freezes)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "both --train and --freeze match initializer %s",
                            mot_quote(&ctx->arena, row->name));
        if (trains != freezes) {
            row->is_trained = trains;
            row->reason = trains ? "--train" : "--freeze";
        }
    }
    return MOT_OK;
}

MotStatus mot_trained_decide(MotCtx *ctx, MotGraph *g, const MotTrainOpts *opts,
                             MotTrained *out_trained)
{
    Uses u = {.ctx = ctx, .g = g, .seen = mot_arena_array(&ctx->arena, uint32_t, g->ops.n)};
    MotVec(MotTrainedRow) rows = {0};
    index_uses(&u);
    spread(&u);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]), *at = NULL;
        if (op->kind != MOT_OP_PARAM)
            continue;
        Opinion opinion = judge_param(&u, op->out[0], &at);
        MotInts dims = mot_attrs(op, param)->file_dims;
        const char *reason = opinion.reason;
        if (at)
            reason = mot_arena_printf(&ctx->arena, "%s, %s", reason, mot_op_loc(g, at).place);
        mot_vec_push(&ctx->arena, &rows,
                     (MotTrainedRow){.name = mot_attrs(op, param)->name,
                                     .type = mot_type_make(mot_graph_type(g, op->out[0])->dtype,
                                                           (int)dims.n, dims.data),
                                     .is_trained = opinion.verdict == TRAIN,
                                     .reason = reason});
    }
    *out_trained = (MotTrained){rows.data, rows.n};
    MOT_TRY(apply_globs(ctx, opts, out_trained));
    for (uint32_t i = 0, k = 0; i < g->body.n; i++) {
        MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_PARAM)
            mot_attrs(op, param)->trained = rows.data[k++].is_trained;
    }
    return MOT_OK;
}

/* ---- Ties ---- */

static MotStatus read_initializer(MotCtx *ctx, const MotOnnxFile *file, const char *name,
                                  MotTensor *out)
{
    const Onnx__GraphProto *graph = file->model->graph;
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (strcmp(graph->initializer[i]->name, name) == 0)
            return mot_onnx_tensor(ctx, file, graph->initializer[i], MOT_NOWHERE, out);
    return mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "the model has no initializer %s",
                    mot_quote(&ctx->arena, name));
}

/* Equal biases of zeros say nothing. */
static bool is_telling(const MotTensor *t)
{
    size_t step = (size_t)mot_dtype_bytes(t->type.dtype), bytes = (size_t)mot_type_bytes(&t->type);
    return count_long_dims(&t->type) >= 2 &&
           memcmp(t->data, (const char *)t->data + step, bytes - step) != 0;
}

static bool is_transposed(const MotTensor *a, const MotTensor *b)
{
    if (a->type.rank != 2 || b->type.rank != 2 || a->type.dims[0] != b->type.dims[1] ||
        a->type.dims[1] != b->type.dims[0])
        return false;
    size_t step = (size_t)mot_dtype_bytes(a->type.dtype);
    size_t rows = (size_t)a->type.dims[0], cols = (size_t)a->type.dims[1];
    const char *of_a = a->data, *of_b = b->data;
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < cols; k++)
            if (memcmp(of_a + (i * cols + k) * step, of_b + (k * rows + i) * step, step) != 0)
                return false;
    return true;
}

MotStatus mot_trained_find_ties(MotCtx *ctx, const MotOnnxFile *file, MotTrained *trained)
{
    MotTensor *tensors = mot_arena_array(&ctx->arena, MotTensor, trained->n);
    for (uint32_t i = 0; i < trained->n; i++) {
        MotTrainedRow *row = &trained->rows[i];
        if (!row->is_trained)
            continue;
        MOT_TRY(read_initializer(ctx, file, row->name, &tensors[i]));
        if (!is_telling(&tensors[i]))
            continue;
        for (uint32_t k = 0; k < i && !row->looks_tied; k++) {
            const MotTensor *a = &tensors[k], *b = &tensors[i];
            if (!a->data || a->type.dtype != b->type.dtype ||
                mot_type_bytes(&a->type) != mot_type_bytes(&b->type))
                continue;
            bool is_equal = mot_dims_equal(&a->type, &b->type) &&
                            memcmp(a->data, b->data, (size_t)mot_type_bytes(&a->type)) == 0;
            row->is_transposed = !is_equal && is_transposed(a, b);
            if (is_equal || row->is_transposed)
                row->looks_tied = trained->rows[k].name;
        }
    }
    return MOT_OK;
}

/* ---- Freezing ---- */

MotStatus mot_trained_freeze(MotCtx *ctx, MotGraph *g, const MotOnnxFile *file)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_PARAM || mot_attrs(op, param)->trained)
            continue;
        MotAttr_constant *attrs = mot_arena_new(&ctx->arena, MotAttr_constant);
        MOT_TRY(read_initializer(ctx, file, mot_attrs(op, param)->name, &attrs->data));
        op->kind = MOT_OP_CONSTANT;
        op->attrs = attrs;
    }
    return MOT_OK;
}
