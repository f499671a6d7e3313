/*
 * The C API over job/: every call runs in the model's context, with the C locale, and leaves status
 * and text behind. What a call allocates is gone at its end, so that steps do not grow the process.
 */
#include "include/motley.h"

#include "ir/layout.h"
#include "job/job.h"
#include "passes/plan/explain.h"
#include "runtime/data.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum Stage { EMPTY, OPEN, BROKEN } Stage;

struct MotleyModel {
    MotCtx ctx;
    MotJob job;
    Stage stage;
    bool has_session;
    MotVec(char *) options; /* as on a command line */
    const char *plan;
    int64_t n_steps, n_total; /* done; in all, for schedules */
    char *error;              /* of the last call; on the heap, as the context's is rewound */
    void (*log)(void *self, const char *line);
    void *log_self;
    locale_t locale;
};

static const MotOption api_options[] = {
    {"--steps", "N", "steps in all, for schedules of the learning rate"}, {NULL, NULL, NULL}};
/* The name is for messages: its --help lists the options. */
static const MotVerb verb = {
    .name = "train",
    .operands = "MODEL",
    .options = (const MotOption *const[]){api_options, mot_input_options, mot_loss_options,
                                          mot_optimizer_options, mot_step_options,
                                          mot_model_options, mot_device_options, mot_plan_options,
                                          mot_plan_file_options, mot_rank_options, NULL}};

static const MotleyStatus statuses[] = {
    [MOT_OK] = MOTLEY_OK,
    [MOT_ERR_INTERNAL] = MOTLEY_INTERNAL,
    [MOT_ERR_IO] = MOTLEY_IO,
    [MOT_ERR_MEMORY] = MOTLEY_MEMORY,
    [MOT_ERR_USAGE] = MOTLEY_USAGE,
    [MOT_ERR_MODEL] = MOTLEY_MODEL,
    [MOT_ERR_UNSUPPORTED] = MOTLEY_MODEL,
    [MOT_ERR_INFEASIBLE] = MOTLEY_INFEASIBLE,
    [MOT_ERR_MISMATCH] = MOTLEY_MISMATCH,
    [MOT_ERR_RANK] = MOTLEY_RANK,
    [MOT_ERR_DATA] = MOTLEY_DATA,
    [MOT_ERR_NUMERICS] = MOTLEY_NUMERICS,
    [MOT_ERR_LIMIT] = MOTLEY_LIMIT,
    [MOT_STOPPED] = MOTLEY_INTERNAL, /* only the command stops on purpose */
};

/* ---- Calls ---- */

typedef struct Call {
    MotleyModel *m;
    const char *text[2];
    const MotleyTensor *tensors[2];
    size_t n[2];
    MotleyModel *from;
    MotleyKind kind;
    MotleyTensor *out;
    MotSection section;
    double loss;
} Call;

static void keep_error(MotleyModel *m)
{
    free(m->error);
    m->error = m->ctx.status == MOT_OK ? NULL : strdup(mot_text_get(&m->ctx.error));
}

/* A model that lost a process, or was interrupted at any point, has no state to go on from. */
static bool is_fatal(MotStatus status)
{
    return status == MOT_ERR_RANK || status == MOT_ERR_MEMORY || status == MOT_ERR_INTERNAL;
}

static void close_session(MotleyModel *m)
{
    if (m->has_session)
        mot_session_close(m->job.session);
    m->has_session = false;
}

/* Runs the body if the model is at the stage. With `is_kept` what it allocates stays. */
static MotleyStatus run_call(Call *call, Stage stage, bool is_kept,
                             MotStatus (*body)(MotCtx *, void *))
{
    MotleyModel *m = call->m;
    locale_t locale = uselocale(m->locale);
    MotScope scope = mot_scope_begin(&m->ctx);
    mot_error_clear(&m->ctx);
    MotStatus status = MOT_ERR_USAGE;
    if (m->stage == stage)
        status = mot_ctx_run(&m->ctx, body, call);
    else
        mot_fail(&m->ctx, status, MOT_NOWHERE,
                 m->stage == BROKEN ? "the model has failed before: it can only be freed"
                 : m->stage == OPEN ? "the model is open already"
                                    : "the model is not open: motley_open comes first");
    if (is_fatal(status)) {
        close_session(m);
        m->stage = BROKEN;
    }
    keep_error(m);
    mot_error_clear(&m->ctx);
    if (!is_kept)
        mot_scope_end(&m->ctx, scope);
    uselocale(locale);
    return statuses[status];
}

