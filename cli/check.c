/*
 * motley check: conformance cases in ONNX's layout, on the reference evaluator. One line a case,
 * then the counts.
 */
#include "cli/answer.h"
#include "cli/verbs.h"
#include "frontend/case.h"

#include <stdio.h>

static const char *const words[] = {
    [MOT_CASE_PASSED] = "passed", [MOT_CASE_FAILED] = "FAILED", [MOT_CASE_SKIPPED] = "skipped"};

static void put_case(MotJsonWriter *w, const char *dir, MotCaseResult result, const char *text)
{
    mot_json_open(w, NULL, '{');
    mot_json_put_string(w, "case", dir);
    mot_json_put_string(w, "result", result == MOT_CASE_FAILED ? "failed" : words[result]);
    mot_json_put_string(w, "text", text);
    mot_json_close(w, '}');
}

/* With -q the failures only. */
static MotStatus run_check(MotCtx *ctx, const MotArgs *args)
{
    uint32_t n[3] = {0};
    const char *dir;
    bool is_json = mot_args_has(args, "--json");
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_open(&w, "cases", '[');
    MOT_TRY(mot_args_need_operand(ctx, args, 0, &dir));
    for (uint32_t i = 0; (dir = mot_args_operand(args, i)); i++) {
        MotCtx own; /* a case keeps nothing */
        const char *text = "";
        mot_ctx_init(&own);
        mot_ctx_inherit(&own, ctx);
        MotCaseResult result = mot_check_case(&own, dir, &text);
        n[result]++;
        bool is_told = result == MOT_CASE_FAILED || !mot_args_has(args, "-q");
        if (is_told && is_json)
            put_case(&w, dir, result, text);
        else if (is_told)
            printf("%s: %s%s%s\n", dir, words[result], *text ? ": " : "", text);
        mot_ctx_deinit(&own);
    }
    mot_json_close(&w, ']');
    mot_json_put_int(&w, "passed", n[MOT_CASE_PASSED]);
    mot_json_put_int(&w, "failed", n[MOT_CASE_FAILED]);
    mot_json_put_int(&w, "skipped", n[MOT_CASE_SKIPPED]);
    mot_json_close(&w, '}');
    if (is_json)
        mot_answer_print(&w);
    else
        printf("%u passed, %u failed, %u skipped\n", n[MOT_CASE_PASSED], n[MOT_CASE_FAILED],
               n[MOT_CASE_SKIPPED]);
    return n[MOT_CASE_FAILED] ? MOT_ERR_INTERNAL : MOT_OK;
}

const MotVerb mot_verb_check = {.name = "check",
                                .operands = "DIR...",
                                .summary = "run ONNX conformance cases",
                                .options = (const MotOption *const[]){NULL},
                                .run = run_check};
