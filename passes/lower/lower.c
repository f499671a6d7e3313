/*
 * Plan -> Program: ops become kernels over local shapes, differences between a value's sharding and
 * what a user wants become collectives, assignments become copies into the parameter's buffer. Then
 * the launches of the update are joined (batch.h), collectives gathered (coalesce.h), and events
 * between the streams added. Layers that ranks may cut get launches for that (cuts.c).
 */
#include "passes/lower/lower.h"

#include "passes/lower/batch.h"
#include "passes/lower/coalesce.h"
#include "passes/lower/events.h"
#include "passes/lower/in_place.h"
#include "passes/lower/lowering.h"
#include "passes/lower/recompute.h"
#include "passes/lower/schedule.h"

#include <string.h>

/* ---- Kernels ---- */

static bool is_in_group(const MotLowering *l, MotValue v)
{
    MotOpId def = l->g->values.data[v].def;
    for (uint32_t i = 0; i < l->group.n; i++)
        if (l->group.data[i] == def)
            return true;
    return false;
}

/* Whether the op is computed in this section, or in the other pass of the same micro-batch. */
bool mot_lower_is_live(const MotLowering *l, MotOpId id)
{
    return l->plan->ops[id].stage == l->stage &&
           l->sections.runs[id] & mot_sections_in_reach(l->section);
}

/* Whether an op outside the group reads v. */
static bool is_used_outside(const MotLowering *l, MotValue v)
{
    if (l->is_leaving[v])
        return true;
    for (uint32_t i = l->first_user[v]; i < l->first_user[v + 1]; i++) {
        bool is_member = false;
        for (uint32_t k = 0; k < l->group.n; k++)
            is_member |= l->group.data[k] == l->user[i];
        if (!is_member && mot_lower_is_live(l, l->user[i]))
            return true;
    }
    return false;
}

/*
 * Whether the op reduces what the open group computes, and nobody else reads anything of that: then
 * no element is stored.
 */
static bool ends_group(MotLowering *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id), *first = mot_graph_op(l->g, l->group.data[0]);
    if (!mot_op_can_end(l->g, first, op))
        return false;
    uint32_t n = l->group.n;
    bool is_read = false;
    mot_vec_push(&l->ctx->arena, &l->group, id); /* for the question: who is outside */
    for (uint32_t i = 0; i < n; i++) {
        const MotOp *member = mot_graph_op(l->g, l->group.data[i]);
        for (uint32_t k = 0; k < member->n_out; k++)
            is_read |= is_used_outside(l, member->out[k]);
    }
    l->group.n = n;
    return !is_read;
}

/* Whether the group is a loss and the op its gradient, of rows that are split alike. */
static bool pairs_up(const MotLowering *l, MotOpId id)
{
    MotOpId loss = l->group.data[0];
    if (l->group.n != 1 || !mot_op_can_pair(mot_graph_op(l->g, loss), mot_graph_op(l->g, id)))
        return false;
    for (uint32_t i = 0; i < 2; i++)
        if (!mot_sharding_equal(mot_plan_operand(l->plan, loss, &l->factors[loss], i),
                                mot_plan_operand(l->plan, id, &l->factors[id], i)))
            return false;
    return true;
}

/*
 * Whether the op can run in the same loop as the open group: elementwise like it, over the same
 * dims, split alike, or reducing what it computes; and reading the group's results as they are.
 */
static bool can_join(MotLowering *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id), *first = mot_graph_op(l->g, l->group.data[0]);
    bool is_alike = mot_op_can_fuse(l->g, first, op) &&
                    mot_sharding_equal(l->values[op->out[0]], l->values[first->out[0]]);
    if (l->group.n == MOT_MAX_FUSED || (!is_alike && !ends_group(l, id)))
        return false;
    bool reads_group = false;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] && is_in_group(l, op->in[i])) {
            reads_group = true;
            if (!mot_sharding_equal(mot_plan_operand(l->plan, id, &l->factors[id], i),
                                    l->values[op->in[i]]))
                return false;
        }
    return reads_group;
}

void mot_lower_name_symbols(MotLowering *l, MotGraph *graph)
{
    for (uint32_t i = graph->symbols.n; i < l->program->dims.n; i++)
        mot_vec_push(&l->ctx->arena, &graph->symbols, l->program->dims.data[i].name);
}

