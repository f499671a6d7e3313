/*
 * A plan's file holds its graph, its devices, and from what the graph was made. A verb makes the
 * graph again, with the plan's options where none are given, and takes the choices over operator by
 * operator: that shows whether the two belong together, whatever was given.
 */
#include "job/plan_file.h"

#include "frontend/cluster_file.h"
#include "job/shares.h"
#include "passes/plan/transfer.h"
#include "support/file.h"
#include "support/map.h"
#include "support/writer.h"

#include <stdio.h>
#include <string.h>

bool mot_plan_file_is(const char *path)
{
    static const char begin[] = "motley plan";
    char head[sizeof begin - 1] = {0};
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(head, 1, sizeof head, file) : 0;
    if (file)
        fclose(file);
    return n == sizeof head && memcmp(head, begin, n) == 0;
}

/* The options that decide what the graph is. */
static const MotOption *const source_options[] = {mot_loss_options, mot_optimizer_options,
                                                  mot_step_options, mot_model_options, NULL};

/* A plan says what its graph was made from, and nothing for the user: no consent, no way to run. */
static MotStatus check_options(MotCtx *ctx, const char *path, const MotPlanSource *source)
{
    for (uint32_t i = 0; i < source->n_options; i++)
        if (!mot_args_is_text(source_options, source->options[i])) {
            mot_fail(ctx, MOT_ERR_MODEL, (MotLoc){path, NULL}, "a plan can't state the option %s",
                     mot_quote(&ctx->arena, source->options[i]));
            mot_hint(ctx,
                     "it states what its graph was made from; give others on the command line");
            return ctx->status;
        }
    return MOT_OK;
}

MotStatus mot_plan_file_read(MotCtx *ctx, const char *path, MotPlan **out_plan)
{
    const MotFileMap *map;
    MOT_TRY(mot_file_map(ctx, path, &map));
    MOT_TRY(mot_plan_parse(
        ctx, path, mot_arena_strndup(&ctx->arena, (const char *)map->data, map->n), out_plan));
    MOT_TRY(mot_cluster_check(ctx, MOT_ERR_MODEL, path, (*out_plan)->cluster));
    return check_options(ctx, path, &(*out_plan)->source);
}

static MotStatus hash_file(MotCtx *ctx, const char *path, const char **out_hash)
{
    const MotFileMap *map;
    MOT_TRY(mot_file_map(ctx, path, &map));
    *out_hash =
        mot_arena_printf(&ctx->arena, "%016llx", (unsigned long long)mot_hash(map->data, map->n));
    return MOT_OK;
}

MotStatus mot_plan_file_write(MotCtx *ctx, const MotJob *job, const char *path)
{
    MotPlanSource *source = &job->plan->source;
    MotText text;
    mot_text_init(&text, &ctx->arena);
    source->model = job->model;
    source->options = mot_args_texts(ctx, job->args, source_options, &source->n_options);
    MOT_TRY(hash_file(ctx, job->model, &source->hash));
    mot_plan_print(job->plan, &text);
    return mot_file_write(ctx, path, mot_text_get(&text), text.n);
}

/* ---- Whether it belongs ---- */

static MotStatus refuse_device(MotCtx *ctx, const MotDevice *then, const MotDevice *now)
{
    return mot_fail(ctx, MOT_ERR_MISMATCH, MOT_NOWHERE,
                    "the plan is for device %s (%s, %u threads, slow %g, %s), not for %s (%s, %u "
                    "threads, slow %g, %s)",
                    mot_quote(&ctx->arena, then->name), then->backend, then->threads, then->slow,
                    mot_bytes_text(&ctx->arena, then->memory), mot_quote(&ctx->arena, now->name),
                    now->backend, now->threads, now->slow,
                    mot_bytes_text(&ctx->arena, now->memory));
}

/* Rates may have been measured anew since. */
static bool is_same_device(const MotDevice *a, const MotDevice *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->backend, b->backend) == 0 &&
           a->threads == b->threads && mot_device_slows_alike(a, b) && a->memory == b->memory;
}

static bool is_same_link(const MotLink *a, const MotLink *b)
{
    return a->latency == b->latency && a->bandwidth == b->bandwidth;
}

