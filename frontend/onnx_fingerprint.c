/*
 * What identifies a model beside its weights: the hash of its nodes in the order of the file, with
 * operators, connections and plain attributes. Tensors and documentation do not count, so that a
 * model with trained weights is still the same one. Linear.
 */
#include "frontend/onnx_file.h"

#include <string.h>

static void add_bytes(MotText *text, const void *bytes, size_t n)
{
    uint64_t length = n;
    mot_text_add(text, (const char *)&length, sizeof length);
    mot_text_add(text, bytes, n);
}

static void add_string(MotText *text, const char *string)
{
    add_bytes(text, string ? string : "", string ? strlen(string) : 0);
}

static void add_graph(MotText *text, const Onnx__GraphProto *graph);

static void add_attribute(MotText *text, const Onnx__AttributeProto *a)
{
    add_string(text, a->name);
    add_bytes(text, &a->f, sizeof a->f);
    add_bytes(text, &a->i, sizeof a->i);
    add_bytes(text, a->s.data, a->s.len);
    add_bytes(text, a->floats, a->n_floats * sizeof *a->floats);
    add_bytes(text, a->ints, a->n_ints * sizeof *a->ints);
    for (size_t i = 0; i < a->n_strings; i++)
        add_bytes(text, a->strings[i].data, a->strings[i].len);
    if (a->g)
        add_graph(text, a->g);
}

/* Recursive as deep as the wire's limit lets graphs nest. */
static void add_graph(MotText *text, const Onnx__GraphProto *graph)
{
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        add_string(text, node->op_type);
        add_string(text, node->domain);
        for (size_t k = 0; k < node->n_input; k++)
            add_string(text, node->input[k]);
        for (size_t k = 0; k < node->n_output; k++)
            add_string(text, node->output[k]);
        for (size_t k = 0; k < node->n_attribute; k++)
            add_attribute(text, node->attribute[k]);
    }
}

uint64_t mot_onnx_fingerprint(MotCtx *ctx, const MotOnnxFile *file)
{
    MotArenaMark mark = mot_arena_mark(&ctx->arena);
    MotText text;
    mot_text_init(&text, &ctx->arena);
    add_graph(&text, file->model->graph);
    uint64_t hash = mot_hash(mot_text_get(&text), text.n);
    mot_arena_rewind(&ctx->arena, mark);
    return hash;
}
