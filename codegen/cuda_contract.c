/*
 * CUDA C of contractions and of scatter_add.
 *
 * Contract: a block has a tile of 64 x 64 elements of the result at one point of the kept loops; a
 * thread has 4 x 4 of them, 16 apart, in registers. The operands come through shared memory, 16
 * deep; matrices along the reduced loops add to the same sums. Loads are unrolled by two only: by
 * four NVRTC takes twice as long. With a list of positions of k the loads go through it; block 0
 * reports those that are outside, which count as 0.
 */
#include "codegen/cuda_print.h"

/* clang-format off */
static const char *const contract_library[] = {
    "enum { MOT_TILE = 64, MOT_DEPTH = 16, MOT_STEP = 16, MOT_PATCH = 4 };",
    "",
    "/* Positions of k in [0, size), or NULL and all of them. */",
    "struct MotList {",
    "    const long long *at;",
    "    long long size;",
    "};",
    "",
    "/* tile[d][i] = x[i, d0 + d], through the list if there is one; 0 outside of n x depth. */",
    "__device__ void mot_load_tile(float (*tile)[MOT_TILE + 1], const float *x, long long stride, long long d0,",
    "                              long long depth_stride, long long n, long long depth, MotList list)",
    "{",
    "#pragma unroll 2",
    "    for (int p = threadIdx.x; p < MOT_TILE * MOT_DEPTH; p += MOT_THREADS) {",
    "        const int i = depth_stride == 1 ? p / MOT_DEPTH : p % MOT_TILE;",
    "        const int d = depth_stride == 1 ? p % MOT_DEPTH : p / MOT_TILE;",
    "        bool is_inside = i < n && d0 + d < depth;",
    "        long long k = d0 + d;",
    "        if (list.at && is_inside) {",
    "            k = list.at[k];",
    "            is_inside = k >= 0 && k < list.size;",
    "        }",
    "        tile[d][i] = is_inside ? x[i * stride + k * depth_stride] : 0;",
    "    }",
    "}",
    "",
    "__device__ void mot_check_list(MotList list, long long n, long long *bad_index)",
    "{",
    "    for (long long i = threadIdx.x; blockIdx.x == 0 && i < n; i += MOT_THREADS)",
    "        if (list.at[i] < 0 || list.at[i] >= list.size)",
    "            *bad_index = list.at[i];",
    "}",
    "",
    "/* sum += a[m, k] b[k, n]: of the tile at the start of both, that may be larger than m x n. */",
    "__device__ void mot_add_product(float (*sum)[MOT_PATCH], const float *a, long long a_m, long long a_k,",
    "                                const float *b, long long b_k, long long b_n, long long m, long long n,",
    "                                long long k, MotList list)",
    "{",
    "    __shared__ float a_tile[MOT_DEPTH][MOT_TILE + 1], b_tile[MOT_DEPTH][MOT_TILE + 1];",
    "    const int row = threadIdx.x / MOT_STEP, column = threadIdx.x % MOT_STEP;",
    "    for (long long at = 0; at < k; at += MOT_DEPTH) {",
    "        mot_load_tile(a_tile, a, a_m, at, a_k, m, k, list);",
    "        mot_load_tile(b_tile, b, b_n, at, b_k, n, k, list);",
    "        __syncthreads();",
    "        for (int d = 0; d < MOT_DEPTH; d++)",
    "            for (int i = 0; i < MOT_PATCH; i++)",
    "                for (int j = 0; j < MOT_PATCH; j++)",
    "                    sum[i][j] += a_tile[d][row + i * MOT_STEP] * b_tile[d][column + j * MOT_STEP];",
    "        __syncthreads();",
    "    }",
    "}",
    "",
    "__device__ void mot_store_tile(float *c, long long c_m, long long m, long long n, float (*sum)[MOT_PATCH])",
    "{",
    "    const int row = threadIdx.x / MOT_STEP, column = threadIdx.x % MOT_STEP;",
    "    for (int i = 0; i < MOT_PATCH; i++)",
    "        for (int j = 0; j < MOT_PATCH; j++)",
    "            if (row + i * MOT_STEP < m && column + j * MOT_STEP < n)",
    "                c[(row + i * MOT_STEP) * c_m + column + j * MOT_STEP] = sum[i][j];",
    "}",
    NULL,
};
/* clang-format on */

