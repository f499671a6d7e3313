/* The Programs of all stages together: who has a buffer, and the proof that they come to an end. */
#include "ir/program.h"

#include <string.h>

/* The host knows params, inputs and scalars by their names; an input may be in several stages. */
static void add_vars(MotPipeline *pipeline, const MotProgram *program)
{
    for (uint32_t i = 0; i < program->bufs.n; i++) {
        const MotBuf *buf = &program->bufs.data[i];
        bool is_new = buf->name != NULL;
        for (uint32_t k = 0; is_new && k < pipeline->vars.n; k++)
            is_new = strcmp(pipeline->vars.data[k]->name, buf->name) != 0;
        if (is_new)
            mot_vec_push(&pipeline->ctx->arena, &pipeline->vars, buf);
    }
}

MotPipeline *mot_pipeline_make(MotCtx *ctx, MotProgram *const *stages, uint32_t n_stages,
                               const MotChannel *channels, uint32_t n_channels)
{
    MotPipeline *pipeline = mot_arena_new(&ctx->arena, MotPipeline);
    pipeline->ctx = ctx;
    for (uint32_t i = 0; i < n_channels; i++)
        mot_vec_push(&ctx->arena, &pipeline->channels, channels[i]);
    for (uint32_t s = 0; s < n_stages; s++) {
        mot_vec_push(&ctx->arena, &pipeline->stages, stages[s]);
        add_vars(pipeline, stages[s]);
        for (uint32_t i = 0; i < stages[s]->outputs.n; i++) {
            const MotOutput *o = &stages[s]->outputs.data[i];
            MotResult result = {o->name, stages[s]->bufs.data[o->buf].global};
            mot_vec_push(&ctx->arena, &pipeline->results, result);
        }
    }
    return pipeline;
}

uint32_t mot_pipeline_first_rank(const MotPipeline *pipeline, uint32_t stage)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < stage; s++)
        n += pipeline->stages.data[s]->mesh.n_devices;
    return n;
}

uint32_t mot_pipeline_ranks(const MotPipeline *pipeline)
{
    return mot_pipeline_first_rank(pipeline, pipeline->stages.n);
}

uint32_t mot_pipeline_stage(const MotPipeline *pipeline, uint32_t rank)
{
    uint32_t stage = 0;
    while (rank >= mot_pipeline_first_rank(pipeline, stage + 1))
        stage++;
    return stage;
}

bool mot_pipeline_find(const MotPipeline *pipeline, const char *name, uint32_t *stage,
                       uint32_t *out_buf)
{
    for (; *stage < pipeline->stages.n; (*stage)++) {
        const MotProgram *p = pipeline->stages.data[*stage];
        for (uint32_t i = 0; i < p->bufs.n; i++)
            if (p->bufs.data[i].name && strcmp(p->bufs.data[i].name, name) == 0) {
                *out_buf = i;
                return true;
            }
    }
    return false;
}

MotStatus mot_pipeline_bind(MotCtx *ctx, const MotPipeline *pipeline, MotBinding *out_bindings)
{
    for (uint32_t s = 0; s < pipeline->stages.n; s++)
        for (uint32_t i = 0; i < pipeline->stages.data[s]->mesh.n_devices; i++)
            MOT_TRY(mot_program_bind(ctx, pipeline->stages.data[s], i, out_bindings++));
    return MOT_OK;
}

/* ---- Verifier: the order of one stage ---- */

/*
 * What is wrong with the order in which the sections run, or NULL: every repeated section goes
 * through the micro-batches in ascending order, counts before passes, forward before backward, and
 * the step is last. The most micro-batches in flight are the result.
 */
static const char *check_order(const MotProgram *p, uint32_t *out_in_flight)
{
    uint32_t next[MOT_N_SECTIONS] = {0};
    *out_in_flight = 0;
    for (uint32_t i = 0; i < p->order.n; i++) {
        MotRun run = p->order.data[i];
        if (run.section >= MOT_SECTION_EVAL || run.micro != next[run.section])
            return "a section does not run for one micro-batch after the other";
        if (run.section == MOT_SECTION_COUNT && next[MOT_SECTION_FORWARD])
            return "the counts of a step come after its passes";
        if (run.section == MOT_SECTION_BACKWARD && run.micro >= next[MOT_SECTION_FORWARD])
            return "a backward pass runs before its forward pass";
        next[run.section]++;
        uint32_t in_flight = next[MOT_SECTION_FORWARD] - next[MOT_SECTION_BACKWARD];
        *out_in_flight = in_flight > *out_in_flight ? in_flight : *out_in_flight;
    }
    for (int s = 0; mot_section_is_repeated((MotSection)s); s++)
        if (p->section[s].n && next[s] != p->n_micro)
            return "a section does not run for every micro-batch";
    bool is_step_last = p->order.n && p->order.data[p->order.n - 1].section == MOT_SECTION_STEP;
    return is_step_last && next[MOT_SECTION_STEP] == 1 ? NULL : "a step does not end with its step";
}

