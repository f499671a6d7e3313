/*
 * Lending (SEMI-migration, arXiv 2401.11469): columns of a layer that a helper computes for the
 * rank that owns them, the lender.
 *
 * The lender's weight columns go to the helper for the step. What of the layer's tensors every rank
 * has whole the helper takes of its own, what is split goes there as well; a result that is a
 * partial sum merges into the helper's own, one that is split goes back:
 *
 *                       weight split by rows            weight split by columns
 *     W[:, lent]        to the helper                   to the helper
 *     X[:, lent]        the helper's own                to the helper
 *     Y                 back, added to the lender's     added to the helper's own partial Y
 *     G                 to the helper                   the helper's own
 *     dX[:, lent]       added to the helper's partial   back
 *     dW[:, lent]       back                            back
 *
 * What goes there and back is a dim that is split anew (all_to_all along one dim): columns are
 * numbered lender by lender and helper by helper. Where all columns of a tensor go, it has a
 * leading dim of helpers instead. All sizes are 0 where nobody lends, and launches and exchanges
 * idle. Exact: each product is computed once, by whoever does. Every micro-batch of a step does so;
 * the weight goes to helpers in the first, for all of them.
 */
#include "passes/lower/cuts.h"

static MotCut *cut_of(const MotLowering *l, const MotLayer *layer)
{
    return &l->program->cuts.data[layer->cut - 1];
}

static MotCutRanks lenders(const MotLayer *layer)
{
    return (MotCutRanks){layer->cut, MOT_WHO_LENDS};
}

static MotCutRanks helpers(const MotLayer *layer)
{
    return (MotCutRanks){layer->cut, MOT_WHO_HELPS};
}

bool mot_lower_can_lend(const MotLowering *l, const MotLayer *layer)
{
    MotSharding w = mot_cut_sharding_of(l, layer->fwd, layer->w);
    bool has_slots = mot_graph_type(l->g, layer->g)->rank < MOT_MAX_RANK; /* for a leading dim */
    return l->program->mesh.n_axes == 1 && w.axis[0] >= 0 && has_slots;
}

/* ---- Dims and buffers ---- */

/* The dim of the layer, as a dim of a type; made when first needed. */
static int64_t find_dim(MotLowering *l, const MotLayer *layer, enum MotCutDim what, uint32_t parent)
{
    MotProgram *p = l->program;
    for (uint32_t i = 0; i < p->dims.n; i++)
        if (p->dims.data[i].cut == layer->cut && p->dims.data[i].what == what &&
            p->dims.data[i].parent == parent)
            return -(int64_t)i - 1;
    MotDim dim = {.name = mot_arena_printf(&l->ctx->arena, "l%u", p->dims.n),
                  .parent = parent,
                  .size = p->dims.data[cut_of(l, layer)->dim].size,
                  .granule = 1,
                  .cut = layer->cut,
                  .what = what};
    mot_vec_push(&l->ctx->arena, &p->dims, dim);
    return -(int64_t)p->dims.n;
}

static bool is_split(const MotType *type)
{
    for (int d = 0; d < type->rank; d++)
        if (type->dims[d] < 0)
            return true;
    return false;
}

/* The type that what the lender has has at its helper. */
static MotType at_helper(MotLowering *l, const MotLayer *layer, MotType type)
{
    for (int d = 0; d < type.rank; d++)
        if (type.dims[d] < 0 && !l->program->dims.data[-type.dims[d] - 1].cut)
            type.dims[d] = find_dim(l, layer, MOT_DIM_LENDERS, (uint32_t)-type.dims[d]);
    return type;
}

static MotType with_leading(MotType type, int64_t dim)
{
    for (int d = type.rank++; d > 0; d--)
        type.dims[d] = type.dims[d - 1];
    type.dims[0] = dim;
    return type;
}

/*
 * The buffer with a leading dim, with room for all ranks; and the same memory without, for the one
 * rank whose it is.
 */
