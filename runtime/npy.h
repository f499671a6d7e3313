/*
 * NumPy's .npy files, formats 1.0 to 3.0. Read: any order and endianness, converted to C order,
 * little-endian.
 */
#ifndef MOTLEY_RUNTIME_NPY_H
#define MOTLEY_RUNTIME_NPY_H

#include "ir/dtype.h"
#include "support/context.h"

/*
 * Fails with MOT_ERR_DATA naming the file and what is wrong. The data points into the mapped file
 * where it can.
 */
MOT_CHECKED MotStatus mot_npy_read(MotCtx *ctx, const char *path, MotTensor *out_tensor);
MOT_CHECKED MotStatus mot_npy_write(MotCtx *ctx, const char *path, const MotTensor *tensor);

#endif