/* Whether what the forward pass leaves has room for the micro-batches in flight. */
static bool has_copies(MotCtx *ctx, const MotProgram *p, uint32_t in_flight)
{
    bool *is_left = mot_arena_array(&ctx->arena, bool, p->bufs.n);
    for (int s = MOT_SECTION_FORWARD; s <= MOT_SECTION_BACKWARD; s++)
        for (uint32_t i = 0; i < p->section[s].n; i++)
            for (uint32_t k = 0; k < p->section[s].data[i].n_bufs; k++) {
                uint32_t owner = mot_program_owner(p, p->section[s].data[i].bufs[k]);
                const MotBuf *buf = &p->bufs.data[owner];
                if (s == MOT_SECTION_FORWARD)
                    is_left[owner] = buf->kind == MOT_BUF_SCRATCH;
                else if (is_left[owner] && buf->copies < in_flight)
                    return false;
            }
    return true;
}

static MotStatus check_stage(const MotPipeline *pipeline, uint32_t stage)
{
    const MotProgram *p = pipeline->stages.data[stage];
    uint32_t in_flight;
    const char *what = check_order(p, &in_flight);
    if (!what && !has_copies(pipeline->ctx, p, in_flight))
        what = "more micro-batches are in flight than a buffer has copies";
    return what ? mot_fail(pipeline->ctx, MOT_ERR_MISMATCH, MOT_NOWHERE, "program of stage %u: %s",
                           stage, what)
                : mot_program_verify(p);
}

/* ---- Verifier: the stages together ---- */

/* One stage on its way through a step: the run of `order`, and the instruction in it. */
typedef struct {
    uint32_t run, instruction;
} Walker;

typedef struct {
    const MotPipeline *pipeline;
    const MotRun *eval;         /* one run of the eval section, instead of a step; or NULL */
    Walker *walkers;            /* [stages] */
    uint32_t *n_sent, *n_taken; /* [channels] messages */
} Simulation;

static MotStatus complain(const MotPipeline *pipeline, uint32_t channel, const char *what)
{
    const MotChannel *c = &pipeline->channels.data[channel];
    return mot_fail(pipeline->ctx, MOT_ERR_MISMATCH, MOT_NOWHERE,
                    "programs: channel %u from stage %u to stage %u: %s", channel, c->from, c->to,
                    what);
}

/* Finds the one instruction of this kind on the channel. */
static const MotInstr *find_end(const MotProgram *p, MotInstrKind kind, uint32_t channel,
                                uint32_t *out_section, uint32_t *n_found)
{
    const MotInstr *found = NULL;
    for (uint32_t s = 0; s < MOT_N_SECTIONS; s++)
        for (uint32_t i = 0; i < p->section[s].n; i++) {
            const MotInstr *ins = &p->section[s].data[i];
            if (ins->kind != kind || ins->channel != channel)
                continue;
            found = ins;
            *out_section = s;
            ++*n_found;
        }
    return found;
}

static MotStatus check_channel(const MotPipeline *pipeline, uint32_t channel)
{
    const MotChannel *c = &pipeline->channels.data[channel];
    uint32_t section[2] = {0}, n_sends = 0, n_receives = 0, n = pipeline->stages.n;
    if (c->from >= n || c->to >= n || c->from == c->to)
        return complain(pipeline, channel, "there are no such two stages");
    const MotProgram *from = pipeline->stages.data[c->from], *to = pipeline->stages.data[c->to];
    const MotInstr *send = find_end(from, MOT_INS_SEND, channel, &section[0], &n_sends);
    const MotInstr *receive = find_end(to, MOT_INS_RECV, channel, &section[1], &n_receives);
    if (n_sends != 1 || n_receives != 1)
        return complain(pipeline, channel, "it has not one send and one receive");
    if (section[0] != section[1] || send->when != receive->when || from->n_micro != to->n_micro)
        return complain(pipeline, channel, "send and receive do not run equally often");
    if (c->source != send->bufs[0] || c->target != receive->bufs[0] ||
        !mot_type_equal(&from->bufs.data[c->source].global, &to->bufs.data[c->target].global))
        return complain(pipeline, channel, "source and destination are not the same value");
    return MOT_OK;
}

