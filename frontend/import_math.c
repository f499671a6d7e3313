/* Pointwise operators: most are one op of ours, the others a formula. */
#include "frontend/import_node.h"

/* ---- One op ---- */

/*
 * Checks what NumPy's broadcasting asks of the operands from `first` on, and returns their common
 * shape.
 */
static MotType check_broadcast(MotNode *n, uint32_t first)
{
    mot_node_check_dtypes(n, first, n->n_in);
    MotType type = *mot_node_type(n, 0);
    for (uint32_t i = 1; i < n->n_in && mot_node_ok(n); i++)
        type = mot_node_broadcast(n, type, *mot_node_type(n, i));
    type.dtype = mot_node_type(n, first)->dtype;
    return type;
}

static void check_takes(MotNode *n, uint32_t first)
{
    unsigned classes = mot_op_info(n->row->kind)->operand_classes;
    MotDtype dtype = mot_node_type(n, first)->dtype;
    if (mot_node_ok(n) && !(mot_dtype_class(dtype) & classes))
        mot_node_fail(n, MOT_ERR_UNSUPPORTED, "is not supported for %s", mot_dtype_name(dtype));
}

static void build_pointwise(MotNode *n, const MotValue *in, uint32_t first)
{
    check_broadcast(n, first);
    check_takes(n, first);
    n->out[0] = mot_result(n->b, mot_build(n->b, n->row->kind, in, n->n_in, NULL), 0);
}

void mot_lower_pointwise(MotNode *n)
{
    build_pointwise(n, n->in, 0);
}

void mot_lower_pointwise_swapped(MotNode *n)
{
    build_pointwise(n, (MotValue[]){n->in[1], n->in[0]}, 0);
}

void mot_lower_where(MotNode *n)
{
    if (mot_node_type(n, 0)->dtype != MOT_BOOL)
        mot_node_fail(n, MOT_ERR_MODEL, "the condition %s must be bool",
                      mot_node_operand_text(n, 0));
    build_pointwise(n, n->in, 1);
}

/* min, max or sum of any number of operands, from the left. */
static MotValue fold_operands(MotNode *n)
{
    MotType type = check_broadcast(n, 0);
    check_takes(n, 0);
    MotValue y = n->in[0];
    for (uint32_t i = 1; i < n->n_in; i++)
        y = mot_result(n->b, mot_build(n->b, n->row->kind, (MotValue[]){y, n->in[i]}, 2, NULL), 0);
    return mot_node_ok(n) ? mot_node_expand(n, y, &type) : 0;
}

void mot_lower_variadic(MotNode *n)
{
    n->out[0] = fold_operands(n);
}

void mot_lower_mean(MotNode *n)
{
    MotValue sum = fold_operands(n);
    n->out[0] = mot_div(n->b, sum, mot_scalar_like(n->b, sum, n->n_in));
}

/* ---- Arithmetic ---- */

static bool is_float(const MotNode *n, uint32_t i)
{
    return mot_dtype_class(mot_node_type(n, i)->dtype) == MOT_CLASS_FLOAT;
}

void mot_lower_reciprocal(MotNode *n)
{
    n->out[0] = mot_div(n->b, mot_scalar_like(n->b, n->in[0], 1), n->in[0]);
}

void mot_lower_relu(MotNode *n)
{
    MotValue x = n->in[0];
    n->out[0] = is_float(n, 0) ? mot_relu(n->b, x) : mot_max(n->b, x, mot_scalar_like(n->b, x, 0));
}

/*
 * Base and exponent may differ in dtype; the result has the base's. Integers go through f64: exact
 * below 2^53.
 */
void mot_lower_pow(MotNode *n)
{
    MotDtype dtype = mot_node_type(n, 0)->dtype;
    mot_node_broadcast(n, *mot_node_type(n, 0), *mot_node_type(n, 1));
    MotDtype inside = is_float(n, 0) ? dtype : MOT_F64;
    MotValue y = mot_pow(n->b, mot_cast(n->b, n->in[0], inside), mot_cast(n->b, n->in[1], inside));
    n->out[0] = y ? mot_cast(n->b, y, dtype) : 0;
}

