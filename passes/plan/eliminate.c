/*
 * Variable elimination: a variable's tables are replaced by one message over its neighbours, each
 * entry of which is the front of the best choices; decisions are read back from the messages in
 * reverse order. Cost: the largest table times the variable's choices.
 */
#include "passes/plan/eliminate.h"

#include <stdlib.h>
#include <string.h>

size_t mot_table_index(const uint32_t *scope, uint32_t n_scope, const uint32_t *n_choices,
                       const uint32_t *choice)
{
    size_t index = 0;
    for (uint32_t i = 0; i < n_scope; i++)
        index = index * n_choices[scope[i]] + choice[scope[i]];
    return index;
}

bool mot_table_next(const uint32_t *scope, uint32_t n_scope, const uint32_t *n_choices,
                    uint32_t *choice)
{
    for (uint32_t i = n_scope; i-- > 0;) {
        if (++choice[scope[i]] < n_choices[scope[i]])
            return true;
        choice[scope[i]] = 0;
    }
    return false;
}

MotLabel mot_problem_evaluate(const MotProblem *problem, const uint32_t *choice)
{
    MotLabel sum = {0};
    for (uint32_t t = 0; t < problem->tables.n; t++) {
        const MotTable *table = &problem->tables.data[t];
        sum = mot_label_add(sum, table->label[mot_table_index(table->scope, table->n_scope,
                                                              problem->n_choices, choice)]);
    }
    return sum;
}

/*
 * Labels with the decisions that led to them: the eliminated variable's choice, and which label of
 * each used message.
 */
typedef struct {
    uint32_t n;
    MotLabel *label;
    uint32_t *choice;
    uint8_t *pick; /* [n][n_used] */
} Front;

/*
 * A table in the elimination: one of the problem, or the message that an eliminated variable left.
 */
typedef struct {
    uint32_t n_scope, *scope;
    Front *entry;
    uint32_t n_used, *used; /* the messages that went in */
    uint32_t var;           /* UINT32_MAX: a table of the problem, or the root */
    bool is_used;
} Message;

typedef struct {
    MotCtx *ctx;
    const MotProblem *p;
    MotVec(Message) messages;
    uint64_t *near; /* [n_vars][n_words] adjacency */
    uint32_t n_words;
    bool *is_gone;
    uint32_t *choice;     /* [n_vars] the assignment at hand */
    Front now, next, all; /* scratch, for messages that use up to n_scratch others */
    uint32_t *order;      /* scratch: the labels that pruning keeps */
    uint32_t n_scratch;
} Elimination;

static bool is_near(const Elimination *e, uint32_t a, uint32_t b)
{
    return e->near[(size_t)a * e->n_words + b / 64] >> (b % 64) & 1;
}

static void join(Elimination *e, uint32_t a, uint32_t b)
{
    e->near[(size_t)a * e->n_words + b / 64] |= (uint64_t)1 << (b % 64);
    e->near[(size_t)b * e->n_words + a / 64] |= (uint64_t)1 << (a % 64);
}

static uint32_t list_neighbours(const Elimination *e, uint32_t var, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < e->n_words; w++)
        for (uint64_t bits = e->near[(size_t)var * e->n_words + w]; bits; bits &= bits - 1) {
            uint32_t other = w * 64 + (uint32_t)__builtin_ctzll(bits);
            if (other != var && !e->is_gone[other])
                out[n++] = other;
        }
    return n;
}

/*
 * Edges that eliminating the variable would add, and the entries of the table that it would make.
 */
static void weigh(const Elimination *e, uint32_t var, uint32_t *scratch, uint64_t *out_fill,
                  double *out_entries)
{
    uint32_t n = list_neighbours(e, var, scratch);
    *out_fill = 0;
    *out_entries = e->p->n_choices[var];
    for (uint32_t i = 0; i < n; i++) {
        *out_entries *= e->p->n_choices[scratch[i]];
        for (uint32_t k = 0; k < i; k++)
            *out_fill += !is_near(e, scratch[i], scratch[k]);
    }
}

static int compare_labels(const MotLabel *a, const MotLabel *b)
{
    if (a->seconds != b->seconds)
        return a->seconds < b->seconds ? -1 : 1;
    if (a->whole != b->whole)
        return a->whole < b->whole ? -1 : 1;
    return (a->split > b->split) - (a->split < b->split);
}

