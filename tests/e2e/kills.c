/*
 * Ranks and hosts that die or hang at random moments. One training is killed again and again and resumed each time, until it is through; then
 * its log and its checkpoint must be those of an undisturbed run, byte for byte. On the way: exit code 6 and a message that names
 * rank, device and place, within 2 s, and no process is left.
 *
 *     kills [--seed N] [--kills N]      a failure prints the seed
 */
#include "support/file.h"
#include "support/text.h"

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

enum { N_RANKS = 3, N_STEPS = 240, LATEST_MS = 250, HANG_MS = 1500, STOP_MS = 2000 };
#ifdef __SANITIZE_ADDRESS__
enum { N_KILLS = 8 }; /* a start takes seconds */
#else
enum { N_KILLS = 30 };
#endif

typedef struct {
    MotCtx ctx;
    const char *motley;
    char work[64];
    uint64_t seed, random;
    uint32_t n_kills;                      /* of ranks, to come */
    uint32_t n_checks, n_failures, n_ends; /* n_ends: trainings that came through */
} Test;

/* A training that runs, and its ranks. */
typedef struct {
    pid_t host, rank[N_RANKS];
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
    printf("FAILED (kills --seed %llu): ", (unsigned long long)t->seed);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

static uint32_t draw(Test *t, uint32_t below)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(t->random >> 33) % below;
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

/* ---- Processes ---- */

static pid_t start(Test *t, const char *out, bool resumes)
{
    const char *data = mot_arena_printf(&t->ctx.arena, "text:%s/text", t->work),
               *steps = mot_arena_printf(&t->ctx.arena, "%d", N_STEPS),
               *ranks = mot_arena_printf(&t->ctx.arena, "%d", N_RANKS),
               *hang = mot_arena_printf(&t->ctx.arena, "%.3f", (double)HANG_MS * 1e-3);
    const char *argv[] = {t->motley,
                          "train",
                          "models/gpt_erf_sdpa_ts17_opt_dynamic.onnx",
                          "--dim=batch=2",
                          "--loss=cross_entropy:logits:labels",
                          "--optimizer=adamw:lr=0.003,clip=1.0",
                          "--seed=3",
                          "--save=4",
                          "--validate=100",
                          "-q",
                          "--data",
                          data,
                          "--steps",
                          steps,
                          "--devices",
                          ranks,
                          "--hang-timeout",
                          hang,
                          "--out",
                          path_of(t, out, ""),
                          resumes ? "--resume" : NULL,
                          NULL};
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    int log = open(path_of(t, "messages", ""), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    setpgid(0, 0);
    if (log >= 0 && dup2(log, STDERR_FILENO) >= 0)
        execv(t->motley, (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* The host's children, in the order in which it made them. */
static uint32_t list_ranks(Job *job)
{
    char path[64];
    uint32_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)job->host, (int)job->host);
    FILE *file = fopen(path, "r");
    while (file && n < N_RANKS && fscanf(file, "%d", &job->rank[n]) == 1)
        n++;
    if (file)
        fclose(file);
    return n;
}

static bool has_ended(const Job *job)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)job->host, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
}

/* Starts a training and waits until its ranks are there. */
static bool launch(Test *t, const char *out, Job *job)
{
    bool resumes = access(path_of(t, out, "latest"), F_OK) == 0;
    int64_t deadline = now_ms() + 60000;
    job->host = start(t, out, resumes);
    while (list_ranks(job) < N_RANKS && now_ms() < deadline && !has_ended(job))
        sleep_ms(1);
    bool is_there = list_ranks(job) == N_RANKS;
    check(t, is_there, "the ranks did not start");
    return is_there;
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
        for (int i = 0; i < N_RANKS; i++)
            is_left |= !is_gone(job->rank[i]);
        sleep_ms(is_left ? 5 : 0);
    }
    check(t, !is_left, "a rank outlives its host");
}

static const char *read_file(Test *t, const char *path, size_t *out_n)
{
    const MotFileMap *map;
    *out_n = 0;
    if (mot_file_map(&t->ctx, path, &map) != MOT_OK) {
        check(t, false, "%s", mot_text_get(&t->ctx.error));
        mot_error_clear(&t->ctx);
        return "";
    }
    *out_n = map->n;
    return mot_arena_strndup(&t->ctx.arena, (const char *)map->data, map->n);
}

static const char *read_messages(Test *t)
{
    size_t n;
    return read_file(t, path_of(t, "messages", ""), &n);
}

