/*
 * Choices are read off the plan, traffic off the programs' collectives and messages, bytes and
 * memory off their bindings: as it will run, and nothing is estimated but an all-reduce, in which a
 * rank receives its share of all parts and then the sums of the others, 2 (n - 1) / n of the
 * tensor. Linear in operators and instructions.
 */
#include "cli/outline.h"

#include "passes/plan/choice.h"
#include "passes/plan/evaluate.h"

#include <math.h>

/* A node of the file: what its heaviest forward operator splits. */
typedef struct {
    const char *node, *split;
    uint32_t stage;
    double flops;
} Layer;

typedef struct {
    uint32_t stage;
    MotInstrKind kind;
    const char *axis; /* NULL for messages between stages */
    uint32_t times;   /* a step, on a rank */
    double bytes;     /* received in a step, over all ranks */
} Traffic;

struct MotOutline {
    const MotPlan *plan;
    const MotPipeline *pipeline;
    const char *why;
    const MotFactors *factors;
    MotBinding *bindings; /* [ranks] */
    double *received;     /* [ranks] bytes a step */
    MotVec(Layer) layers;
    MotMap index; /* node -> index into layers */
    MotVec(Traffic) traffic;
    uint32_t n_updates, n_split_updates;
};

static MotArena *arena_of(const MotOutline *o)
{
    return &o->plan->ctx->arena;
}

static const MotMesh *mesh_of(const MotOutline *o, uint32_t stage)
{
    return &o->plan->stages.data[stage].mesh;
}

/* "rows=batch features=out", or "replicate" where no axis splits it. */
static const char *split_text(const MotOutline *o, MotOpId id)
{
    const MotOp *op = mot_graph_op(o->plan->graph, id);
    const MotOpPlan *choice = &o->plan->ops[id];
    const MotMesh *mesh = mesh_of(o, choice->stage);
    MotText text;
    mot_text_init(&text, arena_of(o));
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (choice->factor[a] >= 0)
            mot_text_printf(
                &text, "%s%s=%s", text.n ? " " : "",
                mot_escape(arena_of(o), mesh->axis[a].name, 16),
                mot_choice_name(o->plan->graph, op, &o->factors[id], choice->factor[a]));
    return text.n ? mot_text_get(&text) : "replicate";
}

static bool is_split(const MotOpPlan *choice)
{
    bool splits = false;
    for (uint32_t a = 0; a < MOT_MAX_AXES; a++)
        splits |= choice->factor[a] >= 0;
    return splits;
}

static void add_op(MotOutline *o, MotOpId id)
{
    const MotOp *op = mot_graph_op(o->plan->graph, id);
    const char *node = mot_choice_node(op);
    uint64_t at;
    if (mot_op_info(op->kind)->flags & MOT_FLAG_UPDATE) {
        o->n_updates++;
        o->n_split_updates += is_split(&o->plan->ops[id]);
    }
    if (op->role != MOT_ROLE_FORWARD || mot_op_info(op->kind)->class == MOT_SOURCE || !node[0])
        return;
    if (!mot_map_get_str(&o->index, node, &at)) {
        at = o->layers.n;
        mot_map_put_str(&o->index, node, at);
        mot_vec_push(arena_of(o), &o->layers, (Layer){.node = node, .flops = -1});
    }
    Layer *layer = &o->layers.data[at];
    double flops = mot_op_flops(o->plan->graph, op);
    if (flops > layer->flops)
        *layer = (Layer){node, split_text(o, id), o->plan->ops[id].stage, flops};
}

/* ---- Traffic ---- */

static double local_bytes(const MotOutline *o, uint32_t rank, uint32_t buf)
{
    return (double)mot_type_bytes(&o->bindings[rank].types[buf]);
}

/*
 * One source and destination of a collective, on one rank: its parts of them, and the sources of
 * all that meet.
 */
typedef struct {
    double from, to, all, n;
} Piece;

static double receive_sums(const Piece *p)
{
    return 2 * p->to * (p->n - 1) / p->n;
}

static double receive_parts(const Piece *p)
{
    return p->to * (p->n - 1);
}

static double receive_rest(const Piece *p)
{
    return p->to - p->from;
}

/* Of its new part it holds as much as of the whole. */
static double receive_columns(const Piece *p)
{
    return p->all > 0 ? p->to * (1 - p->from / p->all) : 0;
}

static double (*const receive[MOT_N_INS])(const Piece *) = {
    [MOT_INS_ALL_REDUCE] = receive_sums,
    [MOT_INS_REDUCE_SCATTER] = receive_parts,
    [MOT_INS_ALL_GATHER] = receive_rest,
    [MOT_INS_ALL_TO_ALL] = receive_columns,
};

