/*
 * The watch over the ranks: who died, who hangs, who waits for whom, and what is left.
 *
 * Every rank publishes its instruction and the gate at which it waits; whose gate that is follows
 * from its address. So the ranks and what they wait for are a graph, and who all others wait for in
 * the end, its sink, is the culprit: the rank that died, or one that does not wait and yet does not
 * get on.
 *
 * A step writes parameters and states in its last instructions. A rank publishes when it begins
 * (`updating`) and when the step is done (`executed`): after a death its part of them is as before
 * the step, as after it, or torn. A part that several ranks hold is there as long as one of them
 * has it whole; and a rank's arena outlives its process. So nothing is lost unless the death came
 * in the middle of the update of a part that no other rank holds.
 */
#include "runtime/host.h"

#include <stdio.h>
#include <string.h>

/* ---- Who waits for whom ---- */

/* `in forward instruction 12 of micro-batch 3 (launch of node "/h.0/attn/MatMul")` */
static const char *describe_place(const MotSession *s, uint32_t rank)
{
    const MotRankState *state = &s->shared->rank[rank];
    const MotProgram *program = mot_host_place(s, rank).program;
    MotSection section = (MotSection)atomic_load(&state->section);
    uint32_t i = atomic_load(&state->instruction);
    if (i >= program->section[section].n)
        return s->shared->command == MOT_CMD_REBIND ? "while it binds the program"
                                                    : "between two sections";
    const MotInstr *ins = &program->section[section].data[i];
    const char *micro =
        mot_section_is_repeated(section)
            ? mot_arena_printf(&s->ctx->arena, " of micro-batch %u", atomic_load(&state->micro))
            : "";
    return mot_arena_printf(&s->ctx->arena, "in %s instruction %u%s (%s of node %s)",
                            mot_section_names[section], i, micro, mot_instr_names[ins->kind],
                            ins->origin ? mot_quote(&s->ctx->arena, ins->origin)
                                        : "added by the compiler");
}

/*
 * The rank at whose gate rank i waits, or n_ranks: it does not wait, or what it waits for has come.
 */
static uint32_t find_awaited(const MotSession *s, uint32_t i)
{
    const MotShared *shared = s->shared;
    const MotGate *gate = atomic_load(&shared->rank[i].awaited);
    if (!gate || mot_gate_has_reached(gate, atomic_load(&shared->rank[i].target)))
        return shared->n_ranks;
    const char *at = (const char *)gate, *ranks = (const char *)shared->rank;
    if (at >= ranks && at < (const char *)(shared->rank + shared->n_ranks))
        return (uint32_t)((size_t)(at - ranks) / sizeof *shared->rank);
    return (uint32_t)((size_t)(at - (const char *)shared->mail) / sizeof *shared->mail) %
           shared->n_ranks;
}

static bool has_finished(const MotSession *s, uint32_t i)
{
    return mot_gate_has_reached(&s->shared->rank[i].finished, s->n_commands);
}

/* Neither done with the command nor waiting for another rank. */
static bool is_at_work(const MotSession *s, uint32_t i)
{
    return s->rank[i].is_running && !has_finished(s, i) && find_awaited(s, i) == s->shared->n_ranks;
}

/* Where the way from rank i ends: at a rank that does not wait; n_ranks: the way is a circle. */
static uint32_t find_end(const MotSession *s, uint32_t i)
{
    uint32_t n = s->shared->n_ranks;
    for (uint32_t hops = 0; hops < n; hops++) {
        uint32_t next = find_awaited(s, i);
        if (next == n)
            return i;
        i = next;
    }
    return n;
}

/* The rank at work for which most others wait in the end, or n_ranks. */
static uint32_t find_sink(const MotSession *s)
{
    uint32_t n = s->shared->n_ranks, n_waiters[MOT_MAX_RANKS] = {0}, best = n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t end = find_end(s, i);
        if (end < n)
            n_waiters[end]++;
    }
    for (uint32_t i = 0; i < n; i++)
        if (is_at_work(s, i) && (best == n || n_waiters[i] > n_waiters[best]))
            best = i;
    return best;
}

/* `rank 0 waits for rank 2, rank 1 for rank 2, rank 3 has finished`; NULL: all are at work. */
static const char *describe_waits(const MotSession *s)
{
    MotText text;
    mot_text_init(&text, &s->ctx->arena);
    for (uint32_t i = 0; i < s->shared->n_ranks; i++) {
        uint32_t awaited = find_awaited(s, i);
        if (awaited < s->shared->n_ranks)
            mot_text_printf(&text, text.n ? ", rank %u for rank %u" : "rank %u waits for rank %u",
                            i, awaited);
    }
    for (uint32_t i = 0; i < s->shared->n_ranks; i++)
        if (has_finished(s, i))
            mot_text_printf(&text, "%srank %u has finished", text.n ? ", " : "", i);
    return text.n ? mot_text_get(&text) : NULL;
}

