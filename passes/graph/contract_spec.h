/* The spec of a contraction taken apart: one letter a dim of each operand and of the result. */
#ifndef MOTLEY_PASSES_GRAPH_CONTRACT_SPEC_H
#define MOTLEY_PASSES_GRAPH_CONTRACT_SPEC_H

#include "ir/builder.h"

typedef struct MotSpec {
    char in[2][MOT_MAX_RANK + 1], out[MOT_MAX_RANK + 1];
    char cut; /* the letter that k_index lists positions of, 0: none */
} MotSpec;

/* Of an op that inference has accepted. */
MotSpec mot_spec_of(const MotOp *contract);
/* A contraction of x and y by `spec`, otherwise (accumulation type, k_index) like the op `like`. */
MotValue mot_spec_contract(MotBuilder *b, const MotOp *like, MotValue x, MotValue y,
                           const MotSpec *spec);
/* The position of the letter, or -1. */
int mot_spec_find(const char *letters, char letter);

#endif
