/* Operators that take parts of tensors, put parts together, or pick by index. */
#include "frontend/import_node.h"

#include <string.h>

/* ---- Concat, split, sequences ---- */

/*
 * What a node is taken apart into, or copied by, beyond what a model needs: small files may ask for
 * much.
 */
enum { CONCAT_OPERANDS = 64, MOST_PARTS = 1 << 20, MOST_COPIES = 1 << 24 };

/* A concat takes so many operands; longer lists become a tree. */
static MotValue concat_list(MotNode *n, const MotValue *items, uint32_t count, int axis)
{
    MotVec(MotValue) list = {0};
    for (uint32_t i = 0; i < count; i++)
        mot_vec_push(&n->im->ctx->arena, &list, items[i]);
    while (list.n > 1 && mot_node_ok(n)) {
        uint32_t out = 0;
        for (uint32_t i = 0; i < list.n; i += CONCAT_OPERANDS) {
            uint32_t part = list.n - i < CONCAT_OPERANDS ? list.n - i : CONCAT_OPERANDS;
            list.data[out++] = mot_concat(n->b, list.data + i, part, axis);
        }
        list.n = out;
    }
    return list.n == 1 ? list.data[0] : 0;
}

void mot_lower_concat(MotNode *n)
{
    MotArena *arena = &n->im->ctx->arena;
    MotType first = *mot_node_type(n, 0);
    int axis = mot_node_axis(n, mot_node_int(n, "axis", 1), first.rank);
    mot_node_check_dtypes(n, 0, n->n_in);
    for (uint32_t i = 1; i < n->n_in && mot_node_ok(n); i++) {
        MotType type = *mot_node_type(n, i), other = first;
        other.dims[axis] = type.dims[axis];
        if (!mot_dims_equal(&type, &other))
            mot_node_fail(n, MOT_ERR_MODEL, "shapes [%s] and [%s] differ outside axis %d",
                          mot_shape_text(arena, first.dims, first.rank),
                          mot_shape_text(arena, type.dims, type.rank), axis);
    }
    n->out[0] = mot_node_ok(n) ? concat_list(n, n->in, n->n_in, axis) : 0;
}

/* Sizes of equal parts, the last smaller. */
static MotInts equal_parts(MotNode *n, int64_t size, int64_t parts)
{
    MotInts sizes = {mot_arena_array(&n->im->ctx->arena, int64_t, parts), (uint32_t)parts};
    int64_t chunk = parts ? (size + parts - 1) / parts : 0;
    for (int64_t i = 0; i < parts; i++) {
        sizes.data[i] = size < chunk ? size : chunk;
        size -= sizes.data[i];
    }
    return sizes;
}

static void check_parts(MotNode *n, MotInts sizes, int64_t size)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < sizes.n; i++)
        if (sizes.data[i] < 0 || __builtin_add_overflow(sum, sizes.data[i], &sum))
            sum = INT64_MIN / 2;
    if (sum != size)
        mot_node_fail(n, MOT_ERR_MODEL, "the sizes of the %u parts do not sum to %lld", sizes.n,
                      (long long)size);
}

void mot_lower_split(MotNode *n)
{
    const MotType x = *mot_node_type(n, 0);
    int axis = mot_node_axis(n, mot_node_int(n, "axis", 0), x.rank);
    int64_t parts = mot_node_int(n, "num_outputs", n->n_out);
    MotInts sizes = {0};
    bool has_sizes =
        mot_node_has(n, 1) ? mot_node_known_ints(n, 1, &sizes) : mot_node_ints(n, "split", &sizes);
    if (!has_sizes && parts == n->n_out)
        sizes = equal_parts(n, x.dims[axis], parts);
    if (mot_node_ok(n) && sizes.n != n->n_out)
        mot_node_fail(n, MOT_ERR_MODEL, "has %u outputs for %lld parts", n->n_out,
                      has_sizes ? (long long)sizes.n : (long long)parts);
    if (mot_node_ok(n))
        check_parts(n, sizes, x.dims[axis]);
    int64_t start = 0;
    for (uint32_t i = 0; i < n->n_out && mot_node_ok(n); start += sizes.data[i++])
        n->out[i] = mot_slice_axis(n->b, n->in[0], axis, start, sizes.data[i]);
}

