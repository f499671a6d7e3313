/*
 * The pre-scan: an explicit stack of messages over the table in wire_schema.h. Allocates nothing
 * per field.
 */
#include "frontend/wire.h"

#include "frontend/wire_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "raw_data is used as it lies in the file");

enum { WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_START_GROUP, WIRE_END_GROUP, WIRE_FIXED32 };

/*
 * What protobuf-c needs, estimated from above: for each field its note of where it is (32 bytes, in
 * slabs that double), for each heap block its header and rounding.
 */
enum { FIELD_OVERHEAD = 64, BLOCK_OVERHEAD = 32 };

/* A message that is being read. */
typedef struct Frame {
    Kind kind;
    size_t end;       /* in the input */
    size_t length_at; /* in the copy: where its length stands, length_bytes long */
    size_t length_bytes, removed;
    uint32_t seen;  /* singular fields met, a bit each; bit 0: a member of the oneof */
    uint32_t field; /* the number of the one being read */
    uint32_t counts[MAX_FIELD + 1]; /* of repeated fields, so far */
} Frame;

typedef struct Scan {
    MotCtx *ctx;
    MotWire *wire;
    const MotOnnxLimits *limits;
    const uint8_t *bytes;
    size_t pos;
    size_t copied; /* the input up to here is in the copy, which has copy_bytes */
    size_t copy_bytes;
    uint64_t nodes, unknown, memory, memory_limit;
    const char *first_unknown;
    Frame *frames;
    size_t depth;
} Scan;

static Frame *top_frame(Scan *s)
{
    return &s->frames[s->depth - 1];
}

/* ---- Errors ---- */

/* "graph.node[57].attribute[0].t" from the stack, or "" at the top. */
static const char *print_path(const Scan *s)
{
    MotText text;
    mot_text_init(&text, &s->ctx->arena);
    for (size_t i = 0; i < s->depth; i++) {
        const Frame *f = &s->frames[i];
        if (f->field == 0 || f->field > MAX_FIELD || !schema[f->kind][f->field].name)
            break;
        const Field *field = &schema[f->kind][f->field];
        mot_text_printf(&text, "%s%s", i ? "." : "", field->name);
        if (field->flags & FIELD_REPEATED)
            mot_text_printf(&text, "[%u]", f->counts[f->field] ? f->counts[f->field] - 1 : 0);
    }
    return mot_text_get(&text);
}

static MotLoc place_at(const Scan *s, size_t at)
{
    const char *path = print_path(s);
    return (MotLoc){s->wire->file,
                    mot_arena_printf(&s->ctx->arena, "byte %zu%s%s", at, *path ? ", " : "", path)};
}

#define FAIL(s, at, ...) mot_fail((s)->ctx, MOT_ERR_MODEL, place_at((s), (at)), __VA_ARGS__)

static MotStatus exceed(Scan *s, const char *limit, uint64_t value, const char *what)
{
    return mot_onnx_limit_fail(s->ctx, place_at(s, s->pos), limit, value, what);
}

static MotStatus charge(Scan *s, uint64_t bytes)
{
    s->memory += bytes;
    if (s->memory <= s->memory_limit)
        return MOT_OK;
    return exceed(s, "memory", s->memory_limit, "too much structure for its size in the file");
}

/* ---- Numbers ---- */

/* Reads a varint of at most `longest` bytes (5 or 10) that ends before `end`. */
static MotStatus read_varint(Scan *s, size_t end, size_t longest, const char *what, uint64_t *out)
{
    uint64_t value = 0;
    size_t start = s->pos;
    for (size_t i = 0; i < longest; i++) {
        if (s->pos == end)
            return FAIL(s, start, "the bytes end inside a %s", what);
        uint8_t byte = s->bytes[s->pos++];
        if (i == 9 && (byte & 0x7f) > 1)
            return FAIL(s, start, "a %s has more than 64 bits", what);
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *out = value;
            return MOT_OK;
        }
    }
    return FAIL(s, start, "a %s is longer than %zu bytes", what, longest);
}

