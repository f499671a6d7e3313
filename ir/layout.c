/* Strided copies between the two layouts of a parameter. */
#include "ir/layout.h"

#include <string.h>

MotType mot_param_file_type(const MotType *type, const MotOp *param)
{
    const MotAttr_param *a = mot_attrs(param, param);
    if (a->file_dims.n == 0)
        return *type;
    return mot_type_make(type->dtype, (int)a->file_dims.n, a->file_dims.data);
}

void mot_param_strides(const MotType *type, const MotOp *param, int64_t *out_stride)
{
    const MotAttr_param *a = mot_attrs(param, param);
    int64_t atom[MOT_MAX_RANK];
    for (int i = 0; i < type->rank; i++)
        atom[a->perm.n ? a->perm.data[i] : i] = type->dims[i];
    int64_t atom_stride[MOT_MAX_RANK], n = 1;
    for (int i = type->rank; i-- > 0; n *= atom[i])
        atom_stride[i] = n;
    for (int i = 0; i < type->rank; i++)
        out_stride[i] = atom_stride[a->perm.n ? a->perm.data[i] : i];
}

MotTensor mot_param_tied(MotArena *arena, const MotOp *param, const MotTensor *file)
{
    const MotAttr_param *a = mot_attrs(param, param);
    if (!a->tied)
        return (MotTensor){0};
    if (!a->tied_transposed)
        return *file;
    int64_t rows = file->type.dims[0], columns = file->type.dims[1];
    MotTensor t = {mot_type_make(file->type.dtype, 2, (int64_t[]){columns, rows}),
                   mot_arena_alloc(arena, (size_t)mot_type_bytes(&file->type))};
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            mot_tensor_set(&t, c * rows + r, mot_tensor_get(file, r * columns + c));
    return t;
}

void mot_param_to_file(const MotType *type, const MotOp *param, const void *value, void *out_file)
{
    int64_t stride[MOT_MAX_RANK], index[MOT_MAX_RANK] = {0}, at = 0;
    size_t bytes = (size_t)mot_dtype_bytes(type->dtype);
    mot_param_strides(type, param, stride);
    int64_t n = mot_type_elements(type);
    for (int64_t e = 0; e < n; e++) {
        memcpy((char *)out_file + (size_t)at * bytes, (const char *)value + (size_t)e * bytes,
               bytes);
        for (int d = type->rank; d-- > 0;) {
            at += stride[d];
            if (++index[d] < type->dims[d])
                break;
            at -= stride[d] * index[d];
            index[d] = 0;
        }
    }
}
