/*
 * motley top: a training that runs, or how it ended. What it shows stands in files that `train`
 * writes anyway: job.json in its folder (who runs), and the end of its log (steps and decisions);
 * memory and state come from /proc. So nobody who looks costs the training anything, and a training
 * that crashed is one whose lock nobody holds.
 */
#include "cli/answer.h"
#include "cli/verbs.h"
#include "support/file.h"
#include "support/json.h"
#include "support/writer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DECISIONS = 3, LONGEST_TAIL = 1 << 20 };

static const MotOption top_options[] = {{"--once", NULL, "print once and end"},
                                        {"--every", "SECONDS", "repaint so often; default 1"},
                                        {NULL, NULL, NULL}};

/* What is known of a training at one moment; the JSON values may be NULL. */
typedef struct {
    const char *dir;
    const MotJson *job;  /* job.json */
    const MotJson *step; /* the last one in the log */
    /* the last ones of --balance, and changes of members, newest first */
    const MotJson *decisions[DECISIONS];
    uint32_t n_decisions;
    bool is_running;
} View;

/* The folder whose lock file the process has open. */
static MotStatus find_dir_of(MotCtx *ctx, const char *pid, const char **out_dir)
{
    static const char name[] = "/lock";
    char target[4096];
    const char *fds = mot_arena_printf(&ctx->arena, "/proc/%s/fd", pid);
    DIR *dir = opendir(fds);
    *out_dir = NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        ssize_t n =
            readlink(mot_arena_printf(&ctx->arena, "%s/%s", fds, e->d_name), target, sizeof target);
        if (n > (ssize_t)strlen(name) && n < (ssize_t)sizeof target &&
            memcmp(target + n - strlen(name), name, strlen(name)) == 0)
            *out_dir = mot_arena_strndup(&ctx->arena, target, (size_t)n - strlen(name));
    }
    if (dir)
        closedir(dir);
    return *out_dir ? MOT_OK
                    : mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                               "process %s is no training, or not one of yours", pid);
}

static MotStatus find_dir(MotCtx *ctx, const MotArgs *args, const char **out_dir)
{
    const char *operand = mot_args_operand(args, 0);
    *out_dir = operand ? operand : ".";
    bool is_pid = operand && operand[0] && strspn(operand, "0123456789") == strlen(operand) &&
                  access(operand, F_OK) != 0;
    return is_pid ? find_dir_of(ctx, operand, out_dir) : MOT_OK;
}

static MotStatus read_job(MotCtx *ctx, View *view)
{
    const MotFileMap *map;
    const char *path = mot_arena_printf(&ctx->arena, "%s/job.json", view->dir);
    if (access(path, F_OK) != 0) {
        mot_fail(ctx, MOT_ERR_USAGE, (MotLoc){view->dir, NULL}, "no training writes there");
        mot_hint(ctx, "give the --out of a training, or the number of its process");
        return ctx->status;
    }
    MOT_TRY(mot_file_map(ctx, path, &map));
    return mot_json_parse(ctx, MOT_ERR_DATA, path, (const char *)map->data, map->n, &view->job);
}

/*
 * Takes a line of the log into the view, from the last one backwards. One that is being written is
 * no JSON yet.
 */
static void take_line(MotCtx *ctx, View *view, const char *log, const char *line, size_t n)
{
    const MotJson *record;
    if (mot_json_parse(ctx, MOT_ERR_DATA, log, line, n, &record) != MOT_OK) {
        mot_error_clear(ctx);
        return;
    }
    if (mot_json_get(record, "event") && view->n_decisions < DECISIONS)
        view->decisions[view->n_decisions++] = record;
    else if (mot_json_get(record, "ranks") && !view->step)
        view->step = record;
}

static MotStatus read_log(MotCtx *ctx, View *view)
{
    const MotFileMap *map;
    const char *log = mot_json_string(mot_json_get(view->job, "log"), "");
    if (access(log, F_OK) != 0)
        return MOT_OK; /* no step yet */
    MOT_TRY(mot_file_map(ctx, log, &map));
    const char *text = (const char *)map->data, *end = text + map->n;
    const char *least = map->n > LONGEST_TAIL ? end - LONGEST_TAIL : text;
    while (end > least && (!view->step || view->n_decisions < DECISIONS)) {
        const char *before = memrchr(least, '\n', (size_t)(end - least - 1));
        const char *line = before ? before + 1 : least;
        take_line(ctx, view, log, line, (size_t)(end - line));
        end = line;
    }
    return MOT_OK;
}

