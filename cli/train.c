/*
 * motley train: a model file, data, devices; out come checkpoints, a log, and the model with
 * trained weights.
 */
#include "cli/train.h"

#include "cli/answer.h"
#include "cli/balance.h"
#include "cli/cutting.h"
#include "cli/log.h"
#include "cli/members.h"
#include "cli/verbs.h"
#include "job/shares.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const MotOption train_options[] = {
    {"--data", "DATA",
     "text:FILE[,unit=byte], tokens:FILE.bin, npy:INPUT=X.npy,LABELS=Y.npy, idx:IMAGES,LABELS or "
     "csv:FILE,label=COLUMN; required"},
    {"--steps", "N", "steps in all; required"},
    {"--out", "DIR", "checkpoints, log and trained model go there; required"},
    {"--seed", "S", "order of the data; default 0"},
    {"--resume", NULL, "go on from the newest sound checkpoint in --out"},
    {"--resize", "STEP:[AXIS=]8/4/2", "new shares before this step, counted from 0 (repeatable)"},
    {"--balance", "MODE",
     "off (default); shares: those of the devices follow their measured speed; auto: and where "
     "they can't, the plan does; migrate: slow devices have others compute columns of their "
     "layers; zero: they leave them out; semi: both"},
    {"--slow", "STEP:DEVICE=K",
     "emulate: from this step on, counted from 0, the device is K times slower than it is "
     "(repeatable)"},
    {"--elastic", NULL, "go on without ranks that die or hang, with the shares of the others"},
    {"--validate", "N", "validate every N steps; always after the last"},
    {"--save", "N", "a checkpoint every N steps; always after the last"},
    {"--log", "FILE", "a JSON line a step; default DIR/steps.jsonl"},
    {"--cast", NULL, "float64 arrays may become float32"},
    {NULL, NULL, NULL}};

/*
 * A resize that a device has no memory for would end the run when its step comes. Each is tried on
 * top of those before it, in the order in which they are carried out: those of other axes stay.
 */
static MotStatus check_memory(MotTrainer *t, const char *const *texts)
{
    MotArena *arena = &t->ctx->arena;
    MotReshare *changes = mot_arena_array(arena, MotReshare, t->n_resizes);
    uint32_t *order = mot_arena_array(arena, uint32_t, t->n_resizes);
    for (uint32_t i = 0; i < t->n_resizes; i++) {
        uint32_t k = i;
        for (; k > 0 && t->resizes[order[k - 1]].step > t->resizes[i].step; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (uint32_t i = 0; i < t->n_resizes; i++) {
        const MotResize *r = &t->resizes[order[i]];
        changes[i] = (MotReshare){r->stage, r->axis, r->shares.data};
        MotStatus status = mot_session_check_shares(t->job->session, changes, i + 1);
        if (status != MOT_OK) {
            mot_note(t->ctx, "for --resize %s", texts[order[i]]);
            return status;
        }
    }
    return MOT_OK;
}

static MotStatus read_resizes(MotCtx *ctx, const MotArgs *args, MotTrainer *t)
{
    uint32_t n;
    const char *const *texts = mot_args_list(args, "--resize", &n);
    t->resizes = mot_arena_array(&ctx->arena, MotResize, n);
    for (uint32_t i = 0; i < n; i++) {
        char *end;
        t->resizes[i].step = strtoll(texts[i], &end, 10);
        if (end == texts[i] || *end != ':')
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "--resize %s: it is --resize STEP:8/4/2/1",
                            mot_quote(&ctx->arena, texts[i]));
        MOT_TRY(mot_args_shares(ctx, end + 1, &t->resizes[i].shares));
        if (t->resizes[i].step < 0 || t->resizes[i].step >= t->steps)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--resize %s: the steps are 0 to %lld",
                            texts[i], (long long)t->steps - 1);
        MOT_TRY(mot_shares_find_axis(ctx, t->job->plan, &t->resizes[i].shares,
                                     mot_arena_printf(&ctx->arena, "--resize %s", texts[i]),
                                     &t->resizes[i].stage, &t->resizes[i].axis));
        t->resizes[i].devices = t->job->plan->stages.data[t->resizes[i].stage].mesh.devices;
    }
    t->n_resizes = n;
    return check_memory(t, texts);
}