/* The largest integer that is not further from 0 than x. */
static MotValue truncate(MotBuilder *b, MotValue x)
{
    return mot_mul(b, mot_sign(b, x), mot_floor(b, mot_abs(b, x)));
}

/* fmod=0: the remainder has the divisor's sign, integers only. fmod=1: the dividend's, as in C. */
void mot_lower_mod(MotNode *n)
{
    MotBuilder *b = n->b;
    MotValue x = n->in[0], y = n->in[1];
    check_broadcast(n, 0);
    if (mot_node_int(n, "fmod", 0) == 0) {
        if (is_float(n, 0))
            mot_node_fail(n, MOT_ERR_MODEL, "needs fmod=1 for floats");
        n->out[0] = mot_mod(b, x, y);
        return;
    }
    MotValue quotient = mot_div(b, x, y);
    n->out[0] = mot_sub(b, x, mot_mul(b, is_float(n, 0) ? truncate(b, quotient) : quotient, y));
}

void mot_lower_is_nan(MotNode *n)
{
    n->out[0] = mot_not(n->b, mot_eq(n->b, n->in[0], n->in[0]));
}

void mot_lower_clip_attrs(MotNode *n)
{
    MotBuilder *b = n->b;
    MotValue y = mot_node_float_operand(n, 0);
    if (mot_node_attr(n, "min"))
        y = mot_max(b, y, mot_scalar_like(b, y, mot_node_float(n, "min", 0)));
    if (mot_node_attr(n, "max"))
        y = mot_min(b, y, mot_scalar_like(b, y, mot_node_float(n, "max", 0)));
    n->out[0] = y;
}

static MotValue as_scalar(MotBuilder *b, MotValue x)
{
    return mot_reshape(b, x, 0, (int64_t[]){0});
}

void mot_lower_clip(MotNode *n)
{
    mot_node_check_dtypes(n, 0, n->n_in);
    MotValue y = n->in[0];
    for (uint32_t i = 1; i < n->n_in; i++)
        if (mot_node_has(n, i) && mot_type_elements(mot_node_type(n, i)) != 1)
            mot_node_fail(n, MOT_ERR_MODEL, "bound %s must be a scalar",
                          mot_node_operand_text(n, i));
    if (mot_node_has(n, 1))
        y = mot_max(n->b, y, as_scalar(n->b, n->in[1]));
    if (mot_node_has(n, 2))
        y = mot_min(n->b, y, as_scalar(n->b, n->in[2]));
    n->out[0] = y;
}

/* ---- Activations ---- */

void mot_lower_gelu(MotNode *n)
{
    const char *form = mot_node_string(n, "approximate", "none");
    MotAttr_gelu attrs = {.tanh = form == mot_intern(n->im->ctx, "tanh")};
    if (!attrs.tanh && form != mot_intern(n->im->ctx, "none"))
        mot_node_fail(n, MOT_ERR_MODEL, "approximate is %s, not \"none\" or \"tanh\"",
                      mot_quote(&n->im->ctx->arena, form));
    n->out[0] = mot_result(n->b, mot_build(n->b, MOT_OP_GELU, n->in, 1, &attrs), 0);
}

/* x where it is positive, else `negative`. */
static MotValue where_positive(MotNode *n, MotValue x, MotValue negative)
{
    return mot_select(n->b, mot_lt(n->b, mot_scalar_like(n->b, x, 0), x), x, negative);
}

/* exp(min(x, 0)) - 1: finite also where it is not chosen. */
static MotValue exp_minus_1(MotNode *n, MotValue x)
{
    MotBuilder *b = n->b;
    return mot_add_scalar(b, mot_exp(b, mot_min(b, x, mot_scalar_like(b, x, 0))), -1);
}

void mot_lower_leaky_relu(MotNode *n)
{
    MotValue x = mot_node_float_operand(n, 0);
    n->out[0] = where_positive(n, x, mot_mul_scalar(n->b, x, mot_node_float(n, "alpha", 0.01)));
}

void mot_lower_prelu(MotNode *n)
{
    check_broadcast(n, 0);
    n->out[0] = where_positive(n, n->in[0], mot_mul(n->b, n->in[0], n->in[1]));
}