/* An int32 is written sign-extended to 64 bits; bit patterns of 32 bits are let pass. */
static MotStatus read_integer(Scan *s, size_t end, Form form)
{
    uint64_t value;
    size_t start = s->pos;
    MOT_TRY(read_varint(s, end, 10, "varint", &value));
    if (form == FORM_INT32 && value > UINT32_MAX && value < (uint64_t)INT32_MIN)
        return FAIL(s, start, "%lld does not fit 32 bits", (long long)value);
    return MOT_OK;
}

static MotStatus read_length(Scan *s, size_t end, size_t *out)
{
    uint64_t length;
    size_t start = s->pos;
    MOT_TRY(read_varint(s, end, 5, "length", &length));
    if (length > end - s->pos) {
        (void)FAIL(s, start, "length %llu exceeds the %zu bytes left", (unsigned long long)length,
                   end - s->pos);
        if (end == s->wire->n)
            mot_hint(s->ctx, "the file is cut off; was it downloaded or copied completely?");
        return s->ctx->status;
    }
    *out = (size_t)length;
    return MOT_OK;
}

static MotStatus skip_fixed(Scan *s, size_t end, size_t width)
{
    if (end - s->pos < width)
        return FAIL(s, s->pos, "the bytes end inside a number of %zu bytes", width);
    s->pos += width;
    return MOT_OK;
}

/* ---- The copy ---- */

static MotStatus make_copy(Scan *s)
{
    void *p = mot_fault(s->ctx->faults, MOT_FAULT_map)
                  ? MAP_FAILED
                  : mmap(NULL, s->wire->n, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        (void)mot_fail(s->ctx, MOT_ERR_MEMORY, (MotLoc){s->wire->file, NULL},
                       "no address space for a copy of the file");
        return MOT_ERR_MEMORY;
    }
    s->wire->copy = p;
    return MOT_OK;
}

static void copy_until(Scan *s, size_t pos)
{
    memcpy(s->wire->copy + s->copy_bytes, s->bytes + s->copied, pos - s->copied);
    s->copy_bytes += pos - s->copied;
    s->copied = pos;
}

/*
 * Replaces the `length` bytes at the read position, and their length at `length_at`, by a ticket.
 */
static MotStatus put_ticket(Scan *s, Frame *f, size_t length_at, size_t length)
{
    if (!s->wire->copy)
        MOT_TRY(make_copy(s));
    copy_until(s, length_at);
    uint64_t ticket[2] = {s->pos, length};
    _Static_assert(sizeof ticket == MOT_WIRE_TICKET_BYTES, "two numbers");
    s->wire->copy[s->copy_bytes++] = MOT_WIRE_TICKET_BYTES;
    memcpy(s->wire->copy + s->copy_bytes, ticket, sizeof ticket);
    s->copy_bytes += sizeof ticket;
    s->copied = s->pos + length;
    f->removed += s->copied - length_at - 1 - sizeof ticket;
    return MOT_OK;
}

/* Writes the length of a message that lost bytes over its old one, padded to the same width. */
static void patch_length(Scan *s, const Frame *f, size_t length)
{
    for (size_t i = 0; i < f->length_bytes; i++) {
        uint8_t more = i + 1 < f->length_bytes ? 0x80 : 0;
        s->wire->copy[f->length_at + i] = (uint8_t)((length >> (7 * i)) & 0x7f) | more;
    }
}

/* ---- Messages ---- */

static MotStatus open_message(Scan *s, Kind kind, size_t length_at, size_t length)
{
    if (s->depth == s->limits->depth)
        return exceed(s, "depth", s->limits->depth, "messages are nested too deeply");
    if (length > s->limits->message)
        return exceed(s, "message", s->limits->message, "the message is too large");
    if (kind == KIND_NODE && ++s->nodes > s->limits->nodes)
        return exceed(s, "nodes", s->limits->nodes, "too many nodes");
    MOT_TRY(charge(s, descriptors[kind]->sizeof_message + sizeof(void *) + BLOCK_OVERHEAD));
    s->frames[s->depth++] = (Frame){.kind = kind,
                                    .end = s->pos + length,
                                    .length_at = s->copy_bytes + (length_at - s->copied),
                                    .length_bytes = s->pos - length_at};
    return MOT_OK;
}

