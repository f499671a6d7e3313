/*
 * NVRTC, NVIDIA's compiler of CUDA C as a library: loaded when it is asked for, so that Motley
 * builds and runs without CUDA.
 */
#ifndef MOTLEY_CODEGEN_NVRTC_H
#define MOTLEY_CODEGEN_NVRTC_H

#include "support/context.h"

typedef struct MotNvrtc MotNvrtc;

/*
 * Loads version 13, else 12, from $CUDA_HOME/lib64, the dynamic linker's folders,
 * /usr/local/cuda/lib64 or $MOTLEY_DATA/nvrtc. It stays loaded. Fails with
 * MOT_ERR_UNSUPPORTED when there is none; no GPU is needed.
 */
MOT_CHECKED MotStatus mot_nvrtc_open(MotCtx *ctx, MotNvrtc **out_nvrtc);
/* Whether it compiles for compute capability `arch` (80 is 8.0). */
bool mot_nvrtc_supports(const MotNvrtc *nvrtc, int arch);
/* "13.0" */
const char *mot_nvrtc_version(const MotNvrtc *nvrtc);

/*
 * Compiles CUDA C to a cubin for sm_<arch>, in ctx's arena. MOT_ERR_INTERNAL, as the text is ours,
 * with NVRTC's log in the error when it refuses the text.
 */
MOT_CHECKED MotStatus mot_nvrtc_compile(MotCtx *ctx, const MotNvrtc *nvrtc, const char *text,
                                        int arch, const void **out_cubin, size_t *out_bytes);

#endif
