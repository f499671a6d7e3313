/*
 * Small ONNX models for tests, from text; included by one test file each, hence the static
 * functions.
 *
 *     TestModel *m = make_model(ctx, 17);
 *     add_input(m, "x", MOT_F32, "batch,3");
 *     add_ints(m, "axes", "1", "0");
 *     add_node(m, "y = ReduceSum(x, axes) {keepdims=0}");
 *     add_output(m, "y");
 */
#ifndef MOTLEY_TESTS_UNIT_ONNX_MODEL_H
#define MOTLEY_TESTS_UNIT_ONNX_MODEL_H

#include "ir/dtype.h"
#include "support/context.h"

#include "frontend/onnx.pb-c.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    MotCtx *ctx;
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset, *opsets[1];
} TestModel;

static TestModel *make_model(MotCtx *ctx, int64_t opset)
{
    TestModel *m = mot_arena_new(&ctx->arena, TestModel);
    m->ctx = ctx;
    onnx__model_proto__init(&m->model);
    onnx__graph_proto__init(&m->graph);
    onnx__operator_set_id_proto__init(&m->opset);
    m->opset.domain = mot_arena_strdup(&ctx->arena, "");
    m->opset.has_version = 1;
    m->opset.version = opset;
    m->opsets[0] = &m->opset;
    m->model.opset_import = m->opsets;
    m->model.n_opset_import = 1;
    m->model.has_ir_version = 1;
    m->model.ir_version = 8;
    m->model.graph = &m->graph;
    m->graph.name = mot_arena_strdup(&ctx->arena, "test");
    return m;
}

