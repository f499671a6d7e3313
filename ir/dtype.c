/* Element types and host tensors. */
#include "ir/dtype.h"

#include <string.h>

typedef struct {
    const char *name;
    int bytes, onnx;
    MotDtypeClass class;
} DtypeInfo;

static const DtypeInfo infos[MOT_N_DTYPES] = {[MOT_NO_DTYPE] = {.name = "none"},
#define X(id, name, bytes, onnx, class) [MOT_##id] = {#name, bytes, onnx, MOT_CLASS_##class},
                                              MOT_DTYPE_LIST(X)
#undef X
};

int mot_dtype_bytes(MotDtype dtype)
{
    return infos[dtype].bytes;
}

const char *mot_dtype_name(MotDtype dtype)
{
    return infos[dtype].name;
}

MotDtypeClass mot_dtype_class(MotDtype dtype)
{
    return infos[dtype].class;
}

MotDtype mot_dtype_find(const char *name)
{
    for (int d = 1; d < MOT_N_DTYPES; d++)
        if (strcmp(infos[d].name, name) == 0)
            return (MotDtype)d;
    return MOT_NO_DTYPE;
}

MotDtype mot_dtype_from_onnx(int64_t data_type)
{
    for (int d = 1; d < MOT_N_DTYPES; d++)
        if (infos[d].onnx == data_type)
            return (MotDtype)d;
    return MOT_NO_DTYPE;
}

int mot_dtype_to_onnx(MotDtype dtype)
{
    return infos[dtype].onnx;
}

MotType mot_type_make(MotDtype dtype, int rank, const int64_t *dims)
{
    MotType type = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        type.dims[i] = dims[i];
    return type;
}

MotType mot_type_scalar(MotDtype dtype)
{
    return (MotType){.dtype = dtype};
}

bool mot_dims_equal(const MotType *a, const MotType *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return true;
}

bool mot_type_equal(const MotType *a, const MotType *b)
{
    return a->dtype == b->dtype && mot_dims_equal(a, b);
}

bool mot_type_fits(const MotType *type)
{
    int64_t n = 1;
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] > 0 && __builtin_mul_overflow(n, type->dims[i], &n))
            return false;
    return n < (int64_t)1 << 62;
}

int64_t mot_type_elements(const MotType *type)
{
    int64_t n = 1;
    for (int i = 0; i < type->rank; i++)
        n *= type->dims[i];
    return n;
}

int64_t mot_type_bytes(const MotType *type)
{
    return mot_type_elements(type) * mot_dtype_bytes(type->dtype);
}

static float half_to_float(uint16_t h)
{
    _Float16 f;
    memcpy(&f, &h, sizeof f);
    return (float)f;
}

static uint16_t float_to_half(float x)
{
    _Float16 f = (_Float16)x;
    uint16_t h;
    memcpy(&h, &f, sizeof h);
    return h;
}

static float bfloat_to_float(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t float_to_bfloat(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Toward zero; what does not fit becomes the nearest that does, NaN becomes 0. */
static int64_t to_integer(double value, int64_t least, int64_t most)
{
    if (value != value)
        return 0;
    if (value <= (double)least)
        return least;
    return value >= (double)most ? most : (int64_t)value;
}

double mot_tensor_get(const MotTensor *tensor, int64_t i)
{
    switch (tensor->type.dtype) {
    case MOT_F32:
        return ((const float *)tensor->data)[i];
    case MOT_F64:
        return ((const double *)tensor->data)[i];
    case MOT_F16:
        return half_to_float(((const uint16_t *)tensor->data)[i]);
    case MOT_BF16:
        return bfloat_to_float(((const uint16_t *)tensor->data)[i]);
    default:
        return (double)mot_tensor_get_int(tensor, i);
    }
}

int64_t mot_tensor_get_int(const MotTensor *tensor, int64_t i)
{
    switch (tensor->type.dtype) {
    case MOT_U8:
        return ((const uint8_t *)tensor->data)[i];
    case MOT_BOOL:
        return ((const uint8_t *)tensor->data)[i] != 0;
    case MOT_I32:
        return ((const int32_t *)tensor->data)[i];
    case MOT_I64:
        return ((const int64_t *)tensor->data)[i];
    default:
        return to_integer(mot_tensor_get(tensor, i), INT64_MIN, INT64_MAX);
    }
}

void mot_tensor_set(const MotTensor *tensor, int64_t i, double value)
{
    switch (tensor->type.dtype) {
    case MOT_F32:
        ((float *)tensor->data)[i] = (float)value;
        break;
    case MOT_F64:
        ((double *)tensor->data)[i] = value;
        break;
    case MOT_F16:
        ((uint16_t *)tensor->data)[i] = float_to_half((float)value);
        break;
    case MOT_BF16:
        ((uint16_t *)tensor->data)[i] = float_to_bfloat((float)value);
        break;
    case MOT_U8:
        mot_tensor_set_int(tensor, i, to_integer(value, 0, UINT8_MAX));
        break;
    case MOT_I32:
        mot_tensor_set_int(tensor, i, to_integer(value, INT32_MIN, INT32_MAX));
        break;
    case MOT_I64:
        mot_tensor_set_int(tensor, i, to_integer(value, INT64_MIN, INT64_MAX));
        break;
    default:
        mot_tensor_set_int(tensor, i, value != 0);
    }
}

void mot_tensor_set_int(const MotTensor *tensor, int64_t i, int64_t value)
{
    switch (tensor->type.dtype) {
    case MOT_U8:
        ((uint8_t *)tensor->data)[i] = (uint8_t)value;
        break;
    case MOT_BOOL:
        ((uint8_t *)tensor->data)[i] = value != 0;
        break;
    case MOT_I32:
        ((int32_t *)tensor->data)[i] = (int32_t)value;
        break;
    case MOT_I64:
        ((int64_t *)tensor->data)[i] = value;
        break;
    default:
        mot_tensor_set(tensor, i, (double)value);
    }
}

double mot_dtype_round(MotDtype dtype, double x)
{
    int64_t place;
    MotTensor one = {.type = {.dtype = dtype}, .data = &place};
    mot_tensor_set(&one, 0, x);
    return mot_tensor_get(&one, 0);
}

MotTensor mot_tensor_cast(MotArena *arena, const MotTensor *tensor, MotDtype dtype)
{
    bool is_exact = mot_dtype_class(tensor->type.dtype) == MOT_CLASS_INT &&
                    mot_dtype_class(dtype) == MOT_CLASS_INT;
    MotTensor to = {tensor->type, NULL};
    to.type.dtype = dtype;
    to.data = mot_arena_alloc(arena, (size_t)mot_type_bytes(&to.type));
    int64_t n = mot_type_elements(&to.type);
    for (int64_t i = 0; i < n; i++)
        is_exact ? mot_tensor_set_int(&to, i, mot_tensor_get_int(tensor, i))
                 : mot_tensor_set(&to, i, mot_tensor_get(tensor, i));
    return to;
}