/* Whether another one gives the axis its shares after `r`, before the run's first step. */
static bool is_outdated(const MotTrainer *t, const MotResize *r)
{
    for (const MotResize *o = t->resizes; o < t->resizes + t->n_resizes; o++)
        if (o->stage == r->stage && o->axis == r->axis && o->step <= t->first_step &&
            (o->step > r->step || (o->step == r->step && o > r)))
            return true;
    return false;
}

/*
 * The steps before a resumed run's first one are not made: of their resizes those that still hold
 * come before the first.
 */
static void catch_up(MotTrainer *t)
{
    MotResize *kept = mot_arena_array(&t->ctx->arena, MotResize, t->n_resizes);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_resizes; i++) {
        if (is_outdated(t, &t->resizes[i]))
            continue;
        kept[n] = t->resizes[i];
        kept[n].step = kept[n].step < t->first_step ? t->first_step : kept[n].step;
        n++;
    }
    t->resizes = kept;
    t->n_resizes = n;
}

/* Changes of speed that the plan knows nothing of; before the ranks start. */
static MotStatus read_slowdowns(MotCtx *ctx, MotJob *job)
{
    uint32_t n;
    const char *const *texts = mot_args_list(job->args, "--slow", &n);
    for (uint32_t i = 0; i < n; i++) {
        char *name, *end = NULL;
        int64_t step = strtoll(texts[i], &name, 10);
        const char *equals = strrchr(texts[i], '=');
        double slow = equals ? strtod(equals + 1, &end) : 0;
        if (name == texts[i] || *name++ != ':' || step < 0 || !equals || equals < name || *end ||
            !(slow >= 1 && slow <= 1e6))
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "--slow %s: it is --slow STEP:DEVICE=K, with K at least 1",
                            mot_quote(&ctx->arena, texts[i]));
        name = mot_arena_strndup(&ctx->arena, name, (size_t)(equals - name));
        uint32_t d = 0;
        while (d < job->cluster->devices.n && strcmp(job->cluster->devices.data[d].name, name) != 0)
            d++;
        if (d == job->cluster->devices.n)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--slow %s: there is no device %s",
                            mot_quote(&ctx->arena, texts[i]), mot_quote(&ctx->arena, name));
        mot_device_slow_down(ctx, &job->cluster->devices.data[d], step, slow);
    }
    return MOT_OK;
}

/* The programs' inputs, the labels last. */
static MotStatus find_fields(MotTrainer *t, MotDataOpts *opts)
{
    const MotPipeline *p = t->job->pipeline;
    MotDataField *fields = mot_arena_array(&t->ctx->arena, MotDataField, p->vars.n);
    for (int labels = 0; labels < 2; labels++)
        for (uint32_t i = 0; i < p->vars.n; i++) {
            const MotBuf *buf = p->vars.data[i];
            bool is_label = buf->kind == MOT_BUF_INPUT && t->job->loss.input &&
                            strcmp(buf->name, t->job->loss.input) == 0;
            if (buf->kind == MOT_BUF_INPUT && is_label == (labels == 1))
                fields[t->n_fields++] = (MotDataField){buf->name, buf->global, is_label};
        }
    if (t->n_fields == 0 || fields[0].type.rank == 0)
        return mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "the model has no input with a batch dim to train on");
    t->fields = opts->fields = fields;
    opts->n_fields = t->n_fields;
    opts->batch = fields[0].type.dims[0];
    uint32_t n_micro = t->job->n_micro;
    t->batch_size = n_micro * opts->batch;
    t->sample_size = opts->batch ? mot_type_elements(&fields[0].type) / opts->batch : 0;
    t->batch = mot_arena_array(&t->ctx->arena, void *, (size_t)n_micro * t->n_fields);
    for (uint32_t k = 0; k < n_micro * t->n_fields; k++)
        t->batch[k] =
            mot_arena_alloc(&t->ctx->arena, (size_t)mot_type_bytes(&fields[k % t->n_fields].type));
    bool has_tokens = mot_dtype_class(fields[0].type.dtype) == MOT_CLASS_INT;
    t->units_per_step =
        n_micro * (double)(has_tokens ? mot_type_elements(&fields[0].type) : opts->batch);
    t->unit = has_tokens ? "tok" : "samples";
    return MOT_OK;
}

