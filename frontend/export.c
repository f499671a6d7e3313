/*
 * Splices new tensors into the bytes of a model: the file is cut into pieces at the fields of the
 * model and of its graph, a replaced initializer becomes its old fields without the data plus new
 * raw_data, and only the lengths around it change. Needs: the bytes were accepted by the wire scan,
 * so that tags and lengths can be trusted. Cost: one pass over the fields of two levels; no tensor
 * is copied.
 */
#include "frontend/export.h"

#include "support/writer.h"

#include <string.h>

/* Field numbers of the ONNX schema. */
enum { MODEL_GRAPH = 7, GRAPH_INITIALIZER = 5, TENSOR_RAW_DATA = 9 };
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

typedef struct {
    const void *bytes;
    size_t n;
} Piece;

typedef struct {
    MotVec(Piece) list;
    size_t n; /* bytes of all */
} Pieces;

typedef struct {
    MotCtx *ctx;
    const MotOnnxFile *file;
    const MotExported *tensors; /* by initializer of the file; data is NULL for those that stay */
} Export;

static void add_piece(MotCtx *ctx, Pieces *p, const void *bytes, size_t n)
{
    if (n == 0)
        return;
    mot_vec_push(&ctx->arena, &p->list, (Piece){bytes, n});
    p->n += n;
}

static void add_pieces(MotCtx *ctx, Pieces *p, const Pieces *more)
{
    for (uint32_t i = 0; i < more->list.n; i++)
        add_piece(ctx, p, more->list.data[i].bytes, more->list.data[i].n);
}

static size_t write_varint(uint8_t *out, uint64_t value)
{
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        out[n++] = (uint8_t)(value | 0x80);
    out[n++] = (uint8_t)value;
    return n;
}

/* The tag and length before a bytes field. */
static void add_header(MotCtx *ctx, Pieces *p, uint32_t field, size_t n)
{
    uint8_t header[20];
    size_t used = write_varint(header, field << 3 | WIRE_BYTES);
    used += write_varint(header + used, n);
    add_piece(ctx, p, mot_arena_copy(&ctx->arena, header, used), used);
}

/* One field of a scanned message: all of its bytes, and the content of a bytes field. */
typedef struct {
    uint32_t number;
    const uint8_t *begin, *content, *end;
} Field;

static uint64_t read_varint(const uint8_t **p)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint8_t byte = *(*p)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
}

static Field read_field(const uint8_t *p)
{
    Field f = {.begin = p};
    uint64_t tag = read_varint(&p);
    f.number = (uint32_t)(tag >> 3);
    f.content = p;
    switch (tag & 7) {
    case WIRE_VARINT:
        read_varint(&p);
        break;
    case WIRE_FIXED64:
        p += 8;
        break;
    case WIRE_FIXED32:
        p += 4;
        break;
    default: {
        uint64_t n = read_varint(&p);
        f.content = p;
        p += n;
    }
    }
    f.end = p;
    return f;
}

/*
 * Fields of a tensor that say where its elements are: typed data, raw data, external data,
 * location.
 */
static bool is_data_field(uint32_t number)
{
    return (number >= 4 && number <= 7) || (number >= 9 && number <= 11) || number == 13 ||
           number == 14;
}

/* A replaced initializer, with tag and length. */
static void add_tensor(MotCtx *ctx, Pieces *out, const Field *old, const MotTensor *tensor)
{
    Pieces body = {0};
    for (const uint8_t *p = old->content; p < old->end;) {
        Field f = read_field(p);
        if (!is_data_field(f.number))
            add_piece(ctx, &body, f.begin, (size_t)(f.end - f.begin));
        p = f.end;
    }
    size_t bytes = (size_t)mot_type_bytes(&tensor->type);
    add_header(ctx, &body, TENSOR_RAW_DATA, bytes);
    add_piece(ctx, &body, tensor->data, bytes);
    add_header(ctx, out, GRAPH_INITIALIZER, body.n);
    add_pieces(ctx, out, &body);
}

static void add_graph(const Export *e, Pieces *out, const Field *old)
{
    Pieces body = {0};
    size_t next = 0;
    for (const uint8_t *p = old->content; p < old->end;) {
        Field f = read_field(p);
        const MotTensor *tensor = f.number == GRAPH_INITIALIZER ? &e->tensors[next++].tensor : NULL;
        if (tensor && tensor->data)
            add_tensor(e->ctx, &body, &f, tensor);
        else
            add_piece(e->ctx, &body, f.begin, (size_t)(f.end - f.begin));
        p = f.end;
    }
    add_header(e->ctx, out, MODEL_GRAPH, body.n);
    add_pieces(e->ctx, out, &body);
}

