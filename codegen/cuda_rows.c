/*
 * CUDA C of rows of which few entries count: a thread is a row. The functions are those of
 * ir/sparse.c, written for a thread: the best entries so far are a list kept in order, not a heap.
 */
#include "codegen/cuda_print.h"

#include "ir/sparse.h"

/* clang-format off */
static const char *const entry_library[] = {
    "__device__ float mot_magnitude(float x) { return x != x ? MOT_INFINITY : fabsf(x); }",
    "",
    "__device__ void mot_top_k(const float *x, int n, int k, int *index, float *value)",
    "{",
    "    int have = 0;",
    "    for (int i = 0; i < n; i++) {",
    "        int at = have;",
    "        while (at > 0 && mot_magnitude(x[i]) > mot_magnitude(x[index[at - 1]]))",
    "            at--;",
    "        if (at == k)",
    "            continue;",
    "        have = have < k ? have + 1 : k;",
    "        for (int j = have - 1; j > at; j--)",
    "            index[j] = index[j - 1];",
    "        index[at] = i;",
    "    }",
    "    for (int i = 1; i < k; i++) {",
    "        const int moved = index[i];",
    "        int at = i;",
    "        for (; at > 0 && index[at - 1] > moved; at--)",
    "            index[at] = index[at - 1];",
    "        index[at] = moved;",
    "    }",
    "    for (int i = 0; i < k; i++)",
    "        value[i] = x[index[i]];",
    "}",
    "",
    "__device__ bool mot_is_ascending(const int *index, int k, int n)",
    "{",
    "    int last = -1;",
    "    for (int i = 0; i < k; last = index[i++])",
    "        if (index[i] <= last || index[i] >= n)",
    "            return false;",
    "    return true;",
    "}",
    "",
    "__device__ bool mot_mean(const int *index, const float *value, int n, int k, int parts, long long stride, float *y)",
    "{",
    "    int at[256];",
    "    for (int i = 0; i < n; i++)",
    "        y[i] = 0;",
    "    for (int p = 0; p < parts; p++) {",
    "        at[p] = 0;",
    "        if (!mot_is_ascending(index + p * stride, k, n))",
    "            return false;",
    "    }",
    "    for (;;) {",
    "        int next = n;",
    "        float sum = 0, hits = 0;",
    "        for (int p = 0; p < parts; p++)",
    "            if (at[p] < k && index[p * stride + at[p]] < next)",
    "                next = index[p * stride + at[p]];",
    "        if (next == n)",
    "            return true;",
    "        for (int p = 0; p < parts; p++) {",
    "            const long long entry = p * stride + at[p];",
    "            if (at[p] == k || index[entry] != next)",
    "                continue;",
    "            sum += value[entry];",
    "            hits++;",
    "            at[p]++;",
    "        }",
    "        y[next] = sum / hits;",
    "    }",
    "}",
    NULL,
};