static MotStatus open_data(MotTrainer *t)
{
    MotDataOpts opts = {.n_classes = mot_job_classes(t->job),
                        .ignore = t->job->loss.ignore,
                        .seed = t->seed,
                        .cast = mot_args_has(t->job->args, "--cast")};
    t->data_text = mot_args_get(t->job->args, "--data", NULL);
    if (!t->data_text)
        return mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "--data is needed, such as --data text:FILE");
    t->ctx->doing = "making room for the batches of a step";
    MOT_TRY(find_fields(t, &opts));
    t->ctx->doing = "reading the data";
    return mot_data_open(t->ctx, t->data_text, &opts, &t->data);
}

/*
 * What the run was started with has to be given again: with other values it would go on with the
 * wrong state or data.
 */
static MotStatus refuse_resume(MotTrainer *t, const char *path, const char *what, const char *then,
                               const char *now)
{
    return mot_fail(t->ctx, MOT_ERR_MISMATCH, (MotLoc){path, NULL},
                    "was trained with %s %s, not %s", what, then, now);
}

static MotStatus refuse_option(MotTrainer *t, const char *path, const char *option,
                               const char *then)
{
    const char *now = mot_args_get(t->job->args, option, "the default");
    return refuse_resume(t, path, option, mot_quote(&t->ctx->arena, then),
                         mot_quote(&t->ctx->arena, now));
}

static MotStatus check_loss(MotTrainer *t, const char *path, const char *then)
{
    if (mot_loss_is_spelled(t->ctx, &t->job->loss, then))
        return MOT_OK;
    return refuse_option(t, path, "--loss", then);
}

static MotStatus check_optimizer(MotTrainer *t, const char *path, const char *then)
{
    MotOptimizer optimizer;
    MOT_TRY(mot_optimizer_parse(t->ctx, *then ? then : MOT_JOB_OPTIMIZER, &optimizer));
    if (mot_optimizer_is_same(&t->job->optimizer, &optimizer))
        return MOT_OK;
    return refuse_option(t, path, "--optimizer", then);
}

static MotStatus check_number(MotTrainer *t, const char *path, const char *what, int64_t then,
                              int64_t now)
{
    if (now == then)
        return MOT_OK;
    return refuse_resume(t, path, what, mot_arena_printf(&t->ctx->arena, "%lld", (long long)then),
                         mot_arena_printf(&t->ctx->arena, "%lld", (long long)now));
}

/* The file may have moved or got other weights; other operators are another model. */
static MotStatus check_structure(MotTrainer *t, const char *path, const MotCheckpointInfo *info)
{
    if (strcmp(t->structure, info->structure) == 0)
        return MOT_OK;
    return mot_fail(t->ctx, MOT_ERR_MISMATCH, (MotLoc){path, NULL},
                    "was trained on %s, whose operators are not those of %s",
                    mot_quote(&t->ctx->arena, info->model), t->job->model);
}

/*
 * The number of a character is its place among the characters of the text: other text, other
 * meaning of every token.
 */
