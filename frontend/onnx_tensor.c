/*
 * One table of data types; a tensor is first measured (dims, bytes, where its data is), then read.
 */
#include "frontend/onnx_tensor.h"

#include "frontend/onnx_file.h"

#include <string.h>

/* ---- Data types ---- */

typedef enum Store {
    STORE_RAW,
    STORE_FLOAT,
    STORE_INT32,
    STORE_STRING,
    STORE_INT64,
    STORE_DOUBLE,
    STORE_UINT64,
    N_STORES
} Store;

static const char *const store_names[N_STORES] = {
    "raw_data",   "float_data",  "int32_data",  "string_data",
    "int64_data", "double_data", "uint64_data",
};

/*
 * `bits` an element (0: strings). `store` is the typed field. An entry of that field holds 8 *
 * entry_bytes bits of elements and lies from `least` to `most`; several entries make a complex
 * number, several small elements an entry.
 */
typedef struct Dtype {
    const char *name;
    uint8_t bits, store, entry_bytes;
    int64_t least, most;
} Dtype;

/* clang-format off */
static const Dtype dtypes[] = {
    [1]  = {"float",           32, STORE_FLOAT,  4, 0, 0},
    [2]  = {"uint8",            8, STORE_INT32,  1, 0, UINT8_MAX},
    [3]  = {"int8",             8, STORE_INT32,  1, INT8_MIN, INT8_MAX},
    [4]  = {"uint16",          16, STORE_INT32,  2, 0, UINT16_MAX},
    [5]  = {"int16",           16, STORE_INT32,  2, INT16_MIN, INT16_MAX},
    [6]  = {"int32",           32, STORE_INT32,  4, INT32_MIN, INT32_MAX},
    [7]  = {"int64",           64, STORE_INT64,  8, 0, 0},
    [8]  = {"string",           0, STORE_STRING, 0, 0, 0},
    [9]  = {"bool",             8, STORE_INT32,  1, 0, 1},
    [10] = {"float16",         16, STORE_INT32,  2, 0, UINT16_MAX},
    [11] = {"double",          64, STORE_DOUBLE, 8, 0, 0},
    [12] = {"uint32",          32, STORE_UINT64, 4, 0, UINT32_MAX},
    [13] = {"uint64",          64, STORE_UINT64, 8, 0, 0},
    [14] = {"complex64",       64, STORE_FLOAT,  4, 0, 0},
    [15] = {"complex128",     128, STORE_DOUBLE, 8, 0, 0},
    [16] = {"bfloat16",        16, STORE_INT32,  2, 0, UINT16_MAX},
    [17] = {"float8e4m3fn",     8, STORE_INT32,  1, 0, UINT8_MAX},
    [18] = {"float8e4m3fnuz",   8, STORE_INT32,  1, 0, UINT8_MAX},
    [19] = {"float8e5m2",       8, STORE_INT32,  1, 0, UINT8_MAX},
    [20] = {"float8e5m2fnuz",   8, STORE_INT32,  1, 0, UINT8_MAX},
    [21] = {"uint4",            4, STORE_INT32,  1, 0, UINT8_MAX},
    [22] = {"int4",             4, STORE_INT32,  1, INT8_MIN, UINT8_MAX},
    [23] = {"float4e2m1",       4, STORE_INT32,  1, 0, UINT8_MAX},
    [24] = {"float8e8m0",       8, STORE_INT32,  1, 0, UINT8_MAX},
    [25] = {"uint2",            2, STORE_INT32,  1, 0, UINT8_MAX},
    [26] = {"int2",             2, STORE_INT32,  1, INT8_MIN, UINT8_MAX},
};
/* clang-format on */

static const Dtype *find_dtype(int64_t data_type)
{
    bool is_known = data_type > 0 && data_type < (int64_t)(sizeof dtypes / sizeof dtypes[0]);
    return is_known ? &dtypes[data_type] : NULL;
}

const char *mot_onnx_dtype_name(MotArena *arena, int64_t data_type)
{
    const Dtype *dtype = find_dtype(data_type);
    return dtype ? dtype->name : mot_arena_printf(arena, "%lld (unknown)", (long long)data_type);
}

/* ---- Measuring ---- */

typedef struct Measure {
    MotCtx *ctx;
    const MotOnnxFile *file;
    const Onnx__TensorProto *tensor;
    MotLoc loc;
    const Dtype *dtype;
    int64_t elements;
    uint64_t bytes;   /* packed; of strings: 0 */
    uint64_t entries; /* of the typed field */
    bool is_external, has_data;
    Store store; /* where inline data is */
    MotExternalRef ref;
} Measure;

#define FAIL(m, ...) mot_fail((m)->ctx, MOT_ERR_MODEL, (m)->loc, __VA_ARGS__)

