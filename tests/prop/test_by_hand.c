/*
 * The Program that is written by hand (by_hand.h), run by two processes, against plain loops. Heads
 * and hidden units are split over the ranks, and so are the tokens of everything between attention
 * and MLP:
 *
 *     a = x + attention(x), z = a + mlp(a), loss = sum |z - target|
 *     m = floor(m / 2) + dw, w -= rate sign(m)
 *
 * Attention has no softmax, and all numbers are small multiples of powers of two: no sum rounds,
 * whatever its order. So weights, momenta and losses are those of the loops bit by bit, under any
 * shares, with columns lent, in two stages; and where columns are cut, those of loops that leave
 * them out. That no instruction can be left out is tried with each of them.
 */
#include "tests/prop/by_hand.h"

#include "codegen/codegen.h"
#include "runtime/session.h"
#include "tests/random.h"
#include "tests/test_ctx.h"

#include <ctype.h>
#include <float.h>

/* ---- The same in plain loops ---- */

enum { MAX_ELEMENTS = 128, MAX_MICRO = 2 };

typedef struct {
    double w[N_WEIGHTS][MAX_ELEMENTS], m[N_WEIGHTS][MAX_ELEMENTS], dw[N_WEIGHTS][MAX_ELEMENTS];
    double x[MAX_MICRO][T * C], target[MAX_MICRO][T * C], loss;
    bool is_cut[F]; /* the hidden unit is off, as its column of w2 is computed by nobody */
} Model;

/* The power of two that every bit of x is a multiple of. */
static double unit_of(double x)
{
    double unit = 1;
    if (x == 0)
        return DBL_MAX;
    while (x / unit != floor(x / unit))
        unit /= 2;
    return unit;
}

/*
 * A sum of float32 is the same in any order if its terms are multiples of a unit and come to less
 * than 2^24 of them.
 */
typedef struct {
    double value, size, unit;
} Sum;

static void add(Sum *sum, double term)
{
    double unit = unit_of(term);
    sum->value += term;
    sum->size += fabs(term);
    if (sum->unit == 0 || unit < sum->unit)
        sum->unit = unit;
    if (sum->size / sum->unit > 0x1p24)
        fail_msg("the numbers are no longer such that no sum rounds");
}

static int size_of(char letter)
{
    return letter == 'c' ? C : letter == 'h' ? H : letter == 'd' ? D : letter == 'f' ? F : T;
}

/* The place of an element in a tensor whose dims are the letters up to the next other character. */
static int place_of(const char *letters, const int *index)
{
    int at = 0;
    for (; isalpha(*letters); letters++)
        at = at * size_of(*letters) + index[(int)*letters];
    return at;
}

/* The next combination of the letters' indices; false after the last. */
static bool count_on(const char *spec, int *index)
{
    for (const char *l = spec; *l; l++)
        if (isalpha(*l) && strchr(spec, *l) == l) {
            if (++index[(int)*l] < size_of(*l))
                return true;
            index[(int)*l] = 0;
        }
    return false;
}

/* y += the Einstein sum of a and b. */
static void multiply(const char *spec, const double *a, const double *b, double *y)
{
    const char *of_b = strchr(spec, ',') + 1, *of_y = strchr(spec, '>') + 1;
    int index[128] = {0};
    Sum sum[MAX_ELEMENTS] = {{0}};
    for (int i = 0; i < MAX_ELEMENTS; i++)
        add(&sum[i], y[i]);
    do
        add(&sum[place_of(of_y, index)], a[place_of(spec, index)] * b[place_of(of_b, index)]);
    while (count_on(spec, index));
    for (int i = 0; i < MAX_ELEMENTS; i++)
        y[i] = sum[i].value;
}

/* What is left of scores: a token reads those before it. */
static void mask(double *s)
{
    for (int i = 0; i < H * T * T; i++)
        s[i] = i % T <= i / T % T ? s[i] : 0;
}

