/*
 * Elastic trainings: ranks die, hang, leave and join at random moments, and shares change, columns
 * are lent or cut and the plan is made anew, because devices change their speed; the training goes
 * on each time, within seconds. In the end its log has every step once, with the loss of an
 * undisturbed run (so every step had its own samples, whoever computed it; what cuts has losses of
 * its own), and no process is left. Plans that replicate all state lose no step: they never go back
 * to a checkpoint.
 *
 *     elastic [--seed N] [--runs N] [--all] [--patience S]
 *
 * A failure prints the seed. --all: 200 trainings. --patience: on a machine where a rank may get no
 * core for seconds, it hangs after S of them.
 */
#include "tests/e2e/storm.h"

#include <math.h>

enum {
    N_STEPS = 240,
    N_DEVICES = 4,
    N_CHANGES = 5,
    LATEST_MS = 250,
    LATEST_MODELLED_MS = 1000, /* a straggler takes ten steps to be told */
    PATIENCE = 4,              /* seconds after which a rank hangs */
    LONGEST_MS = 90000
};
#ifdef __SANITIZE_ADDRESS__
enum { N_RUNS = 3 }; /* a start takes seconds */
#else
enum { N_RUNS = 8 };
#endif

/*
 * How operators are split: everything replicated but the batch, parameters split wherever they can
 * be, and the planner's mix.
 */
enum { REPLICATED, SPLIT, MIX, N_PLANS };
static const char *const plans[N_PLANS][5] = {{"--fix=*=batch", "--fix=*weight=replicate",
                                               "--fix=*bias=replicate", "--fix=onnx::*=replicate"},
                                              {"--fix=*=out"},
                                              {NULL}};

/*
 * What is done about devices that change their speed. Where the clock is modelled they do, whatever
 * else the machine has to do. What is lent or cut are columns of weights that are split, which they
 * are from `first_plan` on.
 */
enum { OFF, SHARES, MIGRATE, AUTO, ZERO, SEMI, N_MODES };
static const struct {
    const char *options[3];
    bool is_modelled, is_lossy;
    uint32_t first_plan;
} modes[N_MODES] = {[OFF] = {{"--balance=off"}, false, false, REPLICATED},
                    [SHARES] = {{"--balance=shares"}, false, false, REPLICATED},
                    [MIGRATE] = {{"--balance=migrate"}, true, false, SPLIT},
                    [AUTO] = {{"--balance=auto"}, true, false, REPLICATED},
                    [ZERO] = {{"--balance=zero", "--allow=cuts"}, true, true, SPLIT},
                    [SEMI] = {{"--balance=semi", "--allow=cuts"}, true, true, SPLIT}};

/* One training to be, and what happened to it. */
typedef struct {
    const char *out;
    uint32_t plan, mode, n_hits;
    uint32_t n_members;     /* at least */
    const char *changes[5]; /* of shares and speeds; NULL: no more */
} Run;

static void add(const char **argv, const char *const *options)
{
    while (*argv)
        argv++;
    while (*options)
        *argv++ = *options++;
}

static pid_t start(Test *t, const Run *run)
{
    MotArena *arena = &t->ctx.arena;
    const char *argv[40] = {t->motley,
                            "train",
                            "models/gpt_erf_sdpa_ts17_opt_dynamic.onnx",
                            "--dim=batch=6",
                            "--loss=cross_entropy:logits:labels",
                            "--optimizer=adamw:lr=0.003,clip=1.0",
                            "--save=25",
                            "--validate=100",
                            "--elastic",
                            "-q",
                            "--data",
                            mot_arena_printf(arena, "text:%s/text", t->work),
                            "--steps",
                            mot_arena_printf(arena, "%d", N_STEPS),
                            "-c",
                            path_of(t, modes[run->mode].is_modelled ? "modelled" : "real", ""),
                            "--hang-timeout",
                            mot_arena_printf(arena, "%g", t->patience),
                            "--out",
                            path_of(t, run->out, "")};
    add(argv, plans[run->plan]);
    add(argv, modes[run->mode].options);
    add(argv, run->changes);
    return start_command(t, "messages", argv);
}

/* ---- What it left ---- */

/* The loss of every step; checks that the log has each step once, in order. */
static void read_losses(Test *t, const char *out, double *losses, double *out_val)
{
    size_t n;
    int64_t last = 0;
    for (const char *line = read_file(t, path_of(t, out, "steps.jsonl"), &n); line && *line;) {
        long long step;
        double loss;
        if (sscanf(line, "{\"step\": %lld, \"loss\": %lf", &step, &loss) == 2) {
            check(t, step == last + 1, "step %lld is logged after step %lld", step,
                  (long long)last);
            last = step;
            if (step >= 1 && step <= N_STEPS)
                losses[step - 1] = loss;
        } else if (sscanf(line, "{\"step\": %lld, \"val_loss\": %lf", &step, &loss) == 2) {
            check(t, step == last, "step %lld is validated after step %lld", step, (long long)last);
            *out_val = loss;
        }
        line = strchr(line, '\n');
        line += line != NULL;
    }
    check(t, last == N_STEPS, "the log ends with step %lld", (long long)last);
}

