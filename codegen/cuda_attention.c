/*
 * CUDA C of attention and its gradient (FlashAttention-2, arXiv 2307.08691): tiles of 16 queries
 * and 64 keys in shared memory, never T x T. A block's 256 threads are 16 a query. What is long, a
 * row of the result or of a gradient, is summed up in its place in memory, always by the same
 * thread.
 *
 * Forward: a block has a tile of queries, with a running maximum and sum; the row is rescaled when
 * the maximum grows. Backward: tasks are tiles of queries, which go through the keys for dq, and
 * tiles of keys, which go through the queries of their heads for dk and dv. Probabilities are made
 * again from lse in both, which spares atomic sums.
 */
#include "codegen/cuda_print.h"

/* clang-format off */

/* Of both directions: in a program with both, the #ifndef lets it stand once. */
static const char *const attention_library[] = {
    "#ifndef MOT_ATTENTION",
    "#define MOT_ATTENTION",
    "enum { MOT_QUERIES = 16, MOT_KEYS = 64, MOT_LANES = MOT_THREADS / MOT_QUERIES };",
    "",
    "/* Sizes: q[B,T,H,D], k[B,S,G,D], v[B,S,G,E]; the mask's strides, 0 where it is broadcast. */",
    "struct MotAttention {",
    "    long long B, T, H, D, S, G, E;",
    "    float scale;",
    "    bool is_causal;",
    "    const float *mask;",
    "    long long mask_b, mask_h, mask_t, mask_s;",
    "};",
    "",
    "/* Keys that queries before t see. */",
    "__device__ long long mot_count_keys(const MotAttention &a, long long t)",
    "{",
    "    const long long n = a.is_causal ? t + a.S - a.T : a.S;",
    "    return n < 0 ? 0 : n < a.S ? n : a.S;",
    "}",
    "",
    "__device__ float mot_dot(const float *x, const float *y, long long n)",
    "{",
    "    float sum = 0;",
    "    for (long long i = 0; i < n; i++)",
    "        sum += x[i] * y[i];",
    "    return sum;",
    "}",
    "",
    "/* The row of one position and head in a tensor of n positions. */",
    "__device__ long long mot_row(long long b, long long n, long long i, long long heads, long long head,",
    "                             long long size)",
    "{",
    "    return ((b * n + i) * heads + head) * size;",
    "}",
    "",
    "/* The score of query t for key s of head h. */",
    "__device__ float mot_score(const MotAttention &a, const float *q, const float *k, long long b, long long h,",
    "                           long long t, long long s)",
    "{",
    "    const long long g = h / (a.H / a.G);",
    "    const float *query = q + mot_row(b, a.T, t, a.H, h, a.D), *key = k + mot_row(b, a.S, s, a.G, g, a.D);",
    "    const float score = a.scale * mot_dot(query, key, a.D);",
    "    return a.mask ? score + a.mask[b * a.mask_b + h * a.mask_h + t * a.mask_t + s * a.mask_s] : score;",
    "}",
    "#endif",
    NULL,
};

static const char *const forward_library[] = {
    "/* The maximum starts finite and the sum ends positive: a row that sees nothing gives 0 and a finite lse. */",
    "__device__ void mot_attention(const MotAttention &a, const float *q, const float *k, const float *v, float *out,",
    "                              float *lse)",
    "{",
    "    __shared__ float p[MOT_QUERIES][MOT_KEYS + 1];",
    "    const int row = threadIdx.x / MOT_LANES, lane = threadIdx.x % MOT_LANES;",
    "    const long long tiles = (a.T + MOT_QUERIES - 1) / MOT_QUERIES;",
    "    for (long long task = blockIdx.x; task < a.B * a.H * tiles; task += gridDim.x) {",
    "        const long long t0 = task % tiles * MOT_QUERIES, t = t0 + row;",
    "        const long long b = task / tiles / a.H, h = task / tiles % a.H, g = h / (a.H / a.G);",
    "        const long long size = t < a.T ? a.E : 0, n = mot_count_keys(a, t + 1);",
    "        float *const result = out + mot_row(b, a.T, t, a.H, h, a.E);",
    "        float max = -0x1.fffffep+127f, sum = 0;",
    "        for (long long e = lane; e < size; e += MOT_LANES)",
    "            result[e] = 0;",
    "        for (long long s0 = 0; s0 < mot_count_keys(a, t0 + MOT_QUERIES); s0 += MOT_KEYS) {",
    "            for (int j = lane; j < MOT_KEYS; j += MOT_LANES)",
    "                p[row][j] = t < a.T && s0 + j < n ? mot_score(a, q, k, b, h, t, s0 + j) : -MOT_INFINITY;",
    "            __syncthreads();",
    "            const float old = max;",
    "            for (int j = 0; j < MOT_KEYS; j++)",
    "                max = mot_max<float>(max, p[row][j]);",
    "            __syncthreads();",
    "            for (int j = lane; j < MOT_KEYS; j += MOT_LANES)",
    "                p[row][j] = exp(p[row][j] - max);",
    "            __syncthreads();",
    "            const float shrink = exp(old - max);",
    "            sum *= shrink;",
    "            for (int j = 0; j < MOT_KEYS; j++)",
    "                sum += p[row][j];",
    "            for (long long e = lane; e < size; e += MOT_LANES) {",
    "                float x = result[e] * shrink;",
    "                for (int j = 0; j < MOT_KEYS && s0 + j < n; j++)",
    "                    x += p[row][j] * v[mot_row(b, a.S, s0 + j, a.G, g, a.E) + e];",
    "                result[e] = x;",
    "            }",
    "            __syncthreads();",
    "        }",
    "        sum = mot_max<float>(sum, 0x1p-126f);",
    "        for (long long e = lane; e < size; e += MOT_LANES)",
    "            result[e] /= sum;",
    "        if (t < a.T && lane == 0)",
    "            lse[(b * a.H + h) * a.T + t] = max + log(sum);",
    "    }",
    "}",
    NULL,
};

