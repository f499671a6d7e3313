/* Constants, casts and operators that change shapes only. */
#include "frontend/import_node.h"

#include <math.h>
#include <string.h>

/* ---- Constants ---- */

/* Copies `count` elements of `bytes` each into a new constant vector, or a scalar for count -1. */
static MotValue copy_constant(MotNode *n, MotDtype dtype, const void *data, int64_t count)
{
    int64_t elements = count < 0 ? 1 : count;
    MotTensor t = {mot_type_make(dtype, count < 0 ? 0 : 1, &elements), NULL};
    t.data = mot_arena_alloc(&n->im->ctx->arena, (size_t)mot_type_bytes(&t.type));
    if (elements)
        memcpy(t.data, data, (size_t)mot_type_bytes(&t.type));
    return mot_constant(n->b, t);
}

static MotValue read_constant(MotNode *n, const Onnx__TensorProto *tensor)
{
    MotTensor t = {0};
    if (mot_onnx_tensor(n->im->ctx, n->im->file, tensor, n->loc, &t) != MOT_OK)
        return 0;
    return mot_constant(n->b, t);
}

void mot_lower_constant(MotNode *n)
{
    if (n->proto->n_attribute != 1) {
        mot_node_fail(n, MOT_ERR_MODEL, "needs exactly one value, has %zu", n->proto->n_attribute);
        return;
    }
    const Onnx__AttributeProto *a = n->proto->attribute[0];
    const char *form = a->name;
    if (strcmp(form, "value") == 0)
        n->out[0] = read_constant(n, a->t);
    else if (strcmp(form, "value_int") == 0)
        n->out[0] = copy_constant(n, MOT_I64, &a->i, -1);
    else if (strcmp(form, "value_ints") == 0)
        n->out[0] = copy_constant(n, MOT_I64, a->ints, (int64_t)a->n_ints);
    else if (strcmp(form, "value_float") == 0)
        n->out[0] = copy_constant(n, MOT_F32, &a->f, -1);
    else if (strcmp(form, "value_floats") == 0)
        n->out[0] = copy_constant(n, MOT_F32, a->floats, (int64_t)a->n_floats);
    else
        mot_node_fail(n, MOT_ERR_UNSUPPORTED, "%s is not supported", form);
}

void mot_lower_constant_of_shape(MotNode *n)
{
    MotInts dims;
    if (!mot_node_known_ints(n, 0, &dims) || !mot_node_fits_rank(n, (int)dims.n))
        return;
    for (uint32_t i = 0; i < dims.n; i++)
        if (dims.data[i] < 0)
            mot_node_fail(n, MOT_ERR_MODEL, "dim %u is %lld", i, (long long)dims.data[i]);
    const Onnx__AttributeProto *attr = mot_node_attr(n, "value");
    MotValue value = attr ? read_constant(n, attr->t) : mot_scalar(n->b, MOT_F32, 0);
    if (mot_node_ok(n) && mot_type_elements(mot_value_type(n, value)) != 1)
        mot_node_fail(n, MOT_ERR_MODEL, "value must have one element");
    if (mot_node_ok(n))
        n->out[0] = mot_broadcast(n->b, mot_reshape(n->b, value, 0, (int64_t[]){0}), (int)dims.n,
                                  dims.data);
}

void mot_lower_range(MotNode *n)
{
    const MotTensor *start = mot_node_known(n, 0), *limit = mot_node_known(n, 1),
                    *delta = mot_node_known(n, 2);
    mot_node_check_dtypes(n, 0, 3);
    if (!mot_node_ok(n) || !start || !limit || !delta)
        return;
    for (uint32_t i = 0; i < 3; i++)
        if (mot_type_elements(mot_node_type(n, i)) != 1)
            mot_node_fail(n, MOT_ERR_MODEL, "input %s must be a scalar",
                          mot_node_operand_text(n, i));
    if (!mot_node_ok(n))
        return;
    double first = mot_tensor_get(start, 0), step = mot_tensor_get(delta, 0);
    double count = ceil((mot_tensor_get(limit, 0) - first) / step);
    if (step == 0 || !(count < 0x1p53)) {
        mot_node_fail(n, MOT_ERR_MODEL, "from %g to %g by %g has no end", first,
                      mot_tensor_get(limit, 0), step);
        return;
    }
    int64_t size = count > 0 ? (int64_t)count : 0;
    MotValue y = mot_cast(n->b, mot_iota(n->b, MOT_I64, 1, &size, 0), start->type.dtype);
    y = step == 1 ? y : mot_mul_scalar(n->b, y, step);
    n->out[0] = first == 0 ? y : mot_add_scalar(n->b, y, first);
}