static void close_message(Scan *s)
{
    const Frame *f = &s->frames[--s->depth];
    if (f->removed == 0 || s->depth == 0)
        return;
    size_t in_copy = s->copy_bytes + (f->end - s->copied);
    patch_length(s, f, in_copy - f->length_at - f->length_bytes);
    top_frame(s)->removed += f->removed;
}

/* ---- Fields ---- */

static MotStatus check_text(Scan *s, const Field *field, size_t length)
{
    const char *text = (const char *)s->bytes + s->pos;
    if (field->form != FORM_TEXT || length == 0)
        return MOT_OK;
    if (!(field->flags & FIELD_LONG) && length > s->limits->name)
        return exceed(s, "name", s->limits->name, "the name is too long");
    const char *nul = memchr(text, 0, length);
    if (nul)
        return FAIL(s, s->pos + (size_t)(nul - text), "the text holds a NUL byte");
    if (!mot_utf8_is_valid(text, length))
        return FAIL(s, s->pos, "the text is not valid UTF-8");
    return MOT_OK;
}

static MotStatus count_element(Scan *s, Frame *f, const Field *field)
{
    uint32_t n = ++f->counts[f->field];
    if (n > UINT32_MAX / 2)
        return FAIL(s, s->pos, "too many elements");
    if ((field->flags & FIELD_DIM) && n > s->limits->rank)
        return exceed(s, "rank", s->limits->rank, "too many dims");
    return MOT_OK;
}

static MotStatus read_packed(Scan *s, Frame *f, const Field *field, size_t length)
{
    size_t end = s->pos + length;
    MOT_TRY(charge(s, BLOCK_OVERHEAD));
    if (field->form == FORM_FLOAT || field->form == FORM_DOUBLE) {
        size_t width = field->form == FORM_FLOAT ? 4 : 8;
        if (length % width)
            return FAIL(s, s->pos, "%zu bytes are not a whole number of %zu-byte numbers", length,
                        width);
        s->pos = end;
        return charge(s, length);
    }
    uint64_t n = 0;
    for (; s->pos < end; n++) {
        MOT_TRY(count_element(s, f, field));
        MOT_TRY(read_integer(s, end, field->form));
    }
    return charge(s, n * (field->form == FORM_INT32 ? 4 : 8));
}

static MotStatus read_delimited(Scan *s, Frame *f, const Field *field)
{
    size_t length_at = s->pos, length = 0;
    MOT_TRY(read_length(s, f->end, &length));
    if (field->form < FORM_TEXT)
        return read_packed(s, f, field, length);
    if (field->flags & FIELD_REPEATED)
        MOT_TRY(count_element(s, f, field));
    if (field->form == FORM_MESSAGE)
        return open_message(s, field->child, length_at, length);
    MOT_TRY(check_text(s, field, length));
    bool is_replaced = (field->flags & FIELD_RAW) && length >= MOT_WIRE_TICKET_BYTES;
    if (is_replaced)
        MOT_TRY(put_ticket(s, f, length_at, length));
    MOT_TRY(charge(s, (is_replaced ? MOT_WIRE_TICKET_BYTES : length) + BLOCK_OVERHEAD + 16));
    s->pos += length;
    return MOT_OK;
}

/* The wire type of a single value, by form. */
static const uint8_t wire_types[] = {
    [FORM_INT64] = WIRE_VARINT,   [FORM_INT32] = WIRE_VARINT,  [FORM_FLOAT] = WIRE_FIXED32,
    [FORM_DOUBLE] = WIRE_FIXED64, [FORM_TEXT] = WIRE_BYTES,    [FORM_DOC] = WIRE_BYTES,
    [FORM_BYTES] = WIRE_BYTES,    [FORM_MESSAGE] = WIRE_BYTES,
};

