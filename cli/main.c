/* The `motley` command: finds the verb, runs it, prints what failed, and turns the status into an exit code. */
#include "cli/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const MotVerb *const verbs[] = {
    &mot_verb_import, &mot_verb_plan, &mot_verb_explain, &mot_verb_train,
    &mot_verb_run,    &mot_verb_grad, &mot_verb_bench,   &mot_verb_check,
    &mot_verb_sample, &mot_verb_ckpt, &mot_verb_opt,
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static const struct {
    const char *name, *text;
} debug_help[] = {
    {"MOTLEY_DUMP=after:PASS,...",
     "print the graph after these passes to stderr; `all` for every pass"},
    {"MOTLEY_STOP=after:PASS", "stop after this pass"},
    {"MOTLEY_SKIP=PASS,...", "leave these passes out"},
    {"MOTLEY_RULE_LIMIT=N", "rewrites stop after N firings: bisects a wrong rewrite"},
    {"MOTLEY_VERIFY=1", "run the verifier after every pass (default in debug builds)"},
    {"MOTLEY_FAIL=alloc:N", "the N-th allocation fails"},
};

static void print_usage(FILE *out)
{
    fprintf(out, "usage: motley VERB [operands] [options]\n\n");
    for (size_t i = 0; i < N_VERBS; i++)
        fprintf(out, "  %-8s %s\n", verbs[i]->name, verbs[i]->summary);
    fprintf(out, "\n`motley VERB --help` shows a verb's options, `motley help debug` the debugging "
                 "switches.\n"
                 "Exit codes: 0 ok");
    int last = 0;
    for (MotStatus s = MOT_ERR_INTERNAL; s <= MOT_STOPPED; s++)
        if (mot_status_exit_code(s) != last) {
            last = mot_status_exit_code(s);
            fprintf(out, ", %d %s", last, mot_status_text(s));
        }
    fprintf(out, ".\n");
}

static void print_log(void *self, MotLogLevel level, const char *line)
{
    (void)self;
    if (level <= MOT_LOG_INFO)
        fprintf(stderr, "%s%s\n", level == MOT_LOG_WARN ? "motley: warning: " : "", line);
}

/* The debugging switches, parsed once. */
static void read_environment(MotCtx *ctx)
{
    const char *limit = getenv("MOTLEY_RULE_LIMIT"), *fail = getenv("MOTLEY_FAIL"),
               *verify = getenv("MOTLEY_VERIFY");
    ctx->debug.dump = getenv("MOTLEY_DUMP");
    ctx->debug.stop = getenv("MOTLEY_STOP");
    ctx->debug.skip = getenv("MOTLEY_SKIP");
    ctx->debug.rule_limit = limit ? strtol(limit, NULL, 10) : 0;
    if (verify)
        ctx->debug.verify = strcmp(verify, "0") != 0;
    if (fail && strncmp(fail, "alloc:", 6) == 0)
        ctx->arena.fail_at = strtol(fail + 6, NULL, 10);
}

typedef struct {
    const MotVerb *verb;
    int argc;
    char **argv;
} Call;

static MotStatus run_verb(MotCtx *ctx, void *arg)
{
    const Call *call = arg;
    const MotArgs *args;
    MOT_TRY(mot_args_parse(ctx, call->verb, call->argc, call->argv, &args));
    return call->verb->run(ctx, args);
}

static bool wants_help(const Call *call)
{
    for (int i = 0; i < call->argc && strcmp(call->argv[i], "--") != 0; i++)
        if (strcmp(call->argv[i], "--help") == 0 || strcmp(call->argv[i], "-h") == 0)
            return true;
    return false;
}

static int help(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[2], "debug") == 0)
        for (size_t i = 0; i < sizeof debug_help / sizeof *debug_help; i++)
            printf("  %-28s %s\n", debug_help[i].name, debug_help[i].text);
    else
        print_usage(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help(argc, argv);
    if (strcmp(name, "--version") == 0)
        return printf("motley %s\n", MOTLEY_VERSION) < 0;
    Call call = {.argc = argc - 2, .argv = argv + 2};
    for (size_t i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            call.verb = verbs[i];
    if (!call.verb) {
        if (*name)
            fprintf(stderr, "motley: there is no verb \"%s\"\n", name);
        print_usage(stderr);
        return mot_status_exit_code(MOT_ERR_USAGE);
    }
    if (wants_help(&call)) {
        mot_args_print_help(call.verb);
        return 0;
    }
    MotCtx ctx;
    mot_ctx_init(&ctx);
    ctx.log = print_log;
    read_environment(&ctx);
    MotStatus status = mot_ctx_run(&ctx, run_verb, &call);
    /* A status without a text (MOT_STOPPED, or a test case that failed) has been explained by the verb. */
    if (ctx.status != MOT_OK)
        fprintf(stderr, "motley: %s\n", mot_text_get(&ctx.error));
    int code = mot_status_exit_code(status);
    mot_ctx_deinit(&ctx);
    if (fflush(stdout) != 0 && code == 0)
        code = 1;
    return code;
}
