/*
 * Tiles are those of the initializer's tensor in the file, whatever atoms and permutation the
 * parameter has, so a plan changes nothing. The transform is one contraction a dim with a constant
 * matrix, about s multiply-adds an element and dim; the layout of coefficients comes with it, as
 * another order of letters.
 */
#include "passes/graph/demo_tiles.h"

#include "passes/graph/edit.h"

#include <math.h>
#include <string.h>

enum { N_TILED = 5 };

static int64_t chunk_of(int64_t n, int64_t most)
{
    int64_t chunk = n < most ? n : most;
    while (chunk > 1 && n % chunk != 0)
        chunk--;
    return chunk > 0 ? chunk : 1;
}

MotTiling mot_tiling_make(const MotType *file, int64_t most, bool is_dct)
{
    MotTiling t = {1, 1, 1, 1, 1, is_dct};
    int64_t rows = file->rank >= 2 ? file->dims[file->rank - 2] : 1,
            columns = file->rank >= 1 ? file->dims[file->rank - 1] : 1;
    for (int d = 0; d + 2 < file->rank; d++)
        t.outer *= file->dims[d];
    t.h = chunk_of(rows, most);
    t.w = chunk_of(columns, most);
    t.a = rows / t.h;
    t.c = columns / t.w;
    return t;
}

int64_t mot_tiling_count(const MotTiling *t)
{
    return t->outer * t->a * t->c;
}

int64_t mot_tiling_elements(const MotTiling *t)
{
    return t->h * t->w;
}

/* D[k, i] = c_k cos(pi (2 i + 1) k / 2 n): orthonormal, its inverse is its transpose. */
static MotValue make_dct(MotBuilder *b, int64_t n)
{
    float *data = mot_arena_array(&b->graph->ctx->arena, float, n *n);
    const double pi = 3.14159265358979323846;
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++)
            data[k * n + i] =
                (float)(sqrt((k ? 2.0 : 1.0) / (double)n) *
                        cos(pi * (double)((2 * i + 1) * k % (4 * n)) / (2.0 * (double)n)));
    return mot_constant(b, (MotTensor){mot_type_make(MOT_F32, 2, (int64_t[]){n, n}), data});
}

/* From [.., a, h, c, w] to [.., a, c, h, w] or back, where no transform does it along the way. */
static MotValue swap_inner(MotBuilder *b, MotValue x)
{
    int rank = mot_graph_type(b->graph, x)->rank;
    int64_t perm[MOT_MAX_RANK];
    for (int i = 0; i < rank; i++)
        perm[i] = i;
    perm[rank - 3] = rank - 2;
    perm[rank - 2] = rank - 3;
    return mot_transpose(b, x, perm);
}

/* A contraction over tiled values, with or without replicas before them; `spec` is that with. */
static MotValue transform(MotBuilder *b, MotValue x, MotValue matrix, const char *spec)
{
    if (mot_graph_type(b->graph, x)->rank == N_TILED) {
        MotText text;
        mot_text_init(&text, &b->graph->ctx->arena);
        for (const char *p = spec; *p; p++)
            if (*p != 'r')
                mot_text_printf(&text, "%c", *p);
        spec = mot_text_get(&text);
    }
    return mot_contract(b, x, matrix, spec);
}

/* The shape of tiled values or of their coefficients, behind R if x has replicas. */
static int list_dims(const MotBuilder *b, MotValue like, int rank_without, const int64_t *inner,
                     int n, int64_t *out)
{
    const MotType *type = mot_graph_type(b->graph, like);
    int at = 0;
    if (type->rank > rank_without)
        out[at++] = type->dims[0];
    memcpy(out + at, inner, (size_t)n * sizeof *out);
    return at + n;
}