static void pass_log(void *self, MotLogLevel level, const char *line)
{
    const MotleyModel *m = self;
    if (m->log && level <= MOT_LOG_INFO)
        m->log(m->log_self, line);
}

/* ---- A model's life ---- */

const char *motley_version(void)
{
    return MOTLEY_VERSION;
}

MotleyModel *motley_new(void)
{
    MotleyModel *m = calloc(1, sizeof *m);
    locale_t locale = m ? newlocale(LC_ALL_MASK, "C", (locale_t)0) : (locale_t)0;
    if (!locale) {
        free(m);
        return NULL;
    }
    m->locale = locale;
    mot_ctx_init(&m->ctx);
    m->ctx.log = pass_log;
    m->ctx.log_self = m;
    return m;
}

void motley_free(MotleyModel *m)
{
    if (!m)
        return;
    close_session(m);
    mot_ctx_deinit(&m->ctx);
    freelocale(m->locale);
    free(m->error);
    free(m);
}

const char *motley_error(const MotleyModel *m)
{
    return m->error ? m->error : "";
}

void motley_set_log(MotleyModel *m, void (*log)(void *self, const char *line), void *self)
{
    m->log = log;
    m->log_self = self;
}

static MotStatus set_option(MotCtx *ctx, void *arg)
{
    const Call *call = arg;
    char *words[] = {mot_arena_strdup(&ctx->arena, call->text[0]),
                     mot_arena_strdup(&ctx->arena, call->text[1] ? call->text[1] : "")};
    int n = call->text[1] ? 2 : 1;
    const MotArgs *args;
    if (words[0][0] != '-' || strchr(words[0], '='))
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "an option is its name with its dashes, not %s",
                        mot_quote(&ctx->arena, words[0]));
    MOT_TRY(mot_args_parse(ctx, &verb, n, words, &args)); /* alone: is it one? */
    if (mot_args_operand(args, 0))
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s takes no value", words[0]);
    for (int i = 0; i < n; i++)
        mot_vec_push(&ctx->arena, &call->m->options, words[i]);
    return MOT_OK;
}

MotleyStatus motley_set(MotleyModel *m, const char *option, const char *value)
{
    Call call = {.m = m, .text = {option, value}};
    return run_call(&call, EMPTY, true, set_option);
}

static MotStatus report_plan(MotCtx *ctx, MotleyModel *m)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    MOT_TRY(mot_plan_report(m->job.plan, &m->job.stats, &text));
    m->plan = mot_text_get(&text);
    return MOT_OK;
}

static MotStatus open_model(MotCtx *ctx, void *arg)
{
    MotleyModel *m = ((const Call *)arg)->m;
    const MotArgs *args;
    const char *path = mot_arena_strdup(&ctx->arena, ((const Call *)arg)->text[0]);
    m->stage = BROKEN; /* unless all goes well */
    MOT_TRY(mot_args_parse(ctx, &verb, (int)m->options.n, m->options.data, &args));
    MOT_TRY(mot_args_int(ctx, args, "--steps", 1, INT32_MAX, 0, &m->n_total));
    MOT_TRY(mot_job_import_file(ctx, args, path, &m->job));
    bool trains = mot_args_has(args, "--loss");
    MOT_TRY(trains ? mot_job_add_training(ctx, &m->job, true, false)
                   : mot_job_prepare_forward(ctx, &m->job));
    if (trains && m->job.optimizer.is_cosine && !m->n_total)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "schedule=cosine needs --steps");
    MOT_TRY(mot_job_place(ctx, &m->job));
    MOT_TRY(report_plan(ctx, m));
    MOT_TRY(mot_job_start(ctx, &m->job));
    m->has_session = true;
    m->stage = OPEN;
    return MOT_OK;
}

MotleyStatus motley_open(MotleyModel *m, const char *path)
{
    Call call = {.m = m, .text = {path}};
    return run_call(&call, EMPTY, true, open_model);
}

const char *motley_plan(const MotleyModel *m)
{
    return m->plan ? m->plan : "";
}

