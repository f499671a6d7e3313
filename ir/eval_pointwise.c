/*
 * Pointwise rows. Each gets its function from the expression in ops.def: once in double, and once
 * in 128-bit integers, in which no sum, product or negation of int64 overflows, so that integers
 * simply wrap when they are stored.
 */
#include "ir/eval_rules.h"

#include <math.h>

#define FLOAT MOT_CLASS_FLOAT
#define INT MOT_CLASS_INT
#define BOOL MOT_CLASS_BOOL

typedef __int128 Wide;

/* n elements of a row of the result; operand k is read at data[k][i * step[k]]. Operands beyond the
 * arity repeat operand 0. */
typedef struct {
    const void *data[3];
    int64_t step[3], n;
    void *out;
} Lanes;

typedef void (*LaneFunction)(const Lanes *);

/* The type to compute in: the first of the two that the row's classes have, as `%` takes no doubles
 * and exp no integers. */
#define IN_DOUBLE(classes) __typeof__(__builtin_choose_expr((classes) & FLOAT, (double)0, (Wide)0))
#define IN_WIDE(classes) __typeof__(__builtin_choose_expr((classes) & ~FLOAT, (Wide)0, (double)0))

#define DEFINE_LANES(function, Element, Number, expression)                                        \
    static void function(const Lanes *l)                                                           \
    {                                                                                              \
        typedef Number T;                                                                          \
        const Element *pa = l->data[0], *pb = l->data[1], *pc = l->data[2];                        \
        Element *out = l->out;                                                                     \
        for (int64_t i = 0; i < l->n; i++) {                                                       \
            T a = (T)pa[i * l->step[0]], b = (T)pb[i * l->step[1]], c = (T)pc[i * l->step[2]];     \
            (void)b, (void)c;                                                                      \
            out[i] = (Element)(expression);                                                        \
        }                                                                                          \
    }

#pragma GCC diagnostic ignored                                                                     \
    "-Wfloat-conversion" /* the condition of a select is a double here, 0 or 1 */
#define POINTWISE(id, name, arity, classes, result, expression)                                    \
    DEFINE_LANES(name##_double, double, IN_DOUBLE(classes), expression)                            \
    DEFINE_LANES(name##_int, int64_t, IN_WIDE(classes), expression)
#include "ir/ops.def"

static const struct {
    LaneFunction in_double, in_int;
} functions[MOT_N_OPS] = {
#define POINTWISE(id, name, arity, classes, result, expression)                                    \
    [MOT_OP_##id] = {name##_double, name##_int},
#include "ir/ops.def"
};

/* Loops over the result; an operand's step is 0 in a dim that it lacks or repeats. */
static MotWalk walk_broadcast(const MotEval *e)
{
    const MotType *out = &e->out[0].type;
    MotWalk w = {.n_loops = out->rank};
    for (int d = 0; d < out->rank; d++)
        w.size[d] = out->dims[d];
    for (uint32_t k = 0; k < e->op->n_in; k++) {
        const MotType *type = &e->in[k].type;
        int64_t strides[MOT_MAX_RANK];
        mot_eval_strides(type, strides);
        int extra = out->rank - type->rank;
        for (int d = 0; d < type->rank; d++)
            w.step[k][d + extra] = type->dims[d] == 1 ? 0 : strides[d];
    }
    return w;
}

/* Runs `function` on every row along the last dim. `in` are the operands' elements, `out` the
 * result's, of element_bytes. */
static void run_rows(const MotEval *e, LaneFunction function, const void *const *in, char *out,
                     int64_t element_bytes)
{
    MotWalk w = walk_broadcast(e);
    Lanes l = {.n = 1};
    if (w.n_loops) {
        int last = --w.n_loops;
        l.n = w.size[last];
        for (uint32_t k = 0; k < e->op->n_in; k++)
            l.step[k] = w.step[k][last];
    }
    for (bool more = mot_walk_begin(&w); more; more = mot_walk_next(&w)) {
        for (uint32_t k = 0; k < 3; k++)
            l.data[k] =
                k < e->op->n_in ? (const char *)in[k] + w.offset[k] * element_bytes : l.data[0];
        l.out = out;
        function(&l);
        out += l.n * element_bytes;
    }
}

static MotStatus check_divisor(const MotEval *e, const int64_t *divisor)
{
    if (e->op->kind != MOT_OP_DIV && e->op->kind != MOT_OP_MOD)
        return MOT_OK;
    int64_t n = mot_type_elements(&e->out[0].type) ? mot_type_elements(&e->in[1].type) : 0;
    for (int64_t i = 0; i < n; i++)
        if (divisor[i] == 0)
            return mot_fail(e->ctx, MOT_ERR_DATA, mot_op_loc(e->g, e->op),
                            "%s: integer division by zero, element %lld of operand 1",
                            mot_op_info(e->op->kind)->name, (long long)i);
    return MOT_OK;
}

static MotStatus eval_in_double(MotEval *e)
{
    const void *in[3] = {NULL};
    for (uint32_t k = 0; k < e->op->n_in; k++)
        in[k] = mot_eval_load(e->ctx, &e->in[k]);
    double *out = mot_arena_array(&e->ctx->arena, double, mot_type_elements(&e->out[0].type));
    run_rows(e, functions[e->op->kind].in_double, in, (char *)out, sizeof *out);
    mot_eval_store(&e->out[0], out);
    return MOT_OK;
}

static MotStatus eval_in_int(MotEval *e)
{
    const void *in[3] = {NULL};
    for (uint32_t k = 0; k < e->op->n_in; k++)
        in[k] = mot_eval_load_int(e->ctx, &e->in[k]);
    if (e->op->n_in == 2)
        MOT_TRY(check_divisor(e, in[1]));
    int64_t *out = mot_arena_array(&e->ctx->arena, int64_t, mot_type_elements(&e->out[0].type));
    run_rows(e, functions[e->op->kind].in_int, in, (char *)out, sizeof *out);
    mot_eval_store_int(&e->out[0], out);
    return MOT_OK;
}

/* The last operand decides: a select's first is its condition. */
MotStatus mot_eval_pointwise(MotEval *e)
{
    const MotType *type = &e->in[e->op->n_in - 1].type;
    return mot_dtype_class(type->dtype) == MOT_CLASS_FLOAT ? eval_in_double(e) : eval_in_int(e);
}