static MotStatus check_vocabulary(MotTrainer *t, const char *path, const MotCheckpointInfo *info)
{
    uint32_t n;
    const uint32_t *now = mot_data_vocabulary(t->data, &n);
    if (n == info->n_vocabulary && (n == 0 || memcmp(now, info->vocabulary, n * sizeof *now) == 0))
        return MOT_OK;
    return mot_fail(t->ctx, MOT_ERR_MISMATCH, (MotLoc){path, NULL},
                    "was trained on %s, whose characters are not those of --data %s",
                    mot_quote(&t->ctx->arena, info->data), mot_quote(&t->ctx->arena, t->data_text));
}

static MotStatus resume(MotTrainer *t)
{
    const char *path;
    MotCheckpointInfo info;
    if (!mot_args_has(t->job->args, "--resume"))
        return MOT_OK;
    MOT_TRY(mot_checkpoint_find(t->ctx, t->out, &path, &info));
    MOT_TRY(check_structure(t, path, &info));
    MOT_TRY(check_loss(t, path, info.loss));
    MOT_TRY(check_optimizer(t, path, info.optimizer));
    MOT_TRY(check_number(t, path, "--seed", (int64_t)info.seed, (int64_t)t->seed));
    MOT_TRY(check_number(t, path, "a batch of", info.batch, t->batch_size));
    MOT_TRY(check_number(t, path, "samples of a size of", info.sample, t->sample_size));
    MOT_TRY(check_vocabulary(t, path, &info));
    MOT_TRY(mot_checkpoint_check_ties(t->ctx, t->job->session, path, &info));
    MOT_TRY(mot_checkpoint_load(t->ctx, t->job->session, path));
    t->first_step = info.step;
    t->cut_spent = info.cut_spent;
    if (!mot_args_has(t->job->args, "--shares"))
        MOT_TRY(mot_checkpoint_take_shares(t->ctx, t->job->session, path, &info));
    mot_info(t->ctx, "resumed %s", path);
    if (info.step >= t->steps)
        mot_warn(t->ctx, MOT_NOWHERE, "%s has %lld steps, --steps is %lld: nothing is trained",
                 path, (long long)info.step, (long long)t->steps);
    return MOT_OK;
}