static const char *const message_library[] = {
    "__device__ void mot_put_bits(unsigned char *bytes, long long *at, unsigned value, int n)",
    "{",
    "    for (int i = 0; i < n; i++, (*at)++)",
    "        bytes[*at >> 3] |= (value >> i & 1) << (*at & 7);",
    "}",
    "",
    "__device__ unsigned mot_get_bits(const unsigned char *bytes, long long *at, int n)",
    "{",
    "    unsigned value = 0;",
    "    for (int i = 0; i < n; i++, (*at)++)",
    "        value |= (unsigned)(bytes[*at >> 3] >> (*at & 7) & 1) << i;",
    "    return value;",
    "}",
    "",
    "/* wire: f32, bf16, int8, sign. */",
    "__device__ unsigned mot_encode(int wire, float x, float scale)",
    "{",
    "    const unsigned bits = (unsigned)__float_as_int(x);",
    "    const float level = scale > 0 ? x / scale * 127 : 0;",
    "    return wire == 0 ? bits",
    "         : wire == 1 ? x != x ? 0x7fc0u : (bits + 0x7fff + (bits >> 16 & 1)) >> 16",
    "         : wire == 2 ? (unsigned)(128 + (level == level ? (int)rintf(level) : 0)) & 0xff",
    "                     : x < 0;",
    "}",
    "",
    "__device__ float mot_decode(int wire, unsigned bits, float scale)",
    "{",
    "    return wire == 0 ? __int_as_float((int)bits)",
    "         : wire == 1 ? __int_as_float((int)(bits << 16))",
    "         : wire == 2 ? ((float)bits - 128) / 127 * scale",
    "                     : bits ? -1.0f : 1.0f;",
    "}",
    "",
    "__device__ int mot_index_bits(int n, int k)",
    "{",
    "    int bits = 0;",
    "    while (k < n && 1ll << bits < n)",
    "        bits++;",
    "    return bits;",
    "}",
    "",
    "__device__ void mot_pack(int wire, int n, int k, const int *index, const float *value, unsigned char *message, int n_bytes)",
    "{",
    "    const int width[] = {32, 16, 8, 1};",
    "    const int n_bits = mot_index_bits(n, k);",
    "    float scale = 0;",
    "    long long at = 0;",
    "    for (int i = 0; i < n_bytes; i++)",
    "        message[i] = 0;",
    "    for (int i = 0; i < k; i++)",
    "        if (!(fabsf(value[i]) <= scale))",
    "            scale = fabsf(value[i]);",
    "    mot_put_bits(message, &at, (unsigned)__float_as_int(scale), wire == 2 ? 32 : 0);",
    "    for (int i = 0; i < k; i++)",
    "        mot_put_bits(message, &at, (unsigned)index[i], n_bits);",
    "    for (int i = 0; i < k; i++)",
    "        mot_put_bits(message, &at, mot_encode(wire, value[i], scale), width[wire]);",
    "}",
    "",
    "__device__ bool mot_unpack(int wire, int n, int k, const unsigned char *message, int *index, float *value)",
    "{",
    "    const int width[] = {32, 16, 8, 1};",
    "    const int n_bits = mot_index_bits(n, k);",
    "    long long at = 0;",
    "    const float scale = __int_as_float((int)mot_get_bits(message, &at, wire == 2 ? 32 : 0));",
    "    bool is_sound = scale >= 0 && scale < MOT_INFINITY;",
    "    for (int i = 0; i < k; i++)",
    "        index[i] = k == n ? i : (int)mot_get_bits(message, &at, n_bits);",
    "    for (int i = 0; i < k; i++) {",
    "        value[i] = mot_decode(wire, mot_get_bits(message, &at, width[wire]), scale);",
    "        is_sound = is_sound && fabsf(value[i]) < MOT_INFINITY;",
    "    }",
    "    return is_sound && mot_is_ascending(index, k, n);",
    "}",
    NULL,
};
/* clang-format on */

/*
 * The call for row `task`; what is wrong with it is told as a bad index: the peer's number, or -1.
 */
static void print_call(MotCuda *c, const char *const *at)
{
    const MotRows *r = &c->nest->rows;
    const char *rows = mot_cuda_extent(c, c->nest->loop[0].extent);
    int n = (int)r->n, k = (int)r->k, parts = (int)r->parts, wire = (int)mot_wire_find(r->wire);
    switch (r->op) {
    case MOT_OP_TOP_K:
        mot_cuda_line(c, "mot_top_k(%s, %d, %d, %s, %s);", at[0], n, k, at[1], at[2]);
        break;
    case MOT_OP_SCATTER_MEAN:
        mot_cuda_line(c, "if (!mot_mean(%s, %s, %d, %d, %d, %s * %d, %s))", at[0], at[1], n, k,
                      parts, rows, k, at[2]);
        mot_cuda_line(c, "    *bad_index = -1;");
        break;
    case MOT_OP_PACK:
        mot_cuda_line(c, "mot_pack(%d, %d, %d, %s, %s, %s, %d);", wire, n, k, at[0], at[1], at[2],
                      (int)r->step[2]);
        break;
    default:
        mot_cuda_line(c, "if (!mot_unpack(%d, %d, %d, %s, %s, %s))", wire, n, k, at[0], at[1],
                      at[2]);
        mot_cuda_line(c, "    *bad_index = task / (%s / %d);", rows, parts);
    }
}

static void print_rows(MotCuda *c)
{
    const MotRows *r = &c->nest->rows;
    const char *at[3];
    for (int i = 0; i < 3; i++)
        at[i] = mot_arena_printf(&c->ctx->arena, "b%u + task * %lldLL", r->buf[i],
                                 (long long)r->step[i]);
    mot_cuda_open_threads(c, mot_cuda_points(c, 0, 1));
    print_call(c, at);
    mot_cuda_close(c);
}

const MotCudaShape mot_cuda_rows = {.library = {entry_library, message_library},
                                    .print = print_rows};