/* ---- What a training leaves ---- */

/* The log without its times: `1 2.5`, `100 val 2.1`. */
static const char *read_losses(Test *t, const char *out)
{
    size_t n;
    MotText text;
    mot_text_init(&text, &t->ctx.arena);
    for (const char *line = read_file(t, path_of(t, out, "steps.jsonl"), &n); line && *line;) {
        long long step = 0;
        char kind[16] = "", value[32] = "";
        int found = sscanf(line, "{\"step\": %lld, \"%15[a-z_]\": %31[^,}]", &step, kind, value);
        mot_text_printf(&text, "%lld %s %s%s\n", step, kind, value, found == 3 ? "" : " (torn)");
        line = strchr(line, '\n');
        line += line != NULL;
    }
    return mot_text_get(&text);
}

/* The training `out` left what the undisturbed one left. */
static void compare_with_calm(Test *t, const char *out)
{
    const char *files[] = {
        "model.onnx", "latest",
        mot_arena_printf(&t->ctx.arena, "step-%06d/model.safetensors", N_STEPS),
        mot_arena_printf(&t->ctx.arena, "step-%06d/optimizer.safetensors", N_STEPS),
        mot_arena_printf(&t->ctx.arena, "step-%06d/manifest.json", N_STEPS)};
    check(t, strcmp(read_losses(t, "calm"), read_losses(t, out)) == 0, "other losses");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n, m;
        const char *a = read_file(t, path_of(t, "calm", files[i]), &n),
                   *b = read_file(t, path_of(t, out, files[i]), &m);
        check(t, n == m && memcmp(a, b, n) == 0, "%s has other bytes", files[i]);
    }
}

static void clear(Test *t, const char *out)
{
    const char *command = mot_arena_printf(&t->ctx.arena, "rm -rf '%s'", path_of(t, out, ""));
    check(t, system(command) == 0, "%s", command);
}

/* The training came through before it was hit: it is held against the undisturbed one, and another one starts. */
static void finish(Test *t, const char *out)
{
    compare_with_calm(t, out);
    t->n_ends++;
    clear(t, out);
}

/* ---- Harm ---- */

/* Waits for the host's end; how long it took since `begin`. */
static int64_t wait_host(const Job *job, int64_t begin, int *out_status)
{
    while (waitpid(job->host, out_status, 0) < 0 && errno == EINTR)
        ;
    return now_ms() - begin;
}

/* The message names the rank, its device, what happened to it and where. */
static void check_message(Test *t, int rank, const char *what)
{
    const char *text = read_messages(t);
    const char *want =
        mot_arena_printf(&t->ctx.arena, "motley: rank %d (device cpu%d) %s ", rank, rank, what);
    const char *found = strstr(text, want), *place = found ? found + strlen(want) : "";
    bool has_place = strncmp(place, "in step instruction ", 20) == 0 ||
                     strncmp(place, "in eval instruction ", 20) == 0 ||
                     strncmp(place, "between two sections", 20) == 0 ||
                     strncmp(place, "while it binds", 14) == 0;
    check(t, has_place, "\"%s...\" is not in\n%s", want, text);
}

/* Hits a rank: kill -9 (dies), or SIGSTOP (hangs). False: the training was over. */
static bool hit_rank(Test *t, const Job *job, int signal)
{
    int rank = (int)draw(t, N_RANKS), status = 0;
    uint32_t limit = signal == SIGSTOP ? HANG_MS + 2000 : 2000;
    int64_t begin = now_ms();
    kill(job->rank[rank], signal);
    int64_t took = wait_host(job, begin, &status);
    check_no_rank_is_left(t, job);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return false;
    check(t, WIFEXITED(status) && WEXITSTATUS(status) == 6, "wait status %d, not exit code 6",
          status);
    check(t, took <= limit, "it took %lld ms until all had stopped", (long long)took);
    check_message(t, rank, signal == SIGSTOP ? "hangs" : "was killed by signal 9 (Killed)");
    return true;
}

static bool hit_host(Test *t, const Job *job)
{
    int status = 0;
    kill(job->host, SIGKILL);
    wait_host(job, 0, &status);
    check_no_rank_is_left(t, job);
    return WIFSIGNALED(status);
}