typedef struct {
    const MotLabel *label;
    uint32_t index;
} Ranked;

static int compare_ranked(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    int by_label = compare_labels(x->label, y->label);
    return by_label ? by_label : (x->index > y->index) - (x->index < y->index);
}

/* The indices of the labels to keep, the fastest first. */
static uint32_t choose_front(Elimination *e, const Front *f)
{
    uint32_t *keep = e->order, n = 0;
    if (!e->p->has_memory) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < f->n; i++)
            if (f->label[i].seconds < f->label[best].seconds)
                best = i;
        keep[0] = best;
        return f->n ? 1 : 0;
    }
    MotArenaMark mark = mot_arena_mark(&e->ctx->arena);
    Ranked *ranked = mot_arena_array(&e->ctx->arena, Ranked, f->n + 1);
    for (uint32_t i = 0; i < f->n; i++)
        ranked[i] = (Ranked){&f->label[i], i};
    qsort(ranked, f->n, sizeof *ranked, compare_ranked);
    for (uint32_t i = 0; i < f->n; i++) {
        bool is_dominated = false;
        for (uint32_t k = 0; k < n && !is_dominated; k++)
            is_dominated = f->label[keep[k]].whole <= ranked[i].label->whole &&
                           f->label[keep[k]].split <= ranked[i].label->split;
        if (!is_dominated)
            keep[n++] = ranked[i].index;
    }
    /* Too many: every n/32-th, the fastest and the slowest among them. */
    if (n > MOT_MAX_LABELS) {
        for (uint32_t i = 0; i < MOT_MAX_LABELS; i++)
            keep[i] = keep[(size_t)i * (n - 1) / (MOT_MAX_LABELS - 1)];
        n = MOT_MAX_LABELS;
    }
    mot_arena_rewind(&e->ctx->arena, mark);
    return n;
}

static void move_label(const Front *from, uint32_t i, Front *to, uint32_t n_used)
{
    to->label[to->n] = from->label[i];
    to->choice[to->n] = from->choice[i];
    memcpy(to->pick + (size_t)to->n * n_used, from->pick + (size_t)i * n_used, n_used);
    to->n++;
}

/* now := the front of now (+) entry; the pick of each is written to column `column`. */
static void combine(Elimination *e, const Front *entry, uint32_t column, uint32_t n_used)
{
    Front *next = &e->next;
    next->n = 0;
    for (uint32_t i = 0; i < e->now.n; i++)
        for (uint32_t k = 0; k < entry->n; k++) {
            uint32_t at = next->n;
            move_label(&e->now, i, next, n_used);
            next->label[at] = mot_label_add(e->now.label[i], entry->label[k]);
            next->pick[(size_t)at * n_used + column] = (uint8_t)k;
        }
    uint32_t n = choose_front(e, next);
    e->now.n = 0;
    for (uint32_t i = 0; i < n; i++)
        move_label(next, e->order[i], &e->now, n_used);
}

static Front make_front(MotArena *arena, uint32_t n, uint32_t n_used)
{
    return (Front){.label = mot_arena_array(arena, MotLabel, n),
                   .choice = mot_arena_array(arena, uint32_t, n),
                   .pick = mot_arena_array(arena, uint8_t, (size_t)n *n_used + 1)};
}

/*
 * The front over the choices of `var` (UINT32_MAX: there is none, tables are only added) under the
 * assignment at hand.
 */
static Front solve_entry(Elimination *e, const Message *m)
{
    const MotProblem *p = e->p;
    uint32_t n_choices = m->var == UINT32_MAX ? 1 : p->n_choices[m->var];
    e->all.n = 0;
    for (uint32_t s = 0; s < n_choices; s++) {
        if (m->var != UINT32_MAX)
            e->choice[m->var] = s;
        e->now.n = 1;
        e->now.label[0] = (MotLabel){0};
        e->now.choice[0] = s;
        memset(e->now.pick, 0, m->n_used);
        for (uint32_t u = 0; u < m->n_used; u++) {
            const Message *from = &e->messages.data[m->used[u]];
            combine(
                e,
                &from->entry[mot_table_index(from->scope, from->n_scope, p->n_choices, e->choice)],
                u, m->n_used);
        }
        for (uint32_t i = 0; i < e->now.n; i++)
            move_label(&e->now, i, &e->all, m->n_used);
    }
    uint32_t n = choose_front(e, &e->all);
    Front result = make_front(&e->ctx->arena, n, m->n_used);
    for (uint32_t i = 0; i < n; i++)
        move_label(&e->all, e->order[i], &result, m->n_used);
    return result;
}

