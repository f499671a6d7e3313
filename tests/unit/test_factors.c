/*
 * ir/factors. That a factor may be split is proven without its rule: for every case of the op table
 * and every factor, the operands are cut in two uneven parts, the op is evaluated on the parts, and
 * the results, concatenated or summed as the factor says, must be those of the whole. That the
 * rules do not give up too early stands in a table.
 */
#include "ir/eval.h"
#include "ir/factors.h"

#include "tests/op_cases.h"
#include "tests/test_ctx.h"

#include <math.h>

/* A case as a graph of f64, its factors, and one of them. */
typedef struct {
    MotCtx *ctx;
    const OpCase *c;
    OneOpGraph one;
    MotFactors factors;
    const MotFactor *f;
} Split;

static Split read_split(MotCtx *ctx, const OpCase *c)
{
    Split s = {.ctx = ctx, .c = c, .one = build_case(ctx, c, MOT_F64)};
    assert_non_null(s.one.op);
    assert_int_equal(mot_factors(s.one.graph, s.one.op, &s.factors), MOT_OK);
    return s;
}

/* Units [begin, end) of the f->size units of dim `dim`; the whole tensor for dim -1. */
static MotType cut_type(const Split *s, const MotType *type, int dim, int64_t begin, int64_t end)
{
    MotType part = *type;
    if (dim >= 0)
        part.dims[dim] = type->dims[dim] / s->f->size * (end - begin);
    return part;
}

static MotTensor cut(const Split *s, const MotTensor *t, int dim, int64_t begin, int64_t end)
{
    if (dim < 0 || t->type.dtype == MOT_NO_DTYPE)
        return *t;
    assert_int_equal(t->type.dims[dim] % s->f->size, 0);
    MotTensor part = make_tensor(s->ctx, cut_type(s, &t->type, dim, begin, end));
    int64_t inner = mot_dtype_bytes(t->type.dtype), outer = 1;
    for (int d = dim + 1; d < t->type.rank; d++)
        inner *= t->type.dims[d];
    for (int d = 0; d < dim; d++)
        outer *= t->type.dims[d];
    int64_t whole_bytes = inner * t->type.dims[dim], part_bytes = inner * part.type.dims[dim];
    int64_t first = begin * (t->type.dims[dim] / s->f->size) * inner;
    for (int64_t i = 0; i < outer; i++)
        memcpy((char *)part.data + i * part_bytes, (char *)t->data + i * whole_bytes + first,
               (size_t)part_bytes);
    return part;
}

static void evaluate_part(const Split *s, int64_t begin, int64_t end, MotTensor *out)
{
    MotTensor in[MAX_CASE_TENSORS];
    for (uint32_t i = 0; i < s->c->n_in; i++)
        in[i] = cut(s, &s->c->in[i], s->f->in_dim[i], begin, end);
    for (uint32_t k = 0; k < s->c->n_out; k++)
        out[k] = make_tensor(s->ctx, cut_type(s, mot_graph_type(s->one.graph, s->one.op->out[k]),
                                              s->f->out_dim[k], begin, end));
    if (mot_eval_op(s->ctx, s->one.graph, s->one.op, in, out) != MOT_OK)
        fail_msg("line %d: %s: %s", s->c->line, s->c->title, mot_text_get(&s->ctx->error));
}

static bool are_close(double x, double y)
{
    return x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= 1e-12 * fmax(1, fabs(y));
}

static void expect_equal(const Split *s, uint32_t k, const MotTensor *got, const MotTensor *wanted)
{
    assert_true(mot_type_equal(&got->type, &wanted->type));
    for (int64_t i = 0; i < mot_type_elements(&got->type); i++)
        if (!are_close(mot_tensor_get(got, i), mot_tensor_get(wanted, i)))
            fail_msg("line %d: %s: factor %d (%s %d), result %u, element %d: the parts give %.17g, "
                     "the whole %.17g",
                     s->c->line, s->c->title, (int)(s->f - s->factors.factor),
                     mot_factor_kind_names[s->f->kind], (int)s->f->size, k, (int)i,
                     mot_tensor_get(got, i), mot_tensor_get(wanted, i));
}

