/* motley bench: timed training steps on one repeated batch, as one JSON line. */
#include "cli/answer.h"
#include "cli/verbs.h"
#include "job/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const MotOption bench_options[] = {{"--steps", "N", "timed steps; default 20"},
                                          {"--warmup", "N", "steps before; default 3"},
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

static MotStatus time_steps(MotCtx *ctx, MotJob *job, int64_t warmup, int64_t steps, double *out_ms,
                            double *out_losses)
{
    for (int64_t i = 0; i < warmup + steps; i++) {
        MotScope scope = mot_scope_begin(ctx);
        double lr;
        MOT_TRY(mot_job_begin_step(job, i + 1, warmup + steps, &lr));
        int64_t start = mot_now_ns();
        MOT_TRY(mot_session_run(job->session, MOT_SECTION_STEP));
        if (i >= warmup)
            out_ms[i - warmup] = (double)(mot_now_ns() - start) / 1e6;
        MOT_TRY(mot_job_scalar(job, "loss", MOT_SECTION_STEP, &out_losses[i]));
        if (!isfinite(out_losses[i]))
            return mot_fail(ctx, MOT_ERR_NUMERICS, MOT_NOWHERE, "the loss of step %lld is %g",
                            (long long)i + 1, out_losses[i]);
        mot_scope_end(ctx, scope);
    }
    return MOT_OK;
}

/*
 * Of the last step, a rank: at work, of that in kernels that shares reach, communicating, waiting
 * for peers.
 */
static void put_ranks(MotJsonWriter *w, const MotJob *job)
{
    mot_json_open(w, "ranks", '[');
    for (uint32_t i = 0; i < mot_session_ranks(job->session); i++) {
        const MotRankState *rank = mot_session_rank(job->session, i);
        mot_json_open(w, NULL, '{');
        mot_json_put_int(w, "share", mot_session_share(job->session, i));
        mot_json_put_number(w, "busy_ms", (double)rank->busy_ns / 1e6);
        mot_json_put_number(w, "resizable_ms", (double)rank->resizable_ns / 1e6);
        mot_json_put_number(w, "comm_ms", (double)rank->comm_ns / 1e6);
        mot_json_put_number(w, "wait_ms", (double)rank->wait_ns / 1e6);
        mot_json_close(w, '}');
    }
    mot_json_close(w, ']');
}

/* In JSON, with --json or without. */
static void print_result(MotCtx *ctx, const MotJob *job, double *ms, const double *losses,
                         int64_t warmup, int64_t steps, double base_mb)
{
    double peak = read_memory_mb("VmHWM:");
    for (uint32_t i = 0; i < mot_session_ranks(job->session); i++)
        peak += mot_session_rank_memory(job->session, i);
    qsort(ms, (size_t)steps, sizeof *ms, compare_doubles);
    double median = ms[steps / 2];
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_number(&w, "ms", median);
    mot_json_put_number(&w, "min", ms[0]);
    mot_json_put_number(&w, "p90", ms[(steps * 9) / 10]);
    mot_json_put_number(&w, "gflop_per_s", mot_job_step_flops(job) / median * 1e-6);
    mot_json_put_number(&w, "peak_rss_mb", round(peak));
    mot_json_put_number(&w, "base_rss_mb", round(base_mb));
    put_ranks(&w, job);
    mot_json_open(&w, "losses", '[');
    for (int64_t i = 0; i < warmup + steps; i++)
        mot_json_put_number(&w, NULL, losses[i]);
    mot_json_close(&w, ']');
    mot_json_close(&w, '}');
    mot_answer_print(&w);
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
        print_result(ctx, &job, ms, losses, warmup, steps, base_mb);
    mot_session_close(job.session);
    return status;
}

const MotVerb mot_verb_bench = {
    .name = "bench",
    .operands = "MODEL|PLAN",
    .summary = "time training steps on one repeated batch",
    .options = (const MotOption *const[]){bench_options, mot_input_options, mot_loss_options,
                                          mot_optimizer_options, mot_step_options,
                                          mot_model_options, mot_device_options, mot_plan_options,
                                          mot_plan_file_options, mot_rank_options, NULL},
    .run = run_bench};
