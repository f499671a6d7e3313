/* motley bench: timed training steps on one repeated batch, as one JSON line. */
#include "cli/job.h"
#include "cli/verbs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const MotOption bench_options[] = {
    {"--steps", "N", "timed steps; default 20"},
    {"--warmup", "N", "steps before; default 3"},
    {"--json", NULL, "one JSON line, which is the form anyway"},
    {NULL, NULL, NULL}};

/* A field of /proc/self/status, in MiB. */
static double read_memory_mb(const char *field)
{
    char line[256];
    double kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            kib = strtod(line + strlen(field) + 1, NULL);
    if (file)
        fclose(file);
    return kib / 1024;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* 2 FLOP a multiply-accumulate of the forward contractions, times 3 for training. */
static double count_training_flops(const MotGraph *g)
{
    double flops = 0;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->role == MOT_ROLE_FORWARD)
            flops += mot_op_flops(g, op);
    }
    return 3 * flops;
}

static MotStatus time_steps(MotCtx *ctx, MotJob *job, int64_t warmup, int64_t steps, double *out_ms,
                            double *out_losses)
{
    for (int64_t i = 0; i < warmup + steps; i++) {
        MotScope scope = mot_scope_begin(ctx);
        MOT_TRY(mot_job_set_scalar(job, MOT_INPUT_LR,
                                   mot_schedule_lr(&job->optimizer, i + 1, warmup + steps)));
        MOT_TRY(mot_job_set_scalar(job, MOT_INPUT_STEP, (double)(i + 1)));
        int64_t start = mot_now_ns();
        MOT_TRY(mot_session_run(job->session, MOT_SECTION_STEP));
        if (i >= warmup)
            out_ms[i - warmup] = (double)(mot_now_ns() - start) * 1e-6;
        MOT_TRY(mot_job_scalar(job, "loss", MOT_SECTION_STEP, &out_losses[i]));
        if (!isfinite(out_losses[i]))
            return mot_fail(ctx, MOT_ERR_NUMERICS, MOT_NOWHERE, "the loss of step %lld is %g",
                            (long long)i + 1, out_losses[i]);
        mot_scope_end(ctx, scope);
    }
    return MOT_OK;
}

/* Of the last step, a rank: at work, in collectives, waiting for peers. */
static void print_ranks(const MotJob *job)
{
    printf("\"ranks\": [");
    for (uint32_t i = 0; i < job->program->mesh.n_devices; i++) {
        const MotRankState *rank = mot_session_rank(job->session, i);
        printf("%s{\"busy_ms\": %.3f, \"comm_ms\": %.3f, \"wait_ms\": %.3f}", i ? ", " : "",
               (double)rank->busy_ns * 1e-6, (double)rank->comm_ns * 1e-6,
               (double)rank->wait_ns * 1e-6);
    }
    printf("], ");
}

static void print_result(const MotJob *job, double *ms, const double *losses, int64_t warmup,
                         int64_t steps, double base_mb)
{
    double peak = read_memory_mb("VmHWM:");
    for (uint32_t i = 0; i < job->program->mesh.n_devices; i++)
        peak += mot_session_rank_memory(job->session, i);
    qsort(ms, (size_t)steps, sizeof *ms, compare_doubles);
    double median = ms[steps / 2];
    printf("{\"ms\": %.3f, \"min\": %.3f, \"p90\": %.3f, \"gflop_per_s\": %.1f, \"peak_rss_mb\": "
           "%.0f, \"base_rss_mb\": %.0f, ",
           median, ms[0], ms[(steps * 9) / 10], count_training_flops(job->graph) / median * 1e-6,
           peak, base_mb);
    print_ranks(job);
    printf("\"losses\": [");
    for (int64_t i = 0; i < warmup + steps; i++)
        printf("%s%.9g", i ? ", " : "", losses[i]);
    printf("]}\n");
}

static MotStatus run_bench(MotCtx *ctx, const MotArgs *args)
{
    MotJob job;
    int64_t steps, warmup;
    double base_mb = read_memory_mb("VmRSS:");
    MOT_TRY(mot_args_int(ctx, args, "--steps", 1, 1000000, 20, &steps));
    MOT_TRY(mot_args_int(ctx, args, "--warmup", 0, 1000000, 3, &warmup));
    MOT_TRY(mot_job_import(ctx, args, &job));
    MOT_TRY(mot_job_add_training(ctx, &job, true, true));
    MOT_TRY(mot_job_place(ctx, &job));
    MOT_TRY(mot_job_start(ctx, &job));
    double *ms = mot_arena_array(&ctx->arena, double, steps),
           *losses = mot_arena_array(&ctx->arena, double, warmup + steps);
    MotStatus status = time_steps(ctx, &job, warmup, steps, ms, losses);
    if (status == MOT_OK)
        print_result(&job, ms, losses, warmup, steps, base_mb);
    mot_session_close(job.session);
    return status;
}

const MotVerb mot_verb_bench = {
    .name = "bench",
    .operands = "MODEL",
    .summary = "time training steps on one repeated batch",
    .options =
        (const MotOption *const[]){bench_options, mot_input_options, mot_training_options,
                                   mot_model_options, mot_device_options, mot_rank_options, NULL},
    .run = run_bench};
