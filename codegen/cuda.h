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
 *     k_<hash>_<i>(void *const *table, const long long *sizes, long long *bad_index)
 *
 * with the buffers of the operands, then of the results; with the sizes of the graph's symbols; and
 * with a place that takes an index that was outside of its table. gridDim.y is 1, or the number of
 * sets of a batched launch (ir/program.h): the buffers of all sets follow each other in the table,
 * and each set has one size. Blocks have MOT_CUDA_THREADS
 * threads; any number of blocks gives the same bytes, as no sum is split between blocks and nothing
 * is added atomically. Texts of several kernels may follow each other in one program.
 *
 * Fails with MOT_ERR_UNSUPPORTED, naming op or shape, when no shape covers the graph or the shape
 * has no CUDA text.
 */
MOT_CHECKED MotStatus mot_cuda_text(MotCtx *ctx, const MotGraph *graph, const char **out_text);
/* k_<hash>, in ctx's arena: the name that lowering gives the kernel too (ir/program.h). */
const char *mot_cuda_name(MotCtx *ctx, const MotGraph *graph);

enum { MOT_CUDA_THREADS = 256 };

#endif
