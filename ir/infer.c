/*
 * Result types from operand types, one rule a row. Pointwise rows share one; composites ask their
 * expansion, which is built in a scratch graph and thrown away. Every rule checks what it reads:
 * operands may come from any file.
 */
#include "ir/builder.h"

#include "ir/sparse.h"

#include <string.h>

typedef struct {
    MotGraph *g;
    const MotOp *op;
    const MotType *in[MOT_MAX_OPERANDS];
    MotType *out;
} Infer;

typedef MotStatus (*InferRule)(Infer *);

static MotStatus refuse(const Infer *c, const char *what)
{
    MotArena *arena = &c->g->ctx->arena;
    mot_fail(c->g->ctx, MOT_ERR_MODEL, mot_op_loc(c->g, c->op), "%s: %s",
             mot_op_info(c->op->kind)->name, what);
    for (uint32_t i = 0; i < c->op->n_in && i < 4; i++)
        if (c->op->in[i])
            mot_note(c->g->ctx, "operand %u is %s[%s]", i, mot_dtype_name(c->in[i]->dtype),
                     mot_shape_text(arena, c->in[i]->dims, c->in[i]->rank));
    return c->g->ctx->status;
}

static MotStatus infer_pointwise(Infer *c)
{
    const MotOpInfo *info = mot_op_info(c->op->kind);
    uint32_t first = c->op->kind == MOT_OP_SELECT ? 1 : 0;
    MotType out = {.dtype = info->gives_bool ? MOT_BOOL : c->in[first]->dtype};
    if (first && c->in[0]->dtype != MOT_BOOL)
        return refuse(c, "the condition must be bool");
    for (uint32_t i = 0; i < c->op->n_in; i++) {
        if (i >= first && !(info->operand_classes & mot_dtype_class(c->in[i]->dtype)))
            return refuse(c, "does not take this dtype");
        if (i > first && c->in[i]->dtype != c->in[first]->dtype)
            return refuse(c, "operands differ in dtype");
        if (c->in[i]->rank > out.rank)
            out.rank = c->in[i]->rank;
    }
    for (int d = 0; d < out.rank; d++) {
        out.dims[d] = 1;
        for (uint32_t i = 0; i < c->op->n_in; i++) {
            int own = d - (out.rank - c->in[i]->rank);
            int64_t size = own < 0 ? 1 : c->in[i]->dims[own];
            if (size != 1 && out.dims[d] != 1 && size != out.dims[d])
                return refuse(c, "shapes do not broadcast");
            if (size != 1)
                out.dims[d] = size;
        }
    }
    c->out[0] = out;
    return MOT_OK;
}

static MotStatus infer_input(Infer *c)
{
    (void)c; /* the builder sets the type */
    return MOT_OK;
}

static MotStatus infer_constant(Infer *c)
{
    c->out[0] = mot_attrs(c->op, constant)->data.type;
    return MOT_OK;
}

static MotStatus set_dims(Infer *c, MotDtype dtype, MotInts dims)
{
    if (dims.n > MOT_MAX_RANK)
        return refuse(c, "more than 8 dims");
    int64_t n = 1;
    for (uint32_t i = 0; i < dims.n; i++)
        if (dims.data[i] > 0 && __builtin_mul_overflow(n, dims.data[i], &n))
            return refuse(c, "too many elements");
    c->out[0] = mot_type_make(dtype, (int)dims.n, dims.data);
    return MOT_OK;
}

static MotStatus infer_iota(Infer *c)
{
    const MotAttr_iota *a = mot_attrs(c->op, iota);
    if (a->axis < 0 || a->axis >= a->dims.n)
        return refuse(c, "axis out of range");
    return set_dims(c, a->dtype, a->dims);
}

static MotStatus infer_output(Infer *c)
{
    (void)c;
    return MOT_OK;
}

/* gradient and assign: a parameter, and a value that could stand for it. */
static MotStatus infer_param_sink(Infer *c)
{
    if (mot_graph_def(c->g, c->op->in[0])->kind != MOT_OP_PARAM)
        return refuse(c, "the first operand is no parameter");
    if (!mot_type_equal(c->in[0], c->in[1]))
        return refuse(c, "the value has another type than the parameter");
    return MOT_OK;
}

static MotStatus infer_cast(Infer *c)
{
    c->out[0] = *c->in[0];
    c->out[0].dtype = mot_attrs(c->op, cast)->dtype;
    return c->out[0].dtype == MOT_NO_DTYPE ? refuse(c, "no dtype") : MOT_OK;
}

