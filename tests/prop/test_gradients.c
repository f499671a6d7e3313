/*
 * The gradient of every row of the op table against central differences in float64, over several
 * shapes, with broadcasting and with empty tensors. Loss: the sum of all elements of the results
 * under test, each times a random weight. A row that can be differentiated and has no case fails
 * the test.
 */
#include "ir/builder.h"
#include "ir/eval.h"
#include "passes/graph/edit.h"
#include "passes/graph/grad.h"
#include "passes/pipeline.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_OPERANDS = 7 };
#define SEED 0x8c41u

/*
 * Where operands are drawn from; away from kinks and poles by more than the step of the
 * differences.
 */
typedef enum { SIGNED, POSITIVE } Domain;

typedef struct {
    MotOpKind kind;
    const char *shapes; /* of the operands: "f:2x3 i:4 b: f:0x3", f float, i index, b bool */
    const void *attrs;
    unsigned results; /* bits of the results that the loss is made of; 0: the first */
    Domain domain;
    int size; /* integer operands are below it */
} Case;

#define LIST(...) {(int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)}
#define REDUCE(keep_, ...)                                                                         \
    &(MotAttr_reduce)                                                                              \
    {                                                                                              \
        .axes = LIST(__VA_ARGS__), .keep = keep_                                                   \
    }
#define DIMS(...)                                                                                  \
    &(MotAttr_dims)                                                                                \
    {                                                                                              \
        .dims = LIST(__VA_ARGS__)                                                                  \
    }
#define SLICE(start_, size_, step_)                                                                \
    &(MotAttr_slice)                                                                               \
    {                                                                                              \
        .start = start_, .size = size_, .step = step_                                              \
    }
#define PAD(lo_, hi_) &(MotAttr_pad){.lo = lo_, .hi = hi_, .value = 1.5}
#define SPEC(text)                                                                                 \
    &(MotAttr_contract)                                                                            \
    {                                                                                              \
        .spec = text                                                                               \
    }
#define CUT(text, letter)                                                                          \
    &(MotAttr_contract)                                                                            \
    {                                                                                              \
        .spec = text, .cut = letter                                                                \
    }
#define ENTROPY(smoothing_)                                                                        \
    &(MotAttr_cross_entropy)                                                                       \
    {                                                                                              \
        .ignore = 1, .smoothing = smoothing_                                                       \
    }
#define NORM(axis_) &(MotAttr_norm){.axis = axis_, .eps = 1e-5}
#define ATTENTION(causal_)                                                                         \
    &(MotAttr_attention)                                                                           \
    {                                                                                              \
        .scale = 0.7, .causal = causal_                                                            \
    }

/* ---- The pointwise rows: every one with a rule; the shapes are shared ---- */

static Domain domain_of(MotOpKind kind)
{
    static const bool is_positive[MOT_N_OPS] = {
        [MOT_OP_LOG] = true, [MOT_OP_SQRT] = true, [MOT_OP_RSQRT] = true, [MOT_OP_POW] = true};
    return is_positive[kind] ? POSITIVE : SIGNED;
}

static bool is_pointwise_rule(MotOpKind kind)
{
    return mot_op_info(kind)->class == MOT_POINTWISE && mot_grad_get(kind)->kind == MOT_GRAD_RULE;
}

/* By arity; a select has a bool first. */
static const char *const pointwise_shapes[4][8] = {
    [1] = {"f:", "f:3", "f:2x3", "f:0x3"},
    [2] = {"f:2x3 f:2x3", "f:2x3 f:3", "f:3 f:2x1", "f: f:2x2", "f:2x3 f:1x1", "f:0x3 f:3",
           "f:1x3 f:0x1"},
    [3] = {"b:2x3 f:2x3 f:2x3", "b:3 f:2x3 f:", "b:2x1 f:3 f:2x3", "b: f:2 f:2", "b:3 f:0x3 f:3"},
};

/* ---- All other rows ---- */

