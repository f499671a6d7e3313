/*
 * Rebalancing while a session runs: what the ranks measured goes to a policy after every step, and
 * what it decides is carried out two steps later. For pipelines of one stage with one mesh axis.
 */
#ifndef MOTLEY_RUNTIME_BALANCE_H
#define MOTLEY_RUNTIME_BALANCE_H

#include "ir/balance.h"
#include "runtime/session.h"

/* What a change of shares took. */
typedef struct MotResized {
    int64_t bytes; /* moved; -1: there was no change */
    double seconds;
} MotResized;

typedef struct MotBalancer {
    MotSession *session;
    const MotPolicy *policy; /* NULL: never changes anything, and costs nothing */
    MotDecision pending;
    int64_t effective;  /* the step before which it is carried out; -1: none */
    MotResized resized; /* before the step at hand */
} MotBalancer;

MotBalancer mot_balancer_make(MotSession *session, const MotPolicy *policy);
/* Before a step, counted from 0: carries out what is due. A failure ends the session. */
MOT_CHECKED MotStatus mot_balancer_before(MotBalancer *balancer, int64_t step);
/*
 * After the step: the policy's decision. Shares that a device has no memory for are not carried
 * out: the decision is then MOT_BALANCE_NO_ROOM.
 */
void mot_balancer_after(MotBalancer *balancer, int64_t step, int64_t steps,
                        MotDecision *out_decision);

#endif