/* Equal products, symbolic dims counted by name: they must occur equally often on both sides. */
static bool have_equal_elements(const MotType *a, const MotType *b)
{
    int64_t product[2] = {1, 1}, symbols[2] = {0, 0};
    const MotType *types[2] = {a, b};
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < types[side]->rank; i++) {
            int64_t dim = types[side]->dims[i];
            if (dim < 0)
                symbols[side] += (int64_t)1 << (4 * ((-(dim + 1)) % 15));
            else
                product[side] *= dim;
        }
    return product[0] == product[1] && symbols[0] == symbols[1];
}

static MotStatus infer_reshape(Infer *c)
{
    MotInts dims = mot_attrs(c->op, dims)->dims;
    if (set_dims(c, c->in[0]->dtype, dims) != MOT_OK)
        return c->g->ctx->status;
    if (!have_equal_elements(c->in[0], &c->out[0]))
        return refuse(c, mot_arena_printf(
                             &c->g->ctx->arena, "target shape [%s] has another number of elements",
                             mot_shape_text(&c->g->ctx->arena, dims.data, (int)dims.n)));
    return MOT_OK;
}

static MotStatus infer_transpose(Infer *c)
{
    MotInts perm = mot_attrs(c->op, perm)->perm;
    const MotType *x = c->in[0];
    unsigned seen = 0;
    if (perm.n != (uint32_t)x->rank)
        return refuse(c, "perm has another length than the operand has dims");
    c->out[0] = *x;
    for (uint32_t i = 0; i < perm.n; i++) {
        if (perm.data[i] < 0 || perm.data[i] >= x->rank || seen & 1u << perm.data[i])
            return refuse(c, "perm is no permutation");
        seen |= 1u << perm.data[i];
        c->out[0].dims[i] = x->dims[perm.data[i]];
    }
    return MOT_OK;
}

static MotStatus infer_broadcast(Infer *c)
{
    MotInts dims = mot_attrs(c->op, dims)->dims;
    const MotType *x = c->in[0];
    int extra = (int)dims.n - x->rank;
    if (extra < 0)
        return refuse(c, "the target has fewer dims");
    for (int i = 0; i < x->rank; i++)
        if (x->dims[i] != 1 && x->dims[i] != dims.data[i + extra])
            return refuse(c, "the operand does not broadcast to the target");
    return set_dims(c, x->dtype, dims);
}

static MotStatus infer_slice(Infer *c)
{
    const MotAttr_slice *a = mot_attrs(c->op, slice);
    const MotType *x = c->in[0];
    uint32_t rank = (uint32_t)x->rank;
    if (a->start.n != rank || a->size.n != rank || a->step.n != rank)
        return refuse(c, "start, size and step need one entry a dim");
    c->out[0] = *x;
    for (uint32_t i = 0; i < rank; i++) {
        int64_t first = a->start.data[i], size = a->size.data[i], step = a->step.data[i], last;
        c->out[0].dims[i] = size;
        if (size == x->dims[i] && first == 0 && step == 1)
            continue;
        if (size < 0 || step == 0 || __builtin_mul_overflow(size - 1, step, &last) ||
            __builtin_add_overflow(last, first, &last))
            return refuse(c, "bad size or step");
        if (size > 0 && (first < 0 || first >= x->dims[i] || last < 0 || last >= x->dims[i]))
            return refuse(c, "reaches outside the operand");
    }
    return MOT_OK;
}

static MotStatus infer_pad(Infer *c)
{
    const MotAttr_pad *a = mot_attrs(c->op, pad);
    const MotType *x = c->in[0];
    if (a->lo.n != (uint32_t)x->rank || a->hi.n != (uint32_t)x->rank)
        return refuse(c, "lo and hi need one entry a dim");
    c->out[0] = *x;
    for (int i = 0; i < x->rank; i++) {
        int64_t dim = x->dims[i];
        if (a->lo.data[i] == 0 && a->hi.data[i] == 0)
            continue;
        if (a->lo.data[i] < 0 || a->hi.data[i] < 0 ||
            __builtin_add_overflow(dim, a->lo.data[i], &dim) ||
            __builtin_add_overflow(dim, a->hi.data[i], &dim))
            return refuse(c, "pads must be >= 0 and small");
        c->out[0].dims[i] = dim;
    }
    return MOT_OK;
}