/* clang-format off */
static const Case cases[] = {
    {MOT_OP_CAST, "f:2x3", &(MotAttr_cast){.dtype = MOT_F32}, 0, SIGNED, 0},
    {MOT_OP_CAST, "f:0x3", &(MotAttr_cast){.dtype = MOT_F16}, 0, SIGNED, 0},
    {MOT_OP_RESHAPE, "f:2x6", DIMS(3, 2, 2), 0, SIGNED, 0},
    {MOT_OP_RESHAPE, "f:0x6", DIMS(3, 0), 0, SIGNED, 0},
    {MOT_OP_TRANSPOSE, "f:2x3x4", &(MotAttr_perm){.perm = LIST(2, 0, 1)}, 0, SIGNED, 0},
    {MOT_OP_TRANSPOSE, "f:0x3", &(MotAttr_perm){.perm = LIST(1, 0)}, 0, SIGNED, 0},
    {MOT_OP_BROADCAST, "f:3x1", DIMS(2, 3, 4), 0, SIGNED, 0},
    {MOT_OP_BROADCAST, "f:", DIMS(2, 2), 0, SIGNED, 0},
    {MOT_OP_BROADCAST, "f:3x1", DIMS(3, 0), 0, SIGNED, 0},
    {MOT_OP_BROADCAST, "f:0x1", DIMS(2, 0, 3), 0, SIGNED, 0},

    {MOT_OP_SLICE, "f:4x5", SLICE(LIST(1, 0), LIST(2, 5), LIST(1, 1)), 0, SIGNED, 0},
    {MOT_OP_SLICE, "f:8x3", SLICE(LIST(1, 0), LIST(3, 2), LIST(3, 2)), 0, SIGNED, 0},
    {MOT_OP_SLICE, "f:2x7", SLICE(LIST(0, 5), LIST(2, 3), LIST(1, -2)), 0, SIGNED, 0},
    {MOT_OP_SLICE, "f:5x2", SLICE(LIST(4, 1), LIST(5, 1), LIST(-1, -1)), 0, SIGNED, 0},
    {MOT_OP_SLICE, "f:4x2", SLICE(LIST(3, 0), LIST(1, 2), LIST(-7, 1)), 0, SIGNED, 0},
    {MOT_OP_SLICE, "f:4x3", SLICE(LIST(2, 0), LIST(0, 3), LIST(2, 1)), 0, SIGNED, 0},
    {MOT_OP_SLICE, "f:0x6", SLICE(LIST(0, 5), LIST(0, 3), LIST(1, -2)), 0, SIGNED, 0},
    {MOT_OP_PAD, "f:2x3", PAD(LIST(1, 0), LIST(0, 2)), 0, SIGNED, 0},
    {MOT_OP_PAD, "f:0x3", PAD(LIST(1, 0), LIST(1, 0)), 0, SIGNED, 0},
    {MOT_OP_CONCAT, "f:2x3 f:2x1 f:2x2", &(MotAttr_axis){.axis = 1}, 0, SIGNED, 0},
    {MOT_OP_CONCAT, "f:2x3 f:0x3", &(MotAttr_axis){.axis = 0}, 0, SIGNED, 0},

    {MOT_OP_GATHER, "f:4x3 i:2x3", &(MotAttr_gather){.axis = 0}, 0, SIGNED, 4},
    {MOT_OP_GATHER, "f:2x3x2 i:4", &(MotAttr_gather){.axis = 1}, 0, SIGNED, 3},
    {MOT_OP_GATHER, "f:2x3 i:", &(MotAttr_gather){.axis = 1}, 0, SIGNED, 3},
    {MOT_OP_GATHER, "f:4x3 i:0", &(MotAttr_gather){.axis = 0}, 0, SIGNED, 4},
    {MOT_OP_GATHER, "f:2x3x2 i:2x4", &(MotAttr_gather){.axis = 1, .batched = true}, 0, SIGNED, 3},
    {MOT_OP_SCATTER_ADD, "i:2x4 f:2x4x2", &(MotAttr_scatter){.axis = 1, .size = 3, .batched = true}, 0, SIGNED, 3},
    {MOT_OP_SCATTER_ADD, "i:2x3 f:2x3x2", &(MotAttr_scatter){.axis = 0, .size = 4}, 0, SIGNED, 4},
    {MOT_OP_SCATTER_ADD, "i:3 f:2x3", &(MotAttr_scatter){.axis = 1, .size = 5}, 0, SIGNED, 5},
    {MOT_OP_SCATTER_ADD, "i:0 f:0x2", &(MotAttr_scatter){.axis = 0, .size = 3}, 0, SIGNED, 3},

    {MOT_OP_REDUCE_SUM, "f:2x3x2", REDUCE(false, 0, 2), 0, SIGNED, 0},
    {MOT_OP_REDUCE_SUM, "f:2x3", REDUCE(true, 1), 0, SIGNED, 0},
    {MOT_OP_REDUCE_SUM, "f:0x3", REDUCE(false, 0), 0, SIGNED, 0},
    {MOT_OP_REDUCE_MAX, "f:2x3x2", REDUCE(false, 0, 2), 0, SIGNED, 0},
    {MOT_OP_REDUCE_MAX, "f:2x3", REDUCE(true, 1), 0, SIGNED, 0},
    {MOT_OP_REDUCE_MAX, "f:0x3", REDUCE(false, 1), 0, SIGNED, 0},

    {MOT_OP_CONTRACT, "f:2x3 f:3x4", SPEC("bk,kn->bn"), 0, SIGNED, 0},
    {MOT_OP_CONTRACT, "f:2x3x2x2 f:2x1x2x2", SPEC("bthd,bshd->bhts"), 0, SIGNED, 0},
    {MOT_OP_CONTRACT, "f:2x3 f:2x3", SPEC("ab,ab->"), 0, SIGNED, 0},
    {MOT_OP_CONTRACT, "f:2x3 f:4", SPEC("ab,c->cb"), 0, SIGNED, 0},
    {MOT_OP_CONTRACT, "f:2x0 f:0x3", SPEC("bk,kn->bn"), 0, SIGNED, 0},
    {MOT_OP_CONTRACT, "f:0x3 f:3x2", SPEC("bk,kn->bn"), 0, SIGNED, 0},
    {MOT_OP_CONTRACT, "f:2x5 f:5x3 i:3", CUT("bk,kn->bn", "k"), 0, SIGNED, 5},
    {MOT_OP_CONTRACT, "f:5x2 f:3x5 i:4", CUT("kb,nk->nb", "k"), 0, SIGNED, 5},
    {MOT_OP_CONTRACT, "f:2x5 f:5x3 i:0", CUT("bk,kn->bn", "k"), 0, SIGNED, 5},
    {MOT_OP_CONTRACT, "f:2x3x4 f:3x4x2 i:2", CUT("bhd,hdc->bc", "h"), 0, SIGNED, 3},
    {MOT_OP_CONTRACT, "f:2x3x4 f:3x2 i:2", CUT("bhd,hc->c", "h"), 0, SIGNED, 3},
    {MOT_OP_CONTRACT, "f:2x3 f:2x3 i:1", CUT("ab,ab->", "b"), 0, SIGNED, 3},
    {MOT_OP_CONTRACT, "f:0x3 f:3x2 i:2", CUT("bk,kn->bn", "k"), 0, SIGNED, 3},

    {MOT_OP_SOFTMAX, "f:2x3", &(MotAttr_softmax){.axis = 1}, 0, SIGNED, 0},
    {MOT_OP_SOFTMAX, "f:3x2x2", &(MotAttr_softmax){.axis = 0}, 0, SIGNED, 0},
    {MOT_OP_SOFTMAX, "f:0x3", &(MotAttr_softmax){.axis = 1}, 0, SIGNED, 0},
    {MOT_OP_SOFTMAX_GRAD, "f:2x3 f:2x3", &(MotAttr_softmax){.axis = 1}, 0, SIGNED, 0},
    {MOT_OP_SOFTMAX_GRAD, "f:0x3 f:0x3", &(MotAttr_softmax){.axis = 1}, 0, SIGNED, 0},
    {MOT_OP_CROSS_ENTROPY, "f:5x4 i:5", ENTROPY(0), 0, SIGNED, 4},
    {MOT_OP_CROSS_ENTROPY_GRAD, "f:5x4 i:5 f:5", ENTROPY(0), 0, SIGNED, 4},
    {MOT_OP_CROSS_ENTROPY, "f:5x4 i:5", ENTROPY(0.1), 0, SIGNED, 4},
    {MOT_OP_CROSS_ENTROPY_GRAD, "f:5x4 i:5 f:5", ENTROPY(0.1), 0, SIGNED, 4},
    {MOT_OP_CROSS_ENTROPY, "f:2x3x4 i:2x3", ENTROPY(0), 0, SIGNED, 4},
    {MOT_OP_CROSS_ENTROPY, "f:0x4 i:0", ENTROPY(0), 0, SIGNED, 4},
    {MOT_OP_CROSS_ENTROPY_GRAD, "f:0x4 i:0 f:0", ENTROPY(0), 0, SIGNED, 4},
    {MOT_OP_LAYER_NORM, "f:2x4 f:4 f:4", NORM(1), 0, SIGNED, 0},
    {MOT_OP_LAYER_NORM, "f:2x4 f:4", NORM(1), 0, SIGNED, 0},
    {MOT_OP_LAYER_NORM, "f:2x2x3 f:2x3 f:2x3", NORM(1), 0, SIGNED, 0},
    {MOT_OP_LAYER_NORM, "f:0x4 f:4 f:4", NORM(1), 0, SIGNED, 0},
    {MOT_OP_LAYER_NORM, "f:2x4 f:4 f:4", NORM(1), 7, SIGNED, 0},
    {MOT_OP_LAYER_NORM, "f:2x2x3 f:2x3", NORM(1), 6, SIGNED, 0},
    {MOT_OP_LAYER_NORM_GRAD, "f:2x4 f:4 f:2x1 f:2x1 f:2x4", NORM(1), 7, SIGNED, 0},
    {MOT_OP_LAYER_NORM_GRAD, "f:0x4 f:4 f:0x1 f:0x1 f:0x4", NORM(1), 7, SIGNED, 0},
    {MOT_OP_GELU, "f:2x3", &(MotAttr_gelu){.tanh = false}, 0, SIGNED, 0},
    {MOT_OP_GELU_GRAD, "f:2x3 f:2x3", &(MotAttr_gelu){.tanh = false}, 0, SIGNED, 0},
    {MOT_OP_GELU, "f:2x3", &(MotAttr_gelu){.tanh = true}, 0, SIGNED, 0},
    {MOT_OP_GELU_GRAD, "f:2x3 f:2x3", &(MotAttr_gelu){.tanh = true}, 0, SIGNED, 0},
    {MOT_OP_GELU, "f:0x3", &(MotAttr_gelu){.tanh = false}, 0, SIGNED, 0},
    {MOT_OP_GELU_GRAD, "f:0x3 f:0x3", &(MotAttr_gelu){.tanh = false}, 0, SIGNED, 0},
    {MOT_OP_ATTENTION, "f:1x3x2x2 f:1x3x2x2 f:1x3x2x3", ATTENTION(false), 0, SIGNED, 0},
    {MOT_OP_ATTENTION, "f:1x3x2x2 f:1x3x2x2 f:1x3x2x3", ATTENTION(true), 0, SIGNED, 0},
    {MOT_OP_ATTENTION, "f:2x2x4x2 f:2x3x2x2 f:2x3x2x2", ATTENTION(true), 0, SIGNED, 0},
    {MOT_OP_ATTENTION, "f:1x3x2x2 f:1x3x2x2 f:1x3x2x3 f:3x3", ATTENTION(false), 0, SIGNED, 0},
    {MOT_OP_ATTENTION, "f:1x3x2x2 f:1x3x2x2 f:1x3x2x3 f:1x2x1x3", ATTENTION(true), 0, SIGNED, 0},
    {MOT_OP_ATTENTION, "f:1x3x2x2 f:1x3x2x2 f:1x3x2x3", ATTENTION(true), 3, SIGNED, 0},
    {MOT_OP_ATTENTION, "f:0x3x2x2 f:0x3x2x2 f:0x3x2x3", ATTENTION(true), 0, SIGNED, 0},
    {MOT_OP_ATTENTION_GRAD, "f:1x3x2x2 f:1x3x2x2 f:1x3x2x2 f:1x3x2x2 f:1x2x3 f:1x3x2x2", ATTENTION(true), 7, SIGNED, 0},
    {MOT_OP_ATTENTION_GRAD, "f:1x2x4x2 f:1x3x2x2 f:1x3x2x2 f:1x2x4x2 f:1x4x2 f:1x2x4x2 f:2x3", ATTENTION(false), 7, SIGNED, 0},
    {MOT_OP_ATTENTION_GRAD, "f:0x3x2x2 f:0x3x2x2 f:0x3x2x2 f:0x3x2x2 f:0x2x3 f:0x3x2x2", ATTENTION(true), 7, SIGNED, 0},
};
/* clang-format on */
enum { N_CASES = sizeof cases / sizeof *cases };

