/*
 * CUDA C: the second printer of the kernel IR (codegen/kernel.h). The text is plain: shared-memory
 * tiles for products, one block a row, one thread a column; no header is included, so that NVRTC
 * compiles it as it is.
 */
#ifndef MOTLEY_CODEGEN_CUDA_H
#define MOTLEY_CODEGEN_CUDA_H

#include "ir/graph.h"

/*
 * The source of a kernel, in ctx's arena. Nest i of the kernel is the function k_<hash of the
 * graph's text>_<i>; they run in order,
 *
 *     k_<hash>_<i>(b0, b1, ..., const long long *dims, long long *bad_index)
 *
 * with the buffers of the operands, then of the results; with the sizes of the program's dims; and
 * with a place that takes an index that was outside of its table. Blocks have MOT_CUDA_THREADS
 * threads; any number of blocks gives the same bytes, as no sum is split between blocks and nothing
 * is added atomically. Texts of several kernels may follow each other in one program.
 *
 * Fails with MOT_ERR_UNSUPPORTED, naming op or shape, when no shape covers the graph or the shape
 * has no CUDA text.
 */
MOT_CHECKED MotStatus mot_cuda_text(MotCtx *ctx, const MotGraph *graph, const char **out_text);

enum { MOT_CUDA_THREADS = 256 };

#endif
