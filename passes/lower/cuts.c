/*
 * Cuts (ZERO-resizing, arXiv 2401.11469): launches for ranks that leave columns of a layer's
 * contraction out of its three products.
 *
 * With kept columns I of the weight W: Y = X[:, I] W[:, I]^T, dX[:, I] = G W[:, I], dW[:, I] = G^T
 * X[:, I]. That is the layer with a weight that is masked: what is left out of dX is 0, as its
 * gradient is; what is left out of dW is zero, the mean of the row, or what the last step had there
 * (MotCutFill). The forward product runs over the list (k_index of contract); the others gather the
 * operand's columns, multiply, and spread the result. Plain launches stay as they are and idle on a
 * rank that cuts, so who cuts nothing does bit for bit what he would do without. The section `eval`
 * has plain launches only.
 *
 * A layer is a contraction of a trained weight, which nothing else reads, with the gradients of
 * both operands in the sharding that the forward product has them in: what a rank cuts of one
 * product are then the entries that it cuts of the others. The last contraction of the forward
 * pass, which the loss reads, is none. Of several summed letters the longest is cut. Linear in ops
 * and their users.
 */
#include "passes/lower/cuts.h"

#include <string.h>

/* ---- Finding layers ---- */

/* The letter of dim `dim` of an operand. */
char mot_cut_letter_of(const MotOp *contract, uint32_t operand, int dim)
{
    const char *spec = mot_attrs(contract, contract)->spec;
    return (operand == 0 ? spec : strchr(spec, ',') + 1)[dim];
}

/* The dim of an operand that has the letter, or -1. */
static int dim_of(const MotOp *contract, uint32_t operand, char letter)
{
    const char *spec = mot_attrs(contract, contract)->spec, *comma = strchr(spec, ',');
    const char *begin = operand == 0 ? spec : comma + 1;
    const char *end = operand == 0 ? comma : strchr(comma, '-');
    const char *at = memchr(begin, letter, (size_t)(end - begin));
    return at ? (int)(at - begin) : -1;
}

int mot_cut_result_dim_of(const MotOp *contract, char letter)
{
    const char *result = strchr(mot_attrs(contract, contract)->spec, '>') + 1;
    const char *at = strchr(result, letter);
    return at ? (int)(at - result) : -1;
}

static bool is_product(const MotOp *op)
{
    return op->kind == MOT_OP_CONTRACT && op->n_in == 2 && op->in[0] != op->in[1];
}

/* Which operand of the product is v, or 2. */
uint32_t mot_cut_operand_of(const MotOp *op, MotValue v)
{
    return op->in[0] == v ? 0 : op->in[1] == v ? 1 : 2;
}

static bool is_trained_weight(const MotGraph *g, MotValue v)
{
    const MotOp *op = mot_graph_def(g, v);
    return op->kind == MOT_OP_PARAM && mot_attrs(op, param)->trained &&
           mot_graph_type(g, v)->rank >= 2;
}

/* The longest letter that is summed; false if there is none. */
static bool choose_letter(const MotGraph *g, const MotOp *fwd, MotLayer *layer)
{
    uint32_t w = mot_cut_operand_of(fwd, layer->w);
    const MotType *type = mot_graph_type(g, layer->w);
    int64_t longest = 0;
    for (int d = 0; d < type->rank; d++) {
        char letter = mot_cut_letter_of(fwd, w, d);
        int x_dim = dim_of(fwd, 1 - w, letter);
        if (x_dim < 0 || mot_cut_result_dim_of(fwd, letter) >= 0 || type->dims[d] <= longest)
            continue;
        longest = type->dims[d];
        layer->w_dim = d;
        layer->x_dim = x_dim;
    }
    return longest > 1;
}

/* The op that is the layer's gradient of that role among the users of v, or 0. */
static MotOpId find_gradient(const MotLowering *l, const MotLayer *layer, MotValue v, MotRole role)
{
    for (uint32_t i = l->first_user[v]; i < l->first_user[v + 1]; i++) {
        const MotOp *op = mot_graph_op(l->g, l->user[i]);
        if (op->role == role && op->fwd == layer->fwd && is_product(op))
            return l->user[i];
    }
    return 0;
}

/* Whether nothing but the layer's products and the update reads the weight; notes the update. */
static bool is_only_reader(const MotLowering *l, MotLayer *layer)
{
    for (uint32_t i = l->first_user[layer->w]; i < l->first_user[layer->w + 1]; i++) {
        const MotOp *op = mot_graph_op(l->g, l->user[i]);
        if (op->role == MOT_ROLE_UPDATE && (mot_op_info(op->kind)->flags & MOT_FLAG_UPDATE))
            layer->update = l->user[i];
        else if (l->user[i] != layer->fwd && l->user[i] != layer->dx &&
                 mot_op_info(op->kind)->class != MOT_SINK)
            return false;
    }
    return true;
}

