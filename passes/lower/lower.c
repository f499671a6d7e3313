/*
 * Plan -> Program: ops become kernels over local shapes, differences between a value's sharding and what a user wants become
 * collectives, assignments become copies into the parameter's buffer. Then the launches of the update are joined (batch.h),
 * collectives gathered (coalesce.h), and events between the streams added.
 */
#include "passes/lower/lower.h"

#include "ir/builder.h"
#include "passes/lower/batch.h"
#include "passes/lower/coalesce.h"
#include "passes/lower/events.h"
#include "passes/lower/in_place.h"
#include "passes/lower/recompute.h"
#include "passes/lower/schedule.h"
#include "passes/lower/sections.h"

#include <string.h>

/* One buffer that holds a value under some sharding; the forms of a value are chained. */
typedef struct {
    MotSharding sharding;
    uint32_t buf, next; /* next: index + 1 into forms */
} Form;

typedef struct {
    MotCtx *ctx;
    const MotPlan *plan;
    const MotGraph *g;
    MotProgram *program;
    MotSection section;
    MotVec(Form) forms;
    uint32_t *first_form; /* [values]: index + 1 */
    uint32_t *
        home; /* [values]: buffer + 1 of parameters, inputs, constants and sums, shared by the sections */
    MotFactors *factors;   /* [ops] */
    MotMap kernels;        /* text -> index */
    MotVec(MotOpId) group; /* the open group: ops that will be one launch */
    MotSections sections;
    uint32_t
        *first_user; /* [values + 1]: users of value v are user[first_user[v]..first_user[v + 1]) */
    MotOpId *user;
    MotValue *inner; /* [values]: of the kernel that is being made; zeros in between */
} Lower;

/* The program's dim for a split, made when first needed. */
static uint32_t find_dim(Lower *l, uint32_t axis, uint32_t parent, int64_t size, int64_t granule)
{
    MotProgram *p = l->program;
    for (uint32_t i = 0; i < p->dims.n; i++) {
        const MotDim *d = &p->dims.data[i];
        if (d->axis == axis && d->parent == parent && d->size == size && d->granule == granule)
            return i;
    }
    MotDim dim = {.name = mot_arena_printf(&l->ctx->arena, "d%u", p->dims.n),
                  .axis = axis,
                  .parent = parent,
                  .size = size,
                  .granule = granule};
    mot_vec_push(&l->ctx->arena, &p->dims, dim);
    return p->dims.n - 1;
}

static MotType make_local_type(Lower *l, const MotType *global, MotSharding s)
{
    MotType type = *global;
    for (uint32_t a = 0; a < l->program->mesh.n_axes; a++) {
        int d = s.axis[a];
        if (d < 0)
            continue;
        uint32_t parent = type.dims[d] < 0 ? (uint32_t)-type.dims[d] : 0;
        int64_t granule = s.units[a] ? global->dims[d] / s.units[a] : 1;
        if (parent && l->program->dims.data[parent - 1].granule % granule != 0)
            mot_fail(
                l->ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                "two mesh axes split a dim of %lld into pieces of %lld and %lld, which do not nest",
                (long long)global->dims[d], (long long)l->program->dims.data[parent - 1].granule,
                (long long)granule);
        type.dims[d] = -(int64_t)find_dim(l, a, parent, global->dims[d], granule) - 1;
    }
    return type;
}

static uint32_t add_buf(Lower *l, MotBufKind kind, MotValue v, MotSharding s)
{
    const MotType *global = mot_graph_type(l->g, v);
    MotBuf buf = {.kind = kind,
                  .type = make_local_type(l, global, s),
                  .global = *global,
                  .sharding = s,
                  .copies = kind == MOT_BUF_INPUT ? l->plan->n_micro : 1};
    mot_vec_push(&l->ctx->arena, &l->program->bufs, buf);
    return l->program->bufs.n - 1;
}

static void add_form(Lower *l, MotValue v, MotSharding s, uint32_t buf)
{
    mot_vec_push(&l->ctx->arena, &l->forms, (Form){s, buf, l->first_form[v]});
    l->first_form[v] = l->forms.n;
}

