/* The training loop. While the ranks run a step, the host prepares the next batch. */
#include "cli/balance.h"
#include "cli/log.h"
#include "cli/members.h"
#include "cli/replanning.h"
#include "cli/train.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Set by a signal: the step is finished, then all is saved. */
static volatile sig_atomic_t stop_requested;

static void request_stop(int signal)
{
    (void)signal;
    stop_requested = 1;
}

/*
 * SIGPIPE too: after `train | tee` a Ctrl-C reaches both, and who reads may be gone before all is
 * saved. A SIGHUP that nohup has had ignored stays so.
 */
static void watch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGPIPE, SIGHUP};
    struct sigaction action = {.sa_handler = request_stop}, before;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        sigaction(signals[i], &action, &before);
        if (signals[i] == SIGHUP && before.sa_handler == SIG_IGN)
            sigaction(SIGHUP, &before, NULL);
    }
}

/* The host's buffers of one micro-batch. */
static void **batch_of(const MotTrainer *t, uint32_t micro)
{
    return t->batch + (size_t)micro * t->n_fields;
}

static MotStatus write_batch(MotTrainer *t, uint32_t micro)
{
    for (uint32_t k = 0; k < t->n_fields; k++) {
        MotTensor tensor = {t->fields[k].type, batch_of(t, micro)[k]};
        MOT_TRY(mot_session_write_batch(t->job->session, t->fields[k].input, micro, &tensor));
    }
    return MOT_OK;
}

/*
 * A step takes as many batches of the data as it has micro-batches. Which ones follows from its
 * number alone, whoever is there to compute it: so each sample is used once an epoch, through
 * deaths, joins and repeated steps.
 */
static void prepare_step(MotTrainer *t, int64_t step)
{
    uint32_t n = t->job->n_micro;
    for (uint32_t m = 0; m < n && step < t->steps; m++)
        mot_data_batch(t->data, step * n + m, batch_of(t, m));
}

/* Busy time over ranks times the slowest: 1 when all end together. */
static double measure_balance(const MotTrainer *t)
{
    uint32_t n = mot_session_ranks(t->job->session);
    double sum = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        double busy = (double)mot_session_rank(t->job->session, i)->busy_ns;
        sum += busy;
        most = busy > most ? busy : most;
    }
    return most > 0 ? sum / (n * most) : 1;
}

static MotStatus run_step(MotTrainer *t, int64_t step, MotStepReport *r)
{
    MotSession *session = t->job->session;
    int64_t start = mot_now_ns();
    *r = (MotStepReport){.step = step + 1, .steps = t->steps, .unit = t->unit, .norm = NAN};
    for (uint32_t m = 0; m < t->job->n_micro; m++)
        MOT_TRY(write_batch(t, m));
    MOT_TRY(mot_job_begin_step(t->job, step + 1, t->steps, &r->lr));
    mot_session_start(session, MOT_SECTION_STEP);
    prepare_step(t, step + 1);
    MotStatus status = mot_session_wait(session);
    if (mot_members_can_go_on(t, status) && mot_session_held(session) == MOT_HELD_AFTER) {
        mot_members_tell(t); /* the others finished the step */
        status = MOT_OK;
    }
    MOT_TRY(status);
    r->ms = (double)(mot_now_ns() - start) * 1e-6;
    r->balance = measure_balance(t);
    if (t->job->optimizer.clip > 0)
        MOT_TRY(mot_job_scalar(t->job, MOT_OUTPUT_GRAD_NORM, MOT_SECTION_STEP, &r->norm));
    MOT_TRY(mot_job_scalar(t->job, "loss", MOT_SECTION_STEP, &r->loss));
    if (!isfinite(r->loss)) {
        mot_fail(t->ctx, MOT_ERR_NUMERICS, MOT_NOWHERE, "the loss of step %lld is %g",
                 (long long)step + 1, r->loss);
        mot_hint(
            t->ctx,
            "lower the lr, clip gradients (clip=1.0), or resume from the last checkpoint in %s",
            t->out);
    }
    return t->ctx->status;
}