/* Along an axis meet the ranks of a stage that differ in this coordinate only. */
static Piece piece_of(const MotOutline *o, uint32_t stage, uint32_t rank, const MotInstr *ins,
                      uint32_t k)
{
    const MotMesh *mesh = mesh_of(o, stage);
    uint32_t first = mot_pipeline_first_rank(o->pipeline, stage), step = 1,
             at = mot_mesh_coordinate(mesh, rank - first, ins->axis), n = mesh->axis[ins->axis].n;
    Piece p = {.from = local_bytes(o, rank, ins->bufs[k]),
               .to = local_bytes(o, rank, ins->bufs[ins->n_in + k]),
               .n = n};
    for (uint32_t a = ins->axis + 1; a < mesh->n_axes; a++)
        step *= mesh->axis[a].n;
    for (uint32_t i = 0; i < n; i++)
        p.all += local_bytes(o, rank - at * step + i * step, ins->bufs[k]);
    return p;
}

static Traffic *find_traffic(MotOutline *o, uint32_t stage, const MotInstr *ins)
{
    bool is_message = ins->kind == MOT_INS_RECV;
    const char *axis = is_message ? NULL : mesh_of(o, stage)->axis[ins->axis].name;
    for (uint32_t i = 0; i < o->traffic.n; i++) {
        Traffic *t = &o->traffic.data[i];
        if (t->stage == stage && t->kind == ins->kind && t->axis == axis)
            return t;
    }
    mot_vec_push(arena_of(o), &o->traffic, (Traffic){stage, ins->kind, axis, 0, 0});
    return &o->traffic.data[o->traffic.n - 1];
}

/* Times a step. */
static uint32_t count_runs(const MotProgram *p, MotSection section, const MotInstr *ins)
{
    uint32_t n = 0, n_micro = mot_section_is_repeated(section) ? p->n_micro : 1;
    for (uint32_t m = 0; m < n_micro; m++)
        n += mot_instr_is_due(ins, m);
    return n;
}

static void add_instr(MotOutline *o, uint32_t stage, MotSection section, const MotInstr *ins)
{
    bool is_message = ins->kind == MOT_INS_RECV;
    if (!is_message && !mot_instr_is_collective(ins))
        return;
    uint32_t first = mot_pipeline_first_rank(o->pipeline, stage),
             runs = count_runs(o->pipeline->stages.data[stage], section, ins);
    Traffic *traffic = find_traffic(o, stage, ins);
    traffic->times += runs;
    for (uint32_t r = first; r < first + mesh_of(o, stage)->n_devices; r++) {
        double bytes = is_message ? local_bytes(o, r, ins->bufs[0]) : 0;
        for (uint32_t k = 0; !is_message && k < ins->n_in; k++) {
            Piece piece = piece_of(o, stage, r, ins, k);
            bytes += receive[ins->kind](&piece);
        }
        o->received[r] += runs * bytes;
        traffic->bytes += runs * bytes;
    }
}

MotStatus mot_outline_make(const MotPlan *plan, const MotPipeline *pipeline, const char *why,
                           MotOutline **out_outline)
{
    uint32_t n_ranks = mot_pipeline_ranks(pipeline);
    MotArena *arena = &plan->ctx->arena;
    MotOutline *o = mot_arena_new(arena, MotOutline);
    MotFactors *factors;
    MOT_TRY(mot_plan_factors(plan->ctx, plan->graph, &factors));
    *o = (MotOutline){.plan = plan,
                      .pipeline = pipeline,
                      .why = why,
                      .factors = factors,
                      .bindings = mot_arena_array(arena, MotBinding, n_ranks),
                      .received = mot_arena_array(arena, double, n_ranks)};
    mot_map_init(&o->index, arena);
    MOT_TRY(mot_pipeline_bind(plan->ctx, pipeline, o->bindings));
    for (uint32_t i = 0; i < plan->graph->body.n; i++)
        add_op(o, plan->graph->body.data[i]);
    for (uint32_t s = 0; s < pipeline->stages.n; s++)
        for (int section = 0; section < MOT_SECTION_EVAL; section++)
            for (uint32_t i = 0; i < pipeline->stages.data[s]->section[section].n; i++)
                add_instr(o, s, (MotSection)section,
                          &pipeline->stages.data[s]->section[section].data[i]);
    *out_outline = o;
    return MOT_OK;
}

/* ---- Text ---- */

/* "rows=3 features=1": the device's share along each axis. */
static const char *shares_text(const MotOutline *o, uint32_t stage, uint32_t position)
{
    const MotMesh *mesh = mesh_of(o, stage);
    MotText text;
    mot_text_init(&text, arena_of(o));
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        mot_text_printf(&text, "%s%s=%lld", a ? " " : "",
                        mot_escape(arena_of(o), mesh->axis[a].name, 16),
                        (long long)mesh->axis[a].share[mot_mesh_coordinate(mesh, position, a)]);
    return mot_text_get(&text);
}