static MotStatus infer_concat(Infer *c)
{
    int64_t axis = mot_attrs(c->op, axis)->axis;
    c->out[0] = *c->in[0];
    if (axis < 0 || axis >= c->in[0]->rank)
        return refuse(c, "axis out of range");
    for (uint32_t i = 1; i < c->op->n_in; i++) {
        if (c->in[i]->rank != c->in[0]->rank || c->in[i]->dtype != c->in[0]->dtype)
            return refuse(c, "operands differ in rank or dtype");
        for (int d = 0; d < c->in[0]->rank; d++)
            if (d != axis && c->in[i]->dims[d] != c->in[0]->dims[d])
                return refuse(c, "operands differ in a dim other than the axis");
        int64_t *size = &c->out[0].dims[axis];
        if (__builtin_add_overflow(*size, c->in[i]->dims[axis], size))
            return refuse(c, "too many elements");
    }
    return MOT_OK;
}

static bool is_index_dtype(MotDtype dtype)
{
    return dtype == MOT_I32 || dtype == MOT_I64;
}

static MotStatus infer_gather(Infer *c)
{
    const MotAttr_gather *a = mot_attrs(c->op, gather);
    const MotType *table = c->in[0], *index = c->in[1];
    if (a->axis < 0 || a->axis >= table->rank || (a->batched && index->rank < a->axis))
        return refuse(c, "axis out of range");
    if (!is_index_dtype(index->dtype))
        return refuse(c, "the index must be i32 or i64");
    int axis = (int)a->axis, n_shared = a->batched ? axis : 0, n_rows = index->rank - n_shared;
    if (table->rank - 1 + n_rows > MOT_MAX_RANK)
        return refuse(c, "more than 8 dims");
    for (int d = 0; d < n_shared; d++)
        if (index->dims[d] != table->dims[d])
            return refuse(c, "table and index differ in a dim");
    MotType *out = &c->out[0];
    *out = (MotType){.dtype = table->dtype, .rank = table->rank - 1 + n_rows};
    for (int d = 0; d < out->rank; d++)
        out->dims[d] = d < axis            ? table->dims[d]
                       : d < axis + n_rows ? index->dims[d - axis + n_shared]
                                           : table->dims[d - n_rows + 1];
    return MOT_OK;
}

static MotStatus infer_scatter_add(Infer *c)
{
    const MotAttr_scatter *a = mot_attrs(c->op, scatter);
    const MotType *index = c->in[0], *update = c->in[1];
    MotType *out = &c->out[0];
    if (!is_index_dtype(index->dtype))
        return refuse(c, "the index must be i32 or i64");
    if (a->axis < 0 || a->axis > update->rank || (a->batched && index->rank < a->axis))
        return refuse(c, "axis out of range");
    int first = a->batched ? 0 : (int)a->axis; /* dim of the update that is the index's first */
    int n_rows = index->rank - ((int)a->axis - first);
    *out = (MotType){.dtype = update->dtype, .rank = update->rank - n_rows + 1};
    if (out->rank < 1 || a->axis >= out->rank || first + index->rank > update->rank)
        return refuse(c, "axis out of range");
    if (out->rank > MOT_MAX_RANK)
        return refuse(c, "more than 8 dims");
    for (int d = 0; d < index->rank; d++)
        if (index->dims[d] != update->dims[first + d])
            return refuse(c, "update and index differ in a dim");
    for (int d = 0; d < out->rank; d++)
        out->dims[d] = d < a->axis    ? update->dims[d]
                       : d == a->axis ? a->size
                                      : update->dims[d + n_rows - 1];
    return MOT_OK;
}

static MotStatus infer_reduce(Infer *c)
{
    const MotAttr_reduce *a = mot_attrs(c->op, reduce);
    const MotType *x = c->in[0];
    if (mot_dtype_class(x->dtype) == MOT_CLASS_BOOL)
        return refuse(c, "does not take bool");
    unsigned reduced = 0;
    for (uint32_t i = 0; i < a->axes.n; i++) {
        if (a->axes.data[i] < 0 || a->axes.data[i] >= x->rank || reduced & 1u << a->axes.data[i])
            return refuse(c, "axes out of range or twice");
        reduced |= 1u << a->axes.data[i];
    }
    MotType *out = &c->out[0];
    *out = (MotType){.dtype = x->dtype};
    for (int d = 0; d < x->rank; d++)
        if (!(reduced & 1u << d) || a->keep)
            out->dims[out->rank++] = reduced & 1u << d ? 1 : x->dims[d];
    return MOT_OK;
}