static void report_step(MotTrainer *t, MotStepReport *r)
{
    const MotCluster *cluster = t->job->cluster;
    uint32_t n = mot_session_ranks(t->job->session);
    double *busy = mot_arena_array(&t->ctx->arena, double, n), peak = 0;
    for (uint32_t i = 0; i < n; i++) {
        const MotDevice *device = &cluster->devices.data[mot_session_device(t->job->session, i)];
        busy[i] = (double)mot_session_rank(t->job->session, i)->busy_ns * 1e-6 / r->ms;
        peak += device->is_assumed || device->alone.flops <= 0 ? NAN
                                                               : device->alone.flops / device->slow;
    }
    r->busy = busy;
    r->mfu = t->step_flops / (r->ms * 1e-3 * peak);
    r->rate = t->units_per_step / r->ms * 1e3;
    mot_progress_step(&t->progress, &t->ctx->arena, r);
}

/* What DeMo's replicas send is what it is for: beside it, what data parallelism would. */
static void log_traffic(FILE *log, const MotTrainer *t)
{
    if (t->traffic.message > 0)
        fprintf(log, "\"sent_bytes\": %.0f, \"data_parallel_bytes\": %.0f, ", t->traffic.message,
                t->traffic.data_parallel);
}

static void log_step(FILE *log, const MotTrainer *t, int64_t step, const MotStepReport *r)
{
    fprintf(log, "{\"step\": %lld, \"loss\": %.9g, ", (long long)step + 1, r->loss);
    if (!isnan(r->norm))
        fprintf(log, "\"norm\": %.6g, ", r->norm);
    fprintf(log, "\"lr\": %.9g, \"ms\": %.3f, ", r->lr, r->ms);
    log_traffic(log, t);
    fprintf(log, "\"ranks\": [");
    for (uint32_t i = 0; i < mot_session_ranks(t->job->session); i++) {
        const MotRankState *rank = mot_session_rank(t->job->session, i);
        fprintf(log,
                "%s{\"share\": %lld, \"busy_ms\": %.3f, \"resizable_ms\": %.3f, \"comm_ms\": %.3f, "
                "\"wait_ms\": %.3f}",
                i ? ", " : "", (long long)mot_session_share(t->job->session, i),
                (double)rank->busy_ns * 1e-6, (double)rank->resizable_ns * 1e-6,
                (double)rank->comm_ns * 1e-6, (double)rank->wait_ns * 1e-6);
    }
    fprintf(log, "]}\n");
    fflush(log);
}

/* Mean loss over the validation batches; 0 batches: NaN. */
static MotStatus mean_validation_loss(MotTrainer *t, double *out_loss)
{
    int64_t n = mot_data_validation_batches(t->data);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double loss;
        mot_data_validation_batch(t->data, i, t->batch);
        MOT_TRY(write_batch(t, 0));
        MOT_TRY(mot_session_run(t->job->session, MOT_SECTION_EVAL));
        MOT_TRY(mot_job_scalar(t->job, "loss", MOT_SECTION_EVAL, &loss));
        sum += loss;
    }
    *out_loss = n ? sum / (double)n : NAN;
    return MOT_OK;
}

/* The last step's stays. */
void mot_trainer_make_room(MotTrainer *t)
{
    if (t->step < t->steps)
        mot_progress_clear(&t->progress);
    else
        mot_progress_end(&t->progress);
}