static MotInstr *add_instr(Lower *l, MotInstrKind kind, const MotOp *op, const uint32_t *bufs,
                           uint32_t n_bufs, uint32_t n_in)
{
    bool is_compute = kind == MOT_INS_LAUNCH || kind == MOT_INS_PART || kind == MOT_INS_COPY;
    MotInstr ins = {.kind = kind,
                    .stream = is_compute ? MOT_STREAM_COMPUTE : MOT_STREAM_COMM,
                    .bufs = mot_arena_copy(&l->ctx->arena, bufs, n_bufs * sizeof *bufs),
                    .n_bufs = n_bufs,
                    .n_in = n_in,
                    .origin = op->origin,
                    .role = op->role};
    mot_vec_push(&l->ctx->arena, &l->program->section[l->section], ins);
    return &l->program->section[l->section].data[l->program->section[l->section].n - 1];
}

/* The order of conversions: gathers of inner axes first, then reductions, then taking parts, outer axes first. */
typedef struct {
    MotInstrKind kind;
    uint32_t rank; /* in that order */
} Conversion;

static Conversion choose_conversion(int have, int need, uint32_t axis)
{
    if (have >= 0 && need >= 0)
        return (Conversion){MOT_INS_ALL_TO_ALL, 100};
    if (have >= 0)
        return (Conversion){MOT_INS_ALL_GATHER, MOT_MAX_AXES - axis};
    if (have != MOT_REPLICATED)
        return need >= 0 ? (Conversion){MOT_INS_REDUCE_SCATTER, 300 + axis}
                         : (Conversion){MOT_INS_ALL_REDUCE, 200 + axis};
    return (Conversion){MOT_INS_PART, 300 + axis};
}

/* The axis whose difference is to be removed next, or -1 when there is none. */
static int choose_axis(const Lower *l, MotSharding have, MotSharding need)
{
    int best = -1;
    uint32_t best_rank = UINT32_MAX;
    for (uint32_t a = 0; a < l->program->mesh.n_axes; a++) {
        if (have.axis[a] == need.axis[a] && have.units[a] == need.units[a])
            continue;
        uint32_t rank = choose_conversion(have.axis[a], need.axis[a], a).rank;
        if (rank < best_rank) {
            best_rank = rank;
            best = (int)a;
        }
    }
    return best;
}

/*
 * An inner axis that splits the dim which `axis` is about to gather or part: its pieces lie inside those of `axis`, so it has to be
 * gathered before and parted again after. -1 if there is none.
 */
static int find_nested(const Lower *l, MotSharding have, MotSharding need, uint32_t axis)
{
    for (uint32_t b = l->program->mesh.n_axes; b-- > axis + 1;)
        if (have.axis[b] >= 0 &&
            (have.axis[b] == have.axis[axis] || have.axis[b] == need.axis[axis]))
            return (int)b;
    return -1;
}

/* The buffer that holds v as `need`, converting from the nearest form there is. */
static uint32_t get_form(Lower *l, const MotOp *user, MotValue v, MotSharding need)
{
    const Form *from = NULL;
    for (uint32_t i = l->first_form[v]; i; i = l->forms.data[i - 1].next) {
        from = &l->forms.data[i - 1]; /* the last one is the form that the defining op left */
        if (mot_sharding_equal(from->sharding, need))
            return from->buf;
    }
    if (!from) {
        mot_fail(l->ctx, MOT_ERR_INTERNAL, mot_op_loc(l->g, user),
                 "lower: operand %%%u has no buffer", v);
        return 0;
    }
    MotSharding have = from->sharding;
    uint32_t buf = from->buf;
    for (int a; (a = choose_axis(l, have, need)) >= 0;) {
        int nested = find_nested(l, have, need, (uint32_t)a);
        int to_dim = nested >= 0 ? MOT_REPLICATED : need.axis[a];
        int64_t to_units = nested >= 0 ? 0 : need.units[a];
        a = nested >= 0 ? nested : a;
        int from_dim = have.axis[a];
        Conversion conversion = choose_conversion(from_dim, to_dim, (uint32_t)a);
        bool is_max = from_dim == MOT_PARTIAL_MAX;
        have.axis[a] = (int8_t)to_dim;
        have.units[a] = to_units;
        uint32_t out = add_buf(l, MOT_BUF_SCRATCH, v, have);
        MotInstr *ins = add_instr(l, conversion.kind, user, (uint32_t[]){buf, out}, 2, 1);
        ins->axis = (uint32_t)a;
        MotMove move = {.dim = from_dim >= 0 ? from_dim : to_dim,
                        .dim_out = from_dim >= 0 && to_dim >= 0 ? to_dim : -1};
        ins->moves = mot_arena_copy(&l->ctx->arena, &move, sizeof move);
        ins->is_max = is_max;
        buf = out;
        add_form(l, v, have, buf);
    }
    return buf;
}

