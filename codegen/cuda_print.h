/*
 * Inside of cuda*.c: what the printers of the shapes share. Statements are printed line by line
 * into blocks; expressions are strings in the arena. Names in the text: b<buffer>, i<loop>,
 * v<node>, r<node> for the partial result of a REDUCE.
 */
#ifndef MOTLEY_CODEGEN_CUDA_PRINT_H
#define MOTLEY_CODEGEN_CUDA_PRINT_H

#include "codegen/kernel.h"

enum { MOT_CUDA_MAX_DEPTH = 8 };

typedef struct MotCuda {
    MotCtx *ctx;
    MotText text;
    const char *name; /* of the kernel */
    const MotKernelIr *kernel;
    const MotNest *nest;
    bool *is_known;                  /* [nodes]: v<node> is in scope */
    bool *outer[MOT_CUDA_MAX_DEPTH]; /* is_known of the blocks around this one */
    int depth;
} MotCuda;

/* ---- cuda.c: lines, blocks, extents ---- */

void mot_cuda_line(MotCuda *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* `format {` and the `}` behind it. What becomes known in between is forgotten at the end. */
void mot_cuda_open(MotCuda *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void mot_cuda_close(MotCuda *c);

const char *mot_cuda_int(MotCuda *c, int64_t value);
const char *mot_cuda_extent(MotCuda *c, MotExtent e);
/* Product of the extents of loops [from, to). */
const char *mot_cuda_points(MotCuda *c, int from, int to);
/* Declares i<from> to i<to - 1>: point number `point` of those loops, the last one fastest. */
void mot_cuda_set_point(MotCuda *c, const char *point, int from, int to);
/* for (task = first; task < n; task += step): the loop over a launch's work. */
void mot_cuda_open_blocks(MotCuda *c, const char *tasks);  /* a task a block */
void mot_cuda_open_threads(MotCuda *c, const char *tasks); /* a task a thread */

/* ---- cuda_node.c: dtypes, nodes, stores ---- */

/* How a dtype is spelt. */
typedef struct MotCudaType {
    const char *value;  /* of a node */
    const char *memory; /* of an element in memory */
    const char *number; /* in which its operations are computed */
    const char *zero, *least;
} MotCudaType;
const MotCudaType *mot_cuda_type(MotDtype dtype);

/* The rows of ops.def as functions mot_<op>. */
void mot_cuda_print_rows(MotText *text);
/* The part of an access's element index that loops [from, to) move. */
const char *mot_cuda_loops_place(MotCuda *c, const MotAccess *access, int from, int to);
/* A float as it is, and the spelling of infinities and NaN. */
const char *mot_cuda_float(MotCuda *c, double value);
/* Declares v<id>, and what it is made from, unless it is known. REDUCE nodes must be. */
void mot_cuda_need(MotCuda *c, MotNode id);
void mot_cuda_store(MotCuda *c, const MotStore *store);

/* ---- One printer a shape ---- */

typedef struct MotCudaShape {
    /* The functions that the body calls: up to two lists of lines, each ending with a NULL. */
    const char *const *library[2];
    void (*print)(MotCuda *c); /* the body */
} MotCudaShape;
extern const MotCudaShape mot_cuda_points_shape, mot_cuda_row, mot_cuda_contract, mot_cuda_scatter,
    mot_cuda_rows, mot_cuda_attention, mot_cuda_attention_grad;

#endif