static uint32_t count(const char *text, const char *what)
{
    uint32_t n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

/* Changes of members in the log while columns were lent. */
static uint32_t count_while_lent(const char *log)
{
    static const char members[] = "{\"event\": \"members\"";
    uint32_t n = 0;
    bool lends = false;
    for (const char *line = log; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        long long step;
        char columns[512];
        if (sscanf(line,
                   "{\"event\": \"balance\", \"step\": %lld, \"action\": \"lend\", "
                   "\"columns\": %511[^a-z]",
                   &step, columns) == 2)
            lends = strpbrk(columns, "123456789") != NULL;
        if (strncmp(line, members, sizeof members - 1) == 0) {
            n += lends;
            lends = false;
        }
    }
    return n;
}

static void compare_with_calm(Test *t, const Run *run)
{
    double calm[N_STEPS] = {0}, now[N_STEPS] = {0}, calm_val = 0, val = 0;
    read_losses(t, "calm", calm, &calm_val);
    read_losses(t, run->out, now, &val);
    if (modes[run->mode].is_lossy)
        return;
    for (int i = 0; i < N_STEPS; i++) {
        bool is_close = fabs(now[i] - calm[i]) <= 1e-3 * calm[0];
        check(t, is_close, "step %d: loss %.6f, undisturbed %.6f", i + 1, now[i], calm[i]);
        if (!is_close)
            return;
    }
    check(t, fabs(val - calm_val) <= 1e-3 * calm[0], "validation: %.6f, undisturbed %.6f", val,
          calm_val);
}

static void check_run(Test *t, const Run *run, int status, uint32_t *n_lent)
{
    size_t n;
    const char *messages = read_messages(t);
    check(t, status == 0, "wait status %d: %s", status, messages);
    if (status != 0)
        return;
    compare_with_calm(t, run);
    const char *log = read_file(t, path_of(t, run->out, "steps.jsonl"), &n);
    check(t, count(log, "\"action\": \"death\"") <= run->n_hits, "more deaths than kills: %s",
          messages);
    t->n_changes += count(log, "\"event\": \"members\"");
    *n_lent += count_while_lent(log);
    check(t, run->plan != REPLICATED || !strstr(messages, "back from step"),
          "replicated state was lost: %s", messages);
    t->n_ends += strstr(messages, "back from step") != NULL;
}

/* ---- Harm ---- */

/* kill -9 (dies), or SIGSTOP (hangs), of a rank that is there at the moment. */
static void hit_rank(Test *t, Run *run, Job *job)
{
    if (list_ranks(job) == 0)
        return;
    kill(job->rank[draw(t, job->n)], draw(t, 6) == 0 ? SIGSTOP : SIGKILL);
    run->n_hits++;
    run->n_members--;
}

/*
 * Whether `motley VERB OUT ...` was done. It may be refused: the device is a member already, or
 * none, or the training is over.
 */
static bool ask(Test *t, const Run *run, const char *verb, const char *device)
{
    const char *out = path_of(t, run->out, "");
    const char *join[] = {t->motley, verb, out, "--device", device, "-q", NULL},
               *leave[] = {t->motley, verb, out, device, "-q", NULL};
    int status = 0;
    pid_t pid = start_command(t, "answers", strcmp(verb, "join") == 0 ? join : leave);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    size_t n;
    bool is_fine = status == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 2);
    check(t, is_fine, "%s %s: wait status %d: %s", verb, device, status,
          is_fine ? "" : read_file(t, path_of(t, "answers", ""), &n));
    return status == 0;
}

/*
 * Something happens. So many members are left that those hit before it was noticed are not the last
 * ones.
 */
static void change(Test *t, Run *run, Job *job)
{
    static const char *const devices[] = {"cpu0", "cpu1", "cpu2",
                                          "cpu3", "e",    "{name: slow, slow: 2}"};
    const char *device = devices[draw(t, 5)];
    uint32_t what = draw(t, 8);
    if (what < 4 && run->n_members > 2)
        hit_rank(t, run, job);
    else if (what < 6 && run->n_members > 2)
        run->n_members -= ask(t, run, "leave", device);
    else
        run->n_members += ask(t, run, "join", devices[draw(t, 6)]);
}

