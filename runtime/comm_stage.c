/*
 * Between stages over shared memory. Sending only says that a message is there: the receiver copies
 * its part out of the senders' buffers when it gets to it. A part is a box of the value; what a
 * receiver needs is what its box and the senders' boxes have in common, so the two meshes may be of
 * any size and their shares uneven. A value that the sending mesh holds several times comes from
 * one of the copies, another one for each receiver.
 */
#include "runtime/comm.h"

#include <string.h>

typedef struct {
    int rank;
    int64_t begin[MOT_MAX_RANK], size[MOT_MAX_RANK];
} Box;

/* One end of a channel on one rank: the buffer there, and its place in the value. */
typedef struct {
    char *data;
    Box box;
} End;

static MotMail *mail_of(const MotComm *comm, uint32_t channel, uint32_t rank)
{
    return &comm->shared->mail[(size_t)channel * comm->shared->n_ranks + rank];
}

static uint32_t own_rank(const MotComm *comm)
{
    return mot_pipeline_first_rank(comm->pipeline, comm->stage) + comm->position;
}

/* Until the gate has this count. */
static MotStatus wait_for(MotComm *comm, MotGate *gate, uint32_t target)
{
    MotRankState *own = &comm->ranks[comm->position];
    atomic_store_explicit(&own->target, target, memory_order_relaxed);
    atomic_store_explicit(&own->awaited, gate, memory_order_relaxed);
    MOT_TRY(mot_gate_wait(comm->shared, gate, target));
    atomic_store_explicit(&own->awaited, NULL, memory_order_relaxed);
    return MOT_OK;
}

/* Until every receiver has taken the first `n` messages, in the devices' time too. */
static MotStatus wait_taken(MotComm *comm, uint32_t channel, uint32_t n, MotClock *clock)
{
    int64_t start = mot_clock_now(clock);
    uint32_t stage = comm->pipeline->channels.data[channel].to;
    uint32_t first = mot_pipeline_first_rank(comm->pipeline, stage),
             end = mot_pipeline_first_rank(comm->pipeline, stage + 1);
    for (uint32_t r = first; r < end; r++) {
        MotMail *mail = mail_of(comm, channel, r);
        MOT_TRY(wait_for(comm, &mail->taken, n));
        mot_clock_wait(clock, atomic_load(&mail->ns[(n - 1) % MOT_MAIL_TIMES]));
    }
    comm->ranks[comm->position].wait_ns += mot_clock_now(clock) - start;
    return MOT_OK;
}

static MotStatus send(MotComm *comm, const MotInstr *ins, MotClock *clock)
{
    MotMail *own = mail_of(comm, ins->channel, own_rank(comm));
    uint32_t n = atomic_load(&own->sent.count),
             taken = mot_program_must_be_taken(comm->program, ins, comm->run);
    mot_clock_catch_up(clock, 0);
    atomic_store(&own->ns[n % MOT_MAIL_TIMES], mot_clock_now(clock));
    mot_gate_open(&own->sent);
    return taken ? wait_taken(comm, ins->channel, n - comm->run.micro + taken, clock) : MOT_OK;
}

static End find_end(const MotComm *comm, uint32_t stage, uint32_t rank, uint32_t buf)
{
    const MotProgram *p = comm->pipeline->stages.data[stage];
    const MotBinding *b = &comm->all_bindings[rank];
    const MotBuf *info = &p->bufs.data[buf];
    End end = {.data =
                   comm->shared->rank[rank].arena + mot_program_offset(p, b, buf, comm->run.micro),
               .box = {.rank = info->type.rank}};
    for (int d = 0; d < info->type.rank; d++) {
        end.box.size[d] = b->types[buf].dims[d];
        for (uint32_t s = info->type.dims[d] < 0 ? (uint32_t)-info->type.dims[d] : 0; s;
             s = p->dims.data[s - 1].parent)
            end.box.begin[d] += b->offset[s - 1];
    }
    return end;
}

/*
 * Of the ranks that hold the same part, along mesh axes that do not split it, the one that serves
 * this receiver.
 */
static bool serves(const MotComm *comm, const MotMesh *mesh, MotSharding s, uint32_t position)
{
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (s.axis[a] < 0 &&
            mot_mesh_coordinate(mesh, position, a) != comm->position % mesh->axis[a].n)
            return false;
    return true;
}

static bool intersect(const Box *a, const Box *b, Box *out)
{
    out->rank = a->rank;
    for (int d = 0; d < a->rank; d++) {
        int64_t end_a = a->begin[d] + a->size[d], end_b = b->begin[d] + b->size[d];
        out->begin[d] = a->begin[d] > b->begin[d] ? a->begin[d] : b->begin[d];
        out->size[d] = (end_a < end_b ? end_a : end_b) - out->begin[d];
        if (out->size[d] <= 0)
            return false;
    }
    return true;
}