static const char *const backward_library[] = {
    "/* The operands of the gradient. */",
    "struct MotAttentionGrad {",
    "    const float *q, *k, *v, *out, *lse, *g;",
    "};",
    "",
    "/* Probabilities p and gradients ds of scale * q k, of a tile; 0 where a key is not seen. All threads of",
    "   a block call it. */",
    "__device__ void mot_grad_tile(const MotAttention &a, const MotAttentionGrad &x, long long b, long long h,",
    "                              long long t0, long long s0, float (*p)[MOT_KEYS + 1],",
    "                              float (*ds)[MOT_KEYS + 1])",
    "{",
    "    __shared__ float parts[MOT_QUERIES][MOT_LANES + 1];",
    "    const int row = threadIdx.x / MOT_LANES, lane = threadIdx.x % MOT_LANES;",
    "    const long long t = t0 + row, g = h / (a.H / a.G), n = t < a.T ? mot_count_keys(a, t + 1) : 0;",
    "    const long long place = mot_row(b, a.T, t, a.H, h, a.E);",
    "    float delta = 0;",
    "    for (long long e = lane; t < a.T && e < a.E; e += MOT_LANES)",
    "        delta += x.out[place + e] * x.g[place + e];",
    "    parts[row][lane] = delta;",
    "    __syncthreads();",
    "    delta = 0;",
    "    for (int i = 0; i < MOT_LANES; i++)",
    "        delta += parts[row][i];",
    "    for (int j = lane; j < MOT_KEYS; j += MOT_LANES) {",
    "        const bool is_seen = s0 + j < n;",
    "        float probability = 0, gradient = 0;",
    "        if (is_seen) {",
    "            const float *value = x.v + mot_row(b, a.S, s0 + j, a.G, g, a.E);",
    "            probability = exp(mot_score(a, x.q, x.k, b, h, t, s0 + j) - x.lse[(b * a.H + h) * a.T + t]);",
    "            gradient = probability * (mot_dot(x.g + place, value, a.E) - delta) * a.scale;",
    "        }",
    "        p[row][j] = probability;",
    "        ds[row][j] = gradient;",
    "    }",
    "    __syncthreads();",
    "}",
    "",
    "__device__ void mot_grad_queries(const MotAttention &a, const MotAttentionGrad &x, long long task, float *dq)",
    "{",
    "    __shared__ float p[MOT_QUERIES][MOT_KEYS + 1], ds[MOT_QUERIES][MOT_KEYS + 1];",
    "    const int row = threadIdx.x / MOT_LANES, lane = threadIdx.x % MOT_LANES;",
    "    const long long tiles = (a.T + MOT_QUERIES - 1) / MOT_QUERIES;",
    "    const long long t0 = task % tiles * MOT_QUERIES, t = t0 + row;",
    "    const long long b = task / tiles / a.H, h = task / tiles % a.H, g = h / (a.H / a.G);",
    "    const long long n = mot_count_keys(a, t0 + MOT_QUERIES), size = t < a.T ? a.D : 0;",
    "    float *const result = dq + mot_row(b, a.T, t, a.H, h, a.D);",
    "    for (long long d = lane; d < size; d += MOT_LANES)",
    "        result[d] = 0;",
    "    for (long long s0 = 0; s0 < n; s0 += MOT_KEYS) {",
    "        mot_grad_tile(a, x, b, h, t0, s0, p, ds);",
    "        for (long long d = lane; d < size; d += MOT_LANES)",
    "            for (int j = 0; j < MOT_KEYS && s0 + j < n; j++)",
    "                result[d] += ds[row][j] * x.k[mot_row(b, a.S, s0 + j, a.G, g, a.D) + d];",
    "    }",
    "}",
    "",
    "/* result[key, i] += sum over the tile's queries of tile[query, key] * queries[query, i]; key head g, query head h. */",
    "__device__ void mot_add_to_keys(const MotAttention &a, float (*tile)[MOT_KEYS + 1], const float *queries,",
    "                                float *result, long long size, long long b, long long h, long long t0,",
    "                                long long s0)",
    "{",
    "    for (long long at = threadIdx.x; at < MOT_KEYS * size; at += MOT_THREADS) {",
    "        const long long j = at / size, i = at % size;",
    "        if (s0 + j >= a.S)",
    "            continue;",
    "        float sum = 0;",
    "        for (int row = 0; row < MOT_QUERIES && t0 + row < a.T; row++)",
    "            sum += tile[row][j] * queries[mot_row(b, a.T, t0 + row, a.H, h, size) + i];",
    "        result[mot_row(b, a.S, s0 + j, a.G, h / (a.H / a.G), size) + i] += sum;",
    "    }",
    "}",
    "",
    "__device__ void mot_clear_keys(const MotAttention &a, float *result, long long size, long long b,",
    "                               long long g, long long s0)",
    "{",
    "    for (long long at = threadIdx.x; at < MOT_KEYS * size; at += MOT_THREADS)",
    "        if (s0 + at / size < a.S)",
    "            result[mot_row(b, a.S, s0 + at / size, a.G, g, size) + at % size] = 0;",
    "}",
    "",
    "__device__ void mot_grad_keys(const MotAttention &a, const MotAttentionGrad &x, long long task, float *dk, float *dv)",
    "{",
    "    __shared__ float p[MOT_QUERIES][MOT_KEYS + 1], ds[MOT_QUERIES][MOT_KEYS + 1];",
    "    const long long tiles = (a.S + MOT_KEYS - 1) / MOT_KEYS, s0 = task % tiles * MOT_KEYS;",
    "    const long long b = task / tiles / a.G, g = task / tiles % a.G, group = a.H / a.G;",
    "    mot_clear_keys(a, dk, a.D, b, g, s0);",
    "    mot_clear_keys(a, dv, a.E, b, g, s0);",
    "    for (long long h = g * group; h < (g + 1) * group; h++)",
    "        for (long long t0 = 0; t0 < a.T; t0 += MOT_QUERIES) {",
    "            if (mot_count_keys(a, t0 + MOT_QUERIES) <= s0)",
    "                continue; /* behind the diagonal */",
    "            mot_grad_tile(a, x, b, h, t0, s0, p, ds);",
    "            mot_add_to_keys(a, ds, x.q, dk, a.D, b, h, t0, s0);",
    "            mot_add_to_keys(a, p, x.g, dv, a.E, b, h, t0, s0);",
    "        }",
    "}",
    "",
    "__device__ void mot_attention_grad(const MotAttention &a, const MotAttentionGrad &x, float *dq, float *dk,",
    "                                   float *dv)",
    "{",
    "    const long long n_queries = a.B * a.H * ((a.T + MOT_QUERIES - 1) / MOT_QUERIES);",
    "    const long long n_keys = a.B * a.G * ((a.S + MOT_KEYS - 1) / MOT_KEYS);",
    "    for (long long task = blockIdx.x; task < n_queries + n_keys; task += gridDim.x)",
    "        if (task < n_queries)",
    "            mot_grad_queries(a, x, task, dq);",
    "        else",
    "            mot_grad_keys(a, x, task - n_queries, dk, dv);",
    "}",
    NULL,
};