/* ---- Kernels ---- */

static bool is_in_group(const Lower *l, MotValue v)
{
    MotOpId def = l->g->values.data[v].def;
    for (uint32_t i = 0; i < l->group.n; i++)
        if (l->group.data[i] == def)
            return true;
    return false;
}

/* Whether the op is computed in this section, or in the other pass of the same micro-batch. */
static bool is_live(const Lower *l, MotOpId id)
{
    unsigned micro = 1 << MOT_SECTION_FORWARD | 1 << MOT_SECTION_BACKWARD, own = 1u << l->section;
    return l->sections.runs[id] & (own & micro ? micro : own);
}

/* Whether an op outside the group reads v. */
static bool is_used_outside(const Lower *l, MotValue v)
{
    for (uint32_t i = l->first_user[v]; i < l->first_user[v + 1]; i++) {
        bool is_member = false;
        for (uint32_t k = 0; k < l->group.n; k++)
            is_member |= l->group.data[k] == l->user[i];
        if (!is_member && is_live(l, l->user[i]))
            return true;
    }
    return false;
}

/*
 * Whether the op can run in the same loop as the open group: elementwise like it, over the same dims, split alike, and reading the
 * group's results as they are.
 */
static bool can_join(const Lower *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id), *first = mot_graph_op(l->g, l->group.data[0]);
    const MotOp *last = mot_graph_op(l->g, l->group.data[l->group.n - 1]);
    if (l->group.n == MOT_MAX_FUSED || !mot_op_can_fuse(l->g, first, last, op) ||
        (mot_op_is_elementwise(op) &&
         !mot_sharding_equal(l->plan->values[op->out[0]], l->plan->values[first->out[0]])))
        return false;
    bool reads_group = false;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] && is_in_group(l, op->in[i])) {
            reads_group = true;
            if (!mot_sharding_equal(mot_plan_operand(l->plan, id, &l->factors[id], i),
                                    l->plan->values[op->in[i]]))
                return false;
        }
    return reads_group;
}

/* The kernel under construction: its graph, and the buffers that it reads and writes. */
typedef struct {
    MotBuilder b;
    uint32_t bufs[MOT_MAX_FUSED * (MOT_MAX_OPERANDS + MOT_MAX_RESULTS)], n_bufs;
    MotValue *inner; /* [values]: graph value -> kernel value */
    MotMap inputs;   /* buffer -> kernel input */
} KernelMaker;

/* Names in the kernel the dims that the program has by now. */
static void name_symbols(Lower *l, MotGraph *graph)
{
    for (uint32_t i = graph->symbols.n; i < l->program->dims.n; i++)
        mot_vec_push(&l->ctx->arena, &graph->symbols, l->program->dims.data[i].name);
}

static KernelMaker make_kernel(Lower *l)
{
    KernelMaker k = {.b = mot_builder_make(mot_graph_make(l->ctx, "kernel")), .inner = l->inner};
    mot_map_init(&k.inputs, &l->ctx->arena);
    return k;
}

static MotValue add_input(Lower *l, KernelMaker *k, uint32_t buf)
{
    uint64_t known;
    if (mot_map_get(&k->inputs, &buf, sizeof buf, &known))
        return (MotValue)known;
    name_symbols(l, k->b.graph);
    MotValue v = mot_input(&k->b, mot_arena_printf(&l->ctx->arena, "i%u", k->n_bufs),
                           l->program->bufs.data[buf].type);
    mot_map_put(&k->inputs, &buf, sizeof buf, v);
    k->bufs[k->n_bufs++] = buf;
    return v;
}

static MotValue add_operand(Lower *l, KernelMaker *k, MotOpId id, uint32_t i)
{
    const MotOp *op = mot_graph_op(l->g, id), *def = mot_graph_def(l->g, op->in[i]);
    if (!op->in[i])
        return 0;
    if (mot_op_is_immediate(l->g, def))
        return mot_constant(&k->b, mot_attrs(def, constant)->data);
    if (k->inner[op->in[i]])
        return k->inner[op->in[i]];
    return add_input(l, k,
                     get_form(l, op, op->in[i], mot_plan_operand(l->plan, id, &l->factors[id], i)));
}

