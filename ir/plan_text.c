/*
 * Plan <-> records (docs/ir.md). One record a device, link, stage, axis, operator that is split,
 * and prediction; the scalar fields of each kind are a table that printer and parser share.
 * Shardings of values are not written: they follow from the factors.
 *
 *     plan @gpt {micro=1, schedule="gpipe", time=0.5, bound=0.4} {
 *       source {model="gpt.onnx", hash="00c0ffee00c0ffee", options=["--dim=batch=8"]}
 *       device {name="a", backend="cpu", threads=1, slow=1.0, memory=0.0, flops=1.2e+11, ...}
 *       link {latency=1e-05, bandwidth=1.25e+09}
 *       stage {devices=[0]} {
 *         axis {name="d", share=[1]}
 *       }
 *       graph @gpt { ... }
 *       op 7 {factor=[2]}               // of the graph; others compute whole on every device
 *       device_prediction 0 {busy=0.4, communication=0.1, memory=1024.0, bytes=0.0}
 *     }
 */
#include "ir/plan_text.h"

#include "ir/graph_text.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { VERSION = 1, MAX_STAGES = MOT_MAX_DEVICES };

static const char *const schedule_names[] = {
    [MOT_SCHEDULE_GPIPE] = "gpipe", [MOT_SCHEDULE_1F1B] = "1f1b"};
enum { N_SCHEDULES = sizeof schedule_names / sizeof *schedule_names };

/* ---- Scalar fields, as tables ---- */

typedef enum { FIELD_TEXT, FIELD_COUNT, FIELD_NUMBER, FIELD_FLAG } FieldKind;

typedef struct {
    const char *name; /* NULL ends a table */
    FieldKind kind;
    size_t offset;
} Field;

static const Field device_fields[] = {{"name", FIELD_TEXT, offsetof(MotDevice, name)},
                                      {"backend", FIELD_TEXT, offsetof(MotDevice, backend)},
                                      {"threads", FIELD_COUNT, offsetof(MotDevice, threads)},
                                      {"slow", FIELD_NUMBER, offsetof(MotDevice, slow)},
                                      {"memory", FIELD_NUMBER, offsetof(MotDevice, memory)},
#define RATE(name, field) {name, FIELD_NUMBER, offsetof(MotDevice, field)}
                                      RATE("flops", alone.flops),
                                      RATE("functions", alone.functions),
                                      RATE("bandwidth", alone.bandwidth),
                                      RATE("launch", alone.launch),
                                      RATE("flops_beside", beside.flops),
                                      RATE("functions_beside", beside.functions),
                                      RATE("bandwidth_beside", beside.bandwidth),
                                      RATE("launch_beside", beside.launch),
#undef RATE
                                      {"assumed", FIELD_FLAG, offsetof(MotDevice, is_assumed)},
                                      {0}};
static const Field cluster_fields[] = {{"modelled", FIELD_FLAG, offsetof(MotCluster, is_modelled)},
                                       {0}};
/* A link between all devices has no a and b. */
static const Field link_fields[] = {
    {"a", FIELD_COUNT, offsetof(MotLink, a)},
    {"b", FIELD_COUNT, offsetof(MotLink, b)},
    {"latency", FIELD_NUMBER, offsetof(MotLink, latency)},
    {"bandwidth", FIELD_NUMBER, offsetof(MotLink, bandwidth)},
    {"emulated", FIELD_FLAG, offsetof(MotLink, is_emulated)},
    {"measured_latency", FIELD_NUMBER, offsetof(MotLink, measured_latency)},
    {"measured_bandwidth", FIELD_NUMBER, offsetof(MotLink, measured_bandwidth)},
    {0}};
static const Field prediction_fields[] = {
    {"busy", FIELD_NUMBER, offsetof(MotDevicePrediction, busy)},
    {"communication", FIELD_NUMBER, offsetof(MotDevicePrediction, communication)},
    {"memory", FIELD_NUMBER, offsetof(MotDevicePrediction, memory)},
    {"bytes", FIELD_NUMBER, offsetof(MotDevicePrediction, bytes)},
    {0}};
static const Field plan_fields[] = {{"micro", FIELD_COUNT, offsetof(MotPlan, n_micro)},
                                    {"time", FIELD_NUMBER, offsetof(MotPlan, time)},
                                    {"bound", FIELD_NUMBER, offsetof(MotPlan, bound)},
                                    {0}};