/* Adds the gradients of micro-batch i, and its loss. */
static void differentiate(Model *l, int i)
{
    double q[MAX_ELEMENTS] = {0}, k[MAX_ELEMENTS] = {0}, v[MAX_ELEMENTS] = {0},
           s[MAX_ELEMENTS] = {0}, y[MAX_ELEMENTS] = {0}, a[MAX_ELEMENTS] = {0},
           r[MAX_ELEMENTS] = {0}, z[MAX_ELEMENTS] = {0};
    double dz[MAX_ELEMENTS] = {0}, dr[MAX_ELEMENTS] = {0}, da[MAX_ELEMENTS] = {0},
           dy[MAX_ELEMENTS] = {0}, ds[MAX_ELEMENTS] = {0}, dq[MAX_ELEMENTS] = {0},
           dk[MAX_ELEMENTS] = {0}, dv[MAX_ELEMENTS] = {0};
    memcpy(a, l->x[i], sizeof l->x[i]);
    multiply("tc,chd->thd", l->x[i], l->w[WQ], q);
    multiply("tc,chd->thd", l->x[i], l->w[WK], k);
    multiply("tc,chd->thd", l->x[i], l->w[WV], v);
    multiply("thd,uhd->htu", q, k, s);
    mask(s);
    multiply("htu,uhd->thd", s, v, y);
    multiply("thd,hdc->tc", y, l->w[WO], a);
    multiply("tc,fc->tf", a, l->w[W1], r);
    for (int e = 0; e < T * F; e++)
        r[e] = r[e] > 0 && !l->is_cut[e % F] ? r[e] : 0;
    memcpy(z, a, sizeof z);
    multiply("tf,cf->tc", r, l->w[W2], z);
    for (int e = 0; e < T * C; e++) {
        double error = z[e] - l->target[i][e];
        l->loss += fabs(error);
        dz[e] = (error > 0) - (error < 0);
    }
    multiply("tc,tf->cf", dz, r, l->dw[W2]);
    multiply("tc,cf->tf", dz, l->w[W2], dr);
    for (int e = 0; e < T * F; e++)
        dr[e] = r[e] > 0 ? dr[e] : 0;
    multiply("tf,tc->fc", dr, a, l->dw[W1]);
    memcpy(da, dz, sizeof da);
    multiply("tf,fc->tc", dr, l->w[W1], da);
    multiply("thd,tc->hdc", y, da, l->dw[WO]);
    multiply("tc,hdc->thd", da, l->w[WO], dy);
    multiply("htu,thd->uhd", s, dy, dv);
    multiply("thd,uhd->htu", dy, v, ds);
    mask(ds);
    multiply("htu,uhd->thd", ds, k, dq);
    multiply("htu,thd->uhd", ds, q, dk);
    multiply("tc,thd->chd", l->x[i], dq, l->dw[WQ]);
    multiply("tc,thd->chd", l->x[i], dk, l->dw[WK]);
    multiply("tc,thd->chd", l->x[i], dv, l->dw[WV]);
}

static const double rate = 0.5;

static void train_plainly(Model *l, uint32_t n_micro)
{
    memset(l->dw, 0, sizeof l->dw);
    l->loss = 0;
    for (uint32_t i = 0; i < n_micro; i++)
        differentiate(l, (int)i);
    for (int i = 0; i < N_WEIGHTS; i++)
        for (int e = 0; e < MAX_ELEMENTS; e++) {
            Sum m = {0};
            add(&m, floor(l->m[i][e] / 2));
            add(&m, l->dw[i][e]);
            l->m[i][e] = m.value;
            l->w[i][e] -= rate * ((m.value > 0) - (m.value < 0));
        }
}

/* ---- Both side by side ---- */

/* A session of the Program, and the plain model that it must equal. */
typedef struct {
    MotCtx *ctx;
    MotPipeline *pipeline;
    MotSession *session;
    uint32_t n_micro;
    Model model;
} Trial;

static MotTensor to_tensor(MotCtx *ctx, const double *values, MotType type)
{
    MotTensor t = {type, mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&type))};
    for (int64_t e = 0; e < mot_type_elements(&type); e++)
        mot_tensor_set(&t, e, values[e]);
    return t;
}

static const MotBuf *find_var(const Trial *t, const char *name)
{
    uint32_t stage = 0, buf = 0;
    assert_true(mot_pipeline_find(t->pipeline, name, &stage, &buf));
    return &t->pipeline->stages.data[stage]->bufs.data[buf];
}

/* Small integers, some of them 0. */
static void fill(double *values, int n, uint64_t *random)
{
    for (int i = 0; i < n; i++)
        values[i] = (double)random_below(random, 3) - 1;
}

static void write_sources(Trial *t)
{
    uint64_t random = 1;
    MotTensor tensor = to_tensor(t->ctx, &rate, mot_type_scalar(MOT_F32));
    require(t->ctx, mot_session_write(t->session, "rate", &tensor));
    for (int i = 0; i < N_WEIGHTS; i++) {
        const MotBuf *w = find_var(t, weights[i].name);
        fill(t->model.w[i], (int)mot_type_elements(&w->global), &random);
        tensor = to_tensor(t->ctx, t->model.w[i], w->global);
        require(t->ctx, mot_session_write(t->session, w->name, &tensor));
    }
    for (uint32_t i = 0; i < t->n_micro; i++) {
        fill(t->model.x[i], T * C, &random);
        fill(t->model.target[i], T * C, &random);
        tensor = to_tensor(t->ctx, t->model.x[i], find_var(t, "x")->global);
        require(t->ctx, mot_session_write_batch(t->session, "x", i, &tensor));
        tensor = to_tensor(t->ctx, t->model.target[i], find_var(t, "target")->global);
        require(t->ctx, mot_session_write_batch(t->session, "target", i, &tensor));
    }
}

