/*
 * safetensors files: an 8-byte header length, a JSON header, the tensors. Checked in full before
 * anything is used.
 */
#ifndef MOTLEY_RUNTIME_SAFETENSORS_H
#define MOTLEY_RUNTIME_SAFETENSORS_H

#include "ir/dtype.h"
#include "support/context.h"

typedef struct MotNamedTensor {
    const char *name;
    MotTensor tensor;
} MotNamedTensor;

MOT_CHECKED MotStatus mot_safetensors_write(MotCtx *ctx, const char *path,
                                            const MotNamedTensor *tensors, uint32_t n);
/* The tensors point into the mapped file. Fails with MOT_ERR_DATA. */
MOT_CHECKED MotStatus mot_safetensors_read(MotCtx *ctx, const char *path,
                                           MotNamedTensor **out_tensors, uint32_t *out_n);

#endif
