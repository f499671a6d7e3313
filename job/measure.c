/*
 * Workloads as graphs, split over their rows by all devices of a (part of a) cluster; quartiles of
 * what the ranks measured; and the cost function solved for the rates.
 */
#include "job/measure.h"

#include "ir/builder.h"
#include "job/job.h"
#include "passes/plan/evaluate.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- Workloads ---- */

/* Results have ROWS rows, or sum over them; inputs named x... are split by rows, others whole. */
enum { ROWS = 960, N_LAUNCHES = 256 };

static MotType matrix(int64_t rows, int64_t columns)
{
    return mot_type_make(MOT_F32, 2, (int64_t[]){rows, columns});
}

static void add_output(MotBuilder *b, int i, MotValue v)
{
    mot_output(b, mot_arena_printf(&b->graph->ctx->arena, "o%d", i), v);
}

static MotValue add_rows(MotBuilder *b, int i, int64_t columns)
{
    return mot_input(b, mot_arena_printf(&b->graph->ctx->arena, "x%d", i), matrix(ROWS, columns));
}

/* A linear layer: forward, and both gradients. */
static void build_products(MotBuilder *b, int64_t scale)
{
    int64_t c = 384 / scale, f = 1024 / scale;
    MotValue x = add_rows(b, 0, c), w = mot_input(b, "w", matrix(c, f));
    MotValue y = mot_contract(b, x, w, "bc,cf->bf");
    add_output(b, 0, mot_contract(b, y, w, "bf,cf->bc"));
    add_output(b, 1, mot_contract(b, x, y, "bc,bf->cf"));
}

static void build_functions(MotBuilder *b, int64_t scale)
{
    MotValue x = add_rows(b, 0, 1024 / scale);
    for (int i = 0; i < 3; i++)
        add_output(b, i, mot_result(b, mot_build(b, MOT_OP_GELU, &x, 1, NULL), 0));
}

/* Sums of activations that are not in the core's cache any more. */
static void build_streams(MotBuilder *b, int64_t scale)
{
    enum { N = 8 };
    MotValue x[N];
    for (int i = 0; i < N; i++)
        x[i] = add_rows(b, i, 512 / scale);
    for (int i = 0; i < N; i++)
        add_output(b, i, mot_add(b, x[i], x[(i + 1) % N]));
}

/* Kernels with next to nothing to do. */
static void build_launches(MotBuilder *b, int64_t scale)
{
    (void)scale;
    MotValue x = add_rows(b, 0, 1);
    for (int i = 0; i < N_LAUNCHES; i++)
        x = mot_reduce_max(b, x, (int64_t[]){1}, 1, MOT_KEEP);
    add_output(b, 0, x);
}

/*
 * Collectives whose results the next kernel waits for, so that none can be gathered with another or
 * travel beside kernels: sums over rows, each reduced over the devices.
 */
static void build_small_collectives(MotBuilder *b, int64_t scale)
{
    (void)scale;
    MotValue x = add_rows(b, 0, 16), sum = 0;
    for (int i = 0; i < 24; i++) {
        sum = mot_reduce_sum(b, x, (int64_t[]){0}, 1, MOT_KEEP);
        x = mot_sub(b, x, sum);
    }
    add_output(b, 0, sum);
}

/* The same with gradients of a weight that are reduced, and activations that are gathered. */
static void build_large_collectives(MotBuilder *b, int64_t scale)
{
    enum { FEW = 60 };
    int64_t c = 512 / scale, f = 1024 / scale;
    MotValue x = mot_input(b, "x", matrix(FEW, c)), y = mot_input(b, "xy", matrix(FEW, f)),
             z = add_rows(b, 0, c), sum = 0;
    for (int i = 0; i < 3; i++) {
        MotValue w = mot_contract(b, x, y, "bc,bf->cf");
        y = mot_contract(b, x, w, "bc,cf->bf");
        z = mot_add(b, z, z);
        MotValue all = mot_contract(b, x, z, "bc,ec->be");
        sum = mot_reduce_sum(b, all, (int64_t[]){0, 1}, 2, MOT_DROP);
        add_output(b, i, sum);
    }
    add_output(b, 3, mot_reduce_sum(b, y, (int64_t[]){0, 1}, 2, MOT_DROP));
}

