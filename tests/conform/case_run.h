/* The cases of device_cases.h as programs of one kernel, with operands by their names. */
#ifndef MOTLEY_TESTS_CONFORM_CASE_RUN_H
#define MOTLEY_TESTS_CONFORM_CASE_RUN_H

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
    case 'i':
        return floor(random_uniform() * atof(name + 1)) +
               (name[strlen(name) - 1] == 'd'); /* d: a divisor */
    default:
        return random_normal();
    }
}

static inline void fill_by_name(const MotGraph *g, const MotOp *input, const MotTensor *operand)
{
    (void)g;
    for (int64_t k = 0; k < mot_type_elements(&operand->type); k++)
        mot_tensor_set(operand, k, random_number(mot_attrs(input, input)->name));
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