static const Field source_fields[] = {{"model", FIELD_TEXT, offsetof(MotPlanSource, model)},
                                      {"hash", FIELD_TEXT, offsetof(MotPlanSource, hash)},
                                      {0}};
static const Field op_fields[] = {{"stage", FIELD_COUNT, offsetof(MotOpPlan, stage)},
                                  {"recompute", FIELD_FLAG, offsetof(MotOpPlan, recompute)},
                                  {0}};
static const Field axis_fields[] = {{"name", FIELD_TEXT, offsetof(MotMeshAxis, name)}, {0}};
static const Field no_fields[] = {{0}};

/* ---- Printing ---- */

static void add_field(MotArena *arena, MotRecord *r, const Field *f, const void *from)
{
    const char *at = (const char *)from + f->offset;
    switch (f->kind) {
    case FIELD_TEXT:
        mot_record_add_attr(arena, r, f->name,
                            mot_term_text(MOT_TERM_STRING, *(const char *const *)at));
        break;
    case FIELD_COUNT:
        mot_record_add_attr(arena, r, f->name, mot_term_int(*(const uint32_t *)at));
        break;
    case FIELD_NUMBER:
        mot_record_add_attr(arena, r, f->name, mot_term_float(*(const double *)at));
        break;
    case FIELD_FLAG:
        if (*(const bool *)at)
            mot_record_add_attr(arena, r, f->name, (MotTerm){.kind = MOT_TERM_NONE});
    }
}

static MotRecord make_record(MotArena *arena, const char *op, const Field *fields, const void *from)
{
    MotRecord r = {.op = op};
    for (const Field *f = fields; f->name; f++)
        add_field(arena, &r, f, from);
    return r;
}

static MotTerm list_of_ints(MotArena *arena, const int64_t *value, uint32_t n)
{
    MotTerm *items = mot_arena_array(arena, MotTerm, n);
    for (uint32_t i = 0; i < n; i++)
        items[i] = mot_term_int(value[i]);
    return mot_term_list(items, n);
}

static MotRecord source_record(MotArena *arena, const MotPlanSource *source)
{
    MotRecord r = make_record(arena, "source", source_fields, source);
    MotTerm *items = mot_arena_array(arena, MotTerm, source->n_options);
    for (uint32_t i = 0; i < source->n_options; i++)
        items[i] = mot_term_text(MOT_TERM_STRING, source->options[i]);
    mot_record_add_attr(arena, &r, "options", mot_term_list(items, source->n_options));
    return r;
}

static MotRecord link_record(MotArena *arena, const MotLink *link)
{
    bool is_for_all = link->a == MOT_ALL_DEVICES;
    return make_record(arena, "link", is_for_all ? link_fields + 2 : link_fields, link);
}

static MotRecord stage_record(MotArena *arena, const MotMesh *mesh)
{
    MotRecord r = {.op = "stage", .has_body = true};
    int64_t devices[MOT_MAX_DEVICES];
    for (uint32_t i = 0; i < mesh->n_devices; i++)
        devices[i] = mesh->devices[i];
    mot_record_add_attr(arena, &r, "devices", list_of_ints(arena, devices, mesh->n_devices));
    for (uint32_t a = 0; a < mesh->n_axes; a++) {
        MotRecord axis = make_record(arena, "axis", axis_fields, &mesh->axis[a]);
        mot_record_add_attr(arena, &axis, "share",
                            list_of_ints(arena, mesh->axis[a].share, mesh->axis[a].n));
        mot_vec_push(arena, &r.body, axis);
    }
    return r;
}

/* Adds a record for op `number`, unless it is as ops are that have none. */
static void add_op(MotArena *arena, MotRecords *body, const MotPlan *plan, uint32_t number)
{
    const MotOpPlan *op = &plan->ops[plan->graph->body.data[number - 1]];
    int64_t factor[MOT_MAX_AXES];
    uint32_t n = 0;
    for (uint32_t a = 0; a < MOT_MAX_AXES; a++) {
        factor[a] = op->factor[a];
        n = op->factor[a] >= 0 ? a + 1 : n;
    }
    if (n == 0 && op->stage == 0 && !op->recompute)
        return;
    MotRecord r = {.op = "op"};
    mot_vec_push(arena, &r.in, mot_term_int(number));
    mot_record_add_attr(arena, &r, "factor", list_of_ints(arena, factor, n));
    for (const Field *f = op_fields; f->name; f++)
        if (f->kind == FIELD_FLAG || op->stage > 0)
            add_field(arena, &r, f, op);
    mot_vec_push(arena, body, r);
}

