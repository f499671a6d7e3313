/*
 * A Program as records. An instruction names the buffers that it writes as its results and those
 * that it reads as its operands. Kernels print as the graphs that they are.
 */
#include "ir/program.h"

#include "ir/graph_text.h"
#include "ir/record.h"

static MotTerm name_of(MotArena *arena, MotTermKind kind, const char *prefix, uint32_t number)
{
    return mot_term_text(kind, mot_arena_printf(arena, "%s%u", prefix, number));
}

static void add_int(MotArena *arena, MotRecord *r, const char *name, int64_t value)
{
    mot_record_add_attr(arena, r, name, mot_term_int(value));
}

static void add_text(MotArena *arena, MotRecord *r, const char *name, const char *value)
{
    if (value)
        mot_record_add_attr(arena, r, name, mot_term_text(MOT_TERM_STRING, value));
}

static const char *const dim_names[] = {
    [MOT_DIM_KEPT] = "cut",        [MOT_DIM_LENT] = "lent",   [MOT_DIM_HELPED] = "helped",
    [MOT_DIM_HELPERS] = "helpers", [MOT_DIM_HELPS] = "helps", [MOT_DIM_LENDERS] = "lenders"};

static MotRecord dim_record(MotArena *arena, const MotProgram *p, uint32_t i)
{
    const MotDim *dim = &p->dims.data[i];
    MotRecord r = {.op = "dim"};
    mot_vec_push(arena, &r.in, mot_term_text(MOT_TERM_SYMBOL, dim->name));
    if (dim->cut) {
        mot_record_add_attr(arena, &r, dim_names[dim->what],
                            name_of(arena, MOT_TERM_SYMBOL, "cut", dim->cut - 1));
        return r;
    }
    add_text(arena, &r, "axis", p->mesh.axis[dim->axis].name);
    add_int(arena, &r, "size", dim->size);
    add_int(arena, &r, "granule", dim->granule);
    if (dim->parent)
        mot_record_add_attr(arena, &r, "parent",
                            mot_term_text(MOT_TERM_SYMBOL, p->dims.data[dim->parent - 1].name));
    if (dim->of_one)
        mot_record_add_attr(arena, &r, "of_one", (MotTerm){0});
    return r;
}

static MotRecordType type_record(const MotProgram *p, const MotType *type)
{
    MotRecordType record = {.dtype = type->dtype, .rank = type->rank};
    for (int d = 0; d < type->rank; d++)
        if (type->dims[d] < 0)
            record.dims[d].symbol = p->dims.data[-type->dims[d] - 1].name;
        else
            record.dims[d].size = type->dims[d];
    return record;
}

static MotRecord buf_record(MotArena *arena, const MotProgram *p, uint32_t i)
{
    const MotBuf *buf = &p->bufs.data[i];
    MotRecord r = {.op = "buf"};
    mot_vec_push(arena, &r.out, name_of(arena, MOT_TERM_VALUE, "", i));
    mot_vec_push(arena, &r.in, mot_term_text(MOT_TERM_WORD, mot_buf_kind_names[buf->kind]));
    add_text(arena, &r, "name", buf->name);
    if (buf->alias)
        mot_record_add_attr(arena, &r, "alias", name_of(arena, MOT_TERM_VALUE, "", buf->alias - 1));
    if (buf->alias_start)
        add_int(arena, &r, "start", buf->alias_start);
    if (buf->copies > 1)
        add_int(arena, &r, "copies", buf->copies);
    if (buf->is_sent)
        mot_record_add_attr(arena, &r, "sent", (MotTerm){.kind = MOT_TERM_NONE});
    mot_vec_push(arena, &r.types, type_record(p, &buf->type));
    return r;
}

static MotRecord cut_record(MotArena *arena, const MotProgram *p, uint32_t i)
{
    const MotCut *cut = &p->cuts.data[i];
    MotRecord r = {.op = "cut"};
    mot_vec_push(arena, &r.in, name_of(arena, MOT_TERM_SYMBOL, "cut", i));
    mot_vec_push(arena, &r.in, name_of(arena, MOT_TERM_VALUE, "", cut->param));
    add_int(arena, &r, "dim", cut->param_dim);
    mot_record_add_attr(arena, &r, "list", name_of(arena, MOT_TERM_VALUE, "", cut->list));
    mot_record_add_attr(arena, &r, "place", name_of(arena, MOT_TERM_VALUE, "", cut->place));
    return r;
}

static MotTerm event_list(MotArena *arena, const MotInstr *ins)
{
    MotTerm *items = mot_arena_array(arena, MotTerm, ins->wait.n);
    for (uint32_t i = 0; i < ins->wait.n; i++)
        items[i] = mot_term_int(ins->wait.data[i]);
    return mot_term_list(items, ins->wait.n);
}

static MotTerm dim_list(MotArena *arena, const MotInstr *ins, bool is_out)
{
    MotTerm *items = mot_arena_array(arena, MotTerm, ins->n_in);
    for (uint32_t i = 0; i < ins->n_in; i++)
        items[i] = mot_term_int(is_out ? ins->moves[i].dim_out : ins->moves[i].dim);
    return mot_term_list(items, ins->n_in);
}

static const char *const who_names[] = {[MOT_WHO_WHOLE] = "unless",
                                        [MOT_WHO_CUTS] = "if",
                                        [MOT_WHO_LENDS] = "lends",
                                        [MOT_WHO_HELPS] = "helps",
                                        [MOT_WHO_IF_LENT] = "if_lent"};