MotKernelMaker mot_lower_kernel_make(MotLowering *l)
{
    MotKernelMaker k = {.b = mot_builder_make(mot_graph_make(l->ctx, "kernel")), .inner = l->inner};
    mot_map_init(&k.inputs, &l->ctx->arena);
    return k;
}

MotValue mot_lower_kernel_input(MotLowering *l, MotKernelMaker *k, uint32_t buf)
{
    uint64_t known;
    if (mot_map_get(&k->inputs, &buf, sizeof buf, &known))
        return (MotValue)known;
    mot_lower_name_symbols(l, k->b.graph);
    MotValue v = mot_input(&k->b, mot_arena_printf(&l->ctx->arena, "i%u", k->n_bufs),
                           l->program->bufs.data[buf].type);
    mot_map_put(&k->inputs, &buf, sizeof buf, v);
    k->bufs[k->n_bufs++] = buf;
    return v;
}

static MotValue add_operand(MotLowering *l, MotKernelMaker *k, MotOpId id, uint32_t i)
{
    const MotOp *op = mot_graph_op(l->g, id), *def = mot_graph_def(l->g, op->in[i]);
    if (!op->in[i])
        return 0;
    if (mot_op_is_immediate(l->g, def))
        return mot_constant(&k->b, mot_attrs(def, constant)->data);
    if (k->inner[op->in[i]])
        return k->inner[op->in[i]];
    return mot_lower_kernel_input(
        l, k,
        mot_lower_get_form(l, op, op->in[i], mot_plan_operand(l->plan, id, &l->factors[id], i)));
}

/* The op's attributes without its weight decay, or NULL if it has none. */
static const void *drop_decay(MotArena *arena, const MotOp *op)
{
    const MotOpInfo *info = mot_op_info(op->kind);
    for (const MotAttrField *f = info->fields; f->name; f++) {
        if (f->kind != MOT_ATTR_FLOAT || strcmp(f->name, "wd") != 0)
            continue;
        char *attrs = mot_arena_copy(arena, op->attrs, info->attrs_bytes);
        memset(attrs + f->offset, 0, sizeof(double));
        return attrs;
    }
    return NULL;
}

/* Columns that are cut take the results of an update that does not decay. */
static void undecay_cut(MotLowering *l, MotKernelMaker *k, const MotOp *op, const MotValue *in,
                        const MotType *types)
{
    const void *attrs = drop_decay(&l->ctx->arena, op);
    if (!l->kept_places || !attrs)
        return;
    MotValue place = mot_lower_kernel_input(l, k, l->kept_places - 1);
    MotValue is_kept = mot_le(&k->b, mot_scalar_like(&k->b, place, 0), place);
    MotOpId other = mot_build_typed(&k->b, op->kind, in, op->n_in, attrs, types);
    for (uint32_t i = 0; i < op->n_out; i++) {
        MotValue *kept = &k->inner[op->out[i]];
        MotValue both[] = {is_kept, *kept, mot_result(&k->b, other, i)};
        MotOpId chosen = mot_build_typed(&k->b, MOT_OP_SELECT, both, 3, NULL, &types[i]);
        *kept = mot_result(&k->b, chosen, 0);
    }
}

static void add_member(MotLowering *l, MotKernelMaker *k, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    MotValue in[MOT_MAX_OPERANDS];
    MotType types[MOT_MAX_RESULTS];
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = add_operand(l, k, id, i);
    for (uint32_t i = 0; i < op->n_out; i++)
        types[i] = mot_lower_local_type(l, mot_graph_type(l->g, op->out[i]), l->values[op->out[i]]);
    mot_lower_name_symbols(l, k->b.graph);
    MotOpId inner = mot_build_typed(&k->b, op->kind, in, op->n_in, op->attrs, types);
    for (uint32_t i = 0; i < op->n_out; i++)
        k->inner[op->out[i]] = mot_result(&k->b, inner, i);
    undecay_cut(l, k, op, in, types);
}

uint32_t mot_lower_find_kernel(MotLowering *l, MotGraph *graph)
{
    MotText text;
    uint64_t index;
    MotArenaMark mark = mot_arena_mark(&l->ctx->arena);
    mot_text_init(&text, &l->ctx->arena);
    mot_graph_print(graph, &text);
    if (mot_map_get(&l->kernels, text.data, text.n, &index)) {
        mot_arena_rewind(&l->ctx->arena, mark);
        return (uint32_t)index;
    }
    uint64_t hash = mot_hash(text.data, text.n);
    MotKernel kernel = {.name =
                            mot_arena_printf(&l->ctx->arena, "k_%016llx", (unsigned long long)hash),
                        .graph = graph};
    mot_vec_push(&l->ctx->arena, &l->program->kernels, kernel);
    mot_map_put(&l->kernels, text.data, text.n, l->program->kernels.n - 1);
    return l->program->kernels.n - 1;
}

