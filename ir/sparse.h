/*
 * Rows of which few entries count: k of n numbers, as an ascending list of indices and their
 * values; and such a row as a message.
 *
 * A message is one string of bits, the least significant bit of each byte first, filled up with
 * zeros: with int8 the scale (32 bits, IEEE), then k indices of ceil(log2 n) bits each, none if k =
 * n, then k values: f32 and bf16 as their bits, int8 as value / scale * 127, sign as 1 for what is
 * below 0. So its length follows from n, k and the wire format alone.
 */
#ifndef MOTLEY_IR_SPARSE_H
#define MOTLEY_IR_SPARSE_H

#include <stdbool.h>
#include <stdint.h>

enum { MOT_MAX_PARTS = 256 };

typedef enum MotWireForm {
    MOT_WIRE_F32,
    MOT_WIRE_BF16,
    MOT_WIRE_INT8,
    MOT_WIRE_SIGN,
    MOT_N_WIRES
} MotWireForm;
extern const char *const mot_wire_names[MOT_N_WIRES + 1]; /* the last is NULL */
/* MOT_N_WIRES if there is none of that name (NULL: none). */
MotWireForm mot_wire_find(const char *name);

/*
 * The k entries of x[n], 0 < k <= n < 2^31, largest by magnitude; equal ones by the lower index,
 * NaN above all. O(n log k), in place.
 */
void mot_sparse_top_k(const float *x, int64_t n, int64_t k, int32_t *out_index, float *out_value);

/* `parts` rows, `stride` entries apart: index[p * stride + i], value[p * stride + i], i < k. */
typedef struct MotSparseRows {
    const int32_t *index;
    const float *value;
    int64_t k, parts, stride;
} MotSparseRows;
/*
 * out[n]: at each position the mean of the values that name it, summed in the order of the parts; 0
 * where none does. False, and zeros, if a part's indices don't ascend or leave [0, n). O(n + k *
 * parts^2), parts <= MOT_MAX_PARTS.
 */
bool mot_sparse_mean(const MotSparseRows *rows, int64_t n, float *out);

/* Bytes of a message of k entries of n. */
int64_t mot_sparse_message_bytes(MotWireForm wire, int64_t n, int64_t k);
void mot_sparse_pack(MotWireForm wire, int64_t n, int64_t k, const int32_t *index,
                     const float *value, uint8_t *out_message);
/*
 * False for a message that nobody packed from k ascending indices below n and finite values. Its
 * entries are then 0 .. k - 1, all 0.
 */
bool mot_sparse_unpack(MotWireForm wire, int64_t n, int64_t k, const uint8_t *message,
                       int32_t *out_index, float *out_value);

#endif