static uint32_t add_slots(MotLowering *l, MotType type, MotType global, int64_t slots,
                          uint32_t *out_inside)
{
    int64_t most = l->program->mesh.n_devices;
    uint32_t buf =
        mot_cut_add_buf(l, MOT_BUF_SCRATCH, with_leading(type, slots), with_leading(global, most));
    if (out_inside) {
        global.dims[0] *= most; /* as many elements */
        *out_inside = mot_cut_add_buf(l, MOT_BUF_SCRATCH, type, global);
        l->program->bufs.data[*out_inside].alias = buf + 1;
    }
    return buf;
}

void mot_lower_prepare_lending(MotLowering *l, MotLayer *layer)
{
    int64_t lent = find_dim(l, layer, MOT_DIM_LENT, 0),
            helped = find_dim(l, layer, MOT_DIM_HELPED, 0);
    MotCut *cut = cut_of(l, layer);
    MotType own = *mot_cut_type_of(l, cut->place), whole = l->program->bufs.data[cut->place].global;
    cut->is_lendable = true;
    cut->dim_lent = (uint32_t)(-lent - 1);
    cut->dim_helped = (uint32_t)(-helped - 1);
    cut->lent = mot_cut_add_buf(l, MOT_BUF_LOCAL, mot_type_make(MOT_I64, 1, &lent), whole);
    cut->lent_place = mot_cut_add_buf(l, MOT_BUF_LOCAL, own, whole);
    cut->helped = mot_cut_add_buf(l, MOT_BUF_LOCAL, mot_type_make(MOT_I64, 1, &helped), whole);
    cut->helped_place = mot_cut_add_buf(l, MOT_BUF_LOCAL, own, whole);
    if (!l->program->lender)
        l->program->lender = mot_arena_array(&l->ctx->arena, int64_t, l->program->mesh.n_devices);
}

/* ---- Going there and back ---- */

static void exchange(MotLowering *l, const MotOp *op, const MotLayer *layer, uint32_t from,
                     uint32_t to, int dim)
{
    MotInstr *ins = mot_lower_add_instr(l, MOT_INS_ALL_TO_ALL, op, (uint32_t[]){from, to}, 2, 1);
    MotMove move = {.dim = dim, .dim_out = dim};
    ins->moves = mot_arena_copy(&l->ctx->arena, &move, sizeof move);
    ins->cut = layer->cut;
    ins->who = MOT_WHO_IF_LENT;
}

/* The lender's columns along `dim`, at the helper. */
static uint32_t lend_columns(MotLowering *l, const MotOp *op, const MotLayer *layer, uint32_t buf,
                             int dim)
{
    const MotCut cut = *cut_of(l, layer);
    uint32_t from = mot_cut_gather_columns(l, op, lenders(layer), buf, dim, cut.lent);
    MotType type = at_helper(l, layer, *mot_cut_type_of(l, from));
    type.dims[dim] = find_dim(l, layer, MOT_DIM_HELPED, 0);
    uint32_t to = mot_cut_add_buf(l, MOT_BUF_SCRATCH, type, l->program->bufs.data[buf].global);
    exchange(l, op, layer, from, to, dim);
    return to;
}

/* The lender's columns of the weight, at the helper: once for all micro-batches of a step. */
static uint32_t lend_weight(MotLowering *l, const MotOp *op, const MotLayer *layer, uint32_t buf)
{
    MotProgram *p = l->program;
    uint32_t i = p->section[l->section].n, to = lend_columns(l, op, layer, buf, layer->w_dim);
    if (l->plan->n_micro == 1)
        return to;
    for (; i < p->section[l->section].n; i++)
        p->section[l->section].data[i].when = MOT_WHEN_FIRST;
    p->bufs.data[to].kind = MOT_BUF_LOCAL;
    return to;
}

