/*
 * Any legal plan computes the same: training graphs of real models under random factor choices, on
 * meshes of one and two axes with uneven and zero shares, run by the ranks on the reference device
 * and compared with the same graph evaluated whole. This covers factor rules, lowering, binding and
 * every collective at once.
 *
 *     test_sharding [--seed N]      reproduces one failure
 */
#include "ir/builder.h"
#include "passes/plan/outer.h"
#include "tests/plan_run.h"

/* 1, 3, 5, ... below size. */
static MotValue odd_positions(MotBuilder *b, int64_t size)
{
    MotType type = mot_type_make(MOT_I64, 1, (int64_t[]){size / 2});
    MotTensor list = {type, mot_arena_alloc(&b->graph->ctx->arena, (size_t)mot_type_bytes(&type))};
    for (int64_t i = 0; i < size / 2; i++)
        mot_tensor_set_int(&list, i, 2 * i + 1);
    return mot_constant(b, list);
}

/* Every contraction runs over every other position of a letter that it sums. */
static void cut_contractions(MotGraph *g)
{
    MotBuilder b = mot_builder_make(g);
    for (uint32_t i = 0, n = g->body.n; i < n; i++) {
        const MotOp op = *mot_graph_op(g, g->body.data[i]);
        if (op.kind != MOT_OP_CONTRACT)
            continue;
        const char *spec = mot_attrs(&op, contract)->spec, *second = strchr(spec, ',') + 1;
        const char *k = spec;
        while (!memchr(second, *k, (size_t)(strchr(second, '-') - second)) ||
               strchr(strchr(spec, '>'), *k))
            k++;
        MotValue list = odd_positions(&b, mot_graph_type(g, op.in[0])->dims[k - spec]);
        MotValue cut = mot_contract_listed(&b, op.in[0], op.in[1], list, spec, *k);
        mot_graph_replace(g, op.out, &cut, 1);
    }
    mot_graph_compact(g);
}

/* Every contraction, and so every gradient, is computed and left in bfloat16. */
static void contract_in_bfloat(MotGraph *g)
{
    MotBuilder b = mot_builder_make(g);
    for (uint32_t i = 0, n = g->body.n; i < n; i++) {
        const MotOp op = *mot_graph_op(g, g->body.data[i]);
        if (op.kind != MOT_OP_CONTRACT)
            continue;
        MotValue x = mot_cast(&b, op.in[0], MOT_BF16), w = mot_cast(&b, op.in[1], MOT_BF16);
        MotValue y = mot_contract(&b, x, w, mot_attrs(&op, contract)->spec);
        y = mot_cast(&b, y, MOT_F32);
        mot_graph_replace(g, op.out, &y, 1);
    }
    mot_graph_compact(g);
}

static const Model models[] = {
    {"models/mlp_dynamo20_opt_static.onnx", "cross_entropy:logits:labels", "x",
     "models/fixtures/mlp/x.npy", "models/fixtures/mlp/labels.npy", NULL},
    {"models/mlp_dynamo20_opt_static.onnx", "cross_entropy:logits:labels", "x",
     "models/fixtures/mlp/x.npy", "models/fixtures/mlp/labels.npy", cut_contractions},
    {"models/gpt_erf_sdpa_dynamo18_raw_dynamic.onnx", "cross_entropy:logits:labels", "input_ids",
     "models/fixtures/gpt_erf/input_ids.npy", "models/fixtures/gpt_erf/labels.npy", NULL},
};

static const MeshShape meshes[] = {
    {1, {2}, {{1, 1}}},
    {1, {3}, {{5, 0, 2}}},
    {1, {4}, {{8, 4, 2, 1}}},
    {2, {2, 2}, {{3, 1}, {1, 2}}},
    {2, {2, 2}, {{1, 0}, {2, 1}}},
    {2, {2, 2}, {{1, 1}, {3, 1}}},
};
enum { N_MODELS = sizeof models / sizeof *models, N_MESHES = sizeof meshes / sizeof *meshes };

static unsigned first_seed = 1, n_seeds = 4;