/* Where the row of `common` with outer index `row` begins in the buffer of `box`. */
static int64_t offset_of_row(const Box *common, const Box *box, int64_t row)
{
    int64_t at = 0, stride = 1;
    for (int d = common->rank; d-- > 0;) {
        int64_t index = 0;
        if (d < common->rank - 1) {
            index = row % common->size[d];
            row /= common->size[d];
        }
        at += (common->begin[d] - box->begin[d] + index) * stride;
        stride *= box->size[d];
    }
    return at;
}

/* Copies what the two have in common. */
static void copy_common(const End *to, const End *from, const Box *common, int64_t element)
{
    int64_t rows = 1, run = common->rank ? common->size[common->rank - 1] * element : element;
    for (int d = 0; d + 1 < common->rank; d++)
        rows *= common->size[d];
    for (int64_t row = 0; row < rows; row++)
        memcpy(to->data + offset_of_row(common, &to->box, row) * element,
               from->data + offset_of_row(common, &from->box, row) * element, (size_t)run);
}

/* A rank that has something of what the receiver needs. */
typedef struct {
    MotMail *mail;
    uint32_t device;
    End end;
    Box common;
} Source;

static uint32_t find_sources(const MotComm *comm, uint32_t channel, const End *to, Source *sources)
{
    const MotChannel *c = &comm->pipeline->channels.data[channel];
    const MotProgram *from = comm->pipeline->stages.data[c->from];
    uint32_t first = mot_pipeline_first_rank(comm->pipeline, c->from), n = 0;
    for (uint32_t i = 0; i < from->mesh.n_devices; i++) {
        Source s = {.mail = mail_of(comm, channel, first + i),
                    .device = from->mesh.devices[i],
                    .end = find_end(comm, c->from, first + i, c->source)};
        if (serves(comm, &from->mesh, from->bufs.data[c->source].sharding, i) &&
            intersect(&to->box, &s.end.box, &s.common))
            sources[n++] = s;
    }
    return n;
}

static int64_t bytes_of(const Source *s, int64_t element)
{
    int64_t bytes = element;
    for (int d = 0; d < s->common.rank; d++)
        bytes *= s->common.size[d];
    return bytes;
}

/*
 * Until message `n` of all sources is there, in the devices' time too: an emulated link carries it
 * while the devices compute.
 */
static MotStatus wait_sent(MotComm *comm, const Source *sources, uint32_t n_sources, uint32_t n,
                           int64_t element, MotClock *clock)
{
    int64_t start = mot_clock_now(clock);
    for (uint32_t i = 0; i < n_sources; i++) {
        const Source *s = &sources[i];
        MOT_TRY(wait_for(comm, &s->mail->sent, n + 1));
        MotLink link =
            mot_cluster_link(comm->cluster, s->device, comm->program->mesh.devices[comm->position]);
        double seconds = link.latency + (double)bytes_of(s, element) / link.bandwidth;
        mot_clock_wait(clock, atomic_load(&s->mail->ns[n % MOT_MAIL_TIMES]) +
                                  (link.is_emulated ? (int64_t)(seconds * 1e9) : 0));
    }
    comm->ranks[comm->position].wait_ns += mot_clock_now(clock) - start;
    return MOT_OK;
}

static MotStatus receive(MotComm *comm, const MotInstr *ins, MotClock *clock)
{
    const MotChannel *channel = &comm->pipeline->channels.data[ins->channel];
    MotMail *own = mail_of(comm, ins->channel, own_rank(comm));
    uint32_t n = atomic_load(&own->taken.count);
    End to = find_end(comm, comm->stage, own_rank(comm), channel->target);
    int64_t element = mot_dtype_bytes(comm->program->bufs.data[channel->target].global.dtype);
    Source sources[MOT_MAX_RANKS];
    uint32_t n_sources = find_sources(comm, ins->channel, &to, sources);
    MOT_TRY(wait_sent(comm, sources, n_sources, n, element, clock));
    int64_t start = mot_clock_now(clock);
    mot_clock_begin(clock);
    for (uint32_t i = 0; i < n_sources; i++)
        copy_common(&to, &sources[i].end, &sources[i].common, element);
    mot_clock_receive(clock, mot_clock_took(clock, &(MotCount){0}), 0);
    comm->busy_ns += mot_clock_now(clock) - start;
    mot_clock_catch_up(clock, 0);
    atomic_store(&own->ns[n % MOT_MAIL_TIMES], mot_clock_now(clock));
    mot_gate_open(&own->taken);
    return MOT_OK;
}

MotStatus mot_comm_exec_stage(MotComm *comm, const MotInstr *ins, MotClock *clock)
{
    return (ins->kind == MOT_INS_SEND ? send : receive)(comm, ins, clock);
}
