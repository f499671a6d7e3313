/* A small writer of protobuf wire bytes for tests: messages are built inside out. */
#ifndef MOTLEY_TESTS_UNIT_ONNX_BYTES_H
#define MOTLEY_TESTS_UNIT_ONNX_BYTES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct Bytes {
    uint8_t data[1 << 14];
    size_t n;
} Bytes;

static inline void put_byte(Bytes *b, unsigned byte)
{
    if (b->n == sizeof b->data)
        abort();
    b->data[b->n++] = (uint8_t)byte;
}

static inline void put_raw(Bytes *b, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_byte(b, ((const uint8_t *)bytes)[i]);
}

static inline void put_varint(Bytes *b, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_byte(b, (unsigned)(value & 0x7f) | 0x80);
    put_byte(b, (unsigned)value);
}

static inline void put_int(Bytes *b, unsigned field, int64_t value)
{
    put_varint(b, field << 3);
    put_varint(b, (uint64_t)value);
}

static inline void put_data(Bytes *b, unsigned field, const void *bytes, size_t n)
{
    put_varint(b, field << 3 | 2);
    put_varint(b, n);
    put_raw(b, bytes, n);
}

static inline void put_text(Bytes *b, unsigned field, const char *text)
{
    put_data(b, field, text, strlen(text));
}

static inline void put_message(Bytes *b, unsigned field, const Bytes *message)
{
    put_data(b, field, message->data, message->n);
}

/* A tensor without data. */
static inline Bytes make_tensor(const char *name, int data_type, const int64_t *dims, int rank)
{
    Bytes t = {.n = 0};
    for (int i = 0; i < rank; i++)
        put_int(&t, 1, dims[i]);
    put_int(&t, 2, data_type);
    if (name)
        put_text(&t, 8, name);
    return t;
}

static inline Bytes make_node(const char *op, const char *input, const char *output)
{
    Bytes n = {.n = 0};
    put_text(&n, 1, input);
    put_text(&n, 2, output);
    put_text(&n, 4, op);
    return n;
}

static inline void put_value(Bytes *graph, unsigned field, const char *name)
{
    Bytes v = {.n = 0};
    put_text(&v, 1, name);
    put_message(graph, field, &v);
}

static inline Bytes make_model(const Bytes *graph)
{
    Bytes m = {.n = 0}, opset = {.n = 0};
    put_int(&m, 1, 8);
    put_int(&opset, 2, 17);
    put_message(&m, 8, &opset);
    put_message(&m, 7, graph);
    return m;
}

#endif
