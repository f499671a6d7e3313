/*
 * What the files of lowering share; nobody else includes it. lower.c walks the body, section by section, and makes kernels; forms.c has
 * the buffers and brings values from one sharding into another; stages.c lets values leave the stage and come to it.
 */
#ifndef MOTLEY_PASSES_LOWER_LOWERING_H
#define MOTLEY_PASSES_LOWER_LOWERING_H

#include "passes/lower/sections.h"
#include "passes/lower/transfers.h"
#include "support/map.h"

/* One buffer that holds a value under some sharding; the forms of a value are chained. */
typedef struct MotForm {
    MotSharding sharding;
    uint32_t buf, next; /* next: index + 1 into forms */
} MotForm;

typedef struct MotLowering {
    MotCtx *ctx;
    const MotPlan *plan;
    const MotGraph *g;
    MotProgram *program;
    MotSection section;
    MotVec(MotForm) forms;
    uint32_t *first_form; /* [values]: index + 1 */
    uint32_t *
        home; /* [values]: buffer + 1 of parameters, inputs, constants and sums, shared by the sections */
    MotFactors *factors;   /* [ops] */
    MotMap kernels;        /* text -> index */
    MotVec(MotOpId) group; /* the open group: ops that will be one launch */
    MotSections sections;
    uint32_t stage;
    const MotSharding *values; /* [values]: as their ops leave them; of other stages: replicated */
    const MotTransfers *transfers;
    uint32_t next_transfer;
    MotChannel *channels; /* [transfers] */
    bool *is_leaving;     /* [values]: sent to another stage */
    uint32_t
        *first_user; /* [values + 1]: users of value v are user[first_user[v]..first_user[v + 1]) */
    MotOpId *user;
    MotValue *inner; /* [values]: of the kernel that is being made; zeros in between */
} MotLowering;

/* The type of a rank's part, whose split dims are dims of the program. */
MotType mot_lower_local_type(MotLowering *l, const MotType *global, MotSharding s);
/* A new buffer for v under that sharding. */
uint32_t mot_lower_add_buf(MotLowering *l, MotBufKind kind, MotValue v, MotSharding s);
/* From now on `buf` holds v so. The first form of a value in a section is the one that others are made from. */
void mot_lower_add_form(MotLowering *l, MotValue v, MotSharding s, uint32_t buf);
/* The buffer that holds v as `need`, converted by collectives from the nearest form there is. */
uint32_t mot_lower_get_form(MotLowering *l, const MotOp *user, MotValue v, MotSharding need);
/* Appends to the section; the first n_in buffers are read, the others written. The pointer holds until the next one. */
MotInstr *mot_lower_add_instr(MotLowering *l, MotInstrKind kind, const MotOp *op,
                              const uint32_t *bufs, uint32_t n_bufs, uint32_t n_in);

/* Whether the op is computed here in this section, or in the other pass of the same micro-batch. */
bool mot_lower_is_live(const MotLowering *l, MotOpId id);
/* One launch for the open group. */
void mot_lower_flush(MotLowering *l);
/* What of the op's results leaves this stage, or comes to it, in this section. */
void mot_lower_transfers(MotLowering *l, MotOpId id);

#endif
