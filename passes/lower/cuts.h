/*
 * What the files of layers that may be cut share; nobody else includes it. cuts.c finds these
 * layers and has launches for ranks that leave columns out; lend.c those for ranks that have others
 * compute some.
 */
#ifndef MOTLEY_PASSES_LOWER_CUTS_H
#define MOTLEY_PASSES_LOWER_CUTS_H

#include "passes/lower/lowering.h"

/* Who runs an instruction. */
typedef struct MotCutRanks {
    uint32_t cut; /* + 1 */
    enum MotWho who;
} MotCutRanks;

/*
 * The letter of dim `dim` of an operand of a contraction; the dim of the result that has a letter,
 * or -1; which operand v is, or 2.
 */
char mot_cut_letter_of(const MotOp *contract, uint32_t operand, int dim);
int mot_cut_result_dim_of(const MotOp *contract, char letter);
uint32_t mot_cut_operand_of(const MotOp *op, MotValue v);
/* In which sharding the op takes v. */
MotSharding mot_cut_sharding_of(const MotLowering *l, MotOpId id, MotValue v);
const MotType *mot_cut_type_of(const MotLowering *l, uint32_t buf);

/* A buffer whose contents are the rank's own. */
uint32_t mot_cut_add_buf(MotLowering *l, MotBufKind kind, MotType type, MotType global);
/* The places of columns as a value that broadcasts along dim `dim` of a tensor of that rank. */
uint32_t mot_cut_view_places(MotLowering *l, uint32_t place, int dim, int rank);
/* A buffer like `buf`, with `columns` instead of dim `dim`. */
uint32_t mot_cut_add_compact(MotLowering *l, uint32_t buf, int dim, int64_t columns);

MotValue mot_cut_build(MotLowering *l, MotKernelMaker *k, MotOpKind kind, const MotValue *in,
                       uint32_t n_in, const void *attrs, const MotType *type);
/* Launches the kernel with one result. */
void mot_cut_launch(MotLowering *l, MotKernelMaker *k, const MotOp *op, MotCutRanks ranks,
                    MotValue value, uint32_t result);
/* The contraction of what stands in these buffers; with a letter, over the columns of `list`. */
void mot_cut_multiply(MotLowering *l, const MotOp *op, MotCutRanks ranks, const uint32_t *operands,
                      uint32_t list, char letter, uint32_t result);
/* The listed columns of dim `dim`, in a new buffer. */
uint32_t mot_cut_gather_columns(MotLowering *l, const MotOp *op, MotCutRanks ranks, uint32_t buf,
                                int dim, uint32_t list);

/* Whether helpers can compute columns of the layer for the owner of its weight's part. */
bool mot_lower_can_lend(const MotLowering *l, const MotLayer *layer);
/* The dims and buffers of lending, of a layer that has a cut. */
void mot_lower_prepare_lending(MotLowering *l, MotLayer *layer);
/*
 * Before a product's launches: what goes to helpers, so that it travels while all compute what is
 * theirs. After them: what helpers compute, and what comes back. `plain`: the product's operands
 * and its result.
 */
void mot_lower_lend_operands(MotLowering *l, MotOpId id, MotLayer *layer, const uint32_t *plain);
void mot_lower_lend_product(MotLowering *l, MotOpId id, MotLayer *layer, const uint32_t *plain);

#endif
