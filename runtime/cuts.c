/* Between the ranks' measurements, a policy, and lists of columns. */
#include "runtime/cuts.h"

#include "support/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * A layer: its weight when it was last looked at, and how much its columns have changed since the
 * look before.
 */
typedef struct {
    float *last;
    double *change;     /* [columns of the whole weight] */
    double **priority;  /* [ranks][columns of the whole weight] */
    int64_t **computed; /* so; the step of the last look up to which the rank computed the column */
} Layer;

struct MotCutter {
    MotCtx *ctx;
    MotSession *session;
    MotCutPolicy policy;
    MotCutPick pick;
    uint64_t seed;
    uint32_t n, n_layers;
    Layer *layer;
    double *busy, *seconds; /* [n], [n * n_layers]: of the step, for the policy */
    int64_t *share, *columns, *cut, *pending;
    double *total;                                                 /* [n] */
    uint32_t lender[MOT_MAX_RANKS], pending_lender[MOT_MAX_RANKS]; /* + 1; 0: nobody */
    int64_t *help, *pending_help; /* [n * n_layers] columns, by helper */
    int64_t effective; /* the step before which what is pending is carried out; -1: none */
    /* the step before which the weights were last looked at; -1: when there was none yet */
    int64_t looked;
    int64_t *list; /* of one layer, as */
    double *owed;
};

static const MotProgram *program_of(const MotCutter *c)
{
    return mot_session_pipeline(c->session)->stages.data[0];
}

static const MotBuf *weight_of(const MotCutter *c, uint32_t l)
{
    const MotProgram *p = program_of(c);
    return &p->bufs.data[p->cuts.data[l].param];
}

static int64_t whole_columns(const MotCutter *c, uint32_t l)
{
    return weight_of(c, l)->global.dims[program_of(c)->cuts.data[l].param_dim];
}

/* ---- Which columns ---- */

typedef struct {
    double p;
    int64_t column;
} Ranked;

static int by_priority(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    if (x->p != y->p)
        return x->p < y->p ? 1 : -1;
    return (x->column > y->column) - (x->column < y->column);
}