static void check_model(const Model *model, const char *optimizer)
{
    static const MeshShape one = {1, {1}, {{1}}};
    Trained whole, split;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    Job job = make_job(&ctx, model, optimizer, 1);
    unsigned none = 0, n_run = 0;
    assert_true(run_plan(&job, make_plan(&job, &one, &none), "ref", NULL, &whole));
    for (uint32_t which = 0; which < N_MESHES; which++)
        for (unsigned s = first_seed; s < first_seed + n_seeds; s++) {
            MotScope scope = mot_scope_begin(&ctx);
            unsigned seed = s;
            if (run_plan(&job, make_plan(&job, &meshes[which], &seed), "ref", NULL, &split)) {
                n_run++;
                check_same(&split, &whole,
                           mot_arena_printf(
                               &ctx.arena, "%s%s with %s on mesh %u (test_sharding --seed %u)",
                               model->model, model->edit ? ", cut," : "", optimizer, which, s));
            }
            mot_scope_end(&ctx, scope);
        }
    mot_ctx_deinit(&ctx);
    assert_true(n_seeds == 1 ||
                n_run >= N_MESHES * n_seeds * 3 / 5); /* those of one axis at least */
}

static void any_legal_plan_computes_the_same(void **state)
{
    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++)
        check_model(&models[m], "adamw:lr=0.01,clip=1.0");
}

/*
 * What ranks add up is rounded once more than a whole sum, and each of the losses then differs by
 * some of the 8 bits.
 */
static void partial_sums_may_be_of_any_dtype(void **state)
{
    (void)state;
    static const MeshShape one = {1, {1}, {{1}}}, uneven = {1, {4}, {{8, 4, 2, 1}}};
    Model model = mlp;
    Trained whole, split;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    model.edit = contract_in_bfloat;
    Job job = make_job(&ctx, &model, "sgd:lr=0.01", 1);
    unsigned seed = 0;
    assert_true(run_plan(&job, make_plan(&job, &one, &seed), "ref", NULL, &whole));
    for (unsigned s = first_seed; s < first_seed + n_seeds; s++) {
        seed = s;
        assert_true(run_plan(&job, make_plan(&job, &uneven, &seed), "ref", NULL, &split));
        for (int i = 0; i <= N_STEPS; i++)
            if (!(fabs(split.losses[i] - whole.losses[i]) <= 5e-3 * fabs(whole.losses[0])))
                fail_msg("loss %d is %.9g, whole %.9g (test_sharding --seed %u)", i,
                         split.losses[i], whole.losses[i], s);
    }
    mot_ctx_deinit(&ctx);
}

/*
 * Two replicas on up to four devices, which share one as they like. Nothing is chosen by size: a
 * rounding would choose otherwise.
 */
static void replicas_of_several_devices_compute_the_same(void **state)
{
    (void)state;
    check_model(&gpt, "demo:lr=0.1,replicas=2,k=4,s=8,select=striding,base=sgd,beta=0.9");
}

/*
 * Axis 0 over replicas, axis 1 over the samples of one where there are any: gives how many ops, and
 * how many reshapes between the two.
 */
static void split_samples(const Job *job, MotPlan *plan, int *out_n, int *out_n_reshapes)
{
    const MotGraph *g = job->graph;
    MotFactors *factors = mot_arena_array(&job->ctx->arena, MotFactors, g->ops.n);
    *out_n = *out_n_reshapes = 0;
    for (uint32_t i = 0; i < g->body.n; i++)
        require(job->ctx,
                mot_factors(g, mot_graph_op(g, g->body.data[i]), &factors[g->body.data[i]]));
    mot_outer_choose(plan, factors);
    for (uint32_t i = 0; i < g->body.n; i++) {
        MotOpId id = g->body.data[i];
        const MotOp *op = mot_graph_op(g, id);
        for (uint32_t f = 0; f < factors[id].n; f++) {
            const MotFactor *own = &factors[id].factor[f];
            if (own->within < 0 || own->within != plan->ops[id].factor[0])
                continue;
            plan->ops[id].factor[1] = (int8_t)f;
            ++*out_n;
            *out_n_reshapes += op->kind == MOT_OP_RESHAPE && own->in_dim[0] != own->out_dim[0];
        }
        mot_plan_apply_factors(plan, id, &factors[id]);
    }
}

/*
 * Of 4 samples a replica 3 and 1, and after a resize 1 and 3; and of 2 micro-batches with 2 each.
 */
