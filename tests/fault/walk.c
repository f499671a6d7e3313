/*
 * Refusals of the operating system, one at a time: MOTLEY_FAIL=KIND:N with N walking over what the
 * commands do. Each must end with a message and the exit code of a refusal, without a leak (under
 * ASan), and leave earlier checkpoints and no drafts; a training must then go on as if nothing had
 * been.
 *
 *     walk [--seed N] [--samples N]     N a kind beside the first few; a failure prints a command
 */
#include "runtime/npy.h"
#include "support/file.h"
#include "tests/random.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL "models/mlp_ts17_raw_static.onnx"
#define TRAINING MODEL " --loss=cross_entropy:logits:labels --optimizer=adamw:lr=0.01,clip=1.0"
#define PLACE " --devices 2 -c models/clusters/four.yaml"

/* `$WORK` is a folder. `train` resumes from a sound checkpoint in $WORK/out. */
static const struct {
    const char *name, *arguments;
    bool is_cold; /* kernels are compiled */
    uint32_t few; /* of so many samples, one is taken */
} cases[] = {
    {"import", "import " MODEL, false, 2},
    {"plan", "plan " TRAINING PLACE " -o $WORK/plan.mot", false, 2},
    {"compile",
     "run " MODEL " --input x=models/fixtures/mlp/x.npy --output logits=$WORK/logits.npy", true, 4},
    {"train",
     "train " TRAINING PLACE " --data npy:x=$WORK/x.npy,labels=$WORK/labels.npy --steps 4 --save 1"
     " --resume -q --out $WORK/out",
     false, 1},
};
enum {
    N_CASES = sizeof cases / sizeof *cases,
    FIRST = 4,
    N_SAMPLES = 16,
    N_ROWS = 80,
    N_COLUMNS = 20
};

typedef struct {
    MotCtx ctx;
    const char *motley;
    char work[64];
    uint64_t random;
    uint32_t n_samples, n_runs, n_failures;
} Test;

static uint32_t draw(Test *t, uint32_t below)
{
    return random_below(&t->random, below);
}

static const char *replace_work(Test *t, const char *text)
{
    MotText out;
    mot_text_init(&out, &t->ctx.arena);
    for (const char *found; (found = strstr(text, "$WORK")); text = found + strlen("$WORK"))
        mot_text_printf(&out, "%.*s%s", (int)(found - text), text, t->work);
    mot_text_puts(&out, text);
    return mot_text_get(&out);
}

