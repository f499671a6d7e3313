/*
 * Attention of opset 23 and later: the composite where it says the same, else (soft cap, or the
 * scores are wanted) its formula with contractions. A cache is concatenated, so present_key and
 * present_value are keys and values.
 */
#include "frontend/import_node.h"

#include <float.h>
#include <math.h>

enum { MASK = 3, PAST_KEY, PAST_VALUE, FILLED }; /* operands */
enum { PRESENT_KEY = 1, PRESENT_VALUE, SCORES }; /* results */

typedef struct {
    MotValue q, k, v; /* [B,T,H,D], [B,S,G,D], [B,S,G,E] */
    MotValue mask;    /* added to the scores; 0: none */
    int64_t past;     /* cached positions */
    double scale, softcap;
    bool is_causal, is_merged; /* merged: the file has [B,T,H*D] */
} Attention;

/* Operand i as [B,T,H,D]: heads are split off a merged dim, or moved behind the time. */
static MotValue split_heads(MotNode *n, uint32_t i, int64_t heads)
{
    const MotType x = *mot_node_type(n, i);
    if (x.rank == 4)
        return mot_transpose(n->b, n->in[i], (int64_t[]){0, 2, 1, 3});
    if (heads < 1 || x.dims[2] % heads != 0) {
        mot_node_fail(n, MOT_ERR_MODEL, "%lld heads do not divide %s", (long long)heads,
                      mot_node_operand_text(n, i));
        return 0;
    }
    return mot_reshape(n->b, n->in[i], 4,
                       (int64_t[]){x.dims[0], x.dims[1], heads, x.dims[2] / heads});
}

/*
 * New keys or values behind the cached ones, which the file keeps as [B,G,S,D]; the result as the
 * file wants it too.
 */
static MotValue append_to_past(MotNode *n, MotValue fresh, uint32_t past, uint32_t present)
{
    static const int64_t swap[] = {0, 2, 1, 3};
    MotValue all = fresh;
    if (mot_node_has(n, past)) {
        mot_node_check_rank(n, past, 4, 4);
        MotValue cached = mot_node_ok(n) ? mot_transpose(n->b, n->in[past], swap) : 0;
        all = mot_concat(n->b, (MotValue[]){cached, fresh}, 2, 1);
    }
    if (mot_node_wants(n, present) && mot_node_ok(n))
        n->out[present] = mot_transpose(n->b, all, swap);
    return all;
}

/* Rows above their own position get -inf: position t sees s <= t + past. [T,S] */
static MotValue causal_mask(MotNode *n, const Attention *a, MotDtype dtype)
{
    MotBuilder *b = n->b;
    int64_t dims[] = {mot_value_type(n, a->q)->dims[1], mot_value_type(n, a->k)->dims[1]};
    MotValue t = mot_add_scalar(b, mot_iota(b, MOT_I64, 2, dims, 0), (double)a->past);
    MotValue sees = mot_le(b, mot_iota(b, MOT_I64, 2, dims, 1), t);
    return mot_select(b, sees, mot_scalar(b, dtype, 0), mot_scalar(b, dtype, -INFINITY));
}

/* The mask as numbers to add, its last dim as long as the keys (what it lacks is not seen). */
static MotValue read_mask(MotNode *n, const Attention *a, MotDtype dtype)
{
    MotBuilder *b = n->b;
    MotValue mask = n->in[MASK];
    MotType type = *mot_value_type(n, mask);
    int64_t keys = mot_value_type(n, a->k)->dims[1];
    mot_node_check_rank(n, MASK, 2, 4);
    if (!mot_node_ok(n))
        return 0;
    if (type.dtype == MOT_BOOL)
        mask = mot_select(b, mask, mot_scalar(b, dtype, 0), mot_scalar(b, dtype, -INFINITY));
    mask = mot_cast(b, mask, dtype);
    int64_t size = type.dims[type.rank - 1];
    if (size != 1 && size < keys) {
        int64_t lo[MOT_MAX_RANK] = {0}, hi[MOT_MAX_RANK] = {0};
        hi[type.rank - 1] = keys - size;
        mask = mot_pad(b, mask, lo, hi, -INFINITY);
    }
    return mask;
}