static void add_member(Lower *l, KernelMaker *k, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    MotValue in[MOT_MAX_OPERANDS];
    MotType types[MOT_MAX_RESULTS];
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = add_operand(l, k, id, i);
    for (uint32_t i = 0; i < op->n_out; i++)
        types[i] =
            make_local_type(l, mot_graph_type(l->g, op->out[i]), l->plan->values[op->out[i]]);
    name_symbols(l, k->b.graph);
    MotOpId inner = mot_build_typed(&k->b, op->kind, in, op->n_in, op->attrs, types);
    for (uint32_t i = 0; i < op->n_out; i++)
        k->inner[op->out[i]] = mot_result(&k->b, inner, i);
}

/* Equal texts share one kernel. */
static uint32_t find_kernel(Lower *l, MotGraph *graph)
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

/* The result is the operand's memory, or a part of it. Outermost dims that are sliced are whole: factors see to that. */
static void lower_view(Lower *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    MotSharding sharding = l->plan->values[op->out[0]];
    uint32_t from = get_form(l, op, op->in[0], mot_plan_operand(l->plan, id, &l->factors[id], 0));
    uint32_t buf = add_buf(l, MOT_BUF_SCRATCH, op->out[0], sharding);
    l->program->bufs.data[buf].alias = from + 1;
    if (op->kind == MOT_OP_SLICE)
        l->program->bufs.data[buf].alias_start = mot_attrs(op, slice)->start.data[0];
    add_form(l, op->out[0], sharding, buf);
}

/*
 * A concat along the outermost dim: the makers of its operands write into the result. False, and nothing is done, if one of them
 * can't: the concat is a kernel then.
 */
static bool lower_joined(Lower *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    MotProgram *p = l->program;
    MotSharding sharding = l->plan->values[op->out[0]];
    uint32_t part[MOT_MAX_OPERANDS];
    if (op->kind != MOT_OP_CONCAT || mot_attrs(op, axis)->axis != 0)
        return false;
    for (uint32_t i = 0; i < op->n_in; i++) {
        if (mot_op_is_immediate(l->g, mot_graph_def(l->g, op->in[i])))
            return false;
        MotSharding own = mot_plan_operand(l->plan, id, &l->factors[id], i);
        part[i] = mot_find_movable(p, l->section, get_form(l, op, op->in[i], own));
        for (uint32_t k = 0; k < i; k++)
            if (part[k] == part[i])
                return false;
        if (part[i] == MOT_NO_BUF)
            return false;
    }
    uint32_t buf = add_buf(l, MOT_BUF_SCRATCH, op->out[0], sharding);
    for (uint32_t i = 0, at = 0; i < op->n_in; i++) {
        p->bufs.data[part[i]].alias = buf + 1;
        p->bufs.data[part[i]].alias_start = at;
        at += (uint32_t)mot_graph_type(l->g, op->in[i])->dims[0];
    }
    add_form(l, op->out[0], sharding, buf);
    return true;
}

/* A buffer for every result of the group that something outside reads. Clears `inner`. */
static void add_results(Lower *l, KernelMaker *k)
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
            mot_output(&k->b, mot_arena_printf(&l->ctx->arena, "o%u", k->n_bufs - n_in), inner);
            uint32_t buf = add_buf(l, MOT_BUF_SCRATCH, v, l->plan->values[v]);
            k->bufs[k->n_bufs++] = buf;
            add_form(l, v, l->plan->values[v], buf);
        }
    }
}

static void launch_group(Lower *l)
{
    KernelMaker k = make_kernel(l);
    for (uint32_t i = 0; i < l->group.n; i++)
        add_member(l, &k, l->group.data[i]);
    uint32_t n_in = k.n_bufs;
    add_results(l, &k);
    if (l->ctx->status != MOT_OK)
        return;
    uint32_t kernel = find_kernel(l, k.b.graph);
    add_instr(l, MOT_INS_LAUNCH, mot_graph_op(l->g, l->group.data[0]), k.bufs, k.n_bufs, n_in)
        ->kernel = kernel;
}

/* One launch for the open group, or none where memory already says it. */
static void flush_group(Lower *l)
{
    if (l->group.n == 0 || l->ctx->status != MOT_OK)
        return;
    if (mot_op_is_view(l->g, mot_graph_op(l->g, l->group.data[0])))
        lower_view(l, l->group.data[0]);
    else if (!lower_joined(l, l->group.data[0]))
        launch_group(l);
    l->group.n = 0;
}

static void lower_compute(Lower *l, MotOpId id)
{
    if (l->group.n && !can_join(l, id))
        flush_group(l);
    mot_vec_push(&l->ctx->arena, &l->group, id);
}

