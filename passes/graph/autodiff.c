/*
 * autodiff: reverse-mode differentiation of `output {name="loss"}` by the parameters that are
 * marked as trained.
 *
 * One sweep over the ops in reverse order applies the rule of each row (grad.def) where a gradient
 * arrives and a trained parameter lies behind; contributions to one value are added in the order of
 * the sweep, so that the sum is the same in every run. Derived ops know their forward op and
 * origin, and their role: dw on the way to an operand that depends on parameters only, else dx. The
 * result is one `gradient` op a trained parameter, accumulated where a step has several
 * micro-batches.
 *
 * Needs: a scalar loss; composites (raise) and atoms (split-dims) already in place. Cost: linear in
 * ops.
 */
#include "ir/builder.h"
#include "passes/graph/edit.h"
#include "passes/graph/expand_composites.h"
#include "passes/graph/grad.h"
#include "passes/pass.h"

#include <string.h>

/* What is known of each value of the graph before differentiation. */
typedef struct {
    MotCtx *ctx;
    MotGraph *g;
    MotBuilder b;
    bool *is_wanted; /* [values] a trained parameter lies behind it, on a float path */
    /* [values] depends on no samples (scalars are none): an operand like that is a weight */
    bool *is_constant;
    bool *is_used;    /* [values] some op reads it */
    MotValue *grad;   /* [values] the gradient so far, 0 if none */
    uint32_t n_known; /* values of the forward graph: those of the lists above */
} Autodiff;

static bool is_float(const MotGraph *g, MotValue v)
{
    return mot_dtype_class(mot_graph_type(g, v)->dtype) == MOT_CLASS_FLOAT;
}

/* One forward sweep: what a parameter's gradient can reach, what is a weight, what is used. */
static void classify_values(Autodiff *a)
{
    MotGraph *g = a->g;
    a->n_known = g->values.n;
    a->is_wanted = mot_arena_array(&a->ctx->arena, bool, g->values.n);
    a->is_constant = mot_arena_array(&a->ctx->arena, bool, g->values.n);
    a->is_used = mot_arena_array(&a->ctx->arena, bool, g->values.n);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        bool is_wanted = op->kind == MOT_OP_PARAM && mot_attrs(op, param)->trained;
        bool is_constant = op->kind != MOT_OP_INPUT || mot_graph_type(g, op->out[0])->rank == 0;
        for (uint32_t k = 0; k < op->n_in; k++) {
            MotValue x = op->in[k];
            a->is_used[x] = true;
            is_wanted |= a->is_wanted[x];
            is_constant &= !x || a->is_constant[x];
        }
        is_wanted &= mot_grad_get(op->kind)->kind != MOT_GRAD_ZERO || op->kind == MOT_OP_PARAM;
        for (uint32_t k = 0; k < op->n_out; k++) {
            a->is_wanted[op->out[k]] = is_wanted && is_float(g, op->out[k]);
            a->is_constant[op->out[k]] = is_constant;
        }
    }
}

/* Composites whose row has no rule, or none for what is asked of it (grad_composite.c). */
static bool needs_expansion(const void *self, const MotOp *op)
{
    const Autodiff *a = self;
    bool is_wanted = false;
    for (uint32_t k = 0; k < op->n_in; k++)
        is_wanted |= op->in[k] < a->n_known && a->is_wanted[op->in[k]];
    MotGradKind kind = mot_grad_get(op->kind)->kind;
    if (!is_wanted || kind == MOT_GRAD_NONE)
        return false;
    for (uint32_t k = 1; k < op->n_out; k++)
        if (op->out[k] < a->n_known && a->is_used[op->out[k]])
            return true;
    return kind == MOT_GRAD_EXPAND ||
           (op->kind == MOT_OP_ATTENTION && op->n_in == 4 && a->is_wanted[op->in[3]]);
}

/* Expansions may hold such composites in turn, whose values are not known until the next round. */
static MotStatus expand_and_classify(Autodiff *a)
{
    bool is_changed = true;
    while (is_changed) {
        is_changed = false;
        classify_values(a);
        MOT_TRY(mot_expand_composites(a->g, needs_expansion, a, &is_changed));
    }
    return MOT_OK;
}

/*
 * The gradient of a slice along one axis: entries [lo, lo + size of part) of it are `part`, the
 * others zeros.
 */
typedef struct {
    MotValue part;
    int axis;
    int64_t lo, hi, size;
} SliceGrad;

static bool read_slice_grad(const MotGraph *g, MotValue v, SliceGrad *out)
{
    const MotOp *op = mot_graph_def(g, v);
    if (op->kind != MOT_OP_PAD || mot_attrs(op, pad)->value != 0)
        return false;
    const int64_t *lo = mot_attrs(op, pad)->lo.data, *hi = mot_attrs(op, pad)->hi.data;
    int n = 0;
    for (int d = 0; d < mot_graph_type(g, v)->rank; d++)
        if (lo[d] || hi[d]) {
            *out = (SliceGrad){op->in[0], d, lo[d], hi[d], mot_graph_type(g, op->in[0])->dims[d]};
            n++;
        }
    return n == 1;
}

