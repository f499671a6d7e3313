/*
 * loss: attaches a loss to the graph and makes `output {name="loss"}`, a scalar, its only output.
 *
 * A mean is written as the sum over rows divided by the number of rows that count, both plain
 * reduce_sums of their own: split over the batch each is a partial sum, and the loss is divided by
 * the global count. With several micro-batches a step both are accumulated, so that sum and count
 * are those of the step. The values are named "loss_sum" and "loss_count". Other outputs are
 * dropped: training computes nothing that only they need. Cost: a few ops.
 */
#include "passes/graph/loss.h"

#include "ir/builder.h"
#include "passes/graph/edit.h"
#include "passes/pass.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    MotBuilder b;
    const MotLoss *spec;
    bool accumulates;
    MotValue value;
} LossRule;

typedef struct MotLossForm {
    const char *name;
    bool has_target;
    MotValue (*build)(LossRule *r);
} MotLossForm;

/* ---- Building ---- */

static MotType type_of(const LossRule *r, MotValue v)
{
    return *mot_graph_type(r->b.graph, v);
}

/* The input for labels or target: the graph's own of that name, or a new one. */
static MotValue find_or_make_input(LossRule *r, MotType fitting)
{
    MotValue found = mot_edit_find_input(r->b.graph, r->spec->input);
    if (found)
        return found;
    return mot_input(&r->b, r->spec->input,
                     r->spec->input_type.dtype ? r->spec->input_type : fitting);
}

static MotValue sum_all(LossRule *r, MotValue v)
{
    static const int64_t all[MOT_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    return mot_reduce_sum(&r->b, v, all, (uint32_t)type_of(r, v).rank, MOT_DROP);
}

static void set_name(LossRule *r, MotValue v, const char *name)
{
    if (v)
        r->b.graph->values.data[v].name = mot_intern(r->b.graph->ctx, name);
}

/* Of the step, where `v` is of the micro-batch. */
static MotValue accumulate(LossRule *r, MotValue v)
{
    return r->accumulates ? mot_accumulate(&r->b, v) : v;
}

/* A step without rows has loss 0. */
static MotValue divide_sums(LossRule *r, MotValue sum, MotValue count)
{
    sum = accumulate(r, sum);
    count = accumulate(r, count);
    set_name(r, sum, "loss_sum");
    set_name(r, count, "loss_count");
    return mot_div(&r->b, sum, mot_max(&r->b, count, mot_scalar_like(&r->b, count, 1)));
}

/* Sums in float32 at least. */
static MotValue mean_of(LossRule *r, MotValue rows, MotValue count)
{
    return divide_sums(r, sum_all(r, rows), count);
}

static MotValue widen(LossRule *r, MotValue v)
{
    return type_of(r, v).dtype == MOT_F64 ? v : mot_cast(&r->b, v, MOT_F32);
}

/* The option names an axis that the logits lack. */
static MotValue refuse_axis(LossRule *r)
{
    MotCtx *ctx = r->b.graph->ctx;
    MotType x = type_of(r, r->value);
    mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
             "--loss: axis=%lld: %s is [%s], its axes are %d to %d", (long long)r->spec->axis,
             mot_quote(&ctx->arena, r->spec->value), mot_shape_text(&ctx->arena, x.dims, x.rank),
             -x.rank, x.rank - 1);
    return 0;
}

static MotValue refuse_shapes(LossRule *r, const char *what, MotValue a, MotValue b)
{
    MotCtx *ctx = r->b.graph->ctx;
    MotType x = type_of(r, a), y = type_of(r, b);
    mot_fail(ctx, MOT_ERR_MODEL, MOT_NOWHERE, "%s: %s is %s[%s], %s is %s[%s]: %s",
             r->spec->form->name, mot_quote(&ctx->arena, r->spec->value), mot_dtype_name(x.dtype),
             mot_shape_text(&ctx->arena, x.dims, x.rank), mot_quote(&ctx->arena, r->spec->input),
             mot_dtype_name(y.dtype), mot_shape_text(&ctx->arena, y.dims, y.rank), what);
    return 0;
}

static bool is_dims_without(const MotType *x, int axis, const MotType *y)
{
    if (y->rank != x->rank - 1)
        return false;
    for (int d = 0; d < y->rank; d++)
        if (y->dims[d] != x->dims[d < axis ? d : d + 1])
            return false;
    return true;
}

/*
 * The class axis: the given one, else the last that fits the labels, else the last dim. -1 if the
 * given one is none.
 */