/* ---- Views ---- */

/*
 * Where an axis splits what is inside of units, and these are a dim of their own on one side of a
 * reshape only: memory is the same on both if no rank has more than one unit.
 */
static void keep_units_apart(MotLowering *l, MotOpId id, const MotType *from, const MotType *to)
{
    const MotFactors *factors = &l->factors[id];
    for (uint32_t a = 0; a < l->program->mesh.n_axes; a++) {
        int choice = l->plan->ops[id].factor[a];
        const MotFactor *f = choice >= 0 ? &factors->factor[choice] : NULL;
        if (!f || f->within < 0)
            continue;
        const MotFactor *units = &factors->factor[f->within];
        bool is_nested_before = f->in_dim[0] == units->in_dim[0];
        if (is_nested_before == (f->out_dim[0] == units->out_dim[0]))
            continue;
        int64_t dim = is_nested_before ? from->dims[f->in_dim[0]] : to->dims[f->out_dim[0]];
        l->program->dims.data[-dim - 1].of_one = true;
    }
}

/*
 * The result is the operand's memory, or a part of it. Outermost dims that are sliced are whole:
 * factors see to that.
 */
static void lower_view(MotLowering *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    MotSharding sharding = l->values[op->out[0]];
    uint32_t from =
        mot_lower_get_form(l, op, op->in[0], mot_plan_operand(l->plan, id, &l->factors[id], 0));
    uint32_t buf = mot_lower_add_buf(l, MOT_BUF_SCRATCH, op->out[0], sharding);
    l->program->bufs.data[buf].alias = from + 1;
    if (op->kind == MOT_OP_SLICE)
        l->program->bufs.data[buf].alias_start = mot_attrs(op, slice)->start.data[0];
    keep_units_apart(l, id, &l->program->bufs.data[from].type, &l->program->bufs.data[buf].type);
    mot_lower_add_form(l, op->out[0], sharding, buf);
}

/*
 * A concat along the outermost dim: the makers of its operands write into the result. False, and
 * nothing is done, if one of them can't: the concat is a kernel then.
 */
static bool lower_joined(MotLowering *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    MotProgram *p = l->program;
    MotSharding sharding = l->values[op->out[0]];
    uint32_t part[MOT_MAX_OPERANDS];
    if (op->kind != MOT_OP_CONCAT || mot_attrs(op, axis)->axis != 0)
        return false;
    for (uint32_t i = 0; i < op->n_in; i++) {
        if (mot_op_is_immediate(l->g, mot_graph_def(l->g, op->in[i])))
            return false;
        MotSharding own = mot_plan_operand(l->plan, id, &l->factors[id], i);
        part[i] = mot_find_movable(p, l->section, mot_lower_get_form(l, op, op->in[i], own));
        for (uint32_t k = 0; k < i; k++)
            if (part[k] == part[i])
                return false;
        if (part[i] == MOT_NO_BUF)
            return false;
    }
    uint32_t buf = mot_lower_add_buf(l, MOT_BUF_SCRATCH, op->out[0], sharding);
    for (uint32_t i = 0, at = 0; i < op->n_in; i++) {
        p->bufs.data[part[i]].alias = buf + 1;
        p->bufs.data[part[i]].alias_start = at;
        at += (uint32_t)mot_graph_type(l->g, op->in[i])->dims[0];
    }
    mot_lower_add_form(l, op->out[0], sharding, buf);
    return true;
}

/*
 * Outputs for every result of the group that something outside reads: in new buffers, or in those
 * of `as`. Clears `inner`.
 */