MotSharding mot_cut_sharding_of(const MotLowering *l, MotOpId id, MotValue v)
{
    return mot_plan_operand(l->plan, id, &l->factors[id],
                            mot_cut_operand_of(mot_graph_op(l->g, id), v));
}

/* Whether both products take v in one sharding. */
static bool take_alike(const MotLowering *l, MotOpId a, MotOpId b, MotValue v)
{
    return mot_sharding_equal(mot_cut_sharding_of(l, a, v), mot_cut_sharding_of(l, b, v));
}

/* Whether the columns of dW are where those of W are. */
static bool has_columns(const MotLowering *l, const MotLayer *layer)
{
    const MotOp *dw = mot_graph_op(l->g, layer->dw);
    char letter = mot_cut_letter_of(dw, mot_cut_operand_of(dw, layer->x), layer->x_dim);
    return mot_cut_result_dim_of(dw, letter) == layer->w_dim &&
           mot_dims_equal(mot_graph_type(l->g, dw->out[0]), mot_graph_type(l->g, layer->w));
}

/* Whether each column of a weight's row has one owner, who computes its gradient and updates it. */
static bool owns_columns(const MotLowering *l, const MotLayer *layer)
{
    const MotMesh *mesh = &l->program->mesh;
    MotSharding own = l->values[layer->w];
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (own.axis[a] < 0 && mesh->axis[a].n > 1)
            return false;
    return mot_sharding_equal(own, mot_cut_sharding_of(l, layer->fwd, layer->w)) &&
           mot_sharding_equal(own, mot_cut_sharding_of(l, layer->update, layer->w));
}

static bool has_decay(const MotGraph *g, MotOpId id)
{
    const MotOp *op = mot_graph_op(g, id);
    return op->kind == MOT_OP_ADAM ? mot_attrs(op, adam)->wd != 0 : mot_attrs(op, sgd)->wd != 0;
}

static bool make_layer(const MotLowering *l, MotOpId id, MotLayer *layer)
{
    const MotOp *fwd = mot_graph_op(l->g, id);
    bool is_second = is_trained_weight(l->g, fwd->in[1]);
    *layer = (MotLayer){.fwd = id, .w = fwd->in[is_second], .x = fwd->in[!is_second]};
    if (!choose_letter(l->g, fwd, layer))
        return false;
    layer->dx = find_gradient(l, layer, layer->w, MOT_ROLE_DX);
    layer->dw = find_gradient(l, layer, layer->x, MOT_ROLE_DW);
    if (!layer->dw || !is_only_reader(l, layer) || !has_columns(l, layer))
        return false;
    const MotOp *dw = mot_graph_op(l->g, layer->dw);
    layer->g = dw->in[1 - mot_cut_operand_of(dw, layer->x)];
    if (!take_alike(l, id, layer->dw, layer->x))
        return false;
    if (layer->dx &&
        (mot_cut_operand_of(mot_graph_op(l->g, layer->dx), layer->g) == 2 ||
         !take_alike(l, id, layer->dx, layer->w) || !take_alike(l, layer->dw, layer->dx, layer->g)))
        return false;
    if (layer->update && (!has_decay(l->g, layer->update) || !owns_columns(l, layer)))
        layer->update = 0;
    return true;
}

static bool is_weighted(const MotGraph *g, const MotOp *op)
{
    return op->role == MOT_ROLE_FORWARD && is_product(op) &&
           is_trained_weight(g, op->in[0]) != is_trained_weight(g, op->in[1]);
}

static void add_layer(MotLowering *l, const MotLayer *layer)
{
    mot_vec_push(&l->ctx->arena, &l->layers, *layer);
    const MotOpId ops[] = {layer->fwd, layer->dx, layer->dw, layer->update};
    for (int i = 0; i < 4; i++)
        if (ops[i])
            l->layer_of[ops[i]] = l->layers.n;
}

