/*
 * motley join, motley leave: devices of this machine come to a training that runs, and go. It does
 * so between two steps, and answers then.
 */
#include "cli/answer.h"
#include "cli/control.h"
#include "cli/verbs.h"

#include <stdio.h>

static const MotOption join_options[] = {
    {"--device", "DEVICE",
     "a device that left or died, the name of a new one, or one as in a cluster file: "
     "'{name: d, threads: 2, slow: 2}'"},
    {NULL, NULL, NULL}};

static MotStatus refuse(MotCtx *ctx, const MotJson *answer)
{
    int64_t status = mot_json_int(mot_json_get(answer, "status"), MOT_ERR_INTERNAL);
    bool is_known = status >= MOT_ERR_INTERNAL && status < MOT_STOPPED;
    return mot_fail(ctx, is_known ? (MotStatus)status : MOT_ERR_INTERNAL, MOT_NOWHERE, "%s",
                    mot_json_string(mot_json_get(answer, "error"), "the training refuses"));
}

static void print_text(MotCtx *ctx, const MotJson *answer)
{
    const MotJson *devices = mot_json_get(answer, "devices"),
                  *shares = mot_json_get(answer, "shares");
    printf("from step %lld on with shares",
           (long long)mot_json_int(mot_json_get(answer, "step"), 0));
    for (size_t i = 0; i < mot_json_length(devices); i++)
        printf("%s %s %lld", i ? "," : "",
               mot_escape(&ctx->arena, mot_json_string(mot_json_at(devices, i), ""), 64),
               (long long)mot_json_int(mot_json_at(shares, i), 0));
    printf("\n");
}

static void print_json(MotCtx *ctx, const MotJson *answer)
{
    const MotJson *devices = mot_json_get(answer, "devices"),
                  *shares = mot_json_get(answer, "shares");
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_int(&w, "step", mot_json_int(mot_json_get(answer, "step"), 0));
    mot_json_open(&w, "devices", '[');
    for (size_t i = 0; i < mot_json_length(devices); i++)
        mot_json_put_string(&w, NULL, mot_json_string(mot_json_at(devices, i), NULL));
    mot_json_close(&w, ']');
    mot_json_open(&w, "shares", '[');
    for (size_t i = 0; i < mot_json_length(shares); i++)
        mot_json_put_int(&w, NULL, mot_json_int(mot_json_at(shares, i), 0));
    mot_json_close(&w, ']');
    mot_json_close(&w, '}');
    mot_answer_print(&w);
}

static MotStatus ask(MotCtx *ctx, const MotArgs *args, const char *verb, const char *device)
{
    const char *dir;
    const MotJson *answer;
    MotJsonWriter w;
    MOT_TRY(mot_args_need_operand(ctx, args, 0, &dir));
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_string(&w, "verb", verb);
    mot_json_put_string(&w, "device", device);
    mot_json_close(&w, '}');
    MOT_TRY(mot_control_ask(ctx, dir, &w, &answer));
    if (mot_json_get(answer, "error"))
        return refuse(ctx, answer);
    (mot_args_has(args, "--json") ? print_json : print_text)(ctx, answer);
    return MOT_OK;
}

static MotStatus run_join(MotCtx *ctx, const MotArgs *args)
{
    const char *device = mot_args_get(args, "--device", NULL);
    if (!device)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--device DEVICE is needed");
    return ask(ctx, args, "join", device);
}

static MotStatus run_leave(MotCtx *ctx, const MotArgs *args)
{
    const char *device;
    MOT_TRY(mot_args_need_operand(ctx, args, 1, &device));
    return ask(ctx, args, "leave", device);
}

const MotVerb mot_verb_join = {.name = "join",
                               .operands = "DIR",
                               .summary = "add a device to a training that runs",
                               .options = (const MotOption *const[]){join_options, NULL},
                               .run = run_join};
const MotVerb mot_verb_leave = {.name = "leave",
                                .operands = "DIR DEVICE",
                                .summary = "take a device out of a training that runs",
                                .options = (const MotOption *const[]){NULL},
                                .run = run_leave};