static void add_results(MotLowering *l, MotKernelMaker *k, const uint32_t *as)
{
    uint32_t n_in = k->n_bufs;
    for (uint32_t i = 0; i < l->group.n; i++) {
        const MotOp *op = mot_graph_op(l->g, l->group.data[i]);
        for (uint32_t r = 0; r < op->n_out; r++) {
            MotValue v = op->out[r], inner = k->inner[v];
            k->inner[v] = 0;
            /* A lone op keeps all its results: kernels of one op have the op's own signature. */
            if (l->group.n > 1 && !is_used_outside(l, v))
                continue;
            uint32_t at = k->n_bufs - n_in;
            mot_output(&k->b, mot_arena_printf(&l->ctx->arena, "o%u", at), inner);
            uint32_t buf = as ? as[at] : mot_lower_add_buf(l, MOT_BUF_SCRATCH, v, l->values[v]);
            k->bufs[k->n_bufs++] = buf;
            if (!as)
                mot_lower_add_form(l, v, l->values[v], buf);
        }
    }
}

/*
 * The group as one launch, with results of its own or in the buffers of `as`; NULL after a failure.
 */
static MotInstr *launch_group(MotLowering *l, const uint32_t *as)
{
    MotKernelMaker k = mot_lower_kernel_make(l);
    for (uint32_t i = 0; i < l->group.n; i++)
        add_member(l, &k, l->group.data[i]);
    uint32_t n_in = k.n_bufs;
    add_results(l, &k, as);
    if (l->ctx->status != MOT_OK)
        return NULL;
    uint32_t kernel = mot_lower_find_kernel(l, k.b.graph);
    const MotOp *first = mot_graph_op(l->g, l->group.data[0]);
    MotInstr *ins = mot_lower_add_instr(l, MOT_INS_LAUNCH, first, k.bufs, k.n_bufs, n_in);
    ins->kernel = kernel;
    return ins;
}

/* The same for ranks that cut the layer: columns that they left out do not decay. */
static void launch_undecayed(MotLowering *l, uint32_t layer)
{
    MotInstr plain = *mot_lower_cut_update(l, layer);
    MotInstr *ins = launch_group(l, plain.bufs + plain.n_in);
    l->kept_places = 0;
    if (ins) {
        ins->cut = plain.cut;
        ins->who = MOT_WHO_CUTS;
    }
}

/*
 * The launches of the group: one, and where it belongs to a layer that may be cut, others for ranks
 * that cut it.
 */
static void lower_group(MotLowering *l)
{
    MotInstr *ins = launch_group(l, NULL);
    for (uint32_t i = 0; ins && l->section != MOT_SECTION_EVAL && i < l->group.n; i++) {
        uint32_t layer = l->layer_of[l->group.data[i]];
        if (!layer)
            continue;
        if (mot_graph_op(l->g, l->group.data[i])->role == MOT_ROLE_UPDATE)
            launch_undecayed(l, layer - 1);
        else
            mot_lower_cut_product(l, l->group.data[i]);
        return;
    }
}

/* One launch for the open group, or none where memory already says it. */
void mot_lower_flush(MotLowering *l)
{
    if (l->group.n == 0 || l->ctx->status != MOT_OK)
        return;
    if (mot_op_is_view(l->g, mot_graph_op(l->g, l->group.data[0])))
        lower_view(l, l->group.data[0]);
    else if (!lower_joined(l, l->group.data[0]))
        lower_group(l);
    l->group.n = 0;
}

static void lower_compute(MotLowering *l, MotOpId id)
{
    if (l->group.n && !pairs_up(l, id) && !can_join(l, id))
        mot_lower_flush(l);
    mot_vec_push(&l->ctx->arena, &l->group, id);
}

/* The sharding of v as its op leaves it, maxima made whole: they do not add up. */
static MotSharding summable(const MotLowering *l, MotValue v)
{
    MotSharding s = l->values[v];
    for (uint32_t a = 0; a < MOT_MAX_AXES; a++)
        if (s.axis[a] == MOT_PARTIAL_MAX)
            s.axis[a] = MOT_REPLICATED;
    return s;
}

/* `sum = x`, or with `is_later` `sum = sum + x`. */
static void add_to_sum(MotLowering *l, MotOpId id, uint32_t sum, uint32_t x, bool is_later)
{
    const MotOp *op = mot_graph_op(l->g, id);
    MotKernelMaker k = mot_lower_kernel_make(l);
    MotValue old = is_later ? mot_lower_kernel_input(l, &k, sum) : 0;
    MotValue new =
        x ? mot_lower_kernel_input(l, &k, x - 1)
          : mot_constant(&k.b, mot_attrs(mot_graph_def(l->g, op->in[0]), constant)->data);
    mot_output(&k.b, "o0", is_later ? mot_add(&k.b, old, new) : mot_accumulate(&k.b, new));
    k.bufs[k.n_bufs] = sum;
    if (l->ctx->status != MOT_OK)
        return;
    MotInstr *ins = mot_lower_add_instr(l, MOT_INS_LAUNCH, op, k.bufs, k.n_bufs + 1, k.n_bufs);
    ins->kernel = mot_lower_find_kernel(l, k.b.graph);
    ins->when = is_later ? MOT_WHEN_LATER : MOT_WHEN_FIRST;
}