/* With the changes of its speed, [step, slow]. */
static MotRecord device_record(MotArena *arena, const MotDevice *device)
{
    MotRecord r = make_record(arena, "device", device_fields, device);
    uint32_t n = device->slowdowns.n;
    MotTerm *items = mot_arena_array(arena, MotTerm, n);
    for (uint32_t i = 0; i < n; i++) {
        MotTerm *pair = mot_arena_array(arena, MotTerm, 2);
        pair[0] = mot_term_int(device->slowdowns.data[i].step);
        pair[1] = mot_term_float(device->slowdowns.data[i].slow);
        items[i] = mot_term_list(pair, 2);
    }
    if (n)
        mot_record_add_attr(arena, &r, "slowdowns", mot_term_list(items, n));
    return r;
}

MotRecords mot_plan_to_records(const MotPlan *plan)
{
    MotArena *arena = &plan->ctx->arena;
    MotRecord r = make_record(arena, "plan", plan_fields, plan);
    r.has_body = true;
    mot_vec_push(arena, &r.in, mot_term_text(MOT_TERM_SYMBOL, plan->graph->name));
    mot_record_add_attr(arena, &r, "schedule",
                        mot_term_text(MOT_TERM_STRING, schedule_names[plan->schedule]));
    if (plan->source.model)
        mot_vec_push(arena, &r.body, source_record(arena, &plan->source));
    if (plan->cluster->is_modelled)
        mot_vec_push(arena, &r.body, make_record(arena, "cluster", cluster_fields, plan->cluster));
    for (uint32_t i = 0; i < plan->cluster->devices.n; i++)
        mot_vec_push(arena, &r.body, device_record(arena, &plan->cluster->devices.data[i]));
    for (uint32_t i = 0; i < plan->cluster->links.n; i++)
        mot_vec_push(arena, &r.body, link_record(arena, &plan->cluster->links.data[i]));
    for (uint32_t s = 0; s < plan->stages.n; s++)
        mot_vec_push(arena, &r.body, stage_record(arena, &plan->stages.data[s].mesh));
    mot_vec_push(arena, &r.body, mot_graph_to_record(plan->graph));
    for (uint32_t i = 1; i <= plan->graph->body.n; i++)
        add_op(arena, &r.body, plan, i);
    for (uint32_t i = 0; i < plan->cluster->devices.n; i++) {
        MotRecord prediction =
            make_record(arena, "device_prediction", prediction_fields, &plan->devices[i]);
        mot_vec_push(arena, &prediction.in, mot_term_int(i));
        mot_vec_push(arena, &r.body, prediction);
    }
    MotRecords records = {0};
    mot_vec_push(arena, &records, mot_record_header(plan->ctx, "plan", VERSION));
    mot_vec_push(arena, &records, r);
    return records;
}

void mot_plan_print(const MotPlan *plan, MotText *text)
{
    MotRecords records = mot_plan_to_records(plan);
    mot_records_print(&records, text);
}

/* ---- Parsing ---- */

typedef struct {
    MotCtx *ctx;
    const char *file;
    MotCluster *cluster;
    MotPlan *plan; /* once the graph is there */
    MotPlan head;  /* what stands before the graph: scalar fields and stages */
} Parser;

static MotStatus fail_at(const Parser *p, MotTextPos pos, const char *what, const char *name)
{
    return mot_fail(p->ctx, MOT_ERR_MODEL, mot_record_loc(p->ctx, p->file, pos), "%s %s", what,
                    name);
}