/* Puts b behind a in a copy of a: their sum or maximum. */
static MotTensor reduce_parts(const Split *s, const MotTensor *a, const MotTensor *b)
{
    MotTensor sum = make_tensor(s->ctx, a->type);
    bool wraps = s->f->kind == MOT_FACTOR_SUM && mot_dtype_class(a->type.dtype) == MOT_CLASS_INT;
    for (int64_t i = 0; i < mot_type_elements(&a->type); i++) {
        double x = mot_tensor_get(a, i), y = mot_tensor_get(b, i);
        if (wraps)
            mot_tensor_set_int(&sum, i, mot_tensor_get_int(a, i) + mot_tensor_get_int(b, i));
        else
            mot_tensor_set(&sum, i, s->f->kind == MOT_FACTOR_SUM ? x + y : x != x || x > y ? x : y);
    }
    return sum;
}

static void check_split(const Split *s)
{
    int64_t middle = s->f->size > 2 ? s->f->size / 3 : 1;
    MotTensor whole[MAX_CASE_TENSORS], low[MAX_CASE_TENSORS], high[MAX_CASE_TENSORS];
    Split unsplit = *s;
    MotFactor none = *s->f;
    none.in_dim =
        memset(mot_arena_array(&s->ctx->arena, int8_t, MAX_CASE_TENSORS), -1, MAX_CASE_TENSORS);
    none.out_dim = none.in_dim;
    unsplit.f = &none;
    evaluate_part(&unsplit, 0, 0, whole);
    evaluate_part(s, 0, middle, low);
    evaluate_part(s, middle, s->f->size, high);
    for (uint32_t k = 0; k < s->c->n_out; k++) {
        int8_t dim = s->f->out_dim[k];
        if (s->f->partial[k]) {
            MotTensor reduced = reduce_parts(s, &low[k], &high[k]);
            assert_true(dim < 0 && (s->f->kind == MOT_FACTOR_SUM || s->f->kind == MOT_FACTOR_MAX));
            expect_equal(s, k, &reduced, &whole[k]);
            continue;
        }
        MotTensor first = cut(s, &whole[k], dim, 0, middle),
                  second = cut(s, &whole[k], dim, middle, s->f->size);
        expect_equal(s, k, &low[k], &first);
        expect_equal(s, k, &high[k], &second);
    }
}

/* A source's value is not computed from operands: its attributes would have to be cut. */
static bool can_be_evaluated_in_parts(const OpCase *c)
{
    return c->kind != MOT_OP_CONSTANT;
}

static void the_parts_of_every_factor_make_the_whole(void **state)
{
    MotCtx *ctx = *state;
    OpCases cases = read_op_cases(ctx);
    int n_split[4] = {0};
    for (uint32_t i = 0; i < cases.n; i++) {
        Split s = read_split(ctx, &cases.data[i]);
        for (uint32_t k = 0; k < s.factors.n && can_be_evaluated_in_parts(s.c); k++) {
            s.f = &s.factors.factor[k];
            if (s.f->kind == MOT_FACTOR_WHOLE || s.f->size < 2)
                continue;
            check_split(&s);
            n_split[s.f->kind]++;
        }
    }
    assert_true(n_split[MOT_FACTOR_PARALLEL] > 300 && n_split[MOT_FACTOR_SUM] > 50 &&
                n_split[MOT_FACTOR_MAX] > 5);
}

/* Every dim has one factor, but for those of size 1, which have none. */
static void factors_cover_every_dim_once(void **state)
{
    MotCtx *ctx = *state;
    OpCases cases = read_op_cases(ctx);
    for (uint32_t i = 0; i < cases.n; i++) {
        Split s = read_split(ctx, &cases.data[i]);
        for (uint32_t t = 0; t < s.c->n_in + s.c->n_out; t++) {
            bool is_in = t < s.c->n_in;
            uint32_t at = is_in ? t : t - s.c->n_in;
            const MotType *type =
                mot_graph_type(s.one.graph, is_in ? s.one.op->in[at] : s.one.op->out[at]);
            for (int d = 0; d < type->rank; d++) {
                int n = 0, found = is_in ? mot_factor_of_operand(&s.factors, at, d)
                                         : mot_factor_of_result(&s.factors, at, d);
                for (uint32_t k = 0; k < s.factors.n; k++)
                    n += (is_in ? s.factors.factor[k].in_dim[at]
                                : s.factors.factor[k].out_dim[at]) == d;
                if (n != (type->dims[d] != 1) || (found >= 0) != (n == 1))
                    fail_msg("line %d: %s: %d factors over dim %d of %s %u", s.c->line, s.c->title,
                             n, d, is_in ? "operand" : "result", at);
            }
        }
    }
}

/* ---- Linearity ---- */

