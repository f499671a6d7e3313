/*
 * The wire pre-scan: walks the bytes of a protobuf message iteratively and accepts only what
 * protobuf-c then reads safely, cheaply and completely. It stands between every ONNX file and the
 * parser.
 *
 * Accepted means: every tag, varint and length lies inside its message; wire types are those of the
 * schema; nesting, counts, names and the estimated size of the parsed structure keep the limits; no
 * singular field occurs twice (protobuf would merge them, at quadratic cost); no name holds a NUL
 * or invalid UTF-8. An error names the byte and the field:
 *
 *     m.onnx: byte 10234, graph.node[57].attribute[0].t: length 900 exceeds the 12 bytes left
 *
 * Large raw_data is not copied. Every raw_data of MOT_WIRE_TICKET_BYTES or more is replaced, in the
 * copy of the message that protobuf-c gets, by a ticket: its offset and length in the file, as two
 * 64-bit numbers. A shorter one stays as it is, so that the two cannot be confused. mot_wire_raw
 * turns either back into bytes; nothing else may read raw_data.
 *
 * Cost: one pass, linear in the bytes outside of raw_data.
 */
#ifndef MOTLEY_FRONTEND_WIRE_H
#define MOTLEY_FRONTEND_WIRE_H

#include "support/context.h"

/*
 * X(name, default, the most it can be raised to, what it bounds). The names are those of --limit
 * NAME=N.
 */
#define MOT_ONNX_LIMIT_LIST(X)                                                                     \
    X(depth, 100, 1000, "messages nested in each other")                                           \
    X(nodes, 2000000, UINT32_MAX / 2, "nodes in all graphs")                                       \
    X(name, 4096, INT32_MAX, "bytes in a name")                                                    \
    X(rank, 64, 1000000, "dims of a tensor")                                                       \
    X(elements, (uint64_t)1 << 40, (uint64_t)1 << 60, "elements of a tensor")                      \
    X(unknown, 10000, UINT32_MAX, "fields unknown to this version")                                \
    X(memory, 192 << 20, SIZE_MAX / 4,                                                             \
      "bytes of parsed structure, or 4 x the file if that is more")                                \
    X(message, INT32_MAX, SIZE_MAX / 4, "bytes in one message")                                    \
    X(expansion, 5000000, UINT32_MAX, "nodes once functions are expanded")

typedef struct MotOnnxLimits {
#define X(name, def, most, text) uint64_t name;
    MOT_ONNX_LIMIT_LIST(X)
#undef X
} MotOnnxLimits;

MotOnnxLimits mot_onnx_limits_default(void);
/*
 * Applies "nodes=4000000". MOT_ERR_USAGE if there is no such limit or the number is none, or beyond
 * what is possible.
 */
MOT_CHECKED MotStatus mot_onnx_limits_set(MotCtx *ctx, MotOnnxLimits *limits, const char *spec);
/*
 * Records "WHAT; the limit is nodes=2000000" with the flag that raises it; returns MOT_ERR_LIMIT.
 */
MOT_CHECKED MotStatus mot_onnx_limit_fail(MotCtx *ctx, MotLoc loc, const char *limit,
                                          uint64_t value, const char *what);

typedef enum MotWireRoot { MOT_WIRE_MODEL, MOT_WIRE_TENSOR } MotWireRoot;

enum { MOT_WIRE_TICKET_BYTES = 16 };

/*
 * What is scanned, and the message that is fit for protobuf-c: `message` is `bytes` itself if
 * nothing was replaced.
 */
typedef struct MotWire {
    const char *file; /* for messages */
    const uint8_t *bytes;
    size_t n;
    const uint8_t *message;
    size_t message_bytes;
    uint8_t *copy; /* an anonymous mapping of n bytes, or NULL */
} MotWire;

/*
 * Scans wire->bytes as a message of kind `root` and sets wire->message. MOT_ERR_MODEL for malformed
 * bytes (files of other formats are recognised by name), MOT_ERR_LIMIT beyond a limit. Unknown
 * fields are counted in one warning.
 */
MOT_CHECKED MotStatus mot_wire_scan(MotCtx *ctx, MotWire *wire, MotWireRoot root,
                                    const MotOnnxLimits *limits);
/* Gives the copy back; message becomes NULL. May be repeated. */
void mot_wire_deinit(MotWire *wire);

/* The bytes that a raw_data field of the parsed message stands for. They are not aligned. */
const uint8_t *mot_wire_raw(const MotWire *wire, const uint8_t *field, size_t field_bytes,
                            size_t *out_bytes);

/* What a file is that is not ONNX, and what to do about it. */
typedef struct MotForeign {
    size_t at;
    const char *bytes;
    size_t n;
    const char *what, *hint;
} MotForeign;

/* NULL if the bytes look like none of the known other formats (foreign.c). */
const MotForeign *mot_foreign_find(const uint8_t *bytes, size_t n);

#endif