/* Waits for so long, or until the training has ended. While all was stopped no time goes by. */
static bool let_run(const Job *job, uint32_t ms)
{
    enum { LONGEST_LOOK_MS = 100 };
    int64_t left = ms, before = now_ms();
    while (left > 0 && !has_ended(job)) {
        sleep_ms(1);
        int64_t now = now_ms(), look = now - before;
        left -= look < LONGEST_LOOK_MS ? look : LONGEST_LOOK_MS;
        before = now;
    }
    return !has_ended(job);
}

static void end_run(Test *t, Job *job, int *out_status)
{
    uint32_t longest = LONGEST_MS + (uint32_t)(N_CHANGES * 1000 * t->patience);
    if (let_run(job, longest)) {
        check(t, false, "it hangs: %s", read_messages(t));
        kill(job->host, SIGKILL);
    }
    wait_host(job, 0, out_status);
    check_no_rank_is_left(t, job);
}

/* A device gets slower and recovers, then another does; shares may change in the midst of that. */
static void draw_changes(Test *t, Run *run)
{
    MotArena *arena = &t->ctx.arena;
    uint32_t n = 0, step = draw(t, 30);
    if (draw(t, 3) == 0)
        run->changes[n++] = mot_arena_printf(arena, "--resize=%u:1/2/3/1", draw(t, N_STEPS));
    if (!modes[run->mode].is_modelled)
        return;
    uint32_t device = draw(t, N_DEVICES), until = step + 20 + draw(t, 150);
    run->changes[n++] = mot_arena_printf(arena, "--slow=%u:cpu%u=4", step, device);
    run->changes[n++] = mot_arena_printf(arena, "--slow=%u:cpu%u=1", until, device);
    run->changes[n++] =
        mot_arena_printf(arena, "--slow=%u:cpu%u=3", until + draw(t, 20), (device + 1) % N_DEVICES);
}

static void run_once(Test *t, uint32_t *n_lent)
{
    Run run = {.out = "storm", .mode = draw(t, N_MODES), .n_members = N_DEVICES};
    uint32_t first = modes[run.mode].first_plan,
             latest = modes[run.mode].is_modelled ? LATEST_MODELLED_MS : LATEST_MS;
    int status = 0;
    run.plan = first + draw(t, N_PLANS - first);
    draw_changes(t, &run);
    Job job = {.host = start(t, &run)};
    if (wait_ranks(t, &job, N_DEVICES))
        for (int i = 0; i < N_CHANGES && let_run(&job, draw(t, latest)); i++)
            change(t, &run, &job);
    end_run(t, &job, &status);
    check_run(t, &run, status, n_lent);
    t->n_kills += run.n_hits;
    clear(t, run.out);
}

static void write_cluster(Test *t, const char *name, const char *head, const char *rates)
{
    FILE *file = fopen(path_of(t, name, ""), "w");
    check(t, file != NULL, "no cluster %s", name);
    if (!file)
        return;
    fprintf(file, "%sdevices:\n", head);
    for (int i = 0; i < N_DEVICES; i++)
        fprintf(file, "  - {name: cpu%d%s}\n", i, rates);
    fclose(file);
}

static void write_clusters(Test *t)
{
    write_cluster(t, "real", "", "");
    write_cluster(t, "modelled", "clock: modelled\n",
                  ", gflops: 10, functions: 1G, bandwidth: 50GB, launch: 200ns");
}

static MotStatus run_all(MotCtx *ctx, void *self)
{
    Test *t = self;
    Run calm = {.out = "calm", .plan = MIX};
    uint32_t n_lent = 0;
    int status = 0;
    (void)ctx;
    write_text(t);
    write_clusters(t);
    Job job = {.host = start(t, &calm)};
    end_run(t, &job, &status);
    check(t, status == 0, "wait status %d: %s", status, read_messages(t));
    for (uint32_t i = 0; i < t->n_runs && t->n_failures == 0; i++)
        run_once(t, &n_lent);
    check(t, t->n_changes > 0, "nothing ever happened");
    printf(
        "%u trainings, %u ranks hit, %u changes of members, %u while columns were lent, %u returns "
        "to a checkpoint, %u checks, %u failed\n",
        t->n_runs, t->n_kills, t->n_changes, n_lent, t->n_ends, t->n_checks, t->n_failures);
    return MOT_OK;
}

int main(int argc, char **argv)
{
    Test t = {.name = "elastic", .seed = 0x5eed, .n_runs = N_RUNS, .patience = PATIENCE};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--all") == 0)
            t.n_runs = 200;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            t.seed = strtoull(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            t.n_runs = (uint32_t)strtoul(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--patience") == 0 && i + 1 < argc)
            t.patience = strtod(argv[++i], NULL);
    return run_test(&t, run_all);
}
