/*
 * Choosing, joining, packing and checking the entries that count. No allocation: kernels call
 * these.
 */
#include "ir/sparse.h"

#include <math.h>
#include <string.h>

const char *const mot_wire_names[MOT_N_WIRES + 1] = {"f32", "bf16", "int8", "sign", NULL};

MotWireForm mot_wire_find(const char *name)
{
    int wire = 0;
    while (wire < MOT_N_WIRES && (!name || strcmp(mot_wire_names[wire], name) != 0))
        wire++;
    return (MotWireForm)wire;
}

/* ---- Top-k: a heap of the best so far, the worst of them at its root ---- */

static float magnitude(float x)
{
    return x != x ? INFINITY : fabsf(x);
}

/* Whether entry a ranks behind entry b. */
static bool ranks_behind(const float *x, int32_t a, int32_t b)
{
    float p = magnitude(x[a]), q = magnitude(x[b]);
    return p < q || (p == q && a > b);
}

/* By rank, or with x = NULL by index: whether a belongs nearer to the root. */
static bool is_nearer(const float *x, int32_t a, int32_t b)
{
    return x ? ranks_behind(x, a, b) : a > b;
}

static void sift_down(const float *x, int32_t *heap, int64_t n, int64_t at)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_nearer(x, heap[child + 1], heap[child]))
            child++;
        if (!is_nearer(x, heap[child], heap[at]))
            return;
        int32_t moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
    }
}

static void make_heap(const float *x, int32_t *heap, int64_t n)
{
    for (int64_t at = n / 2; at-- > 0;)
        sift_down(x, heap, n, at);
}

static void sort_ascending(int32_t *index, int64_t n)
{
    make_heap(NULL, index, n);
    while (n-- > 1) {
        int32_t largest = index[0];
        index[0] = index[n];
        index[n] = largest;
        sift_down(NULL, index, n, 0);
    }
}

void mot_sparse_top_k(const float *x, int64_t n, int64_t k, int32_t *out_index, float *out_value)
{
    for (int64_t i = 0; i < k; i++)
        out_index[i] = (int32_t)i;
    if (k < n) {
        make_heap(x, out_index, k);
        float worst = magnitude(x[out_index[0]]);
        for (int64_t i = k; i < n; i++)
            if (!(fabsf(x[i]) <= worst)) { /* NaN passes too */
                if (ranks_behind(x, (int32_t)i, out_index[0]))
                    continue;
                out_index[0] = (int32_t)i;
                sift_down(x, out_index, k, 0);
                worst = magnitude(x[out_index[0]]);
            }
        sort_ascending(out_index, k);
    }
    for (int64_t i = 0; i < k; i++)
        out_value[i] = x[out_index[i]];
}

/* ---- Mean over contributors ---- */

/* The least index that a part stands at; n if all are through. */
static int64_t find_next(const MotSparseRows *rows, const int64_t *at, int64_t n)
{
    int64_t least = n;
    for (int64_t p = 0; p < rows->parts; p++)
        if (at[p] < rows->k && rows->index[p * rows->stride + at[p]] < least)
            least = rows->index[p * rows->stride + at[p]];
    return least;
}

static bool is_ascending(const int32_t *index, int64_t k, int64_t n)
{
    int64_t last = -1;
    for (int64_t i = 0; i < k; i++) {
        if (index[i] <= last || index[i] >= n)
            return false;
        last = index[i];
    }
    return true;
}

/* Merges the parts' lists: what stands at one position is summed part by part. */
bool mot_sparse_mean(const MotSparseRows *rows, int64_t n, float *out)
{
    int64_t at[MOT_MAX_PARTS] = {0};
    memset(out, 0, (size_t)n * sizeof *out);
    for (int64_t p = 0; p < rows->parts; p++)
        if (!is_ascending(rows->index + p * rows->stride, rows->k, n))
            return false;
    for (int64_t i; (i = find_next(rows, at, n)) < n;) {
        float sum = 0, hits = 0;
        for (int64_t p = 0; p < rows->parts; p++) {
            int64_t entry = p * rows->stride + at[p];
            if (at[p] == rows->k || rows->index[entry] != i)
                continue;
            sum += rows->value[entry];
            hits++;
            at[p]++;
        }
        out[i] = sum / hits;
    }
    return true;
}

/* ---- Messages ---- */

typedef struct {
    uint8_t *bytes;
    int64_t at; /* in bits */
} Bits;

static void put_bits(Bits *b, uint32_t value, int n)
{
    for (int done = 0; done < n;) {
        int shift = (int)(b->at & 7), room = 8 - shift, part = n - done < room ? n - done : room;
        uint32_t piece = value >> done & ((1u << part) - 1);
        b->bytes[b->at >> 3] = (uint8_t)(b->bytes[b->at >> 3] | piece << shift);
        done += part;
        b->at += part;
    }
}

