/* What the verbs' answers as JSON share. */
#ifndef MOTLEY_CLI_ANSWER_H
#define MOTLEY_CLI_ANSWER_H

#include "ir/dtype.h"
#include "support/json.h"

/* The members "dtype" and "shape". */
void mot_answer_put_type(MotJsonWriter *w, const MotType *type);
/* The document and a newline, to standard output. */
void mot_answer_print(const MotJsonWriter *w);

#endif
