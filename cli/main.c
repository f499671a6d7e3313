/*
 * The `motley` command: finds the verb, runs it, prints what failed, and turns the status into an
 * exit code.
 */
#include "cli/cutoff.h"
#include "cli/verbs.h"
#include "passes/pipeline.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const MotVerb *const verbs[] = {
    &mot_verb_import, &mot_verb_plan,  &mot_verb_explain, &mot_verb_train,  &mot_verb_run,
    &mot_verb_grad,   &mot_verb_bench, &mot_verb_check,   &mot_verb_sample, &mot_verb_ckpt,
    &mot_verb_opt,    &mot_verb_probe, &mot_verb_top,     &mot_verb_join,   &mot_verb_leave,
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static const struct {
    const char *name, *text;
} debug_help[] = {
    {"MOTLEY_DUMP=after:PASS,...", "print the graph after these passes to stderr, the program "
                                   "after `lower`; `all` for every pass"},
    {"MOTLEY_STOP=after:PASS", "stop after this pass"},
    {"MOTLEY_SKIP=PASS,...",
     "leave these passes out; `batch`: updates are not joined into one launch"},
    {"MOTLEY_RULE_LIMIT=N", "rewrites stop after N firings: bisects a wrong rewrite"},
    {"MOTLEY_VERIFY=1", "run the verifier after every pass (default in debug builds)"},
#define X(kind, error) " " #kind
    {"MOTLEY_FAIL=KIND:N", "the N-th call of a kind fails:" MOT_FAULT_LIST(X)},
#undef X
    {"MOTLEY_RANKS=threads|processes",
     "what a rank is; threads (the default under TSan) can't be killed"},
};

static void print_usage(FILE *out)
{
    fprintf(out, "usage: motley VERB [operands] [options]\n\n");
    for (size_t i = 0; i < N_VERBS; i++)
        fprintf(out, "  %-8s %s\n", verbs[i]->name, verbs[i]->summary);
    fprintf(out, "\n`motley VERB --help` shows a verb's options, `motley help debug` the debugging "
                 "switches,\n`motley help passes` the passes over a graph, in their order.\n"
                 "Exit codes:\n");
    int last = -1;
    for (MotStatus s = MOT_OK; s <= MOT_STOPPED; s++) {
        int code = mot_status_exit_code(s);
        if (code == last)
            fprintf(out, ", or %s", mot_status_text(s));
        else
            fprintf(out, "%s  %2d  %s", s == MOT_OK ? "" : "\n", code, mot_status_text(s));
        last = code;
    }
    fprintf(out, "\n");
}

/* `self` is the last level that is printed. */
static void print_log(void *self, MotLogLevel level, const char *line)
{
    if (level <= *(const MotLogLevel *)self)
        fprintf(stderr, "%s%s\n", level == MOT_LOG_WARN ? "motley: warning: " : "", line);
}

static MotStatus refuse_switch(MotCtx *ctx, const char *variable, const char *text)
{
    mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s=%s is not understood", variable,
             mot_quote(&ctx->arena, text));
    mot_hint(ctx, "motley help debug lists the debugging switches");
    return ctx->status;
}

/* A switch of passes: `prefix` and a name, repeated after commas; `all` where it makes sense. */
static MotStatus read_passes(MotCtx *ctx, const char *variable, const char *prefix,
                             const char **out_list)
{
    const char *list = *out_list = getenv(variable);
    size_t n_prefix = strlen(prefix);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        const char *item = mot_arena_strndup(&ctx->arena, p, strcspn(p, ","));
        bool is_pass = strncmp(item, prefix, n_prefix) == 0 && mot_pass_find(item + n_prefix);
        bool is_dump = out_list == &ctx->debug.dump &&
                       (strcmp(item, "all") == 0 || strcmp(item, "after:lower") == 0);
        bool is_lowering = out_list == &ctx->debug.skip && strcmp(item, "batch") == 0;
        if (!is_pass && !is_dump && !is_lowering)
            return refuse_switch(ctx, variable, item);
    }
    return MOT_OK;
}

/* A switch that is a count, behind `prefix`. */
static MotStatus read_count(MotCtx *ctx, const char *variable, const char *prefix, long *out_count)
{
    const char *text = getenv(variable);
    size_t n = strlen(prefix);
    char *end = NULL;
    if (!text)
        return MOT_OK;
    *out_count = strncmp(text, prefix, n) == 0 ? strtol(text + n, &end, 10) : 0;
    return end && end != text + n && !*end && *out_count > 0 ? MOT_OK
                                                             : refuse_switch(ctx, variable, text);
}

static MotStatus read_fault(MotCtx *ctx)
{
    const char *text = getenv("MOTLEY_FAIL");
    long n = 0;
    for (int kind = 0; text && kind < MOT_N_FAULTS; kind++) {
        const char *prefix = mot_arena_printf(&ctx->arena, "%s:", mot_fault_names[kind]);
        if (strncmp(text, prefix, strlen(prefix)) != 0)
            continue;
        MOT_TRY(read_count(ctx, "MOTLEY_FAIL", prefix, &n));
        mot_ctx_fail_at(ctx, (MotFault)kind, n);
        return MOT_OK;
    }
    return text ? refuse_switch(ctx, "MOTLEY_FAIL", text) : MOT_OK;
}

static void report_fault(MotCtx *ctx)
{
    for (int kind = 0; ctx->faults && kind < MOT_N_FAULTS; kind++)
        if (ctx->faults->count[kind] < ctx->faults->at[kind])
            mot_warn(ctx, MOT_NOWHERE, "MOTLEY_FAIL=%s:%ld was not reached: there were %ld",
                     mot_fault_names[kind], ctx->faults->at[kind], ctx->faults->count[kind]);
}