/* `model` is NULL when the run was stopped before it had one. */
static void print_answer(const MotTrainer *t, const char *model)
{
    if (t->talk && model)
        fprintf(t->talk, "trained model  %s\ncheckpoints    %s\nlog            %s\n", model, t->out,
                t->log);
    if (!mot_args_has(t->job->args, "--json"))
        return;
    MotJsonWriter w;
    mot_json_begin(&w, &t->ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_int(&w, "step", t->step);
    mot_json_put_int(&w, "steps", t->steps);
    mot_json_put_int(&w, "resumed_at", t->first_step);
    mot_json_put_number(&w, "loss", t->loss);
    mot_json_put_number(&w, "val_loss", t->val_loss);
    mot_json_put_string(&w, "model", model);
    mot_json_put_string(&w, "checkpoints", t->out);
    mot_json_put_string(&w, "log", t->log);
    mot_json_close(&w, '}');
    mot_answer_print(&w);
}

/* Before anything is planned or started: the folder is ours alone, and what it holds is wanted. */
static MotStatus take_folder(MotTrainer *t)
{
    MOT_TRY(mot_file_make_dir(t->ctx, t->out));
    t->lock_path = mot_arena_printf(&t->ctx->arena, "%s/lock", t->out);
    MotStatus status = mot_file_lock(t->ctx, t->lock_path, &t->lock);
    if (status == MOT_ERR_USAGE)
        mot_hint(t->ctx, "another training writes into this folder; give another --out");
    MOT_TRY(status);
    if (mot_args_has(t->job->args, "--resume") || !mot_checkpoint_is_in(t->ctx, t->out))
        return MOT_OK;
    mot_fail(t->ctx, MOT_ERR_USAGE, (MotLoc){t->out, NULL}, "holds checkpoints of an earlier run");
    mot_hint(t->ctx, "--resume goes on from them; or give another --out");
    return t->ctx->status;
}

static void tell_traffic(MotTrainer *t)
{
    MotArena *arena = &t->ctx->arena;
    const MotDemoTraffic *traffic = &t->traffic;
    t->traffic = mot_demo_traffic(t->job->graph);
    if (t->talk && traffic->message > 0)
        fprintf(t->talk,
                "a replica sends %s a step (AdamW data parallel: %s, %.0f times as much; the "
                "paper's code: %s, %.1f times)\n",
                mot_bytes_text(arena, traffic->message),
                mot_bytes_text(arena, traffic->data_parallel),
                traffic->data_parallel / traffic->message,
                mot_bytes_text(arena, traffic->reference), traffic->reference / traffic->message);
}

static void begin_progress(MotTrainer *t)
{
    t->step_flops = mot_job_step_flops(t->job);
    uint32_t n = mot_session_ranks(t->job->session);
    const char **names = mot_arena_array(&t->ctx->arena, const char *, n);
    for (uint32_t i = 0; i < n; i++)
        names[i] = t->job->cluster->devices.data[mot_session_device(t->job->session, i)].name;
    mot_progress_init(&t->progress, t->talk, names, n);
}

/* Who is at work in the folder from this step on, for `motley top`. */
static MotStatus publish(MotTrainer *t)
{
    MotArena *arena = &t->ctx->arena;
    MotJsonWriter w;
    char folder[4096];
    bool is_relative = t->log[0] != '/' && getcwd(folder, sizeof folder);
    uint32_t n = mot_session_ranks(t->job->session);
    int64_t *pids = mot_arena_array(arena, int64_t, n),
            *shares = mot_arena_array(arena, int64_t, n);
    for (uint32_t i = 0; i < n; i++) {
        pids[i] = mot_session_pid(t->job->session, i);
        shares[i] = mot_session_share(t->job->session, i);
    }
    mot_json_begin(&w, arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_string(&w, "log",
                        is_relative ? mot_arena_printf(arena, "%s/%s", folder, t->log) : t->log);
    mot_json_put_int(&w, "steps", t->steps);
    mot_json_put_int(&w, "step", t->step);
    mot_json_put_ints(&w, "pids", pids, n);
    mot_json_put_ints(&w, "shares", shares, n);
    mot_json_open(&w, "devices", '[');
    for (uint32_t i = 0; i < n; i++)
        mot_json_put_string(&w, NULL, t->progress.devices[i]);
    mot_json_close(&w, ']');
    mot_json_close(&w, '}');
    return mot_file_write(t->ctx, mot_arena_printf(arena, "%s/job.json", t->out),
                          mot_text_get(&w.text), w.text.n);
}

static MotStatus make_folder_again(MotTrainer *t)
{
    FILE *log_file;
    mot_file_unlock(t->lock); /* what these are of is gone */
    mot_control_close(t->control);
    MOT_TRY(mot_file_make_dir(t->ctx, t->out));
    MOT_TRY(mot_file_lock(t->ctx, t->lock_path, &t->lock));
    t->control = mot_control_open(t->ctx, t->out);
    MOT_TRY(publish(t));
    if (access(t->log, F_OK) == 0)
        return MOT_OK;
    MOT_TRY(mot_log_open(t->ctx, t->log, t->step, &log_file));
    fclose(t->log_file);
    t->log_file = log_file;
    return MOT_OK;
}

MotStatus mot_trainer_keep_folder(MotTrainer *t)
{
    enum { MOST_VANISHED = 100 };
    if (access(t->lock_path, F_OK) == 0) {
        t->n_vanished = 0;
        return MOT_OK;
    }
    mot_trainer_make_room(t);
    mot_warn(
        t->ctx, (MotLoc){t->out, NULL},
        "was removed while the training writes into it; it is made again, without what it held");
    MotStatus status = make_folder_again(t);
    if (status == MOT_OK || ++t->n_vanished == MOST_VANISHED)
        return status;
    /* Who removes it may still be at it: all of it again after the next step. */
    mot_error_clear(t->ctx);
    unlink(t->lock_path);
    return MOT_OK;
}

MotStatus mot_trainer_renew(MotTrainer *t)
{
    begin_progress(t);
    MOT_TRY(mot_balance_begin(t));
    return publish(t);
}

static MotStatus export(MotTrainer *t, const char *path)
{
    MotStatus status = mot_job_export(t->ctx, t->job, path);
    if (status != MOT_OK)
        mot_hint(t->ctx,
                 "the trained weights are in a checkpoint: motley ckpt export %s --model MODEL "
                 "-o FILE.onnx",
                 t->out);
    return status;
}

static MotStatus train(MotTrainer *t)
{
    int64_t seed;
    const MotArgs *args = t->job->args;
    MOT_TRY(mot_args_int(t->ctx, args, "--seed", 0, INT64_MAX, 0, &seed));
    t->seed = (uint64_t)seed;
    MOT_TRY(mot_args_int(t->ctx, args, "--steps", 1, INT32_MAX, 0, &t->steps));
    MOT_TRY(mot_args_int(t->ctx, args, "--validate", 1, INT32_MAX, 0, &t->validate_every));
    MOT_TRY(mot_args_int(t->ctx, args, "--save", 1, INT32_MAX, 0, &t->save_every));
    MOT_TRY(read_resizes(t->ctx, args, t));
    MOT_TRY(open_data(t));
    MOT_TRY(resume(t));
    catch_up(t);
    t->step = t->first_step;
    const char *model = mot_arena_printf(&t->ctx->arena, "%s/model.onnx", t->out);
    tell_traffic(t);
    MOT_TRY(mot_members_begin(t));
    MOT_TRY(mot_trainer_renew(t));
    MotStatus status = mot_trainer_run(t);
    if (status == MOT_OK)
        status = export(t, model);
    if (status == MOT_OK || status == MOT_STOPPED)
        print_answer(t, status == MOT_OK ? model : NULL);
    return status;
}

static MotStatus run_train(MotCtx *ctx, const MotArgs *args)
{
    MotJob job;
    MotTrainer t = {.ctx = ctx,
                    .job = &job,
                    .out = mot_args_get(args, "--out", NULL),
                    .talk = mot_args_has(args, "-q")       ? NULL
                            : mot_args_has(args, "--json") ? stderr
                                                           : stdout,
                    .loss = NAN,
                    .val_loss = NAN};
    if (!t.out || !mot_args_has(args, "--steps"))
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--out DIR and --steps N are needed");
    t.log = mot_args_get(args, "--log", mot_arena_printf(&ctx->arena, "%s/steps.jsonl", t.out));
    MOT_TRY(mot_job_import(ctx, args, &job));
    t.structure = mot_arena_printf(&ctx->arena, "%016llx",
                                   (unsigned long long)mot_onnx_fingerprint(ctx, job.file));
    MOT_TRY(mot_job_add_training(ctx, &job, true, false));
    MOT_TRY(take_folder(&t));
    MOT_TRY(mot_job_place(ctx, &job));
    MOT_TRY(read_slowdowns(ctx, &job));
    MOT_TRY(mot_job_start(ctx, &job));
    MotStatus status = train(&t);
    mot_session_close(job.session);
    return status;
}

const MotVerb mot_verb_train = {
    .name = "train",
    .operands = "MODEL|PLAN",
    .summary = "train the model",
    .options = (const MotOption *const[]){train_options, mot_cutting_options, mot_consent_options,
                                          mot_loss_options, mot_optimizer_options, mot_step_options,
                                          mot_model_options, mot_device_options, mot_plan_options,
                                          mot_plan_file_options, mot_rank_options, NULL},
    .run = run_train};
