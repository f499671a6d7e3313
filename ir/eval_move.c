/* Primitives that move elements, and the sources that make them. Movers copy bytes and know no
 * dtype. */
#include "ir/eval_rules.h"

#include <string.h>

static size_t element_bytes(const MotTensor *tensor)
{
    return (size_t)mot_dtype_bytes(tensor->type.dtype);
}

static void copy_element(const MotTensor *to, int64_t i, const MotTensor *from, int64_t k)
{
    size_t bytes = element_bytes(to);
    memcpy((char *)to->data + (size_t)i * bytes, (const char *)from->data + (size_t)k * bytes,
           bytes);
}

/* Copies where the walk leads: offset 0 in the result, offset 1 in the operand. */
static void copy_walk(MotWalk *w, const MotTensor *to, const MotTensor *from)
{
    for (bool more = mot_walk_begin(w); more; more = mot_walk_next(w))
        copy_element(to, w->offset[0], from, w->offset[1]);
}

/* Loops over all of `type`, tensor `k` of the walk being dense. */
static MotWalk walk_dense(const MotType *type, int k)
{
    MotWalk w = {.n_loops = type->rank};
    memcpy(w.size, type->dims, (size_t)type->rank * sizeof *type->dims);
    mot_eval_strides(type, w.step[k]);
    return w;
}

MotStatus mot_eval_reshape(MotEval *e)
{
    size_t bytes = (size_t)mot_type_bytes(&e->out[0].type);
    if (bytes)
        memcpy(e->out[0].data, e->in[0].data, bytes);
    return MOT_OK;
}

MotStatus mot_eval_transpose(MotEval *e)
{
    const int64_t *perm = mot_attrs(e->op, perm)->perm.data;
    int64_t strides[MOT_MAX_RANK];
    MotWalk w = walk_dense(&e->out[0].type, 0);
    mot_eval_strides(&e->in[0].type, strides);
    for (int d = 0; d < w.n_loops; d++)
        w.step[1][d] = strides[perm[d]];
    copy_walk(&w, &e->out[0], &e->in[0]);
    return MOT_OK;
}

MotStatus mot_eval_broadcast(MotEval *e)
{
    const MotType *x = &e->in[0].type;
    int64_t strides[MOT_MAX_RANK];
    MotWalk w = walk_dense(&e->out[0].type, 0);
    mot_eval_strides(x, strides);
    for (int d = 0; d < x->rank; d++)
        w.step[1][d + w.n_loops - x->rank] = x->dims[d] == 1 ? 0 : strides[d];
    copy_walk(&w, &e->out[0], &e->in[0]);
    return MOT_OK;
}

MotStatus mot_eval_slice(MotEval *e)
{
    const MotAttr_slice *a = mot_attrs(e->op, slice);
    int64_t strides[MOT_MAX_RANK];
    MotWalk w = walk_dense(&e->out[0].type, 0);
    mot_eval_strides(&e->in[0].type, strides);
    for (int d = 0; d < w.n_loops; d++) {
        w.step[1][d] = strides[d] * a->step.data[d];
        w.offset[1] += strides[d] * a->start.data[d];
    }
    copy_walk(&w, &e->out[0], &e->in[0]);
    return MOT_OK;
}

MotStatus mot_eval_pad(MotEval *e)
{
    const MotAttr_pad *a = mot_attrs(e->op, pad);
    MotTensor *out = &e->out[0];
    int64_t n = mot_type_elements(&out->type), strides[MOT_MAX_RANK];
    for (int64_t i = 0; i < n; i++)
        mot_tensor_set(out, i, a->value);
    MotWalk w = walk_dense(&e->in[0].type, 1);
    mot_eval_strides(&out->type, strides);
    for (int d = 0; d < w.n_loops; d++) {
        w.step[0][d] = strides[d];
        w.offset[0] += strides[d] * a->lo.data[d];
    }
    copy_walk(&w, out, &e->in[0]);
    return MOT_OK;
}

MotStatus mot_eval_concat(MotEval *e)
{
    int64_t axis = mot_attrs(e->op, axis)->axis, strides[MOT_MAX_RANK], at = 0;
    mot_eval_strides(&e->out[0].type, strides);
    for (uint32_t i = 0; i < e->op->n_in; i++) {
        MotWalk w = walk_dense(&e->in[i].type, 1);
        memcpy(w.step[0], strides, (size_t)w.n_loops * sizeof *strides);
        w.offset[0] = at * strides[axis];
        copy_walk(&w, &e->out[0], &e->in[i]);
        at += e->in[i].type.dims[axis];
    }
    return MOT_OK;
}

/*
 * The result is the dims before the axis, the index's (batched: those after them), those after it;
 * the walk runs over them and the index (tensor 2).
 */
MotStatus mot_eval_gather(MotEval *e)
{
    const MotAttr_gather *a = mot_attrs(e->op, gather);
    const MotTensor *table = &e->in[0], *index = &e->in[1];
    int64_t strides[MOT_MAX_RANK];
    int axis = (int)a->axis, first = a->batched ? 0 : axis,
        n_rows = index->type.rank - (axis - first);
    MotWalk w = walk_dense(&e->out[0].type, 0);
    mot_eval_strides(&table->type, strides);
    mot_eval_strides(&index->type, &w.step[2][first]);
    for (int d = 0; d < axis; d++)
        w.step[1][d] = strides[d];
    for (int d = axis + n_rows; d < w.n_loops; d++) {
        w.step[1][d] = strides[d - n_rows + 1];
        w.step[2][d] = 0;
    }
    for (bool more = mot_walk_begin(&w); more; more = mot_walk_next(&w)) {
        int64_t row = mot_tensor_get_int(index, w.offset[2]);
        if (row < 0 || row >= table->type.dims[axis])
            return mot_fail(e->ctx, MOT_ERR_DATA, mot_op_loc(e->g, e->op),
                            "gather: index %lld at element %lld is outside [0, %lld)",
                            (long long)row, (long long)w.offset[2],
                            (long long)table->type.dims[axis]);
        copy_element(&e->out[0], w.offset[0], table, w.offset[1] + row * strides[axis]);
    }
    return MOT_OK;
}

/* ---- Sources, and conversion ---- */

MotStatus mot_eval_constant(MotEval *e)
{
    MotEval conversion = *e;
    conversion.in = &mot_attrs(e->op, constant)->data;
    return mot_eval_cast(&conversion);
}

MotStatus mot_eval_iota(MotEval *e)
{
    MotWalk w = walk_dense(&e->out[0].type, 0);
    int64_t axis = mot_attrs(e->op, iota)->axis;
    for (bool more = mot_walk_begin(&w); more; more = mot_walk_next(&w))
        mot_tensor_set_int(&e->out[0], w.offset[0], w.at[axis]);
    return MOT_OK;
}

/* Floats saturate (ir/dtype.h), integers wrap into smaller ones; what is not zero becomes true. */
MotStatus mot_eval_cast(MotEval *e)
{
    const MotTensor *x = &e->in[0], *out = &e->out[0];
    bool from_float = mot_dtype_class(x->type.dtype) == MOT_CLASS_FLOAT;
    int64_t n = mot_type_elements(&out->type);
    for (int64_t i = 0; i < n; i++) {
        if (from_float)
            mot_tensor_set(out, i, mot_tensor_get(x, i));
        else
            mot_tensor_set_int(out, i, mot_tensor_get_int(x, i));
    }
    return MOT_OK;
}