/* clang-format on */

/* `const MotAttention a = {...};` */
static void print_sizes(MotCuda *c)
{
    const MotAttention *a = &c->nest->attention;
    const MotExtent sizes[] = {a->B, a->T, a->H, a->D, a->S, a->G, a->E};
    MotText text;
    mot_text_init(&text, &c->ctx->arena);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        mot_text_printf(&text, "%s, ", mot_cuda_extent(c, sizes[i]));
    mot_text_printf(&text, "%s, %s, ", mot_cuda_float(c, a->scale),
                    a->is_causal ? "true" : "false");
    if (a->has_mask)
        mot_text_printf(&text, "b%u", a->mask);
    else
        mot_text_puts(&text, "nullptr");
    for (int i = 0; i < 4; i++)
        mot_text_printf(&text, ", %s", mot_cuda_extent(c, a->mask_stride[i]));
    mot_cuda_line(c, "const MotAttention a = {%s};", mot_text_get(&text));
}

/* "b3, b0, ...": buffers [from, to) in the order of ops.def. */
static const char *list_buffers(MotCuda *c, int from, int to)
{
    MotText text;
    mot_text_init(&text, &c->ctx->arena);
    for (int i = from; i < to; i++)
        mot_text_printf(&text, "%sb%u", i > from ? ", " : "", c->nest->attention.buf[i]);
    return mot_text_get(&text);
}

static void print_attention(MotCuda *c)
{
    print_sizes(c);
    mot_cuda_line(c, "mot_attention(a, %s);", list_buffers(c, 0, 5));
}

static void print_attention_grad(MotCuda *c)
{
    print_sizes(c);
    mot_cuda_line(c, "const MotAttentionGrad x = {%s};", list_buffers(c, 0, 6));
    mot_cuda_line(c, "mot_attention_grad(a, x, %s);", list_buffers(c, 6, 9));
}

const MotCudaShape mot_cuda_attention = {.library = {attention_library, forward_library},
                                         .print = print_attention};
const MotCudaShape mot_cuda_attention_grad = {.library = {attention_library, backward_library},
                                              .print = print_attention_grad};
