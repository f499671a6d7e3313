/*
 * Kernel images: flat, position-independent machine code with its constants. One format for code
 * compiled now, code from the cache and code in an executable; codegen/ makes images, runtime/ maps
 * and calls them.
 *
 * Bytes: MotImageHeader, then the payload. An image is mapped anywhere, first writable, then
 * executable, never both.
 */
#ifndef MOTLEY_SUPPORT_IMAGE_H
#define MOTLEY_SUPPORT_IMAGE_H

#include "support/context.h"

/*
 * Instruction sets that kernels are compiled for, weakest first: the levels x86-64-v3 and
 * x86-64-v4.
 */
typedef enum MotIsa { MOT_ISA_AVX2, MOT_ISA_AVX512, MOT_N_ISAS } MotIsa;
extern const char *const mot_isa_names[MOT_N_ISAS];
bool mot_isa_is_supported(MotIsa isa);
/* The strongest that this machine has; -1 if it has none of them. */
int mot_isa_best(void);

typedef enum MotRowKind { MOT_ROW_TOP_K, MOT_ROW_MEAN, MOT_ROW_PACK, MOT_ROW_UNPACK } MotRowKind;

/* What a kernel calls. Everything else it does itself. */
typedef struct MotServices MotServices;
struct MotServices {
    /*
     * c[m,n] = a[m,k] b[k,n] + beta c, row-major at distances lda, ldb, ldc; trans: the operand is
     * stored transposed. One thread.
     */
    void (*sgemm)(const MotServices *self, int32_t trans_a, int32_t trans_b, int64_t m, int64_t n,
                  int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                  float *c, int64_t ldc);
    int64_t *bad_index; /* set to an index that was outside of its table */
    /*
     * Row number `row` of a launch over rows of which k of n entries count (ir/sparse.h). top_k: x,
     * index, value. mean: index, value, result; `parts` lists `stride` entries apart. pack: index,
     * value, message. unpack: message, index, value; `stride` rows in all, of `parts` peers.
     */
    void (*row)(const MotServices *self, int64_t kind, int64_t wire, int64_t n, int64_t k,
                int64_t parts, int64_t stride, int64_t row, void *a, void *b, void *c);
};

/*
 * Runs tasks [begin, end). bufs: operands, then results; dims: the binding's sizes; scratch: this
 * thread's, 64-byte aligned.
 */
typedef void MotNestRun(void *const *bufs, const int64_t *dims, int64_t begin, int64_t end,
                        const MotServices *services, void *scratch);
typedef int64_t MotNestCount(const int64_t *dims);

typedef struct MotNestCode {
    MotNestRun *run;
    MotNestCount *tasks, *scratch_bytes;
    bool is_coarse; /* tasks gain from being run in long ranges (packed operands are shared) */
} MotNestCode;

enum { MOT_IMAGE_NESTS = 8, MOT_IMAGE_VERSION = 1 };

typedef struct MotImageNest {
    uint32_t run, tasks, scratch_bytes; /* offsets in the payload */
    uint32_t is_coarse;
} MotImageNest;

typedef struct MotImageHeader {
    char magic[8];     /* "MOTIMAGE" */
    uint64_t checksum; /* of all that follows */
    uint32_t version, isa;
    uint64_t key; /* of what it was compiled from */
    uint64_t payload_bytes;
    uint32_t n_nests, unused;
    MotImageNest nest[MOT_IMAGE_NESTS];
} MotImageHeader;

/* Sets magic, version and checksum of a complete image. */
void mot_image_seal(void *image);
/* Whether these bytes are an unharmed image of this version. */
bool mot_image_is_valid(const void *image, size_t n);

/* An image in memory, ready to be called. */
typedef struct MotImage {
    void *base;
    size_t bytes;
    uint32_t n_nests;
    MotNestCode nest[MOT_IMAGE_NESTS];
} MotImage;

/*
 * Fails with MOT_ERR_MISMATCH for bytes that are no image or one for another machine. Unmap it when
 * no kernel runs.
 */
MOT_CHECKED MotStatus mot_image_map(MotCtx *ctx, const void *image, size_t n, MotImage *out_image);
void mot_image_unmap(MotImage *image);

#endif