/* All of the lender's, at every helper. */
static uint32_t lend_all(MotLowering *l, const MotOp *op, const MotLayer *layer, uint32_t buf)
{
    MotType type = *mot_cut_type_of(l, buf), global = l->program->bufs.data[buf].global;
    uint32_t inside;
    uint32_t from = add_slots(l, type, global, find_dim(l, layer, MOT_DIM_HELPERS, 0), NULL);
    uint32_t to = add_slots(l, at_helper(l, layer, type), global,
                            find_dim(l, layer, MOT_DIM_HELPS, 0), &inside);
    const MotType many = *mot_cut_type_of(l, from);
    MotKernelMaker k = mot_lower_kernel_make(l);
    MotValue x = mot_lower_kernel_input(l, &k, buf);
    MotAttr_dims attrs = {
        .dims = {mot_arena_copy(&l->ctx->arena, many.dims, (size_t)many.rank * sizeof *many.dims),
                 (uint32_t)many.rank}};
    mot_cut_launch(l, &k, op, lenders(layer),
                   mot_cut_build(l, &k, MOT_OP_BROADCAST, &x, 1, &attrs, &many), from);
    exchange(l, op, layer, from, to, 0);
    return inside;
}

/* The lender adds up what its helpers computed of a result. */
static void return_sum(MotLowering *l, const MotOp *op, const MotLayer *layer, uint32_t slots,
                       uint32_t result)
{
    MotType type = *mot_cut_type_of(l, result), global = l->program->bufs.data[result].global;
    uint32_t back = add_slots(l, type, global, find_dim(l, layer, MOT_DIM_HELPERS, 0), NULL);
    static const int64_t first = 0;
    MotAttr_reduce attrs = {.axes = {(int64_t *)(uintptr_t)&first, 1}};
    exchange(l, op, layer, slots, back, 0);
    MotKernelMaker k = mot_lower_kernel_make(l);
    MotValue own = mot_lower_kernel_input(l, &k, result),
             more = mot_lower_kernel_input(l, &k, back);
    MotValue sum = mot_cut_build(l, &k, MOT_OP_REDUCE_SUM, &more, 1, &attrs, &type);
    mot_cut_launch(l, &k, op, lenders(layer),
                   mot_cut_build(l, &k, MOT_OP_ADD, (MotValue[]){own, sum}, 2, NULL, &type),
                   result);
}

/* Columns take their places in `result`, or are added there. */
static void merge_columns(MotLowering *l, const MotOp *op, MotCutRanks ranks, uint32_t compact,
                          uint32_t places, int dim, bool adds, uint32_t result)
{
    const MotType type = *mot_cut_type_of(l, result);
    uint32_t shaped = mot_cut_view_places(l, places, dim, type.rank);
    MotKernelMaker k = mot_lower_kernel_make(l);
    MotAttr_gather attrs = {.axis = dim};
    MotValue own = mot_lower_kernel_input(l, &k, result),
             from = mot_lower_kernel_input(l, &k, compact),
             place = mot_lower_kernel_input(l, &k, places),
             along = mot_lower_kernel_input(l, &k, shaped);
    MotValue zero = mot_scalar_like(&k.b, place, 0);
    MotValue is_there = mot_le(&k.b, zero, along), at = mot_max(&k.b, zero, place);
    MotValue x = mot_cut_build(l, &k, MOT_OP_GATHER, (MotValue[]){from, at}, 2, &attrs, &type);
    if (adds)
        x = mot_cut_build(l, &k, MOT_OP_ADD, (MotValue[]){own, x}, 2, NULL, &type);
    x = mot_cut_build(l, &k, MOT_OP_SELECT, (MotValue[]){is_there, x, own}, 3, NULL, &type);
    mot_cut_launch(l, &k, op, ranks, x, result);
}

/* Columns that a helper computed, in their places at the lender. */
static void return_columns(MotLowering *l, const MotOp *op, const MotLayer *layer, uint32_t from,
                           int dim, uint32_t result)
{
    const MotCut cut = *cut_of(l, layer);
    uint32_t back = mot_cut_add_compact(l, result, dim, -(int64_t)cut.dim_lent - 1);
    exchange(l, op, layer, from, back, dim);
    merge_columns(l, op, lenders(layer), back, cut.lent_place, dim, false, result);
}