/* ---- Casts and names ---- */

static void cast_to(MotNode *n, MotDtype dtype)
{
    n->out[0] = mot_cast(n->b, n->in[0], dtype);
}

void mot_lower_cast(MotNode *n)
{
    int64_t to = mot_node_int(n, "to", 0);
    MotDtype dtype = mot_dtype_from_onnx(to);
    if (dtype == MOT_NO_DTYPE)
        mot_node_fail(n, MOT_ERR_UNSUPPORTED, "data type %s is not supported",
                      mot_onnx_dtype_name(&n->im->ctx->arena, to));
    else
        cast_to(n, dtype);
}

void mot_lower_cast_like(MotNode *n)
{
    cast_to(n, mot_node_type(n, 1)->dtype);
}

void mot_lower_identity(MotNode *n)
{
    n->out[0] = n->in[0];
    n->out_sequence[0] = n->sequence[0];
}

/* ---- Shapes as values ---- */

void mot_lower_shape(MotNode *n)
{
    MotType type = *mot_node_type(n, 0);
    int64_t start = mot_node_int(n, "start", 0), end = mot_node_int(n, "end", type.rank);
    start += start < 0 ? type.rank : 0;
    end += end < 0 ? type.rank : 0;
    start = start < 0 ? 0 : start > type.rank ? type.rank : start;
    end = end < start ? start : end > type.rank ? type.rank : end;
    n->out[0] = mot_node_vector(n, type.dims + start, end - start);
}

void mot_lower_size(MotNode *n)
{
    int64_t elements = mot_type_elements(mot_node_type(n, 0));
    n->out[0] = copy_constant(n, MOT_I64, &elements, -1);
}

/* ---- Reshapes ---- */

static void fail_reshape(MotNode *n, const MotType *target, int64_t elements)
{
    MotArena *arena = &n->im->ctx->arena;
    mot_node_fail(n, MOT_ERR_MODEL, "target shape [%s] has %lld elements, the input has %lld",
                  mot_shape_text(arena, target->dims, target->rank),
                  (long long)mot_type_elements(target), (long long)elements);
    mot_hint(n->im->ctx,
             "a model traced at other sizes than it declares needs those sizes: --dim NAME=SIZE");
}

/* The product of the dims of a target from a file, -1 aside; -1 if it overflows. */
static int64_t multiply_dims(const MotType *target)
{
    int64_t product = 1;
    for (int i = 0; i < target->rank; i++)
        if (target->dims[i] != -1 && __builtin_mul_overflow(product, target->dims[i], &product))
            return -1;
    return product;
}

/* Replaces 0 by the input's dim and -1 by what is left. */
static void resolve_target(MotNode *n, MotType *target, bool zero_is_zero)
{
    const MotType x = *mot_node_type(n, 0);
    int64_t elements = mot_type_elements(&x);
    int free = -1;
    for (int i = 0; i < target->rank; i++) {
        int64_t dim = target->dims[i];
        if (dim == 0 && !zero_is_zero && i >= x.rank)
            mot_node_fail(n, MOT_ERR_MODEL,
                          "dim %d of the target is 0 (copy), but the input has rank %d", i, x.rank);
        else if (dim == 0 && !zero_is_zero)
            target->dims[i] = x.dims[i];
        else if (dim < -1 || (dim == -1 && free >= 0))
            mot_node_fail(n, MOT_ERR_MODEL,
                          dim < -1 ? "dim %d of the target is negative"
                                   : "dim %d of the target is a second -1",
                          i);
        else if (dim == -1)
            free = i;
    }
    int64_t product = multiply_dims(target);
    if (product < 0)
        mot_node_fail(n, MOT_ERR_LIMIT, "the target shape has more than 2^63 elements");
    if (!mot_node_ok(n))
        return;
    if (free >= 0)
        target->dims[free] = product > 0 ? elements / product : 0;
    if (mot_type_elements(target) != elements)
        fail_reshape(n, target, elements);
}

