/* motley check: conformance cases in ONNX's layout, on the reference evaluator. One line a case, then the counts. */
#include "cli/verbs.h"
#include "frontend/case.h"

#include <stdio.h>

static const MotOption check_options[] = {{"-q", NULL, "print only failures and the counts"},
                                          {NULL, NULL, NULL}};

static MotStatus run_check(MotCtx *ctx, const MotArgs *args)
{
    static const char *const words[] = {
        [MOT_CASE_PASSED] = "passed", [MOT_CASE_FAILED] = "FAILED", [MOT_CASE_SKIPPED] = "skipped"};
    uint32_t n[3] = {0};
    const char *dir;
    MOT_TRY(mot_args_need_operand(ctx, args, 0, &dir));
    for (uint32_t i = 0; (dir = mot_args_operand(args, i)); i++) {
        MotCtx own; /* a case keeps nothing */
        const char *text = "";
        mot_ctx_init(&own);
        own.debug = ctx->debug;
        MotCaseResult result = mot_check_case(&own, dir, &text);
        n[result]++;
        if (result == MOT_CASE_FAILED || !mot_args_has(args, "-q"))
            printf("%s: %s%s%s\n", dir, words[result], *text ? ": " : "", text);
        mot_ctx_deinit(&own);
    }
    printf("%u passed, %u failed, %u skipped\n", n[MOT_CASE_PASSED], n[MOT_CASE_FAILED],
           n[MOT_CASE_SKIPPED]);
    return n[MOT_CASE_FAILED] ? MOT_ERR_INTERNAL : MOT_OK;
}

const MotVerb mot_verb_check = {.name = "check",
                                .operands = "DIR...",
                                .summary = "run ONNX conformance cases",
                                .options = (const MotOption *const[]){check_options, NULL},
                                .run = run_check};
