/* Shares by speed, and a local search for better ones. */
#include "passes/plan/shares.h"

#include "passes/plan/cost.h"

#include <math.h>

/* To the smallest integers of the same ratio. */
static void reduce(int64_t *share, uint32_t n)
{
    int64_t divisor = 0;
    for (uint32_t i = 0; i < n; i++)
        divisor = mot_gcd(divisor, share[i]);
    for (uint32_t i = 0; i < n && divisor; i++)
        share[i] /= divisor;
}

enum { MOST = 64 }; /* the largest share by speed */

/*
 * The largest relative error of speed / fastest rounded to multiples of 1 / denominator. Those
 * whose share is 0 whatever the denominator don't count: their error hides the others'.
 */
static double rounding_error(const double *speed, uint32_t n, double fastest, int64_t denominator)
{
    double worst = 0;
    for (uint32_t i = 0; i < n; i++) {
        double exact = speed[i] / fastest * (double)denominator;
        if (round(speed[i] / fastest * (double)MOST) < 1)
            continue;
        double error = fabs(round(exact) - exact) / exact;
        worst = error > worst ? error : worst;
    }
    return worst;
}

/* Of the slowest device at coordinate k of the last axis, for which the others there wait. */
static double speed_at(const MotCluster *cluster, const MotMesh *mesh, uint32_t k)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < mesh->n_devices; i++)
        if (mot_mesh_coordinate(mesh, i, mesh->n_axes - 1) == k)
            least = fmin(least, mot_cost_rates(cluster, mesh->devices[i]).flops);
    return least;
}

void mot_plan_speed_shares(const MotCluster *cluster, const MotMesh *mesh, int64_t *out_share)
{
    double speed[MOT_MAX_DEVICES], fastest = 0, least = 1e300;
    uint32_t n = mesh->axis[mesh->n_axes - 1].n;
    int64_t best = 1;
    for (uint32_t i = 0; i < n; i++) {
        speed[i] = speed_at(cluster, mesh, i);
        fastest = fmax(fastest, speed[i]);
    }
    for (int64_t d = 1; d <= MOST && least > 0.01; d++) {
        double error = rounding_error(speed, n, fastest, d);
        if (error < least) {
            least = error;
            best = d;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        out_share[i] = (int64_t)round(speed[i] / fastest * (double)best);
    reduce(out_share, n);
}

/* Moves one share by `by`; keeps that if it saves time. */
static bool try_share(int64_t *share, int64_t by, MotShareTime *time, void *data, double *best)
{
    if (*share + by < 1)
        return false;
    *share += by;
    double seconds = time(data);
    if (seconds < *best) {
        *best = seconds;
        return true;
    }
    *share -= by;
    return false;
}

double mot_shares_search(int64_t *share, uint32_t n, MotShareTime *time, void *data)
{
    enum { FINE = 16, MOST_ROUNDS = 8 }; /* the smallest share begins as so many */
    int64_t least = 0;
    double best = time(data);
    for (uint32_t i = 0; i < n; i++)
        if (share[i] > 0 && (least == 0 || share[i] < least))
            least = share[i];
    for (uint32_t i = 0; i < n && least > 0; i++)
        share[i] *= (FINE + least - 1) / least;
    for (int64_t step = FINE / 4; step > 0; step /= 2) {
        bool is_better = true;
        for (int round = 0; is_better && round < MOST_ROUNDS; round++) {
            is_better = false;
            for (uint32_t i = 0; i < n; i++)
                if (share[i] > 0)
                    is_better |= try_share(&share[i], step, time, data, &best) ||
                                 try_share(&share[i], -step, time, data, &best);
        }
    }
    reduce(share, n);
    return best;
}
