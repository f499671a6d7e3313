/* Between the measurements in the shared region and a policy. */
#include "runtime/balance.h"

MotBalancer mot_balancer_make(MotSession *session, const MotPolicy *policy)
{
    return (MotBalancer){session, policy, {0}, -1, {-1, 0}};
}

/* A modelled change of shares: all that moves goes over the slowest link, one after the other. */
static double model_resize(const MotCluster *cluster, int64_t bytes)
{
    double seconds = 0;
    for (uint32_t a = 0; a < cluster->devices.n; a++)
        for (uint32_t b = 0; b < a; b++) {
            MotLink link = mot_cluster_link(cluster, a, b);
            double s = link.latency + (double)bytes / link.bandwidth;
            seconds = s > seconds ? s : seconds;
        }
    return seconds;
}

MotStatus mot_balancer_before(MotBalancer *b, int64_t step)
{
    b->resized = (MotResized){-1, 0};
    if (step != b->effective)
        return MOT_OK;
    int64_t start = mot_now_ns();
    MOT_TRY(mot_session_reshare(b->session, 0, 0, b->pending.share, &b->resized.bytes));
    const MotCluster *cluster = mot_session_cluster(b->session);
    b->resized.seconds = cluster->is_modelled ? model_resize(cluster, b->resized.bytes)
                                              : (double)(mot_now_ns() - start) * 1e-9;
    return MOT_OK;
}

static void decide(const MotBalancer *b, int64_t step, int64_t steps, MotDecision *out)
{
    MotRankTimes rank[MOT_MAX_RANKS];
    int64_t share[MOT_MAX_RANKS];
    uint32_t n = mot_session_ranks(b->session);
    for (uint32_t i = 0; i < n; i++) {
        const MotRankState *state = mot_session_rank(b->session, i);
        share[i] = mot_session_share(b->session, i);
        rank[i] = (MotRankTimes){.resizable = (double)state->resizable_ns * 1e-9,
                                 .other = (double)(state->busy_ns - state->resizable_ns) * 1e-9,
                                 .comm = (double)state->comm_ns * 1e-9,
                                 .wait = (double)state->wait_ns * 1e-9};
    }
    MotStepTimes times = {step, steps, n, share, rank, b->resized.seconds};
    b->policy->decide(b->policy->self, &times, out);
}

void mot_balancer_after(MotBalancer *b, int64_t step, int64_t steps, MotDecision *out)
{
    *out = (MotDecision){.kind = MOT_BALANCE_KEEP};
    if (!b->policy)
        return;
    decide(b, step, steps, out);
    if (out->kind != MOT_BALANCE_MOVE && out->kind != MOT_BALANCE_UNDO)
        return;
    if (!mot_session_fits(b->session, 0, 0, out->share)) {
        out->kind = MOT_BALANCE_NO_ROOM;
        return;
    }
    b->pending = *out;
    b->effective = step + MOT_BALANCE_DELAY;
}