/* "float[2x3]" */
static const char *print_type(const Measure *m)
{
    const Onnx__TensorProto *t = m->tensor;
    MotArena *arena = &m->ctx->arena;
    return mot_arena_printf(arena, "%s[%s]", m->dtype->name,
                            mot_shape_text(arena, t->dims, (int)t->n_dims));
}

static MotStatus multiply_dims(MotCtx *ctx, const MotOnnxLimits *limits, const int64_t *dims,
                               size_t n, MotLoc loc, int64_t *out_elements)
{
    int64_t elements = 1;
    bool is_empty = false;
    for (size_t i = 0; i < n; i++) {
        if (dims[i] < 0)
            return mot_fail(ctx, MOT_ERR_MODEL, loc, "dim %zu is %lld", i, (long long)dims[i]);
        is_empty = is_empty || dims[i] == 0;
    }
    for (size_t i = 0; i < n && !is_empty; i++)
        if (__builtin_mul_overflow(elements, dims[i], &elements))
            return mot_fail(ctx, MOT_ERR_MODEL, loc, "dims %s overflow 64 bits",
                            mot_shape_text(&ctx->arena, dims, (int)n));
    *out_elements = is_empty ? 0 : elements;
    if ((uint64_t)*out_elements > limits->elements)
        return mot_onnx_limit_fail(
            ctx, loc, "elements", limits->elements,
            mot_arena_printf(&ctx->arena, "%lld elements are too many", (long long)elements));
    return MOT_OK;
}

static MotStatus measure_type(Measure *m)
{
    const Onnx__TensorProto *t = m->tensor;
    m->dtype = find_dtype(t->data_type);
    if (!m->dtype)
        return FAIL(m, "data_type %d is no type of ONNX", t->data_type);
    if (t->segment)
        return FAIL(m, "the tensor is given in segments, which ONNX never defined");
    MOT_TRY(multiply_dims(m->ctx, &m->file->limits, t->dims, t->n_dims, m->loc, &m->elements));
    /* No overflow: limits keep the elements below 2^60, and bits are at most 128. */
    m->bytes = (uint64_t)m->elements / 8 * m->dtype->bits +
               ((uint64_t)m->elements % 8 * m->dtype->bits + 7) / 8;
    m->entries = m->dtype->bits ? (m->bytes + m->dtype->entry_bytes - 1) / m->dtype->entry_bytes
                                : (uint64_t)m->elements;
    return MOT_OK;
}

/* Which value field is set; no two may be. */
static MotStatus find_store(Measure *m)
{
    const Onnx__TensorProto *t = m->tensor;
    const size_t counts[N_STORES] = {
        t->has_raw_data ? t->raw_data.len : 0,
        t->n_float_data,
        t->n_int32_data,
        t->n_string_data,
        t->n_int64_data,
        t->n_double_data,
        t->n_uint64_data,
    };
    for (int s = 0; s < N_STORES; s++) {
        if (counts[s] == 0)
            continue;
        if (m->has_data)
            return FAIL(m, "data stands twice, in %s and %s", store_names[m->store],
                        store_names[s]);
        m->has_data = true;
        m->store = (Store)s;
    }
    return MOT_OK;
}

static const uint8_t *get_raw(const Measure *m, size_t *out_bytes)
{
    const ProtobufCBinaryData *raw = &m->tensor->raw_data;
    return mot_wire_raw(&m->file->wire, raw->data, raw->len, out_bytes);
}

static MotStatus check_inline(const Measure *m)
{
    const Onnx__TensorProto *t = m->tensor;
    const size_t n_entries[N_STORES] = {0,
                                        t->n_float_data,
                                        t->n_int32_data,
                                        t->n_string_data,
                                        t->n_int64_data,
                                        t->n_double_data,
                                        t->n_uint64_data};
    if (m->elements == 0)
        return m->has_data ? FAIL(m, "%s has no elements, but there is %s", print_type(m),
                                  store_names[m->store])
                           : MOT_OK;
    if (!m->has_data)
        return FAIL(m, "%s has no data", print_type(m));
    if (m->store == STORE_RAW) {
        size_t bytes;
        get_raw(m, &bytes);
        if (m->dtype->bits == 0)
            return FAIL(m, "strings stand in raw_data instead of string_data");
        if (bytes != m->bytes)
            return FAIL(m, "raw_data has %zu bytes, %s needs %llu", bytes, print_type(m),
                        (unsigned long long)m->bytes);
        return MOT_OK;
    }
    if (m->store != m->dtype->store)
        return FAIL(m, "%s stands in %s instead of %s", print_type(m), store_names[m->store],
                    store_names[m->dtype->store]);
    if (n_entries[m->store] != m->entries)
        return FAIL(m, "%s has %zu entries, %s needs %llu", store_names[m->store],
                    n_entries[m->store], print_type(m), (unsigned long long)m->entries);
    return MOT_OK;
}

