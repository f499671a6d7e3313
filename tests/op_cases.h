/*
 * The cases of tests/fixtures/ops.txt (its generator, ops.py, says what they are): operands and
 * results of every row of the op table. Whoever implements ops runs them: the reference evaluator,
 * factor rules, backends.
 */
#ifndef MOTLEY_TESTS_OP_CASES_H
#define MOTLEY_TESTS_OP_CASES_H

#include "ir/builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_CASE_TENSORS = 8 };

typedef struct OpCase {
    const char *title; /* the case's first line */
    int line;
    MotOpKind kind;
    void *attrs;
    MotTensor in[MAX_CASE_TENSORS]; /* dtype MOT_NO_DTYPE: absent */
    MotTensor out[MAX_CASE_TENSORS];
    uint32_t n_in, n_out;
} OpCase;

typedef MotVec(OpCase) OpCases;

/* The next word of the line, or NULL. */
static inline char *next_word(char **rest)
{
    return strtok_r(NULL, " \n", rest);
}

static inline MotTensor make_tensor(MotCtx *ctx, MotType type)
{
    return (MotTensor){type, mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&type))};
}

/* Reads `DTYPE DIMS VALUES...` or `-`. */
static inline MotTensor read_tensor(MotCtx *ctx, char **rest)
{
    char *dtype = next_word(rest), *dims = next_word(rest);
    MotType type = {.dtype = mot_dtype_find(dtype)};
    if (type.dtype == MOT_NO_DTYPE)
        return (MotTensor){{0}, NULL};
    for (char *p = strcmp(dims, "scalar") == 0 ? NULL : dims; p && *p; p += *p == 'x')
        type.dims[type.rank++] = strtoll(p, &p, 10);
    MotTensor t = make_tensor(ctx, type);
    for (int64_t i = 0; i < mot_type_elements(&type); i++) {
        char *value = next_word(rest);
        assert_non_null(value);
        if (mot_dtype_class(type.dtype) == MOT_CLASS_FLOAT)
            mot_tensor_set(&t, i, strtod(value, NULL));
        else
            mot_tensor_set_int(&t, i, strtoll(value, NULL, 10));
    }
    assert_null(next_word(rest));
    return t;
}

static inline MotInts read_ints(MotCtx *ctx, char *value)
{
    MotInts list = {mot_arena_array(&ctx->arena, int64_t, strlen(value)), 0};
    for (char *p = value; *p; p += *p == ',')
        list.data[list.n++] = strtoll(p, &p, 10);
    return list;
}

static inline void read_attr(MotCtx *ctx, const MotOpInfo *info, void *attrs, char *word)
{
    char *value = strchr(word, '=');
    if (value)
        *value++ = 0;
    else
        value = word + strlen(word);
    const MotAttrField *f = info->fields;
    while (f->name && strcmp(f->name, word) != 0)
        f++;
    if (!f->name)
        fail_msg("%s has no attribute %s", info->name, word);
    void *field = (char *)attrs + f->offset;
    switch (f->kind) {
    case MOT_ATTR_INT:
        *(int64_t *)field = strtoll(value, NULL, 10);
        break;
    case MOT_ATTR_FLOAT:
        *(double *)field = strtod(value, NULL);
        break;
    case MOT_ATTR_FLAG:
        *(bool *)field = true;
        break;
    case MOT_ATTR_STR:
        *(const char **)field = mot_intern(ctx, value);
        break;
    case MOT_ATTR_INTS:
        *(MotInts *)field = read_ints(ctx, value);
        break;
    case MOT_ATTR_DTYPE:
        *(MotDtype *)field = mot_dtype_find(value);
        break;
    case MOT_ATTR_TENSOR:
        fail_msg("a tensor attribute stands on a data line");
    }
}

