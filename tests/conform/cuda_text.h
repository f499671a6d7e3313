/*
 * CUDA texts that differ in the kernel's name only are one: dims that the text does not use,
 * operands of other names.
 */
#ifndef MOTLEY_TESTS_CONFORM_CUDA_TEXT_H
#define MOTLEY_TESTS_CONFORM_CUDA_TEXT_H

#include "codegen/cuda.h"

#include <string.h>

/* The text of a kernel, and the same without its name. */
typedef struct CudaText {
    const char *name, *text;
    MotText nameless;
} CudaText;

static inline MotStatus make_cuda_text(MotCtx *ctx, const MotGraph *graph, CudaText *out)
{
    *out = (CudaText){.name = mot_cuda_name(ctx, graph)};
    MOT_TRY(mot_cuda_text(ctx, graph, &out->text));
    size_t n = strlen(out->name);
    const char *from = out->text;
    mot_text_init(&out->nameless, &ctx->arena);
    for (const char *at; (at = strstr(from, out->name)); from = at + n)
        mot_text_add(&out->nameless, from, (size_t)(at - from));
    mot_text_puts(&out->nameless, from);
    return MOT_OK;
}

#endif
