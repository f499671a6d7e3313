/* Trained weights back into the .onnx file, under their own names and in their own layouts. */
#ifndef MOTLEY_FRONTEND_EXPORT_H
#define MOTLEY_FRONTEND_EXPORT_H

#include "frontend/onnx_file.h"

/* New values of an initializer: dtype and dims are those in the file. */
typedef struct MotExported {
    const char *name;
    MotTensor tensor;
} MotExported;

/*
 * Writes the model to `path` with these initializers replaced; every other byte is copied.
 * Initializers with external data are written inline, so that the result is one file. The file
 * appears complete or not at all; nothing in the model decides where. Fails with MOT_ERR_MISMATCH
 * on a tensor that is not an initializer's, with MOT_ERR_LIMIT beyond 2 GiB, with MOT_ERR_IO, also
 * when the model's file has changed since it was read.
 */
MOT_CHECKED MotStatus mot_export(MotCtx *ctx, const MotOnnxFile *file, const MotExported *tensors,
                                 uint32_t n, const char *path);

#endif