static MotStatus validate_and_report(MotTrainer *t, int64_t step, FILE *log)
{
    double loss;
    if (mot_data_validation_batches(t->data) == 0) {
        mot_trainer_make_room(t);
        mot_warn(t->ctx, MOT_NOWHERE,
                 "no validation: the last 10 %% of the data are less than a batch");
        return MOT_OK;
    }
    MOT_TRY(mean_validation_loss(t, &loss));
    if (!isfinite(loss))
        return mot_fail(t->ctx, MOT_ERR_NUMERICS, MOT_NOWHERE,
                        "the validation loss after step %lld is %g", (long long)step, loss);
    t->val_loss = loss;
    fprintf(log, "{\"step\": %lld, \"val_loss\": %.9g}\n", (long long)step, loss);
    fflush(log);
    mot_trainer_make_room(t);
    if (t->talk)
        fprintf(t->talk, "validation after step %lld: loss %.4f\n", (long long)step, loss);
    prepare_step(t, step); /* validation took the buffers */
    return MOT_OK;
}

MotStatus mot_trainer_save(MotTrainer *t)
{
    MotCheckpointInfo info = {.step = t->step,
                              .seed = t->seed,
                              .batch = t->batch_size,
                              .sample = t->sample_size,
                              .cut_spent = t->cut_spent,
                              .model = t->job->model,
                              .structure = t->structure,
                              .n_dims = t->job->n_dims,
                              .loss = mot_args_get(t->job->args, "--loss", NULL),
                              .optimizer =
                                  mot_args_get(t->job->args, "--optimizer", MOT_JOB_OPTIMIZER),
                              .data = t->data_text};
    MotCheckpointDim *dims = mot_arena_array(&t->ctx->arena, MotCheckpointDim, info.n_dims);
    for (uint32_t i = 0; i < info.n_dims; i++)
        dims[i] = (MotCheckpointDim){t->job->dims[i].name, t->job->dims[i].size};
    info.dims = dims;
    info.vocabulary = mot_data_vocabulary(t->data, &info.n_vocabulary);
    return mot_checkpoint_save(t->ctx, t->job->session, t->out, &info);
}

/*
 * The shares of a --resize for the devices that are members now; those that it does not name keep
 * theirs. False: none would have any.
 */
static bool find_shares(const MotTrainer *t, const MotResize *resize, int64_t *out_share)
{
    const MotMesh *mesh = &t->job->pipeline->stages.data[resize->stage]->mesh;
    const MotMeshAxis *axis = &mesh->axis[resize->axis];
    int64_t total = 0;
    for (uint32_t i = 0; i < axis->n; i++) {
        uint32_t k = mesh->n_axes > 1 ? i : 0;
        while (mesh->n_axes == 1 && k < resize->shares.n && resize->devices[k] != mesh->devices[i])
            k++;
        out_share[i] = k < resize->shares.n ? resize->shares.data[k] : axis->share[i];
        total += out_share[i];
    }
    return total > 0;
}

static MotStatus resize(MotTrainer *t, int64_t step)
{
    for (uint32_t i = 0; i < t->n_resizes; i++) {
        int64_t moved, share[MOT_MAX_RANKS];
        if (t->resizes[i].step != step)
            continue;
        mot_trainer_make_room(t);
        if (!find_shares(t, &t->resizes[i], share)) {
            mot_warn(t->ctx, MOT_NOWHERE,
                     "not resized before step %lld: who would get shares has "
                     "left",
                     (long long)step + 1);
            continue;
        }
        MOT_TRY(mot_session_reshare(t->job->session, t->resizes[i].stage, t->resizes[i].axis, share,
                                    &moved));
        mot_info(t->ctx, "resized before step %lld, %s moved", (long long)step + 1,
                 mot_bytes_text(&t->ctx->arena, (double)moved));
    }
    return MOT_OK;
}

/* ---- The parts of an iteration ---- */

static MotStatus change_shares(MotTrainer *t)
{
    MOT_TRY(resize(t, t->step));
    return mot_balance_before(t, t->step, t->log_file);
}