static MotStatus read_field(const Parser *p, const MotRecordAttr *attr, const Field *f, void *to)
{
    char *at = (char *)to + f->offset;
    const MotTerm *t = &attr->value;
    bool is_number = t->kind == MOT_TERM_INT || t->kind == MOT_TERM_FLOAT;
    double number = t->kind == MOT_TERM_INT     ? (double)t->integer
                    : t->kind == MOT_TERM_FLOAT ? t->number
                                                : 0;
    bool is_good = f->kind == FIELD_TEXT ? t->kind == MOT_TERM_STRING
                   : f->kind == FIELD_COUNT
                       ? t->kind == MOT_TERM_INT && t->integer >= 0 && t->integer < INT32_MAX
                   : f->kind == FIELD_NUMBER ? is_number && isfinite(number) && number >= 0
                                             : t->kind == MOT_TERM_NONE;
    if (!is_good)
        return fail_at(p, t->pos, "this is no value for", f->name);
    switch (f->kind) {
    case FIELD_TEXT:
        *(const char **)at = t->text;
        break;
    case FIELD_COUNT:
        *(uint32_t *)at = (uint32_t)t->integer;
        break;
    case FIELD_NUMBER:
        *(double *)at = number;
        break;
    case FIELD_FLAG:
        *(bool *)at = true;
    }
    return MOT_OK;
}

/* Reads the attributes into a struct. `other`, if given, is an attribute that the caller reads. */
static MotStatus read_fields(const Parser *p, const MotRecord *r, const Field *fields,
                             const char *other, void *to)
{
    for (uint32_t i = 0; i < r->attrs.n; i++) {
        const MotRecordAttr *attr = &r->attrs.data[i];
        const Field *f = fields;
        while (f->name && strcmp(f->name, attr->name) != 0)
            f++;
        if (f->name)
            MOT_TRY(read_field(p, attr, f, to));
        else if (!other || strcmp(other, attr->name) != 0)
            return fail_at(p, attr->value.pos, "unknown attribute", attr->name);
    }
    return MOT_OK;
}

/* The attribute as a list of at most `most` integers between `low` and `high`. */
static MotStatus read_ints(const Parser *p, const MotRecord *r, const char *name, uint32_t most,
                           int64_t low, int64_t high, int64_t *out, uint32_t *out_n)
{
    const MotTerm *list = mot_record_attr(r, name);
    if (!list || list->kind != MOT_TERM_LIST || list->items.n > most)
        return fail_at(p, r->pos, "no list of the right length for", name);
    for (uint32_t i = 0; i < list->items.n; i++) {
        const MotTerm *t = &list->items.data[i];
        if (t->kind != MOT_TERM_INT || t->integer < low || t->integer > high)
            return fail_at(p, t->pos, "not an integer in range in", name);
        out[i] = t->integer;
    }
    *out_n = list->items.n;
    return MOT_OK;
}

/* The one operand of the record, an integer from `low` to `high`. */
static MotStatus read_index(const Parser *p, const MotRecord *r, int64_t low, int64_t high,
                            uint32_t *out)
{
    const MotTerm *t = r->in.n == 1 ? &r->in.data[0] : NULL;
    if (!t || t->kind != MOT_TERM_INT || t->integer < low || t->integer > high)
        return fail_at(p, r->pos, "expected one number in range after", r->op);
    *out = (uint32_t)t->integer;
    return MOT_OK;
}

static MotStatus read_source(Parser *p, const MotRecord *r)
{
    MotPlanSource *source = &p->head.source;
    const MotTerm *list = mot_record_attr(r, "options");
    MOT_TRY(read_fields(p, r, source_fields, "options", source));
    if (!source->model || !source->hash || !list || list->kind != MOT_TERM_LIST)
        return fail_at(p, r->pos, "a source needs model, hash and", "options");
    source->options = mot_arena_array(&p->ctx->arena, const char *, list->items.n);
    for (uint32_t i = 0; i < list->items.n; i++) {
        const MotTerm *t = &list->items.data[i];
        if (t->kind != MOT_TERM_STRING)
            return fail_at(p, t->pos, "options are strings, such as", "\"--dim=batch=8\"");
        source->options[i] = t->text;
    }
    source->n_options = list->items.n;
    return MOT_OK;
}

static MotStatus read_cluster(Parser *p, const MotRecord *r)
{
    return read_fields(p, r, cluster_fields, NULL, p->cluster);
}

static MotStatus read_slowdowns(Parser *p, const MotRecord *r, MotDevice *device)
{
    const MotTerm *list = mot_record_attr(r, "slowdowns");
    if (list && list->kind != MOT_TERM_LIST)
        return fail_at(p, list->pos, "this is no value for", "slowdowns");
    for (uint32_t i = 0; list && i < list->items.n; i++) {
        const MotTerm *pair = &list->items.data[i], *term = pair->items.data;
        if (pair->kind != MOT_TERM_LIST || pair->items.n != 2 || term[0].kind != MOT_TERM_INT ||
            term[0].integer < 1 || term[1].kind != MOT_TERM_FLOAT || !(term[1].number >= 1))
            return fail_at(p, pair->pos, "a slowdown is like", "[50, 2.0]");
        mot_device_slow_down(p->ctx, device, term[0].integer, term[1].number);
    }
    return MOT_OK;
}