/* Appends the parts of which `s` was joined before, or itself. */
static uint32_t list_parts(const MotGraph *g, const SliceGrad *s, MotValue *parts, uint32_t n)
{
    const MotOp *op = mot_graph_def(g, s->part);
    bool is_joined = op->kind == MOT_OP_CONCAT && mot_attrs(op, axis)->axis == s->axis;
    const MotValue *list = is_joined ? op->in : &s->part;
    uint32_t n_list = is_joined ? op->n_in : 1;
    if (n + n_list > MOT_MAX_OPERANDS)
        return MOT_MAX_OPERANDS + 1;
    memcpy(parts + n, list, n_list * sizeof *list);
    return n + n_list;
}

/* Gradients of slices that lie side by side are one concat; 0 for any others. */
static MotValue join_slices(MotBuilder *b, MotValue x, MotValue y)
{
    MotGraph *g = b->graph;
    SliceGrad first, second;
    MotValue parts[MOT_MAX_OPERANDS];
    if (!read_slice_grad(g, x, &first) || !read_slice_grad(g, y, &second) ||
        first.axis != second.axis)
        return 0;
    if (second.lo < first.lo) {
        SliceGrad swapped = first;
        first = second;
        second = swapped;
    }
    uint32_t n = list_parts(g, &second, parts, list_parts(g, &first, parts, 0));
    if (first.lo + first.size != second.lo || n > MOT_MAX_OPERANDS)
        return 0;
    MotValue joined = mot_concat(b, parts, n, first.axis);
    int64_t lo[MOT_MAX_RANK] = {0}, hi[MOT_MAX_RANK] = {0};
    lo[first.axis] = first.lo;
    hi[first.axis] = second.hi;
    return first.lo || second.hi ? mot_pad(b, joined, lo, hi, 0) : joined;
}

/* Adds dx to what has arrived at x. */
static void accumulate(Autodiff *a, MotValue x, MotValue dx)
{
    MotValue old = a->grad[x], joined = old ? join_slices(&a->b, old, dx) : dx;
    a->grad[x] = joined ? joined : mot_add(&a->b, old, dx);
}

/* Gives `role` to the ops made since `first` on which v depends. */
static void mark_role(MotGraph *g, MotValue v, MotOpId first, MotRole role)
{
    MotVec(MotValue) stack = {0};
    mot_vec_push(&g->ctx->arena, &stack, v);
    while (stack.n) {
        MotOpId id = g->values.data[stack.data[--stack.n]].def;
        if (id < first || mot_graph_op(g, id)->role == role)
            continue;
        MotOp *op = mot_graph_op(g, id);
        op->role = role;
        for (uint32_t k = 0; k < op->n_in; k++)
            mot_vec_push(&g->ctx->arena, &stack, op->in[k]);
    }
}

/* What only weights' gradients need is dw; what an activation's gradient needs as well is dx. */
static void assign_roles(Autodiff *a, const MotGradRule *r, MotOpId first)
{
    for (int is_weight = 1; is_weight >= 0; is_weight--)
        for (uint32_t k = 0; k < r->op->n_in; k++)
            if (r->dx[k] && a->is_constant[r->x[k]] == is_weight)
                mark_role(a->g, r->dx[k], first, is_weight ? MOT_ROLE_DW : MOT_ROLE_DX);
}

static MotStatus refuse(Autodiff *a, const MotOp *op, const char *why)
{
    MotGraph *g = a->g;
    mot_fail(a->ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(g, op), "%s has no gradient: %s",
             mot_op_info(op->kind)->name, why);
    /* The parameters behind it: a backward sweep that marks operands. */
    bool *is_behind = mot_arena_array(&a->ctx->arena, bool, g->values.n);
    for (uint32_t k = 0; k < op->n_in; k++)
        is_behind[op->in[k]] = true;
    for (uint32_t i = g->body.n; i-- > 0;) {
        const MotOp *before = mot_graph_op(g, g->body.data[i]);
        bool is_on_path = false;
        for (uint32_t k = 0; k < before->n_out; k++)
            is_on_path |= is_behind[before->out[k]] && a->is_wanted[before->out[k]];
        for (uint32_t k = 0; k < before->n_in && is_on_path; k++)
            is_behind[before->in[k]] = true;
        if (is_on_path && before->kind == MOT_OP_PARAM)
            mot_note(a->ctx, "parameter %s is out of reach behind it",
                     mot_quote(&a->ctx->arena, mot_attrs(before, param)->name));
    }
    mot_hint(a->ctx, "freeze these parameters (--freeze) or take the operator out of the model");
    return a->ctx->status;
}