static MotStatus check_external(Measure *m)
{
    if (m->has_data)
        return FAIL(m, "data stands twice, in external_data and %s", store_names[m->store]);
    if (m->dtype->bits == 0)
        return FAIL(m, "strings cannot be external");
    return mot_external_parse(m->ctx, m->file->external, m->tensor, m->loc, &m->ref);
}

static MotStatus measure(Measure *m)
{
    MOT_TRY(measure_type(m));
    MOT_TRY(find_store(m));
    int32_t location = m->tensor->data_location;
    if (location != ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT &&
        location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        return FAIL(m, "data_location %d is unknown", location);
    m->is_external = location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    return m->is_external ? check_external(m) : check_inline(m);
}

MotStatus mot_onnx_tensor_check(MotCtx *ctx, const MotOnnxFile *file,
                                const Onnx__TensorProto *tensor, MotLoc loc)
{
    Measure m = {.ctx = ctx, .file = file, .tensor = tensor, .loc = loc};
    return measure(&m);
}

/* ---- Reading ---- */

/*
 * Entry i of int32_data or uint64_data; what exceeds int64 exceeds every range that is asked for.
 */
static int64_t get_entry(const Measure *m, size_t i)
{
    if (m->store == STORE_INT32)
        return m->tensor->int32_data[i];
    uint64_t value = m->tensor->uint64_data[i];
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

/* Packs the entries to their own width: the low bytes of each. */
static MotStatus narrow(const Measure *m, uint8_t *out)
{
    size_t width = m->dtype->entry_bytes;
    for (size_t i = 0; i < m->entries; i++) {
        int64_t value = get_entry(m, i);
        if (value < m->dtype->least || value > m->dtype->most)
            return FAIL(m, "%s[%zu] is %lld, which %s does not hold", store_names[m->store], i,
                        (long long)value, m->dtype->name);
        memcpy(out + i * width, &value, width);
    }
    return MOT_OK;
}

static bool find_converted(const Measure *m, const uint8_t **out_data)
{
    uintptr_t key = (uintptr_t)m->tensor;
    uint64_t index;
    if (!mot_map_get(&m->file->converted->by_tensor, &key, sizeof key, &index))
        return false;
    *out_data = m->file->converted->data.data[index];
    return true;
}

static void keep_converted(const Measure *m, const uint8_t *data)
{
    MotOnnxConverted *converted = m->file->converted;
    uintptr_t key = (uintptr_t)m->tensor;
    mot_map_put(&converted->by_tensor, &key, sizeof key, converted->data.n);
    mot_vec_push(&m->ctx->arena, &converted->data, data);
}

static MotStatus read_inline(const Measure *m, const uint8_t **out_data)
{
    const Onnx__TensorProto *t = m->tensor;
    const void *const as_stored[N_STORES] = {[STORE_FLOAT] = t->float_data,
                                             [STORE_INT64] = t->int64_data,
                                             [STORE_DOUBLE] = t->double_data};
    size_t ignored;
    if (m->store == STORE_RAW) {
        *out_data = get_raw(m, &ignored);
        return MOT_OK;
    }
    if (as_stored[m->store] || m->dtype->entry_bytes == 8) {
        *out_data = as_stored[m->store] ? as_stored[m->store] : (const void *)t->uint64_data;
        return MOT_OK;
    }
    if (find_converted(m, out_data))
        return MOT_OK;
    uint8_t *packed = mot_arena_alloc(&m->ctx->arena, (size_t)m->entries * m->dtype->entry_bytes);
    MOT_TRY(narrow(m, packed));
    keep_converted(m, packed);
    *out_data = packed;
    return MOT_OK;
}

static MotStatus read_data(Measure *m, MotTensorData *out)
{
    MOT_TRY(measure(m));
    *out = (MotTensorData){.data_type = m->tensor->data_type,
                           .rank = (int)m->tensor->n_dims,
                           .dims = m->tensor->dims,
                           .elements = m->elements,
                           .bytes = (size_t)m->bytes};
    if (m->is_external)
        return mot_external_read(m->ctx, m->file->external, &m->ref, m->bytes, m->loc, &out->data);
    if (m->dtype->bits == 0)
        out->strings = m->tensor->string_data;
    else if (m->elements > 0)
        return read_inline(m, &out->data);
    return MOT_OK;
}

MotStatus mot_onnx_tensor_data(MotCtx *ctx, const MotOnnxFile *file,
                               const Onnx__TensorProto *tensor, MotLoc loc, MotTensorData *out_data)
{
    Measure m = {.ctx = ctx, .file = file, .tensor = tensor, .loc = loc};
    return read_data(&m, out_data);
}

static const uint8_t *align(const Measure *m, const MotTensorData *d)
{
    const uint8_t *data = d->data;
    if (!data || (uintptr_t)data % (m->dtype->bits / 8u) == 0 || find_converted(m, &data))
        return data;
    data = mot_arena_copy(&m->ctx->arena, d->data, d->bytes);
    keep_converted(m, data);
    return data;
}

MotStatus mot_onnx_tensor(MotCtx *ctx, const MotOnnxFile *file, const Onnx__TensorProto *tensor,
                          MotLoc loc, MotTensor *out_tensor)
{
    Measure m = {.ctx = ctx, .file = file, .tensor = tensor, .loc = loc};
    MotTensorData d;
    MOT_TRY(read_data(&m, &d));
    MotDtype dtype = mot_dtype_from_onnx(d.data_type);
    if (dtype == MOT_NO_DTYPE)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, loc, "data type %s is not supported",
                        m.dtype->name);
    if (d.rank > MOT_MAX_RANK)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, loc, "rank %d is not supported; the most is %d",
                        d.rank, MOT_MAX_RANK);
    *out_tensor = (MotTensor){mot_type_make(dtype, d.rank, d.dims), (void *)align(&m, &d)};
    return MOT_OK;
}