MotValue mot_tiling_encode(MotBuilder *b, MotValue x, const MotTiling *t)
{
    int64_t dims[MOT_MAX_RANK], inner[] = {mot_tiling_count(t), mot_tiling_elements(t)};
    if (t->is_dct && t->h > 1)
        x = transform(b, x, make_dct(b, t->h), "rlahcw,kh->rlakcw");
    if (t->is_dct && t->w > 1)
        x = transform(b, x, make_dct(b, t->w), "rlahcw,vw->rlachv");
    else
        x = swap_inner(b, x);
    int rank = list_dims(b, x, N_TILED, inner, 2, dims);
    return mot_reshape(b, x, rank, dims);
}

MotValue mot_tiling_decode(MotBuilder *b, MotValue coefficients, const MotTiling *t)
{
    int64_t dims[MOT_MAX_RANK], inner[] = {t->outer, t->a, t->c, t->h, t->w};
    int rank = list_dims(b, coefficients, 2, inner, N_TILED, dims);
    MotValue x = mot_reshape(b, coefficients, rank, dims);
    if (t->is_dct && t->w > 1)
        x = transform(b, x, make_dct(b, t->w), "rlachv,vw->rlahcw");
    else
        x = swap_inner(b, x);
    return t->is_dct && t->h > 1 ? transform(b, x, make_dct(b, t->h), "rlakcw,kh->rlahcw") : x;
}

/* ---- Between a parameter's layout and its file's tensor, cut to tiles ---- */

MotValue mot_tiling_cut(MotBuilder *b, MotValue by_replica, const MotAttr_param *param,
                        const MotTiling *t)
{
    int64_t r = mot_graph_type(b->graph, by_replica)->dims[0];
    int64_t perm[MOT_MAX_RANK] = {0}, dims[] = {r, t->outer, t->a, t->h, t->c, t->w};
    for (uint32_t i = 0; i < param->perm.n; i++)
        perm[param->perm.data[i] + 1] = i + 1;
    if (param->perm.n)
        by_replica = mot_transpose(b, by_replica, perm);
    return mot_reshape(b, by_replica, N_TILED + 1, dims);
}

MotValue mot_tiling_join(MotBuilder *b, MotValue x, const MotType *value,
                         const MotAttr_param *param)
{
    int64_t atoms[MOT_MAX_RANK] = {0};
    if (!param->perm.n)
        return mot_reshape(b, x, value->rank, value->dims);
    for (int i = 0; i < value->rank; i++)
        atoms[param->perm.data[i]] = value->dims[i];
    return mot_transpose(b, mot_reshape(b, x, value->rank, atoms), param->perm.data);
}

MotValue mot_tiling_join_replicas(MotBuilder *b, MotValue x, const MotType *value,
                                  const MotAttr_param *param)
{
    int64_t atoms[MOT_MAX_RANK] = {mot_graph_type(b->graph, x)->dims[0]}, perm[MOT_MAX_RANK] = {0};
    for (int i = 0; i < value->rank; i++) {
        int at = param->perm.n ? (int)param->perm.data[i] : i;
        atoms[at + 1] = value->dims[i];
        perm[i + 1] = at + 1;
    }
    return mot_transpose(b, mot_reshape(b, x, value->rank + 1, atoms), perm);
}

MotValue mot_tiling_momentum(MotBuilder *b, int64_t replicas, const MotAttr_param *param,
                             const MotType *file, const MotTiling *t)
{
    const char *name = mot_arena_printf(&b->graph->ctx->arena, "%s/demo_residual", param->name);
    MotValue old = mot_edit_find_param(b->graph, name);
    if (old)
        return old;
    int64_t dims[] = {replicas, t->outer, t->a, t->h, t->c, t->w};
    int64_t file_dims[MOT_MAX_RANK + 1] = {replicas};
    memcpy(file_dims + 1, file->dims, (size_t)file->rank * sizeof *file_dims);
    MotAttr_param attrs = {
        .name = name, .file_dims = {file_dims, (uint32_t)file->rank + 1}, .state_of = param->name};
    return mot_param(b, &attrs, mot_type_make(MOT_F32, N_TILED + 1, dims));
}