static MotStatus read_ranks(MotCtx *ctx)
{
    static const char *const kinds[] = {"processes", "threads"};
    const char *text = getenv("MOTLEY_RANKS");
    for (int i = 0; text && i < 2; i++)
        if (strcmp(text, kinds[i]) == 0) {
            ctx->debug.ranks_are_threads = i;
            return MOT_OK;
        }
    return text ? refuse_switch(ctx, "MOTLEY_RANKS", text) : MOT_OK;
}

/* The debugging switches, parsed once. */
static MotStatus read_environment(MotCtx *ctx)
{
    const char *verify = getenv("MOTLEY_VERIFY");
    MOT_TRY(read_passes(ctx, "MOTLEY_DUMP", "after:", &ctx->debug.dump));
    MOT_TRY(read_passes(ctx, "MOTLEY_STOP", "after:", &ctx->debug.stop));
    MOT_TRY(read_passes(ctx, "MOTLEY_SKIP", "", &ctx->debug.skip));
    MOT_TRY(read_count(ctx, "MOTLEY_RULE_LIMIT", "", &ctx->debug.rule_limit));
    MOT_TRY(read_fault(ctx));
    MOT_TRY(read_ranks(ctx));
    if (verify)
        ctx->debug.verify = strcmp(verify, "0") != 0;
    return MOT_OK;
}

typedef struct {
    const MotVerb *verb;
    int argc;
    char **argv;
    MotLogLevel talk;
} Call;

static MotStatus run_verb(MotCtx *ctx, void *arg)
{
    Call *call = arg;
    const MotArgs *args;
    MOT_TRY(read_environment(ctx));
    MOT_TRY(mot_args_parse(ctx, call->verb, call->argc, call->argv, &args));
    call->talk = mot_args_has(args, "-q")   ? MOT_LOG_WARN
                 : mot_args_has(args, "-v") ? MOT_LOG_DEBUG
                                            : MOT_LOG_INFO;
    MotStatus status = call->verb->run(ctx, args);
    report_fault(ctx);
    if (status == MOT_OK && ctx->debug.stop)
        mot_warn(ctx, MOT_NOWHERE, "MOTLEY_STOP=%s: no such pass was run", ctx->debug.stop);
    return status;
}

static void print_group(const MotOption *group)
{
    printf("\n");
    for (const MotOption *o = group; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-28s %s\n", left, o->help);
    }
}

static void print_help(const MotVerb *verb)
{
    printf("motley %s%s%s [options]\n\n%s\n", verb->name, verb->operands[0] ? " " : "",
           verb->operands, verb->summary);
    for (uint32_t g = 0; verb->options[g]; g++)
        print_group(verb->options[g]);
    print_group(mot_common_options);
}

static bool wants_help(const Call *call)
{
    for (int i = 0; i < call->argc && strcmp(call->argv[i], "--") != 0; i++)
        if (strcmp(call->argv[i], "--help") == 0 || strcmp(call->argv[i], "-h") == 0)
            return true;
    return false;
}

static void print_debug_help(void)
{
    for (size_t i = 0; i < sizeof debug_help / sizeof *debug_help; i++)
        printf("  %-28s %s\n", debug_help[i].name, debug_help[i].text);
}

static void print_passes(void)
{
    uint32_t n;
    const MotPass *const *passes = mot_passes_list(&n);
    for (uint32_t i = 0; i < n; i++)
        printf("  %-12s %s\n", passes[i]->name, passes[i]->summary);
}

static const MotVerb *find_verb(const char *name)
{
    for (size_t i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return verbs[i];
    return NULL;
}

static int help(const char *topic)
{
    const MotVerb *verb = find_verb(topic);
    if (verb) {
        print_help(verb);
    } else if (strcmp(topic, "debug") == 0) {
        print_debug_help();
    } else if (strcmp(topic, "passes") == 0) {
        print_passes();
    } else if (*topic) {
        fprintf(stderr, "motley: there is no help about \"%s\": a verb, debug or passes\n", topic);
        return mot_status_exit_code(MOT_ERR_USAGE);
    } else {
        print_usage(stdout);
    }
    return 0;
}

/* The exit code, once what was printed has arrived. */
static int finish(int code)
{
    if ((fflush(stdout) == 0 && !ferror(stdout)) || code != 0)
        return code;
    fprintf(stderr, "motley: the standard output can't be written: %s\n", strerror(errno));
    return mot_status_exit_code(MOT_ERR_IO);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return finish(help(argc > 2 ? argv[2] : ""));
    if (strcmp(name, "--version") == 0) {
        printf("motley %s\n", MOTLEY_VERSION);
        return finish(0);
    }
    Call call = {.verb = find_verb(name), .argc = argc - 2, .argv = argv + 2, .talk = MOT_LOG_INFO};
    if (!call.verb) {
        if (*name)
            fprintf(stderr, "motley: there is no verb \"%s\"\n", name);
        print_usage(stderr);
        return mot_status_exit_code(MOT_ERR_USAGE);
    }
    if (wants_help(&call)) {
        print_help(call.verb);
        return finish(0);
    }
    MotCtx ctx;
    mot_ctx_init(&ctx);
    ctx.log = print_log;
    ctx.log_self = &call.talk;
    mot_cutoff_watch();
    signal(SIGXFSZ, SIG_IGN); /* a file over the limit is a write that fails, and told as one */
    MotStatus status = mot_ctx_run(&ctx, run_verb, &call);
    /*
     * A status without a text (MOT_STOPPED, or a test case that failed) has been explained by the
     * verb.
     */
    if (ctx.status != MOT_OK)
        fprintf(stderr, "motley: %s\n", mot_text_get(&ctx.error));
    int code = mot_status_exit_code(status);
    mot_ctx_deinit(&ctx);
    return finish(code);
}