static MotTensor scale_tensor(MotCtx *ctx, const MotTensor *t, double scale)
{
    MotTensor to = make_tensor(ctx, t->type);
    for (int64_t i = 0; i < mot_type_elements(&t->type); i++)
        mot_tensor_set(&to, i, scale * (mot_tensor_get(t, i) + (double)(i % 3)));
    return to;
}

/* Result of the case's op with `replaced` in the place of operand i. */
static MotTensor evaluate_with(MotCtx *ctx, const OneOpGraph *one, const OpCase *c, uint32_t i,
                               const MotTensor *replaced)
{
    MotTensor in[MAX_CASE_TENSORS],
        out = make_tensor(ctx, *mot_graph_type(one->graph, one->op->out[0]));
    memcpy(in, c->in, sizeof in);
    in[i] = *replaced;
    assert_int_equal(mot_eval_op(ctx, one->graph, one->op, in, &out), MOT_OK);
    return out;
}

/* f(x) + f(y) = f(x + y) where the table says linear; and some operand of a case shows each other
 * row not to be. */
static void linear_operands_are_linear(void **state)
{
    MotCtx *ctx = *state;
    OpCases cases = read_op_cases(ctx);
    int n_linear = 0;
    for (uint32_t i = 0; i < cases.n; i++) {
        const OpCase *c = &cases.data[i];
        OneOpGraph one = build_case(ctx, c, MOT_F64);
        for (uint32_t k = 0; k < c->n_in; k++) {
            if (!mot_op_is_linear(one.op, k) || c->in[k].type.dtype != MOT_F64)
                continue;
            MotTensor x = scale_tensor(ctx, &c->in[k], 0.5),
                      y = scale_tensor(ctx, &c->in[k], -0.25);
            Split s = {.ctx = ctx, .c = c, .f = &(MotFactor){.kind = MOT_FACTOR_SUM}};
            MotTensor both = reduce_parts(&s, &x, &y);
            MotTensor fx = evaluate_with(ctx, &one, c, k, &x),
                      fy = evaluate_with(ctx, &one, c, k, &y);
            MotTensor sum = reduce_parts(&s, &fx, &fy),
                      whole = evaluate_with(ctx, &one, c, k, &both);
            expect_equal(&s, 0, &sum, &whole);
            n_linear++;
        }
    }
    assert_true(n_linear > 50);
}