static MotStatus read_device(Parser *p, const MotRecord *r)
{
    MotDevice device = {.slow = 1};
    MOT_TRY(read_fields(p, r, device_fields, "slowdowns", &device));
    MOT_TRY(read_slowdowns(p, r, &device));
    if (!device.name || !device.backend || device.threads < 1 || device.slow < 1)
        return fail_at(p, r->pos, "a device needs name, backend, threads and slow of at least",
                       "1");
    if (p->cluster->devices.n == MOT_MAX_DEVICES)
        return mot_fail(p->ctx, MOT_ERR_LIMIT, mot_record_loc(p->ctx, p->file, r->pos),
                        "more than %d devices", MOT_MAX_DEVICES);
    mot_vec_push(&p->ctx->arena, &p->cluster->devices, device);
    return MOT_OK;
}

static MotStatus read_link(Parser *p, const MotRecord *r)
{
    MotLink link = {.a = MOT_ALL_DEVICES, .b = MOT_ALL_DEVICES};
    MOT_TRY(read_fields(p, r, link_fields, NULL, &link));
    bool is_for_all = link.a == MOT_ALL_DEVICES && link.b == MOT_ALL_DEVICES;
    uint32_t n = p->cluster->devices.n;
    if (link.bandwidth <= 0 || (!is_for_all && (link.a >= n || link.b >= n || link.a == link.b)))
        return fail_at(p, r->pos, "a link needs a bandwidth and two devices, or none for", "all");
    mot_vec_push(&p->ctx->arena, &p->cluster->links, link);
    return MOT_OK;
}

static MotStatus read_axis(const Parser *p, const MotRecord *r, MotMesh *mesh)
{
    if (strcmp(r->op, "axis") != 0 || mesh->n_axes == MOT_MAX_AXES)
        return fail_at(p, r->pos, "a stage has 1 to 4 records axis, not", r->op);
    MotMeshAxis *axis = &mesh->axis[mesh->n_axes++];
    MOT_TRY(read_fields(p, r, axis_fields, "share", axis));
    axis->share = mot_arena_array(&p->ctx->arena, int64_t, MOT_MAX_DEVICES);
    MOT_TRY(read_ints(p, r, "share", MOT_MAX_DEVICES, 0, 1 << 20, axis->share, &axis->n));
    return axis->name && axis->n ? MOT_OK : fail_at(p, r->pos, "an axis needs name and", "share");
}

static MotStatus read_stage(Parser *p, const MotRecord *r)
{
    MotMesh mesh = {.devices = mot_arena_array(&p->ctx->arena, uint32_t, MOT_MAX_DEVICES)};
    int64_t devices[MOT_MAX_DEVICES];
    MOT_TRY(read_fields(p, r, no_fields, "devices", NULL));
    MOT_TRY(read_ints(p, r, "devices", MOT_MAX_DEVICES, 0, (int64_t)p->cluster->devices.n - 1,
                      devices, &mesh.n_devices));
    for (uint32_t i = 0; i < mesh.n_devices; i++)
        mesh.devices[i] = (uint32_t)devices[i];
    for (uint32_t i = 0; i < r->body.n; i++)
        MOT_TRY(read_axis(p, &r->body.data[i], &mesh));
    if (mesh.n_axes == 0 || p->head.stages.n == MAX_STAGES)
        return fail_at(p, r->pos, "a stage needs an axis, and there are at most", "64 stages");
    mot_vec_push(&p->ctx->arena, &p->head.stages, (MotStage){mesh});
    return MOT_OK;
}

static MotStatus read_graph(Parser *p, const MotRecord *r)
{
    MotGraph *g;
    MOT_TRY(mot_graph_from_record(p->ctx, p->file, r, &g));
    MOT_TRY(mot_graph_verify(g));
    p->plan = mot_plan_new(p->ctx, g, p->cluster);
    p->plan->stages.data = p->head.stages.data;
    p->plan->stages.n = p->plan->stages.cap = p->head.stages.n;
    p->plan->source = p->head.source;
    p->plan->schedule = p->head.schedule;
    p->plan->n_micro = p->head.n_micro;
    p->plan->time = p->head.time;
    p->plan->bound = p->head.bound;
    return MOT_OK;
}