/* ---- What there is ---- */

static MotleyTensor describe(const char *name, const MotType *type)
{
    MotleyTensor t = {
        .name = name, .dtype = (MotleyDtype)mot_dtype_to_onnx(type->dtype), .rank = type->rank};
    memcpy(t.dims, type->dims, (size_t)type->rank * sizeof *t.dims);
    return t;
}

static int64_t count_bytes(const MotleyTensor *t)
{
    MotType type = mot_type_make(mot_dtype_from_onnx(t->dtype), t->rank, t->dims);
    return mot_type_bytes(&type);
}

/* Number i of the kind. False: there are fewer. */
static bool find(const MotleyModel *m, MotleyKind kind, size_t i, MotleyTensor *out)
{
    const MotPipeline *p = m->job.pipeline;
    if (m->stage != OPEN)
        return false;
    if (kind == MOTLEY_OUTPUT) {
        if (m->job.loss.form || i >= p->results.n)
            return false;
        *out = describe(p->results.data[i].name, &p->results.data[i].type);
        return true;
    }
    for (uint32_t b = 0; b < p->vars.n; b++) {
        const MotBuf *buf = p->vars.data[b];
        bool is_one = kind == MOTLEY_INPUT ? buf->kind == MOT_BUF_INPUT : mot_job_is_param(buf);
        if (!is_one || i-- > 0)
            continue;
        MotType type =
            kind == MOTLEY_INPUT ? buf->global : mot_param_file_type(&buf->global, buf->source);
        *out = describe(buf->name, &type);
        return true;
    }
    return false;
}

size_t motley_count(const MotleyModel *m, MotleyKind kind)
{
    MotleyTensor tensor;
    size_t n = 0;
    while (find(m, kind, n, &tensor))
        n++;
    return n;
}

static MotStatus describe_one(MotCtx *ctx, void *arg)
{
    const Call *call = arg;
    return find(call->m, call->kind, call->n[0], call->out)
               ? MOT_OK
               : mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "there is no number %zu", call->n[0]);
}

MotleyStatus motley_describe(MotleyModel *m, MotleyKind kind, size_t i, MotleyTensor *out)
{
    Call call = {.m = m, .kind = kind, .n = {i}, .out = out};
    *out = (MotleyTensor){0};
    return run_call(&call, OPEN, false, describe_one);
}

/* ---- Work ---- */

static const MotleyTensor *find_tensor(const MotleyTensor *tensors, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (tensors[i].name && strcmp(tensors[i].name, name) == 0)
            return &tensors[i];
    return NULL;
}

/* That a caller's tensor has the type, and data. */
static MotStatus check_tensor(MotCtx *ctx, const MotleyTensor *t, const MotType *type)
{
    MotType given = {.dtype = mot_dtype_from_onnx(t->dtype)};
    if (t->rank < 0 || t->rank > MOTLEY_MAX_RANK || given.dtype == MOT_NO_DTYPE)
        return mot_fail(ctx, MOT_ERR_DATA, MOT_NOWHERE, "%s has dtype %d and rank %d",
                        mot_quote(&ctx->arena, t->name), (int)t->dtype, t->rank);
    given = mot_type_make(given.dtype, t->rank, t->dims);
    if (!mot_type_equal(&given, type))
        return mot_fail(ctx, MOT_ERR_DATA, MOT_NOWHERE, "%s is %s[%s], the model has %s[%s]",
                        mot_quote(&ctx->arena, t->name), mot_dtype_name(given.dtype),
                        mot_shape_text(&ctx->arena, given.dims, given.rank),
                        mot_dtype_name(type->dtype),
                        mot_shape_text(&ctx->arena, type->dims, type->rank));
    if (!t->data && mot_type_bytes(type) > 0)
        return mot_fail(ctx, MOT_ERR_DATA, MOT_NOWHERE, "%s has no data",
                        mot_quote(&ctx->arena, t->name));
    return MOT_OK;
}

/* A value of the model into a caller's tensor of its type. */
static MotStatus copy_out(MotCtx *ctx, const MotleyTensor *to, const MotTensor *value)
{
    MOT_TRY(check_tensor(ctx, to, &value->type));
    size_t bytes = (size_t)mot_type_bytes(&value->type);
    if (bytes)
        memcpy(to->data, value->data, bytes);
    return MOT_OK;
}