static Trial open_trial(MotCtx *ctx, MotPipeline *pipeline, const char *backend)
{
    Trial t = {.ctx = ctx, .pipeline = pipeline, .n_micro = pipeline->stages.data[0]->n_micro};
    MotSessionOpts opts = {.backend = backend, .hang_seconds = 60};
    uint32_t n = mot_pipeline_ranks(pipeline);
    require(ctx, mot_pipeline_verify(pipeline));
    for (uint32_t s = 0; strcmp(backend, "cpu") == 0 && s < pipeline->stages.n; s++)
        require(ctx, mot_codegen_program(ctx, pipeline->stages.data[s],
                                         &(MotCodegenOpts){.isa = (MotIsa)mot_isa_best()}));
    require(ctx, mot_session_open(ctx, pipeline, mot_cluster_make(ctx, n, 1), &opts, &t.session));
    write_sources(&t);
    return t;
}

static bool is_same(Trial *t, const MotTensor *found, const double *wanted)
{
    MotTensor tensor = to_tensor(t->ctx, wanted, found->type);
    return memcmp(found->data, tensor.data, (size_t)mot_type_bytes(&found->type)) == 0;
}

/* The weight or momentum of which some bit is another one than in the plain model, or NULL. */
static const char *find_difference(Trial *t)
{
    MotTensor found;
    for (int i = 0; i < N_WEIGHTS; i++) {
        require(t->ctx, mot_session_read(t->session, weights[i].name, &found));
        if (!is_same(t, &found, t->model.w[i]))
            return weights[i].name;
        require(t->ctx, mot_session_read(t->session, weights[i].momentum, &found));
        if (!is_same(t, &found, t->model.m[i]))
            return weights[i].momentum;
    }
    return NULL;
}

/* A step of both; what differs then. */
static const char *step(Trial *t)
{
    MotTensor found;
    require(t->ctx, mot_session_run(t->session, MOT_SECTION_STEP));
    require(t->ctx, mot_session_output(t->session, "loss", MOT_SECTION_STEP, &found));
    train_plainly(&t->model, t->n_micro);
    return is_same(t, &found, &t->model.loss) ? find_difference(t) : "loss";
}

static void check(const char *difference, const char *when)
{
    if (difference)
        fail_msg("%s: %s differs", when, difference);
}

static const char *const backends[] = {"ref", "cpu"};
enum { N_BACKENDS = sizeof backends / sizeof *backends };

/* ---- Tests ---- */

/*
 * Tokens, heads and hidden units go from rank to rank between two steps, weights and momenta with
 * them; a rank may have none.
 */
static void shares_change_between_steps(void **state)
{
    static const int64_t shares[][2] = {{3, 1}, {1, 3}, {0, 1}, {2, 1}, {3, 1}},
                         units[] = {6, 2, 0, 5, 6};
    MotCtx *ctx = *state;
    for (int i = 0; i < N_BACKENDS; i++) {
        Trial t = open_trial(ctx, write_program(ctx, shares[0]), backends[i]);
        for (int k = 0; k < 5; k++) {
            int64_t moved;
            require(ctx, mot_session_reshare(t.session, 0, 0, shares[k], &moved));
            assert_true((moved > 0) == (k > 0));
            assert_int_equal(mot_session_columns(t.session, 0, 0), units[k]);
            check(find_difference(&t), "after a move");
            check(step(&t), mot_arena_printf(&ctx->arena, "%s, shares %d", backends[i], k));
        }
        mot_session_close(t.session);
    }
}

/* Which of its columns the rank computes from now on; the others nobody does. */
static void cut(Trial *t, uint32_t rank, const int64_t *kept, int64_t n)
{
    int64_t first = mot_session_first_column(t->session, 0, rank),
            columns = mot_session_columns(t->session, 0, rank);
    for (int64_t c = 0; c < columns; c++)
        t->model.is_cut[first + c] = true;
    for (int64_t i = 0; i < n; i++)
        t->model.is_cut[first + kept[i]] = false;
    mot_session_cut(t->session, 0, rank, kept, n);
}