typedef void Build(MotBuilder *b, int64_t scale);

static const struct {
    Build *build;
    size_t work; /* the quantity of MotWork that it consists of */
    size_t rate; /* the field of MotRates that follows */
} workloads[] = {
    {build_streams, offsetof(MotWork, bytes), offsetof(MotRates, bandwidth)},
    {build_functions, offsetof(MotWork, functions), offsetof(MotRates, functions)},
    {build_products, offsetof(MotWork, flops), offsetof(MotRates, flops)},
};
enum { N_WORKLOADS = sizeof workloads / sizeof *workloads };

/* ---- Running ---- */

typedef struct {
    MotCtx *ctx;
    const MotArgs *args;
    MotCluster *cluster; /* the devices that work */
} Measure;

/* Lower quartiles over the runs, in seconds: other work on the machine only ever adds. */
typedef struct {
    double busy[MOT_MAX_RANKS]; /* a rank at work */
    double step, most_busy;     /* from start to end, and the longest at work in it */
} Times;

static bool is_split_input(const MotOp *op)
{
    return op->kind == MOT_OP_INPUT && mot_attrs(op, input)->name[0] == 'x';
}

/* Every op works on its rows: dim 0 of its first operand, or of the input. */
static MotStatus split_rows(const Measure *m, MotGraph *g, MotPlan **out_plan)
{
    MotArena *arena = &m->ctx->arena;
    uint32_t n = m->cluster->devices.n;
    MotPlan *plan = mot_plan_new(m->ctx, g, m->cluster);
    MotMesh mesh = {.n_axes = 1,
                    .n_devices = n,
                    .devices = mot_arena_array(arena, uint32_t, n),
                    .axis = {{"d", n, mot_arena_array(arena, int64_t, n)}}};
    for (uint32_t i = 0; i < n; i++)
        mesh.devices[i] = i;
    mot_plan_speed_shares(m->cluster, &mesh, mesh.axis[0].share);
    mot_vec_push(arena, &plan->stages, (MotStage){mesh});
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotOpId id = g->body.data[i];
        const MotOp *op = mot_graph_op(g, id);
        MotFactors factors;
        MOT_TRY(mot_factors(g, op, &factors));
        plan->ops[id].factor[0] =
            (int8_t)(op->kind == MOT_OP_OUTPUT ? -1
                     : is_split_input(op)      ? mot_factor_of_result(&factors, 0, 0)
                     : op->n_in                ? mot_factor_of_operand(&factors, 0, 0)
                                               : -1);
        mot_plan_apply_factors(plan, id, &factors);
    }
    *out_plan = plan;
    return mot_plan_verify(plan);
}

/* Numbers between -0.5 and 0.5: products of them neither grow nor become denormal. */
static MotStatus write_inputs(const Measure *m, const MotJob *job)
{
    const MotGraph *g = job->graph;
    uint64_t state = 1;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_INPUT)
            continue;
        const MotType *type = mot_graph_type(g, op->out[0]);
        float *data = mot_arena_alloc(&m->ctx->arena, (size_t)mot_type_bytes(type));
        for (int64_t e = 0; e < mot_type_elements(type); e++) {
            state = state * 6364136223846793005 + 1442695040888963407;
            data[e] = (float)(state >> 40) * 0x1p-24f - 0.5f;
        }
        MotTensor tensor = {*type, data};
        MOT_TRY(mot_session_write(job->session, mot_attrs(op, input)->name, &tensor));
    }
    return MOT_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { MOST_RUNS = 40, LEAST_RUNS = 5, WARMUP = 2 };
static const double SECONDS_A_WORKLOAD = 0.25;

/* The lower quartiles of the columns of `sample` [runs][n]. */
static void take_quartiles(const double *sample, uint32_t runs, uint32_t n, double *out)
{
    double column[MOST_RUNS];
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t r = 0; r < runs; r++)
            column[r] = sample[r * n + k];
        qsort(column, runs, sizeof *column, compare_doubles);
        out[k] = column[runs / 4];
    }
}