static const MotRun *current_run(const Simulation *s, uint32_t stage)
{
    const MotProgram *p = s->pipeline->stages.data[stage];
    uint32_t run = s->walkers[stage].run;
    if (s->eval)
        return run == 0 ? s->eval : NULL;
    return run < p->order.n ? &p->order.data[run] : NULL;
}

/* Whether the instruction can retire now; what it tells the other stage is noted. */
static bool try_instruction(Simulation *s, const MotProgram *p, const MotInstr *ins,
                            const MotRun *run)
{
    if (!mot_instr_is_due(ins, run->micro))
        return true;
    if (ins->kind == MOT_INS_RECV) {
        if (s->n_taken[ins->channel] == s->n_sent[ins->channel])
            return false;
        s->n_taken[ins->channel]++;
    }
    if (ins->kind == MOT_INS_SEND) {
        /*
         * It is sent at once; the instruction retires when the copy that the next one goes to is
         * free.
         */
        if (s->n_sent[ins->channel] == run->micro)
            s->n_sent[ins->channel]++;
        return s->n_taken[ins->channel] >= mot_program_must_be_taken(p, ins, *run);
    }
    return true;
}

/* Goes on in one stage as far as it can; whether it moved. */
static bool advance(Simulation *s, uint32_t stage)
{
    const MotProgram *p = s->pipeline->stages.data[stage];
    Walker *w = &s->walkers[stage];
    bool has_moved = false;
    for (const MotRun *run; (run = current_run(s, stage)); w->run++, w->instruction = 0)
        for (; w->instruction < p->section[run->section].n; w->instruction++) {
            if (!try_instruction(s, p, &p->section[run->section].data[w->instruction], run))
                return has_moved;
            has_moved = true;
        }
    return has_moved;
}

static MotStatus report_stuck(const Simulation *s)
{
    MotCtx *ctx = s->pipeline->ctx;
    mot_fail(ctx, MOT_ERR_MISMATCH, MOT_NOWHERE, "programs: stages wait for one another for ever");
    for (uint32_t stage = 0; stage < s->pipeline->stages.n; stage++) {
        const MotRun *run = current_run(s, stage);
        const MotProgram *p = s->pipeline->stages.data[stage];
        if (!run)
            continue;
        const MotInstr *ins = &p->section[run->section].data[s->walkers[stage].instruction];
        mot_note(ctx, "stage %u: %s instruction %u of micro-batch %u (%s on channel %u)", stage,
                 mot_section_names[run->section], s->walkers[stage].instruction, run->micro,
                 mot_instr_names[ins->kind], ins->channel);
    }
    return ctx->status;
}

static MotStatus simulate(const MotPipeline *pipeline, const MotRun *eval)
{
    MotArena *arena = &pipeline->ctx->arena;
    Simulation s = {.pipeline = pipeline,
                    .eval = eval,
                    .walkers = mot_arena_array(arena, Walker, pipeline->stages.n),
                    .n_sent = mot_arena_array(arena, uint32_t, pipeline->channels.n),
                    .n_taken = mot_arena_array(arena, uint32_t, pipeline->channels.n)};
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (uint32_t stage = 0; stage < pipeline->stages.n; stage++)
            has_moved |= advance(&s, stage);
    }
    for (uint32_t stage = 0; stage < pipeline->stages.n; stage++)
        if (current_run(&s, stage))
            return report_stuck(&s);
    return MOT_OK;
}

MotStatus mot_pipeline_verify(const MotPipeline *pipeline)
{
    static const MotRun eval = {MOT_SECTION_EVAL, 0};
    for (uint32_t s = 0; s < pipeline->stages.n; s++)
        MOT_TRY(check_stage(pipeline, s));
    for (uint32_t c = 0; c < pipeline->channels.n; c++)
        MOT_TRY(check_channel(pipeline, c));
    if (pipeline->channels.n == 0)
        return MOT_OK;
    MOT_TRY(simulate(pipeline, NULL));
    return simulate(pipeline, &eval);
}