/*
 * A sum over micro-batches is kept as the operand is left: partial sums over the mesh are added up
 * first, and reduced once a step.
 */
static void lower_cut(MotLowering *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    bool is_number = mot_op_is_immediate(l->g, mot_graph_def(l->g, op->in[0]));
    MotSharding s = is_number ? mot_replicated : summable(l, op->in[0]);
    uint32_t x = is_number ? 0 : mot_lower_get_form(l, op, op->in[0], s) + 1;
    uint32_t sum = mot_lower_add_buf(l, MOT_BUF_STEP, op->out[0], s);
    l->home[op->out[0]] = sum + 1;
    add_to_sum(l, id, sum, x, false);
    add_to_sum(l, id, sum, x, true);
}

/* The users of every value, as ranges of one array. */
static void find_users(MotLowering *l)
{
    const MotGraph *g = l->g;
    l->first_user = mot_arena_array(&l->ctx->arena, uint32_t, g->values.n + 2);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++, n++)
            l->first_user[op->in[k] + 2]++;
    }
    for (uint32_t v = 2; v < g->values.n + 2; v++)
        l->first_user[v] += l->first_user[v - 1];
    l->user = mot_arena_array(&l->ctx->arena, MotOpId, n);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        for (uint32_t k = 0; k < op->n_in; k++)
            l->user[l->first_user[op->in[k] + 1]++] = g->body.data[i];
    }
}

/* Parameters, inputs and constants live in one buffer for all sections. */
static void lower_source(MotLowering *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    MotValue v = op->out[0];
    if (mot_op_is_immediate(l->g, op))
        return;
    if (!l->home[v]) {
        MotBufKind kind = op->kind == MOT_OP_PARAM      ? MOT_BUF_PARAM
                          : op->kind == MOT_OP_CONSTANT ? MOT_BUF_CONSTANT
                                                        : MOT_BUF_INPUT;
        const char *name = kind == MOT_BUF_PARAM   ? mot_attrs(op, param)->name
                           : kind == MOT_BUF_INPUT ? mot_attrs(op, input)->name
                                                   : NULL;
        if (kind == MOT_BUF_INPUT && name[0] == '@')
            kind = MOT_BUF_SCALAR;
        uint32_t buf = mot_lower_add_buf(l, kind, v, l->values[v]);
        l->program->bufs.data[buf].name = name;
        l->program->bufs.data[buf].source = op;
        l->home[v] = buf + 1;
    }
    mot_lower_add_form(l, v, l->values[v], l->home[v] - 1);
}

/* A value that the host reads: under `name`, in the sharding `as`. */
static void lower_output(MotLowering *l, const MotOp *op, const char *name, MotValue v,
                         MotSharding as)
{
    if (mot_op_is_immediate(l->g, mot_graph_def(l->g, v))) {
        mot_fail(l->ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(l->g, op), "the output is a constant");
        return;
    }
    uint32_t buf = mot_lower_get_form(l, op, v, as);
    if (l->section == MOT_SECTION_STEP)
        mot_vec_push(&l->ctx->arena, &l->program->outputs, (MotOutput){name, buf, MOT_NO_BUF});
    else
        for (uint32_t i = 0; i < l->program->outputs.n; i++)
            if (strcmp(l->program->outputs.data[i].name, name) == 0)
                l->program->outputs.data[i].eval_buf = buf;
}

static void lower_sink(MotLowering *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    if (op->kind == MOT_OP_OUTPUT) {
        lower_output(l, op, mot_attrs(op, output)->name, op->in[0], mot_replicated);
        return;
    }
    const char *name = mot_attrs(mot_graph_def(l->g, op->in[0]), param)->name;
    MotSharding own = l->values[op->in[0]];
    if (op->kind == MOT_OP_GRADIENT) {
        lower_output(l, op, mot_arena_printf(&l->ctx->arena, "gradient:%s", name), op->in[1], own);
        return;
    }
    /* assign: the parameter's buffer takes the new value. */
    uint32_t src = mot_lower_get_form(l, op, op->in[1], own), dst = l->home[op->in[0]] - 1;
    if (!mot_write_in_place(l->program, l->section, src, dst))
        mot_lower_add_instr(l, MOT_INS_COPY, op, (uint32_t[]){src, dst}, 2, 1);
}