static MotStatus run(const Measure *m, MotSession *session, Times *out)
{
    uint32_t n = m->cluster->devices.n, width = n + 2, runs = 0;
    double *sample = mot_arena_array(&m->ctx->arena, double, (size_t)MOST_RUNS *width);
    double quartiles[MOT_MAX_RANKS + 2];
    int64_t start = mot_now_ns();
    for (int i = 0; runs < MOST_RUNS; i++) {
        MOT_TRY(mot_session_run(session, MOT_SECTION_STEP));
        if (i < WARMUP)
            continue;
        double *row = &sample[(size_t)runs++ * width];
        for (uint32_t k = 0; k < n; k++) {
            const MotRankState *rank = mot_session_rank(session, k);
            row[k] = (double)rank->busy_ns * 1e-9;
            row[n] = fmax(row[n], (double)(rank->busy_ns + rank->comm_ns + rank->wait_ns) * 1e-9);
            row[n + 1] = fmax(row[n + 1], row[k]);
        }
        if (runs >= LEAST_RUNS && (double)(mot_now_ns() - start) * 1e-9 > SECONDS_A_WORKLOAD)
            break;
    }
    take_quartiles(sample, runs, width, quartiles);
    memcpy(out->busy, quartiles, n * sizeof *quartiles);
    out->step = quartiles[n];
    out->most_busy = quartiles[n + 1];
    return MOT_OK;
}

/* Interpreters get less to do. */
static int64_t scale_of(const MotCluster *cluster)
{
    for (uint32_t i = 0; i < cluster->devices.n; i++)
        if (strcmp(cluster->devices.data[i].backend, "ref") == 0)
            return 16;
    return 1;
}

static MotStatus run_workload(const Measure *m, Build *build, MotPlan **out_plan, Times *out_times)
{
    MotJob job = {.args = m->args, .cluster = m->cluster};
    job.graph = mot_graph_make(m->ctx, "probe");
    MotBuilder b = mot_builder_make(job.graph);
    build(&b, scale_of(m->cluster));
    MOT_TRY(m->ctx->status);
    MOT_TRY(split_rows(m, job.graph, &job.plan));
    *out_plan = job.plan;
    MOT_TRY(mot_job_lower(m->ctx, &job));
    MotSessionOpts opts = {.hang_seconds = 60};
    MOT_TRY(mot_session_open(m->ctx, job.pipeline, m->cluster, &opts, &job.session));
    MotStatus status = write_inputs(m, &job);
    if (status == MOT_OK)
        status = run(m, job.session, out_times);
    mot_session_close(job.session);
    return status;
}

/* ---- Devices ---- */

/*
 * The sum of a quantity over the plan's operators, on devices that hold `part` of the rows between
 * the n of them.
 */
static double count_work(const MotPlan *plan, const MotCost *cost, const MotFactors *factors,
                         size_t quantity, double part, double n)
{
    double sum = 0;
    for (uint32_t i = 0; i < plan->graph->body.n; i++) {
        MotOpId id = plan->graph->body.data[i];
        MotWork work = mot_work_find(plan->graph, &cost->fusion, mot_graph_op(plan->graph, id),
                                     &factors[id], plan->ops[id].factor[0]);
        const MotQuantity *q = (const void *)((const char *)&work + quantity);
        sum += q->whole * n + q->split * part;
    }
    return sum;
}

static bool is_same_kind(const MotDevice *a, const MotDevice *b)
{
    return strcmp(a->backend, b->backend) == 0 && a->threads == b->threads;
}

/* Three digits: what is behind them is noise. */
static double round_rate(double x)
{
    if (!(x > 0) || !isfinite(x))
        return 0;
    double unit = pow(10, floor(log10(x)) - 2);
    return round(x / unit) * unit;
}

typedef struct {
    double seconds, part;
    uint32_t n;
} Pool;

/*
 * Native seconds that the devices of device k's kind were at work, and the part of all rows that
 * they did. Devices without rows do not count.
 */