/* The sharding of v as its op leaves it, maxima made whole: they do not add up. */
static MotSharding summable(const Lower *l, MotValue v)
{
    MotSharding s = l->plan->values[v];
    for (uint32_t a = 0; a < MOT_MAX_AXES; a++)
        if (s.axis[a] == MOT_PARTIAL_MAX)
            s.axis[a] = MOT_REPLICATED;
    return s;
}

/* `sum = x`, or with `is_later` `sum = sum + x`. */
static void add_to_sum(Lower *l, MotOpId id, uint32_t sum, uint32_t x, bool is_later)
{
    const MotOp *op = mot_graph_op(l->g, id);
    KernelMaker k = make_kernel(l);
    MotValue old = is_later ? add_input(l, &k, sum) : 0;
    MotValue new =
        x ? add_input(l, &k, x - 1)
          : mot_constant(&k.b, mot_attrs(mot_graph_def(l->g, op->in[0]), constant)->data);
    mot_output(&k.b, "o0", is_later ? mot_add(&k.b, old, new) : mot_accumulate(&k.b, new));
    k.bufs[k.n_bufs] = sum;
    if (l->ctx->status != MOT_OK)
        return;
    MotInstr *ins = add_instr(l, MOT_INS_LAUNCH, op, k.bufs, k.n_bufs + 1, k.n_bufs);
    ins->kernel = find_kernel(l, k.b.graph);
    ins->when = is_later ? MOT_WHEN_LATER : MOT_WHEN_FIRST;
}

/*
 * A sum over micro-batches is kept as the operand is left: partial sums over the mesh are added up first, and reduced once a step. */
static void lower_cut(Lower *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    bool is_number = mot_op_is_immediate(l->g, mot_graph_def(l->g, op->in[0]));
    MotSharding s = is_number ? mot_replicated : summable(l, op->in[0]);
    uint32_t x = is_number ? 0 : get_form(l, op, op->in[0], s) + 1;
    uint32_t sum = add_buf(l, MOT_BUF_STEP, op->out[0], s);
    l->home[op->out[0]] = sum + 1;
    add_to_sum(l, id, sum, x, false);
    add_to_sum(l, id, sum, x, true);
}

/* The users of every value, as ranges of one array. */
static void find_users(Lower *l)
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
static void lower_source(Lower *l, MotOpId id)
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
        uint32_t buf = add_buf(l, kind, v, l->plan->values[v]);
        l->program->bufs.data[buf].name = name;
        l->program->bufs.data[buf].source = op;
        l->home[v] = buf + 1;
    }
    add_form(l, v, l->plan->values[v], l->home[v] - 1);
}

/* A value that the host reads: under `name`, in the sharding `as`. */
static void lower_output(Lower *l, const MotOp *op, const char *name, MotValue v, MotSharding as)
{
    if (mot_op_is_immediate(l->g, mot_graph_def(l->g, v))) {
        mot_fail(l->ctx, MOT_ERR_UNSUPPORTED, mot_op_loc(l->g, op), "the output is a constant");
        return;
    }
    uint32_t buf = get_form(l, op, v, as);
    if (l->section == MOT_SECTION_STEP)
        mot_vec_push(&l->ctx->arena, &l->program->outputs, (MotOutput){name, buf, MOT_NO_BUF});
    else
        for (uint32_t i = 0; i < l->program->outputs.n; i++)
            if (strcmp(l->program->outputs.data[i].name, name) == 0)
                l->program->outputs.data[i].eval_buf = buf;
}

static void lower_sink(Lower *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    if (op->kind == MOT_OP_OUTPUT) {
        lower_output(l, op, mot_attrs(op, output)->name, op->in[0], mot_replicated);
        return;
    }
    const char *name = mot_attrs(mot_graph_def(l->g, op->in[0]), param)->name;
    MotSharding own = l->plan->values[op->in[0]];
    if (op->kind == MOT_OP_GRADIENT) {
        lower_output(l, op, mot_arena_printf(&l->ctx->arena, "gradient:%s", name), op->in[1], own);
        return;
    }
    /* assign: the parameter's buffer takes the new value. */
    uint32_t src = get_form(l, op, op->in[1], own), dst = l->home[op->in[0]] - 1;
    if (!mot_write_in_place(l->program, l->section, src, dst))
        add_instr(l, MOT_INS_COPY, op, (uint32_t[]){src, dst}, 2, 1);
}

