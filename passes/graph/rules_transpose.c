/*
 * Transposes: one after another are one, those next to a contraction are letters of its spec,
 * others move towards the results behind pointwise ops, where they meet a contraction or each
 * other.
 */
#include "passes/graph/contract_spec.h"
#include "passes/graph/simplify.h"

#include <string.h>

static const int64_t *perm_of(const MotOp *transpose)
{
    return mot_attrs(transpose, perm)->perm.data;
}

static MotValue compose_transposes(MotMatch *m)
{
    const int64_t *outer = perm_of(mot_match_root(m)), *inner = perm_of(mot_match_def(m, 'y'));
    int rank = mot_match_type(m, 'x')->rank;
    int64_t perm[MOT_MAX_RANK];
    for (int d = 0; d < rank; d++)
        perm[d] = inner[outer[d]];
    return mot_transpose(m->b, mot_match_value(m, 'x'), perm);
}

/* One that moves only dims of size 1 keeps the order of the elements. */
static MotValue transpose_to_reshape(MotMatch *m)
{
    const int64_t *perm = perm_of(mot_match_root(m));
    const MotType x = *mot_match_type(m, 'x'), root = *mot_graph_type(m->graph, m->root);
    int64_t last = -1;
    for (int d = 0; d < x.rank; d++) {
        if (x.dims[perm[d]] == 1)
            continue;
        if (perm[d] < last)
            return 0;
        last = perm[d];
    }
    return mot_reshape(m->b, mot_match_value(m, 'x'), root.rank, root.dims);
}

/* ---- Contractions ---- */

/* Reads the operand before it is transposed: its letters in the other order. */
static void absorb(MotMatch *m, MotSpec *spec, MotValue *in, int i)
{
    const MotOp *op = mot_graph_def(m->graph, in[i]);
    if (op->kind != MOT_OP_TRANSPOSE)
        return;
    char letters[MOT_MAX_RANK + 1] = {0};
    for (uint32_t d = 0; d < mot_attrs(op, perm)->perm.n; d++)
        letters[perm_of(op)[d]] = spec->in[i][d];
    memcpy(spec->in[i], letters, sizeof letters);
    in[i] = op->in[0];
}

static MotValue contract_transposed(MotMatch *m)
{
    const MotOp op = *mot_match_root(m);
    MotValue in[2] = {op.in[0], op.in[1]};
    MotSpec spec = mot_spec_of(&op);
    absorb(m, &spec, in, 0);
    absorb(m, &spec, in, 1);
    bool is_changed = in[0] != op.in[0] || in[1] != op.in[1];
    return is_changed ? mot_spec_contract(m->b, &op, in[0], in[1], &spec) : 0;
}

static MotValue transpose_of_contract(MotMatch *m)
{
    const int64_t *perm = perm_of(mot_match_root(m));
    const MotOp op = *mot_match_def(m, 'x');
    MotSpec spec = mot_spec_of(&op), old = spec;
    if (!mot_match_is_single_use(m, mot_match_value(m, 'x')))
        return 0;
    for (size_t d = 0; d < strlen(old.out); d++)
        spec.out[d] = old.out[perm[d]];
    m->b->origin = op.origin;
    return mot_spec_contract(m->b, &op, op.in[0], op.in[1], &spec);
}

/* Letters in the order of the alphabet as they appear, so that equal contractions look equal. */
static MotValue name_letters(MotMatch *m)
{
    const MotOp op = *mot_match_root(m);
    MotSpec spec = mot_spec_of(&op);
    char name[128] = {0}, next = 'a';
    bool is_changed = false;
    for (int i = 0; i < 3; i++)
        for (char *p = i < 2 ? spec.in[i] : spec.out; *p; p++) {
            char *letter = &name[(int)*p];
            *letter = *letter ? *letter : next++;
            is_changed |= *letter != *p;
            *p = *letter;
        }
    spec.cut = spec.cut ? name[(int)spec.cut] : 0;
    return is_changed ? mot_spec_contract(m->b, &op, op.in[0], op.in[1], &spec) : 0;
}

