/* The pre-scan of ONNX files: its table, its texts, its limits, and what it hands to protobuf-c. */
#include "frontend/wire.h"
#include "frontend/wire_schema.h"
#include "tests/test_ctx.h"
#include "tests/unit/onnx_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static MotStatus scan(MotCtx *ctx, const void *bytes, size_t n, const MotOnnxLimits *limits,
                      MotWire *out_wire)
{
    MotOnnxLimits usual = mot_onnx_limits_default();
    *out_wire = (MotWire){.file = "m.onnx", .bytes = bytes, .n = n};
    return mot_wire_scan(ctx, out_wire, MOT_WIRE_MODEL, limits ? limits : &usual);
}

/* ---- The table ---- */

static int get_type(const Field *field)
{
    static const int types[] = {
        [FORM_INT64] = PROTOBUF_C_TYPE_INT64, [FORM_INT32] = PROTOBUF_C_TYPE_INT32,
        [FORM_FLOAT] = PROTOBUF_C_TYPE_FLOAT, [FORM_DOUBLE] = PROTOBUF_C_TYPE_DOUBLE,
        [FORM_TEXT] = PROTOBUF_C_TYPE_STRING, [FORM_DOC] = PROTOBUF_C_TYPE_STRING,
        [FORM_BYTES] = PROTOBUF_C_TYPE_BYTES, [FORM_MESSAGE] = PROTOBUF_C_TYPE_MESSAGE,
    };
    return types[field->form];
}

static void compare_field(const ProtobufCMessageDescriptor *d, unsigned number, const Field *field)
{
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(d, number);
    if (!f && !field->name)
        return;
    if (!f || !field->name) {
        fail_msg("%s %u stands in one of the two only", d->name, number);
        return;
    }
    assert_string_equal(f->name, field->name);
    int type = f->type == PROTOBUF_C_TYPE_UINT64 ? PROTOBUF_C_TYPE_INT64 : (int)f->type;
    assert_int_equal(type, get_type(field));
    assert_int_equal(f->label == PROTOBUF_C_LABEL_REPEATED, (field->flags & FIELD_REPEATED) != 0);
    assert_int_equal((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0,
                     (field->flags & FIELD_ONEOF) != 0);
    if (field->form == FORM_MESSAGE)
        assert_ptr_equal(f->descriptor, descriptors[field->child]);
}

static void the_table_is_that_of_the_schema(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        const ProtobufCMessageDescriptor *d = descriptors[kind];
        assert_true(d->fields[d->n_fields - 1].id <= MAX_FIELD);
        for (unsigned number = 1; number <= MAX_FIELD; number++)
            compare_field(d, number, &schema[kind][number]);
    }
}

/* ---- What is handed on ---- */

static Bytes make_graph_with_tensor(const uint8_t *raw, size_t n)
{
    Bytes graph = {.n = 0};
    int64_t dims[] = {(int64_t)n};
    Bytes tensor = make_tensor("w", 2, dims, 1);
    put_data(&tensor, 9, raw, n);
    put_text(&tensor, 12, "after");
    put_message(&graph, 5, &tensor);
    put_text(&graph, 2, "g");
    return graph;
}

static void a_message_without_large_data_is_not_copied(void **state)
{
    uint8_t raw[15] = {1, 2, 3};
    Bytes graph = make_graph_with_tensor(raw, sizeof raw), m = make_model(&graph);
    MotWire wire;
    assert_int_equal(scan(*state, m.data, m.n, NULL, &wire), MOT_OK);
    assert_ptr_equal(wire.message, m.data);
    assert_int_equal(wire.message_bytes, m.n);
}