void mot_lower_reshape(MotNode *n)
{
    MotInts dims;
    if (!mot_node_known_ints(n, 1, &dims) || !mot_node_fits_rank(n, (int)dims.n))
        return;
    MotType target = mot_type_make(MOT_NO_DTYPE, (int)dims.n, dims.data);
    resolve_target(n, &target, mot_node_int(n, "allowzero", 0) != 0);
    if (mot_node_ok(n))
        n->out[0] = mot_reshape(n->b, n->in[0], target.rank, target.dims);
}

void mot_lower_flatten(MotNode *n)
{
    const MotType x = *mot_node_type(n, 0);
    int64_t axis = mot_node_int(n, "axis", 1), dims[2] = {1, 1};
    if (axis != x.rank)
        axis = mot_node_axis(n, axis, x.rank);
    for (int i = 0; i < x.rank; i++)
        dims[i >= axis] *= x.dims[i];
    n->out[0] = mot_reshape(n->b, n->in[0], 2, dims);
}

/* Axes from the attribute, or from operand 1; false where the node gives none. */
static bool read_axes(MotNode *n, MotInts *out_list)
{
    if (n->n_in > 1)
        return mot_node_has(n, 1) && mot_node_known_ints(n, 1, out_list);
    return mot_node_ints(n, "axes", out_list);
}

void mot_lower_squeeze(MotNode *n)
{
    const MotType x = *mot_node_type(n, 0);
    MotInts list = {0};
    int64_t axes[MOT_MAX_RANK], dims[MOT_MAX_RANK];
    bool drops[MOT_MAX_RANK] = {false}, has_axes = read_axes(n, &list);
    uint32_t n_axes = mot_node_axes(n, list, x.rank, axes);
    for (uint32_t i = 0; i < n_axes; i++) {
        drops[axes[i]] = true;
        if (x.dims[axes[i]] != 1)
            mot_node_fail(n, MOT_ERR_MODEL, "axis %lld has size %lld, not 1", (long long)axes[i],
                          (long long)x.dims[axes[i]]);
    }
    int rank = 0;
    for (int i = 0; i < x.rank; i++)
        if (has_axes ? !drops[i] : x.dims[i] != 1)
            dims[rank++] = x.dims[i];
    if (mot_node_ok(n))
        n->out[0] = mot_reshape(n->b, n->in[0], rank, dims);
}

void mot_lower_unsqueeze(MotNode *n)
{
    const MotType x = *mot_node_type(n, 0);
    MotInts list = {0};
    read_axes(n, &list);
    int rank = x.rank + (int)list.n;
    if (list.n > MOT_MAX_RANK || !mot_node_fits_rank(n, rank))
        return;
    int64_t axes[MOT_MAX_RANK], dims[MOT_MAX_RANK] = {0};
    bool is_new[MOT_MAX_RANK] = {false};
    uint32_t n_axes = mot_node_axes(n, list, rank, axes);
    for (uint32_t i = 0; i < n_axes; i++)
        is_new[axes[i]] = true;
    if (!mot_node_ok(n))
        return;
    for (int i = 0, from = 0; i < rank; i++)
        dims[i] = is_new[i] ? 1 : x.dims[from++];
    n->out[0] = mot_reshape(n->b, n->in[0], rank, dims);
}

void mot_lower_transpose(MotNode *n)
{
    int rank = mot_node_type(n, 0)->rank;
    MotInts list;
    int64_t perm[MOT_MAX_RANK];
    if (!mot_node_ints(n, "perm", &list)) {
        for (int i = 0; i < rank; i++)
            perm[i] = rank - 1 - i;
    } else {
        uint32_t n_axes = mot_node_axes(n, list, rank, perm);
        if (mot_node_ok(n) && n_axes != (uint32_t)rank)
            mot_node_fail(n, MOT_ERR_MODEL, "perm has %u entries, the input %s has rank %d", n_axes,
                          mot_node_operand_text(n, 0), rank);
    }
    if (mot_node_ok(n))
        n->out[0] = mot_transpose(n->b, n->in[0], perm);
}

/* ---- Repetition ---- */

void mot_lower_expand(MotNode *n)
{
    MotInts dims;
    if (!mot_node_known_ints(n, 1, &dims) || !mot_node_fits_rank(n, (int)dims.n))
        return;
    for (uint32_t i = 0; i < dims.n; i++)
        if (dims.data[i] < 0)
            mot_node_fail(n, MOT_ERR_MODEL, "dim %u of the target shape is %lld", i,
                          (long long)dims.data[i]);
    MotType target = mot_type_make(MOT_NO_DTYPE, (int)dims.n, dims.data);
    target = mot_node_broadcast(n, *mot_node_type(n, 0), target);
    if (mot_node_ok(n))
        n->out[0] = mot_node_expand(n, n->in[0], &target);
}

