/*
 * Conformance cases in ONNX's layout: a folder with model.onnx and
 * test_data_set_N/{input,output}_K.pb.
 */
#ifndef MOTLEY_FRONTEND_CASE_H
#define MOTLEY_FRONTEND_CASE_H

#include "support/context.h"

typedef enum MotCaseResult { MOT_CASE_PASSED, MOT_CASE_FAILED, MOT_CASE_SKIPPED } MotCaseResult;

/*
 * Imports the model, evaluates it by reference and compares: number of outputs, exact shapes and
 * dtypes, |a - b| <= 1e-7 + 1e-3 |b|, NaN equals NaN. Inputs on which shapes depend are constants.
 * What Motley does not support is skipped. `out_text` is the first difference, the error, or the
 * reason, in one line; in ctx's arena. The context has no error after.
 */
MotCaseResult mot_check_case(MotCtx *ctx, const char *dir, const char **out_text);

#endif
