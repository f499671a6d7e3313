/*
 * TensorProto -> elements: the data types of ONNX, the three ways of storing data (raw, typed
 * fields, external), and what must hold between dims and data.
 */
#ifndef MOTLEY_FRONTEND_ONNX_TENSOR_H
#define MOTLEY_FRONTEND_ONNX_TENSOR_H

#include "ir/dtype.h"
#include "support/context.h"

#include "frontend/onnx.pb-c.h"

typedef struct MotOnnxFile MotOnnxFile;

/*
 * Any tensor of ONNX. Elements are packed and little-endian; two of a 4-bit type share a byte, low
 * half first, four of a 2-bit type likewise. `data` lies in the mapped file where that is possible,
 * and is not aligned.
 */
typedef struct MotTensorData {
    int32_t data_type; /* ONNX's number */
    int rank;
    const int64_t *dims;
    int64_t elements;
    const uint8_t *data; /* NULL for strings and if there are no elements */
    size_t bytes;
    const ProtobufCBinaryData
        *strings; /* `elements` of them, for strings only; they may hold NULs */
} MotTensorData;

/* "float16", or "99 (unknown)". */
const char *mot_onnx_dtype_name(MotArena *arena, int64_t data_type);

/*
 * Checks dims, type and stored data against each other; opens no external data. Done for every
 * tensor of a file.
 */
MOT_CHECKED MotStatus mot_onnx_tensor_check(MotCtx *ctx, const MotOnnxFile *file,
                                            const Onnx__TensorProto *tensor, MotLoc loc);
/* The checks of both parts, and: indices in range, ascending, as many as values. */
MOT_CHECKED MotStatus mot_onnx_sparse_check(MotCtx *ctx, const MotOnnxFile *file,
                                            const Onnx__SparseTensorProto *sparse, MotLoc loc);

/*
 * The elements of a tensor of `file`. Opens external data; a value that its type cannot hold is
 * MOT_ERR_MODEL.
 */
MOT_CHECKED MotStatus mot_onnx_tensor_data(MotCtx *ctx, const MotOnnxFile *file,
                                           const Onnx__TensorProto *tensor, MotLoc loc,
                                           MotTensorData *out_data);
/*
 * The same as a host tensor, aligned to its elements (copied once if the file has it elsewhere);
 * read-only. MOT_ERR_UNSUPPORTED if Motley has no such type, or the rank exceeds MOT_MAX_RANK.
 */
MOT_CHECKED MotStatus mot_onnx_tensor(MotCtx *ctx, const MotOnnxFile *file,
                                      const Onnx__TensorProto *tensor, MotLoc loc,
                                      MotTensor *out_tensor);

#endif
