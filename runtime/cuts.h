/*
 * Cuts while a session runs (ZERO-resizing): what the ranks measured goes to a policy after every
 * step, and what it decides is carried out two steps later. How many columns is the policy's; which
 * ones is decided here.
 *
 * By priority those stay whose weights change most: v[c] is the L1 change a step of column c of the
 * whole weight since it was last looked at, every MOT_CUT_REFRESH steps and at every decision (a
 * step: those intervals differ). Columns that a rank computed get p[c] = v[c]; those that it left
 * out keep what they had, as in arXiv 2401.11469. Ranked is what a column would owe at the next
 * look if it were left out: p[c] for each step since it was last computed. So all come back in
 * time: by p alone a few are hardly trained, and the whole layer, which evaluates, is not the one
 * that was. All begin with 1. Costs a copy of the weights of layers that may be cut, in the host.
 * For pipelines of one stage.
 */
#ifndef MOTLEY_RUNTIME_CUTS_H
#define MOTLEY_RUNTIME_CUTS_H

#include "ir/balance.h"
#include "runtime/session.h"

enum { MOT_CUT_REFRESH = 20 }; /* steps: an epoch of small data */

typedef enum MotCutPick {
    MOT_PICK_PRIORITY, /* the columns that would owe most stay */
    MOT_PICK_WINDOW,   /* those of the contiguous window that would owe most */
    MOT_PICK_RANDOM    /* any, other ones at every look */
} MotCutPick;

typedef struct MotCutter MotCutter;

/* In ctx's arena. Parameters have their values. */
MOT_CHECKED MotStatus mot_cutter_make(MotCtx *ctx, MotSession *session, const MotCutPolicy *policy,
                                      MotCutPick pick, uint64_t seed, MotCutter **out_cutter);
/* Before a step, counted from 0: carries out what is due. A failure ends the session. */
MOT_CHECKED MotStatus mot_cutter_before(MotCutter *cutter, int64_t step);
/* After the step: the policy's decision. */
void mot_cutter_after(MotCutter *cutter, int64_t step, int64_t steps, MotCutDecision *out_decision);
/*
 * The part of the layers' products that a rank leaves out with these columns, one number a layer.
 */
double mot_cutter_part(const MotCutter *cutter, uint32_t rank, const int64_t *cut);

/*
 * Which n of the columns [0, n_columns) stay, ascending, by what they owe, p. Of equal ones the
 * first. The random pick follows from `seed` alone. What it takes of the arena it gives back.
 */
void mot_cut_pick(MotArena *arena, MotCutPick pick, const double *p, int64_t n_columns,
                  uint64_t seed, int64_t n, int64_t *out_list);

#endif