static void check_samples(const char *optimizer, uint32_t n_micro)
{
    static const MeshShape one = {1, {1}, {{1}}}, two = {2, {2, 2}, {{1, 1}, {3, 1}}};
    static const int64_t resize[] = {1, 3};
    Trained whole, split;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    Job job = make_job(&ctx, &gpt, optimizer, n_micro);
    unsigned none = 0;
    int n, n_reshapes;
    assert_true(run_plan(&job, make_plan(&job, &one, &none), "ref", NULL, &whole));
    MotPlan *plan = make_plan(&job, &two, &none);
    split_samples(&job, plan, &n, &n_reshapes);
    assert_true(n > 60 && n_reshapes > 10);
    assert_true(run_plan(&job, plan, "ref", resize, &split));
    check_same(&split, &whole, optimizer);
    mot_ctx_deinit(&ctx);
}

static void samples_of_a_replica_may_be_split(void **state)
{
    (void)state;
    check_samples("demo:lr=0.1,replicas=2,k=4,s=8,select=striding,base=sgd,beta=0.9", 1);
    check_samples("demo:lr=0.1,replicas=2,k=4,s=8,select=striding,base=sgd,beta=0.9,clip=0.5", 2);
    check_samples("demo:lr=0.01,replicas=2,k=4,s=8,select=striding,delay=1,lookahead=1", 1);
}

/* A plan of the GPT for two replicas over this mesh that splits their samples. */
static MotPlan *plan_samples(MotCtx *ctx, const MeshShape *shape, Job *out_job)
{
    unsigned none = 0;
    int n, n_reshapes;
    *out_job = make_job(ctx, &gpt, "demo:lr=0.1,replicas=2,k=4,s=8", 1);
    MotPlan *plan = make_plan(out_job, shape, &none);
    split_samples(out_job, plan, &n, &n_reshapes);
    return plan;
}

/*
 * Two replicas in one place of the outer axis: their samples are split as dim 1 of [R, batch / R],
 * and not as a part of the batch.
 */
static void two_replicas_in_one_place_are_refused(void **state)
{
    (void)state;
    static const MeshShape two = {2, {2, 2}, {{1, 0}, {1, 1}}};
    MotPipeline *pipeline;
    MotBinding bindings[4];
    MotCtx ctx;
    Job job;
    mot_ctx_init(&ctx);
    MotPlan *plan = plan_samples(&ctx, &two, &job);
    require(&ctx, mot_lower(&ctx, plan, &pipeline));
    assert_int_equal(mot_pipeline_bind(&ctx, pipeline, bindings), MOT_ERR_USAGE);
    assert_non_null(strstr(mot_text_get(&ctx.error), "give a device 2 replicas"));
    mot_error_clear(&ctx);
    pipeline->stages.data[0]->mesh.axis[0].share[1] = 1;
    require(&ctx, mot_pipeline_bind(&ctx, pipeline, bindings));
    mot_ctx_deinit(&ctx);
}

/* An axis splits samples only below one that splits replicas. */
static void samples_without_replicas_are_refused(void **state)
{
    (void)state;
    static const MeshShape two = {2, {2, 2}, {{1, 1}, {1, 1}}};
    MotCtx ctx;
    Job job;
    mot_ctx_init(&ctx);
    MotPlan *plan = plan_samples(&ctx, &two, &job);
    require(&ctx, mot_plan_verify(plan));
    for (uint32_t i = 0; i < job.graph->body.n; i++) {
        MotFactors factors;
        MotOpId id = job.graph->body.data[i];
        require(&ctx, mot_factors(job.graph, mot_graph_op(job.graph, id), &factors));
        plan->ops[id].factor[0] = -1;
        mot_plan_apply_factors(plan, id, &factors);
    }
    assert_int_equal(mot_plan_verify(plan), MOT_ERR_INFEASIBLE);
    assert_non_null(strstr(mot_text_get(&ctx.error), "no axis before splits the units"));
    mot_ctx_deinit(&ctx);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
        first_seed = (unsigned)strtoul(argv[2], NULL, 10);
        n_seeds = 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_legal_plan_computes_the_same),
        cmocka_unit_test(partial_sums_may_be_of_any_dtype),
        cmocka_unit_test(replicas_of_several_devices_compute_the_same),
        cmocka_unit_test(samples_of_a_replica_may_be_split),
        cmocka_unit_test(two_replicas_in_one_place_are_refused),
        cmocka_unit_test(samples_without_replicas_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