/* ---- Sections ---- */

/* Whether the op has a part in this stage. */
static bool is_here(const MotLowering *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    if (!mot_is_everywhere(op))
        return l->plan->ops[id].stage == l->stage;
    for (uint32_t i = l->first_user[op->out[0]]; i < l->first_user[op->out[0] + 1]; i++)
        if (mot_lower_is_live(l, l->user[i]))
            return true;
    return false;
}

static void lower_op(MotLowering *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    unsigned section = 1u << l->section;
    if (l->sections.ready[id] & section)
        mot_lower_add_form(l, op->out[0], l->program->bufs.data[l->home[op->out[0]] - 1].sharding,
                           l->home[op->out[0]] - 1);
    if (!(l->sections.runs[id] & section))
        return;
    if (op->kind == MOT_OP_INPUT || op->kind == MOT_OP_PARAM || op->kind == MOT_OP_CONSTANT) {
        lower_source(l, id);
    } else if (mot_op_info(op->kind)->class == MOT_SINK) {
        mot_lower_flush(l);
        lower_sink(l, id);
    } else if (mot_is_cut(l->plan, op) && l->section != MOT_SECTION_EVAL) {
        mot_lower_flush(l);
        lower_cut(l, id);
    } else {
        lower_compute(l, id);
    }
}

static void lower_section(MotLowering *l, MotSection section)
{
    l->section = section;
    if (section != MOT_SECTION_BACKWARD) { /* which goes on with what the forward pass left */
        l->forms.n = 0;
        memset(l->first_form, 0, l->g->values.n * sizeof *l->first_form);
    }
    /* Assignments come last: until then every reader sees the old value. */
    for (int assigns = 0; assigns < 2; assigns++)
        for (uint32_t i = 0; i < l->g->body.n && l->ctx->status == MOT_OK; i++) {
            MotOpId id = l->g->body.data[i];
            if ((mot_graph_op(l->g, id)->kind == MOT_OP_ASSIGN) != (assigns == 1))
                continue;
            if (is_here(l, id))
                lower_op(l, id);
            mot_lower_transfers(l, id);
        }
    mot_lower_flush(l);
}

/* What is sent stays until it was received: one copy is on its way while the next is made. */
static void keep_sent(MotProgram *p, MotSection section, const MotInstr *ins)
{
    MotBuf *owner = &p->bufs.data[mot_program_owner(p, ins->bufs[0])];
    owner->is_sent = true;
    if (mot_section_is_repeated(section) && owner->kind == MOT_BUF_SCRATCH && owner->copies < 2)
        owner->copies = 2;
}

/*
 * What the forward pass leaves for the backward pass needs a copy for every micro-batch in flight.
 */
static void set_copies(MotLowering *l, uint32_t in_flight)
{
    MotProgram *p = l->program;
    bool *is_left = mot_arena_array(&l->ctx->arena, bool, p->bufs.n);
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        for (uint32_t i = 0; i < p->section[s].n; i++) {
            const MotInstr *ins = &p->section[s].data[i];
            for (uint32_t k = 0; k < ins->n_bufs; k++) {
                uint32_t owner = mot_program_owner(p, ins->bufs[k]);
                MotBuf *buf = &p->bufs.data[owner];
                if (s == MOT_SECTION_FORWARD)
                    is_left[owner] = buf->kind == MOT_BUF_SCRATCH;
                else if (s == MOT_SECTION_BACKWARD && is_left[owner] && buf->copies < in_flight)
                    buf->copies = in_flight;
            }
            if (ins->kind == MOT_INS_SEND)
                keep_sent(p, (MotSection)s, ins);
        }
}

/* What a step runs: counts, the passes of the micro-batches, the update. */
static void set_order(MotLowering *l)
{
    MotProgram *p = l->program;
    for (uint32_t i = 0; i < p->n_micro && p->section[MOT_SECTION_COUNT].n; i++)
        mot_vec_push(&l->ctx->arena, &p->order, (MotRun){MOT_SECTION_COUNT, i});
    mot_schedule_order(p, l->plan->schedule, l->stage, l->plan->stages.n);
    mot_vec_push(&l->ctx->arena, &p->order, (MotRun){MOT_SECTION_STEP, 0});
}