static Pieces splice_model(const Export *e)
{
    Pieces out = {0};
    const uint8_t *end = e->file->wire.bytes + e->file->wire.n;
    for (const uint8_t *p = e->file->wire.bytes; p < end;) {
        Field f = read_field(p);
        if (f.number == MODEL_GRAPH)
            add_graph(e, &out, &f);
        else
            add_piece(e->ctx, &out, f.begin, (size_t)(f.end - f.begin));
        p = f.end;
    }
    return out;
}

/* ---- What is replaced ---- */

static bool has_dims(const Onnx__TensorProto *proto, const MotType *type)
{
    if (mot_dtype_from_onnx(proto->data_type) != type->dtype || proto->n_dims != (size_t)type->rank)
        return false;
    return type->rank == 0 ||
           memcmp(proto->dims, type->dims, proto->n_dims * sizeof *proto->dims) == 0;
}

static MotStatus match_tensor(Export *e, MotExported *by_initializer, const MotExported *tensor)
{
    const Onnx__GraphProto *graph = e->file->model->graph;
    MotArena *arena = &e->ctx->arena;
    MotLoc loc = {e->file->path, NULL};
    for (size_t i = 0; i < graph->n_initializer; i++) {
        if (strcmp(graph->initializer[i]->name, tensor->name) != 0)
            continue;
        if (!has_dims(graph->initializer[i], &tensor->tensor.type))
            return mot_fail(
                e->ctx, MOT_ERR_MISMATCH, loc, "initializer %s is not %s[%s]",
                mot_quote(arena, tensor->name), mot_dtype_name(tensor->tensor.type.dtype),
                mot_shape_text(arena, tensor->tensor.type.dims, tensor->tensor.type.rank));
        by_initializer[i] = *tensor;
        return MOT_OK;
    }
    return mot_fail(e->ctx, MOT_ERR_MISMATCH, loc, "there is no initializer %s",
                    mot_quote(arena, tensor->name));
}

static bool is_external(const Onnx__TensorProto *proto)
{
    return proto && proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

/* External initializers are read in; elsewhere in the model external data would point nowhere. */
static MotStatus inline_external(Export *e, MotExported *by_initializer)
{
    const Onnx__GraphProto *graph = e->file->model->graph;
    MotLoc loc = {e->file->path, NULL};
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (is_external(graph->initializer[i]) && !by_initializer[i].tensor.data)
            MOT_TRY(mot_onnx_tensor(e->ctx, e->file, graph->initializer[i], loc,
                                    &by_initializer[i].tensor));
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_attribute; k++)
            if (is_external(graph->node[i]->attribute[k]->t))
                return mot_fail(
                    e->ctx, MOT_ERR_UNSUPPORTED, loc,
                    "node %zu keeps a constant in an external file, which cannot be exported yet",
                    i);
    return MOT_OK;
}

/* ---- The file ---- */

static MotStatus write_pieces(MotCtx *ctx, const Pieces *p, const char *path)
{
    MotWriter w;
    MOT_TRY(mot_writer_open(ctx, path, &w));
    for (uint32_t i = 0; i < p->list.n; i++)
        MOT_TRY(mot_writer_add(&w, p->list.data[i].bytes, p->list.data[i].n));
    return mot_writer_close(&w);
}

MotStatus mot_export(MotCtx *ctx, const MotOnnxFile *file, const MotExported *tensors, uint32_t n,
                     const char *path)
{
    MotExported *by_initializer =
        mot_arena_array(&ctx->arena, MotExported, file->model->graph->n_initializer + 1);
    Export e = {.ctx = ctx, .file = file, .tensors = by_initializer};
    MOT_TRY(mot_onnx_check_unchanged(ctx, file));
    for (uint32_t i = 0; i < n; i++)
        MOT_TRY(match_tensor(&e, by_initializer, &tensors[i]));
    MOT_TRY(inline_external(&e, by_initializer));
    Pieces pieces = splice_model(&e);
    if (pieces.n > INT32_MAX)
        return mot_fail(ctx, MOT_ERR_LIMIT, (MotLoc){file->path, NULL},
                        "the exported model would have %s; an ONNX file ends at 2 GiB",
                        mot_bytes_text(&ctx->arena, (double)pieces.n));
    return write_pieces(ctx, &pieces, path);
}