/* ---- Sparse tensors ---- */

typedef struct Sparse {
    MotCtx *ctx;
    const Onnx__SparseTensorProto *proto;
    MotLoc loc;
    int64_t n, elements;
    MotTensorData indices;
} Sparse;

static int64_t get_index(const Sparse *s, int64_t i)
{
    int64_t index;
    MOT_ASSERT(s->indices.data);
    memcpy(&index, s->indices.data + (size_t)i * sizeof index, sizeof index);
    return index;
}

/* Index i as a position in row-major order; -1 if it is out of range. */
static int64_t find_position(const Sparse *s, int64_t i)
{
    if (s->indices.rank == 1) {
        int64_t index = get_index(s, i);
        return index < s->elements ? index : -1;
    }
    int64_t position = 0, rank = (int64_t)s->proto->n_dims;
    for (int64_t d = 0; d < rank; d++) {
        int64_t index = get_index(s, i * rank + d);
        if (index < 0 || index >= s->proto->dims[d])
            return -1;
        position = position * s->proto->dims[d] + index;
    }
    return position;
}

static MotStatus check_indices(const Sparse *s)
{
    const MotTensorData *x = &s->indices;
    bool fits = (x->rank == 1 && x->dims[0] == s->n) ||
                (x->rank == 2 && x->dims[0] == s->n && x->dims[1] == (int64_t)s->proto->n_dims);
    if (!fits)
        return mot_fail(
            s->ctx, MOT_ERR_MODEL, s->loc, "sparse indices [%s] do not fit %lld values of rank %zu",
            mot_shape_text(&s->ctx->arena, x->dims, x->rank), (long long)s->n, s->proto->n_dims);
    int64_t last = -1;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t position = find_position(s, i);
        if (position < 0)
            return mot_fail(s->ctx, MOT_ERR_MODEL, s->loc, "sparse index %lld is out of range",
                            (long long)i);
        if (position <= last)
            return mot_fail(s->ctx, MOT_ERR_MODEL, s->loc,
                            "sparse index %lld is not above the one before", (long long)i);
        last = position;
    }
    return MOT_OK;
}

MotStatus mot_onnx_sparse_check(MotCtx *ctx, const MotOnnxFile *file,
                                const Onnx__SparseTensorProto *sparse, MotLoc loc)
{
    const Onnx__TensorProto *values = sparse->values, *indices = sparse->indices;
    Sparse s = {.ctx = ctx, .proto = sparse, .loc = loc};
    if (!values || !indices || sparse->n_dims == 0)
        return mot_fail(ctx, MOT_ERR_MODEL, loc, "a sparse tensor needs values, indices and dims");
    MOT_TRY(mot_onnx_tensor_check(ctx, file, values, loc));
    if (values->n_dims != 1)
        return mot_fail(ctx, MOT_ERR_MODEL, loc, "sparse values have rank %zu instead of 1",
                        values->n_dims);
    if (indices->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__INT64)
        return mot_fail(ctx, MOT_ERR_MODEL, loc, "sparse indices are %s instead of int64",
                        mot_onnx_dtype_name(&ctx->arena, indices->data_type));
    s.n = values->dims[0];
    MOT_TRY(multiply_dims(ctx, &file->limits, sparse->dims, sparse->n_dims, loc, &s.elements));
    MOT_TRY(mot_onnx_tensor_data(ctx, file, indices, loc, &s.indices));
    return check_indices(&s);
}