static int find_class_axis(const LossRule *r, const MotType *logits, const MotType *labels)
{
    int64_t axis = r->spec->axis;
    if (axis != MOT_LOSS_FIND_AXIS) {
        axis += axis < 0 ? logits->rank : 0;
        return axis < 0 || axis >= logits->rank ? -1 : (int)axis;
    }
    for (int d = logits->rank - 1; labels && d >= 0; d--)
        if (is_dims_without(logits, d, labels))
            return d;
    return logits->rank - 1;
}

static MotType remove_dim(MotType type, int axis)
{
    type.rank--;
    for (int d = axis; d < type.rank; d++)
        type.dims[d] = type.dims[d + 1];
    return type;
}

static MotValue move_axis_last(LossRule *r, MotValue v, int axis)
{
    int64_t perm[MOT_MAX_RANK];
    int rank = type_of(r, v).rank, n = 0;
    for (int d = 0; d < rank; d++)
        if (d != axis)
            perm[n++] = d;
    perm[n] = axis;
    return mot_transpose(&r->b, v, perm);
}

/*
 * Where [B*T,V] meets [B,T], or [B,T,V] meets [B*T], the merged one is split: merged dims shard in
 * their outer part only. Both have equally many rows.
 */
static void agree_on_rows(LossRule *r, MotValue *logits, MotValue *labels)
{
    MotType x = type_of(r, *logits), y = type_of(r, *labels);
    if (y.rank < x.rank) {
        *labels = mot_reshape(&r->b, *labels, x.rank - 1, x.dims);
        return;
    }
    y.dims[y.rank] = x.dims[x.rank - 1];
    *logits = mot_reshape(&r->b, *logits, y.rank + 1, y.dims);
}

/* 1 where the label counts, 0 where it is ignored; of the rows' dtype. */
static MotValue count_valid(LossRule *r, MotValue labels, MotValue rows)
{
    MotValue is_ignored =
        mot_eq(&r->b, labels, mot_scalar_like(&r->b, labels, (double)r->spec->ignore));
    MotValue one = mot_scalar_like(&r->b, rows, 1), zero = mot_scalar_like(&r->b, rows, 0);
    return sum_all(r, mot_select(&r->b, is_ignored, zero, one));
}

static MotValue build_cross_entropy(LossRule *r)
{
    MotType x = type_of(r, r->value);
    MotValue given = mot_edit_find_input(r->b.graph, r->spec->input);
    MotType fitting = r->spec->input_type;
    if (given)
        fitting = type_of(r, given);
    int axis = find_class_axis(r, &x, fitting.dtype ? &fitting : NULL);
    if (axis < 0)
        return refuse_axis(r);
    if (!fitting.dtype) {
        fitting = remove_dim(x, axis);
        fitting.dtype = MOT_I64;
    }
    MotValue labels = find_or_make_input(r, fitting), logits = move_axis_last(r, r->value, axis);
    if (fitting.dtype != MOT_I64 && fitting.dtype != MOT_I32)
        return refuse_shapes(r, "labels must be i64 or i32", r->value, labels);
    if (mot_type_elements(&fitting) * x.dims[axis] != mot_type_elements(&x) ||
        fitting.rank >= MOT_MAX_RANK)
        return refuse_shapes(r, "there must be one label a row", r->value, labels);
    agree_on_rows(r, &logits, &labels);
    MotAttr_cross_entropy attrs = {.ignore = r->spec->ignore, .smoothing = r->spec->smoothing};
    MotValue in[2] = {logits, labels};
    MotValue rows = mot_result(&r->b, mot_build(&r->b, MOT_OP_CROSS_ENTROPY, in, 2, &attrs), 0);
    rows = widen(r, rows);
    return mean_of(r, rows, count_valid(r, labels, rows));
}

/* Output and target widened, if they agree; the mean is over elements. */
static bool take_target(LossRule *r, MotValue *out_x, MotValue *out_target)
{
    MotType x = type_of(r, r->value);
    MotValue target = find_or_make_input(r, x);
    MotType y = type_of(r, target);
    if (target && !mot_type_equal(&x, &y)) {
        refuse_shapes(r, "the target must be of the output's type", r->value, target);
        return false;
    }
    *out_x = widen(r, r->value);
    *out_target = widen(r, target);
    return true;
}

static MotValue mean_of_elements(LossRule *r, MotValue losses)
{
    MotType type = type_of(r, losses);
    return mean_of(r, losses, mot_scalar_like(&r->b, losses, (double)mot_type_elements(&type)));
}

static MotValue build_mse(LossRule *r)
{
    MotValue x, target;
    if (!take_target(r, &x, &target))
        return 0;
    MotValue d = mot_sub(&r->b, x, target);
    return mean_of_elements(r, mot_mul(&r->b, d, d));
}

/*
 * max(x, 0) - x t + log(1 + exp(-|x|)): of logits, finite for all of them. The kinks of max and |x|
 * at 0 cancel.
 */