static MotStatus look(MotCtx *ctx, const char *dir, View *out_view)
{
    *out_view = (View){.dir = dir};
    MOT_TRY(read_job(ctx, out_view));
    out_view->is_running = mot_file_is_locked(mot_arena_printf(&ctx->arena, "%s/lock", dir));
    return read_log(ctx, out_view);
}

/* A line `KEY value` of /proc/PID/status, or "". */
static const char *status_of(MotCtx *ctx, int64_t pid, const char *key)
{
    char line[256];
    const char *value = "";
    FILE *file = fopen(mot_arena_printf(&ctx->arena, "/proc/%lld/status", (long long)pid), "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            value = mot_arena_strndup(&ctx->arena, line + strlen(key),
                                      strcspn(line + strlen(key), "\n"));
    if (file)
        fclose(file);
    return value;
}

/*
 * A row of the table. Times are parts of the step, 0 before the devices' first one; all of a rank
 * that is gone is 0 but its last step.
 */
typedef struct {
    const char *device, *state;
    int64_t share;
    double busy, comm, wait, memory; /* MiB */
} Row;

static Row find_row(MotCtx *ctx, const View *view, size_t i)
{
    static const struct {
        char letter;
        const char *name;
    } states[] = {{'R', "running"}, {'S', "waiting"}, {'D', "in a system call"}, {'T', "stopped"}};
    int64_t since = mot_json_int(mot_json_get(view->job, "step"), 0);
    bool has_run = mot_json_int(mot_json_get(view->step, "step"), 0) > since;
    const MotJson *rank = has_run ? mot_json_at(mot_json_get(view->step, "ranks"), i) : NULL;
    const MotJson *first = mot_json_at(mot_json_get(view->job, "shares"), i);
    int64_t pid = mot_json_int(mot_json_at(mot_json_get(view->job, "pids"), i), 0);
    double busy = mot_json_number(mot_json_get(rank, "busy_ms"), 0),
           comm = mot_json_number(mot_json_get(rank, "comm_ms"), 0),
           wait = mot_json_number(mot_json_get(rank, "wait_ms"), 0), all = busy + comm + wait;
    Row row = {.device = mot_json_string(mot_json_at(mot_json_get(view->job, "devices"), i), ""),
               .state = "gone",
               .share = mot_json_int(has_run ? mot_json_get(rank, "share") : first, 0)};
    if (all > 0) {
        row.busy = busy / all;
        row.comm = comm / all;
        row.wait = wait / all;
    }
    if (!view->is_running)
        return row; /* the numbers of its processes may be others' by now */
    const char *state = status_of(ctx, pid, "State:");
    row.memory = strtod(status_of(ctx, pid, "VmRSS:"), NULL) / 1024;
    for (size_t s = 0; s < sizeof states / sizeof *states; s++)
        if (state[strspn(state, " \t")] == states[s].letter)
            row.state = states[s].name;
    return row;
}

static void add_decision(MotText *text, const MotJson *d)
{
    const char *action = mot_json_string(mot_json_get(d, "action"), "");
    const MotJson *shares = mot_json_get(d, "shares");
    mot_text_printf(text, "step %lld: %s", (long long)mot_json_int(mot_json_get(d, "step"), 0),
                    mot_escape(text->arena, action, 20));
    if (mot_json_get(d, "device"))
        mot_text_printf(
            text, " %s,",
            mot_escape(text->arena, mot_json_string(mot_json_get(d, "device"), ""), 40));
    for (size_t i = 0; i < mot_json_length(shares); i++)
        mot_text_printf(text, "%s%lld", i ? "/" : " ",
                        (long long)mot_json_int(mot_json_at(shares, i), 0));
    if (mot_json_get(d, "predicted_ms"))
        mot_text_printf(text, ", %.1f ms predicted",
                        mot_json_number(mot_json_get(d, "predicted_ms"), 0));
    if (mot_json_get(d, "measured_ms"))
        mot_text_printf(text, ", %.1f measured",
                        mot_json_number(mot_json_get(d, "measured_ms"), 0));
    mot_text_puts(text, "\n");
}