/*
 * An operand that is repeated along a dim which the other operand has too need not be: each of its
 * elements meets all those of the other anyway. Not a dim that is cut, which both must have.
 */
static MotValue read_before_broadcast(MotMatch *m, MotSpec *spec, const MotOp *op, int i)
{
    const MotOp *def = mot_graph_def(m->graph, op->in[i]);
    if (def->kind != MOT_OP_BROADCAST)
        return 0;
    const MotType x = *mot_graph_type(m->graph, def->in[0]),
                  y = *mot_graph_type(m->graph, op->in[i]);
    int64_t dims[MOT_MAX_RANK];
    char letters[MOT_MAX_RANK + 1] = {0};
    int rank = 0;
    for (int d = 0; d < y.rank; d++) {
        int own = d - (y.rank - x.rank);
        bool repeats = own < 0 || x.dims[own] != y.dims[d];
        char letter = spec->in[i][d];
        if (repeats && (mot_spec_find(spec->in[1 - i], letter) < 0 || letter == spec->cut))
            return 0;
        if (repeats)
            continue;
        letters[rank] = spec->in[i][d];
        dims[rank++] = y.dims[d];
    }
    memcpy(spec->in[i], letters, sizeof letters);
    return mot_reshape(m->b, def->in[0], rank, dims);
}

static MotValue contract_broadcast(MotMatch *m)
{
    const MotOp op = *mot_match_root(m);
    MotSpec spec = mot_spec_of(&op);
    for (int i = 0; i < 2; i++) {
        MotValue in[2] = {op.in[0], op.in[1]}, source = read_before_broadcast(m, &spec, &op, i);
        in[i] = source;
        if (source)
            return mot_spec_contract(m->b, &op, in[0], in[1], &spec);
    }
    return 0;
}

/* ---- Pointwise ops ---- */

static bool is_scalar(const MotGraph *g, MotValue v)
{
    return mot_graph_type(g, v)->rank == 0;
}

/* Whether every operand is a scalar, or transposed by the same permutation for this op only. */
static bool are_transposed_alike(const MotMatch *m, const MotOp *op, const MotOp **out_transpose)
{
    const MotOp *first = NULL;
    for (uint32_t i = 0; i < op->n_in; i++) {
        const MotOp *def = mot_graph_def(m->graph, op->in[i]);
        if (is_scalar(m->graph, op->in[i]))
            continue;
        if (def->kind != MOT_OP_TRANSPOSE || !mot_match_is_single_use(m, op->in[i]))
            return false;
        const MotInts *a = &mot_attrs(def, perm)->perm,
                      *b = first ? &mot_attrs(first, perm)->perm : a;
        if (a->n != b->n || memcmp(a->data, b->data, a->n * sizeof *a->data) != 0)
            return false;
        first = def;
    }
    *out_transpose = first;
    return first != NULL;
}

static MotValue transpose_behind(MotMatch *m)
{
    const MotOp op = *mot_match_root(m), *transpose;
    MotValue in[3];
    if (!are_transposed_alike(m, &op, &transpose))
        return 0;
    const int64_t *perm = perm_of(transpose);
    for (uint32_t i = 0; i < op.n_in; i++)
        in[i] = is_scalar(m->graph, op.in[i]) ? op.in[i] : mot_graph_def(m->graph, op.in[i])->in[0];
    MotValue y = mot_result(m->b, mot_build(m->b, op.kind, in, op.n_in, op.attrs), 0);
    return mot_transpose(m->b, y, perm);
}

static const MotRule rules[] = {
    {"transpose-twice", "transpose(?y=transpose(?x))", compose_transposes},
    {"transpose-of-ones", "transpose(?x)", transpose_to_reshape},
    {"contract-transposed", "contract", contract_transposed},
    {"contract-letters", "contract", name_letters},
    {"contract-broadcast", "contract", contract_broadcast},
    {"transpose-of-contract", "transpose(?x=contract)", transpose_of_contract},
    {"transpose-behind", "pointwise", transpose_behind},
    {"transpose-behind-cast", "cast", transpose_behind},
    {"transpose-behind-gelu", "gelu", transpose_behind},
};
const MotRules mot_rules_transpose = MOT_RULES(rules);