/* Runs a shell command whose messages go to $WORK/messages; its exit code, or -1. */
static int run(Test *t, const char *command)
{
    const char *line =
        mot_arena_printf(&t->ctx.arena, "{ %s; } >/dev/null 2>$WORK/messages", command);
    int status = system(replace_work(t, line));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const char *read_messages(Test *t)
{
    const MotFileMap *map;
    if (mot_file_map(&t->ctx, replace_work(t, "$WORK/messages"), &map) != MOT_OK)
        return "";
    return mot_arena_strndup(&t->ctx.arena, (const char *)map->data, map->n);
}

static const char *command_of(Test *t, size_t k, const char *fault)
{
    const char *cache = cases[k].is_cold ? "cold" : "cache";
    return replace_work(t, mot_arena_printf(&t->ctx.arena,
                                            "MOTLEY_FAIL=%s XDG_CACHE_HOME=$WORK/%s %s %s", fault,
                                            cache, t->motley, cases[k].arguments));
}

static void fail(Test *t, const char *command, const char *what)
{
    t->n_failures++;
    printf("FAILED: %s: %s\n%s\n", command, what, read_messages(t));
}

/* As before the command: $WORK/out has the checkpoint of step 2 and nothing else. */
static bool restore(Test *t)
{
    return run(t, "rm -rf $WORK/out $WORK/cold && cp -r $WORK/kept $WORK/out") == 0;
}

/* What a refused training leaves can be gone on from, and comes to the same end. */
static void check_folder(Test *t, const char *command, size_t k)
{
    const char *clean = command_of(t, k, "alloc:1000000000");
    if (run(t, "! find $WORK/out | grep -E '\\.(json|onnx|safetensors)\\.|latest\\.'") != 0)
        fail(t, command, "a draft is left");
    if (run(t, mot_arena_printf(&t->ctx.arena, "%s ckpt verify $WORK/out", t->motley)) != 0)
        fail(t, command, "no checkpoint is left");
    if (run(t, clean) != 0 ||
        run(t, "cmp $WORK/out/model.onnx $WORK/trained.onnx && cmp $WORK/out/step-000004/"
               "optimizer.safetensors $WORK/trained.safetensors") != 0)
        fail(t, command, "the training does not go on as if nothing had been");
}

/*
 * The N-th call is refused. What can do without (a kernel cache that can't be written, say) may
 * still succeed.
 */
static void refuse(Test *t, size_t k, MotFault kind, uint32_t n)
{
    MotScope scope = mot_scope_begin(&t->ctx);
    /* Ranks that are threads show their leaks, too. */
    const char *fault = mot_arena_printf(&t->ctx.arena, "%s:%u MOTLEY_RANKS=%s",
                                         mot_fault_names[kind], n, n % 2 ? "processes" : "threads");
    const char *command = command_of(t, k, fault);
    if (!restore(t))
        fail(t, command, "no folder");
    int code = run(t, command);
    const char *text = read_messages(t), *line = strstr(text, "motley: ");
    bool can_do_without = kind != MOT_FAULT_alloc || strstr(text, "was not reached");
    t->n_runs++;
    if (code != 1 && !(code == 0 && can_do_without))
        fail(t, command, "the exit code is not 1");
    if (code != 0 && (!line || strstr(text, "motley: bug")))
        fail(t, command, "no message, or a bad one");
    if (strstr(text, "Sanitizer") || strstr(text, "runtime error"))
        fail(t, command, "a sanitizer complains");
    if (strncmp(cases[k].name, "train", 5) == 0)
        check_folder(t, command, k);
    mot_scope_end(&t->ctx, scope);
}

/* How many calls of a kind the host makes when nothing is refused. */
static uint32_t count_calls(Test *t, size_t k, MotFault kind)
{
    long n = 0;
    const char *fault = mot_arena_printf(&t->ctx.arena, "%s:1000000000", mot_fault_names[kind]);
    const char *command = command_of(t, k, fault);
    if (!restore(t) || run(t, command) != 0)
        fail(t, command, "it fails by itself");
    const char *found = strstr(read_messages(t), "there were ");
    if (!found || sscanf(found, "there were %ld", &n) != 1)
        fail(t, command, "calls are not counted");
    return (uint32_t)n;
}

/* The first few, and random ones among the others. */
static void walk(Test *t, size_t k, MotFault kind)
{
    uint32_t n = count_calls(t, k, kind), n_random = t->n_samples / cases[k].few;
    for (uint32_t i = 1; i <= n && i <= FIRST; i++)
        refuse(t, k, kind, i);
    if (n <= FIRST + n_random)
        for (uint32_t i = FIRST + 1; i <= n; i++)
            refuse(t, k, kind, i);
    else
        for (uint32_t i = 0; i < n_random; i++)
            refuse(t, k, kind, FIRST + 1 + draw(t, n - FIRST));
    printf("%s: %u of %s\n", cases[k].name, n, mot_fault_names[kind]);
    fflush(stdout);
}

static MotStatus write_data(Test *t)
{
    float x[N_ROWS * N_COLUMNS];
    int64_t labels[N_ROWS], dims[] = {N_ROWS, N_COLUMNS};
    for (int i = 0; i < N_ROWS * N_COLUMNS; i++)
        x[i] = (float)draw(t, 1000) * 0.001f;
    for (int i = 0; i < N_ROWS; i++)
        labels[i] = draw(t, 10);
    MotTensor tensors[] = {{mot_type_make(MOT_F32, 2, dims), x},
                           {mot_type_make(MOT_I64, 1, dims), labels}};
    MOT_TRY(mot_npy_write(&t->ctx, replace_work(t, "$WORK/x.npy"), &tensors[0]));
    return mot_npy_write(&t->ctx, replace_work(t, "$WORK/labels.npy"), &tensors[1]);
}

static MotStatus run_all(MotCtx *ctx, void *self)
{
    Test *t = self;
    (void)ctx;
    MOT_TRY(write_data(t));
    const char *first = replace_work(
        t, mot_arena_printf(&t->ctx.arena,
                            "XDG_CACHE_HOME=$WORK/cache %s train " TRAINING PLACE
                            " --data npy:x=$WORK/x.npy,labels=$WORK/labels.npy --steps 2 -q"
                            " --out $WORK/kept",
                            t->motley));
    if (run(t, first) != 0 || !restore(t) || run(t, command_of(t, N_CASES - 1, "alloc:1000000000")))
        fail(t, first, "can't train at all");
    if (run(t, "cp $WORK/out/model.onnx $WORK/trained.onnx && cp "
               "$WORK/out/step-000004/optimizer.safetensors $WORK/trained.safetensors") != 0)
        fail(t, first, "no trained model");
    for (size_t k = 0; k < N_CASES && t->n_failures == 0; k++)
        for (MotFault kind = 0; kind < MOT_N_FAULTS; kind++)
            walk(t, k, kind);
    return MOT_OK;
}

int main(int argc, char **argv)
{
    Test t = {.motley = getenv("MOTLEY"),
              .work = "/tmp/motley-faults-XXXXXX",
              .random = 0xfa11,
              .n_samples = N_SAMPLES};
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--seed") == 0)
            t.random = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--samples") == 0)
            t.n_samples = (uint32_t)strtoul(argv[i + 1], NULL, 0);
    if (!t.motley || !mkdtemp(t.work)) {
        printf("skipped: $MOTLEY is not set\n");
        return 77;
    }
    mot_ctx_init(&t.ctx);
    MotStatus status = mot_ctx_run(&t.ctx, run_all, &t);
    printf("%u refusals, %u failures\n", t.n_runs, t.n_failures);
    int left = run(&t, "rm -rf $WORK/*");
    rmdir(t.work);
    mot_ctx_deinit(&t.ctx);
    return status == MOT_OK && t.n_failures == 0 && left == 0 ? 0 : 1;
}
