/*
 * Code generation: the kernels of a Program become images for one instruction set, from the cache
 * or by LLVM.
 */
#ifndef MOTLEY_CODEGEN_CODEGEN_H
#define MOTLEY_CODEGEN_CODEGEN_H

#include "codegen/image.h"
#include "ir/program.h"

typedef struct MotCodegenOpts {
    MotIsa isa;
    uint32_t threads;      /* that compile; 0: 2 */
    const char *cache_dir; /* NULL: $XDG_CACHE_HOME/motley or ~/.cache/motley; "": no cache */
} MotCodegenOpts;

/*
 * Sets the image of every kernel of the program, in the context's arena. Equal graphs give equal
 * images. Fails with MOT_ERR_UNSUPPORTED, naming the op, when no kernel shape covers a graph. A
 * cache that can't be read or written costs time, no more.
 */
MOT_CHECKED MotStatus mot_codegen_program(MotCtx *ctx, MotProgram *program,
                                          const MotCodegenOpts *opts);
/* One kernel, by LLVM. `key` is stored in the image. */
MOT_CHECKED MotStatus mot_codegen_kernel(MotCtx *ctx, const MotGraph *graph, MotIsa isa,
                                         uint64_t key, MotImageBytes *out_image);

#endif