static MotStatus read_known(Scan *s, Frame *f, const Field *field, unsigned wire_type, size_t start)
{
    bool is_packed =
        wire_type == WIRE_BYTES && field->form < FORM_TEXT && (field->flags & FIELD_REPEATED);
    if (wire_type != wire_types[field->form] && !is_packed)
        return FAIL(s, start, "wire type %u where the schema has %u", wire_type,
                    wire_types[field->form]);
    if (!(field->flags & FIELD_REPEATED)) {
        uint32_t bit = field->flags & FIELD_ONEOF ? 1 : (uint32_t)1 << f->field;
        if (f->seen & bit)
            return FAIL(s, start, "given a second time%s", bit == 1 ? ", or beside another" : "");
        f->seen |= bit;
    }
    if (wire_type == WIRE_BYTES)
        return read_delimited(s, f, field);
    if (field->flags & FIELD_REPEATED)
        MOT_TRY(count_element(s, f, field));
    MOT_TRY(charge(s, 8));
    if (wire_type == WIRE_VARINT)
        return read_integer(s, f->end, field->form);
    return skip_fixed(s, f->end, wire_type == WIRE_FIXED32 ? 4 : 8);
}

static MotStatus skip_unknown(Scan *s, Frame *f, uint64_t number, unsigned wire_type, size_t start)
{
    size_t length = 0;
    uint64_t ignored;
    if (++s->unknown > s->limits->unknown)
        return exceed(s, "unknown", s->limits->unknown, "too many fields are unknown");
    if (!s->first_unknown) {
        MotLoc loc = place_at(s, start);
        s->first_unknown = mot_arena_printf(&s->ctx->arena, "%s, number %llu", loc.place,
                                            (unsigned long long)number);
    }
    switch (wire_type) {
    case WIRE_VARINT:
        return read_varint(s, f->end, 10, "varint", &ignored);
    case WIRE_FIXED32:
        return skip_fixed(s, f->end, 4);
    case WIRE_FIXED64:
        return skip_fixed(s, f->end, 8);
    default:
        MOT_TRY(read_length(s, f->end, &length));
        s->pos += length;
        return charge(s, length + BLOCK_OVERHEAD);
    }
}

static MotStatus read_field(Scan *s)
{
    Frame *f = top_frame(s);
    size_t start = s->pos;
    uint64_t tag = 0;
    f->field = 0;
    MOT_TRY(read_varint(s, f->end, 5, "tag", &tag));
    unsigned wire_type = tag & 7;
    uint64_t number = tag >> 3;
    if (number == 0 || number > (1 << 29) - 1)
        return FAIL(s, start, "field number %llu is impossible", (unsigned long long)number);
    if (wire_type == WIRE_START_GROUP || wire_type == WIRE_END_GROUP || wire_type > WIRE_FIXED32)
        return FAIL(s, start, "field %llu has wire type %u, which ONNX does not use",
                    (unsigned long long)number, wire_type);
    MOT_TRY(charge(s, FIELD_OVERHEAD));
    if (number > MAX_FIELD || !schema[f->kind][number].name)
        return skip_unknown(s, f, number, wire_type, start);
    f->field = (uint32_t)number;
    return read_known(s, f, &schema[f->kind][number], wire_type, start);
}

/* ---- The whole ---- */

static MotStatus check_is_onnx(Scan *s, MotWireRoot root)
{
    MotLoc loc = {s->wire->file, NULL};
    if (s->wire->n == 0)
        return root == MOT_WIRE_TENSOR ? MOT_OK
                                       : mot_fail(s->ctx, MOT_ERR_MODEL, loc, "the file is empty");
    if (s->wire->n > s->limits->message)
        return mot_onnx_limit_fail(s->ctx, loc, "message", s->limits->message,
                                   "the file is too large for one message");
    const MotForeign *foreign =
        root == MOT_WIRE_MODEL ? mot_foreign_find(s->bytes, s->wire->n) : NULL;
    if (!foreign)
        return MOT_OK;
    (void)mot_fail(s->ctx, MOT_ERR_MODEL, loc, "this is %s", foreign->what);
    mot_hint(s->ctx, "%s", foreign->hint);
    return MOT_ERR_MODEL;
}

static MotStatus scan_fields(Scan *s)
{
    while (s->depth) {
        if (s->pos < top_frame(s)->end)
            MOT_TRY(read_field(s));
        else
            close_message(s);
    }
    return MOT_OK;
}

static void set_message(Scan *s)
{
    MotWire *wire = s->wire;
    wire->message = wire->bytes;
    wire->message_bytes = wire->n;
    if (wire->copy) {
        copy_until(s, wire->n);
        wire->message = wire->copy;
        wire->message_bytes = s->copy_bytes;
    }
}