static MotValue build_bce(LossRule *r)
{
    MotBuilder *b = &r->b;
    MotValue x, target;
    if (!take_target(r, &x, &target))
        return 0;
    MotValue hinge = mot_sub(b, mot_max(b, x, mot_scalar_like(b, x, 0)), mot_mul(b, x, target));
    MotValue tail = mot_log(b, mot_add_scalar(b, mot_exp(b, mot_neg(b, mot_abs(b, x))), 1));
    return mean_of_elements(r, mot_add(b, hinge, tail));
}

/*
 * The model computes its loss. Of several micro-batches it is the mean: how many rows each counts
 * is not known.
 */
static MotValue build_output(LossRule *r)
{
    MotType type = type_of(r, r->value);
    if (mot_type_elements(&type) == 1) {
        MotValue loss = mot_reshape(&r->b, r->value, 0, NULL);
        return r->accumulates ? divide_sums(r, loss, mot_scalar_like(&r->b, loss, 1)) : loss;
    }
    MotCtx *ctx = r->b.graph->ctx;
    mot_fail(ctx, MOT_ERR_MODEL, MOT_NOWHERE, "output: %s is [%s], a loss has one element",
             mot_quote(&ctx->arena, r->spec->value),
             mot_shape_text(&ctx->arena, type.dims, type.rank));
    return 0;
}

static const MotLossForm forms[] = {
    {"cross_entropy", true, build_cross_entropy},
    {"mse", true, build_mse},
    {"bce", true, build_bce},
    {"output", false, build_output},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

/* ---- Parsing ---- */

/* What an output shows first, then any value of that name. */
static MotValue find_value(const MotGraph *g, const char *name)
{
    MotValue v = mot_edit_find_output(g, name);
    for (MotValue i = 1; !v && i < g->values.n; i++)
        if (g->values.data[i].name && strcmp(g->values.data[i].name, name) == 0)
            v = i;
    return v;
}

static MotStatus refuse_text(MotCtx *ctx, const char *text, const char *what)
{
    mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--loss %s: %s", mot_quote(&ctx->arena, text), what);
    mot_hint(ctx, "cross_entropy:LOGITS:LABELS, mse:OUTPUT:TARGET, bce:OUTPUT:TARGET or "
                  "output:NAME; after commas "
                  "ignore=-100, smoothing=0.1, axis=1 (cross_entropy)");
    return ctx->status;
}

static bool parse_int(const char *text, int64_t *out)
{
    char *end;
    *out = strtoll(text, &end, 10);
    return end != text && *end == 0;
}

static bool parse_ignore(const char *text, MotLoss *loss)
{
    return parse_int(text, &loss->ignore);
}

static bool parse_smoothing(const char *text, MotLoss *loss)
{
    char *end;
    loss->smoothing = strtod(text, &end);
    return end != text && *end == 0 && loss->smoothing >= 0 && loss->smoothing <= 1;
}

/* Whether the logits have it is seen when the loss is built. */
static bool parse_axis(const char *text, MotLoss *loss)
{
    return parse_int(text, &loss->axis) && loss->axis >= -MOT_MAX_RANK && loss->axis < MOT_MAX_RANK;
}

static const struct {
    const char *name;
    bool (*parse)(const char *text, MotLoss *loss);
} options[] = {{"ignore=", parse_ignore}, {"smoothing=", parse_smoothing}, {"axis=", parse_axis}};

/* Whether `item` is an option, and if it is a legal one, sets it. */
static bool parse_option(const char *item, MotLoss *loss, bool *out_legal)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        size_t n = strlen(options[i].name);
        if (strncmp(item, options[i].name, n) != 0)
            continue;
        *out_legal = options[i].parse(item + n, loss);
        return true;
    }
    return false;
}

/* Cuts options off the end of `rest`; a comma before anything else belongs to a name. */
static MotStatus take_options(MotCtx *ctx, const char *text, char *rest, MotLoss *loss)
{
    char *comma;
    bool is_legal = true;
    while ((comma = strrchr(rest, ',')) && parse_option(comma + 1, loss, &is_legal)) {
        if (!is_legal)
            return refuse_text(
                ctx, text,
                mot_arena_printf(&ctx->arena, "bad option %s", mot_quote(&ctx->arena, comma + 1)));
        if (strcmp(loss->form->name, "cross_entropy") != 0)
            return refuse_text(ctx, text, "only cross_entropy has options");
        *comma = 0;
    }
    return MOT_OK;
}

/*
 * A target that ends in a comma, a word, `=`, and what is a number or no file's name: an option
 * that there is not, unless an input is called so.
 */
