/* From a relocatable object to a flat image (support/image.h). */
#ifndef MOTLEY_CODEGEN_IMAGE_H
#define MOTLEY_CODEGEN_IMAGE_H

#include "support/image.h"

typedef struct MotImageBytes {
    void *data; /* in the context's arena; sealed */
    size_t n;
} MotImageBytes;

/*
 * Lays out an ELF64 x86-64 object with functions run<i>, tasks<i>, scratch<i> for i < n_nests:
 * sections one behind the other, relocations resolved. Fails with MOT_ERR_INTERNAL for an undefined
 * symbol or a relocation that depends on where the image will lie.
 */
MOT_CHECKED MotStatus mot_image_layout(MotCtx *ctx, const void *object, size_t n, MotIsa isa,
                                       uint64_t key, uint32_t n_nests, MotImageBytes *out_image);

#endif
