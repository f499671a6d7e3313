/*
 * Ranks and hosts that die or hang at random moments. One training is killed again and again and
 * resumed each time, until it is through; then its log and its checkpoint must be those of an
 * undisturbed run, byte for byte. On the way: exit code 6 and a message that names rank, device and
 * place, within 2 s, and no process is left.
 *
 *     kills [--seed N] [--kills N]      a failure prints the seed
 */
#include "tests/e2e/storm.h"

enum { N_RANKS = 3, N_STEPS = 240, LATEST_MS = 250, HANG_MS = 1500, STOP_MS = 2000 };
#ifdef __SANITIZE_ADDRESS__
enum { N_KILLS = 8 }; /* a start takes seconds */
#else
enum { N_KILLS = 30 };
#endif

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
    return start_command(t, "messages", argv);
}

/* Starts a training and waits until its ranks are there. */
static bool launch(Test *t, const char *out, Job *job)
{
    bool resumes = access(path_of(t, out, "latest"), F_OK) == 0;
    job->host = start(t, out, resumes);
    return wait_ranks(t, job, N_RANKS);
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

/*
 * The training came through before it was hit: it is held against the undisturbed one, and another
 * one starts.
 */
static void finish(Test *t, const char *out)
{
    compare_with_calm(t, out);
    t->n_ends++;
    clear(t, out);
}

/* ---- Harm ---- */

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
    bool is_awaited = strncmp(place, "in step instruction ", 20) != 0 ||
                      strcmp(what, "hangs") != 0 ||
                      strstr(text, mot_arena_printf(&t->ctx.arena, "for rank %d", rank)) ||
                      strstr(text, "has finished"); /* who needs no more of it in this step */
    check(t, is_awaited, "it is not said what becomes of those beside rank %d in\n%s", rank, text);
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

/*
 * Everybody stops for longer than the timeout and goes on, as with Ctrl-Z: nobody hangs. The harm
 * comes later.
 */
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
    char *bytes = read_file(t, path, &n);
    if (n == 0)
        return;
    size_t at = draw(t, (uint32_t)n);
    bytes[at] = (char)(bytes[at] ^ (1 << draw(t, 8)));
    FILE *file = fopen(path, "wb");
    bool is_done = file && fwrite(bytes, 1, cuts ? at : n, file) == (cuts ? at : n);
    check(t, file && fclose(file) == 0 && is_done, "%s can't be damaged", path);
}

/*
 * The newest checkpoint is damaged: the one before it is used, with a message, and leads to the
 * same end.
 */
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
    Test t = {.name = "kills", .seed = 0x5eed, .n_kills = N_KILLS};
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--seed") == 0)
            t.seed = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--kills") == 0)
            t.n_kills = (uint32_t)strtoul(argv[i + 1], NULL, 0);
    return run_test(&t, run_all);
}