static int by_column(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t find_window(const double *p, int64_t n_columns, int64_t n)
{
    double sum = 0, most;
    int64_t first = 0;
    for (int64_t k = 0; k < n; k++)
        sum += p[k];
    most = sum;
    for (int64_t k = n; k < n_columns; k++) {
        sum += p[k] - p[k - n];
        if (sum > most) {
            most = sum;
            first = k - n + 1;
        }
    }
    return first;
}

/* Selection sampling (Knuth 3.4.2 S): each set of n columns is as likely. */
static void pick_random(int64_t n_columns, uint64_t seed, int64_t n, int64_t *out_list)
{
    for (int64_t k = 0, taken = 0; taken < n; k++) {
        uint64_t at[2] = {seed, (uint64_t)k};
        double u = (double)(mot_hash(at, sizeof at) >> 11) * 0x1p-53;
        if (u * (double)(n_columns - k) < (double)(n - taken))
            out_list[taken++] = k;
    }
}

void mot_cut_pick(MotArena *arena, MotCutPick pick, const double *p, int64_t n_columns,
                  uint64_t seed, int64_t n, int64_t *out_list)
{
    if (pick == MOT_PICK_RANDOM) {
        pick_random(n_columns, seed, n, out_list);
        return;
    }
    if (pick == MOT_PICK_WINDOW) {
        int64_t first = find_window(p, n_columns, n);
        for (int64_t k = 0; k < n; k++)
            out_list[k] = first + k;
        return;
    }
    MotArenaMark mark = mot_arena_mark(arena);
    Ranked *ranked = mot_arena_array(arena, Ranked, n_columns);
    for (int64_t k = 0; k < n_columns; k++)
        ranked[k] = (Ranked){p[k], k};
    qsort(ranked, (size_t)n_columns, sizeof *ranked, by_priority);
    for (int64_t k = 0; k < n; k++)
        out_list[k] = ranked[k].column;
    qsort(out_list, (size_t)n, sizeof *out_list, by_column);
    mot_arena_rewind(arena, mark);
}

/* ---- Priorities ---- */

/*
 * What its columns have changed a step, in the `steps` since the last look, and the weight as it is
 * now.
 */
static MotStatus look_at(MotCutter *c, uint32_t l, int64_t steps)
{
    MotScope scope = mot_scope_begin(c->ctx);
    MotTensor weight;
    const MotBuf *buf = weight_of(c, l);
    int dim = program_of(c)->cuts.data[l].param_dim;
    int64_t n = mot_type_elements(&buf->global), inner = 1, columns = whole_columns(c, l);
    Layer *layer = &c->layer[l];
    MOT_TRY(mot_session_read(c->session, buf->name, &weight));
    for (int d = dim + 1; d < buf->global.rank; d++)
        inner *= buf->global.dims[d];
    memset(layer->change, 0, (size_t)columns * sizeof *layer->change);
    const float *now = weight.data;
    for (int64_t row = 0; row < n / inner; row++)
        for (int64_t e = row * inner; e < (row + 1) * inner; e++)
            layer->change[row % columns] +=
                fabs((double)now[e] - (double)layer->last[e]) / (double)steps;
    memcpy(layer->last, now, (size_t)n * sizeof *now);
    mot_scope_end(c->ctx, scope);
    return MOT_OK;
}

/* Where the rank's columns begin among those of the whole weight. */
static int64_t first_column(const MotCutter *c, uint32_t l, uint32_t rank)
{
    return mot_session_first_column(c->session, l, rank);
}

static uint32_t index_of(const MotCutter *c, uint32_t l, uint32_t rank)
{
    return rank * c->n_layers + l;
}

/* Columns that the rank has computed take what they changed. */
static void renew_priorities(const MotCutter *c, uint32_t l, uint32_t rank, int64_t step)
{
    int64_t first = first_column(c, l, rank), n = c->columns[index_of(c, l, rank)];
    const int64_t *held = mot_session_uncomputed(c->session, l, rank);
    for (int64_t k = 0; k < n; k++)
        if (held[k] == 0) {
            c->layer[l].priority[rank][first + k] = c->layer[l].change[first + k];
            c->layer[l].computed[rank][first + k] = step;
        }
}

/* The change that the rank's columns would have missed by the next look. */
static const double *find_owed(const MotCutter *c, uint32_t l, uint32_t rank, int64_t step)
{
    const Layer *layer = &c->layer[l];
    int64_t first = first_column(c, l, rank), n = c->columns[index_of(c, l, rank)];
    for (int64_t k = 0; k < n; k++) {
        int64_t missed = step - layer->computed[rank][first + k] + MOT_CUT_REFRESH;
        c->owed[k] = layer->priority[rank][first + k] * (double)missed;
    }
    return c->owed;
}

/* The shares: what was decided for others is void. */
static void find_shares(MotCutter *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        int64_t share = mot_session_share(c->session, i);
        if (share != c->share[i])
            c->effective = -1;
        c->share[i] = share;
    }
}

/*
 * How many columns there are, how many a rank does not compute, and how many it computes for
 * another; other shares change all three.
 */
static void find_columns(MotCutter *c)
{
    const MotProgram *p = program_of(c);
    find_shares(c);
    for (uint32_t i = 0; i < c->n; i++) {
        c->lender[i] = p->lender ? (uint32_t)p->lender[i] : 0;
        for (uint32_t l = 0; l < c->n_layers; l++) {
            uint32_t k = index_of(c, l, i);
            int64_t kept = p->cuts.data[l].n_kept[i];
            c->columns[k] = mot_session_columns(c->session, l, i);
            c->cut[k] = c->columns[k] && kept ? c->columns[k] - kept : 0;
            c->help[k] = c->lender[i] ? p->cuts.data[l].n_helped[i] : 0;
        }
    }
}

