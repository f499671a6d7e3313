/* Collectives rise to their sources and join in buckets. */
#include "passes/lower/coalesce.h"

enum {
    BUCKETS = 8,
    LEAST_BYTES = 1 << 20,
    WINDOW = 8, /* kernels, about half a layer's */
    LIGHT = 64, /* so a part of what parameters and state take is no memory to speak of */
    FAR = 4     /* a bucket waits for no more than so a part of the section's kernels */
};

/* Collectives of one kind that are to be one. */
typedef struct {
    MotVec(const MotInstr *) members;
    uint32_t place; /* as the last member's */
    int64_t bytes, limit;
    int64_t total; /* bytes that the section moves in this kind */
    MotInstrKind kind;
    MotWhen when;
    uint32_t axis, cut;
    bool is_max;
} Bucket;

typedef struct {
    const MotProgram *program;
    uint32_t n_fixed; /* instructions so far which don't move */
    uint32_t n_all;   /* instructions of the section */
    int64_t light;    /* bytes of one kind that may live as long as they like */
    MotVec(MotInstr) joined;
    MotVec(uint32_t) places; /* of the joined ones */
    MotVec(Bucket) buckets;
    uint32_t *source_of, *result_of; /* by memory: the bucket + 1 that reads it, that writes it */
} Joiner;

/* Bytes of the whole values: shares may change, the buckets stay. */
static int64_t moved_bytes(const MotProgram *p, const MotInstr *ins)
{
    int64_t bytes = 0;
    for (uint32_t k = 0; k < ins->n_in; k++)
        bytes += mot_type_bytes(&p->bufs.data[ins->bufs[k]].global);
    return bytes;
}

static uint32_t find_bucket(const Joiner *s, const MotInstr *ins)
{
    uint32_t i = 0;
    for (; i < s->buckets.n; i++) {
        const Bucket *b = &s->buckets.data[i];
        if (b->kind == ins->kind && b->when == ins->when && b->axis == ins->axis &&
            b->is_max == ins->is_max && b->cut == ins->cut)
            break;
    }
    return i;
}

static int64_t find_light(const MotProgram *p)
{
    int64_t persistent = 0;
    for (uint32_t i = 0; i < p->bufs.n; i++)
        if (p->bufs.data[i].kind == MOT_BUF_PARAM)
            persistent += mot_type_bytes(&p->bufs.data[i].global);
    return persistent / LIGHT > LEAST_BYTES ? persistent / LIGHT : LEAST_BYTES;
}

static void size_buckets(Joiner *s, MotSection section)
{
    const MotProgram *p = s->program;
    for (uint32_t i = 0; i < p->section[section].n; i++) {
        const MotInstr *ins = &p->section[section].data[i];
        if (!mot_instr_is_collective(ins))
            continue;
        uint32_t b = find_bucket(s, ins);
        if (b == s->buckets.n)
            mot_vec_push(&p->ctx->arena, &s->buckets,
                         (Bucket){.kind = ins->kind,
                                  .when = ins->when,
                                  .axis = ins->axis,
                                  .is_max = ins->is_max,
                                  .cut = ins->cut});
        s->buckets.data[b].total += moved_bytes(p, ins);
    }
    for (uint32_t b = 0; b < s->buckets.n; b++) {
        int64_t limit = s->buckets.data[b].total / BUCKETS;
        s->buckets.data[b].limit = limit > LEAST_BYTES ? limit : LEAST_BYTES;
    }
}

/* ---- Rising ---- */

/*
 * The place below which a collective does not rise that stands behind `n_fixed` instructions. What
 * it makes lives from its start: where that takes memory, it rises by one to two windows. A
 * reduction frees its source the earlier.
 */
static uint32_t find_floor(const Joiner *s, const MotInstr *ins, uint32_t n_fixed)
{
    uint32_t bucket = find_bucket(s, ins);
    MOT_ASSERT(bucket < s->buckets.n); /* size_buckets made it */
    bool is_light = ins->kind == MOT_INS_REDUCE_SCATTER || ins->kind == MOT_INS_ALL_REDUCE ||
                    s->buckets.data[bucket].total <= s->light;
    return is_light || n_fixed < WINDOW ? 0 : (n_fixed / WINDOW - 1) * WINDOW;
}