MotStatus mot_wire_scan(MotCtx *ctx, MotWire *wire, MotWireRoot root, const MotOnnxLimits *limits)
{
    uint64_t fourfold = wire->n > UINT64_MAX / 4 ? UINT64_MAX : 4 * (uint64_t)wire->n;
    Scan s = {.ctx = ctx,
              .wire = wire,
              .limits = limits,
              .bytes = wire->bytes,
              .memory_limit = fourfold > limits->memory ? fourfold : limits->memory};
    MOT_TRY(check_is_onnx(&s, root));
    s.frames = mot_arena_array(&ctx->arena, Frame, limits->depth);
    MOT_TRY(open_message(&s, root == MOT_WIRE_MODEL ? KIND_MODEL : KIND_TENSOR, 0, wire->n));
    MOT_TRY(scan_fields(&s));
    if (s.unknown)
        mot_warn(ctx, (MotLoc){wire->file, NULL},
                 "%llu fields are unknown to this version and ignored, the first at %s",
                 (unsigned long long)s.unknown, s.first_unknown);
    set_message(&s);
    return MOT_OK;
}

void mot_wire_deinit(MotWire *wire)
{
    if (wire->copy)
        munmap(wire->copy, wire->n);
    wire->copy = NULL;
    wire->message = NULL;
}

const uint8_t *mot_wire_raw(const MotWire *wire, const uint8_t *field, size_t field_bytes,
                            size_t *out_bytes)
{
    *out_bytes = field_bytes;
    if (field_bytes != MOT_WIRE_TICKET_BYTES)
        return field;
    uint64_t ticket[2];
    memcpy(ticket, field, sizeof ticket);
    *out_bytes = (size_t)ticket[1];
    return wire->bytes + ticket[0];
}

/* ---- Limits ---- */

MotOnnxLimits mot_onnx_limits_default(void)
{
    return (MotOnnxLimits){
#define X(name, def, most, text) .name = def,
        MOT_ONNX_LIMIT_LIST(X)
#undef X
    };
}

typedef struct LimitInfo {
    const char *name;
    size_t at;
    uint64_t most;
} LimitInfo;

static const LimitInfo limit_infos[] = {
#define X(name, def, most, text) {#name, offsetof(MotOnnxLimits, name), most},
    MOT_ONNX_LIMIT_LIST(X)
#undef X
};

MotStatus mot_onnx_limits_set(MotCtx *ctx, MotOnnxLimits *limits, const char *spec)
{
    size_t n = strcspn(spec, "=");
    const char *digits = spec[n] ? spec + n + 1 : "";
    for (size_t i = 0; i < sizeof limit_infos / sizeof limit_infos[0]; i++) {
        const LimitInfo *info = &limit_infos[i];
        if (strlen(info->name) != n || memcmp(info->name, spec, n) != 0)
            continue;
        size_t n_digits = strspn(digits, "0123456789");
        uint64_t value = strtoull(digits, NULL, 10);
        if (n_digits == 0 || digits[n_digits] || n_digits > 19 || value == 0 || value > info->most)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "limit %s: %s is not a number from 1 to %llu", info->name,
                            mot_quote(&ctx->arena, digits), (unsigned long long)info->most);
        memcpy((char *)limits + info->at, &value, sizeof value);
        return MOT_OK;
    }
    (void)mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "there is no limit called %s",
                   mot_quote(&ctx->arena, mot_arena_strndup(&ctx->arena, spec, n)));
#define X(name, def, most, text)                                                                   \
    mot_note(ctx, "%s: %s; %llu", #name, text, (unsigned long long)(def));
    MOT_ONNX_LIMIT_LIST(X)
#undef X
    return MOT_ERR_USAGE;
}

MotStatus mot_onnx_limit_fail(MotCtx *ctx, MotLoc loc, const char *limit, uint64_t value,
                              const char *what)
{
    MotStatus status = mot_fail(ctx, MOT_ERR_LIMIT, loc, "%s; the limit is %s=%llu", what, limit,
                                (unsigned long long)value);
    mot_hint(ctx, "--limit %s=N raises it", limit);
    return status;
}
