/*
 * passes/graph: the optimizer's text form and schedule, its state, the updates against PyTorch's
 * formulas, clipping.
 */
#include "ir/builder.h"
#include "ir/eval.h"
#include "passes/graph/edit.h"
#include "passes/graph/optimizer.h"
#include "passes/pipeline.h"
#include "tests/test_ctx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check_close(double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("%.17g instead of %.17g", got, expected);
}

static MotOptimizer parse(MotCtx *ctx, const char *text)
{
    MotOptimizer o;
    if (mot_optimizer_parse(ctx, text, &o) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return o;
}

/* ---- Text ---- */

static void an_optimizer_parses(void **state)
{
    MotOptimizer o =
        parse(*state, "adamw:lr=3e-4,betas=0.9/0.95,eps=1e-7,wd=0.1,nodecay=*.bias,clip=1.0,"
                      "nodecay=ln_*,schedule=cosine,warmup=100");
    assert_int_equal(o.update, MOT_OP_ADAM);
    assert_true(o.decoupled && o.is_cosine);
    check_close(o.lr, 3e-4, 0);
    check_close(o.beta1, 0.9, 0);
    check_close(o.beta2, 0.95, 0);
    check_close(o.eps, 1e-7, 0);
    check_close(o.wd, 0.1, 0);
    check_close(o.clip, 1, 0);
    assert_int_equal(o.warmup, 100);
    assert_int_equal(o.n_nodecay, 2);
    assert_string_equal(o.nodecay[0], "*.bias");
    assert_string_equal(o.nodecay[1], "ln_*");
}

static void defaults_are_pytorchs(void **state)
{
    MotOptimizer sgd = parse(*state, "sgd:lr=0.1"), adam = parse(*state, "adam"),
                 adamw = parse(*state, "adamw");
    assert_int_equal(sgd.update, MOT_OP_SGD);
    assert_true(sgd.wd == 0 && sgd.momentum == 0 && sgd.clip == 0);
    assert_int_equal(parse(*state, "sgd:lr=0.1,momentum=0.5").update, MOT_OP_MOMENTUM);
    assert_int_equal(parse(*state, "sgd:momentum=0").update, MOT_OP_SGD);
    check_close(parse(*state, "momentum:lr=0.1").momentum, 0.9, 0);
    assert_true(adam.lr == 1e-3 && adam.beta1 == 0.9 && adam.beta2 == 0.999 && adam.eps == 1e-8 &&
                adam.wd == 0);
    assert_true(!adam.decoupled && adamw.decoupled && adamw.wd == 0.01);
    assert_true(!adam.is_cosine && adam.warmup == 0);
}

/* Of two texts, whether they mean the same. */
static void spelling_is_no_matter(void **state)
{
    static const struct {
        const char *a, *b;
        bool is_same;
    } pairs[] = {
        {"adamw", "adamw:lr=1e-3,betas=0.9/0.999,eps=1e-8,wd=0.01,warmup=0,schedule=constant",
         true},
        {"adamw:lr=3e-4,clip=1", "adamw:clip=1.0,lr=0.0003", true},
        {"adamw:nodecay=a,nodecay=b", "adamw:nodecay=b,nodecay=a,nodecay=b", true},
        {"momentum", "sgd:momentum=0.9", true},
        {"demo:replicas=4,k=8", "demo:k=8,s=64,wire=f32,replicas=2,delay=0", true},
        {"adamw", "adam", false},
        {"adamw", "adamw:wd=0", false},
        {"adamw", "adamw:betas=0.9/0.99", false},
        {"adamw:nodecay=a", "adamw", false},
        {"adamw:nodecay=a", "adamw:nodecay=b", false},
        {"adamw:schedule=cosine", "adamw", false},
        {"adamw:warmup=3", "adamw:warmup=4", false},
        {"sgd", "sgd:momentum=0.5", false},
        {"demo:replicas=4,k=8", "demo:replicas=4,k=9", false},
        {"demo:replicas=4", "demo:replicas=4,wire=int8", false},
        {"demo:replicas=4,k=8,wire=sign", "sgd", false},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        MotOptimizer a = parse(*state, pairs[i].a), b = parse(*state, pairs[i].b);
        assert_int_equal(mot_optimizer_is_same(&a, &b), pairs[i].is_same);
        assert_int_equal(mot_optimizer_is_same(&b, &a), pairs[i].is_same);
        assert_true(mot_optimizer_is_same(&a, &a));
    }
}

static void bad_text_is_refused_and_its_neighbour_accepted(void **state)
{
    MotCtx *ctx = *state;
    static const struct {
        const char *bad, *message, *good;
    } pairs[] = {
        {"adamx:lr=1", "unknown optimizer", "adamw:lr=1"},
        {"", "unknown optimizer", "sgd"},
        {"sgd:lr", "not key=value", "sgd:lr=1"},
        {"sgd:lr=", "0 or more", "sgd:lr=0"},
        {"sgd:lr=-1", "0 or more", "sgd:lr=1"},
        {"sgd:lr=nan", "0 or more", "sgd:lr=1e-9"},
        {"sgd:lr=inf", "0 or more", "sgd:lr=1e9"},
        {"sgd:lr=1x", "0 or more", "sgd:lr=1"},
        {"sgd:lr=1,lr=2", "given twice", "sgd:lr=1,wd=2"},
        {"sgd:betas=0.9/0.9", "no betas", "adam:betas=0.9/0.9"},
        {"demo:lr=0.1", "replicas=N is needed", "demo:lr=0.1,replicas=2"},
        {"demo:replicas=0", "an integer from 1", "demo:replicas=1"},
        {"demo:replicas=2,k=1.5", "an integer from 1", "demo:replicas=2,k=1"},
        {"demo:replicas=2,wire=f16", "f32, bf16, int8 or sign", "demo:replicas=2,wire=bf16"},
        {"demo:replicas=2,base=sgd", "averaged momentum", "demo:replicas=2,base=sgd,beta=0.9"},
        {"demo:replicas=2,base=sgd,beta=0.9,wire=sign", "base=sign only",
         "demo:replicas=2,wire=sign"},
        {"demo:replicas=2,base=muon,wire=sign", "base=sign only", "demo:replicas=2,base=muon"},
        {"demo:replicas=2,select=some", "random or striding", "demo:replicas=2,select=random"},
        {"demo:replicas=2,delay=2", "0 or 1 round", "demo:replicas=2,delay=1,select=striding"},
        {"demo:replicas=2,lookahead=1", "delay=1 and base=sign only",
         "demo:replicas=2,delay=1,lookahead=1"},
        {"demo:replicas=2,delay=1,lookahead=1,base=muon", "delay=1 and base=sign only",
         "demo:replicas=2,delay=1,base=muon"},
        {"demo:replicas=2,decay=1", "[0, 1)", "demo:replicas=2,decay=0.99"},
        {"demo:replicas=2,alpha=1.5", "from 0 to 1", "demo:replicas=2,alpha=1"},
        {"demo:replicas=2,beta=0.9,decay=0.9", "instead of decay", "demo:replicas=2,beta=0.9"},
        {"adamw:replicas=2", "no such option", "adamw:wd=0"},
        {"adam:betas=0.9", "two numbers", "adam:betas=0.9/0"},
        {"adam:betas=0.9/1", "two numbers", "adam:betas=0/0.999"},
        {"adam:betas=0.9/0.9/0.9", "two numbers", "adam:betas=0.9/0.9"},
        {"adam:momentum=0.9", "no such option", "sgd:momentum=0.9"},
        {"sgd:momentum=1", "in [0, 1)", "sgd:momentum=0.99"},
        {"sgd:eps=1", "no such option", "adam:eps=1"},
        {"sgd:schedule=step", "constant and cosine", "sgd:schedule=constant"},
        {"sgd:warmup=1.5", "a number of steps", "sgd:warmup=2"},
        {"sgd:warmup=-1", "a number of steps", "sgd:warmup=0"},
        {"sgd:nodecay=", "a glob", "sgd:nodecay=*"},
        {"sgd:speed=1", "unknown option", "sgd:wd=1"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        MotOptimizer o;
        assert_int_equal(mot_optimizer_parse(ctx, pairs[i].bad, &o), MOT_ERR_USAGE);
        if (!strstr(mot_text_get(&ctx->error), pairs[i].message))
            fail_msg("%s: %s", pairs[i].bad, mot_text_get(&ctx->error));
        mot_error_clear(ctx);
        parse(ctx, pairs[i].good);
    }
}

static void the_lr_warms_up_and_falls_along_a_cosine(void **state)
{
    MotOptimizer o = parse(*state, "sgd:lr=2,schedule=cosine,warmup=4");
    static const double expected[] = {0.5, 1, 1.5, 2, 2};
    for (int64_t step = 1; step <= 5; step++)
        check_close(mot_schedule_lr(&o, step, 12), expected[step - 1], 1e-15);
    check_close(mot_schedule_lr(&o, 9, 12), 1, 1e-15); /* half of the way from step 5 to 13 */
    check_close(mot_schedule_lr(&o, 13, 12), 0, 1e-15);
    check_close(mot_schedule_lr(&o, 99, 12), 0, 1e-15);
    MotOptimizer flat = parse(*state, "sgd:lr=2,warmup=2");
    check_close(mot_schedule_lr(&flat, 1, 12), 1, 0);
    check_close(mot_schedule_lr(&flat, 9, 12), 2, 0);
    MotOptimizer all_warm = parse(*state, "sgd:lr=2,schedule=cosine,warmup=12");
    check_close(mot_schedule_lr(&all_warm, 12, 12), 2, 0);
    check_close(mot_schedule_lr(&all_warm, 13, 12), 2, 0);
}

/* ---- Training one vector: loss = sum of c w, so that the gradient is c ---- */

enum { N = 3 };
static const double slope[N] = {0.5, -2, 3};

static MotGraph *training_graph(MotCtx *ctx, const MotOptimizer *o)
{
    static const char text[] = "graph @t {\n"
                               "%w = param {name=\"l.w\", file_dims=[3], trained} : f32[3]\n"
                               "%c = constant {data=[0.5, -2.0, 3.0]} : f32[3]\n"
                               "%y = mul %w %c : f32[3]\n"
                               "%loss = reduce_sum %y {axes=[0]} : f32\n"
                               "output %loss {name=\"loss\"}\n}\n";
    MotGraph *g = NULL;
    MotPassOpts opts = {.optimizer = o};
    if (mot_graph_parse(ctx, "test", text, &g) != MOT_OK ||
        mot_passes_run(ctx, g, &opts, "autodiff", "optimizer") != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return g;
}

static MotTensor make_f64(MotCtx *ctx, MotType type, double fill)
{
    type.dtype = MOT_F64;
    double *data = mot_arena_array(&ctx->arena, double, mot_type_elements(&type));
    for (int64_t i = 0; i < mot_type_elements(&type); i++)
        data[i] = fill;
    return (MotTensor){type, data};
}

/*
 * Runs the steps with the reference evaluator; the parameter starts as 1, 1, 1, state as 0. Returns
 * the values of the last.
 */
static MotTensor *train(MotCtx *ctx, const MotGraph *g, const MotOptimizer *o, int n_steps)
{
    MotTensor *values = NULL, *held = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_PARAM)
            held[op->out[0]] = make_f64(ctx, *mot_graph_type(g, op->out[0]),
                                        mot_attrs(op, param)->state_of ? 0 : 1);
    }
    MotValue lr = mot_edit_find_input(g, MOT_INPUT_LR),
             counter = mot_edit_find_input(g, MOT_INPUT_STEP);
    for (int step = 1; step <= n_steps; step++) {
        values = mot_arena_copy(&ctx->arena, held, g->values.n * sizeof *held);
        values[lr] = make_f64(ctx, mot_type_scalar(MOT_F64), mot_schedule_lr(o, step, n_steps));
        if (counter)
            values[counter] = make_f64(ctx, mot_type_scalar(MOT_F64), step);
        if (mot_eval_graph(ctx, g, values, true) != MOT_OK)
            fail_msg("%s", mot_text_get(&ctx->error));
        for (uint32_t i = 0; i < g->body.n; i++) {
            const MotOp *op = mot_graph_op(g, g->body.data[i]);
            if (op->kind == MOT_OP_ASSIGN)
                held[op->in[0]] = values[op->in[1]];
        }
    }
    for (uint32_t v = 1; v < g->values.n; v++)
        if (held[v].data)
            values[v] = held[v];
    return values;
}

static void check_weights(MotCtx *ctx, const char *text, int n_steps, const double *expected)
{
    MotOptimizer o = parse(ctx, text);
    MotGraph *g = training_graph(ctx, &o);
    MotTensor *values = train(ctx, g, &o, n_steps);
    MotValue w = mot_edit_find_param(g, "l.w");
    for (int i = 0; i < N; i++)
        check_close(mot_tensor_get(&values[w], i), expected[i], 1e-12);
}

static void sgd_and_momentum_follow_pytorch(void **state)
{
    double w[N], m[N];
    for (int i = 0; i < N; i++) {
        w[i] = 1;
        m[i] = 0;
        for (int step = 0; step < 3; step++)
            w[i] -= 0.1 * (slope[i] + 0.2 * w[i]);
    }
    check_weights(*state, "sgd:lr=0.1,wd=0.2", 3, w);
    for (int i = 0; i < N; i++) {
        w[i] = 1;
        for (int step = 0; step < 3; step++) {
            m[i] = 0.9 * m[i] + slope[i] + 0.2 * w[i];
            w[i] -= 0.1 * m[i];
        }
    }
    check_weights(*state, "sgd:lr=0.1,momentum=0.9,wd=0.2", 3, w);
}

/* torch.optim.Adam and AdamW, as their documentation writes them. */
static void adam_by_hand(double *w, double wd, bool decoupled, int n_steps)
{
    for (int i = 0; i < N; i++) {
        double m = 0, v = 0;
        w[i] = 1;
        for (int step = 1; step <= n_steps; step++) {
            double g = slope[i] + (decoupled ? 0 : wd * w[i]);
            w[i] -= decoupled ? 0.1 * wd * w[i] : 0;
            m = 0.9 * m + (1 - 0.9) * g;
            v = 0.95 * v + (1 - 0.95) * g * g;
            double m_hat = m / (1 - pow(0.9, step)), v_hat = v / (1 - pow(0.95, step));
            w[i] -= 0.1 * m_hat / (sqrt(v_hat) + 1e-8);
        }
    }
}

static void adam_and_adamw_follow_pytorch(void **state)
{
    double w[N];
    adam_by_hand(w, 0.2, false, 4);
    check_weights(*state, "adam:lr=0.1,betas=0.9/0.95,wd=0.2", 4, w);
    adam_by_hand(w, 0.2, true, 4);
    check_weights(*state, "adamw:lr=0.1,betas=0.9/0.95,wd=0.2", 4, w);
    adam_by_hand(w, 0, true, 4);
    check_weights(*state, "adamw:lr=0.1,betas=0.9/0.95,wd=0.2,nodecay=l.?", 4, w);
}

static void clipping_bounds_the_global_norm(void **state)
{
    double w[N], norm = sqrt(0.25 + 4 + 9);
    for (int i = 0; i < N; i++)
        w[i] = 1 - 0.1 * slope[i] * 0.5 / (norm + 1e-6);
    check_weights(*state, "sgd:lr=0.1,clip=0.5", 1, w);
    for (int i = 0; i < N; i++)
        w[i] = 1 - 0.1 * slope[i];
    check_weights(*state, "sgd:lr=0.1,clip=100", 1, w);
    MotOptimizer o = parse(*state, "sgd:lr=0.1,clip=0.5");
    MotGraph *g = training_graph(*state, &o);
    MotTensor *values = train(*state, g, &o, 1);
    check_close(mot_tensor_get(&values[mot_edit_find_output(g, MOT_OUTPUT_GRAD_NORM)], 0), norm,
                1e-12);
}

static void state_lies_as_its_parameter_does(void **state)
{
    MotCtx *ctx = *state;
    MotOptimizer o = parse(ctx, "adamw");
    MotGraph *g = training_graph(ctx, &o);
    static const char *const names[] = {"l.w/exp_avg", "l.w/exp_avg_sq"};
    for (int i = 0; i < 2; i++) {
        MotValue v = mot_edit_find_param(g, names[i]);
        assert_true(v != 0);
        const MotAttr_param *attrs = mot_attrs(mot_graph_def(g, v), param);
        assert_string_equal(attrs->state_of, "l.w");
        assert_false(attrs->trained);
        assert_int_equal(attrs->file_dims.n, 1);
        assert_int_equal(attrs->file_dims.data[0], 3);
    }
    MotOptimizer momentum = parse(ctx, "momentum");
    MotGraph *h = training_graph(ctx, &momentum);
    assert_true(mot_edit_find_param(h, "l.w/momentum_buffer") != 0);
    assert_true(mot_edit_find_input(h, MOT_INPUT_STEP) == 0);
}

static void passes_without_their_part_are_refused(void **state)
{
    MotCtx *ctx = *state;
    MotOptimizer o = parse(ctx, "sgd");
    static const char *const passes[] = {"clip", "optimizer"};
    for (int i = 0; i < 2; i++)
        for (int has = 0; has < 2; has++) {
            MotPassOpts opts = {.optimizer = has ? &o : NULL};
            MotGraph *g = mot_graph_make(ctx, "t");
            assert_int_equal(mot_passes_run_list(ctx, g, &opts, passes[i]), MOT_ERR_USAGE);
            assert_non_null(
                strstr(mot_text_get(&ctx->error), has ? "has no gradients" : "no optimizer"));
            mot_error_clear(ctx);
        }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)
    const struct CMUnitTest tests[] = {
        TEST(an_optimizer_parses),
        TEST(defaults_are_pytorchs),
        TEST(spelling_is_no_matter),
        TEST(bad_text_is_refused_and_its_neighbour_accepted),
        TEST(the_lr_warms_up_and_falls_along_a_cosine),
        TEST(sgd_and_momentum_follow_pytorch),
        TEST(adam_and_adamw_follow_pytorch),
        TEST(clipping_bounds_the_global_norm),
        TEST(state_lies_as_its_parameter_does),
        TEST(passes_without_their_part_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