/* These of the rank's columns the other rank computes. */
static void lend(Trial *t, uint32_t rank, const int64_t *lent, int64_t n)
{
    int64_t first = mot_session_first_column(t->session, 0, rank);
    for (int64_t i = 0; i < n; i++)
        t->model.is_cut[first + lent[i]] = false;
    mot_session_help(t->session, 0, 1 - rank, rank, lent, n);
}

static const int64_t columns[] = {0, 1, 2, 3, 4, 5};
static const int64_t three_to_one[] = {3, 1}; /* six columns of eight */

/* Of the columns that no rank computes nothing is added up, and their gradients are 0. */
static void columns_are_cut_between_steps(void **state)
{
    static const int64_t some[] = {0, 2, 5}, other[] = {4}, second[] = {1};
    MotCtx *ctx = *state;
    for (int i = 0; i < N_BACKENDS; i++) {
        Trial t = open_trial(ctx, write_program(ctx, three_to_one), backends[i]);
        check(step(&t), "nothing is cut");
        cut(&t, 0, some, 3);
        require(ctx, mot_session_rebind(t.session));
        check(step(&t), "rank 0 cuts");
        cut(&t, 0, other, 1);
        cut(&t, 1, second, 1);
        require(ctx, mot_session_rebind(t.session));
        check(step(&t), "both cut");
        cut(&t, 0, columns, 6);
        require(ctx, mot_session_rebind(t.session));
        check(step(&t), "rank 1 cuts");
        mot_session_close(t.session);
    }
}

/* From none to all but one, and back to none; then the other way round; then lent and cut. */
static void columns_are_lent_between_steps(void **state)
{
    static const int64_t lent[] = {4, 1}, kept[] = {0, 3};
    MotCtx *ctx = *state;
    for (int i = 0; i < N_BACKENDS; i++) {
        Trial t = open_trial(ctx, write_program(ctx, three_to_one), backends[i]);
        for (int n = 0; n <= 10; n++) {
            int n_lent = n <= 5 ? n : 10 - n;
            cut(&t, 0, columns + n_lent, 6 - n_lent);
            lend(&t, 0, columns, n_lent);
            require(ctx, mot_session_rebind(t.session));
            check(step(&t), mot_arena_printf(&ctx->arena, "%s, %d lent", backends[i], n_lent));
        }
        cut(&t, 1, columns, 1);
        lend(&t, 1, columns + 1, 1);
        require(ctx, mot_session_rebind(t.session));
        check(step(&t), "rank 1 lends");
        lend(&t, 1, columns, 0);
        cut(&t, 1, columns, 2);
        cut(&t, 0, kept, 2);
        lend(&t, 0, lent, 2);
        require(ctx, mot_session_rebind(t.session));
        check(step(&t), "rank 0 lends some and cuts others");
        mot_session_close(t.session);
    }
}

static void stages_pass_micro_batches_on(void **state)
{
    MotCtx *ctx = *state;
    for (int i = 0; i < 2 * N_BACKENDS; i++) {
        uint32_t n = i < N_BACKENDS ? 1 : 2;
        Trial t = open_trial(ctx, write_stages(ctx, n, three_to_one), backends[i % N_BACKENDS]);
        for (int k = 0; k < 4; k++)
            check(step(&t), mot_arena_printf(&ctx->arena, "%u + 1 devices, step %d", n, k));
        mot_session_close(t.session);
    }
}

/* ---- What is told ---- */

/* One stage or two, on two devices. */
static MotPipeline *write_pipeline(MotCtx *ctx, uint32_t n_stages)
{
    return n_stages == 1 ? write_program(ctx, three_to_one) : write_stages(ctx, 1, three_to_one);
}

/*
 * Whether the verifier refuses it, or two steps differ, in which (of one stage) rank 0 lends and
 * cuts and rank 1 does neither.
 */
static bool is_told(MotCtx *ctx, MotPipeline *pipeline)
{
    static const int64_t lent[] = {4, 1}, kept[] = {0, 3};
    if (mot_pipeline_verify(pipeline) != MOT_OK) {
        mot_error_clear(ctx);
        return true;
    }
    Trial t = open_trial(ctx, pipeline, "ref");
    if (pipeline->stages.n == 1) {
        cut(&t, 0, kept, 2);
        lend(&t, 0, lent, 2);
        require(ctx, mot_session_rebind(t.session));
    }
    const char *difference = step(&t);
    if (!difference)
        difference = step(&t);
    mot_session_close(t.session);
    return difference != NULL;
}