static const MotDevice *device_of(const MotOutline *o, uint32_t stage, uint32_t position)
{
    return &o->plan->cluster->devices.data[mesh_of(o, stage)->devices[position]];
}

static void print_devices(const MotOutline *o, MotText *out)
{
    MotArena *arena = arena_of(o);
    uint32_t rank = 0;
    mot_text_printf(out, "\n%-16s %6s  %-26s %12s %12s %12s\n", "device", "stage", "shares",
                    "memory", "of", "received");
    for (uint32_t s = 0; s < o->plan->stages.n; s++)
        for (uint32_t i = 0; i < mesh_of(o, s)->n_devices; i++, rank++) {
            const MotDevice *d = device_of(o, s, i);
            mot_text_printf(out, "%-16s %6u  %-26s %12s %12s %12s\n",
                            mot_escape(arena, d->name, 16), s, shares_text(o, s, i),
                            mot_bytes_text(arena, (double)o->bindings[rank].arena_bytes),
                            d->memory > 0 ? mot_bytes_text(arena, d->memory) : "no cap",
                            mot_bytes_text(arena, o->received[rank]));
        }
}

static const char *kind_name(const Traffic *t)
{
    return t->axis ? mot_instr_names[t->kind] : "message";
}

void mot_outline_print(const MotOutline *o, MotText *out)
{
    MotArena *arena = arena_of(o);
    mot_text_printf(out, "%-40s %6s  %s\n", "layer", "stage", "split");
    for (uint32_t i = 0; i < o->layers.n; i++)
        mot_text_printf(out, "%-40s %6u  %s\n", mot_escape(arena, o->layers.data[i].node, 40),
                        o->layers.data[i].stage, o->layers.data[i].split);
    mot_text_printf(out, "%-40s %6s  %u of %u split\n", "(updates)", "", o->n_split_updates,
                    o->n_updates);
    print_devices(o, out);
    mot_text_printf(out, "\n%-16s %6s  %-26s %12s %12s\n", "traffic", "stage", "axis",
                    "times a step", "moved");
    for (uint32_t i = 0; i < o->traffic.n; i++) {
        const Traffic *t = &o->traffic.data[i];
        mot_text_printf(out, "%-16s %6u  %-26s %12u %12s\n", kind_name(t), t->stage,
                        t->axis ? mot_escape(arena, t->axis, 26) : "", t->times,
                        mot_bytes_text(arena, t->bytes));
    }
    mot_text_printf(out, "\nno predicted time: %s\n", o->why);
}

/* ---- JSON ---- */

static void put_shares(const MotOutline *o, uint32_t stage, uint32_t position, MotJsonWriter *w)
{
    const MotMesh *mesh = mesh_of(o, stage);
    mot_json_open(w, "shares", '{');
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        mot_json_put_int(w, mesh->axis[a].name,
                         mesh->axis[a].share[mot_mesh_coordinate(mesh, position, a)]);
    mot_json_close(w, '}');
}

static void put_devices(const MotOutline *o, MotJsonWriter *w)
{
    uint32_t rank = 0;
    mot_json_open(w, "devices", '[');
    for (uint32_t s = 0; s < o->plan->stages.n; s++)
        for (uint32_t i = 0; i < mesh_of(o, s)->n_devices; i++, rank++) {
            const MotDevice *d = device_of(o, s, i);
            mot_json_open(w, NULL, '{');
            mot_json_put_string(w, "device", d->name);
            mot_json_put_int(w, "stage", s);
            put_shares(o, s, i, w);
            mot_json_put_int(w, "memory_bytes", o->bindings[rank].arena_bytes);
            mot_json_put_number(w, "memory_cap_bytes", d->memory > 0 ? d->memory : (double)NAN);
            mot_json_put_number(w, "received_bytes", round(o->received[rank]));
            mot_json_close(w, '}');
        }
    mot_json_close(w, ']');
}