/* How many of the rank's columns others will compute. */
static int64_t count_lent(const MotCutter *c, uint32_t l, uint32_t rank)
{
    int64_t n = 0;
    for (uint32_t h = 0; h < c->n; h++)
        n += c->pending_lender[h] == rank + 1 ? c->pending_help[index_of(c, l, h)] : 0;
    return n;
}

/* The columns of `list` go to the rank's helpers, one after the other. */
static void lend(MotCutter *c, uint32_t l, uint32_t rank, const int64_t *list)
{
    for (uint32_t h = 0; h < c->n; h++)
        if (c->pending_lender[h] == rank + 1) {
            int64_t n = c->pending_help[index_of(c, l, h)];
            mot_session_help(c->session, l, h, rank, list, n);
            list += n;
        }
}

/*
 * Those that owe least are left out. Which of the others are lent makes no difference: the last
 * ones.
 */
static void cut_rank(MotCutter *c, uint32_t l, uint32_t rank, int64_t step)
{
    uint32_t k = index_of(c, l, rank);
    uint64_t seed[] = {c->seed, (uint64_t)step, k};
    int64_t kept = c->columns[k] - c->pending[k], lent = count_lent(c, l, rank);
    if (kept <= 0 && c->columns[k])
        kept = c->columns[k] - lent;
    mot_cut_pick(&c->ctx->arena, c->pick, find_owed(c, l, rank, step), c->columns[k],
                 mot_hash(seed, sizeof seed), kept + lent, c->list);
    if (program_of(c)->cuts.data[l].is_lendable)
        lend(c, l, rank, c->list + kept);
    mot_session_cut(c->session, l, rank, c->list, kept);
}

/* Ranks that help nobody say so: they have no columns of their own. */
static void end_help(MotCutter *c, uint32_t l)
{
    for (uint32_t h = 0; program_of(c)->cuts.data[l].is_lendable && h < c->n; h++)
        if (c->pending_lender[h] == 0)
            mot_session_help(c->session, l, h, h, c->list, 0);
}

static MotStatus cut_all(MotCutter *c, int64_t step)
{
    bool looks = c->pick != MOT_PICK_RANDOM;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        if (looks)
            MOT_TRY(look_at(c, l, step > c->looked ? step - c->looked : 1));
        for (uint32_t i = 0; looks && i < c->n; i++)
            renew_priorities(c, l, i, step);
        end_help(c, l);
        for (uint32_t i = 0; i < c->n; i++)
            cut_rank(c, l, i, step);
    }
    c->looked = step;
    return mot_session_rebind(c->session);
}

/* ---- Steps ---- */

static MotStatus make_layer(MotCutter *c, uint32_t l)
{
    MotArena *arena = &c->ctx->arena;
    Layer *layer = &c->layer[l];
    int64_t n = whole_columns(c, l);
    layer->priority = mot_arena_array(arena, double *, c->n);
    layer->computed = mot_arena_array(arena, int64_t *, c->n);
    for (uint32_t i = 0; i < c->n; i++) {
        layer->priority[i] = mot_arena_array(arena, double, n);
        layer->computed[i] = mot_arena_array(arena, int64_t, n);
        for (int64_t k = 0; k < n; k++)
            layer->priority[i][k] = 1;
    }
    if (c->pick == MOT_PICK_RANDOM)
        return MOT_OK;
    layer->change = mot_arena_array(arena, double, n);
    layer->last = mot_arena_array(arena, float, mot_type_elements(&weight_of(c, l)->global));
    return look_at(c, l, 1);
}