/* One input of one batch. */
static MotStatus write_input(MotCtx *ctx, MotJob *job, const MotBuf *buf, uint32_t micro,
                             const MotleyTensor *t)
{
    MOT_TRY(check_tensor(ctx, t, &buf->global));
    MotTensor value = {buf->global, t->data};
    if (job->loss.input && strcmp(job->loss.input, buf->name) == 0 &&
        mot_dtype_class(buf->global.dtype) == MOT_CLASS_INT)
        MOT_TRY(mot_labels_check(ctx, buf->name, &value, mot_job_classes(job), job->loss.ignore));
    return mot_session_write_batch(job->session, buf->name, micro, &value);
}

/*
 * Every input of every batch from the caller's tensors, which stand batch by batch; and no tensor
 * is left.
 */
static MotStatus write_inputs(MotCtx *ctx, const Call *call, uint32_t n_batches)
{
    MotJob *job = &call->m->job;
    size_t n = motley_count(call->m, MOTLEY_INPUT);
    if (call->n[0] != n * n_batches)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "%zu tensors are given, %u batches of %zu inputs are wanted", call->n[0],
                        n_batches, n);
    for (uint32_t micro = 0; micro < n_batches; micro++)
        for (uint32_t i = 0; i < job->pipeline->vars.n; i++) {
            const MotBuf *buf = job->pipeline->vars.data[i];
            if (buf->kind != MOT_BUF_INPUT)
                continue;
            const MotleyTensor *t = find_tensor(call->tensors[0] + micro * n, n, buf->name);
            if (!t)
                return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "input %s is missing",
                                mot_quote(&ctx->arena, buf->name));
            MOT_TRY(write_input(ctx, job, buf, micro, t));
        }
    return MOT_OK;
}

static MotStatus run_batch(MotCtx *ctx, void *arg)
{
    Call *call = arg;
    MotleyModel *m = call->m;
    double lr;
    if (!m->job.loss.form)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "the model has no loss: set --loss");
    bool updates = call->section == MOT_SECTION_STEP;
    MOT_TRY(write_inputs(ctx, call, updates ? m->job.n_micro : 1));
    if (updates) {
        int64_t step = m->n_steps + 1, total = m->n_total ? m->n_total : step;
        MOT_TRY(mot_job_begin_step(&m->job, step, total, &lr));
    }
    MOT_TRY(mot_session_run(m->job.session, call->section));
    m->n_steps += updates;
    MOT_TRY(mot_job_scalar(&m->job, "loss", call->section, &call->loss));
    return isfinite(call->loss)
               ? MOT_OK
               : mot_fail(ctx, MOT_ERR_NUMERICS, MOT_NOWHERE, "the loss is %g", call->loss);
}

static MotleyStatus run_loss(MotleyModel *m, MotSection section, const MotleyTensor *inputs,
                             size_t n, double *out_loss)
{
    Call call = {.m = m, .tensors = {inputs}, .n = {n}, .section = section, .loss = NAN};
    MotleyStatus status = run_call(&call, OPEN, false, run_batch);
    if (out_loss)
        *out_loss = call.loss;
    return status;
}

MotleyStatus motley_step(MotleyModel *m, const MotleyTensor *inputs, size_t n, double *out_loss)
{
    return run_loss(m, MOT_SECTION_STEP, inputs, n, out_loss);
}

MotleyStatus motley_evaluate(MotleyModel *m, const MotleyTensor *inputs, size_t n, double *out_loss)
{
    return run_loss(m, MOT_SECTION_EVAL, inputs, n, out_loss);
}

static MotStatus copy_output(MotCtx *ctx, MotJob *job, const MotleyTensor *to)
{
    MotTensor value;
    MOT_TRY(mot_session_output(job->session, to->name ? to->name : "", MOT_SECTION_EVAL, &value));
    return copy_out(ctx, to, &value);
}

static MotStatus run_forward(MotCtx *ctx, void *arg)
{
    const Call *call = arg;
    MotJob *job = &call->m->job;
    if (job->loss.form)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "the model trains: a second one without --loss runs forward");
    MOT_TRY(write_inputs(ctx, call, 1));
    MOT_TRY(mot_session_run(job->session, MOT_SECTION_EVAL));
    for (size_t i = 0; i < call->n[1]; i++)
        MOT_TRY(copy_output(ctx, job, &call->tensors[1][i]));
    return MOT_OK;
}