static Pool pool_kind(const Measure *m, MotCost *cost, const Times *times, uint32_t k)
{
    const MotDevice *device = m->cluster->devices.data;
    const int64_t *rows = mot_cost_parts(cost, 0, ROWS);
    Pool pool = {0};
    for (uint32_t i = 0; i < m->cluster->devices.n; i++)
        if (rows[i] > 0 && is_same_kind(&device[i], &device[k])) {
            pool.seconds += times->busy[i] / device[i].slow;
            pool.part += (double)rows[i] / (double)ROWS;
            pool.n++;
        }
    return pool;
}

/* Sets the rates `which` (an offset into MotDevice) of the devices that work. */
static MotStatus measure_rates(const Measure *m, size_t which)
{
    for (int w = 0; w <= N_WORKLOADS; w++) {
        MotScope scope = mot_scope_begin(m->ctx);
        MotPlan *plan;
        MotCost *cost;
        Times times;
        MotFactors *factors;
        bool is_launches = w == N_WORKLOADS;
        MOT_TRY(run_workload(m, is_launches ? build_launches : workloads[w].build, &plan, &times));
        MOT_TRY(mot_cost_of_plan(plan, &cost));
        MOT_TRY(mot_plan_factors(m->ctx, plan->graph, &factors));
        for (uint32_t k = 0; k < m->cluster->devices.n; k++) {
            MotRates *rates = (MotRates *)(void *)((char *)&m->cluster->devices.data[k] + which);
            Pool pool = pool_kind(m, cost, &times, k);
            if (is_launches) {
                rates->launch = round_rate(pool.seconds / (pool.n * N_LAUNCHES));
                continue;
            }
            double work = count_work(plan, cost, factors, workloads[w].work, pool.part, pool.n);
            if (workloads[w].build == build_products) /* memory comes on top (ir/count.h) */
                pool.seconds -=
                    count_work(plan, cost, factors, offsetof(MotWork, bytes), pool.part, pool.n) /
                    rates->bandwidth;
            *(double *)(void *)((char *)rates + workloads[w].rate) =
                round_rate(work / pool.seconds);
        }
        mot_scope_end(m->ctx, scope);
    }
    return MOT_OK;
}

/* A part of a cluster to work with: memory is not what is asked about. */
static MotCluster *take_devices(MotCtx *ctx, const MotCluster *cluster, const uint32_t *index,
                                uint32_t n)
{
    MotCluster *part = mot_arena_new(&ctx->arena, MotCluster);
    for (uint32_t i = 0; i < n; i++) {
        MotDevice device = cluster->devices.data[index[i]];
        device.memory = 0;
        mot_vec_push(&ctx->arena, &part->devices, device);
        for (uint32_t k = 0; k < i; k++) {
            MotLink link = mot_cluster_link(cluster, index[i], index[k]);
            link.a = i;
            link.b = k;
            mot_vec_push(&ctx->arena, &part->links, link);
        }
    }
    return part;
}

static MotCluster *take_all(MotCtx *ctx, const MotCluster *cluster)
{
    uint32_t index[MOT_MAX_RANKS];
    for (uint32_t i = 0; i < cluster->devices.n; i++)
        index[i] = i;
    return take_devices(ctx, cluster, index, cluster->devices.n);
}

static MotStatus measure_alone(MotCtx *ctx, const MotArgs *args, MotCluster *cluster)
{
    for (uint32_t k = 0; k < cluster->devices.n; k++) {
        MotDevice *device = &cluster->devices.data[k];
        uint32_t first = 0;
        while (!is_same_kind(&cluster->devices.data[first], device))
            first++;
        if (first == k) {
            MotCluster *one = take_devices(ctx, cluster, &k, 1);
            one->devices.data[0].slow = 1;
            one->devices.data[0].slowdowns.n = 0;
            MOT_TRY(measure_rates(&(Measure){ctx, args, one}, offsetof(MotDevice, alone)));
            device->alone = one->devices.data[0].alone;
        }
        device->alone = cluster->devices.data[first].alone;
        device->beside = (MotRates){0};
        device->is_assumed = false;
    }
    return MOT_OK;
}