/* The shardings that this stage knows. */
static const MotSharding *find_values(MotCtx *ctx, const MotPlan *plan, uint32_t stage)
{
    const MotGraph *g = plan->graph;
    MotSharding *values = mot_arena_array(&ctx->arena, MotSharding, g->values.n);
    for (MotValue v = 0; v < g->values.n; v++)
        values[v] =
            plan->ops[g->values.data[v].def].stage == stage ? plan->values[v] : mot_replicated;
    return values;
}

static bool *find_leaving(MotCtx *ctx, const MotPlan *plan, uint32_t stage,
                          const MotTransfers *transfers)
{
    bool *is_leaving = mot_arena_array(&ctx->arena, bool, plan->graph->values.n);
    for (uint32_t i = 0; i < transfers->n; i++)
        is_leaving[transfers->data[i].value] |= transfers->data[i].from == stage;
    return is_leaving;
}

static MotProgram *make_program(MotCtx *ctx, const MotPlan *plan, uint32_t stage)
{
    MotProgram *program = mot_arena_new(&ctx->arena, MotProgram);
    program->ctx = ctx;
    program->name = mot_arena_printf(&ctx->arena, "s%u", stage);
    program->mesh = plan->stages.data[stage].mesh;
    program->n_micro = plan->n_micro;
    return program;
}

/* `l` holds what all stages share. */
static void lower_stage(MotLowering *l, uint32_t stage)
{
    const MotPlan *plan = l->plan;
    MotArena *arena = &l->ctx->arena;
    l->stage = stage;
    l->program = make_program(l->ctx, plan, stage);
    l->first_form = mot_arena_array(arena, uint32_t, l->g->values.n);
    l->home = mot_arena_array(arena, uint32_t, l->g->values.n);
    l->inner = mot_arena_array(arena, MotValue, l->g->values.n);
    l->values = find_values(l->ctx, plan, stage);
    l->is_leaving = find_leaving(l->ctx, plan, stage, l->transfers);
    l->next_transfer = 0;
    mot_map_init(&l->kernels, arena);
    mot_lower_find_layers(l);
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        lower_section(l, (MotSection)s);
    if (!mot_debug_lists(l->ctx->debug.skip, "", "batch"))
        mot_batch(l->program);
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        if (l->program->section[s].n)
            mot_coalesce(l->program, (MotSection)s);
    mot_reuse_operands(l->program);
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        mot_add_events(l->program, (MotSection)s);
    set_copies(l, mot_schedule_in_flight(plan->schedule, stage, plan->stages.n, plan->n_micro));
    set_order(l);
}

MotStatus mot_lower(MotCtx *ctx, const MotPlan *plan, MotPipeline **out_pipeline)
{
    MotArena *arena = &ctx->arena;
    plan = mot_recompute_apply(ctx, plan);
    const MotGraph *g = plan->graph;
    MotTransfers transfers = {0};
    MotLowering l = {.ctx = ctx, .plan = plan, .g = g, .transfers = &transfers};
    find_users(&l);
    MOT_TRY(mot_sections_find(ctx, plan, &l.sections));
    mot_transfers_find(ctx, plan, &l.sections, &transfers);
    l.channels = mot_arena_array(arena, MotChannel, transfers.n);
    l.factors = mot_arena_array(arena, MotFactors, g->ops.n);
    for (uint32_t i = 0; i < g->body.n; i++)
        MOT_TRY(mot_factors(g, mot_graph_op(g, g->body.data[i]), &l.factors[g->body.data[i]]));
    MotProgram **stages = mot_arena_array(arena, MotProgram *, plan->stages.n);
    for (uint32_t stage = 0; stage < plan->stages.n; stage++) {
        lower_stage(&l, stage);
        if (ctx->status != MOT_OK)
            return ctx->status;
        stages[stage] = l.program;
    }
    for (uint32_t i = 0; i < transfers.n; i++) {
        l.channels[i].from = transfers.data[i].from;
        l.channels[i].to = transfers.data[i].to;
    }
    *out_pipeline = mot_pipeline_make(ctx, stages, plan->stages.n, l.channels, transfers.n);
    return MOT_OK;
}