/* Makes the scratch fronts large enough for messages that use n_used others. */
static void reserve_scratch(Elimination *e, uint32_t n_used)
{
    if (e->order && n_used <= e->n_scratch)
        return;
    e->n_scratch = 2 * n_used;
    uint32_t most = MOT_MAX_LABELS;
    for (uint32_t v = 0; v < e->p->n_vars; v++)
        most = e->p->n_choices[v] > most ? e->p->n_choices[v] : most;
    uint32_t capacity = MOT_MAX_LABELS * most;
    e->now = make_front(&e->ctx->arena, MOT_MAX_LABELS, e->n_scratch);
    e->next = make_front(&e->ctx->arena, capacity, e->n_scratch);
    e->all = make_front(&e->ctx->arena, capacity, e->n_scratch);
    e->order = mot_arena_array(&e->ctx->arena, uint32_t, capacity);
}

static bool has_in_scope(const Message *m, uint32_t var)
{
    for (uint32_t i = 0; i < m->n_scope; i++)
        if (m->scope[i] == var)
            return true;
    return false;
}

/* Replaces the messages that hold `var` (UINT32_MAX: all that are left) by one over `scope`. */
static void replace_messages(Elimination *e, uint32_t var, const uint32_t *scope, uint32_t n_scope)
{
    MotArena *arena = &e->ctx->arena;
    Message m = {.n_scope = n_scope,
                 .var = var,
                 .scope = mot_arena_copy(arena, scope, n_scope * sizeof *scope)};
    m.used = mot_arena_array(arena, uint32_t, e->messages.n);
    for (uint32_t i = 0; i < e->messages.n; i++) {
        Message *from = &e->messages.data[i];
        if (from->is_used || (var != UINT32_MAX && !has_in_scope(from, var)))
            continue;
        from->is_used = true;
        m.used[m.n_used++] = i;
    }
    reserve_scratch(e, m.n_used);
    size_t n = 1;
    for (uint32_t i = 0; i < n_scope; i++) {
        n *= e->p->n_choices[scope[i]];
        e->choice[scope[i]] = 0;
    }
    m.entry = mot_arena_array(arena, Front, n);
    size_t at = 0;
    do
        m.entry[at++] = solve_entry(e, &m);
    while (mot_table_next(m.scope, n_scope, e->p->n_choices, e->choice));
    mot_vec_push(arena, &e->messages, m);
}

static void add_problem_tables(Elimination *e)
{
    const MotProblem *p = e->p;
    MotArena *arena = &e->ctx->arena;
    for (uint32_t t = 0; t < p->tables.n; t++) {
        const MotTable *table = &p->tables.data[t];
        size_t n = 1;
        for (uint32_t i = 0; i < table->n_scope; i++) {
            n *= p->n_choices[table->scope[i]];
            for (uint32_t k = 0; k < i; k++)
                join(e, table->scope[i], table->scope[k]);
        }
        Message m = {.n_scope = table->n_scope,
                     .scope = table->scope,
                     .var = UINT32_MAX,
                     .entry = mot_arena_array(arena, Front, n)};
        for (size_t i = 0; i < n; i++)
            m.entry[i] = (Front){.n = 1, .label = &table->label[i]};
        mot_vec_push(arena, &e->messages, m);
    }
}

/* The variable to eliminate next: least fill, then the smallest table, then the lowest index. */
static uint32_t choose_var(const Elimination *e, const uint64_t *fill, const double *entries)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t v = 0; v < e->p->n_vars; v++) {
        if (e->is_gone[v])
            continue;
        if (best == UINT32_MAX || fill[v] < fill[best] ||
            (fill[v] == fill[best] && entries[v] < entries[best]))
            best = v;
    }
    return best;
}