static void check_raw(MotCtx *ctx, const Bytes *m,
                      const Onnx__TensorProto *(*find)(Onnx__ModelProto *), const uint8_t *raw,
                      size_t n)
{
    MotWire wire;
    assert_int_equal(scan(ctx, m->data, m->n, NULL, &wire), MOT_OK);
    Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, wire.message_bytes, wire.message);
    assert_non_null(model);
    const Onnx__TensorProto *t = find(model);
    size_t bytes;
    const uint8_t *found = mot_wire_raw(&wire, t->raw_data.data, t->raw_data.len, &bytes);
    assert_int_equal(bytes, n);
    assert_memory_equal(found, raw, n);
    assert_int_equal(found >= m->data && found < m->data + m->n, n >= MOT_WIRE_TICKET_BYTES);
    assert_string_equal(t->doc_string, "after");
    assert_string_equal(t->name, "w");
    onnx__model_proto__free_unpacked(model, NULL);
    mot_wire_deinit(&wire);
    mot_wire_deinit(&wire);
}

static const Onnx__TensorProto *find_initializer(Onnx__ModelProto *model)
{
    assert_string_equal(model->graph->name, "g");
    return model->graph->initializer[0];
}

static const Onnx__TensorProto *find_inner(Onnx__ModelProto *model)
{
    assert_string_equal(model->graph->node[0]->op_type, "If");
    return model->graph->node[0]->attribute[0]->g->initializer[0];
}

/* Sizes around that of a ticket, and where lengths get longer varints. */
static void raw_data_is_found_again(void **state)
{
    static const size_t sizes[] = {1, 15, 16, 17, 127, 128, 200, 5000};
    uint8_t raw[5000];
    for (size_t i = 0; i < sizeof raw; i++)
        raw[i] = (uint8_t)(i * 7 + 1);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        Bytes graph = make_graph_with_tensor(raw, sizes[i]), m = make_model(&graph);
        check_raw(*state, &m, find_initializer, raw, sizes[i]);
        Bytes attribute = {.n = 0}, node = {.n = 0}, outer = {.n = 0};
        put_message(&attribute, 6, &graph);
        put_message(&node, 5, &attribute);
        put_text(&node, 4, "If");
        put_message(&outer, 1, &node);
        m = make_model(&outer);
        check_raw(*state, &m, find_inner, raw, sizes[i]);
    }
}

/* Bytes that look like a ticket are data like any other. */
static void a_forged_ticket_is_data(void **state)
{
    uint64_t ticket[2] = {0, UINT64_MAX};
    Bytes graph = make_graph_with_tensor((uint8_t *)ticket, sizeof ticket), m = make_model(&graph);
    check_raw(*state, &m, find_initializer, (uint8_t *)ticket, sizeof ticket);
}

/* Legal: a length that is written with more bytes than it needs. */
static void padded_lengths_are_read(void **state)
{
    uint8_t raw[40] = {9, 8, 7};
    Bytes graph = make_graph_with_tensor(raw, sizeof raw), m = {.n = 0};
    put_varint(&m, 7 << 3 | 2);
    assert_true(graph.n < 128);
    put_byte(&m, (unsigned)graph.n | 0x80);
    put_byte(&m, 0x80);
    put_byte(&m, 0x80);
    put_byte(&m, 0);
    put_raw(&m, graph.data, graph.n);
    check_raw(*state, &m, find_initializer, raw, sizeof raw);
}

/* ---- Errors ---- */

#define BYTES(text) text, sizeof(text) - 1