/* ---- What is left ---- */

void mot_watch_stop(MotSession *s)
{
    atomic_store(&s->shared->abort, 1);
    for (uint32_t i = 0; i < s->shared->n_ranks; i++)
        if (s->rank[i].is_running) {
            mot_spawn_kill(&s->rank[i]);
            mot_spawn_join(&s->rank[i]);
        }
}

static uint32_t total_retired(const MotSession *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->shared->n_ranks; i++)
        n += atomic_load(&s->shared->rank[i].retired);
    return n;
}

/*
 * Since `before`, which becomes now. A look counts for so long at most: when the whole job was
 * stopped for an hour and goes on, nobody hangs.
 */
static double look_seconds(int64_t *before)
{
    static const double longest_look = 0.1;
    int64_t now = mot_now_ns();
    double look = (double)(now - *before) * 1e-9;
    *before = now;
    return look < longest_look ? look : longest_look;
}

/* Notes who has died; whether all others have finished or wait. */
static bool is_at_rest(MotSession *s)
{
    bool is = true;
    for (uint32_t i = 0; i < s->shared->n_ranks; i++) {
        s->is_lost[i] |= s->rank[i].is_running && mot_spawn_has_ended(&s->rank[i]);
        is = is && (s->is_lost[i] || !is_at_work(s, i));
    }
    return is;
}

/*
 * Lets the ranks get as far as they can without those that are lost. Who works on without getting
 * anywhere for so long as counts as hanging is lost too. A rank may look as if it waited in the
 * moment in which its peer comes: it has to look so twice. (Were one stopped too early, no more
 * would be lost than if it had died itself.)
 */
static void settle(MotSession *s)
{
    enum { LOOK_NS = 1000000, LOOKS = 2 };
    uint32_t retired = total_retired(s);
    int64_t before = mot_now_ns();
    double idle_seconds = 0;
    for (int looks = 0; looks < LOOKS;) {
        looks = is_at_rest(s) && total_retired(s) == retired ? looks + 1 : 0;
        mot_sleep_until_ns(mot_now_ns() + LOOK_NS);
        idle_seconds += look_seconds(&before);
        if (total_retired(s) != retired) {
            retired = total_retired(s);
            idle_seconds = 0;
        }
        if (s->opts.hang_seconds > 0 && idle_seconds > s->opts.hang_seconds)
            break;
    }
    for (uint32_t i = 0; i < s->shared->n_ranks; i++)
        s->is_lost[i] |= is_at_work(s, i);
}

/* Whether rank q holds what rank r of its stage holds of a buffer. */
static bool has_equal_part(const MotSession *s, const MotProgram *p, uint32_t buf, uint32_t r,
                           uint32_t q)
{
    const MotBinding *a = &s->bindings[r], *b = &s->bindings[q];
    for (int d = 0; d < a->types[buf].rank; d++)
        if (a->types[buf].dims[d] != b->types[buf].dims[d] ||
            mot_program_part_offset(p, a, buf, d) != mot_program_part_offset(p, b, buf, d))
            return false;
    return true;
}

/* Whether ranks of its stage that are not torn hold all parameters and states that rank r holds. */
static bool is_replaced(const MotSession *s, const bool *is_torn, uint32_t r)
{
    MotPlace place = mot_host_place(s, r);
    uint32_t first = r - place.position, end = first + place.program->mesh.n_devices, sound = first;
    while (sound < end && is_torn[sound])
        sound++;
    for (uint32_t b = 0; b < place.program->bufs.n && sound < end; b++) {
        if (place.program->bufs.data[b].kind != MOT_BUF_PARAM ||
            mot_type_elements(&s->bindings[r].types[b]) == 0)
            continue;
        uint32_t q = first;
        while (q < end && (is_torn[q] || !has_equal_part(s, place.program, b, r, q)))
            q++;
        if (q == end)
            return false;
    }
    return sound < end;
}

static bool has_everything(const MotSession *s, const bool *is_torn)
{
    bool has = true;
    for (uint32_t r = 0; r < s->shared->n_ranks; r++)
        has = has && (!is_torn[r] || is_replaced(s, is_torn, r));
    return has;
}

