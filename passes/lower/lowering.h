/*
 * What the files of lowering share; nobody else includes it. lower.c walks the body, section by
 * section, and makes kernels; forms.c has the buffers and brings values from one sharding into
 * another; stages.c lets values leave the stage and come to it; cuts.c gives layers that may be cut
 * a second set of launches.
 */
#ifndef MOTLEY_PASSES_LOWER_LOWERING_H
#define MOTLEY_PASSES_LOWER_LOWERING_H

#include "ir/builder.h"
#include "passes/lower/sections.h"
#include "passes/lower/transfers.h"
#include "support/map.h"

/* One buffer that holds a value under some sharding; the forms of a value are chained. */
typedef struct MotForm {
    MotSharding sharding;
    uint32_t buf, next; /* next: index + 1 into forms */
} MotForm;

/* A layer that may be cut (cuts.h), and its buffers once the first of its launches is there. */
typedef struct MotLayer {
    /* dx: 0 where the input needs no gradient; update: 0 if it does not decay */
    MotOpId fwd, dx, dw, update;
    MotValue x, w, g;                /* input, weight, the result's gradient */
    int x_dim, w_dim;                /* the dims of the letter that is cut */
    uint32_t cut;                    /* of the program, + 1 */
    uint32_t last;                   /* the gradient of the last step, + 1 */
    uint32_t help_w, help_x, help_g; /* what a helper has of its lender's, and of its own; + 1 */
} MotLayer;

typedef struct MotLowering {
    MotCtx *ctx;
    const MotPlan *plan;
    const MotGraph *g;
    MotProgram *program;
    MotSection section;
    MotVec(MotForm) forms;
    uint32_t *first_form; /* [values]: index + 1 */
    /* [values]: buffer + 1 of parameters, inputs, constants and sums, shared by the sections */
    uint32_t *home;
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
    /* [values + 1]: users of value v are user[first_user[v]..first_user[v + 1]) */
    uint32_t *first_user;
    MotOpId *user;
    MotValue *inner; /* [values]: of the kernel that is being made; zeros in between */
    MotVec(MotLayer) layers;
    uint32_t *layer_of; /* [ops]: of a layer's products and its update, + 1 */
    /* while the update of a layer that is cut is made: of the kept columns, + 1 */
    uint32_t kept_places;
} MotLowering;

/* The kernel under construction: its graph, and the buffers that it reads and writes. */
typedef struct MotKernelMaker {
    MotBuilder b;
    uint32_t bufs[MOT_MAX_FUSED * (MOT_MAX_OPERANDS + MOT_MAX_RESULTS)], n_bufs;
    MotValue *inner; /* [values]: graph value -> kernel value */
    MotMap inputs;   /* buffer -> kernel input */
} MotKernelMaker;

MotKernelMaker mot_lower_kernel_make(MotLowering *l);
/* The kernel's operand that is the buffer. Operands come before results. */
MotValue mot_lower_kernel_input(MotLowering *l, MotKernelMaker *k, uint32_t buf);
/* Names in the graph the dims that the program has by now. */
void mot_lower_name_symbols(MotLowering *l, MotGraph *graph);
/* Equal texts share one kernel. */
uint32_t mot_lower_find_kernel(MotLowering *l, MotGraph *graph);

/* The type of a rank's part, whose split dims are dims of the program. */
MotType mot_lower_local_type(MotLowering *l, const MotType *global, MotSharding s);
/* A new buffer for v under that sharding. */
uint32_t mot_lower_add_buf(MotLowering *l, MotBufKind kind, MotValue v, MotSharding s);
/*
 * From now on `buf` holds v so. The first form of a value in a section is the one that others are
 * made from.
 */
void mot_lower_add_form(MotLowering *l, MotValue v, MotSharding s, uint32_t buf);
/* The buffer that holds v as `need`, converted by collectives from the nearest form there is. */
uint32_t mot_lower_get_form(MotLowering *l, const MotOp *user, MotValue v, MotSharding need);
/*
 * Appends to the section; the first n_in buffers are read, the others written. The pointer holds
 * until the next one.
 */
MotInstr *mot_lower_add_instr(MotLowering *l, MotInstrKind kind, const MotOp *op,
                              const uint32_t *bufs, uint32_t n_bufs, uint32_t n_in);

/* Finds the layers that may be cut; none where the plan allows no cuts. */
void mot_lower_find_layers(MotLowering *l);
/*
 * After the launch of one of a layer's products, the last of the section: what runs instead where
 * the layer is cut.
 */
void mot_lower_cut_product(MotLowering *l, MotOpId id);
/*
 * After the launch of a group with a layer's update: ranks that cut there don't run it. Gives that
 * launch.
 */
MotInstr *mot_lower_cut_update(MotLowering *l, uint32_t number);

/* Whether the op is computed here in this section, or in the other pass of the same micro-batch. */
bool mot_lower_is_live(const MotLowering *l, MotOpId id);
/* One launch for the open group. */
void mot_lower_flush(MotLowering *l);
/* What of the op's results leaves this stage, or comes to it, in this section. */
void mot_lower_transfers(MotLowering *l, MotOpId id);

#endif
