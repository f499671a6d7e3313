/*
 * Minimising a sum of tables over discrete variables: the combinatorial core of the planner, which
 * knows neither graphs nor devices.
 *
 * A label is (seconds, bytes held whole by every device, bytes dealt out by the shares); labels add
 * component by component. Without memory the minimum of the seconds is exact. With memory the
 * Pareto front is kept, at most MOT_MAX_LABELS labels an entry.
 */
#ifndef MOTLEY_PASSES_PLAN_ELIMINATE_H
#define MOTLEY_PASSES_PLAN_ELIMINATE_H

#include "support/context.h"

enum { MOT_MAX_LABELS = 32, MOT_MAX_TABLE = 1000000, MOT_BEAM_WIDTH = 256 };

typedef struct MotLabel {
    double seconds, whole, split;
} MotLabel;

/* One label an assignment of the variables in scope (ascending), the last one fastest. */
typedef struct MotTable {
    uint32_t n_scope, *scope;
    MotLabel *label;
} MotTable;

typedef struct MotProblem {
    uint32_t n_vars;
    uint32_t *n_choices; /* [n_vars], each >= 1 */
    MotVec(MotTable) tables;
    bool has_memory;  /* keep fronts; else the seconds alone decide */
    size_t max_table; /* entries of the largest table; 0: MOT_MAX_TABLE */
} MotProblem;

/* Non-dominated assignments, the fastest first. */
typedef struct MotSolutions {
    uint32_t n;
    MotLabel *label;
    uint32_t **choice;    /* [n][n_vars] */
    bool is_exact;        /* the first one is a minimum of the seconds */
    uint32_t width;       /* variables in scope of the largest table made */
    size_t largest_table; /* entries */
} MotSolutions;

/*
 * Variable elimination in min-fill order; beam search where a table would exceed the limit
 * (is_exact says).
 */
void mot_minimise(MotCtx *ctx, const MotProblem *problem, MotSolutions *out_solutions);
/* The sum of all tables under an assignment. */
MotLabel mot_problem_evaluate(const MotProblem *problem, const uint32_t *choice);
/* Beam search over the variables in order, then best responses until none improves. */
void mot_minimise_by_beam(MotCtx *ctx, const MotProblem *problem, MotSolutions *out_solutions);

/* The entry of a table, or of a message over this scope, under an assignment. */
size_t mot_table_index(const uint32_t *scope, uint32_t n_scope, const uint32_t *n_choices,
                       const uint32_t *choice);
/* The next assignment of the variables in scope, the last one fastest; false after the last one. */
bool mot_table_next(const uint32_t *scope, uint32_t n_scope, const uint32_t *n_choices,
                    uint32_t *choice);
static inline MotLabel mot_label_add(MotLabel a, MotLabel b)
{
    return (MotLabel){a.seconds + b.seconds, a.whole + b.whole, a.split + b.split};
}

#endif