static uint32_t get_bits(const uint8_t *bytes, int64_t *at, int n)
{
    uint32_t value = 0;
    for (int done = 0; done < n;) {
        int shift = (int)(*at & 7), room = 8 - shift, part = n - done < room ? n - done : room;
        value |= ((uint32_t)bytes[*at >> 3] >> shift & ((1u << part) - 1)) << done;
        done += part;
        *at += part;
    }
    return value;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/*
 * The two sides of each wire format: a value to its bits and back. `scale` is 1 where there is
 * none.
 */
static uint32_t encode_f32(float x, float scale)
{
    (void)scale;
    return bits_of(x);
}

static float decode_f32(uint32_t bits, float scale)
{
    (void)scale;
    return float_of(bits);
}

/* Rounded to nearest, ties to even; a NaN stays one. */
static uint32_t encode_bf16(float x, float scale)
{
    (void)scale;
    uint32_t bits = bits_of(x);
    return x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static float decode_bf16(uint32_t bits, float scale)
{
    (void)scale;
    return float_of(bits << 16);
}

/* In [-127, 127], offset by 128. */
static uint32_t encode_int8(float x, float scale)
{
    float level = scale > 0 ? x / scale * 127 : 0;
    return (uint32_t)(128 + (level == level ? (int)lrintf(level) : 0)) & 0xff;
}

static float decode_int8(uint32_t bits, float scale)
{
    return ((float)bits - 128) / 127 * scale;
}

/* A NaN can't be told: the host's check of the loss finds it. */
static uint32_t encode_sign(float x, float scale)
{
    (void)scale;
    return x < 0;
}

static float decode_sign(uint32_t bits, float scale)
{
    (void)scale;
    return bits ? -1 : 1;
}

static const struct {
    int bits, scale_bits;
    uint32_t (*encode)(float x, float scale);
    float (*decode)(uint32_t bits, float scale);
} wires[MOT_N_WIRES] = {[MOT_WIRE_F32] = {32, 0, encode_f32, decode_f32},
                        [MOT_WIRE_BF16] = {16, 0, encode_bf16, decode_bf16},
                        [MOT_WIRE_INT8] = {8, 32, encode_int8, decode_int8},
                        [MOT_WIRE_SIGN] = {1, 0, encode_sign, decode_sign}};

static int index_bits(int64_t n, int64_t k)
{
    int bits = 0;
    while (k < n && (int64_t)1 << bits < n)
        bits++;
    return bits;
}

int64_t mot_sparse_message_bytes(MotWireForm wire, int64_t n, int64_t k)
{
    return (wires[wire].scale_bits + k * (index_bits(n, k) + wires[wire].bits) + 7) / 8;
}

/* The largest magnitude; NaN if a value is one. */
static float find_scale(const float *value, int64_t k)
{
    float most = 0;
    for (int64_t i = 0; i < k; i++)
        if (!(fabsf(value[i]) <= most))
            most = fabsf(value[i]);
    return most;
}

void mot_sparse_pack(MotWireForm wire, int64_t n, int64_t k, const int32_t *index,
                     const float *value, uint8_t *out_message)
{
    Bits b = {out_message, 0};
    float scale = find_scale(value, k);
    int n_bits = index_bits(n, k);
    memset(out_message, 0, (size_t)mot_sparse_message_bytes(wire, n, k));
    put_bits(&b, bits_of(scale), wires[wire].scale_bits);
    for (int64_t i = 0; i < k; i++)
        put_bits(&b, (uint32_t)index[i], n_bits);
    for (int64_t i = 0; i < k; i++)
        put_bits(&b, wires[wire].encode(value[i], scale), wires[wire].bits);
}

bool mot_sparse_unpack(MotWireForm wire, int64_t n, int64_t k, const uint8_t *message,
                       int32_t *out_index, float *out_value)
{
    int64_t at = 0;
    int n_bits = index_bits(n, k);
    float scale = float_of(get_bits(message, &at, wires[wire].scale_bits));
    bool is_sound = isfinite(scale) && scale >= 0;
    for (int64_t i = 0; i < k; i++)
        out_index[i] = k == n ? (int32_t)i : (int32_t)get_bits(message, &at, n_bits);
    for (int64_t i = 0; i < k; i++) {
        out_value[i] = wires[wire].decode(get_bits(message, &at, wires[wire].bits), scale);
        is_sound = is_sound && isfinite(out_value[i]);
    }
    if (is_sound && is_ascending(out_index, k, n))
        return true;
    for (int64_t i = 0; i < k; i++) {
        out_index[i] = (int32_t)i;
        out_value[i] = 0;
    }
    return false;
}