void mot_lower_find_layers(MotLowering *l)
{
    MotOpId head = 0;
    MotLayer layer;
    l->layer_of = mot_arena_array(&l->ctx->arena, uint32_t, l->g->ops.n);
    l->layers.n = 0;
    if ((l->plan->cuts == MOT_CUT_NONE && !l->plan->lends) || l->plan->stages.n > 1)
        return;
    if (l->plan->cuts == MOT_CUT_LAST && l->plan->n_micro > 1)
        mot_fail(l->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                 "cuts filled with the last gradient need a step of one micro-batch, this has %u",
                 l->plan->n_micro);
    for (uint32_t i = 0; i < l->g->body.n; i++)
        if (is_weighted(l->g, mot_graph_op(l->g, l->g->body.data[i])))
            head = l->g->body.data[i];
    for (uint32_t i = 0; i < l->g->body.n; i++) {
        MotOpId id = l->g->body.data[i];
        if (id != head && is_weighted(l->g, mot_graph_op(l->g, id)) && make_layer(l, id, &layer))
            add_layer(l, &layer);
    }
}

/* ---- Buffers ---- */

uint32_t mot_cut_add_buf(MotLowering *l, MotBufKind kind, MotType type, MotType global)
{
    MotBuf buf = {
        .kind = kind, .type = type, .global = global, .sharding = mot_replicated, .copies = 1};
    mot_vec_push(&l->ctx->arena, &l->program->bufs, buf);
    return l->program->bufs.n - 1;
}

static double count_flops(const MotLowering *l, const MotLayer *layer)
{
    double flops = 0;
    const MotOpId ops[] = {layer->fwd, layer->dx, layer->dw};
    for (int i = 0; i < 3; i++)
        flops += ops[i] ? mot_op_flops(l->g, mot_graph_op(l->g, ops[i])) : 0;
    return flops * l->plan->n_micro;
}

/* The layer's cut; made with its first launch. */
static const MotCut *get_cut(MotLowering *l, MotLayer *layer)
{
    MotProgram *p = l->program;
    MotArena *arena = &l->ctx->arena;
    if (layer->cut)
        return &p->cuts.data[layer->cut - 1];
    const MotType *whole = mot_graph_type(l->g, layer->w);
    MotType weight = mot_lower_local_type(l, whole, mot_cut_sharding_of(l, layer->fwd, layer->w));
    MotType global = mot_type_make(MOT_I64, 1, &whole->dims[layer->w_dim]);
    MotDim dim = {.name = mot_arena_printf(arena, "c%u", p->cuts.n),
                  .size = global.dims[0],
                  .granule = 1,
                  .cut = p->cuts.n + 1};
    mot_vec_push(arena, &p->dims, dim);
    int64_t kept = -(int64_t)p->dims.n;
    MotCut cut = {
        .param = l->home[layer->w] - 1,
        .param_dim = layer->w_dim,
        .dim = p->dims.n - 1,
        .list = mot_cut_add_buf(l, MOT_BUF_LOCAL, mot_type_make(MOT_I64, 1, &kept), global),
        .place = mot_cut_add_buf(l, MOT_BUF_LOCAL,
                                 mot_type_make(MOT_I64, 1, &weight.dims[layer->w_dim]), global),
        .held = mot_cut_add_buf(l, MOT_BUF_LOCAL,
                                mot_type_make(MOT_I64, 1, &weight.dims[layer->w_dim]), global),
        .n_kept = mot_arena_array(arena, int64_t, p->mesh.n_devices),
        .n_helped = mot_arena_array(arena, int64_t, p->mesh.n_devices),
        .flops = count_flops(l, layer)};
    mot_vec_push(arena, &p->cuts, cut);
    layer->cut = p->cuts.n;
    if (l->plan->lends && mot_lower_can_lend(l, layer))
        mot_lower_prepare_lending(l, layer);
    return &p->cuts.data[p->cuts.n - 1];
}

/* The places of columns as a value that broadcasts along dim `dim` of a tensor of this rank. */
uint32_t mot_cut_view_places(MotLowering *l, uint32_t place, int dim, int rank)
{
    MotBuf view = l->program->bufs.data[place];
    if (dim == rank - 1)
        return place;
    view.alias = place + 1;
    for (view.type.rank = view.global.rank = 1; view.type.rank < rank - dim;) {
        view.type.dims[view.type.rank++] = 1;
        view.global.dims[view.global.rank++] = 1;
    }
    mot_vec_push(&l->ctx->arena, &l->program->bufs, view);
    return l->program->bufs.n - 1;
}

/* A buffer like `buf` with the kept columns of dim `dim` only. */
uint32_t mot_cut_add_compact(MotLowering *l, uint32_t buf, int dim, int64_t columns)
{
    MotBuf whole = l->program->bufs.data[buf];
    whole.type.dims[dim] = columns;
    return mot_cut_add_buf(l, MOT_BUF_SCRATCH, whole.type, whole.global);
}

/* ---- Launches ---- */

const MotType *mot_cut_type_of(const MotLowering *l, uint32_t buf)
{
    return &l->program->bufs.data[buf].type;
}