/* The part that an op of the body has in this section, if any. */
static void lower_op(Lower *l, MotOpId id)
{
    const MotOp *op = mot_graph_op(l->g, id);
    unsigned section = 1u << l->section;
    if (l->sections.ready[id] & section)
        add_form(l, op->out[0], l->program->bufs.data[l->home[op->out[0]] - 1].sharding,
                 l->home[op->out[0]] - 1);
    if (!(l->sections.runs[id] & section))
        return;
    if (op->kind == MOT_OP_INPUT || op->kind == MOT_OP_PARAM || op->kind == MOT_OP_CONSTANT) {
        lower_source(l, id);
    } else if (mot_op_info(op->kind)->class == MOT_SINK) {
        flush_group(l);
        lower_sink(l, id);
    } else if (mot_is_cut(l->plan, op) && l->section != MOT_SECTION_EVAL) {
        flush_group(l);
        lower_cut(l, id);
    } else {
        lower_compute(l, id);
    }
}

static void lower_section(Lower *l, MotSection section)
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
            if ((mot_graph_op(l->g, id)->kind == MOT_OP_ASSIGN) == (assigns == 1))
                lower_op(l, id);
        }
    flush_group(l);
}

/* What the forward pass leaves for the backward pass needs a copy for every micro-batch in flight. */
static void set_copies(Lower *l, uint32_t in_flight)
{
    MotProgram *p = l->program;
    bool *is_left = mot_arena_array(&l->ctx->arena, bool, p->bufs.n);
    for (int s = MOT_SECTION_FORWARD; s <= MOT_SECTION_BACKWARD; s++)
        for (uint32_t i = 0; i < p->section[s].n; i++)
            for (uint32_t k = 0; k < p->section[s].data[i].n_bufs; k++) {
                uint32_t owner = mot_program_owner(p, p->section[s].data[i].bufs[k]);
                if (s == MOT_SECTION_FORWARD)
                    is_left[owner] = p->bufs.data[owner].kind == MOT_BUF_SCRATCH;
                else if (is_left[owner])
                    p->bufs.data[owner].copies = in_flight;
            }
}

/* What a step runs: counts, the passes of the micro-batches, the update. */
static void set_order(Lower *l, uint32_t stage)
{
    MotProgram *p = l->program;
    for (uint32_t i = 0; i < p->n_micro && p->section[MOT_SECTION_COUNT].n; i++)
        mot_vec_push(&l->ctx->arena, &p->order, (MotRun){MOT_SECTION_COUNT, i});
    mot_schedule_order(p, l->plan->schedule, stage, l->plan->stages.n);
    mot_vec_push(&l->ctx->arena, &p->order, (MotRun){MOT_SECTION_STEP, 0});
}

MotStatus mot_lower(MotCtx *ctx, const MotPlan *plan, uint32_t stage, MotProgram **out_program)
{
    if (plan->stages.n != 1)
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                        "plans of %u stages can't be lowered yet", plan->stages.n);
    MotArena *arena = &ctx->arena;
    plan = mot_recompute_apply(ctx, plan);
    const MotGraph *g = plan->graph;
    MotProgram *program = mot_arena_new(arena, MotProgram);
    program->ctx = ctx;
    program->name = mot_arena_printf(arena, "s%u", stage);
    program->mesh = plan->stages.data[stage].mesh;
    program->n_micro = plan->n_micro;
    Lower l = {.ctx = ctx,
               .plan = plan,
               .g = g,
               .program = program,
               .first_form = mot_arena_array(arena, uint32_t, g->values.n),
               .home = mot_arena_array(arena, uint32_t, g->values.n),
               .inner = mot_arena_array(arena, MotValue, g->values.n),
               .factors = mot_arena_array(arena, MotFactors, g->ops.n)};
    mot_map_init(&l.kernels, arena);
    find_users(&l);
    MOT_TRY(mot_sections_find(ctx, plan, &l.sections));
    for (uint32_t i = 0; i < g->body.n; i++)
        MOT_TRY(mot_factors(g, mot_graph_op(g, g->body.data[i]), &l.factors[g->body.data[i]]));
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        lower_section(&l, (MotSection)s);
    if (!mot_debug_lists(ctx->debug.skip, "", "batch"))
        mot_batch(program);
    for (int s = 0; s < MOT_N_SECTIONS; s++) {
        mot_coalesce(program, (MotSection)s);
        mot_add_events(program, (MotSection)s);
    }
    set_copies(&l, mot_schedule_in_flight(plan->schedule, stage, plan->stages.n, plan->n_micro));
    set_order(&l, stage);
    *out_program = program;
    return ctx->status;
}