/*
 * The order with every collective as early as it may be: place[i] is the number of instructions
 * which don't move that it has to follow. Those that share a place keep their order among each
 * other.
 */
static uint32_t *find_places(const Joiner *s, MotSection section)
{
    const MotProgram *p = s->program;
    MotArena *arena = &p->ctx->arena;
    uint32_t n = p->section[section].n, n_fixed = 0;
    uint32_t *place = mot_arena_array(arena, uint32_t, n);
    /* By memory: the place after its last writer, and after its last reader or writer. */
    uint32_t *written = mot_arena_array(arena, uint32_t, p->bufs.n),
             *used = mot_arena_array(arena, uint32_t, p->bufs.n);
    for (uint32_t i = 0; i < n; i++) {
        const MotInstr *ins = &p->section[section].data[i];
        uint32_t at = mot_instr_is_collective(ins) ? find_floor(s, ins, n_fixed) : ++n_fixed;
        for (uint32_t k = 0; k < ins->n_bufs; k++) {
            uint32_t memory = mot_program_owner(p, ins->bufs[k]);
            uint32_t after = k < ins->n_in ? written[memory] : used[memory];
            at = after > at ? after : at;
        }
        place[i] = at;
        for (uint32_t k = 0; k < ins->n_bufs; k++) {
            uint32_t memory = mot_program_owner(p, ins->bufs[k]);
            used[memory] = at > used[memory] ? at : used[memory];
            if (k >= ins->n_in)
                written[memory] = at;
        }
    }
    return place;
}

/* Counting sort by place; at equal places what doesn't move comes first. */
static MotInstr *raise(const Joiner *s, MotSection section)
{
    const MotProgram *p = s->program;
    MotArena *arena = &p->ctx->arena;
    const MotInstr *ins = p->section[section].data;
    uint32_t n = p->section[section].n, *place = find_places(s, section);
    uint32_t *next = mot_arena_array(arena, uint32_t, n + 2);
    MotInstr *sorted = mot_arena_array(arena, MotInstr, n);
    for (uint32_t i = 0; i < n; i++)
        next[place[i] + 1]++;
    for (uint32_t i = 1; i < n + 2; i++)
        next[i] += next[i - 1];
    for (int moves = 0; moves < 2; moves++)
        for (uint32_t i = 0; i < n; i++)
            if (mot_instr_is_collective(&ins[i]) == (moves == 1))
                sorted[next[place[i]]++] = ins[i];
    return sorted;
}

/* ---- Joining ---- */

/* What is in the bucket becomes one instruction; the bucket is empty then. */
static void flush(Joiner *s, Bucket *b)
{
    MotArena *arena = &s->program->ctx->arena;
    uint32_t n = 0, at = 0;
    for (uint32_t i = 0; i < b->members.n; i++)
        n += b->members.data[i]->n_in;
    if (n == 0)
        return;
    MotInstr merged = *b->members.data[0];
    merged.n_in = n;
    merged.n_bufs = 2 * n;
    merged.bufs = mot_arena_array(arena, uint32_t, 2 * n);
    merged.moves = mot_arena_array(arena, MotMove, n);
    for (uint32_t i = 0; i < b->members.n; i++) {
        const MotInstr *ins = b->members.data[i];
        for (uint32_t k = 0; k < ins->n_in; k++, at++) {
            merged.bufs[at] = ins->bufs[k];
            merged.bufs[n + at] = ins->bufs[ins->n_in + k];
            merged.moves[at] = ins->moves[k];
            s->source_of[mot_program_owner(s->program, merged.bufs[at])] = 0;
            s->result_of[mot_program_owner(s->program, merged.bufs[n + at])] = 0;
        }
    }
    mot_vec_push(arena, &s->joined, merged);
    mot_vec_push(arena, &s->places, b->place);
    b->members.n = 0;
    b->bytes = 0;
}