void mot_cut_launch(MotLowering *l, MotKernelMaker *k, const MotOp *op, MotCutRanks ranks,
                    MotValue value, uint32_t result)
{
    mot_output(&k->b, "o0", value);
    k->bufs[k->n_bufs] = result;
    if (l->ctx->status != MOT_OK)
        return;
    uint32_t kernel = mot_lower_find_kernel(l, k->b.graph);
    MotInstr *ins = mot_lower_add_instr(l, MOT_INS_LAUNCH, op, k->bufs, k->n_bufs + 1, k->n_bufs);
    ins->kernel = kernel;
    ins->cut = ranks.cut;
    ins->who = ranks.who;
}

MotValue mot_cut_build(MotLowering *l, MotKernelMaker *k, MotOpKind kind, const MotValue *in,
                       uint32_t n_in, const void *attrs, const MotType *type)
{
    mot_lower_name_symbols(l, k->b.graph);
    return mot_result(&k->b, mot_build_typed(&k->b, kind, in, n_in, attrs, type), 0);
}

/* The contraction of what stands in these buffers; with `list`, over its columns of the letter. */
void mot_cut_multiply(MotLowering *l, const MotOp *op, MotCutRanks ranks, const uint32_t *operands,
                      uint32_t list, char letter, uint32_t result)
{
    MotKernelMaker k = mot_lower_kernel_make(l);
    const char cut_letter[] = {letter, 0};
    MotAttr_contract attrs = *mot_attrs(op, contract);
    MotValue in[3] = {mot_lower_kernel_input(l, &k, operands[0]),
                      mot_lower_kernel_input(l, &k, operands[1])};
    if (letter) {
        in[2] = mot_lower_kernel_input(l, &k, list);
        attrs.cut = cut_letter;
    }
    mot_cut_launch(l, &k, op, ranks,
                   mot_cut_build(l, &k, MOT_OP_CONTRACT, in, letter ? 3 : 2, &attrs,
                                 mot_cut_type_of(l, result)),
                   result);
}

uint32_t mot_cut_gather_columns(MotLowering *l, const MotOp *op, MotCutRanks ranks, uint32_t buf,
                                int dim, uint32_t list)
{
    uint32_t compact = mot_cut_add_compact(l, buf, dim, mot_cut_type_of(l, list)->dims[0]);
    MotKernelMaker k = mot_lower_kernel_make(l);
    MotAttr_gather attrs = {.axis = dim};
    MotValue in[] = {mot_lower_kernel_input(l, &k, buf), mot_lower_kernel_input(l, &k, list)};
    mot_cut_launch(l, &k, op, ranks,
                   mot_cut_build(l, &k, MOT_OP_GATHER, in, 2, &attrs, mot_cut_type_of(l, compact)),
                   compact);
    return compact;
}

/* The mean of the kept entries along `dim`; x is 0 at the others. */
static MotValue mean_of_kept(MotLowering *l, MotKernelMaker *k, MotValue x, MotValue is_kept,
                             int dim, const MotType *type)
{
    MotBuilder *b = &k->b;
    MotType row = *type;
    MotAttr_reduce attrs = {.axes = {(int64_t[]){dim}, 1}, .keep = true};
    row.dims[dim] = 1;
    MotValue ones[] = {is_kept, mot_scalar_like(b, x, 1), mot_scalar_like(b, x, 0)};
    MotValue one = mot_cut_build(l, k, MOT_OP_SELECT, ones, 3, NULL, type);
    MotValue sum = mot_cut_build(l, k, MOT_OP_REDUCE_SUM, &x, 1, &attrs, &row);
    MotValue count = mot_cut_build(l, k, MOT_OP_REDUCE_SUM, &one, 1, &attrs, &row);
    return mot_cut_build(l, k, MOT_OP_DIV, (MotValue[]){sum, count}, 2, NULL, &row);
}