/*
 * Reads the letters of one operand into `size`; returns past them, or NULL when they do not fit the
 * type.
 */
static const char *read_letters(const char *p, const MotType *type, int64_t *size)
{
    unsigned char seen[128] = {0};
    for (int d = 0; d < type->rank; d++, p++) {
        int letter = *p;
        bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
        if (!is_letter || seen[letter]++)
            return NULL;
        if (size[letter] != INT64_MIN && size[letter] != type->dims[d])
            return NULL;
        size[letter] = type->dims[d];
    }
    return p;
}

/*
 * Of a cut contraction: the list, and that the letter is summed over both operands. The operands'
 * letters are known to fit.
 */
static MotStatus check_cut(Infer *c)
{
    const MotAttr_contract *a = mot_attrs(c->op, contract);
    if (!mot_contract_index(c->op))
        return a->cut ? refuse(c, "cut names a letter, but there is no k_index") : MOT_OK;
    const MotType *index = c->in[2];
    if (index->dtype != MOT_I64 || index->rank != 1)
        return refuse(c, "k_index must be i64 with one dim");
    const char *comma = strchr(a->spec, ','), *arrow = strstr(a->spec, "->");
    size_t n_x = (size_t)(comma - a->spec), n_y = (size_t)(arrow - comma - 1);
    if (!a->cut || strlen(a->cut) != 1 || !memchr(a->spec, a->cut[0], n_x) ||
        !memchr(comma + 1, a->cut[0], n_y) || strchr(arrow + 2, a->cut[0]))
        return refuse(c, "cut must name one letter of both operands that the result does not have");
    return MOT_OK;
}

static MotStatus infer_contract(Infer *c)
{
    int64_t size[128];
    for (int i = 0; i < 128; i++)
        size[i] = INT64_MIN;
    const MotAttr_contract *a = mot_attrs(c->op, contract);
    if (c->in[0]->dtype != c->in[1]->dtype || mot_dtype_class(c->in[0]->dtype) == MOT_CLASS_BOOL)
        return refuse(c, "operands must be of one numeric dtype");
    if (a->accumulate && (mot_dtype_class(a->accumulate) != MOT_CLASS_FLOAT ||
                          mot_dtype_class(c->in[0]->dtype) != MOT_CLASS_FLOAT))
        return refuse(c, "accumulate is a float dtype, for float operands");
    const char *p = a->spec ? read_letters(a->spec, c->in[0], size) : NULL;
    p = p && *p == ',' ? read_letters(p + 1, c->in[1], size) : NULL;
    if (!p || strncmp(p, "->", 2) != 0)
        return refuse(c, mot_arena_printf(&c->g->ctx->arena, "spec %s does not fit the operands",
                                          mot_quote(&c->g->ctx->arena, a->spec ? a->spec : "")));
    MotType *out = &c->out[0];
    *out = (MotType){.dtype = c->in[0]->dtype};
    bool seen[128] = {false};
    for (p += 2; *p; p++) {
        if (*p < 0 || size[(int)*p] == INT64_MIN || seen[(int)*p] || out->rank == MOT_MAX_RANK)
            return refuse(c, "a result letter of the spec is unknown, repeated or one too many");
        seen[(int)*p] = true;
        out->dims[out->rank++] = size[(int)*p];
    }
    return check_cut(c);
}

/* ---- Rows of which few entries count ---- */

static MotStatus infer_top_k(Infer *c)
{
    int64_t k = mot_attrs(c->op, top_k)->k;
    const MotType *x = c->in[0];
    if (mot_dtype_class(x->dtype) != MOT_CLASS_FLOAT || x->rank == 0)
        return refuse(c, "needs rows of floats");
    int64_t n = x->dims[x->rank - 1];
    if (k < 1 || k > n || n > INT32_MAX)
        return refuse(c, "k must be in [1, size of the last dim]");
    c->out[0] = c->out[1] = *x;
    c->out[0].dtype = MOT_I32;
    c->out[0].dims[x->rank - 1] = c->out[1].dims[x->rank - 1] = k;
    return MOT_OK;
}

static bool are_entries(const Infer *c)
{
    return c->in[0]->dtype == MOT_I32 && mot_dtype_class(c->in[1]->dtype) == MOT_CLASS_FLOAT &&
           mot_dims_equal(c->in[0], c->in[1]);
}

