/*
 * Who takes part in a training may change between two steps: the job switches to another plan
 * (job/switch.h), everything here that depends on the members is made anew, and a record in the log
 * says so.
 */
#include "cli/members.h"

#include "cli/log.h"
#include "cli/replanning.h"
#include "frontend/cluster_file.h"
#include "job/switch.h"
#include "support/json.h"

#include <string.h>
#include <unistd.h>

MotStatus mot_members_begin(MotTrainer *t)
{
    t->is_elastic = mot_args_has(t->job->args, "--elastic");
    t->control = mot_control_open(t->ctx, t->out);
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

/*
 * A change that is done: everything that depends on the members, a record in the log, a line for
 * the user. `device` may be NULL.
 */
static MotStatus announce(MotTrainer *t, const char *action, const char *device, int64_t began_ns)
{
    double ms = (double)(mot_now_ns() - began_ns) * 1e-6;
    MotJsonWriter w;
    MOT_TRY(mot_trainer_renew(t));
    mot_replanning_ask(t);
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
    t->cut_spent = info.cut_spent;
    fclose(t->log_file);
    return mot_log_open(t->ctx, t->log, t->step, &t->log_file);
}

/* Nobody can go on: what the ranks hold is saved. */
static MotStatus give_up(MotTrainer *t, MotStatus status)
{
    if (mot_session_held(t->job->session) != MOT_HELD_TORN && mot_trainer_save(t) == MOT_OK)
        mot_note(t->ctx, "all %lld steps are saved; --resume goes on from there",
                 (long long)t->step);
    return status;
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
    MotStatus status = mot_job_remove_ranks(t->ctx, t->job, is_lost);
    if (status != MOT_OK)
        return give_up(t, status);
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

/* ---- Joining and leaving ---- */

/* The rank of the device of this name, or the number of ranks. */
static uint32_t find_member(const MotTrainer *t, const char *name)
{
    uint32_t i = 0;
    while (i < mot_session_ranks(t->job->session) && strcmp(device_name(t, i), name) != 0)
        i++;
    return i;
}

/* Its share would follow from threads that the machine can't run. */
static MotStatus check_threads(MotCtx *ctx, const MotDevice *device)
{
    long most = sysconf(_SC_NPROCESSORS_ONLN);
    if (most < 1 || device->threads <= (unsigned long)most)
        return MOT_OK;
    return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                    "device %s: %u threads are more than the %ld processors of this machine",
                    mot_quote(&ctx->arena, device->name), device->threads, most);
}

/* The device that a text describes: `{name: d, slow: 2}` as in a cluster file, or only a name. */
static MotStatus read_device(MotCtx *ctx, const char *text, MotDevice *out_device)
{
    MotText file;
    MotCluster *cluster;
    bool is_name = text[0] != '{';
    mot_text_init(&file, &ctx->arena);
    mot_text_puts(&file, is_name ? "devices: [{name: " : "devices: [");
    if (is_name)
        mot_json_quote(&file, text);
    else
        mot_text_puts(&file, text);
    mot_text_puts(&file, is_name ? "}]\n" : "]\n");
    MOT_TRY(mot_cluster_parse(ctx, "--device", mot_text_get(&file), file.n, &cluster));
    if (cluster->devices.n != 1)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--device describes %u devices, not one",
                        cluster->devices.n);
    *out_device = cluster->devices.data[0];
    return check_threads(ctx, out_device);
}

/*
 * In the place of the cluster that device i has or gets; if it is refused, the cluster is as
 * before.
 */
static MotStatus add(MotTrainer *t, uint32_t i, MotDevice device)
{
    MotCluster *cluster = t->job->cluster;
    uint32_t n = cluster->devices.n;
    MotDevice before = i < n ? cluster->devices.data[i] : (MotDevice){0};
    if (i == n)
        mot_vec_push(&t->ctx->arena, &cluster->devices, device);
    cluster->devices.data[i] = device;
    MotStatus status = mot_job_add_device(t->ctx, t->job, i);
    if (status == MOT_OK)
        return MOT_OK;
    cluster->devices.n = n;
    if (i < n)
        cluster->devices.data[i] = before;
    return status;
}

/*
 * A device that was a member before comes back as what it was, or as it is described now. Leaves
 * the name of what was described.
 */
static MotStatus join(MotTrainer *t, const char **text)
{
    const MotCluster *cluster = t->job->cluster;
    MotDevice device = {0};
    uint32_t i = 0;
    bool is_described = (*text)[0] == '{';
    MOT_TRY(read_device(t->ctx, *text, &device));
    *text = device.name;
    if (find_member(t, device.name) < mot_session_ranks(t->job->session))
        return mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s is a member already",
                        mot_quote(&t->ctx->arena, device.name));
    while (i < cluster->devices.n && strcmp(cluster->devices.data[i].name, device.name) != 0)
        i++;
    if (i < cluster->devices.n && !is_described)
        device = cluster->devices.data[i];
    return add(t, i, device);
}

static MotStatus leave(MotTrainer *t, const char **name)
{
    bool is_leaving[MOT_MAX_RANKS] = {0};
    uint32_t n = mot_session_ranks(t->job->session), rank = find_member(t, *name);
    if (rank == n) {
        mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s is no member",
                 mot_quote(&t->ctx->arena, *name));
        mot_note(t->ctx, "the members and their shares are %s", members_text(t));
        return t->ctx->status;
    }
    is_leaving[rank] = true;
    return mot_job_remove_ranks(t->ctx, t->job, is_leaving);
}

static const struct {
    const char *verb;
    MotStatus (*act)(MotTrainer *t, const char **device);
} requests[] = {{"join", join}, {"leave", leave}};

static MotStatus act(MotTrainer *t, const MotRequest *request)
{
    const char *verb = mot_json_string(mot_json_get(request->json, "verb"), ""),
               *device = mot_json_string(mot_json_get(request->json, "device"), "");
    int64_t began_ns = mot_now_ns();
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        if (strcmp(requests[i].verb, verb) == 0) {
            mot_trainer_make_room(t);
            MOT_TRY(requests[i].act(t, &device));
            return announce(t, verb, device, began_ns);
        }
    return mot_fail(t->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "the request is neither join nor leave");
}

static void answer(MotTrainer *t, MotRequest *request, MotStatus status)
{
    MotJsonWriter w;
    mot_json_begin(&w, &t->ctx->arena);
    mot_json_open(&w, NULL, '{');
    if (status == MOT_OK) {
        mot_json_put_int(&w, "step", t->step + 1);
        put_members(t, &w);
    } else {
        mot_json_put_string(&w, "error", mot_text_get(&t->ctx->error));
        mot_json_put_int(&w, "status", status == MOT_ERR_RANK ? MOT_ERR_USAGE : status);
    }
    mot_json_close(&w, '}');
    mot_control_answer(request, &w);
}

MotStatus mot_members_serve(MotTrainer *t)
{
    MotRequest request;
    MOT_TRY(mot_members_mend(t));
    while (mot_control_next(t->ctx, t->control, &request)) {
        MotStatus status = act(t, &request);
        answer(t, &request, status);
        mot_error_clear(t->ctx);
        MOT_TRY(mot_members_mend(t)); /* a new rank may have died at once */
    }
    return MOT_OK;
}