/* ---- One case ---- */

/* A graph with a loss, and the tensors of its parameters in float64. */
typedef struct {
    MotCtx *ctx;
    const Case *c;
    MotGraph *g;
    uint64_t random;
    uint32_t n;
    MotValue in[MAX_OPERANDS];
    bool is_param[MAX_OPERANDS];
    MotTensor data[MAX_OPERANDS]; /* f64, for parameters */
} Subject;

/* xorshift64*: uniform in [0, 1). */
static double draw(Subject *s)
{
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    return (double)((s->random * 0x2545f4914f6cdd1dull) >> 11) * 0x1p-53;
}

static double draw_element(Subject *s)
{
    double size = 0.2 + 1.3 * draw(s);
    return s->c->domain == SIGNED && draw(s) < 0.5 ? -size : size;
}

static MotTensor make_tensor(Subject *s, MotType type)
{
    return (MotTensor){type, mot_arena_alloc(&s->ctx->arena, (size_t)mot_type_bytes(&type) + 8)};
}

/* Random elements: floats in the domain, indices below `size`, bools. */
static MotTensor draw_tensor(Subject *s, MotType type)
{
    MotTensor t = make_tensor(s, type);
    for (int64_t i = 0; i < mot_type_elements(&type); i++) {
        if (mot_dtype_class(type.dtype) == MOT_CLASS_FLOAT)
            mot_tensor_set(&t, i, draw_element(s));
        else
            mot_tensor_set_int(&t, i,
                               (int64_t)(draw(s) * (type.dtype == MOT_BOOL ? 2 : s->c->size)));
    }
    return t;
}