MotStatus mot_measure_devices(MotCtx *ctx, const MotArgs *args, MotCluster *cluster)
{
    MOT_TRY(measure_alone(ctx, args, cluster));
    if (cluster->devices.n == 1)
        return MOT_OK;
    MotCluster *all = take_all(ctx, cluster);
    MOT_TRY(measure_rates(&(Measure){ctx, args, all}, offsetof(MotDevice, beside)));
    for (uint32_t k = 0; k < cluster->devices.n; k++)
        cluster->devices.data[k].beside = all->devices.data[k].beside;
    return MOT_OK;
}

/* ---- Links ---- */

/*
 * What collectives took above the ranks' work, and what the cost function makes of them: a *
 * latency + b / bandwidth.
 */
typedef struct {
    double seconds, phases, bytes;
} Collectives;

static double sum_collectives(const MotPlan *plan, MotCost *cost, const MotFactors *factors)
{
    MotPlanCost total;
    double sum = 0;
    mot_plan_evaluate(plan, cost, factors, &total);
    for (uint32_t i = 0; i < plan->graph->body.n; i++)
        sum += total.op_collective[plan->graph->body.data[i]];
    return sum;
}

static MotStatus run_collectives(const Measure *m, Build *build, Collectives *out)
{
    MotScope scope = mot_scope_begin(m->ctx);
    MotPlan *plan;
    MotCost *cost;
    MotFactors *factors;
    Times times;
    MOT_TRY(run_workload(m, build, &plan, &times));
    MOT_TRY(mot_cost_of_plan(plan, &cost));
    MOT_TRY(mot_plan_factors(m->ctx, plan->graph, &factors));
    cost->latency[0] = 1;
    cost->bandwidth[0] = INFINITY;
    double phases = sum_collectives(plan, cost, factors);
    cost->latency[0] = 0;
    cost->bandwidth[0] = 1;
    *out = (Collectives){.seconds = times.step - times.most_busy,
                         .phases = phases,
                         .bytes = sum_collectives(plan, cost, factors)};
    mot_scope_end(m->ctx, scope);
    return MOT_OK;
}

/* Two sizes of collectives give two equations for latency and 1 / bandwidth. */
static MotStatus measure_link(const Measure *m, MotLink *link)
{
    static const double LEAST_LATENCY = 1e-8, LEAST_INVERSE = 1e-14;
    Collectives small, large;
    MOT_TRY(run_collectives(m, build_small_collectives, &small));
    MOT_TRY(run_collectives(m, build_large_collectives, &large));
    double determinant = small.phases * large.bytes - large.phases * small.bytes;
    double latency = (small.seconds * large.bytes - large.seconds * small.bytes) / determinant,
           inverse = (small.phases * large.seconds - large.phases * small.seconds) / determinant;
    link->measured_latency = round_rate(fmax(latency, LEAST_LATENCY));
    link->measured_bandwidth = round_rate(1 / fmax(inverse, LEAST_INVERSE));
    return MOT_OK;
}

static bool has_all_pairs(const MotCluster *cluster)
{
    uint32_t n = cluster->devices.n, n_pairs = 0;
    for (uint32_t i = 0; i < cluster->links.n; i++) {
        if (cluster->links.data[i].a == MOT_ALL_DEVICES)
            return true;
        n_pairs++;
    }
    return n_pairs == n * (n - 1) / 2;
}

MotStatus mot_measure_links(MotCtx *ctx, const MotArgs *args, MotCluster *cluster)
{
    if (cluster->devices.n == 1)
        return MOT_OK;
    if (!has_all_pairs(cluster))
        mot_vec_push(&ctx->arena, &cluster->links, mot_cluster_link(&(MotCluster){0}, 0, 0));
    for (uint32_t i = 0; i < cluster->links.n; i++) {
        MotLink *link = &cluster->links.data[i];
        MotCluster *part = link->a == MOT_ALL_DEVICES
                               ? take_all(ctx, cluster)
                               : take_devices(ctx, cluster, (uint32_t[]){link->a, link->b}, 2);
        MOT_TRY(measure_link(&(Measure){ctx, args, part}, link));
    }
    return MOT_OK;
}