/* Everybody stops for longer than the timeout and goes on, as with Ctrl-Z: nobody hangs. The harm comes later. */
static void pause_all(Test *t, const Job *job)
{
    kill(-job->host, SIGSTOP);
    sleep_ms(STOP_MS);
    kill(-job->host, SIGCONT);
    sleep_ms(100);
    const char *messages = read_messages(t);
    check(t, !strstr(messages, "hangs"), "stopped and continued:\n%s", messages);
}

/* Ranks mostly, the host every fourth time, a hang now and then. False: the training was over. */
static bool hit(Test *t, uint32_t turn, const Job *job)
{
    if (turn % 4 == 3)
        return hit_host(t, job);
    if (turn % 16 == 1)
        return hit_rank(t, job, SIGSTOP);
    bool is_hit = hit_rank(t, job, SIGKILL);
    t->n_kills -= is_hit;
    return is_hit;
}

static void storm(Test *t)
{
    for (uint32_t turn = 0; t->n_kills > 0; turn++) {
        Job job = {0};
        if (!launch(t, "storm", &job))
            return;
        if (turn == 2)
            pause_all(t, &job);
        sleep_ms(draw(t, LATEST_MS));
        if (!hit(t, turn, &job))
            finish(t, "storm");
    }
}

/* Runs the training to its end; what it said. */
static const char *run_through(Test *t, const char *out)
{
    bool resumes = access(path_of(t, out, "latest"), F_OK) == 0;
    Job job = {.host = start(t, out, resumes)};
    int status = 0;
    wait_host(&job, 0, &status);
    const char *messages = read_messages(t);
    check(t, status == 0, "wait status %d: %s", status, messages);
    return messages;
}

/* Flips a bit of a file, or cuts it off, at a random place. */
static void damage(Test *t, const char *path, bool cuts)
{
    size_t n;
    char *bytes = (char *)(uintptr_t)read_file(t, path, &n);
    size_t at = draw(t, (uint32_t)n);
    bytes[at] = (char)(bytes[at] ^ (1 << draw(t, 8)));
    FILE *file = fopen(path, "wb");
    bool is_done = file && fwrite(bytes, 1, cuts ? at : n, file) == (cuts ? at : n);
    check(t, file && fclose(file) == 0 && is_done, "%s can't be damaged", path);
}

/* The newest checkpoint is damaged: the one before it is used, with a message, and leads to the same end. */
static void check_damaged(Test *t)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors",
                                        "manifest.json"};
    for (int i = 0; i < 2 * 3; i++) {
        const char *name = mot_arena_printf(&t->ctx.arena, "step-%06d/%s", N_STEPS, files[i % 3]);
        damage(t, path_of(t, "storm", name), i >= 3);
        const char *messages = run_through(t, "storm");
        check(t, strstr(messages, "trying the one before it") != NULL,
              "%s is damaged, and nothing is said: %s", name, messages);
        compare_with_calm(t, "storm");
    }
}

static void write_text(Test *t)
{
    FILE *file = fopen(path_of(t, "text", ""), "w");
    for (int i = 0; file && i < 2000; i++)
        fprintf(file, "the quick brown fox jumps over %u lazy dogs. ", draw(t, 1000));
    check(t, file && fclose(file) == 0, "no text to train on");
}

static MotStatus run_all(MotCtx *ctx, void *self)
{
    Test *t = self;
    uint32_t n_kills = t->n_kills;
    (void)ctx;
    write_text(t);
    run_through(t, "calm");
    storm(t);
    run_through(t, "storm");
    compare_with_calm(t, "storm");
    check_damaged(t);
    printf("%u kills, %u trainings came through, %u checks, %u failed\n", n_kills, t->n_ends + 1,
           t->n_checks, t->n_failures);
    return MOT_OK;
}

int main(int argc, char **argv)
{
    Test t = {.motley = getenv("MOTLEY"),
              .work = "/tmp/motley-kills-XXXXXX",
              .seed = 0x5eed,
              .n_kills = N_KILLS};
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--seed") == 0)
            t.seed = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--kills") == 0)
            t.n_kills = (uint32_t)strtoul(argv[i + 1], NULL, 0);
    t.random = t.seed;
    mot_ctx_init(&t.ctx);
    if (!t.motley || t.ctx.debug.ranks_are_threads) {
        printf("skipped: $MOTLEY is not set, or its ranks are threads\n");
        return 77;
    }
    bool ran = mkdtemp(t.work) && mot_ctx_run(&t.ctx, run_all, &t) == MOT_OK;
    clear(&t, "");
    mot_ctx_deinit(&t.ctx);
    return ran && t.n_failures == 0 ? 0 : 1;
}
