/*
 * Beam search, for problems whose width is beyond elimination. The result is an upper bound of the
 * minimum.
 */
#include "passes/plan/eliminate.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    MotLabel label;
    uint32_t parent, choice;
} State;

typedef struct {
    MotCtx *ctx;
    const MotProblem *p;
    MotVec(uint32_t) * due;  /* [n_vars] the tables whose last variable it is */
    MotVec(uint32_t) * near; /* [n_vars] all its tables */
} Beam;

static MotLabel add_tables(const Beam *b, const uint32_t *tables, uint32_t n,
                           const uint32_t *choice)
{
    MotLabel sum = {0};
    for (uint32_t i = 0; i < n; i++) {
        const MotTable *t = &b->p->tables.data[tables[i]];
        sum = mot_label_add(
            sum, t->label[mot_table_index(t->scope, t->n_scope, b->p->n_choices, choice)]);
    }
    return sum;
}

static int compare_states(const void *a, const void *b)
{
    const State *x = a, *y = b;
    if (x->label.seconds != y->label.seconds)
        return x->label.seconds < y->label.seconds ? -1 : 1;
    if (x->parent != y->parent)
        return x->parent < y->parent ? -1 : 1;
    return (x->choice > y->choice) - (x->choice < y->choice);
}

/*
 * Extends every assignment in `rows` by all choices of `var` and keeps the best. Returns how many.
 */
static uint32_t extend(const Beam *b, uint32_t var, uint32_t **rows, MotLabel *labels, uint32_t n,
                       uint32_t **scratch)
{
    MotArenaMark mark = mot_arena_mark(&b->ctx->arena);
    uint32_t n_choices = b->p->n_choices[var], n_states = 0;
    State *states = mot_arena_array(&b->ctx->arena, State, (size_t)n * n_choices);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t s = 0; s < n_choices; s++) {
            rows[i][var] = s;
            MotLabel more = add_tables(b, b->due[var].data, b->due[var].n, rows[i]);
            states[n_states++] = (State){mot_label_add(labels[i], more), i, s};
        }
    qsort(states, n_states, sizeof *states, compare_states);
    n_states = n_states < MOT_BEAM_WIDTH ? n_states : MOT_BEAM_WIDTH;
    for (uint32_t i = 0; i < n_states; i++) {
        memcpy(scratch[i], rows[states[i].parent], (var + 1) * sizeof **scratch);
        scratch[i][var] = states[i].choice;
        labels[i] = states[i].label;
    }
    mot_arena_rewind(&b->ctx->arena, mark);
    return n_states;
}

/* Changes one variable at a time as long as the seconds fall. */
static void improve(const Beam *b, uint32_t *choice)
{
    for (bool is_changed = true; is_changed;) {
        is_changed = false;
        for (uint32_t v = 0; v < b->p->n_vars; v++) {
            uint32_t best = choice[v];
            double least = add_tables(b, b->near[v].data, b->near[v].n, choice).seconds,
                   before = least;
            for (uint32_t s = 0; s < b->p->n_choices[v]; s++) {
                choice[v] = s;
                double seconds = add_tables(b, b->near[v].data, b->near[v].n, choice).seconds;
                if (seconds < least && seconds < before * (1 - 1e-12)) {
                    least = seconds;
                    best = s;
                    is_changed = true;
                }
            }
            choice[v] = best;
        }
    }
}

void mot_minimise_by_beam(MotCtx *ctx, const MotProblem *problem, MotSolutions *out_solutions)
{
    MotArena *arena = &ctx->arena;
    Beam b = {.ctx = ctx, .p = problem};
    b.due = mot_arena_alloc_array(arena, problem->n_vars + 1, sizeof *b.due);
    b.near = mot_arena_alloc_array(arena, problem->n_vars + 1, sizeof *b.near);
    for (uint32_t t = 0; t < problem->tables.n; t++) {
        const MotTable *table = &problem->tables.data[t];
        for (uint32_t i = 0; i < table->n_scope; i++)
            mot_vec_push(arena, &b.near[table->scope[i]], t);
        if (table->n_scope)
            mot_vec_push(arena, &b.due[table->scope[table->n_scope - 1]], t);
    }
    uint32_t *rows[2][MOT_BEAM_WIDTH], n = 1, side = 0;
    MotLabel labels[MOT_BEAM_WIDTH] = {{0}};
    for (uint32_t i = 0; i < MOT_BEAM_WIDTH; i++)
        for (int k = 0; k < 2; k++)
            rows[k][i] = mot_arena_array(arena, uint32_t, problem->n_vars + 1);
    for (uint32_t v = 0; v < problem->n_vars; v++, side = !side)
        n = extend(&b, v, rows[side], labels, n, rows[!side]);
    improve(&b, rows[side][0]);
    out_solutions->n = 1;
    out_solutions->choice = mot_arena_array(arena, uint32_t *, 1);
    out_solutions->choice[0] = rows[side][0];
    out_solutions->label = mot_arena_array(arena, MotLabel, 1);
    out_solutions->label[0] = mot_problem_evaluate(problem, rows[side][0]);
    out_solutions->is_exact = false;
}