/* Eliminates all variables; false if a table would exceed the limit. */
static bool eliminate_all(Elimination *e, MotSolutions *out)
{
    const MotProblem *p = e->p;
    MotArena *arena = &e->ctx->arena;
    double limit = (double)(p->max_table ? p->max_table : MOT_MAX_TABLE);
    uint32_t *scope = mot_arena_array(arena, uint32_t, p->n_vars + 1);
    uint32_t *second = mot_arena_array(arena, uint32_t, p->n_vars + 1);
    uint32_t *scratch = mot_arena_array(arena, uint32_t, p->n_vars + 1);
    uint64_t *fill = mot_arena_array(arena, uint64_t, p->n_vars + 1);
    double *entries = mot_arena_array(arena, double, p->n_vars + 1);
    for (uint32_t v = 0; v < p->n_vars; v++)
        weigh(e, v, scratch, &fill[v], &entries[v]);
    for (uint32_t i = 0; i < p->n_vars; i++) {
        uint32_t var = choose_var(e, fill, entries), n = list_neighbours(e, var, scope);
        if (entries[var] > limit)
            return false;
        out->width = n + 1 > out->width ? n + 1 : out->width;
        out->largest_table =
            (size_t)entries[var] > out->largest_table ? (size_t)entries[var] : out->largest_table;
        replace_messages(e, var, scope, n);
        e->is_gone[var] = true;
        for (uint32_t a = 0; a < n; a++)
            for (uint32_t b = 0; b < a; b++)
                join(e, scope[a], scope[b]);
        /* Fill changed for the neighbours, and for theirs. */
        for (uint32_t a = 0; a < n; a++) {
            weigh(e, scope[a], scratch, &fill[scope[a]], &entries[scope[a]]);
            uint32_t m = list_neighbours(e, scope[a], second);
            for (uint32_t b = 0; n > 1 && b < m; b++)
                weigh(e, second[b], scratch, &fill[second[b]], &entries[second[b]]);
        }
    }
    replace_messages(e, UINT32_MAX, NULL, 0);
    return true;
}

/* The assignment behind label `index` of the root: later messages decide first. */
static uint32_t *read_back(const Elimination *e, uint32_t index)
{
    const MotProblem *p = e->p;
    uint32_t *choice = mot_arena_array(&e->ctx->arena, uint32_t, p->n_vars + 1);
    uint32_t *picked = mot_arena_array(&e->ctx->arena, uint32_t, e->messages.n);
    picked[e->messages.n - 1] = index;
    for (uint32_t i = e->messages.n; i-- > p->tables.n;) {
        const Message *m = &e->messages.data[i];
        const Front *entry = &m->entry[mot_table_index(m->scope, m->n_scope, p->n_choices, choice)];
        if (m->var != UINT32_MAX)
            choice[m->var] = entry->choice[picked[i]];
        for (uint32_t u = 0; u < m->n_used; u++)
            picked[m->used[u]] = entry->pick[(size_t)picked[i] * m->n_used + u];
    }
    return choice;
}

void mot_minimise(MotCtx *ctx, const MotProblem *problem, MotSolutions *out_solutions)
{
    MotArena *arena = &ctx->arena;
    uint32_t n_words = problem->n_vars / 64 + 1;
    Elimination e = {.ctx = ctx,
                     .p = problem,
                     .n_words = n_words,
                     .near =
                         mot_arena_array(arena, uint64_t, (size_t)n_words *(problem->n_vars + 1)),
                     .is_gone = mot_arena_array(arena, bool, problem->n_vars + 1),
                     .choice = mot_arena_array(arena, uint32_t, problem->n_vars + 1)};
    *out_solutions = (MotSolutions){0};
    add_problem_tables(&e);
    if (!eliminate_all(&e, out_solutions)) {
        mot_minimise_by_beam(ctx, problem, out_solutions);
        return;
    }
    const Front *root = &e.messages.data[e.messages.n - 1].entry[0];
    out_solutions->n = root->n;
    out_solutions->label = root->label;
    out_solutions->choice = mot_arena_array(arena, uint32_t *, root->n);
    for (uint32_t i = 0; i < root->n; i++)
        out_solutions->choice[i] = read_back(&e, i);
    out_solutions->is_exact = true;
}
