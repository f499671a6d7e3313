/*
 * Cross-entropy, where a model file holds its loss: the log-softmax of the logits, and the label's
 * entry of it, picked by comparison or from a flat view. First without exceptions; ignored labels
 * and smoothing around it become its attributes.
 *
 * Logits of -inf in other classes aside, the composite gives what the parts give; labels outside
 * [0, V) give 0.
 */
#include "passes/graph/raise.h"
#include "passes/graph/simplify.h"

#include <math.h>

/* No label has this value: the loss ignores none. */
static const int64_t ignores_none = INT64_MIN;

static MotValue build_loss(MotMatch *m, MotValue logits, MotValue labels,
                           const MotAttr_cross_entropy *attrs)
{
    MotValue in[] = {logits, labels};
    return mot_result(m->b, mot_build(m->b, MOT_OP_CROSS_ENTROPY, in, 2, attrs), 0);
}

/* Whether v is known to be 0, step, 2 step, ... in some shape. */
static bool is_count(const MotMatch *m, MotValue v, int64_t step)
{
    MotArenaMark mark = mot_arena_mark(&m->graph->ctx->arena);
    MotTensor t;
    bool is_equal = mot_value_known(m->graph, v, &t);
    for (int64_t i = 0; is_equal && i < mot_type_elements(&t.type); i++)
        is_equal = mot_tensor_get_int(&t, i) == i * step;
    mot_arena_rewind(&m->graph->ctx->arena, mark);
    return is_equal;
}

/* ?m and ?s, maximum and sum of the log-softmax, run over the last dim of the logits ?x. */
static bool is_over_classes(const MotMatch *m)
{
    int64_t of_max, of_sum;
    return mot_raise_reduces_axis(mot_match_def(m, 'm'), &of_max) &&
           mot_raise_reduces_axis(mot_match_def(m, 's'), &of_sum) && of_max == of_sum &&
           of_sum == mot_match_type(m, 'x')->rank - 1;
}

/* Whether ?l has the logits' dims but the last. */
static bool has_labels(const MotMatch *m)
{
    const MotType *x = mot_match_type(m, 'x'), *labels = mot_match_type(m, 'l');
    MotType rows = mot_type_make(labels->dtype, x->rank - 1, x->dims);
    return mot_type_equal(labels, &rows);
}

/* -sum over the classes of what is selected where the class is the label. */
static MotValue compared_to_loss(MotMatch *m)
{
    const MotAttr_reduce *pick = mot_attrs(mot_match_def(m, 'p'), reduce);
    int last = mot_match_type(m, 'x')->rank - 1;
    const MotType *classes = mot_match_type(m, 'v');
    if (!is_over_classes(m) || !has_labels(m) || pick->keep || pick->axes.n != 1 ||
        pick->axes.data[0] != last || classes->rank != 1 ||
        !is_count(m, mot_match_value(m, 'v'), 1))
        return 0;
    return build_loss(m, mot_match_value(m, 'x'), mot_match_value(m, 'l'),
                      &(MotAttr_cross_entropy){.ignore = ignores_none});
}

/* The entry at row * V + label of the flat log-softmax is minus the loss. */
static MotValue gathered_to_loss(MotMatch *m)
{
    const MotType x = *mot_match_type(m, 'x'), labels = *mot_match_type(m, 'l');
    int64_t classes = x.rank ? x.dims[x.rank - 1] : 0,
            rows = classes ? mot_type_elements(&x) / classes : 0;
    if (!is_over_classes(m) || mot_match_type(m, 'f')->rank != 1 || labels.rank != 1 ||
        labels.dims[0] != rows || !is_count(m, mot_match_value(m, 'p'), classes) ||
        mot_type_elements(mot_match_type(m, 'p')) != rows)
        return 0;
    MotValue logits = mot_reshape(m->b, mot_match_value(m, 'x'), 2, (int64_t[]){rows, classes});
    return mot_neg(m->b, build_loss(m, logits, mot_match_value(m, 'l'),
                                    &(MotAttr_cross_entropy){.ignore = ignores_none}));
}

static MotValue add_ignored(MotMatch *m)
{
    MotAttr_cross_entropy attrs = *mot_attrs(mot_match_def(m, 'c'), cross_entropy);
    double ignored = mot_match_number(m, 'i');
    if (attrs.ignore != ignores_none || !(ignored >= -0x1p63 && ignored < 0x1p63))
        return 0;
    attrs.ignore = (int64_t)ignored;
    return build_loss(m, mot_match_value(m, 'x'), mot_match_value(m, 'l'), &attrs);
}

/* (1 - s) * loss - s / V * sum(log-softmax) */
static MotValue add_smoothing(MotMatch *m)
{
    MotAttr_cross_entropy attrs = *mot_attrs(mot_match_def(m, 'c'), cross_entropy);
    const MotAttr_reduce *sum = mot_attrs(mot_match_def(m, 'q'), reduce);
    int last = mot_match_type(m, 'x')->rank - 1;
    double smoothing = -mot_match_number(m, 'w') * (double)mot_match_type(m, 'x')->dims[last];
    if (!is_over_classes(m) || attrs.ignore != ignores_none || attrs.smoothing != 0 || sum->keep ||
        sum->axes.n != 1 || sum->axes.data[0] != last || !(smoothing > 0 && smoothing <= 1) ||
        fabs(1 - smoothing - mot_match_number(m, 'u')) > 1e-5)
        return 0;
    attrs.smoothing = 1 - mot_match_number(m, 'u');
    return build_loss(m, mot_match_value(m, 'x'), mot_match_value(m, 'l'), &attrs);
}

#define LOG_SOFTMAX "sub(?a=sub(?x, ?m=reduce_max(?x)), log(?s=reduce_sum(exp(?a))))"

static const MotRule rules[] = {
    {"loss-by-comparison", "neg(?p=reduce_sum(select(eq(reshape(?l), ?v), " LOG_SOFTMAX ", 0)))",
     compared_to_loss},
    {"loss-by-gather", "gather(?f=reshape(" LOG_SOFTMAX "), add(?p, ?l))", gathered_to_loss},
    {"loss-ignored", "select(eq(?l, #i), 0, ?c=cross_entropy(?x, ?l))", add_ignored},
    {"loss-smoothed",
     "add(product(?c=cross_entropy(?x, ?l), #u), product(?q=reduce_sum(" LOG_SOFTMAX "), #w))",
     add_smoothing},
};
const MotRules mot_rules_raise_loss = MOT_RULES(rules);