void mot_outline_put(const MotOutline *o, MotJsonWriter *w)
{
    mot_json_put_string(w, "no_time", o->why);
    mot_json_open(w, "layers", '[');
    for (uint32_t i = 0; i < o->layers.n; i++) {
        mot_json_open(w, NULL, '{');
        mot_json_put_string(w, "layer", o->layers.data[i].node);
        mot_json_put_int(w, "stage", o->layers.data[i].stage);
        mot_json_put_string(w, "split", o->layers.data[i].split);
        mot_json_close(w, '}');
    }
    mot_json_close(w, ']');
    put_devices(o, w);
    mot_json_open(w, "traffic", '[');
    for (uint32_t i = 0; i < o->traffic.n; i++) {
        const Traffic *t = &o->traffic.data[i];
        mot_json_open(w, NULL, '{');
        mot_json_put_string(w, "kind", kind_name(t));
        mot_json_put_int(w, "stage", t->stage);
        mot_json_put_string(w, "axis", t->axis);
        mot_json_put_int(w, "times", t->times);
        mot_json_put_number(w, "moved_bytes", round(t->bytes));
        mot_json_close(w, '}');
    }
    mot_json_close(w, ']');
}

/* ---- One node ---- */

static const char *sharding_text(const MotOutline *o, uint32_t stage, MotSharding s)
{
    return mot_sharding_text(arena_of(o), s, mesh_of(o, stage)->n_axes);
}

/* Of operand i: as its operator leaves it, and as this one needs it. */
static const char *operand_text(const MotOutline *o, MotOpId id, uint32_t i)
{
    const MotPlan *plan = o->plan;
    MotValue v = mot_graph_op(plan->graph, id)->in[i];
    MotSharding have = plan->values[v], need = mot_plan_operand(plan, id, &o->factors[id], i);
    uint32_t from = plan->ops[plan->graph->values.data[v].def].stage, to = plan->ops[id].stage;
    const char *then = sharding_text(o, from, have);
    if (from != to)
        return mot_arena_printf(arena_of(o), "%s in stage %u -> %s", then, from,
                                sharding_text(o, to, need));
    if (mot_sharding_equal(have, need))
        return then;
    return mot_arena_printf(arena_of(o), "%s -> %s", then, sharding_text(o, to, need));
}

static void print_op(const MotOutline *o, MotOpId id, MotText *out)
{
    const MotOp *op = mot_graph_op(o->plan->graph, id);
    MotArena *arena = arena_of(o);
    mot_text_printf(out, "%s (%s, %s) in stage %u: %s\n", mot_quote(arena, mot_choice_node(op)),
                    mot_op_info(op->kind)->name, mot_role_names[op->role], o->plan->ops[id].stage,
                    split_text(o, id));
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i]) {
            const MotType *type = mot_graph_type(o->plan->graph, op->in[i]);
            mot_text_printf(out, "    operand %u [%s]: %s\n", i,
                            mot_shape_text(arena, type->dims, type->rank), operand_text(o, id, i));
        }
    for (uint32_t k = 0; k < op->n_out; k++) {
        const MotType *type = mot_graph_type(o->plan->graph, op->out[k]);
        mot_text_printf(out, "    result  %u [%s]: %s\n", k,
                        mot_shape_text(arena, type->dims, type->rank),
                        sharding_text(o, o->plan->ops[id].stage, o->plan->values[op->out[k]]));
    }
}

static void put_op(const MotOutline *o, MotOpId id, MotJsonWriter *w)
{
    const MotOp *op = mot_graph_op(o->plan->graph, id);
    mot_json_open(w, NULL, '{');
    mot_json_put_string(w, "node", mot_choice_node(op));
    mot_json_put_string(w, "operator", mot_op_info(op->kind)->name);
    mot_json_put_string(w, "role", mot_role_names[op->role]);
    mot_json_put_int(w, "stage", o->plan->ops[id].stage);
    mot_json_put_string(w, "split", split_text(o, id));
    mot_json_open(w, "operands", '[');
    for (uint32_t i = 0; i < op->n_in; i++)
        mot_json_put_string(w, NULL, op->in[i] ? operand_text(o, id, i) : NULL);
    mot_json_close(w, ']');
    mot_json_open(w, "results", '[');
    for (uint32_t k = 0; k < op->n_out; k++)
        mot_json_put_string(w, NULL,
                            sharding_text(o, o->plan->ops[id].stage, o->plan->values[op->out[k]]));
    mot_json_close(w, ']');
    mot_json_close(w, '}');
}

MotStatus mot_outline_explain(const MotOutline *o, const char *glob, MotText *out, MotJsonWriter *w)
{
    const MotGraph *g = o->plan->graph;
    uint32_t n = 0;
    if (w)
        mot_json_open(w, "operators", '[');
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (mot_op_info(op->kind)->class == MOT_SOURCE ||
            !mot_glob_match(glob, mot_choice_node(op)))
            continue;
        if (out)
            print_op(o, g->body.data[i], out);
        else
            put_op(o, g->body.data[i], w);
        n++;
    }
    if (w)
        mot_json_close(w, ']');
    return n ? MOT_OK
             : mot_fail(o->plan->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "no operator matches %s",
                        mot_quote(arena_of(o), glob));
}