static inline OpCase read_case(MotCtx *ctx, char *line, int line_number)
{
    OpCase c = {.title = mot_arena_strndup(&ctx->arena, line, strcspn(line, "\n")),
                .line = line_number};
    char *rest;
    strtok_r(line, " \n", &rest);
    char *name = next_word(&rest);
    c.kind = mot_op_find(name);
    if (!c.kind)
        fail_msg("line %d: no op %s", line_number, name);
    const MotOpInfo *info = mot_op_info(c.kind);
    c.attrs = mot_arena_alloc(&ctx->arena, info->attrs_bytes);
    for (char *word; (word = next_word(&rest));)
        read_attr(ctx, info, c.attrs, word);
    return c;
}

static inline void read_case_line(MotCtx *ctx, OpCases *cases, char *line, int line_number)
{
    if (strncmp(line, "case ", 5) == 0) {
        mot_vec_push(&ctx->arena, cases, read_case(ctx, line, line_number));
        return;
    }
    char *rest, *what = strtok_r(line, " \n", &rest);
    if (cases->n == 0) {
        fail_msg("line %d stands before any case", line_number);
        return;
    }
    OpCase *c = &cases->data[cases->n - 1];
    MotTensor t = read_tensor(ctx, &rest);
    assert_true(c->n_in < MAX_CASE_TENSORS && c->n_out < MAX_CASE_TENSORS);
    if (strcmp(what, "in") == 0)
        c->in[c->n_in++] = t;
    else if (strcmp(what, "out") == 0)
        c->out[c->n_out++] = t;
    else
        ((MotAttr_constant *)c->attrs)->data = t;
}

/* Tests run in the source tree. */
static inline OpCases read_op_cases(MotCtx *ctx)
{
    OpCases cases = {0};
    FILE *file = fopen("tests/fixtures/ops.txt", "r");
    if (!file) {
        fail_msg("tests run in the source tree: no tests/fixtures/ops.txt");
        return cases;
    }
    char *line = NULL;
    size_t bytes = 0;
    for (int n = 1; getline(&line, &bytes, file) > 0; n++)
        read_case_line(ctx, &cases, line, n);
    free(line);
    fclose(file);
    assert_true(cases.n > 0);
    return cases;
}

static inline bool is_float_dtype(MotDtype dtype)
{
    return mot_dtype_class(dtype) == MOT_CLASS_FLOAT;
}

/* The tensor with its elements converted. */
static inline MotTensor convert_tensor(MotCtx *ctx, const MotTensor *t, MotDtype dtype)
{
    MotType type = t->type;
    type.dtype = dtype;
    MotTensor to = make_tensor(ctx, type);
    for (int64_t i = 0; i < mot_type_elements(&type); i++) {
        if (is_float_dtype(dtype))
            mot_tensor_set(&to, i, mot_tensor_get(t, i));
        else
            mot_tensor_set_int(&to, i, mot_tensor_get_int(t, i));
    }
    return to;
}

/* A graph of one input an operand, the op, and one output a result; f64 operands are given as
 * `dtype`. */
typedef struct OneOpGraph {
    MotGraph *graph;
    MotOp *op; /* NULL if it could not be built: the context has the error */
    MotValue in[MAX_CASE_TENSORS];
} OneOpGraph;

static inline OneOpGraph build_case(MotCtx *ctx, const OpCase *c, MotDtype dtype)
{
    OneOpGraph one = {.graph = mot_graph_make(ctx, "case")};
    MotBuilder b = mot_builder_make(one.graph);
    for (uint32_t i = 0; i < c->n_in; i++) {
        MotType type = c->in[i].type;
        type.dtype = type.dtype == MOT_F64 ? dtype : type.dtype;
        if (type.dtype != MOT_NO_DTYPE)
            one.in[i] = mot_input(&b, mot_arena_printf(&ctx->arena, "x%u", i), type);
    }
    MotOpId id = mot_build(&b, c->kind, one.in, c->n_in, c->attrs);
    for (uint32_t i = 0; i < (id ? c->n_out : 0); i++)
        mot_output(&b, mot_arena_printf(&ctx->arena, "y%u", i), mot_result(&b, id, i));
    one.op = id ? mot_graph_op(one.graph, id) : NULL;
    return one;
}

#endif