/* Appends to a protobuf-c list: a new array each time, which tests can afford. */
#define append(m, list, item)                                                                      \
    do {                                                                                           \
        void **grown_ =                                                                            \
            (void **)mot_arena_array(&(m)->ctx->arena, void *, (m)->graph.n_##list + 1);           \
        if ((m)->graph.n_##list)                                                                   \
            memcpy(grown_, (m)->graph.list, (m)->graph.n_##list * sizeof(void *));                 \
        grown_[(m)->graph.n_##list++] = (item);                                                    \
        (m)->graph.list = (void *)grown_;                                                          \
    } while (0)

/* The words of a list between `separator`s, without spaces around them; how many there are. */
static size_t split_text(MotCtx *ctx, const char *text, char separator, char **out_words)
{
    size_t n = 0;
    while (*text) {
        const char *end = strchr(text, separator);
        size_t bytes = end ? (size_t)(end - text) : strlen(text);
        while (bytes && *text == ' ')
            text++, bytes--;
        while (bytes && text[bytes - 1] == ' ')
            bytes--;
        out_words[n++] = mot_arena_strndup(&ctx->arena, text, bytes);
        text = end ? end + 1 : "";
    }
    return n;
}

static Onnx__ValueInfoProto *make_info(TestModel *m, const char *name, MotDtype dtype,
                                       const char *dims)
{
    MotArena *arena = &m->ctx->arena;
    Onnx__ValueInfoProto *info = mot_arena_new(arena, Onnx__ValueInfoProto);
    Onnx__TypeProto *type = mot_arena_new(arena, Onnx__TypeProto);
    Onnx__TypeProto__Tensor *tensor = mot_arena_new(arena, Onnx__TypeProto__Tensor);
    Onnx__TensorShapeProto *shape = mot_arena_new(arena, Onnx__TensorShapeProto);
    char *words[16];
    onnx__value_info_proto__init(info);
    onnx__type_proto__init(type);
    onnx__type_proto__tensor__init(tensor);
    onnx__tensor_shape_proto__init(shape);
    info->name = mot_arena_strdup(arena, name);
    info->type = type;
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor;
    tensor->has_elem_type = 1;
    tensor->elem_type = mot_dtype_to_onnx(dtype);
    tensor->shape = shape;
    shape->n_dim = split_text(m->ctx, dims, ',', words);
    shape->dim = mot_arena_array(arena, Onnx__TensorShapeProto__Dimension *, shape->n_dim + 1);
    for (size_t i = 0; i < shape->n_dim; i++) {
        shape->dim[i] = mot_arena_new(arena, Onnx__TensorShapeProto__Dimension);
        onnx__tensor_shape_proto__dimension__init(shape->dim[i]);
        bool is_size = isdigit((unsigned char)words[i][0]);
        shape->dim[i]->value_case = is_size ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE
                                            : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        if (is_size)
            shape->dim[i]->dim_value = atoll(words[i]);
        else
            shape->dim[i]->dim_param = words[i];
    }
    return info;
}

/* `dims` is a comma-separated list of sizes and symbols; "" is a scalar. */
static void add_input(TestModel *m, const char *name, MotDtype dtype, const char *dims)
{
    append(m, input, make_info(m, name, dtype, dims));
}

static void add_output(TestModel *m, const char *name)
{
    Onnx__ValueInfoProto *info = make_info(m, name, MOT_F32, "");
    info->type = NULL;
    append(m, output, info);
}

__attribute__((unused)) static void add_value_info(TestModel *m, const char *name, MotDtype dtype,
                                                   const char *dims)
{
    append(m, value_info, make_info(m, name, dtype, dims));
}

/* An initializer; `values` is a comma-separated list, repeated until the tensor is full. */
static void add_tensor(TestModel *m, const char *name, MotDtype dtype, const char *dims,
                       const char *values)
{
    MotArena *arena = &m->ctx->arena;
    Onnx__TensorProto *t = mot_arena_new(arena, Onnx__TensorProto);
    char *words[16], *texts[64];
    size_t n_texts = split_text(m->ctx, values, ',', texts);
    onnx__tensor_proto__init(t);
    t->name = mot_arena_strdup(arena, name);
    t->has_data_type = 1;
    t->data_type = mot_dtype_to_onnx(dtype);
    t->n_dims = split_text(m->ctx, dims, ',', words);
    t->dims = mot_arena_array(arena, int64_t, t->n_dims + 1);
    MotTensor host = {{.dtype = dtype, .rank = (int)t->n_dims}, NULL};
    for (size_t i = 0; i < t->n_dims; i++)
        t->dims[i] = host.type.dims[i] = atoll(words[i]);
    size_t bytes = (size_t)mot_type_bytes(&host.type);
    host.data = mot_arena_alloc(arena, bytes + 1);
    for (int64_t i = 0; i < mot_type_elements(&host.type); i++)
        mot_tensor_set(&host, i, atof(texts[(size_t)i % n_texts]));
    t->has_raw_data = 1;
    t->raw_data = (ProtobufCBinaryData){bytes, host.data};
    append(m, initializer, t);
}

__attribute__((unused)) static void add_ints(TestModel *m, const char *name, const char *dims,
                                             const char *values)
{
    add_tensor(m, name, MOT_I64, dims, values);
}

static void add_floats(TestModel *m, const char *name, const char *dims, const char *values)
{
    add_tensor(m, name, MOT_F32, dims, values);
}

/* NAME=1, NAME=0.5, NAME="text", NAME=[1; 2] */
static Onnx__AttributeProto *make_attr(TestModel *m, char *text)
{
    MotArena *arena = &m->ctx->arena;
    Onnx__AttributeProto *a = mot_arena_new(arena, Onnx__AttributeProto);
    char *value = strchr(text, '='), *words[32];
    onnx__attribute_proto__init(a);
    *value++ = 0;
    a->name = text;
    a->has_type = 1;
    if (value[0] == '"') {
        a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
        a->has_s = 1;
        a->s = (ProtobufCBinaryData){strlen(value) - 2, (uint8_t *)value + 1};
    } else if (value[0] == '[') {
        a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
        value[strlen(value) - 1] = 0;
        a->n_ints = split_text(m->ctx, value + 1, ';', words);
        a->ints = mot_arena_array(arena, int64_t, a->n_ints + 1);
        for (size_t i = 0; i < a->n_ints; i++)
            a->ints[i] = atoll(words[i]);
    } else if (strchr(value, '.')) {
        a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
        a->has_f = 1;
        a->f = (float)atof(value);
    } else {
        a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
        a->has_i = 1;
        a->i = atoll(value);
    }
    return a;
}

/*
 * "out, out = Op(in, in) {attribute, attribute} name". The part from { on may be absent; Op(a, , c)
 * leaves one out.
 */
static Onnx__NodeProto *add_node(TestModel *m, const char *text)
{
    MotArena *arena = &m->ctx->arena;
    Onnx__NodeProto *node = mot_arena_new(arena, Onnx__NodeProto);
    char *copy = mot_arena_strdup(arena, text), *words[128];
    onnx__node_proto__init(node);
    char *op = strstr(copy, " = "), *open = strchr(op, '('), *close = strchr(open, ')');
    char *attrs = strchr(close, '{'), *end = attrs ? strrchr(close, '}') : NULL;
    *op = *open = *close = 0;
    node->op_type = op + 3;
    node->n_output = split_text(m->ctx, copy, ',', words);
    node->output = mot_arena_copy(arena, words, node->n_output * sizeof *words);
    node->n_input = split_text(m->ctx, open + 1, ',', words);
    node->input = mot_arena_copy(arena, words, node->n_input * sizeof *words);
    if (attrs) {
        *end = 0;
        node->name = end[1] ? end + 2 : NULL;
        node->n_attribute = split_text(m->ctx, attrs + 1, ',', words);
        node->attribute = mot_arena_array(arena, Onnx__AttributeProto *, node->n_attribute + 1);
        for (size_t i = 0; i < node->n_attribute; i++)
            node->attribute[i] = make_attr(m, words[i]);
    }
    append(m, node, node);
    return node;
}

/* Writes the model to a new temporary file and returns its path; the test removes it. */
static const char *save_model(TestModel *m)
{
    size_t n = onnx__model_proto__get_packed_size(&m->model);
    uint8_t *bytes = mot_arena_alloc(&m->ctx->arena, n + 1);
    onnx__model_proto__pack(&m->model, bytes);
    const char *folder = getenv("TMPDIR");
    char *path = mot_arena_printf(&m->ctx->arena, "%s/motley-XXXXXX", folder ? folder : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    close(fd);
    return path;
}

#endif