/*
 * Keys beyond the number that operand FILLED says are there, for each of the batch, are not seen;
 * causal then means that the last query is at the last of them. [B,1,T,S]
 */
static MotValue filled_mask(MotNode *n, Attention *a, MotDtype dtype)
{
    MotBuilder *b = n->b;
    const MotType q = *mot_value_type(n, a->q);
    int64_t times[] = {q.dims[1], 1}, keys[] = {1, mot_value_type(n, a->k)->dims[1]};
    MotValue filled = mot_reshape(b, n->in[FILLED], 4, (int64_t[]){q.dims[0], 1, 1, 1});
    filled = mot_node_ok(n) ? mot_cast(b, filled, MOT_I64) : 0;
    MotValue key = mot_iota(b, MOT_I64, 2, keys, 1), sees = mot_lt(b, key, filled);
    if (a->is_causal) {
        MotValue last = mot_add(b, mot_iota(b, MOT_I64, 2, times, 0),
                                mot_add_scalar(b, filled, (double)-times[0]));
        sees = mot_and(b, sees, mot_le(b, key, last));
    }
    a->is_causal = false;
    return mot_select(b, sees, mot_scalar(b, dtype, 0), mot_scalar(b, dtype, -INFINITY));
}

static Attention read_attention(MotNode *n)
{
    Attention a = {.softcap = mot_node_float(n, "softcap", 0),
                   .is_causal = mot_node_int(n, "is_causal", 0) != 0,
                   .is_merged = mot_node_type(n, 0)->rank == 3};
    for (uint32_t i = 0; i < 3; i++)
        mot_node_check_rank(n, i, 3, 4);
    mot_node_check_dtypes(n, 0, 3);
    mot_node_float_operand(n, 0);
    a.q = split_heads(n, 0, mot_node_int(n, "q_num_heads", 0));
    a.k = append_to_past(n, split_heads(n, 1, mot_node_int(n, "kv_num_heads", 0)), PAST_KEY,
                         PRESENT_KEY);
    a.v = append_to_past(n, split_heads(n, 2, mot_node_int(n, "kv_num_heads", 0)), PAST_VALUE,
                         PRESENT_VALUE);
    const MotType q = *mot_value_type(n, a.q), k = *mot_value_type(n, a.k),
                  v = *mot_value_type(n, a.v);
    if (mot_node_ok(n) && (k.dims[2] == 0 || q.dims[2] % k.dims[2] != 0 || q.dims[0] != k.dims[0] ||
                           q.dims[3] != k.dims[3] || v.dims[0] != k.dims[0] ||
                           v.dims[1] != k.dims[1] || v.dims[2] != k.dims[2]))
        mot_node_fail(
            n, MOT_ERR_MODEL,
            "queries [%s], keys [%s] and values [%s] (batch, time, heads, size) do not fit",
            mot_shape_text(&n->im->ctx->arena, q.dims, 4),
            mot_shape_text(&n->im->ctx->arena, k.dims, 4),
            mot_shape_text(&n->im->ctx->arena, v.dims, 4));
    if (!mot_node_ok(n))
        return a;
    a.past = mot_node_has(n, PAST_KEY) ? mot_node_type(n, PAST_KEY)->dims[2] : 0;
    a.scale = mot_node_float(n, "scale", 1 / sqrt((double)q.dims[3]));
    a.mask = mot_node_has(n, MASK) ? read_mask(n, &a, MOT_F32) : 0;
    if (mot_node_has(n, FILLED)) {
        MotValue filled = filled_mask(n, &a, MOT_F32);
        a.mask = a.mask ? mot_add(n->b, a.mask, filled) : filled;
    }
    return a;
}

