/* The cases of device_cases.h as programs of one kernel, with operands by their names. */
#ifndef MOTLEY_TESTS_CONFORM_CASE_RUN_H
#define MOTLEY_TESTS_CONFORM_CASE_RUN_H

#include "ir/sparse.h"
#include "tests/conform/device_cases.h"
#include "tests/conform/kernel_run.h"

enum { N_CASES = sizeof cases / sizeof cases[0] };

/* By the name of the input, see device_cases.h. */
static inline double random_number(const char *name)
{
    if (strcmp(name, "lr") == 0)
        return 0.01;
    if (strcmp(name, "step") == 0)
        return 3;
    switch (name[0]) {
    case 'p':
        return 0.1 + 2.9 * random_uniform();
    case 'm':
        return random_uniform() < 0.3 ? -INFINITY : random_normal();
    case 'n':
        return floor(random_uniform() * 101) - 50;
    case 'a': /* and what fill_ascending adds */
        return floor(random_uniform() * 6);
    case 'i':
        return floor(random_uniform() * atof(name + 1)) +
               (name[strlen(name) - 1] == 'd'); /* d: a divisor */
    default:
        return random_normal();
    }
}

/* Rows of k numbers below 6 become ascending ones. */
static inline void fill_ascending(const MotTensor *t, const char *name)
{
    int64_t k = strtoll(name + 1, NULL, 10);
    for (int64_t i = 0; i < mot_type_elements(&t->type); i++)
        mot_tensor_set_int(t, i, mot_tensor_get_int(t, i) + i % k * 6);
}

/* Random bytes are no messages. */
static inline void fill_messages(const MotTensor *t, const char *name)
{
    enum { SIZE = 20, K = 3 };
    MotWireForm wire = mot_wire_find(name + 2);
    int64_t bytes = mot_sparse_message_bytes(wire, SIZE, K);
    assert_int_equal(t->type.dims[t->type.rank - 1], bytes);
    for (int64_t row = 0; row < mot_type_elements(&t->type) / bytes; row++) {
        int32_t index[K];
        float value[K];
        for (int i = 0; i < K; i++) {
            index[i] = i * 6 + (int32_t)(random_uniform() * 6);
            value[i] = (float)random_normal();
        }
        mot_sparse_pack(wire, SIZE, K, index, value, (uint8_t *)t->data + row * bytes);
    }
}

static inline void fill_by_name(const MotGraph *g, const MotOp *input, const MotTensor *operand)
{
    (void)g;
    const char *name = mot_attrs(input, input)->name;
    for (int64_t k = 0; k < mot_type_elements(&operand->type); k++)
        mot_tensor_set(operand, k, random_number(name));
    if (name[0] == 'a')
        fill_ascending(operand, name);
    if (name[0] == 'w')
        fill_messages(operand, name);
}

static inline MotProgram *make_case_program(MotCtx *ctx, const Case *c)
{
    char *text =
        mot_arena_printf(&ctx->arena, "motley graph 1\ngraph @k%s {\n%s}\n", c->symbols, c->body);
    MotGraph *g = NULL;
    if (mot_graph_parse(ctx, c->name, text, &g) != MOT_OK)
        fail_msg("%s\n%s", text, mot_text_get(&ctx->error));
    MotProgram *p = mot_arena_new(&ctx->arena, MotProgram);
    p->ctx = ctx;
    mot_vec_push(&ctx->arena, &p->kernels, (MotKernel){.name = c->name, .graph = g});
    return p;
}

static inline void make_case_run(MotCtx *ctx, const MotProgram *p, const Case *c, int which, Run *r)
{
    random_state = 1234;
    if (make_run(ctx, p, 0, c->sizes[which], fill_by_name, r) != MOT_OK)
        fail_msg("%s: %s", c->name, mot_text_get(&ctx->error));
}

static inline MotStatus prepare_case(MotCtx *ctx, const MotDeviceApi *api, void *device,
                                     const MotProgram *p, const Case *c, int which, const Run *r,
                                     void **out_launch)
{
    MotBinding *binding = mot_arena_new(&ctx->arena, MotBinding);
    MotInstr *launch = mot_arena_new(&ctx->arena, MotInstr);
    *binding =
        (MotBinding){.size = mot_arena_copy(&ctx->arena, c->sizes[which], sizeof c->sizes[which])};
    *launch = (MotInstr){.kind = MOT_INS_LAUNCH, .n_bufs = r->n, .n_in = r->n_in};
    return api->prepare(device, ctx, p, launch, binding, out_launch);
}

#endif
