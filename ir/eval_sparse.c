/*
 * Primitives over rows of which few entries count. Choosing and joining are written out plainly
 * here; messages are ir/sparse.c's.
 */
#include "ir/eval_rules.h"

#include "ir/sparse.h"

#include <math.h>

static int64_t last_dim(const MotTensor *t)
{
    return t->type.dims[t->type.rank - 1];
}

static int64_t count_rows(const MotTensor *t)
{
    int64_t n = 1;
    for (int d = 0; d + 1 < t->type.rank; d++)
        n *= t->type.dims[d];
    return n;
}

/* The entry of the row that comes before all that are not taken, or -1. */
static int64_t find_largest(const double *x, int64_t n, const bool *is_taken)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (is_taken[i] || (best >= 0 && isnan(x[best])))
            continue;
        if (best < 0 || isnan(x[i]) || fabs(x[i]) > fabs(x[best]))
            best = i;
    }
    return best;
}

MotStatus mot_eval_top_k(MotEval *e)
{
    int64_t n = last_dim(&e->in[0]), k = last_dim(&e->out[0]), rows = count_rows(&e->in[0]);
    const double *x = mot_eval_load(e->ctx, &e->in[0]);
    bool *is_taken = mot_arena_array(&e->ctx->arena, bool, n);
    for (int64_t r = 0; r < rows; r++, x += n) {
        for (int64_t i = 0; i < n; i++)
            is_taken[i] = false;
        for (int64_t i = 0; i < k; i++)
            is_taken[find_largest(x, n, is_taken)] = true;
        for (int64_t i = 0, at = r * k; i < n; i++)
            if (is_taken[i]) {
                mot_tensor_set_int(&e->out[0], at, i);
                mot_tensor_set(&e->out[1], at++, x[i]);
            }
    }
    return MOT_OK;
}

static MotStatus refuse_row(const MotEval *e, int64_t part, int64_t row)
{
    return mot_fail(e->ctx, MOT_ERR_DATA, mot_op_loc(e->g, e->op),
                    "scatter_mean: row %lld of part %lld has no ascending indices in [0, %lld)",
                    (long long)row, (long long)part, (long long)last_dim(&e->out[0]));
}

/* sum and hits: of one row, [n]. */
static MotStatus add_part(const MotEval *e, const double *value, int64_t part, int64_t row,
                          double *sum, double *hits)
{
    int64_t n = last_dim(&e->out[0]), k = last_dim(&e->in[0]), rows = count_rows(&e->out[0]);
    int64_t last = -1;
    for (int64_t i = 0, at = (part * rows + row) * k; i < k; i++, at++) {
        int64_t index = mot_tensor_get_int(&e->in[0], at);
        if (index <= last || index >= n)
            return refuse_row(e, part, row);
        sum[index] += value[at];
        hits[index]++;
        last = index;
    }
    return MOT_OK;
}

MotStatus mot_eval_scatter_mean(MotEval *e)
{
    int64_t n = last_dim(&e->out[0]), rows = count_rows(&e->out[0]);
    const double *value = mot_eval_load(e->ctx, &e->in[1]);
    double *sum = mot_arena_array(&e->ctx->arena, double, n),
           *hits = mot_arena_array(&e->ctx->arena, double, n);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < n; i++)
            sum[i] = hits[i] = 0;
        for (int64_t p = 0; p < e->in[0].type.dims[0]; p++)
            MOT_TRY(add_part(e, value, p, r, sum, hits));
        for (int64_t i = 0; i < n; i++)
            mot_tensor_set(&e->out[0], r * n + i, hits[i] > 0 ? sum[i] / hits[i] : 0);
    }
    return MOT_OK;
}

/* Messages hold f32, whatever floats are computed in. */
MotStatus mot_eval_pack(MotEval *e)
{
    const MotAttr_wire *a = mot_attrs(e->op, wire);
    MotWireForm wire = mot_wire_find(a->wire);
    const int32_t *index = e->in[0].data;
    const double *x = mot_eval_load(e->ctx, &e->in[1]);
    float *value = mot_arena_array(&e->ctx->arena, float, a->k);
    uint8_t *message = e->out[0].data;
    int64_t rows = count_rows(&e->in[0]);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < a->k; i++)
            value[i] = (float)x[r * a->k + i];
        mot_sparse_pack(wire, a->size, a->k, index + r * a->k, value,
                        message + r * last_dim(&e->out[0]));
    }
    return MOT_OK;
}

MotStatus mot_eval_unpack(MotEval *e)
{
    const MotAttr_wire *a = mot_attrs(e->op, wire);
    MotWireForm wire = mot_wire_find(a->wire);
    const uint8_t *message = e->in[0].data;
    int32_t *index = e->out[0].data;
    float *value = mot_arena_array(&e->ctx->arena, float, a->k);
    int64_t rows = count_rows(&e->in[0]), peers = e->in[0].type.dims[0];
    for (int64_t r = 0; r < rows; r++) {
        if (!mot_sparse_unpack(wire, a->size, a->k, message + r * last_dim(&e->in[0]),
                               index + r * a->k, value))
            return mot_fail(e->ctx, MOT_ERR_NUMERICS, mot_op_loc(e->g, e->op),
                            "the message of replica %lld is bad: an index or a value of row %lld",
                            (long long)(r / (rows / peers)), (long long)(r % (rows / peers)));
        for (int64_t i = 0; i < a->k; i++)
            mot_tensor_set(&e->out[1], r * a->k + i, (double)value[i]);
    }
    return MOT_OK;
}