static void what_is_linear(void **state)
{
    (void)state;
    MotAttr_cast to_float = {.dtype = MOT_BF16}, to_int = {.dtype = MOT_I32};
    const struct {
        MotOp op;
        uint32_t operand;
        bool is_linear, is_additive;
    } rows[] = {
        {{.kind = MOT_OP_NEG, .n_in = 1}, 0, true, false},
        {{.kind = MOT_OP_MUL, .n_in = 2}, 1, true, false},
        {{.kind = MOT_OP_DIV, .n_in = 2}, 0, false, false},
        {{.kind = MOT_OP_ADD, .n_in = 2}, 0, false, true},
        {{.kind = MOT_OP_CONCAT, .n_in = 2}, 0, false, true},
        {{.kind = MOT_OP_EXP, .n_in = 1}, 0, false, false},
        {{.kind = MOT_OP_REDUCE_MAX, .n_in = 1}, 0, false, false},
        {{.kind = MOT_OP_GATHER, .n_in = 2}, 0, true, false},
        {{.kind = MOT_OP_GATHER, .n_in = 2}, 1, false, false},
        {{.kind = MOT_OP_CAST, .n_in = 1, .attrs = &to_float}, 0, true, false},
        {{.kind = MOT_OP_CAST, .n_in = 1, .attrs = &to_int}, 0, false, false},
        {{.kind = MOT_OP_GELU_GRAD, .n_in = 2}, 1, true, false},
        {{.kind = MOT_OP_GELU_GRAD, .n_in = 2}, 0, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(mot_op_is_linear(&rows[i].op, rows[i].operand), rows[i].is_linear);
        assert_int_equal(mot_op_is_additive(&rows[i].op), rows[i].is_additive);
    }
}

/* ---- What the rules must find ---- */

/* "kind size: operand.dim ... -> result.dim ...", a partial result as "+1"; a factor a line. */
static const char *factors_text(const Split *s)
{
    MotText text;
    mot_text_init(&text, &s->ctx->arena);
    for (uint32_t k = 0; k < s->factors.n; k++) {
        const MotFactor *f = &s->factors.factor[k];
        mot_text_printf(&text, "%s%s %d:", k ? "\n" : "", mot_factor_kind_names[f->kind],
                        (int)f->size);
        for (uint32_t i = 0; i < s->c->n_in; i++)
            if (f->in_dim[i] >= 0)
                mot_text_printf(&text, " %u.%d", i, f->in_dim[i]);
        mot_text_puts(&text, " ->");
        for (uint32_t i = 0; i < s->c->n_out; i++) {
            if (f->out_dim[i] >= 0)
                mot_text_printf(&text, " %u.%d", i, f->out_dim[i]);
            if (f->partial[i])
                mot_text_printf(&text, " +%u", i);
        }
    }
    return mot_text_get(&text);
}

/* The first case with this title and these dims of operand 0. */
static const OpCase *find_case(const OpCases *cases, const char *title, const MotType *dims)
{
    for (uint32_t i = 0; i < cases->n; i++)
        if (strcmp(cases->data[i].title, title) == 0 &&
            mot_dims_equal(&cases->data[i].in[0].type, dims))
            return &cases->data[i];
    fail_msg("no case \"%s\"", title);
    return NULL;
}

#define DIMS(...)                                                                                  \
    {                                                                                              \
        MOT_F64, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                               \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct {
    const char *title;
    MotType dims; /* of operand 0 */
    const char *factors;
} expected[] = {
    {"case add", DIMS(2, 1, 3),
     "parallel 2: 0.0 -> 0.0\nparallel 4: 1.0 -> 0.1\nparallel 3: 0.2 -> 0.2"},
    {"case reshape dims=6,4", DIMS(2, 3, 4),
     "parallel 2: 0.0 -> 0.0\nparallel 4: 0.2 -> 0.1\nwhole 3: 0.1 ->"},
    {"case reshape dims=2,3,4", DIMS(6, 4),
     "parallel 2: 0.0 -> 0.0\nwhole 3: -> 0.1\nparallel 4: 0.1 -> 0.2"},
    {"case reshape dims=8,3", DIMS(4, 6),
     "parallel 4: 0.0 -> 0.0\nwhole 3: -> 0.1\nwhole 6: 0.1 ->"},
    {"case reshape dims=3,4", DIMS(4, 3), "whole 4: 0.0 -> 0.0\nwhole 4: -> 0.1\nwhole 3: 0.1 ->"},
    {"case transpose perm=2,0,1", DIMS(2, 3, 4),
     "parallel 4: 0.2 -> 0.0\nparallel 2: 0.0 -> 0.1\nparallel 3: 0.1 -> 0.2"},
    {"case broadcast dims=2,3", DIMS(2, 1), "parallel 2: 0.0 -> 0.0\nparallel 3: -> 0.1"},
    {"case slice start=1,0 size=2,5 step=1,1", DIMS(4, 5),
     "whole 4: 0.0 -> 0.0\nparallel 5: 0.1 -> 0.1"},
    {"case pad lo=0,1,0 hi=0,0,0 value=0.5", DIMS(3, 2, 2),
     "parallel 3: 0.0 -> 0.0\nwhole 2: 0.1 -> 0.1\nparallel 2: 0.2 -> 0.2"},
    {"case concat axis=1", DIMS(2, 3), "parallel 2: 0.0 1.0 2.0 -> 0.0\nwhole 6: 0.1 2.1 -> 0.1"},
    {"case gather axis=1", DIMS(3, 5),
     "parallel 3: 0.0 -> 0.0\nparallel 2: 1.0 -> 0.1\nparallel 3: 1.1 -> 0.2\nwhole 5: 0.1 ->"},
    {"case reduce_sum axes=2,1 keep", DIMS(2, 3, 4),
     "parallel 2: 0.0 -> 0.0\nsum 3: 0.1 -> +0\nsum 4: 0.2 -> +0"},
    {"case reduce_max axes=1", DIMS(3, 4), "parallel 3: 0.0 -> 0.0\nmax 4: 0.1 -> +0"},
    {"case contract spec=bthd,hdc->btc", DIMS(2, 3, 2, 3),
     "parallel 2: 0.0 -> 0.0\nparallel 3: 0.1 -> 0.1\nparallel 4: 1.2 -> 0.2\nsum 2: 0.2 1.0 -> "
     "+0\nsum 3: 0.3 1.1 -> +0"},
    {"case softmax axis=1", DIMS(2, 3, 4),
     "parallel 2: 0.0 -> 0.0\nwhole 3: 0.1 -> 0.1\nparallel 4: 0.2 -> 0.2"},
    {"case cross_entropy ignore=2 smoothing=0.25", DIMS(2, 3, 4),
     "parallel 2: 0.0 1.0 -> 0.0\nparallel 3: 0.1 1.1 -> 0.1\nwhole 4: 0.2 ->"},
    {"case cross_entropy_grad ignore=2 smoothing=0.25", DIMS(2, 3, 4),
     "parallel 2: 0.0 1.0 2.0 -> 0.0\nparallel 3: 0.1 1.1 2.1 -> 0.1\nwhole 4: 0.2 -> 0.2"},
    {"case layer_norm axis=2 eps=0.001", DIMS(2, 3, 4),
     "parallel 2: 0.0 -> 0.0 1.0 2.0\nparallel 3: 0.1 -> 0.1 1.1 2.1\nwhole 4: 0.2 1.0 2.0 -> 0.2"},
    {"case layer_norm_grad axis=2 eps=0.001", DIMS(2, 3, 4),
     "sum 2: 0.0 2.0 3.0 4.0 -> 0.0 +1 +2\nsum 3: 0.1 2.1 3.1 4.1 -> 0.1 +1 +2\nwhole 4: 0.2 1.0 "
     "4.2 -> 0.2 1.0 2.0"},
    {"case gelu tanh", DIMS(3, 5), "parallel 3: 0.0 -> 0.0\nparallel 5: 0.1 -> 0.1"},
    /* 4 query heads on 2 key heads, not causal: T splits the queries; S, D and what the softmax
       sums stay whole. */
    {"case attention scale=0.5", DIMS(2, 4, 4, 2),
     "parallel 2: 0.0 1.0 2.0 -> 0.0 1.0\nparallel 4: 0.1 -> 0.1 1.2\nparallel 2: 0.2 1.2 2.2 -> "
     "0.2 1.1\n"
     "parallel 2: 2.3 -> 0.3\nwhole 2: 0.3 1.3 ->\nwhole 3: 1.1 2.1 ->"},
    {"case attention scale=0.5 causal", DIMS(2, 3, 2, 4),
     "parallel 2: 0.0 1.0 2.0 -> 0.0 1.0\nwhole 3: 0.1 -> 0.1 1.2\nparallel 2: 0.2 1.2 2.2 -> 0.2 "
     "1.1\n"
     "parallel 4: 2.3 -> 0.3\nwhole 4: 0.3 1.3 ->\nwhole 3: 1.1 2.1 ->"},
    /* T leaves dk and dv partial, S leaves dq, E both dq and dk: lse is given, so no softmax is in
       the way. */
    {"case attention_grad scale=0.5", DIMS(2, 4, 4, 2),
     "parallel 2: 0.0 1.0 2.0 3.0 4.0 5.0 -> 0.0 1.0 2.0\nsum 4: 0.1 3.1 4.2 5.1 -> 0.1 +1 +2\n"
     "parallel 2: 0.2 1.2 2.2 3.2 4.1 5.2 -> 0.2 1.2 2.2\nwhole 2: 0.3 1.3 -> 0.3 1.3\n"
     "sum 3: 1.1 2.1 -> +0 1.1 2.1\nsum 2: 2.3 3.3 5.3 -> +0 +1 2.3"},
    {"case sgd wd=0.1", DIMS(3, 4), "parallel 3: 0.0 1.0 -> 0.0\nparallel 4: 0.1 1.1 -> 0.1"},
    {"case adam beta1=0.9 beta2=0.95 eps=1e-08 wd=0.1 decoupled", DIMS(3, 4),
     "parallel 3: 0.0 1.0 2.0 3.0 -> 0.0 1.0 2.0\nparallel 4: 0.1 1.1 2.1 3.1 -> 0.1 1.1 2.1"},
};

static void the_rules_find_what_can_be_split(void **state)
{
    MotCtx *ctx = *state;
    OpCases cases = read_op_cases(ctx);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        Split s = read_split(ctx, find_case(&cases, expected[i].title, &expected[i].dims));
        if (strcmp(factors_text(&s), expected[i].factors) != 0)
            fail_msg("%s has the factors\n%s\nnot\n%s", expected[i].title, factors_text(&s),
                     expected[i].factors);
    }
}

static MotFactors factors_of(MotGraph *g, MotOpId id)
{
    MotFactors f;
    assert_int_equal(g->ctx->status, MOT_OK);
    assert_int_equal(mot_factors(g, mot_graph_op(g, id), &f), MOT_OK);
    return f;
}

/* Sources give any part; a sink takes any. */
static void sources_and_sinks_are_parallel_but_for_an_iota_along_its_axis(void **state)
{
    MotGraph *g = mot_graph_make(*state, "sources");
    MotBuilder b = mot_builder_make(g);
    MotType type = mot_type_make(MOT_F32, 2, (int64_t[]){4, 3});
    MotValue x = mot_input(&b, "x", type), w = mot_param(&b, &(MotAttr_param){.name = "w"}, type);
    MotValue i = mot_iota(&b, MOT_F32, 2, type.dims, 1);
    MotOpId assign = mot_build(&b, MOT_OP_ASSIGN, (MotValue[]){w, x}, 2, NULL);
    const MotOpId ops[] = {g->values.data[x].def, g->values.data[w].def, mot_output(&b, "y", x),
                           assign, g->values.data[i].def};
    for (int k = 0; k < 5; k++) {
        MotFactors f = factors_of(g, ops[k]);
        assert_int_equal(f.n, 2);
        assert_int_equal(f.factor[0].kind, MOT_FACTOR_PARALLEL);
        assert_int_equal(f.factor[1].kind, k < 4 ? MOT_FACTOR_PARALLEL : MOT_FACTOR_WHOLE);
    }
    MotFactors f = factors_of(g, assign);
    assert_true(f.factor[0].in_dim[0] == 0 && f.factor[0].in_dim[1] == 0);
}

/* A batch of 8 in 2 units of 4: as the batch, seen as [2, 4], and as the batch again. */
static void inside_of_units_runs_a_factor_of_its_own(void **state)
{
    MotGraph *g = mot_graph_make(*state, "units");
    MotBuilder b = mot_builder_make(g);
    MotValue x = mot_input(&b, "x", mot_type_make(MOT_F32, 2, (int64_t[]){8, 3}));
    mot_attrs(mot_graph_def(g, x), input)->units = 2;
    MotValue rows = mot_reshape(&b, x, 1, (int64_t[]){24});
    MotValue parts = mot_reshape(&b, x, 3, (int64_t[]){2, 4, 3});
    MotValue batch = mot_reshape(&b, parts, 2, (int64_t[]){8, 3});
    MotValue fine = mot_reshape(&b, x, 3, (int64_t[]){4, 2, 3});
    MotValue sum = mot_reduce_sum(&b, batch, (int64_t[]){0}, 1, MOT_DROP);
    static const struct {
        int f, within, in_dim, out_dim, in_units, out_units;
        int64_t size;
    } inner[] = {{2, 0, 0, 0, 8, 8, 4}, /* of the 24 rows a sample's 3 stay together */
                 {1, 0, 0, 1, 8, 4, 4},
                 {2, 0, 1, 0, 4, 8, 4},
                 {3, 0, 0, 0, 4, 4, 2},
                 {2, 1, 0, -1, 8, 8, 4}};
    const MotValue values[] = {rows, parts, batch, fine, sum};
    assert_int_equal(mot_factors_spread_units(g), MOT_OK);
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        MotFactors all = factors_of(g, g->values.data[values[i]].def);
        int n = 0;
        for (uint32_t k = 0; k < all.n; k++)
            n += all.factor[k].within >= 0;
        const MotFactor *f = &all.factor[inner[i].f], *units = &all.factor[inner[i].within];
        assert_int_equal(n, 1);
        assert_int_equal(f->within, inner[i].within);
        assert_int_equal(f->kind, units->kind);
        assert_true(f->size == inner[i].size && units->size == 2);
        assert_true(f->in_dim[0] == inner[i].in_dim && f->out_dim[0] == inner[i].out_dim);
        assert_int_equal(mot_factor_operand_units(&all, inner[i].f, 0), inner[i].in_units);
        if (f->out_dim[0] >= 0)
            assert_int_equal(mot_factor_result_units(&all, inner[i].f, 0), inner[i].out_units);
        assert_int_equal(mot_factor_operand_units(&all, inner[i].within, 0), 2);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)
    const struct CMUnitTest tests[] = {
        TEST(the_parts_of_every_factor_make_the_whole),
        TEST(factors_cover_every_dim_once),
        TEST(linear_operands_are_linear),
        TEST(what_is_linear),
        TEST(the_rules_find_what_can_be_split),
        TEST(sources_and_sinks_are_parallel_but_for_an_iota_along_its_axis),
        TEST(inside_of_units_runs_a_factor_of_its_own),
    };
    return cmocka_run_group_tests_name("factors", tests, NULL, NULL);
}