static MotRecord instr_record(MotArena *arena, const MotProgram *p, const MotInstr *ins)
{
    MotRecord r = {.op = mot_instr_names[ins->kind]};
    if (ins->kind == MOT_INS_LAUNCH)
        mot_vec_push(arena, &r.in,
                     mot_term_text(MOT_TERM_SYMBOL, p->kernels.data[ins->kernel].name));
    for (uint32_t k = 0; k < ins->n_bufs; k++)
        if (k < ins->n_in)
            mot_vec_push(arena, &r.in, name_of(arena, MOT_TERM_VALUE, "", ins->bufs[k]));
        else
            mot_vec_push(arena, &r.out, name_of(arena, MOT_TERM_VALUE, "", ins->bufs[k]));
    if (ins->n_sets)
        add_int(arena, &r, "sets", ins->n_sets);
    if (ins->moves) {
        add_text(arena, &r, "axis", p->mesh.axis[ins->axis].name);
        mot_record_add_attr(arena, &r, "dim", dim_list(arena, ins, false));
        if (ins->kind == MOT_INS_ALL_TO_ALL)
            mot_record_add_attr(arena, &r, "dim_out", dim_list(arena, ins, true));
    }
    if (ins->is_max)
        mot_record_add_attr(arena, &r, "max", (MotTerm){.kind = MOT_TERM_NONE});
    if (ins->kind == MOT_INS_SEND || ins->kind == MOT_INS_RECV)
        add_int(arena, &r, "channel", ins->channel);
    if (ins->when != MOT_WHEN_ALL)
        mot_record_add_attr(
            arena, &r, "when",
            mot_term_text(MOT_TERM_WORD, ins->when == MOT_WHEN_FIRST ? "first" : "later"));
    if (ins->cut)
        mot_record_add_attr(arena, &r, who_names[ins->who],
                            name_of(arena, MOT_TERM_SYMBOL, "cut", ins->cut - 1));
    if (ins->stream == MOT_STREAM_COMM)
        mot_record_add_attr(arena, &r, "stream", mot_term_text(MOT_TERM_WORD, "comm"));
    if (ins->wait.n)
        mot_record_add_attr(arena, &r, "wait", event_list(arena, ins));
    if (ins->signal)
        add_int(arena, &r, "signal", ins->signal);
    add_text(arena, &r, "origin", ins->origin);
    return r;
}

static MotRecord section_record(MotArena *arena, const MotProgram *p, MotSection section)
{
    MotRecord r = {.op = "section", .has_body = true};
    mot_vec_push(arena, &r.in, mot_term_text(MOT_TERM_WORD, mot_section_names[section]));
    for (uint32_t i = 0; i < p->section[section].n; i++)
        mot_vec_push(arena, &r.body, instr_record(arena, p, &p->section[section].data[i]));
    return r;
}

/* What a step runs: a section, and for which micro-batch. */
static MotRecord order_record(MotArena *arena, const MotProgram *p)
{
    MotRecord r = {.op = "order", .has_body = true};
    for (uint32_t i = 0; i < p->order.n; i++) {
        MotRecord run = {.op = mot_section_names[p->order.data[i].section]};
        mot_vec_push(arena, &run.in, mot_term_int(p->order.data[i].micro));
        mot_vec_push(arena, &r.body, run);
    }
    return r;
}

static MotTerm output_buf(MotArena *arena, uint32_t buf)
{
    return buf == MOT_NO_BUF ? mot_term_text(MOT_TERM_NONE, NULL)
                             : name_of(arena, MOT_TERM_VALUE, "", buf);
}

static MotRecord output_record(MotArena *arena, const MotOutput *output)
{
    MotRecord r = {.op = "output"};
    mot_vec_push(arena, &r.in, output_buf(arena, output->buf));
    mot_vec_push(arena, &r.in, output_buf(arena, output->eval_buf));
    add_text(arena, &r, "name", output->name);
    return r;
}

void mot_program_print(const MotProgram *p, MotText *text)
{
    MotArena *arena = &p->ctx->arena;
    MotRecord r = {.op = "program", .has_body = true};
    mot_vec_push(arena, &r.in, mot_term_text(MOT_TERM_SYMBOL, p->name));
    for (uint32_t i = 0; i < p->dims.n; i++)
        mot_vec_push(arena, &r.body, dim_record(arena, p, i));
    for (uint32_t i = 0; i < p->bufs.n; i++)
        mot_vec_push(arena, &r.body, buf_record(arena, p, i));
    for (uint32_t i = 0; i < p->cuts.n; i++)
        mot_vec_push(arena, &r.body, cut_record(arena, p, i));
    for (uint32_t i = 0; i < p->kernels.n; i++) {
        MotRecord kernel = mot_graph_to_record(p->kernels.data[i].graph);
        kernel.op = "kernel";
        kernel.in.data[0].text = p->kernels.data[i].name;
        mot_vec_push(arena, &r.body, kernel);
    }
    for (int s = 0; s < MOT_N_SECTIONS; s++)
        mot_vec_push(arena, &r.body, section_record(arena, p, (MotSection)s));
    mot_vec_push(arena, &r.body, order_record(arena, p));
    for (uint32_t i = 0; i < p->outputs.n; i++)
        mot_vec_push(arena, &r.body, output_record(arena, &p->outputs.data[i]));
    MotRecords records = {0};
    mot_vec_push(arena, &records, mot_record_header(p->ctx, "program", 1));
    mot_vec_push(arena, &records, r);
    mot_records_print(&records, text);
}
