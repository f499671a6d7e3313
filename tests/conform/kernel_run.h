/*
 * A kernel on random operands: the reference computes it, a device computes it, both are compared.
 * For the tests of this folder.
 */
#ifndef MOTLEY_TESTS_CONFORM_KERNEL_RUN_H
#define MOTLEY_TESTS_CONFORM_KERNEL_RUN_H

#include "ir/eval.h"
#include "runtime/device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RUN_MAX_BUFS = 80, RUN_MARGIN = 64 }; /* bytes behind every buffer */

/* ---- Numbers ---- */

static uint64_t random_state;

static inline double random_uniform(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) / 9007199254740992.0;
}

static inline double random_normal(void)
{
    return sqrt(-2 * log(1 - random_uniform())) * cos(6.283185307179586 * random_uniform());
}

/* Fills an operand of a kernel. */
typedef void RunFill(const MotGraph *g, const MotOp *input, const MotTensor *operand);

/* ---- Making, launching, comparing ---- */

/* One set of buffers. */
typedef struct Run {
    MotTensor buf[RUN_MAX_BUFS]; /* operands, then the reference's results */
    void *result[RUN_MAX_BUFS];  /* of the device */
    uint32_t n_in, n;
} Run;

static inline MotTensor make_tensor(MotCtx *ctx, const MotType *type)
{
    return (MotTensor){*type,
                       mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(type) + RUN_MARGIN)};
}

/* Attention's gradient takes what attention gave: random numbers there would be no softmax. */
static inline MotStatus fill_attention_results(MotCtx *ctx, const MotGraph *g, MotTensor *values)
{
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_ATTENTION_GRAD)
            continue;
        bool has_mask = op->n_in > 6;
        MotTensor in[4] = {values[op->in[0]], values[op->in[1]], values[op->in[2]]};
        MotValue ids[4] = {op->in[0], op->in[1], op->in[2], has_mask ? op->in[6] : 0};
        if (has_mask)
            in[3] = values[op->in[6]];
        MotValue results[2] = {op->in[3], op->in[4]};
        MotTensor out[2] = {values[op->in[3]], values[op->in[4]]};
        MotOp forward = *op;
        forward.kind = MOT_OP_ATTENTION;
        forward.in = ids;
        forward.out = results;
        forward.n_in = has_mask ? 4 : 3;
        forward.n_out = 2;
        MOT_TRY(mot_eval_op(ctx, g, &forward, in, out));
    }
    return MOT_OK;
}

/* Random operands of a kernel under these sizes, and its results by the reference. */
static inline MotStatus make_run(MotCtx *ctx, const MotProgram *p, uint32_t kernel,
                                 const int64_t *sizes, RunFill *fill, Run *out_run)
{
    const MotGraph *g = mot_program_bind_kernel(ctx, p, kernel, sizes);
    MotTensor *values = mot_arena_array(&ctx->arena, MotTensor, g->values.n);
    Run r = {.n_in = 0};
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind != MOT_OP_INPUT)
            continue;
        MOT_ASSERT(r.n_in < RUN_MAX_BUFS);
        MotTensor t = make_tensor(ctx, mot_graph_type(g, op->out[0]));
        fill(g, op, &t);
        values[op->out[0]] = r.buf[r.n_in++] = t;
    }
    MOT_TRY(fill_attention_results(ctx, g, values));
    MOT_TRY(mot_eval_graph(ctx, g, values, false));
    r.n = r.n_in;
    for (uint32_t i = 0; i < g->body.n; i++) {
        const MotOp *op = mot_graph_op(g, g->body.data[i]);
        if (op->kind == MOT_OP_OUTPUT && r.n < RUN_MAX_BUFS)
            r.buf[r.n++] = values[op->in[0]];
    }
    *out_run = r;
    return MOT_OK;
}

/* Runs a prepared launch on the operands of its sets; results are new. */
static inline MotStatus launch_runs(MotCtx *ctx, const MotDeviceApi *api, void *device,
                                    void *launch, Run *runs, uint32_t n_sets)
{
    uint32_t n = runs[0].n;
    void **bufs = mot_arena_array(&ctx->arena, void *, (size_t)n *n_sets);
    for (uint32_t set = 0; set < n_sets; set++)
        for (uint32_t i = 0; i < n; i++) {
            Run *r = &runs[set];
            if (i >= r->n_in) {
                r->result[i] = make_tensor(ctx, &r->buf[i].type).data;
                memset(r->result[i], 0xa5, (size_t)mot_type_bytes(&r->buf[i].type) + RUN_MARGIN);
            }
            bufs[set * n + i] = i < r->n_in ? r->buf[i].data : r->result[i];
        }
    return api->launch(device, launch, bufs);
}

static inline double root_mean_square(const MotTensor *t)
{
    double sum = 0;
    int64_t n = mot_type_elements(&t->type), n_finite = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(mot_tensor_get(t, i)) && fabs(mot_tensor_get(t, i)) < 1e30) {
            sum += mot_tensor_get(t, i) * mot_tensor_get(t, i);
            n_finite++;
        }
    return n_finite ? sqrt(sum / (double)n_finite) : 0;
}

static inline bool is_close(double expected, double got, double scale, bool is_float)
{
    return expected == got || (expected != expected && got != got) ||
           (is_float && fabs(expected - got) <= 1e-5 * (fabs(expected) + scale));
}

/*
 * Floats within 1e-5 of the value and of the tensor's root mean square; everything else equal;
 * nothing written behind the end. NULL, or what differs.
 */
static inline const char *find_difference(MotCtx *ctx, const Run *r)
{
    for (uint32_t i = r->n_in; i < r->n; i++) {
        const MotTensor *expected = &r->buf[i];
        MotTensor got = {expected->type, r->result[i]};
        double scale = root_mean_square(expected);
        bool is_float = mot_dtype_class(expected->type.dtype) == MOT_CLASS_FLOAT;
        for (int64_t k = 0; k < mot_type_elements(&got.type); k++) {
            double e = mot_tensor_get(expected, k), g = mot_tensor_get(&got, k);
            if (!is_close(e, g, scale, is_float))
                return mot_arena_printf(&ctx->arena, "result %u, element %lld is %.9g, not %.9g",
                                        i - r->n_in, (long long)k, g, e);
        }
        const unsigned char *end = (const unsigned char *)r->result[i] + mot_type_bytes(&got.type);
        for (int k = 0; k < RUN_MARGIN; k++)
            if (end[k] != 0xa5)
                return mot_arena_printf(&ctx->arena, "wrote behind result %u", i - r->n_in);
    }
    return NULL;
}

static inline bool has_same_bits(const Run *a, const Run *b)
{
    for (uint32_t i = a->n_in; i < a->n; i++)
        if (memcmp(a->result[i], b->result[i], (size_t)mot_type_bytes(&a->buf[i].type)) != 0)
            return false;
    return true;
}

#endif