/* After all ranks have ended. */
static void find_held(MotSession *s)
{
    uint32_t n = s->shared->n_ranks;
    for (uint32_t i = 0; i < n; i++)
        s->is_torn[i] = atomic_load(&s->shared->rank[i].executed) != s->n_commands;
    s->held = MOT_HELD_AFTER;
    if (has_everything(s, s->is_torn))
        return;
    for (uint32_t i = 0; i < n; i++)
        s->is_torn[i] = atomic_load(&s->shared->rank[i].updating) == s->n_commands;
    s->held = has_everything(s, s->is_torn) ? MOT_HELD_BEFORE : MOT_HELD_TORN;
}

/* Rank i is lost: all end. */
static void halt(MotSession *s, uint32_t i)
{
    s->is_lost[i] = true;
    if (s->rank[i].is_running)
        mot_spawn_kill(&s->rank[i]);
    if (s->opts.is_elastic)
        settle(s);
    else
        (void)is_at_rest(s); /* who else has died by now */
    mot_watch_stop(s);
    find_held(s);
    s->is_halted = true;
}

/* ---- Waiting ---- */

/* Those that are lost beside rank i, for its message. */
static void note_others(MotSession *s, uint32_t i)
{
    for (uint32_t k = 0; k < s->shared->n_ranks; k++)
        if (k != i && s->is_lost[k])
            mot_note(s->ctx, "%s is lost too", mot_host_rank_name(s, k));
}

static MotStatus report_dead(MotSession *s, uint32_t i)
{
    const MotRankState *state = &s->shared->rank[i];
    const char *where = describe_place(s, i), *waits = describe_waits(s);
    int signal = mot_spawn_join(&s->rank[i]);
    halt(s, i);
    if (state->status != MOT_OK && state->status != MOT_ERR_RANK) {
        mot_fail(s->ctx, (MotStatus)state->status, MOT_NOWHERE, "%s: %s", mot_host_rank_name(s, i),
                 state->error);
        mot_note(s->ctx, "%s", where);
        note_others(s, i);
        return s->ctx->status;
    }
    if (signal)
        mot_fail(s->ctx, MOT_ERR_RANK, MOT_NOWHERE, "%s was killed by signal %d (%s) %s",
                 mot_host_rank_name(s, i), signal, strsignal(signal), where);
    else
        mot_fail(s->ctx, MOT_ERR_RANK, MOT_NOWHERE, "%s ended early %s", mot_host_rank_name(s, i),
                 where);
    note_others(s, i);
    if (waits)
        mot_note(s->ctx, "%s", waits);
    return s->ctx->status;
}

/*
 * Looks for ranks that ended; a rank that failed by itself comes before those that only followed.
 */
static MotStatus check_ranks(MotSession *s)
{
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < s->shared->n_ranks; i++)
            if (s->rank[i].is_running && mot_spawn_has_ended(&s->rank[i]) &&
                (pass == 1 || s->shared->rank[i].status != MOT_ERR_RANK))
                return report_dead(s, i);
    return MOT_OK;
}

/*
 * All wait for one another only if our own order of collectives is wrong: then going on is no use.
 */
static MotStatus report_hang(MotSession *s)
{
    uint32_t sink = find_sink(s), named = sink < s->shared->n_ranks ? sink : 0;
    bool is_known = named == sink;
    const char *where = describe_place(s, named), *waits = describe_waits(s);
    if (is_known)
        halt(s, named);
    else
        mot_watch_stop(s);
    mot_fail(s->ctx, MOT_ERR_RANK, MOT_NOWHERE,
             "%s %s %s: no rank has retired an instruction for %g s", mot_host_rank_name(s, named),
             is_known ? "hangs" : "and all others wait for one another", where,
             s->opts.hang_seconds);
    note_others(s, named);
    if (waits)
        mot_note(s->ctx, "%s", waits);
    return s->ctx->status;
}

/* A rank hangs if none has retired an instruction while the host looked for hang_seconds. */
MotStatus mot_watch_wait(MotSession *s)
{
    if (s->is_halted)
        return mot_fail(s->ctx, MOT_ERR_RANK, MOT_NOWHERE, "the ranks have been stopped");
    uint32_t retired = total_retired(s);
    int64_t before = mot_now_ns();
    double idle_seconds = 0;
    for (uint32_t i = 0; i < s->shared->n_ranks;) {
        MotGate *gate = &s->shared->rank[i].finished;
        uint32_t count = atomic_load_explicit(&gate->count, memory_order_acquire);
        if (count == s->n_commands) {
            i++;
            continue;
        }
        mot_gate_pause(gate, count);
        MOT_TRY(check_ranks(s));
        idle_seconds += look_seconds(&before);
        if (total_retired(s) != retired) {
            retired = total_retired(s);
            idle_seconds = 0;
        }
        if (s->opts.hang_seconds > 0 && idle_seconds > s->opts.hang_seconds)
            return report_hang(s);
    }
    return MOT_OK;
}