static const char *view_text(MotCtx *ctx, const View *view)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    mot_text_printf(&text, "%s: step %lld/%lld", mot_escape(&ctx->arena, view->dir, 200),
                    (long long)mot_json_int(mot_json_get(view->step, "step"), 0),
                    (long long)mot_json_int(mot_json_get(view->job, "steps"), 0));
    if (view->step)
        mot_text_printf(&text, ", loss %.4f, %.1f ms",
                        mot_json_number(mot_json_get(view->step, "loss"), 0),
                        mot_json_number(mot_json_get(view->step, "ms"), 0));
    mot_text_printf(&text, "%s\n", view->is_running ? "" : " (not running)");
    mot_text_puts(&text, "rank  device        share   busy   comm   wait      memory  state\n");
    for (size_t i = 0; i < mot_json_length(mot_json_get(view->job, "devices")); i++) {
        Row r = find_row(ctx, view, i);
        mot_text_printf(&text, "%4zu  %-12s %6lld  %4.0f%%  %4.0f%%  %4.0f%%  %6.1f MiB  %s\n", i,
                        mot_escape(&ctx->arena, r.device, 12), (long long)r.share, 100 * r.busy,
                        100 * r.comm, 100 * r.wait, r.memory, r.state);
    }
    for (uint32_t i = 0; i < view->n_decisions; i++)
        add_decision(&text, view->decisions[i]);
    return mot_text_get(&text);
}

static void print_json(MotCtx *ctx, const View *view)
{
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_string(&w, "dir", view->dir);
    mot_json_put_bool(&w, "running", view->is_running);
    mot_json_put_int(&w, "step", mot_json_int(mot_json_get(view->step, "step"), 0));
    mot_json_put_int(&w, "steps", mot_json_int(mot_json_get(view->job, "steps"), 0));
    mot_json_open(&w, "ranks", '[');
    for (size_t i = 0; i < mot_json_length(mot_json_get(view->job, "devices")); i++) {
        Row r = find_row(ctx, view, i);
        mot_json_open(&w, NULL, '{');
        mot_json_put_string(&w, "device", r.device);
        mot_json_put_int(&w, "share", r.share);
        mot_json_put_number(&w, "busy", r.busy);
        mot_json_put_number(&w, "comm", r.comm);
        mot_json_put_number(&w, "wait", r.wait);
        mot_json_put_number(&w, "memory_mb", r.memory);
        mot_json_put_string(&w, "state", r.state);
        mot_json_close(&w, '}');
    }
    mot_json_close(&w, ']');
    mot_json_open(&w, "decisions", '[');
    for (uint32_t i = 0; i < view->n_decisions; i++) {
        const MotJson *d = view->decisions[i];
        mot_json_open(&w, NULL, '{');
        mot_json_put_int(&w, "step", mot_json_int(mot_json_get(d, "step"), 0));
        mot_json_put_string(&w, "action", mot_json_string(mot_json_get(d, "action"), NULL));
        mot_json_close(&w, '}');
    }
    mot_json_close(&w, ']');
    mot_json_close(&w, '}');
    mot_answer_print(&w);
}

typedef struct {
    const MotArgs *args;
    const char *dir;
    bool is_running; /* when it was shown */
} Show;

static MotStatus show(MotCtx *ctx, void *self)
{
    Show *s = self;
    const MotArgs *args = s->args;
    View view;
    MOT_TRY(look(ctx, s->dir, &view));
    s->is_running = view.is_running;
    if (mot_args_has(args, "--json")) {
        print_json(ctx, &view);
        return MOT_OK;
    }
    bool is_painted = isatty(STDOUT_FILENO) && !mot_args_has(args, "--once");
    printf("%s%s", is_painted ? "\x1b[H\x1b[J" : "", view_text(ctx, &view));
    fflush(stdout);
    return MOT_OK;
}

/* In a context of its own: what it maps and parses is released every time. */
static MotStatus show_afresh(MotCtx *ctx, Show *s)
{
    MotCtx own;
    mot_ctx_init(&own);
    mot_ctx_inherit(&own, ctx);
    MotStatus status = mot_ctx_run(&own, show, s);
    if (status != MOT_OK)
        mot_fail(ctx, status, MOT_NOWHERE, "%s", mot_text_get(&own.error));
    mot_ctx_deinit(&own);
    return status;
}

static MotStatus run_top(MotCtx *ctx, const MotArgs *args)
{
    Show s = {.args = args};
    double every;
    MOT_TRY(mot_args_number(ctx, args, "--every", 1, &every));
    if (!(every >= 0.1 && every <= 3600))
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--every %g: 0.1 to 3600 seconds", every);
    MOT_TRY(find_dir(ctx, args, &s.dir));
    for (;;) {
        MOT_TRY(show_afresh(ctx, &s));
        if (mot_args_has(args, "--once") || !s.is_running)
            return MOT_OK;
        nanosleep(&(struct timespec){(time_t)every, (long)((every - (double)(time_t)every) * 1e9)},
                  NULL);
    }
}

const MotVerb mot_verb_top = {.name = "top",
                              .operands = "[DIR|PID]",
                              .summary = "watch a training: its devices and the last decisions",
                              .options = (const MotOption *const[]){top_options, NULL},
                              .run = run_top};