static const MotSequence *make_sequence(MotNode *n, uint32_t count)
{
    MotSequence *s = mot_arena_new(&n->im->ctx->arena, MotSequence);
    s->items = mot_arena_array(&n->im->ctx->arena, MotValue, count);
    s->n = count;
    n->out_sequence[0] = s;
    return s;
}

void mot_lower_sequence_construct(MotNode *n)
{
    const MotSequence *s = make_sequence(n, n->n_in);
    memcpy(s->items, n->in, n->n_in * sizeof *n->in);
}

/* Part sizes of a SplitToSequence: a scalar is a chunk size, a vector lists them, none means 1. */
static MotInts sequence_parts(MotNode *n, int64_t size)
{
    MotInts sizes = {0};
    int64_t chunk = 1;
    if (mot_node_has(n, 1)) {
        bool is_list = mot_node_type(n, 1)->rank == 1;
        if (!mot_node_known_ints(n, 1, &sizes) || is_list)
            return sizes;
        chunk = sizes.data[0];
    }
    if (chunk <= 0)
        mot_node_fail(n, MOT_ERR_MODEL, "chunks of size %lld", (long long)chunk);
    int64_t parts = chunk > 0 ? size / chunk + (size % chunk != 0) : 0;
    if (parts > MOST_PARTS)
        mot_node_fail(n, MOT_ERR_LIMIT, "%lld parts; the most are %d", (long long)parts,
                      MOST_PARTS);
    if (!mot_node_ok(n))
        return sizes;
    sizes = (MotInts){mot_arena_array(&n->im->ctx->arena, int64_t, parts), (uint32_t)parts};
    for (int64_t i = 0; i < parts; i++)
        sizes.data[i] = i + 1 < parts ? chunk : size - i * chunk;
    return sizes;
}

void mot_lower_split_to_sequence(MotNode *n)
{
    MotType x = *mot_node_type(n, 0);
    int axis = mot_node_axis(n, mot_node_int(n, "axis", 0), x.rank);
    bool drops_axis = !mot_node_has(n, 1) && mot_node_int(n, "keepdims", 1) == 0;
    int64_t size = x.dims[axis];
    MotInts sizes = sequence_parts(n, size);
    if (mot_node_ok(n))
        check_parts(n, sizes, size);
    if (!mot_node_ok(n))
        return;
    memmove(&x.dims[axis], &x.dims[axis + 1], (size_t)(x.rank - axis - 1) * sizeof *x.dims);
    const MotSequence *s = make_sequence(n, sizes.n);
    int64_t start = 0;
    for (uint32_t i = 0; i < sizes.n; start += sizes.data[i++]) {
        s->items[i] = mot_slice_axis(n->b, n->in[0], axis, start, sizes.data[i]);
        if (drops_axis)
            s->items[i] = mot_reshape(n->b, s->items[i], x.rank - 1, x.dims);
    }
}

static const MotSequence *read_sequence(MotNode *n)
{
    if (!n->sequence[0])
        mot_node_fail(n, MOT_ERR_MODEL, "input %s is no sequence", mot_node_operand_text(n, 0));
    return n->sequence[0];
}

void mot_lower_sequence_at(MotNode *n)
{
    const MotSequence *s = read_sequence(n);
    const MotTensor *known = mot_node_known(n, 1);
    if (!s || !known)
        return;
    int64_t at = mot_tensor_get_int(known, 0);
    if (at < -(int64_t)s->n || at >= s->n)
        mot_node_fail(n, MOT_ERR_MODEL, "position %lld of a sequence of %u", (long long)at, s->n);
    else
        n->out[0] = s->items[at < 0 ? at + s->n : at];
}