/*
 * Each instruction of the section in turn is not due when it should be: where there is one
 * micro-batch, never.
 */
static void leave_out(MotCtx *ctx, uint32_t n_stages, uint32_t stage, MotSection section)
{
    for (uint32_t i = 0, n = 1; i < n; i++) {
        MotScope scope = mot_scope_begin(ctx);
        MotPipeline *pipeline = write_pipeline(ctx, n_stages);
        const MotProgram *p = pipeline->stages.data[stage];
        n = p->section[section].n;
        if (i < n) {
            MotInstr *ins = &p->section[section].data[i];
            ins->when = ins->when == MOT_WHEN_LATER ? MOT_WHEN_FIRST : MOT_WHEN_LATER;
            if (!is_told(ctx, pipeline))
                fail_msg("stage %u of %u: nothing differs without %s instruction %u (%s)", stage,
                         n_stages, mot_section_names[section], i, mot_instr_names[ins->kind]);
        }
        mot_scope_end(ctx, scope);
    }
}

static void no_instruction_can_be_left_out(void **state)
{
    for (uint32_t n_stages = 1; n_stages <= 2; n_stages++) {
        assert_false(is_told(*state, write_pipeline(*state, n_stages)));
        for (uint32_t stage = 0; stage < n_stages; stage++)
            for (int s = 0; s < MOT_N_SECTIONS; s++)
                leave_out(*state, n_stages, stage, (MotSection)s);
    }
}

/* ---- What is refused ---- */

static MotInstr *find_instr(MotProgram *p, MotInstrKind kind)
{
    uint32_t i = 0;
    while (p->section[MOT_SECTION_STEP].data[i].kind != kind)
        i++;
    return &p->section[MOT_SECTION_STEP].data[i];
}

static void gather_on_the_compute_stream(MotProgram *p)
{
    find_instr(p, MOT_INS_ALL_GATHER)->stream = MOT_STREAM_COMPUTE;
}

static void exchange_operands(MotProgram *p)
{
    uint32_t *bufs = find_instr(p, MOT_INS_LAUNCH)->bufs, first = bufs[0];
    bufs[0] = bufs[1];
    bufs[1] = first;
}

static void forget_an_operand(MotProgram *p)
{
    MotInstr *ins = find_instr(p, MOT_INS_LAUNCH);
    ins->bufs++;
    ins->n_in--;
    ins->n_bufs--;
}

static void name_twice(MotProgram *p)
{
    for (uint32_t i = 0; i < p->bufs.n; i++)
        if (p->bufs.data[i].kind == MOT_BUF_INPUT)
            p->bufs.data[i].name = "x";
}

static void programs_that_cannot_work_are_refused(void **state)
{
    static const struct {
        void (*edit)(MotProgram *);
        const char *cause;
    } cases[] = {{gather_on_the_compute_stream, "are for the comm stream"},
                 {exchange_operands, "not what the kernel runs on"},
                 {forget_an_operand, "not what the kernel runs on"},
                 {name_twice, "has the name of another one"}};
    MotCtx *ctx = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        MotPipeline *pipeline = write_program(ctx, three_to_one);
        require(ctx, mot_pipeline_verify(pipeline));
        cases[i].edit(pipeline->stages.data[0]);
        assert_int_equal(mot_pipeline_verify(pipeline), MOT_ERR_MISMATCH);
        assert_non_null(strstr(mot_text_get(&ctx->error), cases[i].cause));
        mot_error_clear(ctx);
    }
}

/* Wherever one stream waits for the other it has to. */
static void nobody_waits_in_vain(void **state)
{
    MotCtx *ctx = *state;
    uint32_t n = write_program(ctx, three_to_one)->stages.data[0]->section[MOT_SECTION_STEP].n;
    for (uint32_t i = 0; i < n; i++) {
        MotPipeline *pipeline = write_program(ctx, three_to_one);
        MotInstr *ins = &pipeline->stages.data[0]->section[MOT_SECTION_STEP].data[i];
        if (ins->wait.n == 0)
            continue;
        ins->wait.n = 0;
        assert_int_equal(mot_pipeline_verify(pipeline), MOT_ERR_MISMATCH);
        assert_non_null(strstr(mot_text_get(&ctx->error), "the other stream may still hold"));
        mot_error_clear(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
        TEST(shares_change_between_steps),    TEST(columns_are_cut_between_steps),
        TEST(columns_are_lent_between_steps), TEST(stages_pass_micro_batches_on),
        TEST(no_instruction_can_be_left_out), TEST(programs_that_cannot_work_are_refused),
        TEST(nobody_waits_in_vain),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