static MotStatus infer_scatter_mean(Infer *c)
{
    int64_t size = mot_attrs(c->op, size)->size;
    const MotType *index = c->in[0];
    if (!are_entries(c) || index->rank < 2)
        return refuse(c, "needs i32 indices and floats, both [parts, .., k]");
    if (size < index->dims[index->rank - 1] || size > INT32_MAX)
        return refuse(c, "size must be k or more");
    if (index->dims[0] < 1 || index->dims[0] > MOT_MAX_PARTS)
        return refuse(c, "the number of parts must be in [1, 256]");
    c->out[0] = (MotType){.dtype = c->in[1]->dtype, .rank = index->rank - 1};
    for (int d = 0; d + 1 < index->rank; d++)
        c->out[0].dims[d] = d + 2 < index->rank ? index->dims[d + 1] : size;
    return MOT_OK;
}

static MotStatus check_wire(const Infer *c)
{
    const MotAttr_wire *a = mot_attrs(c->op, wire);
    if (mot_wire_find(a->wire) == MOT_N_WIRES)
        return refuse(c, "wire is f32, bf16, int8 or sign");
    if (a->k < 1 || a->k > a->size || a->size > INT32_MAX)
        return refuse(c, "k must be in [1, size]");
    return MOT_OK;
}

static int64_t message_bytes(const Infer *c)
{
    const MotAttr_wire *a = mot_attrs(c->op, wire);
    return mot_sparse_message_bytes(mot_wire_find(a->wire), a->size, a->k);
}

static MotStatus infer_pack(Infer *c)
{
    MOT_TRY(check_wire(c));
    if (!are_entries(c) || c->in[0]->rank == 0 ||
        c->in[0]->dims[c->in[0]->rank - 1] != mot_attrs(c->op, wire)->k)
        return refuse(c, "needs i32 indices and floats, both [.., k]");
    c->out[0] = *c->in[0];
    c->out[0].dtype = MOT_U8;
    c->out[0].dims[c->in[0]->rank - 1] = message_bytes(c);
    return MOT_OK;
}

static MotStatus infer_unpack(Infer *c)
{
    MOT_TRY(check_wire(c));
    const MotType *x = c->in[0];
    if (x->dtype != MOT_U8 || x->rank < 2 || x->dims[x->rank - 1] != message_bytes(c))
        return refuse(c, "needs messages as u8 [peers, .., bytes]");
    c->out[0] = c->out[1] = *x;
    c->out[0].dtype = MOT_I32;
    c->out[1].dtype = MOT_F32;
    c->out[0].dims[x->rank - 1] = c->out[1].dims[x->rank - 1] = mot_attrs(c->op, wire)->k;
    return MOT_OK;
}

/* ---- scan ---- */

static MotType without_axis(MotType type, int64_t axis)
{
    type.rank--;
    for (int64_t d = axis; d < type.rank; d++)
        type.dims[d] = type.dims[d + 1];
    return type;
}

/* `type` with a dim of this size before dim `axis`. */
static MotType with_axis(MotType type, int64_t axis, int64_t size)
{
    for (int64_t d = type.rank++; d > axis; d--)
        type.dims[d] = type.dims[d - 1];
    type.dims[axis] = size;
    return type;
}

/*
 * The attributes against the numbers of operands and outputs, and every axis against its operand;
 * gives the number of steps.
 */
static MotStatus check_scan(Infer *c, const MotSignature *region, int64_t *out_steps)
{
    const MotAttr_scan *a = mot_attrs(c->op, scan);
    if (a->carried < 0 || a->axes.n == 0 || a->axes.n > c->op->n_in ||
        a->carried > c->op->n_in - a->axes.n)
        return refuse(c, "needs `carried` initial values and one or more scanned operands");
    if (region->n_in != c->op->n_in)
        return refuse(c, "the region needs one input an operand");
    if (region->n_out > MOT_MAX_RESULTS)
        return refuse(c,
                      mot_arena_printf(&c->g->ctx->arena, "the region has %u outputs, not up to %d",
                                       region->n_out, MOT_MAX_RESULTS));
    if (a->carried > region->n_out || region->n_out - a->carried != a->out_axes.n)
        return refuse(c,
                      "the region needs one output a carried value and one an entry of out_axes");
    for (uint32_t i = 0; i < a->axes.n; i++) {
        const MotType *x = c->in[a->carried + i];
        if (a->axes.data[i] < 0 || a->axes.data[i] >= x->rank)
            return refuse(c, "axes out of range");
        if (i > 0 && x->dims[a->axes.data[i]] != *out_steps)
            return refuse(c, "scanned operands differ in their number of steps");
        *out_steps = x->dims[a->axes.data[i]];
    }
    return MOT_OK;
}