MotStatus mot_cutter_make(MotCtx *ctx, MotSession *session, const MotCutPolicy *policy,
                          MotCutPick pick, uint64_t seed, MotCutter **out_cutter)
{
    MotArena *arena = &ctx->arena;
    MotCutter *c = mot_arena_new(arena, MotCutter);
    *c = (MotCutter){.ctx = ctx,
                     .session = session,
                     .policy = *policy,
                     .pick = pick,
                     .seed = seed,
                     .n = mot_session_ranks(session),
                     .effective = -1,
                     .looked = -1};
    c->n_layers = program_of(c)->cuts.n;
    size_t all = (size_t)c->n * c->n_layers;
    int64_t most = 0;
    c->layer = mot_arena_array(arena, Layer, c->n_layers);
    c->busy = mot_arena_array(arena, double, c->n);
    c->seconds = mot_arena_array(arena, double, all);
    c->share = mot_arena_array(arena, int64_t, c->n);
    c->columns = mot_arena_array(arena, int64_t, all);
    c->cut = mot_arena_array(arena, int64_t, all);
    c->pending = mot_arena_array(arena, int64_t, all);
    c->total = mot_arena_array(arena, double, c->n);
    c->help = mot_arena_array(arena, int64_t, all);
    c->pending_help = mot_arena_array(arena, int64_t, all);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        MOT_TRY(make_layer(c, l));
        most = whole_columns(c, l) > most ? whole_columns(c, l) : most;
    }
    c->list = mot_arena_array(arena, int64_t, most);
    c->owed = mot_arena_array(arena, double, most);
    *out_cutter = c;
    return MOT_OK;
}

/* Whether some columns are computed by nobody. */
static bool leaves_out(const MotCutter *c)
{
    int64_t n = 0;
    for (uint32_t k = 0; k < c->n * c->n_layers; k++)
        n += c->cut[k] - c->help[k]; /* what others compute is counted at them */
    return n > 0;
}

MotStatus mot_cutter_before(MotCutter *c, int64_t step)
{
    size_t all = (size_t)c->n * c->n_layers;
    find_columns(c);
    if (c->looked < 0)
        c->looked = step;
    if (step == c->effective)
        return cut_all(c, step);
    if (step < c->effective || step < c->looked + MOT_CUT_REFRESH || !leaves_out(c))
        return MOT_OK;
    /* As many, but the right ones. */
    memcpy(c->pending, c->cut, all * sizeof *c->cut);
    memcpy(c->pending_help, c->help, all * sizeof *c->help);
    memcpy(c->pending_lender, c->lender, sizeof c->lender);
    return cut_all(c, step);
}

void mot_cutter_after(MotCutter *c, int64_t step, int64_t steps, MotCutDecision *out)
{
    find_columns(c);
    for (uint32_t i = 0; i < c->n; i++) {
        const MotRankState *state = mot_session_rank(c->session, i);
        c->busy[i] = (double)state->busy_ns * 1e-9;
        c->total[i] = (double)(state->busy_ns + state->comm_ns + state->wait_ns) * 1e-9;
        for (uint32_t l = 0; l < c->n_layers; l++)
            c->seconds[index_of(c, l, i)] = (double)state->cut_ns[l] * 1e-9;
    }
    MotCutTimes times = {step,       steps,      c->n,   c->n_layers, c->share, c->busy,
                         c->seconds, c->columns, c->cut, c->lender,   c->help,  c->total};
    c->policy.decide(c->policy.self, &times, out);
    if (out->kind != MOT_BALANCE_MOVE && out->kind != MOT_BALANCE_UNDO)
        return;
    size_t bytes = (size_t)c->n * c->n_layers * sizeof *c->pending;
    memcpy(c->pending, out->cut, bytes);
    memcpy(c->pending_help, out->help, bytes);
    memcpy(c->pending_lender, out->lender, c->n * sizeof *out->lender);
    c->effective = step + MOT_BALANCE_DELAY;
}

double mot_cutter_part(const MotCutter *c, uint32_t rank, const int64_t *cut)
{
    const MotProgram *p = program_of(c);
    double left_out = 0, all = 0;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        int64_t columns = c->columns[index_of(c, l, rank)];
        all += p->cuts.data[l].flops;
        if (columns)
            left_out += p->cuts.data[l].flops * (double)cut[l] / (double)columns;
    }
    return left_out / all;
}
