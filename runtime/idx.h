/* IDX files, the format of MNIST: a magic number, sizes, and elements, all big-endian. */
#ifndef MOTLEY_RUNTIME_IDX_H
#define MOTLEY_RUNTIME_IDX_H

#include "ir/dtype.h"
#include "support/context.h"

/*
 * Reads a whole array: unsigned bytes as u8, other integers as i32, floats as f32 or f64. The file
 * must be exactly as long as its header says. Fails with MOT_ERR_DATA naming the file and what is
 * wrong. Bytes stay in the mapped file.
 */
MOT_CHECKED MotStatus mot_idx_read(MotCtx *ctx, const char *path, MotTensor *out_tensor);

#endif