/* Parses one operand, "f:2x3", and returns past it. */
static const char *parse_type(const char *p, MotType *out)
{
    *out = (MotType){.dtype = *p == 'f' ? MOT_F64 : *p == 'i' ? MOT_I64 : MOT_BOOL};
    p += 2;
    while (*p >= '0' && *p <= '9') {
        char *end;
        out->dims[out->rank++] = strtoll(p, &end, 10);
        p = *end == 'x' ? end + 1 : end;
    }
    return *p == ' ' ? p + 1 : p;
}

static void add_operands(Subject *s, MotBuilder *b)
{
    for (const char *p = s->c->shapes; *p; s->n++) {
        MotType type;
        p = parse_type(p, &type);
        s->is_param[s->n] = type.dtype == MOT_F64;
        if (!s->is_param[s->n]) {
            s->in[s->n] = mot_constant(b, draw_tensor(s, type));
            continue;
        }
        MotAttr_param attrs = {.name = mot_arena_printf(&s->ctx->arena, "x%u", s->n),
                               .trained = true};
        s->in[s->n] = mot_param(b, &attrs, type);
        s->data[s->n] = draw_tensor(s, type);
    }
}

/* The sum over the elements of a result, each times a random weight. */
static MotValue weigh(Subject *s, MotBuilder *b, MotValue y)
{
    static const int64_t all[MOT_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    MotType type = *mot_graph_type(s->g, y);
    MotValue w = mot_constant(b, draw_tensor(s, type));
    return mot_cast(b, mot_reduce_sum(b, mot_mul(b, y, w), all, (uint32_t)type.rank, MOT_DROP),
                    MOT_F64);
}

static void build_subject(Subject *s)
{
    s->g = mot_graph_make(s->ctx, "case");
    MotBuilder b = mot_builder_make(s->g);
    add_operands(s, &b);
    MotOpId op = mot_build(&b, s->c->kind, s->in, s->n, s->c->attrs);
    unsigned results = s->c->results ? s->c->results : 1;
    MotValue loss = 0;
    for (uint32_t i = 0; i < mot_op_info(s->c->kind)->n_out; i++) {
        if (!(results >> i & 1))
            continue;
        MotValue part = weigh(s, &b, mot_result(&b, op, i));
        loss = loss ? mot_add(&b, loss, part) : part;
    }
    mot_output(&b, "loss", loss);
}

/*
 * All values of the graph for the parameters in s->data. Parameters are found by name: passes
 * renumber values.
 */
static MotTensor *evaluate(Subject *s, const MotGraph *g)
{
    MotTensor *values = mot_arena_array(&s->ctx->arena, MotTensor, g->values.n);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->is_param[i])
            values[mot_edit_find_param(g, mot_arena_printf(&s->ctx->arena, "x%u", i))] = s->data[i];
    if (mot_eval_graph(s->ctx, g, values, true) != MOT_OK)
        fail_msg("%s", mot_text_get(&s->ctx->error));
    return values;
}