static MotStatus read_op(Parser *p, const MotRecord *r)
{
    uint32_t number = 0, n;
    int64_t factor[MOT_MAX_AXES];
    MOT_TRY(read_index(p, r, 1, p->plan->graph->body.n, &number));
    MotOpId id = p->plan->graph->body.data[number - 1];
    MotOpPlan *op = &p->plan->ops[id];
    MOT_TRY(read_fields(p, r, op_fields, "factor", op));
    MotFactors factors;
    MOT_TRY(mot_factors(p->plan->graph, mot_graph_op(p->plan->graph, id), &factors));
    int64_t most = (int64_t)factors.n - 1 < INT8_MAX ? (int64_t)factors.n - 1 : INT8_MAX;
    MOT_TRY(read_ints(p, r, "factor", MOT_MAX_AXES, -1, most, factor, &n));
    for (uint32_t a = 0; a < n; a++)
        op->factor[a] = (int8_t)factor[a];
    mot_plan_apply_factors(p->plan, id, &factors);
    return MOT_OK;
}

static MotStatus read_prediction(Parser *p, const MotRecord *r)
{
    uint32_t device = 0;
    MOT_TRY(read_index(p, r, 0, (int64_t)p->cluster->devices.n - 1, &device));
    return read_fields(p, r, prediction_fields, NULL, &p->plan->devices[device]);
}

/* The records of a plan; those of the second half refer to the graph. */
static const struct {
    const char *op;
    MotStatus (*read)(Parser *, const MotRecord *);
    bool is_after_graph;
} readers[] = {
    {"source", read_source, false}, {"cluster", read_cluster, false},
    {"device", read_device, false}, {"link", read_link, false},
    {"stage", read_stage, false},   {"graph", read_graph, false},
    {"op", read_op, true},          {"device_prediction", read_prediction, true},
};

static MotStatus read_member(Parser *p, const MotRecord *r)
{
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (strcmp(readers[i].op, r->op) != 0)
            continue;
        if (readers[i].is_after_graph != (p->plan != NULL))
            return fail_at(p, r->pos,
                           p->plan ? "after the graph there is no" : "before the graph there is no",
                           r->op);
        return readers[i].read(p, r);
    }
    return fail_at(p, r->pos, "a plan has no record", r->op);
}

static MotStatus read_schedule(Parser *p, const MotRecord *r)
{
    const MotTerm *t = mot_record_attr(r, "schedule");
    for (int i = 0; i < N_SCHEDULES; i++)
        if (t && t->kind == MOT_TERM_STRING && strcmp(t->text, schedule_names[i]) == 0) {
            p->head.schedule = (MotSchedule)i;
            return MOT_OK;
        }
    return fail_at(p, r->pos, "schedule is", "\"gpipe\" or \"1f1b\"");
}

MotStatus mot_plan_parse(MotCtx *ctx, const char *file, const char *text, MotPlan **out_plan)
{
    MotRecords records;
    MOT_TRY(mot_records_parse(ctx, file, text, &records));
    MOT_TRY(mot_records_check_header(ctx, file, &records, "plan", VERSION));
    Parser p = {.ctx = ctx,
                .file = file,
                .cluster = mot_arena_new(&ctx->arena, MotCluster),
                .head = {.n_micro = 1}};
    if (records.n != 2 || strcmp(records.data[1].op, "plan") != 0 || !records.data[1].has_body)
        return mot_fail(ctx, MOT_ERR_MODEL, (MotLoc){file, NULL},
                        "expected one plan @name { ... }");
    const MotRecord *r = &records.data[1];
    MOT_TRY(read_fields(&p, r, plan_fields, "schedule", &p.head));
    MOT_TRY(read_schedule(&p, r));
    if (p.head.n_micro == 0 || p.head.n_micro > MOT_MAX_MICRO)
        return fail_at(&p, r->pos, "out of range:", "micro");
    for (uint32_t i = 0; i < r->body.n; i++)
        MOT_TRY(read_member(&p, &r->body.data[i]));
    if (!p.plan)
        return fail_at(&p, r->pos, "the plan has no", "graph");
    MOT_TRY(mot_plan_verify(p.plan));
    *out_plan = p.plan;
    return MOT_OK;
}
