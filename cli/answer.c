/* What the verbs' answers share. */
#include "cli/answer.h"

#include <stdio.h>

void mot_answer_put_type(MotJsonWriter *w, const MotType *type)
{
    mot_json_put_string(w, "dtype", mot_dtype_name(type->dtype));
    mot_json_put_ints(w, "shape", type->dims, (size_t)type->rank);
}

void mot_answer_print(const MotJsonWriter *w)
{
    puts(mot_text_get(&w->text));
}

MotStatus mot_answer_opened(MotCtx *ctx, const MotArgs *args, MotStatus status)
{
    if (status == MOT_ERR_IO && !mot_args_has(args, "--model"))
        mot_hint(ctx, "it was there when it was trained; --model FILE.onnx if it is elsewhere");
    return status;
}