/* A full disk is told when it is full, and once; the run fails at its end. */
static void check_log(MotTrainer *t)
{
    if (t->has_lost_log || !ferror(t->log_file))
        return;
    t->has_lost_log = true;
    mot_trainer_make_room(t);
    mot_warn(t->ctx, (MotLoc){t->log, NULL},
             "the log can't be written: %s; the training goes on without it", strerror(errno));
}

static MotStatus do_step(MotTrainer *t)
{
    MotStepReport report;
    int64_t step = t->step;
    MOT_TRY(run_step(t, step, &report));
    t->step = step + 1;
    t->loss = report.loss;
    log_step(t->log_file, t, step, &report);
    check_log(t);
    report_step(t, &report);
    if (!mot_session_is_halted(t->job->session))
        mot_balance_after(t, step, t->log_file);
    return MOT_OK;
}

/*
 * What the system refuses to write costs a checkpoint, not the training: a later one may succeed.
 * The last one has to.
 */
static MotStatus save_or_go_on(MotTrainer *t)
{
    MotStatus status = mot_trainer_save(t);
    if (status != MOT_ERR_IO || t->step == t->steps || t->is_stopping)
        return status;
    mot_trainer_make_room(t);
    mot_warn(t->ctx, MOT_NOWHERE, "no checkpoint of step %lld: %s", (long long)t->step,
             mot_text_get(&t->ctx->error));
    mot_error_clear(t->ctx);
    return MOT_OK;
}

static MotStatus validate_and_save(MotTrainer *t)
{
    int64_t step = t->step;
    bool is_last = step == t->steps;
    t->is_stopping = stop_requested && !is_last;
    if (is_last || (t->validate_every && step % t->validate_every == 0))
        MOT_TRY(validate_and_report(t, step, t->log_file));
    if (is_last || t->is_stopping || (t->save_every && step % t->save_every == 0))
        MOT_TRY(save_or_go_on(t));
    return MOT_OK;
}

/*
 * Does a part, and again after ranks died, without them. A part that failed has left nothing
 * behind: the step is t->step's, which is an earlier one if the training had to go back to a
 * checkpoint.
 */
static MotStatus hold(MotTrainer *t, MotStatus (*part)(MotTrainer *))
{
    for (;;) {
        MOT_TRY(mot_members_mend(t)); /* new ranks must outlive the scope */
        MotScope scope = mot_scope_begin(t->ctx);
        MotStatus status = part(t);
        bool again = mot_members_can_go_on(t, status);
        if (again)
            mot_members_tell(t);
        else if (status != MOT_OK)
            return status;
        mot_scope_end(t->ctx, scope);
        if (!again)
            return MOT_OK;
    }
}

static MotStatus run_loop(MotTrainer *t)
{
    mot_trainer_prepare(t);
    while (t->step < t->steps) {
        MOT_TRY(mot_members_serve(t));
        MOT_TRY(mot_replanning_before(t));
        MOT_TRY(hold(t, change_shares));
        MOT_TRY(hold(t, do_step));
        MOT_TRY(mot_trainer_keep_folder(t));
        MOT_TRY(hold(t, validate_and_save));
        if (t->is_stopping)
            return MOT_STOPPED;
    }
    return MOT_OK;
}

void mot_trainer_prepare(MotTrainer *t)
{
    prepare_step(t, t->step);
}

MotStatus mot_trainer_run(MotTrainer *t)
{
    t->ctx->doing = "training";
    MOT_TRY(mot_log_open(t->ctx, t->log, t->step, &t->log_file));
    watch_signals();
    MotStatus status = run_loop(t);
    mot_progress_end(&t->progress);
    bool is_lost = ferror(t->log_file) != 0;
    if ((fclose(t->log_file) != 0 || is_lost) && status == MOT_OK)
        status = mot_fail(t->ctx, MOT_ERR_IO, (MotLoc){t->log, NULL},
                          "the log can't be written in full");
    if (status == MOT_STOPPED)
        mot_info(t->ctx, "stopped; --resume goes on from the checkpoint in %s", t->out);
    return status;
}
