/*
 * motley opt: runs graph passes on the text of a graph, or on a model file, and prints the result.
 */
#include "cli/verbs.h"
#include "ir/graph_text.h"
#include "job/job.h"
#include "passes/pipeline.h"
#include "support/file.h"

#include <stdio.h>
#include <string.h>

static const MotOption opt_options[] = {
    {"--passes", "A,B,C", "the passes, in this order; without: only parse and verify"},
    {NULL, NULL, NULL}};

static bool has_suffix(const char *text, const char *suffix)
{
    size_t n = strlen(text), k = strlen(suffix);
    return n >= k && strcmp(text + n - k, suffix) == 0;
}

static MotStatus read_graph(MotCtx *ctx, const MotArgs *args, MotJob *job)
{
    const char *path;
    const MotFileMap *map;
    MOT_TRY(mot_args_need_operand(ctx, args, 0, &path));
    if (has_suffix(path, ".onnx"))
        return mot_job_import(ctx, args, job);
    MOT_TRY(mot_file_map(ctx, path, &map));
    const char *text =
        mot_arena_strndup(&ctx->arena, map->data ? (const char *)map->data : "", map->n);
    if (strlen(text) != map->n)
        return mot_fail(ctx, MOT_ERR_MODEL, (MotLoc){path, NULL},
                        "holds a NUL byte: it is not the text of a graph");
    return mot_graph_parse(ctx, path, text, &job->graph);
}

static MotStatus run_opt(MotCtx *ctx, const MotArgs *args)
{
    MotJob job = {.args = args};
    MotPassOpts opts = {0};
    const char *loss = mot_args_get(args, "--loss", NULL),
               *optimizer = mot_args_get(args, "--optimizer", NULL);
    const char *passes = mot_args_get(args, "--passes", "");
    MOT_TRY(read_graph(ctx, args, &job));
    if (loss) {
        MOT_TRY(mot_loss_parse(ctx, job.graph, loss, &job.loss));
        opts.loss = &job.loss;
    }
    if (optimizer) {
        MOT_TRY(mot_optimizer_parse(ctx, optimizer, &job.optimizer));
        opts.optimizer = &job.optimizer;
    }
    if (*passes)
        MOT_TRY(mot_passes_run_list(ctx, job.graph, &opts, passes));
    MOT_TRY(mot_graph_verify(job.graph));
    MotText text;
    mot_text_init(&text, &ctx->arena);
    if (mot_args_has(args, "--json")) {
        MotRecords records = mot_graph_to_records(job.graph);
        mot_records_print_json(&records, &text);
        mot_text_puts(&text, "\n");
    } else {
        mot_graph_print(job.graph, &text);
    }
    fputs(mot_text_get(&text), stdout);
    return MOT_OK;
}

const MotVerb mot_verb_opt = {
    .name = "opt",
    .operands = "FILE",
    .summary = "run graph passes on a graph's text or a model file and print the result",
    .options = (const MotOption *const[]){opt_options, mot_loss_options, mot_optimizer_options,
                                          mot_input_options, mot_model_options, NULL},
    .run = run_opt};