static void errors_name_the_byte_and_the_field(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *error;
    } cases[] = {
        {BYTES("\x08"), "m.onnx: byte 1, ir_version: the bytes end inside a varint"},
        {BYTES("\x88"), "m.onnx: byte 0: the bytes end inside a tag"},
        {BYTES("\x08\x08\x3a\x05\x0a"), "m.onnx: byte 3, graph: length 5 exceeds the 1 bytes left"},
        {BYTES("\x3a\x03\x0a\x05\x0a"),
         "m.onnx: byte 3, graph.node[0]: length 5 exceeds the 1 bytes left"},
        {BYTES("\x3a\x06\x0a\x00\x0a\x02\x22\x01"),
         "m.onnx: byte 7, graph.node[1].op_type: length 1 exceeds the 0 bytes left"},
        {BYTES("\x3a\x02\x0f\x00"),
         "m.onnx: byte 2, graph: field 1 has wire type 7, which ONNX does not use"},
        {BYTES("\x3a\x03\x2a\x01\x80"),
         "m.onnx: byte 4, graph.initializer[0]: the bytes end inside a tag"},
        {BYTES("\x08\x07\x08\x07"), "m.onnx: byte 2, ir_version: given a second time"},
        {BYTES("\x12\x01\x00"), "m.onnx: byte 2, producer_name: the text holds a NUL byte"},
    };
    MotCtx *ctx = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        MotWire wire;
        uint8_t *exact = malloc(cases[i].n); /* so that ASan sees a byte too many being read */
        memcpy(exact, cases[i].bytes, cases[i].n);
        assert_int_equal(scan(ctx, exact, cases[i].n, NULL, &wire), MOT_ERR_MODEL);
        const char *text = mot_text_get(&ctx->error);
        const char *newline = strchr(text, '\n');
        assert_string_equal(
            mot_arena_strndup(&ctx->arena, text, newline ? (size_t)(newline - text) : strlen(text)),
            cases[i].error);
        mot_error_clear(ctx);
        free(exact);
    }
}

/* Free text may be anything; names may not. */
static void doc_strings_are_not_checked(void **state)
{
    MotWire wire;
    assert_int_equal(scan(*state, BYTES("\x32\x03\xff\x00\xfe"), NULL, &wire), MOT_OK);
    assert_int_equal(scan(*state, BYTES("\x12\x03\xff\x01\xfe"), NULL, &wire), MOT_ERR_MODEL);
}

/* Every prefix of a message is refused, or ends where a field of the model ends. */
static void prefixes_are_refused(void **state)
{
    uint8_t raw[20] = {1};
    Bytes graph = make_graph_with_tensor(raw, sizeof raw), m = make_model(&graph);
    for (size_t n = 1; n < m.n; n++) {
        MotWire wire;
        uint8_t *exact = malloc(n);
        memcpy(exact, m.data, n);
        bool is_whole = n == 2 || n == 2 + 4;
        assert_int_equal(scan(*state, exact, n, NULL, &wire), is_whole ? MOT_OK : MOT_ERR_MODEL);
        mot_error_clear(*state);
        free(exact);
    }
}

static void real_models_are_not_taken_for_other_formats(void **state)
{
    (void)state;
    static const uint8_t firsts[][10] = {
        {0x08, 8, 0x12, 0}, {0x3a, 4, 0x0a}, {0x12, 1, 'p'}, {0x42, 2, 0x10, 17}};
    for (size_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++)
        assert_null(mot_foreign_find(firsts[i], sizeof firsts[i]));
    assert_null(mot_foreign_find(NULL, 0));
    assert_string_equal(mot_foreign_find((const uint8_t *)"{", 1)->what, "a JSON file");
}

typedef struct {
    int n;
    char line[200];
} Heard;

static void listen(void *self, MotLogLevel level, const char *line)
{
    Heard *heard = self;
    heard->n++;
    assert_int_equal(level, MOT_LOG_WARN);
    strncpy(heard->line, line, sizeof heard->line - 1);
}

static void unknown_fields_give_one_warning(void **state)
{
    MotCtx *ctx = *state;
    Heard heard = {0};
    ctx->log = listen;
    ctx->log_self = &heard;
    Bytes node = make_node("Neg", "x", "y"), graph = {.n = 0}, m = {.n = 0};
    put_text(&node, 30, "new");
    put_message(&graph, 1, &node);
    put_message(&m, 7, &graph);
    put_int(&m, 99, 1);
    put_varint(&m, 98 << 3 | 1);
    put_raw(&m, "12345678", 8);
    put_varint(&m, 97 << 3 | 5);
    put_raw(&m, "1234", 4);
    MotWire wire;
    assert_int_equal(scan(ctx, m.data, m.n, NULL, &wire), MOT_OK);
    assert_int_equal(heard.n, 1);
    assert_string_equal(heard.line,
                        "m.onnx: 4 fields are unknown to this version and ignored, the first at "
                        "byte 15, graph.node[0], number 30");
}

