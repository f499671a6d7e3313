/* What the verbs' answers share. */
#ifndef MOTLEY_CLI_ANSWER_H
#define MOTLEY_CLI_ANSWER_H

#include "ir/dtype.h"
#include "job/args.h"
#include "support/json.h"

/* The members "dtype" and "shape". */
void mot_answer_put_type(MotJsonWriter *w, const MotType *type);
/* The document and a newline, to standard output. */
void mot_answer_print(const MotJsonWriter *w);

/*
 * Gives `status` back, that of opening the model of a checkpoint (--model, or where it was in
 * training); if it is not there any more, the error says what to do.
 */
MotStatus mot_answer_opened(MotCtx *ctx, const MotArgs *args, MotStatus status);

#endif