/* ---- The three products ---- */

/* The operands of all three products: the lender's weight, the input, and the result's gradient. */
void mot_lower_lend_operands(MotLowering *l, MotOpId id, MotLayer *layer, const uint32_t *plain)
{
    const MotOp *op = mot_graph_op(l->g, id);
    if (id == layer->fwd) {
        uint32_t w = mot_cut_operand_of(op, layer->w), helped = cut_of(l, layer)->helped;
        layer->help_w = 1 + lend_weight(l, op, layer, plain[w]);
        layer->help_x = 1 + (is_split(mot_cut_type_of(l, plain[1 - w]))
                                 ? lend_columns(l, op, layer, plain[1 - w], layer->x_dim)
                                 : mot_cut_gather_columns(l, op, helpers(layer), plain[1 - w],
                                                          layer->x_dim, helped));
    } else if (!layer->help_g) {
        uint32_t g = plain[mot_cut_operand_of(op, layer->g)];
        layer->help_g = 1 + (is_split(mot_cut_type_of(l, g)) ? lend_all(l, op, layer, g) : g);
    }
}

/* Y, of what the helper has. */
static void lend_forward(MotLowering *l, const MotOp *op, const MotLayer *layer, uint32_t result)
{
    uint32_t w = mot_cut_operand_of(op, layer->w), partial, operands[2];
    MotType type = *mot_cut_type_of(l, result), global = l->program->bufs.data[result].global;
    operands[w] = layer->help_w - 1;
    operands[1 - w] = layer->help_x - 1;
    uint32_t slots = add_slots(l, at_helper(l, layer, type), global,
                               find_dim(l, layer, MOT_DIM_HELPS, 0), &partial);
    mot_cut_multiply(l, op, helpers(layer), operands, 0, 0, partial);
    if (is_split(&type)) {
        return_sum(l, op, layer, slots, result);
        return;
    }
    MotKernelMaker k = mot_lower_kernel_make(l);
    MotValue both[] = {mot_lower_kernel_input(l, &k, result),
                       mot_lower_kernel_input(l, &k, partial)};
    mot_cut_launch(l, &k, op, helpers(layer),
                   mot_cut_build(l, &k, MOT_OP_ADD, both, 2, NULL, &type), result);
}

/* A gradient: of the weight or the input. */
static void lend_backward(MotLowering *l, const MotOp *op, const MotLayer *layer, bool is_dw,
                          uint32_t result)
{
    const MotCut cut = *cut_of(l, layer);
    uint32_t g = mot_cut_operand_of(op, layer->g), operands[2];
    int dim = mot_cut_result_dim_of(
        op, mot_cut_letter_of(op, 1 - g, is_dw ? layer->x_dim : layer->w_dim));
    MotType type = *mot_cut_type_of(l, result);
    bool merges = !is_dw && !is_split(&type);
    operands[g] = layer->help_g - 1;
    operands[1 - g] = (is_dw ? layer->help_x : layer->help_w) - 1;
    type = at_helper(l, layer, type);
    type.dims[dim] = -(int64_t)cut.dim_helped - 1;
    uint32_t columns =
        mot_cut_add_buf(l, MOT_BUF_SCRATCH, type, l->program->bufs.data[result].global);
    mot_cut_multiply(l, op, helpers(layer), operands, 0, 0, columns);
    if (merges)
        merge_columns(l, op, helpers(layer), columns, cut.helped_place, dim, true, result);
    else
        return_columns(l, op, layer, columns, dim, result);
}

void mot_lower_lend_product(MotLowering *l, MotOpId id, MotLayer *layer, const uint32_t *plain)
{
    const MotOp *op = mot_graph_op(l->g, id);
    if (id == layer->fwd)
        lend_forward(l, op, layer, plain[2]);
    else
        lend_backward(l, op, layer, id == layer->dw, plain[2]);
}