/* Closes every bucket with a collective that has to come before `ins`. */
static void flush_for(Joiner *s, const MotInstr *ins)
{
    for (uint32_t k = 0; k < ins->n_bufs; k++) {
        uint32_t memory = mot_program_owner(s->program, ins->bufs[k]);
        if (s->result_of[memory])
            flush(s, &s->buckets.data[s->result_of[memory] - 1]);
        if (k >= ins->n_in && s->source_of[memory])
            flush(s, &s->buckets.data[s->source_of[memory] - 1]);
    }
}

static void put(Joiner *s, const MotInstr *ins)
{
    const MotProgram *p = s->program;
    uint32_t number = find_bucket(s, ins);
    Bucket *b = &s->buckets.data[number];
    if (s->n_fixed > b->place + s->n_all / FAR + WINDOW)
        flush(s, b);
    /* A source belongs to one bucket at a time: its next writer has one to flush. */
    for (uint32_t k = 0; k < ins->n_in; k++) {
        uint32_t other = s->source_of[mot_program_owner(p, ins->bufs[k])];
        if (other && other != number + 1)
            flush(s, &s->buckets.data[other - 1]);
    }
    mot_vec_push(&p->ctx->arena, &b->members, ins);
    b->bytes += moved_bytes(p, ins);
    b->place = s->n_fixed;
    for (uint32_t k = 0; k < ins->n_bufs; k++)
        (k < ins->n_in ? s->source_of : s->result_of)[mot_program_owner(p, ins->bufs[k])] =
            number + 1;
    if (b->bytes >= b->limit)
        flush(s, b);
}

/*
 * What stays of `raised`, and in between the joined collectives: at one place in the order in which
 * they were closed.
 */
static void merge(const Joiner *s, const MotInstr *raised, uint32_t n, MotInstr *out)
{
    MotArena *arena = &s->program->ctx->arena;
    uint32_t *next = mot_arena_array(arena, uint32_t, s->n_fixed + 2), at = 0;
    const MotInstr **sorted = mot_arena_array(arena, const MotInstr *, s->joined.n + 1);
    for (uint32_t k = 0; k < s->joined.n; k++)
        next[s->places.data[k] + 1]++;
    for (uint32_t i = 1; i < s->n_fixed + 2; i++)
        next[i] += next[i - 1];
    for (uint32_t k = 0; k < s->joined.n; k++)
        sorted[next[s->places.data[k]]++] = &s->joined.data[k];
    /* Now next[i] is where the collectives of place i end. */
    uint32_t n_fixed = 0, n_joined = 0;
    for (uint32_t i = 0; i <= n; i++) {
        if (i < n && mot_instr_is_collective(&raised[i]))
            continue;
        while (n_joined < next[n_fixed])
            out[at++] = *sorted[n_joined++];
        n_fixed++;
        if (i < n)
            out[at++] = raised[i];
    }
}

void mot_coalesce(MotProgram *program, MotSection section)
{
    MotArena *arena = &program->ctx->arena;
    uint32_t n = program->section[section].n;
    Joiner s = {.program = program,
                .n_all = n,
                .light = find_light(program),
                .source_of = mot_arena_array(arena, uint32_t, program->bufs.n),
                .result_of = mot_arena_array(arena, uint32_t, program->bufs.n)};
    size_buckets(&s, section);
    const MotInstr *raised = raise(&s, section);
    for (uint32_t i = 0; i < n; i++) {
        flush_for(&s, &raised[i]);
        if (mot_instr_is_collective(&raised[i]))
            put(&s, &raised[i]);
        else
            s.n_fixed++;
    }
    for (uint32_t b = 0; b < s.buckets.n; b++)
        flush(&s, &s.buckets.data[b]);
    merge(&s, raised, n, program->section[section].data);
    program->section[section].n = s.n_fixed + s.joined.n;
}