static MotStatus refuse_unknown_option(MotCtx *ctx, const MotGraph *g, const char *text,
                                       const char *target)
{
    const char *item = strrchr(target, ',');
    size_t n = item ? strspn(++item, "abcdefghijklmnopqrstuvwxyz_") : 0;
    if (n == 0 || item[n] != '=' || mot_edit_find_input(g, target))
        return MOT_OK;
    char *end;
    (void)strtod(item + n + 1, &end);
    if (*end && strpbrk(item + n, "./"))
        return MOT_OK;
    const char *word = mot_quote(&ctx->arena, mot_arena_strndup(&ctx->arena, item, n));
    return refuse_text(ctx, text, mot_arena_printf(&ctx->arena, "there is no option %s", word));
}

/*
 * Splits `rest` after the longest prefix that names a value and is followed by `:`, or by the end
 * without a target.
 */
static MotStatus take_names(MotCtx *ctx, const MotGraph *g, const char *text, char *rest,
                            MotLoss *loss)
{
    if (!loss->form->has_target) {
        loss->value = mot_intern(ctx, rest);
        return find_value(g, rest) ? MOT_OK
                                   : refuse_text(ctx, text, "the model has no value of that name");
    }
    for (size_t n = strlen(rest); n-- > 1;) {
        if (rest[n] != ':' || rest[n + 1] == 0)
            continue;
        rest[n] = 0;
        if (find_value(g, rest)) {
            loss->value = mot_intern(ctx, rest);
            loss->source = loss->input = mot_intern(ctx, rest + n + 1);
            return refuse_unknown_option(ctx, g, text, loss->source);
        }
        rest[n] = ':';
    }
    return refuse_text(ctx, text, "no NAME:TARGET whose name is a value of the model");
}

static const MotLoss defaults = {.ignore = -100, .axis = MOT_LOSS_FIND_AXIS};

MotStatus mot_loss_parse(MotCtx *ctx, const MotGraph *g, const char *text, MotLoss *out_loss)
{
    MotLoss loss = defaults;
    size_t n = strcspn(text, ":");
    for (size_t i = 0; i < N_FORMS; i++)
        if (strlen(forms[i].name) == n && memcmp(forms[i].name, text, n) == 0)
            loss.form = &forms[i];
    if (!loss.form || text[n] != ':')
        return refuse_text(ctx, text, "unknown form");
    char *rest = mot_arena_strdup(&ctx->arena, text + n + 1);
    MOT_TRY(take_options(ctx, text, rest, &loss));
    MOT_TRY(take_names(ctx, g, text, rest, &loss));
    *out_loss = loss;
    return MOT_OK;
}

bool mot_loss_is_spelled(MotCtx *ctx, const MotLoss *loss, const char *text)
{
    MotLoss other = defaults;
    other.form = loss->form;
    const char *head = mot_arena_printf(&ctx->arena, "%s:%s%s%s", loss->form->name, loss->value,
                                        loss->source ? ":" : "", loss->source ? loss->source : "");
    if (strncmp(text, head, strlen(head)) != 0)
        return false;
    char *rest = mot_arena_strdup(&ctx->arena, text + strlen(head));
    if (take_options(ctx, text, rest, &other) != MOT_OK) {
        mot_error_clear(ctx);
        return false;
    }
    return *rest == 0 && other.ignore == loss->ignore && other.smoothing == loss->smoothing &&
           other.axis == loss->axis;
}

/* ---- The pass ---- */

static MotStatus attach_loss(MotCtx *ctx, MotGraph *g, const MotPassOpts *opts, bool *out_changed)
{
    if (!opts->loss)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "there is no loss to attach (--loss)");
    LossRule r = {.b = mot_builder_make(g), .spec = opts->loss, .accumulates = opts->accumulates};
    r.value = find_value(g, opts->loss->value);
    if (!r.value)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "loss: the model has no value %s",
                        mot_quote(&ctx->arena, opts->loss->value));
    if (mot_dtype_class(type_of(&r, r.value).dtype) != MOT_CLASS_FLOAT ||
        (type_of(&r, r.value).rank == 0 && opts->loss->form->has_target))
        return mot_fail(ctx, MOT_ERR_MODEL, MOT_NOWHERE, "loss: %s is no float tensor",
                        mot_quote(&ctx->arena, opts->loss->value));
    r.b.origin = "loss";
    MotValue loss = opts->loss->form->build(&r);
    mot_edit_drop_kind(g, MOT_OP_OUTPUT);
    mot_output(&r.b, "loss", loss);
    *out_changed = true;
    return ctx->status;
}

const MotPass mot_pass_loss = {
    .name = "loss", .summary = "the model's output becomes a loss", .run = attach_loss};