MotleyStatus motley_run(MotleyModel *m, const MotleyTensor *inputs, size_t n_inputs,
                        const MotleyTensor *outputs, size_t n_outputs)
{
    Call call = {.m = m, .tensors = {inputs, outputs}, .n = {n_inputs, n_outputs}};
    return run_call(&call, OPEN, false, run_forward);
}

/* ---- Parameters ---- */

/*
 * A parameter that holds two initializers has the names of both. NULL, and a failure, if there is
 * none.
 */
static const MotBuf *find_param(MotCtx *ctx, const MotleyModel *m, const char *name,
                                bool *out_is_second)
{
    const MotPipeline *p = m->job.pipeline;
    for (uint32_t i = 0; i < p->vars.n && name; i++) {
        const MotBuf *buf = p->vars.data[i];
        if (!mot_job_is_param(buf))
            continue;
        const char *tied = mot_attrs(buf->source, param)->tied;
        *out_is_second = tied && strcmp(tied, name) == 0;
        if (*out_is_second || strcmp(buf->name, name) == 0)
            return buf;
    }
    mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "the model has no parameter %s",
             mot_quote(&ctx->arena, name ? name : ""));
    return NULL;
}

static MotStatus read_param(MotCtx *ctx, void *arg)
{
    const Call *call = arg;
    bool is_second = false;
    MotTensor value;
    const MotBuf *buf = find_param(ctx, call->m, call->tensors[0]->name, &is_second);
    if (!buf)
        return ctx->status;
    MOT_TRY(mot_session_read_param(call->m->job.session, buf, &value));
    if (is_second)
        value = mot_param_tied(&ctx->arena, buf->source, &value);
    return copy_out(ctx, call->tensors[0], &value);
}

MotleyStatus motley_read_param(MotleyModel *m, const MotleyTensor *out)
{
    Call call = {.m = m, .tensors = {out}};
    return run_call(&call, OPEN, false, read_param);
}

static MotStatus write_param(MotCtx *ctx, void *arg)
{
    const Call *call = arg;
    const MotleyTensor *value = call->tensors[0];
    bool is_second = false;
    const MotBuf *buf = find_param(ctx, call->m, value->name, &is_second);
    if (!buf)
        return ctx->status;
    if (is_second)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s is tied: write %s",
                        mot_quote(&ctx->arena, value->name), mot_quote(&ctx->arena, buf->name));
    MotType type = mot_param_file_type(&buf->global, buf->source);
    MOT_TRY(check_tensor(ctx, value, &type));
    return mot_session_write_param(call->m->job.session, buf->name, value->data);
}

MotleyStatus motley_write_param(MotleyModel *m, const MotleyTensor *value)
{
    Call call = {.m = m, .tensors = {value}};
    return run_call(&call, OPEN, false, write_param);
}

/* The error of one model becomes that of the other. */
static void hand_error(MotleyModel *to, const MotleyModel *from)
{
    free(to->error);
    to->error = strdup(motley_error(from));
}

MotleyStatus motley_copy_params(MotleyModel *to, MotleyModel *from)
{
    MotleyTensor t;
    MotleyStatus status = motley_describe(to, MOTLEY_PARAM, 0, &t);
    for (size_t i = 0, n = motley_count(to, MOTLEY_PARAM); i < n && status == MOTLEY_OK; i++) {
        (void)find(to, MOTLEY_PARAM, i, &t);
        t.data = malloc((size_t)count_bytes(&t));
        status = t.data ? motley_read_param(from, &t) : MOTLEY_MEMORY;
        if (status == MOTLEY_OK)
            status = motley_write_param(to, &t);
        else
            hand_error(to, from);
        free(t.data);
    }
    return status;
}

static MotStatus save(MotCtx *ctx, void *arg)
{
    const Call *call = arg;
    return mot_job_export(ctx, &call->m->job, call->text[0]);
}

MotleyStatus motley_save(MotleyModel *m, const char *path)
{
    Call call = {.m = m, .text = {path}};
    return run_call(&call, OPEN, false, save);
}