void mot_lower_sequence_length(MotNode *n)
{
    const MotSequence *s = read_sequence(n);
    n->out[0] = s ? mot_scalar(n->b, MOT_I64, s->n) : 0;
}

void mot_lower_concat_from_sequence(MotNode *n)
{
    const MotSequence *s = read_sequence(n);
    if (!s || s->n == 0) {
        mot_node_fail(n, MOT_ERR_MODEL, "the sequence is empty");
        return;
    }
    bool is_new = mot_node_int(n, "new_axis", 0) != 0;
    int axis =
        mot_node_axis(n, mot_node_int(n, "axis", 0), mot_value_type(n, s->items[0])->rank + is_new);
    MotValue *items = mot_arena_copy(&n->im->ctx->arena, s->items, s->n * sizeof *s->items);
    for (uint32_t i = 0; is_new && i < s->n; i++)
        items[i] = mot_node_expand_dims(n, items[i], axis);
    n->out[0] = concat_list(n, items, s->n, axis);
}

/* ---- Slice ---- */

typedef struct {
    MotInts starts, ends, axes, steps;
} SliceLists;

static bool read_slice(MotNode *n, SliceLists *lists)
{
    if (n->n_in == 1) {
        mot_node_ints(n, "starts", &lists->starts);
        mot_node_ints(n, "ends", &lists->ends);
        mot_node_ints(n, "axes", &lists->axes);
    } else {
        if (!mot_node_known_ints(n, 1, &lists->starts) || !mot_node_known_ints(n, 2, &lists->ends))
            return false;
        if (mot_node_has(n, 3) && !mot_node_known_ints(n, 3, &lists->axes))
            return false;
        if (mot_node_has(n, 4) && !mot_node_known_ints(n, 4, &lists->steps))
            return false;
    }
    uint32_t count = lists->starts.n;
    if (lists->ends.n != count || (lists->axes.n && lists->axes.n != count) ||
        (lists->steps.n && lists->steps.n != count))
        mot_node_fail(n, MOT_ERR_MODEL, "starts, ends, axes and steps differ in length");
    return mot_node_ok(n);
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Python's rule for one axis: bounds count from the end if negative and are clamped. */
static void slice_axis(int64_t dim, int64_t start, int64_t end, int64_t *step, int64_t *out_start,
                       int64_t *out_size)
{
    *step = clamp(*step, -INT64_MAX, INT64_MAX);
    int64_t low = *step > 0 ? 0 : -1, high = *step > 0 ? dim : dim - 1;
    start = clamp(start < 0 ? start + dim : start, low, high);
    end = clamp(end < 0 ? end + dim : end, low, high);
    int64_t span = *step > 0 ? end - start : start - end;
    int64_t stride = *step > 0 ? *step : -*step;
    *out_size = span > 0 ? (span - 1) / stride + 1 : 0;
    *out_start = *out_size ? start : 0;
    if (*out_size < 2)
        *step = 1;
}

void mot_lower_slice(MotNode *n)
{
    const MotType x = *mot_node_type(n, 0);
    SliceLists lists = {0};
    int64_t axes[MOT_MAX_RANK], start[MOT_MAX_RANK] = {0}, size[MOT_MAX_RANK], step[MOT_MAX_RANK];
    if (!read_slice(n, &lists))
        return;
    for (int i = 0; i < x.rank; i++) {
        size[i] = x.dims[i];
        step[i] = 1;
    }
    if (lists.axes.n)
        mot_node_axes(n, lists.axes, x.rank, axes);
    else if (lists.starts.n > (uint32_t)x.rank)
        mot_node_fail(n, MOT_ERR_MODEL, "has %u starts for rank %d", lists.starts.n, x.rank);
    for (uint32_t i = 0; i < lists.starts.n && mot_node_ok(n); i++) {
        int64_t axis = lists.axes.n ? axes[i] : i;
        step[axis] = lists.steps.n ? lists.steps.data[i] : 1;
        if (step[axis] == 0)
            mot_node_fail(n, MOT_ERR_MODEL, "step 0 on axis %lld", (long long)axis);
        else
            slice_axis(x.dims[axis], lists.starts.data[i], lists.ends.data[i], &step[axis],
                       &start[axis], &size[axis]);
    }
    if (mot_node_ok(n))
        n->out[0] = mot_slice(n->b, n->in[0], start, size, step);
}

/* ---- Pad ---- */

#define MAX_PAD ((int64_t)1 << 40)

/* Where element i of a padded axis comes from, for the modes that copy. */
static int64_t source_index(const char *mode, int64_t i, int64_t size)
{
    if (mode[0] == 'e') /* edge */
        return clamp(i, 0, size - 1);
    int64_t period = mode[0] == 'w' || size == 1 ? size : 2 * (size - 1); /* wrap, or reflect */
    i = (i % period + period) % period;
    return i < size ? i : period - i;
}

static MotValue pad_by_copy(MotNode *n, MotValue x, const char *mode, const int64_t *lo,
                            const int64_t *hi)
{
    for (int axis = 0; axis < mot_value_type(n, x)->rank && mot_node_ok(n); axis++) {
        int64_t size = mot_value_type(n, x)->dims[axis];
        if (lo[axis] == 0 && hi[axis] == 0)
            continue;
        int64_t count = lo[axis] + size + hi[axis];
        if (size == 0)
            mot_node_fail(n, MOT_ERR_MODEL, "axis %d has nothing to pad it with", axis);
        if (count > MOST_COPIES)
            mot_node_fail(n, MOT_ERR_LIMIT, "pads axis %d to %lld by mode %s; the most is %d", axis,
                          (long long)count, mode, MOST_COPIES);
        if (!mot_node_ok(n))
            return 0;
        int64_t *index = mot_arena_array(&n->im->ctx->arena, int64_t, count);
        for (int64_t i = 0; i < count; i++)
            index[i] = source_index(mode, i - lo[axis], size);
        x = mot_gather(n->b, x, mot_node_vector(n, index, count), axis);
    }
    return x;
}

/* Cuts what negative pads take away and sets them to 0. */
static MotValue cut_negative(MotNode *n, MotValue x, int64_t *lo, int64_t *hi)
{
    for (int axis = 0; axis < mot_value_type(n, x)->rank && mot_node_ok(n); axis++) {
        int64_t size = mot_value_type(n, x)->dims[axis], before = lo[axis] < 0 ? -lo[axis] : 0,
                after = hi[axis] < 0 ? -hi[axis] : 0;
        if (before > size || after > size - before)
            mot_node_fail(n, MOT_ERR_MODEL, "negative pads take more than axis %d has", axis);
        else
            x = mot_slice_axis(n->b, x, axis, before, size - before - after);
        lo[axis] = lo[axis] < 0 ? 0 : lo[axis];
        hi[axis] = hi[axis] < 0 ? 0 : hi[axis];
    }
    return x;
}

static void build_pad(MotNode *n, MotInts pads, MotInts axis_list, double value)
{
    int rank = mot_node_type(n, 0)->rank;
    const char *mode = mot_node_string(n, "mode", "constant");
    int64_t axes[MOT_MAX_RANK], lo[MOT_MAX_RANK] = {0}, hi[MOT_MAX_RANK] = {0};
    uint32_t n_axes = axis_list.data ? mot_node_axes(n, axis_list, rank, axes) : (uint32_t)rank;
    if (mot_node_ok(n) && pads.n != 2 * n_axes)
        mot_node_fail(n, MOT_ERR_MODEL, "has %u pads for %u axes", pads.n, n_axes);
    for (uint32_t i = 0; i < n_axes && mot_node_ok(n); i++) {
        int64_t axis = axis_list.data ? axes[i] : i;
        lo[axis] = pads.data[i];
        hi[axis] = pads.data[n_axes + i];
        if (clamp(lo[axis], -MAX_PAD, MAX_PAD) != lo[axis] ||
            clamp(hi[axis], -MAX_PAD, MAX_PAD) != hi[axis])
            mot_node_fail(n, MOT_ERR_LIMIT, "pads axis %lld by more than 2^40", (long long)axis);
    }
    MotValue x = mot_node_ok(n) ? cut_negative(n, n->in[0], lo, hi) : 0;
    if (strcmp(mode, "constant") == 0)
        n->out[0] = mot_node_ok(n) ? mot_pad(n->b, x, lo, hi, value) : 0;
    else if (strcmp(mode, "reflect") == 0 || strcmp(mode, "edge") == 0 || strcmp(mode, "wrap") == 0)
        n->out[0] = pad_by_copy(n, x, mode, lo, hi);
    else
        mot_node_fail(n, MOT_ERR_MODEL, "unknown mode %s", mot_quote(&n->im->ctx->arena, mode));
}

void mot_lower_pad_attrs(MotNode *n)
{
    MotInts pads;
    mot_node_ints(n, "pads", &pads);
    build_pad(n, pads, (MotInts){0}, mot_node_float(n, "value", 0));
}

void mot_lower_pad(MotNode *n)
{
    MotInts pads, axes = {0};
    mot_node_known_ints(n, 1, &pads);
    if (mot_node_has(n, 3))
        mot_node_known_ints(n, 3, &axes);
    const MotTensor *value = mot_node_has(n, 2) ? mot_node_known(n, 2) : NULL;
    if (value && mot_type_elements(&value->type) != 1)
        mot_node_fail(n, MOT_ERR_MODEL, "the value must be a scalar");
    if (mot_node_ok(n))
        build_pad(n, pads, axes, value ? mot_tensor_get(value, 0) : 0);
}

/* ---- Gather and scatter ---- */

void mot_lower_gather(MotNode *n)
{
    const MotType table = *mot_node_type(n, 0);
    int axis = mot_node_axis(n, mot_node_int(n, "axis", 0), table.rank);
    if (!mot_node_fits_rank(n, table.rank - 1 + mot_node_type(n, 1)->rank))
        return;
    MotValue index = mot_node_index(n, n->in[1], table.dims[axis]);
    n->out[0] = mot_gather(n->b, n->in[0], index, axis);
}

/*
 * The sum of iota * stride over all dims of `type` but `axis`, plus index * stride there: positions
 * in a flat tensor.
 */
static MotValue flat_position(MotNode *n, MotValue index, const MotType *data, int axis)
{
    MotBuilder *b = n->b;
    const MotType type = *mot_value_type(n, index);
    MotValue sum = 0;
    int64_t stride = 1;
    index = mot_cast(b, mot_node_index(n, index, data->dims[axis]), MOT_I64);
    for (int i = type.rank - 1; i >= 0; stride *= data->dims[i--]) {
        MotValue at = i == axis ? index : mot_iota(b, MOT_I64, type.rank, type.dims, i);
        at = stride == 1 ? at : mot_mul_scalar(b, at, (double)stride);
        sum = sum ? mot_add(b, sum, at) : at;
    }
    return sum;
}

static MotValue flatten(MotNode *n, MotValue x)
{
    int64_t elements = mot_type_elements(mot_value_type(n, x));
    return mot_reshape(n->b, x, 1, &elements);
}

/* Checks the operands of GatherElements and ScatterElements; the axis. */
static int check_elements(MotNode *n)
{
    const MotType data = *mot_node_type(n, 0), index = *mot_node_type(n, 1);
    int axis = mot_node_axis(n, mot_node_int(n, "axis", 0), data.rank);
    if (index.rank != data.rank)
        mot_node_fail(n, MOT_ERR_MODEL, "data has rank %d, indices rank %d", data.rank, index.rank);
    for (int i = 0; i < data.rank && mot_node_ok(n); i++)
        if (i != axis && index.dims[i] > data.dims[i])
            mot_node_fail(n, MOT_ERR_MODEL, "indices are longer than data in dim %d", i);
    return axis;
}

void mot_lower_gather_elements(MotNode *n)
{
    const MotType data = *mot_node_type(n, 0);
    int axis = check_elements(n);
    if (mot_node_ok(n))
        n->out[0] =
            mot_gather(n->b, flatten(n, n->in[0]), flat_position(n, n->in[1], &data, axis), 0);
}

/*
 * Data seen as [places, rest]: indices of `depth` numbers pick a place; the first `batch` dims are
 * matched, not picked.
 */
typedef struct {
    MotValue position; /* [index dims without the last] */
    int64_t places, rest[MOT_MAX_RANK];
    int n_rest;
} Places;

static Places find_places(MotNode *n, MotValue index, int64_t batch)
{
    MotBuilder *b = n->b;
    const MotType data = *mot_node_type(n, 0), type = *mot_value_type(n, index);
    Places p = {.places = 1};
    if (data.rank < 1 || type.rank < 1 || batch < 0 || batch >= type.rank || batch >= data.rank ||
        type.dims[type.rank - 1] < 1 || type.dims[type.rank - 1] > data.rank - batch) {
        mot_node_fail(n, MOT_ERR_MODEL, "indices %s do not fit data %s",
                      mot_node_operand_text(n, 1), mot_node_operand_text(n, 0));
        return p;
    }
    int picked = (int)(batch + type.dims[type.rank - 1]);
    for (int i = picked; i < data.rank; i++)
        p.rest[p.n_rest++] = data.dims[i];
    index = mot_cast(b, index, MOT_I64);
    for (int i = picked - 1; i >= 0; p.places *= data.dims[i--]) {
        MotValue at = i < batch
                          ? mot_iota(b, MOT_I64, type.rank - 1, type.dims, i)
                          : mot_reshape(b, mot_slice_axis(b, index, type.rank - 1, i - batch, 1),
                                        type.rank - 1, type.dims);
        if (i < batch && data.dims[i] != type.dims[i])
            mot_node_fail(n, MOT_ERR_MODEL, "data and indices differ in batch dim %d", i);
        at = i < batch ? at : mot_node_index(n, at, data.dims[i]);
        at = p.places == 1 ? at : mot_mul_scalar(b, at, (double)p.places);
        p.position = p.position ? mot_add(b, p.position, at) : at;
    }
    return p;
}

void mot_lower_gather_nd(MotNode *n)
{
    Places p = find_places(n, n->in[1], mot_node_int(n, "batch_dims", 0));
    if (!mot_node_ok(n) || !mot_node_fits_rank(n, mot_value_type(n, p.position)->rank + p.n_rest))
        return;
    int64_t dims[MOT_MAX_RANK + 1] = {p.places};
    memcpy(dims + 1, p.rest, (size_t)p.n_rest * sizeof *dims);
    n->out[0] = mot_gather(n->b, mot_reshape(n->b, n->in[0], 1 + p.n_rest, dims), p.position, 0);
}

/* data with `update` written to rows `position` of its first axis (or added to them). */
static MotValue scatter_rows(MotNode *n, MotValue data, MotValue position, MotValue update)
{
    MotBuilder *b = n->b;
    const char *reduction = mot_node_string(n, "reduction", "none");
    int64_t size = mot_value_type(n, data)->dims[0];
    if (mot_node_type(n, 0)->dtype != mot_node_type(n, 2)->dtype) {
        mot_node_fail(n, MOT_ERR_MODEL, "data %s and updates %s differ in type",
                      mot_node_operand_text(n, 0), mot_node_operand_text(n, 2));
        return 0;
    }
    MotValue sum = mot_scatter_add(b, position, update, 0, size);
    if (strcmp(reduction, "add") == 0)
        return mot_add(b, data, sum);
    if (strcmp(reduction, "none") != 0) {
        mot_node_fail(n, MOT_ERR_UNSUPPORTED, "reduction %s is not supported",
                      mot_quote(&n->im->ctx->arena, reduction));
        return 0;
    }
    MotType type = *mot_value_type(n, update);
    MotValue ones = mot_node_expand(n, mot_scalar_like(b, update, 1), &type);
    MotValue count = mot_scatter_add(b, position, ones, 0, size);
    return mot_select(b, mot_eq(b, count, mot_scalar_like(b, count, 0)), data, sum);
}

void mot_lower_scatter_nd(MotNode *n)
{
    const MotType data = *mot_node_type(n, 0);
    Places p = find_places(n, n->in[1], 0);
    int64_t dims[MOT_MAX_RANK + 1] = {p.places};
    memcpy(dims + 1, p.rest, (size_t)p.n_rest * sizeof *dims);
    if (!mot_node_ok(n) || !mot_node_fits_rank(n, 1 + p.n_rest))
        return;
    MotValue rows = mot_reshape(n->b, n->in[0], 1 + p.n_rest, dims);
    MotValue y = scatter_rows(n, rows, p.position, n->in[2]);
    n->out[0] = mot_node_ok(n) ? mot_reshape(n->b, y, data.rank, data.dims) : 0;
}

void mot_lower_scatter_elements(MotNode *n)
{
    const MotType data = *mot_node_type(n, 0);
    int axis = check_elements(n);
    if (mot_node_ok(n) && !mot_dims_equal(mot_node_type(n, 1), mot_node_type(n, 2)))
        mot_node_fail(n, MOT_ERR_MODEL, "indices %s and updates %s differ in shape",
                      mot_node_operand_text(n, 1), mot_node_operand_text(n, 2));
    if (!mot_node_ok(n))
        return;
    MotValue position = flatten(n, flat_position(n, n->in[1], &data, axis));
    MotValue y = scatter_rows(n, flatten(n, n->in[0]), position, flatten(n, n->in[2]));
    n->out[0] = mot_node_ok(n) ? mot_reshape(n->b, y, data.rank, data.dims) : 0;
}

void mot_lower_one_hot(MotNode *n)
{
    MotBuilder *b = n->b;
    const MotTensor *known = mot_node_known(n, 1);
    int rank = mot_node_type(n, 0)->rank + 1;
    if (!known || !mot_node_fits_rank(n, rank))
        return;
    int axis = mot_node_axis(n, mot_node_int(n, "axis", -1), rank);
    int64_t depth = mot_tensor_get_int(known, 0);
    if (depth < 0 || mot_type_elements(mot_node_type(n, 2)) != 2)
        mot_node_fail(n, MOT_ERR_MODEL, "needs a depth of 0 or more and two values");
    if (!mot_node_ok(n))
        return;
    MotValue index = mot_node_expand_dims(n, mot_cast(b, n->in[0], MOT_I64), axis);
    index = mot_select(b, mot_lt(b, index, mot_scalar(b, MOT_I64, 0)),
                       mot_add_scalar(b, index, (double)depth), index);
    int64_t dims[MOT_MAX_RANK];
    for (int i = 0; i < rank; i++)
        dims[i] = i == axis ? depth : 1;
    MotValue is_hot = mot_eq(b, index, mot_iota(b, MOT_I64, rank, dims, axis));
    MotValue off = mot_reshape(b, mot_slice_axis(b, n->in[2], 0, 0, 1), 0, (int64_t[]){0});
    MotValue on = mot_reshape(b, mot_slice_axis(b, n->in[2], 0, 1, 1), 0, (int64_t[]){0});
    n->out[0] = mot_select(b, is_hot, on, off);
}
