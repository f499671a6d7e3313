/* The header is 0, 0, element type, rank, and a 32-bit size a dim (yann.lecun.com/exdb/mnist). */
#include "runtime/idx.h"

#include "support/file.h"

#include <string.h>

typedef struct {
    uint8_t code;
    int bytes;
    bool is_integer; /* signed */
    MotDtype dtype;
} Kind;

static const Kind kinds[] = {{0x08, 1, false, MOT_U8},  {0x09, 1, true, MOT_I32},
                             {0x0b, 2, true, MOT_I32},  {0x0c, 4, true, MOT_I32},
                             {0x0d, 4, false, MOT_F32}, {0x0e, 8, false, MOT_F64}};

static uint64_t read_big_endian(const uint8_t *p, int bytes)
{
    uint64_t bits = 0;
    for (int i = 0; i < bytes; i++)
        bits = bits << 8 | p[i];
    return bits;
}

/* The type and where the elements begin; the file is as long as both say. */
static MotStatus read_header(MotCtx *ctx, const char *path, const MotFileMap *file, Kind *out_kind,
                             MotType *out_type)
{
    const uint8_t *p = file->data;
    MotLoc loc = {path, NULL};
    if (file->n < 4 || p[0] || p[1])
        return mot_fail(ctx, MOT_ERR_DATA, loc, "is not an IDX file");
    const Kind *kind = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].code == p[2])
            kind = &kinds[i];
    if (!kind)
        return mot_fail(ctx, MOT_ERR_DATA, loc, "has elements of type 0x%02x, which IDX has not",
                        p[2]);
    int rank = p[3];
    if (rank < 1 || rank > MOT_MAX_RANK)
        return mot_fail(ctx, MOT_ERR_DATA, loc, "has %d dims; 1 to %d are read", rank,
                        MOT_MAX_RANK);
    size_t head = 4 + 4 * (size_t)rank;
    if (file->n < head)
        return mot_fail(ctx, MOT_ERR_DATA, loc, "is cut off in its header");
    uint64_t bytes = (uint64_t)kind->bytes;
    *out_kind = *kind;
    *out_type = (MotType){.dtype = kind->dtype, .rank = rank};
    bool overflows = false;
    for (int d = 0; d < rank; d++) {
        out_type->dims[d] = (int64_t)read_big_endian(p + 4 + 4 * (size_t)d, 4);
        overflows |= __builtin_mul_overflow(bytes, (uint64_t)out_type->dims[d], &bytes);
    }
    overflows |= !mot_type_fits(out_type); /* 2^32 * 2^32 * 0 elements are no bytes */
    if (overflows || bytes != file->n - head)
        return mot_fail(ctx, MOT_ERR_DATA, loc, "holds %zu bytes of elements; its header says [%s]",
                        file->n - head,
                        mot_shape_text(&ctx->arena, out_type->dims, out_type->rank));
    return MOT_OK;
}

MotStatus mot_idx_read(MotCtx *ctx, const char *path, MotTensor *out_tensor)
{
    const MotFileMap *file;
    Kind kind = {0};
    MotType type = {0};
    MOT_TRY(mot_file_map(ctx, path, &file));
    MOT_TRY(read_header(ctx, path, file, &kind, &type));
    const uint8_t *p = file->data + 4 + 4 * (size_t)type.rank;
    *out_tensor = (MotTensor){type, (void *)(uintptr_t)p};
    if (kind.bytes == 1 && !kind.is_integer)
        return MOT_OK;
    int64_t n = mot_type_elements(&type);
    out_tensor->data = mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&type));
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = read_big_endian(p + i * kind.bytes, kind.bytes);
        int shift = 64 - 8 * kind.bytes;
        if (kind.is_integer)
            mot_tensor_set_int(out_tensor, i, (int64_t)(bits << shift) >> shift);
        else
            memcpy((char *)out_tensor->data + i * kind.bytes, &bits, (size_t)kind.bytes);
    }
    return MOT_OK;
}