static MotStatus infer_scan(Infer *c)
{
    const MotAttr_scan *a = mot_attrs(c->op, scan);
    const MotGraph *g = c->op->region;
    MotSignature region = mot_graph_signature(g);
    int64_t steps = 0;
    MOT_TRY(check_scan(c, &region, &steps));
    for (uint32_t i = 0; i < c->op->n_in; i++) {
        bool is_scanned = i >= a->carried && i - a->carried < a->axes.n;
        MotType given =
            is_scanned ? without_axis(*c->in[i], a->axes.data[i - a->carried]) : *c->in[i];
        if (!mot_type_equal(&given, mot_graph_type(g, region.in[i])))
            return refuse(c, "an input of the region has another type than its operand gives");
    }
    for (uint32_t i = 0; i < region.n_out; i++) {
        const MotType *y = mot_graph_type(g, region.out[i]);
        int64_t axis = i < a->carried ? 0 : a->out_axes.data[i - a->carried];
        if (i < a->carried && !mot_type_equal(y, c->in[i]))
            return refuse(c, "a carried value changes its type");
        if (axis < 0 || axis > y->rank || y->rank == MOT_MAX_RANK)
            return refuse(c, "out_axes out of range");
        c->out[i] = i < a->carried ? *y : with_axis(*y, axis, steps);
    }
    return MOT_OK;
}

/*
 * The types of the expansion's results, which is built in a scratch graph over operands of the same
 * types.
 */
static MotStatus infer_composite(Infer *c)
{
    MotCtx *ctx = c->g->ctx;
    MotGraph *scratch = mot_graph_make(ctx, "expansion");
    scratch->symbols = c->g->symbols;
    MotBuilder b = mot_builder_make(scratch);
    b.origin = c->op->origin;
    MotOp op = *c->op;
    MotValue in[MOT_MAX_OPERANDS], results[MOT_MAX_RESULTS] = {0};
    for (uint32_t i = 0; i < op.n_in; i++)
        in[i] = op.in[i] ? mot_input(&b, "operand", *c->in[i]) : 0;
    op.in = in;
    MOT_TRY(mot_expand(&b, &op, results));
    for (uint32_t i = 0; i < op.n_out; i++)
        c->out[i] = *mot_graph_type(scratch, results[i]);
    return MOT_OK;
}

#define infer_param infer_input
#define infer_gradient infer_param_sink
#define infer_assign infer_param_sink
#define infer_reduce_sum infer_reduce
#define infer_reduce_max infer_reduce
#define RULE_SOURCE(name) infer_##name
#define RULE_SINK(name) infer_##name
#define RULE_PRIMITIVE(name) infer_##name
#define RULE_COMPOSITE(name) infer_composite

static const InferRule rules[MOT_N_OPS] = {
#define POINTWISE(id, name, arity, classes, result, expression) [MOT_OP_##id] = infer_pointwise,
#define OP(id, name, kind, n_min, n_max, n_out, attrs, flags) [MOT_OP_##id] = RULE_##kind(name),
#include "ir/ops.def"
};

/* Dims are sizes or symbols of the graph; what multiplies sizes relies on their product. */
static MotStatus check_result(const Infer *c, const MotType *type)
{
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] < -(int64_t)c->g->symbols.n)
            return refuse(c, "the result has a size below zero");
    if (mot_type_fits(type))
        return MOT_OK;
    return mot_fail(c->g->ctx, MOT_ERR_LIMIT, mot_op_loc(c->g, c->op),
                    "%s: the result has 2^62 elements or more", mot_op_info(c->op->kind)->name);
}

MotStatus mot_infer(MotGraph *g, const MotOp *op, MotType *out_types)
{
    Infer c = {.g = g, .op = op, .out = out_types};
    for (uint32_t i = 0; i < op->n_in; i++)
        c.in[i] = mot_graph_type(g, op->in[i]);
    MOT_TRY(rules[op->kind](&c));
    for (uint32_t i = 0; i < op->n_out; i++)
        MOT_TRY(check_result(&c, &out_types[i]));
    return MOT_OK;
}