/* Applies the rule of one op and hands its results on. */
static MotStatus differentiate_op(Autodiff *a, MotOpId id, const MotValue *g)
{
    const MotOp op = *mot_graph_op(a->g, id);
    const MotGrad *grad = mot_grad_get(op.kind);
    if (grad->kind != MOT_GRAD_RULE)
        return refuse(a, &op, grad->why ? grad->why : "its expansion was not made");
    MotOpId first = a->g->ops.n;
    MotValue *dx = mot_arena_array(&a->ctx->arena, MotValue, op.n_in);
    a->b.fwd = id;
    a->b.origin = op.origin;
    a->b.role = MOT_ROLE_FORWARD; /* until assign_roles */
    MotGradRule r = {.b = &a->b, .op = &op, .x = op.in, .y = op.out, .g = g, .dx = dx};
    grad->rule(&r);
    for (uint32_t k = 0; k < op.n_in; k++) {
        const MotType type = *mot_graph_type(a->g, op.in[k]);
        if (!a->is_wanted[op.in[k]])
            dx[k] = 0;
        if (dx[k] && mot_op_info(op.kind)->class == MOT_POINTWISE)
            dx[k] = mot_sum_to(&a->b, dx[k], type.rank, type.dims);
        MOT_ASSERT(!dx[k] || mot_type_equal(&type, mot_graph_type(a->g, dx[k])));
    }
    assign_roles(a, &r, first);
    a->b.role = MOT_ROLE_DX;
    for (uint32_t k = 0; k < op.n_in; k++)
        if (dx[k])
            accumulate(a, op.in[k], dx[k]);
    return a->ctx->status;
}

static MotStatus sweep_backwards(Autodiff *a)
{
    MotGraph *g = a->g;
    for (uint32_t i = g->body.n; i-- > 0;) {
        MotOpId id = g->body.data[i];
        const MotOp *op = mot_graph_op(g, id);
        MotValue arrived[4] = {0};
        bool is_reached = false;
        for (uint32_t k = 0; k < op->n_out; k++) {
            MotValue y = op->out[k];
            arrived[k] = a->is_wanted[y] ? a->grad[y] : 0;
            is_reached |= arrived[k] != 0;
        }
        if (is_reached && op->kind != MOT_OP_PARAM)
            MOT_TRY(differentiate_op(a, id, arrived));
    }
    return MOT_OK;
}

/* A parameter that the loss does not depend on has gradient zero, and deserves a warning. */
static MotValue zero_gradient(Autodiff *a, MotValue param, const char *name)
{
    const MotType type = *mot_graph_type(a->g, param);
    mot_warn(a->ctx, MOT_NOWHERE, "the loss does not depend on parameter %s: its gradient is zero",
             mot_quote(&a->ctx->arena, name));
    return mot_broadcast(&a->b, mot_scalar(&a->b, type.dtype, 0), type.rank, type.dims);
}

static MotStatus bind_gradients(Autodiff *a, bool accumulates)
{
    MotGraph *g = a->g;
    uint32_t n_found = 0;
    a->b = mot_builder_make(g);
    a->b.role = MOT_ROLE_DW;
    for (uint32_t i = 0, n = g->body.n; i < n; i++) {
        const MotOp op = *mot_graph_op(g, g->body.data[i]);
        if (op.kind != MOT_OP_PARAM || !mot_attrs(&op, param)->trained)
            continue;
        MotValue grad = a->grad[op.out[0]];
        grad = grad ? grad : zero_gradient(a, op.out[0], mot_attrs(&op, param)->name);
        a->b.origin = accumulates ? mot_attrs(&op, param)->name : NULL;
        if (accumulates)
            grad = mot_accumulate(&a->b, grad);
        mot_build(&a->b, MOT_OP_GRADIENT, (MotValue[]){op.out[0], grad}, 2, NULL);
        n_found++;
    }
    if (n_found == 0)
        return mot_fail(a->ctx, MOT_ERR_MODEL, MOT_NOWHERE, "no parameter of the model trains");
    return a->ctx->status;
}

/* A scalar float named "loss". */
static MotStatus find_loss(MotCtx *ctx, const MotGraph *g, MotValue *out_loss)
{
    MotValue loss = mot_edit_find_output(g, "loss");
    *out_loss = loss;
    if (!loss)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "there is no output \"loss\" to differentiate");
    const MotType *type = mot_graph_type(g, loss);
    if (type->rank != 0 || !is_float(g, loss))
        return mot_fail(ctx, MOT_ERR_MODEL, MOT_NOWHERE, "the loss is %s[%s], not a float scalar",
                        mot_dtype_name(type->dtype),
                        mot_shape_text(&ctx->arena, type->dims, type->rank));
    return MOT_OK;
}

static MotStatus differentiate(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    Autodiff a = {.ctx = ctx, .g = g};
    MOT_TRY(expand_and_classify(&a));
    MotValue loss;
    MOT_TRY(find_loss(ctx, g, &loss));
    a.grad = mot_arena_array(&ctx->arena, MotValue, g->values.n);
    a.b = mot_builder_make(g);
    a.b.role = MOT_ROLE_DX;
    if (a.is_wanted[loss])
        a.grad[loss] = mot_scalar_like(&a.b, loss, 1);
    MOT_TRY(sweep_backwards(&a));
    MOT_TRY(bind_gradients(&a, opts->accumulates));
    *out_changed = true;
    return MOT_OK;
}

const MotPass mot_pass_autodiff = {.name = "autodiff",
                                   .summary = "gradients of the loss by the trained parameters",
                                   .run = differentiate};