static double evaluate_loss(Subject *s)
{
    MotArenaMark mark = mot_arena_mark(&s->ctx->arena);
    double loss = mot_tensor_get(&evaluate(s, s->g)[mot_edit_find_output(s->g, "loss")], 0);
    mot_arena_rewind(&s->ctx->arena, mark);
    return loss;
}

static double evaluate_loss_at(Subject *s, double *x, double value)
{
    double at = *x;
    *x = value;
    double loss = evaluate_loss(s);
    *x = at;
    return loss;
}

/* Central differences of fourth order: the error is about 1e-13 for functions of this size. */
static double differentiate_numerically(Subject *s, double *x)
{
    double h = 5e-4, near = evaluate_loss_at(s, x, *x + h) - evaluate_loss_at(s, x, *x - h),
           far = evaluate_loss_at(s, x, *x + 2 * h) - evaluate_loss_at(s, x, *x - 2 * h);
    return (8 * near - far) / (12 * h);
}

static void compare_operand(Subject *s, uint32_t operand, const MotTensor *grad)
{
    double *x = s->data[operand].data;
    for (int64_t i = 0; i < mot_type_elements(&s->data[operand].type); i++) {
        double expected = differentiate_numerically(s, &x[i]), got = mot_tensor_get(grad, i);
        if (!(fabs(got - expected) <= 1e-9 * (1 + fabs(expected))))
            fail_msg("%s %s: gradient of operand %u, element %lld is %.10g, differences give %.10g "
                     "(seed 0x%x)",
                     mot_op_info(s->c->kind)->name, s->c->shapes, operand, (long long)i, got,
                     expected, SEED);
    }
}

