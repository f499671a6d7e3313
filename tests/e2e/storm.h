/*
 * What the tests share that start a training and harm it at random moments: processes, chance, what
 * a training leaves. All numbers are drawn from a seed, which a failure prints.
 */
#ifndef MOTLEY_TESTS_E2E_STORM_H
#define MOTLEY_TESTS_E2E_STORM_H

#include "support/file.h"
#include "support/text.h"
#include "tests/random.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 16 };

typedef struct {
    MotCtx ctx;
    const char *name; /* of the test */
    const char *motley;
    char work[64];
    uint64_t seed, random;
    double patience; /* seconds after which a rank hangs; for those who look for that */
    uint32_t n_runs, n_kills, n_changes;   /* of ranks; of members */
    uint32_t n_checks, n_failures, n_ends; /* n_ends: trainings that came through */
} Test;

/* A training that runs, and its ranks. */
typedef struct {
    pid_t host, rank[MOST_RANKS];
    uint32_t n;
} Job;

static void check(Test *t, bool holds, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void check(Test *t, bool holds, const char *format, ...)
{
    t->n_checks++;
    if (holds)
        return;
    t->n_failures++;
    va_list args;
    va_start(args, format);
    printf("FAILED (%s --seed %llu): ", t->name, (unsigned long long)t->seed);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

static uint32_t draw(Test *t, uint32_t below)
{
    return random_below(&t->random, below);
}

static int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void sleep_ms(uint32_t ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static const char *path_of(Test *t, const char *out, const char *name)
{
    return mot_arena_printf(&t->ctx.arena, "%s/%s%s%s", t->work, out, *name ? "/" : "", name);
}

/* Starts the command with its messages in a file, in a process group of its own. */
static pid_t start_command(Test *t, const char *messages, const char *const *argv)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    int log = open(path_of(t, messages, ""), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    setpgid(0, 0);
    if (log >= 0 && dup2(log, STDERR_FILENO) >= 0 && dup2(log, STDOUT_FILENO) >= 0)
        execv(t->motley, (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* The host's children, in the order in which it made them. */
static uint32_t list_ranks(Job *job)
{
    char path[64];
    job->n = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)job->host, (int)job->host);
    FILE *file = fopen(path, "r");
    while (file && job->n < MOST_RANKS && fscanf(file, "%d", &job->rank[job->n]) == 1)
        job->n++;
    if (file)
        fclose(file);
    return job->n;
}

static bool has_ended(const Job *job)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)job->host, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
}

/* Waits until a training that was started has n ranks. */
static bool wait_ranks(Test *t, Job *job, uint32_t n)
{
    int64_t deadline = now_ms() + 60000;
    while (list_ranks(job) < n && now_ms() < deadline && !has_ended(job))
        sleep_ms(1);
    check(t, job->n >= n, "the ranks did not start");
    return job->n >= n;
}

/* Waits for the host's end; how long it took since `begin`. */
static int64_t wait_host(const Job *job, int64_t begin, int *out_status)
{
    while (waitpid(job->host, out_status, 0) < 0 && errno == EINTR)
        ;
    return now_ms() - begin;
}

/* Gone, or a zombie that nobody collects. */
static bool is_gone(pid_t pid)
{
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 'Z';
    if (file)
        fclose(file);
    return state == 'Z';
}

static void check_no_rank_is_left(Test *t, const Job *job)
{
    int64_t deadline = now_ms() + 2000;
    bool is_left = true;
    while (is_left && now_ms() < deadline) {
        is_left = false;
        for (uint32_t i = 0; i < job->n; i++)
            is_left |= !is_gone(job->rank[i]);
        sleep_ms(is_left ? 5 : 0);
    }
    check(t, !is_left, "a rank outlives its host");
}

/* What stands in the file; nothing, and a failure of the test, if it can't be read. */
static char *read_file(Test *t, const char *path, size_t *out_n)
{
    const MotFileMap *map;
    *out_n = 0;
    if (mot_file_map(&t->ctx, path, &map) != MOT_OK) {
        check(t, false, "%s", mot_text_get(&t->ctx.error));
        mot_error_clear(&t->ctx);
        return mot_arena_strdup(&t->ctx.arena, "");
    }
    *out_n = map->n;
    return mot_arena_strndup(&t->ctx.arena, (const char *)map->data, map->n);
}

static const char *read_messages(Test *t)
{
    size_t n;
    return read_file(t, path_of(t, "messages", ""), &n);
}

static void clear(Test *t, const char *out)
{
    const char *command = mot_arena_printf(&t->ctx.arena, "rm -rf '%s'", path_of(t, out, ""));
    check(t, system(command) == 0, "%s", command);
}

static void write_text(Test *t)
{
    FILE *file = fopen(path_of(t, "text", ""), "w");
    for (int i = 0; file && i < 2000; i++)
        fprintf(file, "the quick brown fox jumps over %u lazy dogs. ", draw(t, 1000));
    check(t, file && fclose(file) == 0, "no text to train on");
}

/* Makes the folder, runs `body`, and takes everything away. 77 when the test can't run here. */
static int run_test(Test *t, MotStatus (*body)(MotCtx *, void *))
{
    t->motley = getenv("MOTLEY");
    t->random = t->seed;
    snprintf(t->work, sizeof t->work, "/tmp/motley-%s-XXXXXX", t->name);
    mot_ctx_init(&t->ctx);
    if (!t->motley || t->ctx.debug.ranks_are_threads) {
        printf("skipped: $MOTLEY is not set, or its ranks are threads\n");
        return 77;
    }
    bool ran = mkdtemp(t->work) && mot_ctx_run(&t->ctx, body, t) == MOT_OK;
    clear(t, "");
    mot_ctx_deinit(&t->ctx);
    return ran && t->n_failures == 0 ? 0 : 1;
}

#endif
