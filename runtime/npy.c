/*
 * The header is a Python dict literal; only what NumPy writes is read: descr, fortran_order and
 * shape in any order.
 */
#include "runtime/npy.h"

#include "support/file.h"
#include "support/writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *descr; /* without the byte order */
    MotDtype dtype;
} descrs[] = {{"f4", MOT_F32}, {"f8", MOT_F64}, {"f2", MOT_F16}, {"i4", MOT_I32},
              {"i8", MOT_I64}, {"u1", MOT_U8},  {"b1", MOT_BOOL}};

/* Integer kinds that the graph has no type for are widened to i64. */
static const struct {
    const char *descr;
    int bytes;
    bool is_signed;
} widened[] = {
    {"i1", 1, true}, {"i2", 2, true}, {"u2", 2, false}, {"u4", 4, false}, {"u8", 8, false}};

typedef struct {
    MotCtx *ctx;
    MotLoc loc;
    const char *header, *data;
    size_t header_bytes, data_bytes;
    char order, kind[3];
    bool is_fortran;
    MotType type;
} Npy;

static MotStatus refuse(Npy *npy, const char *what)
{
    return mot_fail(npy->ctx, MOT_ERR_DATA, npy->loc, "%s", what);
}

static MotStatus split_file(Npy *npy, const MotFileMap *file)
{
    const uint8_t *p = file->data;
    if (file->n < 10 || memcmp(p, "\x93NUMPY", 6) != 0)
        return refuse(npy, "is not a .npy file");
    size_t at = p[6] == 1 ? 10 : 12;
    if (p[6] < 1 || p[6] > 3 || file->n < at)
        return refuse(npy, "has a .npy version that is not known");
    size_t n = p[6] == 1
                   ? (size_t)(p[8] | p[9] << 8)
                   : (size_t)p[8] | (size_t)p[9] << 8 | (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (n > file->n - at)
        return refuse(npy, "is cut off in its header");
    npy->header = mot_arena_strndup(&npy->ctx->arena, (const char *)p + at, n);
    npy->data = (const char *)p + at + n;
    npy->data_bytes = file->n - at - n;
    return MOT_OK;
}

/* What follows `'key':` in the header, or NULL. */
static const char *find_key(const Npy *npy, const char *key)
{
    const char *p = strstr(npy->header, key);
    p = p ? strchr(p + strlen(key), ':') : NULL;
    return p ? p + 1 + strspn(p + 1, " ") : NULL;
}

static MotStatus parse_shape(Npy *npy)
{
    const char *p = find_key(npy, "'shape'");
    if (!p || *p++ != '(')
        return refuse(npy, "has no shape in its header");
    int64_t elements = 1;
    for (;;) {
        p += strspn(p, " ,");
        if (*p == ')')
            return MOT_OK;
        char *end;
        errno = 0;
        long long dim = strtoll(p, &end, 10);
        if (end == p || errno || dim < 0 || npy->type.rank == MOT_MAX_RANK ||
            (dim && __builtin_mul_overflow(elements, dim, &elements)))
            return refuse(npy, "has a bad shape, or more than 8 dims");
        npy->type.dims[npy->type.rank++] = dim;
        p = end;
    }
}

static MotStatus parse_header(Npy *npy)
{
    const char *descr = find_key(npy, "'descr'"), *order = find_key(npy, "'fortran_order'");
    if (!descr || !order || strlen(descr) < 5 || (*descr != '\'' && *descr != '"'))
        return refuse(npy, "has no plain dtype in its header (structured arrays are not read)");
    npy->order = descr[1];
    memcpy(npy->kind, descr + 2, 2);
    npy->is_fortran = strncmp(order, "True", 4) == 0;
    return parse_shape(npy);
}

/* Element e in C order lies at this position of a Fortran-ordered array. */
static int64_t fortran_position(const MotType *type, int64_t e)
{
    int64_t index[MOT_MAX_RANK], at = 0;
    for (int d = type->rank; d-- > 0; e /= type->dims[d])
        index[d] = e % type->dims[d];
    for (int d = type->rank; d-- > 0;)
        at = at * type->dims[d] + index[d];
    return at;
}

/* Elements in C order and little-endian, `bytes` each. */
static const char *arrange(Npy *npy, int64_t n, int bytes)
{
    bool swap = npy->order == '>' && bytes > 1;
    if (!swap && (!npy->is_fortran || npy->type.rank < 2) &&
        (uintptr_t)npy->data % (size_t)bytes == 0)
        return npy->data;
    char *out = mot_arena_alloc_array(&npy->ctx->arena, (size_t)n, (size_t)bytes);
    for (int64_t e = 0; e < n; e++) {
        const char *from =
            npy->data + (npy->is_fortran ? fortran_position(&npy->type, e) : e) * bytes;
        for (int b = 0; b < bytes; b++)
            out[e * bytes + b] = from[swap ? bytes - 1 - b : b];
    }
    return out;
}

static MotStatus widen(Npy *npy, const char *data, int64_t n, int bytes, bool is_signed,
                       MotTensor *out)
{
    int64_t *wide = mot_arena_array(&npy->ctx->arena, int64_t, n);
    for (int64_t e = 0; e < n; e++) {
        uint64_t bits = 0;
        memcpy(&bits, data + e * bytes, (size_t)bytes);
        int shift = 64 - 8 * bytes;
        wide[e] = is_signed ? (int64_t)(bits << shift) >> shift : (int64_t)bits;
        if (!is_signed && wide[e] < 0)
            return refuse(npy, "holds a uint64 above 2^63 - 1");
    }
    npy->type.dtype = MOT_I64;
    *out = (MotTensor){npy->type, wide};
    return MOT_OK;
}

static MotStatus take_data(Npy *npy, int bytes, int64_t *out_n)
{
    *out_n = mot_type_elements(&npy->type);
    int64_t want;
    if (__builtin_mul_overflow(*out_n, (int64_t)bytes, &want) || (uint64_t)want > npy->data_bytes)
        return refuse(npy, "is shorter than its shape says");
    return MOT_OK;
}

MotStatus mot_npy_read(MotCtx *ctx, const char *path, MotTensor *out_tensor)
{
    const MotFileMap *file;
    Npy npy = {.ctx = ctx, .loc = {path, NULL}};
    int64_t n;
    MOT_TRY(mot_file_map(ctx, path, &file));
    MOT_TRY(split_file(&npy, file));
    MOT_TRY(parse_header(&npy));
    for (size_t i = 0; i < sizeof descrs / sizeof descrs[0]; i++)
        if (strncmp(npy.kind, descrs[i].descr, 2) == 0) {
            npy.type.dtype = descrs[i].dtype;
            MOT_TRY(take_data(&npy, mot_dtype_bytes(npy.type.dtype), &n));
            const char *data = arrange(&npy, n, mot_dtype_bytes(npy.type.dtype));
            *out_tensor = (MotTensor){npy.type, (void *)(uintptr_t)data};
            return MOT_OK;
        }
    for (size_t i = 0; i < sizeof widened / sizeof widened[0]; i++)
        if (strncmp(npy.kind, widened[i].descr, 2) == 0) {
            MOT_TRY(take_data(&npy, widened[i].bytes, &n));
            const char *data = arrange(&npy, n, widened[i].bytes);
            return widen(&npy, data, n, widened[i].bytes, widened[i].is_signed, out_tensor);
        }
    return mot_fail(ctx, MOT_ERR_DATA, npy.loc, "has dtype %c%.2s, which is not read", npy.order,
                    npy.kind);
}

MotStatus mot_npy_write(MotCtx *ctx, const char *path, const MotTensor *tensor)
{
    const char *descr = NULL;
    for (size_t i = 0; i < sizeof descrs / sizeof descrs[0]; i++)
        if (descrs[i].dtype == tensor->type.dtype)
            descr = descrs[i].descr;
    if (!descr)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, (MotLoc){path, NULL}, ".npy has no dtype %s",
                        mot_dtype_name(tensor->type.dtype));
    MotText text;
    mot_text_init(&text, &ctx->arena);
    mot_text_printf(&text, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                    descr[1] == '1' ? '|' : '<', descr);
    for (int d = 0; d < tensor->type.rank; d++)
        mot_text_printf(&text, "%lld,%s", (long long)tensor->type.dims[d],
                        d + 1 < tensor->type.rank ? " " : "");
    mot_text_puts(&text, "), }");
    while ((10 + text.n + 1) % 64)
        mot_text_puts(&text, " ");
    mot_text_puts(&text, "\n");
    char head[10] = "\x93NUMPY\x01";
    head[8] = (char)(text.n & 255);
    head[9] = (char)(text.n >> 8);
    MotWriter w;
    MOT_TRY(mot_writer_open(ctx, path, &w));
    MOT_TRY(mot_writer_add(&w, head, sizeof head));
    MOT_TRY(mot_writer_add(&w, text.data, text.n));
    MOT_TRY(mot_writer_add(&w, tensor->data, (size_t)mot_type_bytes(&tensor->type)));
    return mot_writer_close(&w);
}