/* The composite's causal flag aligns at the end: position t sees s <= t + S - T. */
static MotValue build_composite(MotNode *n, Attention *a)
{
    int64_t times = mot_value_type(n, a->q)->dims[1], keys = mot_value_type(n, a->k)->dims[1];
    MotAttr_attention attrs = {.scale = a->scale,
                               .causal = a->is_causal && keys - times == a->past};
    if (a->is_causal && !attrs.causal) {
        MotValue causal = causal_mask(n, a, MOT_F32);
        a->mask = a->mask ? mot_add(n->b, a->mask, causal) : causal;
    }
    MotValue in[] = {a->q, a->k, a->v, a->mask};
    return mot_result(n->b, mot_build(n->b, MOT_OP_ATTENTION, in, a->mask ? 4 : 3, &attrs), 0);
}

/* Key or value head g repeated for its group of query heads. */
static MotValue repeat_heads(MotNode *n, MotValue x, int64_t heads)
{
    MotType t = *mot_value_type(n, x);
    int64_t dims[5] = {t.dims[0], t.dims[1], t.dims[2], 1, t.dims[3]};
    MotValue y = mot_reshape(n->b, x, 5, dims);
    dims[3] = heads / t.dims[2];
    y = mot_broadcast(n->b, y, 5, dims);
    return mot_reshape(n->b, y, 4, (int64_t[]){t.dims[0], t.dims[1], heads, t.dims[3]});
}

/* Softmax over the last dim, 0 in a row that is -inf throughout. */
static MotValue finite_softmax(MotNode *n, MotValue x)
{
    MotBuilder *b = n->b;
    MotAttr_softmax attrs = {.axis = 3};
    MotValue low = mot_scalar_like(b, x, -FLT_MAX);
    MotValue sees = mot_lt(b, low, mot_reduce_max(b, x, (int64_t[]){3}, 1, MOT_KEEP));
    MotValue y = mot_result(b, mot_build(b, MOT_OP_SOFTMAX, &x, 1, &attrs), 0);
    return mot_select(b, sees, y, mot_scalar_like(b, x, 0));
}

/*
 * softmax(cap(scale q k^T) + mask) v; qk_matmul_output_mode picks which of the four scores are a
 * result.
 */
static MotValue build_formula(MotNode *n, Attention *a)
{
    MotBuilder *b = n->b;
    MotDtype dtype = mot_value_type(n, a->q)->dtype;
    int64_t heads = mot_value_type(n, a->q)->dims[2],
            mode = mot_node_int(n, "qk_matmul_output_mode", 0);
    MotValue k = repeat_heads(n, a->k, heads), v = repeat_heads(n, a->v, heads);
    MotValue stage[4]; /* scores, capped, masked, softmax */
    stage[0] = mot_mul_scalar(b, mot_contract(b, a->q, k, "bthd,bshd->bhts"), a->scale);
    stage[1] = stage[0];
    if (a->softcap != 0)
        stage[1] =
            mot_mul_scalar(b, mot_tanh(b, mot_mul_scalar(b, stage[0], 1 / a->softcap)), a->softcap);
    stage[2] = stage[1];
    if (a->mask)
        stage[2] = mot_add(b, stage[2], mot_cast(b, a->mask, dtype));
    if (a->is_causal)
        stage[2] = mot_add(b, stage[2], causal_mask(n, a, dtype));
    stage[3] = finite_softmax(n, stage[2]);
    if (mot_node_wants(n, SCORES) && (mode < 0 || mode > 3))
        mot_node_fail(n, MOT_ERR_MODEL, "qk_matmul_output_mode is %lld, not 0 to 3",
                      (long long)mode);
    else if (mot_node_wants(n, SCORES))
        n->out[SCORES] = stage[mode];
    return mot_contract(b, stage[3], v, "bhts,bshd->bthd");
}

void mot_lower_attention(MotNode *n)
{
    Attention a = read_attention(n);
    if (!mot_node_ok(n))
        return;
    MotValue y =
        a.softcap != 0 || mot_node_wants(n, SCORES) ? build_formula(n, &a) : build_composite(n, &a);
    if (!mot_node_ok(n))
        return;
    const MotType type = *mot_value_type(n, y);
    const int64_t merged[] = {type.dims[0], type.dims[1], type.dims[2] * type.dims[3]};
    n->out[0] = a.is_merged ? mot_reshape(n->b, y, 3, merged)
                            : mot_transpose(n->b, y, (int64_t[]){0, 2, 1, 3});
}
