/*
 * The intra-operator problem: variables over the training graph, and the tables that price them.
 *
 * A variable is a forward operator with everything derived from it and the pointwise operators that
 * follow it; its choices are the leader's factors. What the other members split follows from the
 * leader's choice (vars.c). Updates, and parameters with several users, have variables of their
 * own: so sharded updates and sharded storage are found, not given.
 */
#ifndef MOTLEY_PASSES_PLAN_INTRA_H
#define MOTLEY_PASSES_PLAN_INTRA_H

#include "passes/plan/choice.h"
#include "passes/plan/cost.h"
#include "passes/plan/eliminate.h"

/* --fix: operators whose node matches `glob` use the choice of this name. */
typedef struct MotFix {
    const char *glob, *choice;
} MotFix;

typedef struct MotVar {
    MotOpId leader;
    MotVec(MotOpId) members; /* in the order of the body; the leader is the first forward one */
    MotVec(int8_t) choices;  /* of the leader: factors, or MOT_CHOICE_WHOLE */
    int8_t *factor;          /* [choices.n][members.n] what each member splits */
} MotVar;

typedef struct MotUser {
    MotOpId op;
    uint32_t operand;
} MotUser;
typedef MotVec(MotUser) MotUsers;

typedef struct MotIntra {
    MotCtx *ctx;
    MotCost *cost;
    const MotGraph *g;
    const MotOpPlan *given; /* [ops]: what the axes before `axis` split */
    uint32_t axis;          /* the last of the mesh: whose choices these are */
    MotFactors *factors;    /* [ops] */
    MotUsers *users;        /* [values] in the order of the body */
    MotVec(MotVar) vars;
    uint32_t *var_of;    /* [ops]: index + 1; 0 for sinks */
    uint32_t *member_of; /* [ops] */
    MotProblem problem;
    /*
     * Values whose table was too large and was split by users: conversions they share count twice.
     */
    uint32_t n_split_tables;
} MotIntra;

/*
 * The problem of a plan's graph, mesh and cluster under these fixes; fails with MOT_ERR_USAGE for a
 * fix that fixes nothing.
 */
MOT_CHECKED MotStatus mot_intra_open(const MotPlan *plan, const MotFix *fixes, uint32_t n_fixes,
                                     MotIntra **out_intra);
/* Its parts. Variables and their choices: linear in ops but for the number of factors. */
MOT_CHECKED MotStatus mot_intra_make_vars(MotIntra *intra, const MotFix *fixes, uint32_t n_fixes);
/* The tables: operators, storage, and a table a value for the conversions that its users share. */
void mot_intra_make_tables(MotIntra *intra);

/* The factors of an op that the choices could be: what may be split beside what is given. */
bool mot_intra_can_split(const MotIntra *intra, MotOpId op, int factor);
/* The sharding in which an op of this choice needs operand i, and in which it leaves result k. */
MotSharding mot_intra_operand(const MotIntra *intra, MotOpId op, int choice, uint32_t i);
MotSharding mot_intra_result(const MotIntra *intra, MotOpId op, int choice, uint32_t k);

/* What an op splits when the variables choose as given; MOT_CHOICE_WHOLE for sinks. */
int mot_intra_factor(const MotIntra *intra, MotOpId op, const uint32_t *choice);
/* Writes the choices into the plan: factors of ops and shardings of values. */
void mot_intra_apply(const MotIntra *intra, const uint32_t *choice, MotPlan *plan);
/* The same for one variable; the other operators stay as they are. */
void mot_intra_apply_var(const MotIntra *intra, uint32_t var, uint32_t choice, MotPlan *plan);

#endif