void mot_lower_thresholded_relu(MotNode *n)
{
    MotBuilder *b = n->b;
    MotValue x = mot_node_float_operand(n, 0),
             alpha = mot_scalar_like(b, x, mot_node_float(n, "alpha", 1));
    n->out[0] = mot_select(b, mot_lt(b, alpha, x), x, mot_scalar_like(b, x, 0));
}

void mot_lower_elu(MotNode *n)
{
    MotValue x = mot_node_float_operand(n, 0);
    n->out[0] = where_positive(
        n, x, mot_mul_scalar(n->b, exp_minus_1(n, x), mot_node_float(n, "alpha", 1)));
}

void mot_lower_selu(MotNode *n)
{
    double alpha = mot_node_float(n, "alpha", 1.6732632423543772);
    MotValue x = mot_node_float_operand(n, 0);
    MotValue y = where_positive(n, x, mot_mul_scalar(n->b, exp_minus_1(n, x), alpha));
    n->out[0] = mot_mul_scalar(n->b, y, mot_node_float(n, "gamma", 1.0507009873554805));
}

void mot_lower_celu(MotNode *n)
{
    double alpha = mot_node_float(n, "alpha", 1);
    MotValue x = mot_node_float_operand(n, 0), scaled = mot_mul_scalar(n->b, x, 1 / alpha);
    n->out[0] = where_positive(n, x, mot_mul_scalar(n->b, exp_minus_1(n, scaled), alpha));
}

/* min(max(x * alpha + beta, 0), 1) */
static MotValue hard_sigmoid(MotBuilder *b, MotValue x, double alpha, double beta)
{
    MotValue y = mot_add_scalar(b, mot_mul_scalar(b, x, alpha), beta);
    return mot_min(b, mot_max(b, y, mot_scalar_like(b, x, 0)), mot_scalar_like(b, x, 1));
}

void mot_lower_hard_sigmoid(MotNode *n)
{
    n->out[0] = hard_sigmoid(n->b, mot_node_float_operand(n, 0), mot_node_float(n, "alpha", 0.2),
                             mot_node_float(n, "beta", 0.5));
}

void mot_lower_hard_swish(MotNode *n)
{
    n->out[0] = mot_mul(n->b, n->in[0], hard_sigmoid(n->b, n->in[0], 1.0 / 6, 0.5));
}

void mot_lower_softsign(MotNode *n)
{
    n->out[0] = mot_div(n->b, n->in[0], mot_add_scalar(n->b, mot_abs(n->b, n->in[0]), 1));
}

void mot_lower_mish(MotNode *n)
{
    n->out[0] = mot_mul(n->b, n->in[0], mot_tanh(n->b, mot_softplus(n->b, n->in[0])));
}

void mot_lower_swish(MotNode *n)
{
    double alpha = mot_node_float(n, "alpha", 1);
    MotValue scaled = alpha == 1 ? n->in[0] : mot_mul_scalar(n->b, n->in[0], alpha);
    n->out[0] = mot_mul(n->b, n->in[0], mot_sigmoid(n->b, scaled));
}

/* ---- Dropout, as inference does it ---- */

static void pass_through(MotNode *n)
{
    n->out[0] = n->in[0];
    if (mot_node_wants(n, 1)) {
        MotType type = *mot_node_type(n, 0);
        n->out[1] = mot_node_expand(n, mot_scalar(n->b, MOT_BOOL, 1), &type);
    }
}

void mot_lower_dropout_attrs(MotNode *n)
{
    pass_through(n);
}

void mot_lower_dropout(MotNode *n)
{
    const MotTensor *training = mot_node_has(n, 2) ? mot_node_known(n, 2) : NULL;
    const MotTensor *ratio = training && mot_node_has(n, 1) ? mot_node_known(n, 1) : NULL;
    bool is_training =
        training && mot_type_elements(&training->type) == 1 && mot_tensor_get_int(training, 0);
    double drops = ratio && mot_type_elements(&ratio->type) == 1 ? mot_tensor_get(ratio, 0) : 0.5;
    if (is_training && drops != 0)
        mot_node_fail(n, MOT_ERR_UNSUPPORTED,
                      "drops values (training_mode is set, ratio %g); "
                      "export the model in evaluation mode",
                      drops);
    pass_through(n);
}