/* ---- Limits ---- */

/*
 * A model with two nodes in one graph, a name of 10 bytes, 3 dims, 2 unknown fields; nested 4 deep.
 */
static Bytes make_measured(void)
{
    int64_t dims[] = {1, 1, 1};
    Bytes node = make_node("Neg", "a", "0123456789"), graph = {.n = 0}, attribute = {.n = 0};
    Bytes tensor = make_tensor(NULL, 1, dims, 3);
    put_text(&tensor, 9, "1234");
    put_message(&attribute, 5, &tensor);
    put_message(&graph, 1, &node);
    put_message(&node, 5, &attribute);
    put_message(&graph, 1, &node);
    Bytes m = make_model(&graph);
    put_int(&m, 40, 1);
    put_int(&m, 41, 1);
    return m;
}

static void each_limit_admits_its_value_and_no_more(void **state)
{
    static const struct {
        const char *just, *below, *error;
    } cases[] = {
        {"depth=5", "depth=4", "messages are nested too deeply; the limit is depth=4"},
        {"nodes=2", "nodes=1", "too many nodes; the limit is nodes=1"},
        {"name=10", "name=9", "the name is too long; the limit is name=9"},
        {"rank=3", "rank=2", "too many dims; the limit is rank=2"},
        {"unknown=2", "unknown=1", "too many fields are unknown; the limit is unknown=1"},
        {"message=76", "message=75",
         "the file is too large for one message; the limit is message=75"},
        {"memory=10000", "memory=1000",
         "too much structure for its size in the file; the limit is memory=1000"},
    };
    MotCtx *ctx = *state;
    Bytes m = make_measured();
    assert_int_equal(m.n, 76);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        MotOnnxLimits limits = mot_onnx_limits_default();
        MotWire wire;
        assert_int_equal(mot_onnx_limits_set(ctx, &limits, cases[i].just), MOT_OK);
        assert_int_equal(scan(ctx, m.data, m.n, &limits, &wire), MOT_OK);
        assert_int_equal(mot_onnx_limits_set(ctx, &limits, cases[i].below), MOT_OK);
        assert_int_equal(scan(ctx, m.data, m.n, &limits, &wire), MOT_ERR_LIMIT);
        assert_non_null(strstr(mot_text_get(&ctx->error), cases[i].error));
        assert_non_null(strstr(mot_text_get(&ctx->error), "hint: --limit "));
        mot_error_clear(ctx);
    }
}

static void limits_are_set_by_name(void **state)
{
    static const char *const wrong[] = {"nodes",
                                        "nodes=",
                                        "nodes=x",
                                        "nodes=-1",
                                        "nodes=1k",
                                        "nodes=0",
                                        "depth=1001",
                                        "node=5",
                                        "",
                                        "=5",
                                        "nodes=99999999999999999999"};
    MotCtx *ctx = *state;
    MotOnnxLimits limits = mot_onnx_limits_default();
    assert_int_equal(limits.nodes, 2000000);
    assert_int_equal(mot_onnx_limits_set(ctx, &limits, "nodes=4000000"), MOT_OK);
    assert_int_equal(limits.nodes, 4000000);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(mot_onnx_limits_set(ctx, &limits, wrong[i]), MOT_ERR_USAGE);
        mot_error_clear(ctx);
    }
    assert_int_equal(limits.nodes, 4000000);
    assert_int_equal(limits.depth, 100);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(the_table_is_that_of_the_schema),
        TEST(a_message_without_large_data_is_not_copied),
        TEST(raw_data_is_found_again),
        TEST(a_forged_ticket_is_data),
        TEST(padded_lengths_are_read),
        TEST(errors_name_the_byte_and_the_field),
        TEST(doc_strings_are_not_checked),
        TEST(prefixes_are_refused),
        TEST(real_models_are_not_taken_for_other_formats),
        TEST(unknown_fields_give_one_warning),
        TEST(each_limit_admits_its_value_and_no_more),
        TEST(limits_are_set_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
