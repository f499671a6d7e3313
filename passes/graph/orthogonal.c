/*
 * M (M^T M)^(-1/2) by Newton-Schulz: X = M / (|M| + eps), then five times X = a X + (b A + c A^2) X
 * with A = X X^T. Contractions only; A is of the shorter side. The coefficients are Muon's (K.
 * Jordan et al., 2024): steep at 0 (a^5 = 485), so that small singular values come up in five
 * steps, at the price of ending anywhere in about [0.68, 1.14] instead of at 1. A vector is a
 * matrix of one row: it ends at a length in that range. Cost: per step 2 s^2 (2 l + s) operations,
 * s the shorter and l the longer side.
 */
#include "passes/graph/orthogonal.h"

enum { N_STEPS = 5 };
static const double linear = 3.4445, cubic = -4.7750, quintic = 2.0315, eps = 1e-7;

/* X / (|X| + eps), each matrix by its own Frobenius norm. */
static MotValue normalize(MotBuilder *b, MotValue x)
{
    MotValue square = mot_reduce_sum(b, mot_mul(b, x, x), (int64_t[]){1, 2}, 2, MOT_KEEP);
    return mot_div(b, x, mot_add_scalar(b, mot_sqrt(b, square), eps));
}

static MotValue iterate(MotBuilder *b, MotValue x, bool is_wide)
{
    MotValue a = mot_contract(b, x, x, is_wide ? "lij,lkj->lik" : "lij,lik->ljk");
    MotValue a2 = mot_contract(b, a, a, "lij,ljk->lik");
    MotValue p = mot_add(b, mot_mul_scalar(b, a, cubic), mot_mul_scalar(b, a2, quintic));
    MotValue px =
        is_wide ? mot_contract(b, p, x, "lik,lkj->lij") : mot_contract(b, x, p, "lij,ljk->lik");
    return mot_add(b, mot_mul_scalar(b, x, linear), px);
}

MotValue mot_orthogonalize(MotBuilder *b, MotValue matrices)
{
    const MotType *type = mot_graph_type(b->graph, matrices);
    bool is_wide = type->dims[1] <= type->dims[2];
    MotValue x = normalize(b, matrices);
    for (int i = 0; i < N_STEPS; i++)
        x = iterate(b, x, is_wide);
    return x;
}