static MotStatus check_cluster(MotCtx *ctx, const MotCluster *then, const MotCluster *now)
{
    if (then->devices.n != now->devices.n)
        return mot_fail(ctx, MOT_ERR_MISMATCH, MOT_NOWHERE, "the plan is for %u devices, not %u",
                        then->devices.n, now->devices.n);
    if (then->is_modelled != now->is_modelled)
        return mot_fail(ctx, MOT_ERR_MISMATCH, MOT_NOWHERE,
                        "the plan is for devices whose clock is %s, not %s",
                        then->is_modelled ? "modelled" : "measured",
                        now->is_modelled ? "modelled" : "measured");
    for (uint32_t i = 0; i < then->devices.n; i++)
        if (!is_same_device(&then->devices.data[i], &now->devices.data[i]))
            return refuse_device(ctx, &then->devices.data[i], &now->devices.data[i]);
    for (uint32_t i = 0; i < then->devices.n; i++)
        for (uint32_t k = 0; k < i; k++) {
            MotLink a = mot_cluster_link(then, i, k), b = mot_cluster_link(now, i, k);
            if (!is_same_link(&a, &b))
                return mot_fail(ctx, MOT_ERR_MISMATCH, MOT_NOWHERE,
                                "the plan is for another link between %s and %s",
                                mot_quote(&ctx->arena, then->devices.data[k].name),
                                mot_quote(&ctx->arena, then->devices.data[i].name));
        }
    return MOT_OK;
}

/* Options that say which devices there are must say the same as the plan; without, it decides. */
static MotStatus take_cluster(MotCtx *ctx, MotJob *job)
{
    const MotCluster *then = job->given->cluster;
    int64_t threads;
    MOT_TRY(mot_args_int(ctx, job->args, "--threads", 1, 1024, 0, &threads));
    for (uint32_t i = 0; i < then->devices.n && threads; i++)
        if (then->devices.data[i].threads != threads)
            return mot_fail(ctx, MOT_ERR_MISMATCH, MOT_NOWHERE,
                            "the plan is for %u threads of device %s, not %lld",
                            then->devices.data[i].threads,
                            mot_quote(&ctx->arena, then->devices.data[i].name), (long long)threads);
    if (mot_args_has(job->args, "-c") || mot_args_has(job->args, "--devices")) {
        MOT_TRY(mot_job_cluster(ctx, job));
        MOT_TRY(check_cluster(ctx, then, job->cluster));
    }
    job->cluster = mot_arena_copy(&ctx->arena, then, sizeof *then);
    return MOT_OK;
}

static bool has_text(const char *const *texts, uint32_t n, const char *text)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(texts[i], text) == 0)
            return true;
    return false;
}

/* What may be the reason that the operators differ: the model, or options that were others. */
static void note_causes(MotCtx *ctx, const MotJob *job)
{
    const MotPlanSource *source = &job->given->source;
    const char *hash = NULL;
    uint32_t n;
    const char *const *now = mot_args_texts(ctx, job->args, source_options, &n);
    if (!source->model)
        return;
    if (hash_file(ctx, job->model, &hash) == MOT_OK && strcmp(hash, source->hash) != 0)
        mot_note(ctx, "it was made from %s, whose content was another than that of %s now",
                 mot_quote(&ctx->arena, source->model), mot_quote(&ctx->arena, job->model));
    for (uint32_t i = 0; i < source->n_options; i++)
        if (!has_text(now, n, source->options[i]))
            mot_note(ctx, "it was made with %s", mot_quote(&ctx->arena, source->options[i]));
    mot_hint(ctx, "motley plan %s makes a new one", job->model);
}

/* A graph that does not accumulate runs once a step, whatever the plan's does. */
static MotStatus check_micro(MotCtx *ctx, const MotJob *job)
{
    uint32_t n = job->n_micro > 1 ? job->n_micro : 1;
    if (n > 1 && n != job->given->n_micro)
        return mot_fail(ctx, MOT_ERR_MISMATCH, MOT_NOWHERE,
                        "the plan is for --accumulate %u, not %u", job->given->n_micro, n);
    job->plan->n_micro = n;
    return MOT_OK;
}

MotStatus mot_plan_file_apply(MotCtx *ctx, MotJob *job)
{
    if (mot_args_has(job->args, "--fix"))
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "--fix: the choices stand in the plan; give it to `motley plan`");
    MOT_TRY(take_cluster(ctx, job));
    MotStatus status = mot_plan_transfer(job->given, job->graph, &job->plan);
    if (status == MOT_ERR_MISMATCH)
        note_causes(ctx, job);
    MOT_TRY(status);
    job->plan->cluster = job->cluster; /* which grows when devices join */
    MOT_TRY(check_micro(ctx, job));
    return mot_shares_set(ctx, job->args, job->plan);
}
