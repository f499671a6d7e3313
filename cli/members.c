/*
 * Who takes part in a training may change between two steps: the job switches to another plan (job/switch.h), everything here that depends on
 * the members is made anew, and a record in the log says so.
 */
#include "cli/members.h"

#include "cli/log.h"
#include "job/switch.h"
#include "support/json.h"

MotStatus mot_members_begin(MotTrainer *t)
{
    t->is_elastic = mot_args_has(t->job->args, "--elastic");
    if (!t->is_elastic)
        return MOT_OK;
    MotStatus status = mot_job_check_elastic(t->ctx, t->job);
    if (status != MOT_OK)
        mot_note(t->ctx, "for --elastic");
    return status;
}

bool mot_members_can_go_on(const MotTrainer *t, MotStatus status)
{
    return t->is_elastic && status == MOT_ERR_RANK && mot_session_is_halted(t->job->session);
}

void mot_members_tell(MotTrainer *t)
{
    mot_trainer_make_room(t);
    mot_warn(t->ctx, MOT_NOWHERE, "%s", mot_text_get(&t->ctx->error));
    mot_error_clear(t->ctx);
}

/* ---- What is said ---- */

static const char *device_name(const MotTrainer *t, uint32_t rank)
{
    return t->job->cluster->devices.data[mot_session_device(t->job->session, rank)].name;
}

/* `a 8, b 4` */
static const char *members_text(const MotTrainer *t)
{
    MotText text;
    mot_text_init(&text, &t->ctx->arena);
    for (uint32_t i = 0; i < mot_session_ranks(t->job->session); i++)
        mot_text_printf(&text, "%s%s %lld", i ? ", " : "",
                        mot_escape(&t->ctx->arena, device_name(t, i), 64),
                        (long long)mot_session_share(t->job->session, i));
    return mot_text_get(&text);
}

static void put_members(const MotTrainer *t, MotJsonWriter *w)
{
    uint32_t n = mot_session_ranks(t->job->session);
    int64_t *share = mot_arena_array(&t->ctx->arena, int64_t, n);
    mot_json_open(w, "devices", '[');
    for (uint32_t i = 0; i < n; i++) {
        mot_json_put_string(w, NULL, device_name(t, i));
        share[i] = mot_session_share(t->job->session, i);
    }
    mot_json_close(w, ']');
    mot_json_put_ints(w, "shares", share, n);
}

/* A change that is done: everything that depends on the members, a record in the log, a line for the user. `device` may be NULL. */
static MotStatus announce(MotTrainer *t, const char *action, const char *device, int64_t began_ns)
{
    double ms = (double)(mot_now_ns() - began_ns) * 1e-6;
    MotJsonWriter w;
    MOT_TRY(mot_trainer_renew(t));
    mot_json_begin(&w, &t->ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_string(&w, "event", "members");
    mot_json_put_int(&w, "step", t->step + 1);
    mot_json_put_string(&w, "action", action);
    mot_json_put_string(&w, "device", device);
    put_members(t, &w);
    mot_json_put_number(&w, "ms", ms);
    mot_json_close(&w, '}');
    fprintf(t->log_file, "%s\n", mot_text_get(&w.text));
    fflush(t->log_file);
    mot_info(t->ctx, "%s %s: from step %lld on with shares %s (%.0f ms)", action,
             mot_escape(&t->ctx->arena, device, 200), (long long)t->step + 1, members_text(t), ms);
    return MOT_OK;
}

/* ---- Deaths ---- */

/* The newest checkpoint, or where this run began. */
static MotStatus go_back(MotTrainer *t)
{
    const char *path;
    MotCheckpointInfo info = {0};
    MotScope scope = mot_scope_begin(t->ctx);
    if (t->first_step > 0 || mot_checkpoint_is_in(t->ctx, t->out)) {
        MOT_TRY(mot_checkpoint_find(t->ctx, t->out, &path, &info));
        MOT_TRY(mot_checkpoint_load(t->ctx, t->job->session, path));
    }
    mot_warn(t->ctx, MOT_NOWHERE,
             "it died in the middle of an update that no other rank could finish: back from step "
             "%lld to %lld",
             (long long)t->step, (long long)info.step);
    mot_scope_end(t->ctx, scope);
    t->step = info.step;
    fclose(t->log_file);
    return mot_log_open(t->ctx, t->log, t->step, &t->log_file);
}

/* Without the ranks that died or hung. */
static MotStatus mend(MotTrainer *t)
{
    MotSession *session = t->job->session;
    MotText names;
    int64_t began_ns = mot_now_ns();
    bool is_lost[MOT_MAX_RANKS], is_torn = mot_session_held(session) == MOT_HELD_TORN;
    mot_text_init(&names, &t->ctx->arena);
    for (uint32_t i = 0; i < mot_session_ranks(session); i++) {
        is_lost[i] = mot_session_is_lost(session, i);
        if (is_lost[i])
            mot_text_printf(&names, "%s%s", names.n ? ", " : "", device_name(t, i));
    }
    MOT_TRY(mot_job_remove_ranks(t->ctx, t->job, is_lost));
    mot_trainer_make_room(t);
    if (is_torn)
        MOT_TRY(go_back(t));
    mot_trainer_prepare(t);
    return announce(t, "death", mot_text_get(&names), began_ns);
}

MotStatus mot_members_mend(MotTrainer *t)
{
    while (t->is_elastic && mot_session_is_halted(t->job->session))
        MOT_TRY(mend(t));
    return MOT_OK;
}