/* The gradient that `gradient` binds to parameter `name`, or 0. */
static MotValue find_gradient(const MotGraph *g, MotValue param)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_GRADIENT && op->in[0] == param)
            return op->in[1];
    }
    return 0;
}

static void check_case(const Case *c)
{
    MotCtx ctx;
    mot_ctx_init(&ctx);
    Subject s = {.ctx = &ctx, .c = c, .random = SEED};
    build_subject(&s);
    MotGraph *trained = mot_graph_clone(&ctx, s.g);
    MotPassOpts opts = {0};
    if (ctx.status != MOT_OK ||
        mot_passes_run(&ctx, trained, &opts, "autodiff", "autodiff") != MOT_OK)
        fail_msg("%s %s: %s", mot_op_info(c->kind)->name, c->shapes, mot_text_get(&ctx.error));
    MotTensor *values = evaluate(&s, trained);
    for (uint32_t i = 0; i < s.n; i++) {
        if (!s.is_param[i])
            continue;
        MotValue param = mot_edit_find_param(trained, mot_arena_printf(&ctx.arena, "x%u", i));
        MotValue grad = find_gradient(trained, param);
        assert_true(grad != 0);
        assert_true(mot_type_equal(mot_graph_type(trained, param), mot_graph_type(trained, grad)));
        compare_operand(&s, i, &values[grad]);
    }
    mot_ctx_deinit(&ctx);
}

/* ---- Tests ---- */

static void pointwise_rows_match_central_differences(void **state)
{
    (void)state;
    for (int i = 1; i < MOT_N_OPS; i++) {
        MotOpKind kind = (MotOpKind)i;
        if (!is_pointwise_rule(kind))
            continue;
        for (const char *const *shapes = pointwise_shapes[mot_op_info(kind)->n_max]; *shapes;
             shapes++)
            check_case(&(Case){.kind = kind, .shapes = *shapes, .domain = domain_of(kind)});
    }
}

static void other_rows_match_central_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++)
        check_case(&cases[i]);
}

/* Whether the row has a case, and one with an empty operand. */
static void find_cases(MotOpKind kind, bool *out_any, bool *out_empty)
{
    *out_any = *out_empty = is_pointwise_rule(kind); /* pointwise_shapes has them */
    for (size_t i = 0; i < N_CASES; i++)
        if (cases[i].kind == kind) {
            *out_any = true;
            *out_empty |= strstr(cases[i].shapes, ":0") != NULL;
        }
}

static void every_row_with_a_gradient_has_a_case(void **state)
{
    (void)state;
    for (int kind = 1; kind < MOT_N_OPS; kind++) {
        MotGradKind grad = mot_grad_get((MotOpKind)kind)->kind;
        bool has_any, has_empty,
            is_differentiable = grad == MOT_GRAD_RULE || grad == MOT_GRAD_EXPAND;
        find_cases((MotOpKind)kind, &has_any, &has_empty);
        if (is_differentiable && !(has_any && has_empty))
            fail_msg("%s has no case%s", mot_op_info((MotOpKind)kind)->name,
                     has_any ? " with an empty operand" : "");
        if (!is_differentiable && has_any)
            fail_msg("%s has a case but no gradient", mot_op_info((MotOpKind)kind)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_with_a_gradient_has_a_case),
        cmocka_unit_test(pointwise_rows_match_central_differences),
        cmocka_unit_test(other_rows_match_central_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