static void print_contract(MotCuda *c)
{
    const MotNest *nest = c->nest;
    const MotContract *k = &nest->contract;
    mot_cuda_line(c, "const long long m = %s, n = %s;", mot_cuda_extent(c, k->m),
                  mot_cuda_extent(c, k->n));
    if (k->has_list) {
        mot_cuda_line(c, "const MotList list = {b%u, %s};", k->list,
                      mot_cuda_extent(c, k->n_positions));
        mot_cuda_line(c, "mot_check_list(list, %s, bad_index);", mot_cuda_extent(c, k->k));
    } else {
        mot_cuda_line(c, "const MotList list = {0, 0};");
    }
    mot_cuda_line(c, "const long long columns = (n + MOT_TILE - 1) / MOT_TILE;");
    mot_cuda_line(c, "const long long tiles = (m + MOT_TILE - 1) / MOT_TILE * columns;");
    mot_cuda_open_blocks(
        c, mot_arena_printf(&c->ctx->arena, "tiles * %s", mot_cuda_points(c, 0, nest->n_kept)));
    mot_cuda_line(c, "const long long m0 = task %% tiles / columns * MOT_TILE, n0 = task %% tiles "
                     "%% columns * MOT_TILE;");
    mot_cuda_set_point(c, "(task / tiles)", 0, nest->n_kept);
    mot_cuda_line(c, "float sum[MOT_PATCH][MOT_PATCH] = {};");
    mot_cuda_open(c, "for (long long point = 0; point < %s; point++)",
                  mot_cuda_points(c, nest->n_kept, nest->n_loops));
    mot_cuda_set_point(c, "point", nest->n_kept, nest->n_loops);
    const char *a_m = mot_cuda_extent(c, k->a_m), *b_n = mot_cuda_extent(c, k->b_n);
    mot_cuda_line(c, "const float *a = b%u + (%s) + m0 * %s;", k->a.buf,
                  mot_cuda_loops_place(c, &k->a, 0, nest->n_loops), a_m);
    mot_cuda_line(c, "const float *b = b%u + (%s) + n0 * %s;", k->b.buf,
                  mot_cuda_loops_place(c, &k->b, 0, nest->n_loops), b_n);
    mot_cuda_line(c, "mot_add_product(sum, a, %s, %s, b, %s, %s, m - m0, n - n0, %s, list);", a_m,
                  mot_cuda_extent(c, k->a_k), mot_cuda_extent(c, k->b_k), b_n,
                  mot_cuda_extent(c, k->k));
    mot_cuda_close(c);
    const char *c_m = mot_cuda_extent(c, k->c_m);
    mot_cuda_line(c, "mot_store_tile(b%u + (%s) + m0 * %s + n0, %s, m - m0, n - n0, sum);",
                  k->c.buf, mot_cuda_loops_place(c, &k->c, 0, nest->n_kept), c_m, c_m);
    mot_cuda_close(c);
}

const MotCudaShape mot_cuda_contract = {.library = {contract_library}, .print = print_contract};

/* ---- Scatter ---- */

/* A thread is a column; it goes through the index in order: equal indices add up so. */

enum { INDEX = 2, N_LOOPS };

static void print_scatter(MotCuda *c)
{
    const MotScatter *s = &c->nest->scatter;
    const char *size = mot_cuda_extent(c, s->size), *stride = mot_cuda_extent(c, s->axis_stride);
    mot_cuda_open_threads(c, mot_cuda_points(c, 0, INDEX));
    mot_cuda_set_point(c, "task", 0, INDEX);
    mot_cuda_line(c, "float *column = b%u + %s;", s->result.buf,
                  mot_cuda_loops_place(c, &s->result, 0, INDEX));
    mot_cuda_line(c, "for (long long row = 0; row < %s; row++)", size);
    mot_cuda_line(c, "    column[row * %s] = 0;", stride);
    mot_cuda_open(c, "for (long long i%d = 0; i%d < %s; i%d++)", INDEX, INDEX,
                  mot_cuda_extent(c, c->nest->loop[INDEX].extent), INDEX);
    mot_cuda_line(c, "const long long row = b%u[%s];", s->index.buf,
                  mot_cuda_loops_place(c, &s->index, 0, N_LOOPS));
    mot_cuda_line(c, "if (row >= 0 && row < %s)", size);
    mot_cuda_line(c, "    column[row * %s] += b%u[%s];", stride, s->update.buf,
                  mot_cuda_loops_place(c, &s->update, 0, N_LOOPS));
    mot_cuda_line(c, "else");
    mot_cuda_line(c, "    *bad_index = row;");
    mot_cuda_close(c);
    mot_cuda_close(c);
}

const MotCudaShape mot_cuda_scatter = {.print = print_scatter};