/* Repeats one axis: [outer, 1, axis and inner] broadcast to [outer, count, axis and inner]. */
static MotValue tile_axis(MotNode *n, MotValue x, int axis, int64_t count)
{
    MotType type = *mot_value_type(n, x);
    int64_t dims[3] = {1, 1, 1};
    for (int i = 0; i < type.rank; i++)
        dims[i < axis ? 0 : 2] *= type.dims[i];
    MotValue y = mot_reshape(n->b, x, 3, dims);
    dims[1] = count;
    y = mot_broadcast(n->b, y, 3, dims);
    if (__builtin_mul_overflow(type.dims[axis], count, &type.dims[axis]))
        mot_node_fail(n, MOT_ERR_LIMIT, "repeats axis %d %lld times", axis, (long long)count);
    return mot_node_ok(n) ? mot_reshape(n->b, y, type.rank, type.dims) : 0;
}

void mot_lower_tile(MotNode *n)
{
    MotInts counts;
    int rank = mot_node_type(n, 0)->rank;
    if (!mot_node_known_ints(n, 1, &counts))
        return;
    if (counts.n != (uint32_t)rank)
        mot_node_fail(n, MOT_ERR_MODEL, "repeats has %u entries, the input has rank %d", counts.n,
                      rank);
    MotValue y = n->in[0];
    for (int i = 0; i < rank && mot_node_ok(n); i++) {
        if (counts.data[i] < 0)
            mot_node_fail(n, MOT_ERR_MODEL, "repeats[%d] is negative", i);
        else if (counts.data[i] != 1)
            y = tile_axis(n, y, i, counts.data[i]);
    }
    n->out[0] = y;
}

/* ---- Triangles and running sums ---- */

/* Keeps column - row <= k (lower) or >= k (upper) of the last two dims. */
void mot_lower_trilu(MotNode *n)
{
    MotBuilder *b = n->b;
    mot_node_check_rank(n, 0, 2, MOT_MAX_RANK);
    if (!mot_node_ok(n))
        return;
    const MotType x = *mot_node_type(n, 0);
    const int64_t *dims = x.dims + x.rank - 2;
    MotValue k = mot_node_has(n, 1)
                     ? mot_reshape(b, mot_cast(b, n->in[1], MOT_I64), 0, (int64_t[]){0})
                     : mot_scalar(b, MOT_I64, 0);
    MotValue offset =
        mot_sub(b, mot_iota(b, MOT_I64, 2, dims, 1), mot_iota(b, MOT_I64, 2, dims, 0));
    MotValue keeps = mot_node_int(n, "upper", 1) ? mot_le(b, k, offset) : mot_le(b, offset, k);
    n->out[0] = mot_select(b, keeps, n->in[0], mot_scalar_like(b, n->in[0], 0));
}

/* x moved by `count` towards the end (or the start) of an axis, zeros coming in. */
static MotValue shift(MotNode *n, MotValue x, int axis, int64_t count, bool to_start)
{
    int64_t lo[MOT_MAX_RANK] = {0}, hi[MOT_MAX_RANK] = {0}, size = mot_value_type(n, x)->dims[axis];
    *(to_start ? &hi[axis] : &lo[axis]) = count;
    MotValue rest = mot_slice_axis(n->b, x, axis, to_start ? count : 0, size - count);
    return mot_pad(n->b, rest, lo, hi, 0);
}

/* Sums of 2, 4, 8, ... neighbours: log2(size) additions, exact for integers. */
void mot_lower_cumsum(MotNode *n)
{
    const MotTensor *known = mot_node_known(n, 1);
    if (!known)
        return;
    bool is_reverse = mot_node_int(n, "reverse", 0) != 0;
    int axis = mot_node_axis(n, mot_tensor_get_int(known, 0), mot_node_type(n, 0)->rank);
    int64_t size = mot_node_type(n, 0)->dims[axis];
    MotValue y = n->in[0];
    if (mot_node_int(n, "exclusive", 0) && size > 0)
        y = shift(n, y, axis, 1, is_reverse);
    for (int64_t count = 1; count < size; count *= 2)
        y = mot_add(n->b, y, shift(n, y, axis, count, is_reverse));
    n->out[0] = y;
}