/* Columns into their places in `result`; between them what `fill` says. */
static void spread_columns(MotLowering *l, const MotOp *op, MotLayer *layer, uint32_t compact,
                           int dim, MotCutFill fill, uint32_t result)
{
    const MotCut cut = l->program->cuts.data[layer->cut - 1];
    const MotType type = *mot_cut_type_of(l, result);
    uint32_t shaped = mot_cut_view_places(l, cut.place, dim, type.rank);
    MotKernelMaker k = mot_lower_kernel_make(l);
    MotAttr_gather attrs = {.axis = dim};
    MotValue from = mot_lower_kernel_input(l, &k, compact),
             place = mot_lower_kernel_input(l, &k, cut.place),
             along = mot_lower_kernel_input(l, &k, shaped);
    MotValue zero = mot_scalar_like(&k.b, place, 0);
    MotValue is_kept = mot_le(&k.b, zero, along), at = mot_max(&k.b, zero, place);
    MotValue x = mot_cut_build(l, &k, MOT_OP_GATHER, (MotValue[]){from, at}, 2, &attrs, &type);
    MotValue other = mot_scalar_like(&k.b, x, 0);
    if (fill == MOT_CUT_LAST)
        other = mot_lower_kernel_input(l, &k, layer->last - 1);
    MotValue y =
        mot_cut_build(l, &k, MOT_OP_SELECT, (MotValue[]){is_kept, x, other}, 3, NULL, &type);
    if (fill == MOT_CUT_MEAN) {
        other = mean_of_kept(l, &k, y, is_kept, dim, &type);
        y = mot_cut_build(l, &k, MOT_OP_SELECT, (MotValue[]){is_kept, x, other}, 3, NULL, &type);
    }
    mot_cut_launch(l, &k, op, (MotCutRanks){layer->cut, MOT_WHO_CUTS}, y, result);
}

/* The gradient on ranks that cut: of gathered columns, spread. */
static void cut_gradient(MotLowering *l, MotOpId id, MotLayer *layer, const uint32_t *plain)
{
    const MotOp *op = mot_graph_op(l->g, id);
    const MotCut cut = l->program->cuts.data[layer->cut - 1];
    MotCutRanks ranks = {layer->cut, MOT_WHO_CUTS};
    bool is_dw = id == layer->dw;
    uint32_t side = mot_cut_operand_of(op, is_dw ? layer->x : layer->w), result = plain[2];
    int dim = is_dw ? layer->x_dim : layer->w_dim;
    int result_dim = mot_cut_result_dim_of(op, mot_cut_letter_of(op, side, dim));
    MotCutFill fill = is_dw && l->plan->cuts ? l->plan->cuts : MOT_CUT_ZERO;
    uint32_t operands[] = {plain[0], plain[1]};
    MOT_ASSERT(side < 2);
    operands[side] = mot_cut_gather_columns(l, op, ranks, operands[side], dim, cut.list);
    uint32_t compact = mot_cut_add_compact(l, result, result_dim, -(int64_t)cut.dim - 1);
    mot_cut_multiply(l, op, ranks, operands, 0, 0, compact);
    if (fill == MOT_CUT_LAST && !layer->last)
        layer->last = mot_cut_add_buf(l, MOT_BUF_LOCAL, *mot_cut_type_of(l, result),
                                      l->program->bufs.data[result].global) +
                      1;
    spread_columns(l, op, layer, compact, result_dim, fill, result);
}

void mot_lower_cut_product(MotLowering *l, MotOpId id)
{
    MotProgram *p = l->program;
    MotLayer *layer = &l->layers.data[l->layer_of[id] - 1];
    const MotOp *op = mot_graph_op(l->g, id);
    const MotCut cut = *get_cut(l, layer);
    MotInstr whole = p->section[l->section].data[--p->section[l->section].n];
    const uint32_t plain[] = {whole.bufs[0], whole.bufs[1], whole.bufs[2]};
    whole.cut = layer->cut;
    if (cut.is_lendable)
        mot_lower_lend_operands(l, id, layer, plain);
    mot_vec_push(&l->ctx->arena, &p->section[l->section], whole);
    if (id == layer->fwd) {
        char letter = mot_cut_letter_of(op, mot_cut_operand_of(op, layer->w), layer->w_dim);
        mot_cut_multiply(l, op, (MotCutRanks){layer->cut, MOT_WHO_CUTS}, plain, cut.list, letter,
                         plain[2]);
    } else {
        cut_gradient(l, id, layer, plain);
    }
    if (cut.is_lendable)
        mot_lower_lend_product(l, id, layer, plain);
    if (id == layer->dw && layer->last) /* whoever computed it */
        mot_lower_add_instr(l, MOT_INS_COPY, op, (uint32_t[]){plain[2], layer->last - 1}, 2, 1);
}

MotInstr *mot_lower_cut_update(MotLowering *l, uint32_t number)
{
    MotProgram *p = l->program;
    MotLayer *layer = &l->layers.data[number];
    const MotCut *cut = get_cut(l, layer);
    int rank = mot_graph_type(l->g, layer->w)->rank;
    l->kept_places = mot_cut_view_places(l, cut->held, layer->w_dim, rank) + 1;
    MotInstr *plain = &p->section[l->section].data[p->section[l->section].n - 1];
    plain->cut = layer->cut;
    return plain;
}
