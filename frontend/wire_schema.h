/*
 * The fields of frontend/onnx.proto as a table for the pre-scan, indexed by message kind and field
 * number. Included by frontend/wire.c, and by tests/unit/test_wire.c, which compares it with
 * protobuf-c's descriptors.
 */
#ifndef MOTLEY_FRONTEND_WIRE_SCHEMA_H
#define MOTLEY_FRONTEND_WIRE_SCHEMA_H

#include "frontend/onnx.pb-c.h"

#include <stdint.h>

/* X(kind, descriptor) */
#define MOT_WIRE_KIND_LIST(X)                                                                      \
    X(MODEL, model_proto)                                                                          \
    X(OPSET, operator_set_id_proto)                                                                \
    X(ENTRY, string_string_entry_proto)                                                            \
    X(TRAINING, training_info_proto)                                                               \
    X(FUNCTION, function_proto)                                                                    \
    X(GRAPH, graph_proto)                                                                          \
    X(NODE, node_proto)                                                                            \
    X(ATTRIBUTE, attribute_proto)                                                                  \
    X(VALUE_INFO, value_info_proto)                                                                \
    X(ANNOTATION, tensor_annotation)                                                               \
    X(TENSOR, tensor_proto)                                                                        \
    X(SEGMENT, tensor_proto__segment)                                                              \
    X(SPARSE, sparse_tensor_proto)                                                                 \
    X(SHAPE, tensor_shape_proto)                                                                   \
    X(DIMENSION, tensor_shape_proto__dimension)                                                    \
    X(TYPE, type_proto)                                                                            \
    X(TYPE_TENSOR, type_proto__tensor)                                                             \
    X(TYPE_SEQUENCE, type_proto__sequence)                                                         \
    X(TYPE_MAP, type_proto__map)                                                                   \
    X(TYPE_OPTIONAL, type_proto__optional)                                                         \
    X(TYPE_SPARSE, type_proto__sparse_tensor)                                                      \
    X(TYPE_OPAQUE, type_proto__opaque)                                                             \
    X(CONFIGURATION, device_configuration_proto)                                                   \
    X(NODE_CONFIGURATION, node_device_configuration_proto)                                         \
    X(SHARDING, sharding_spec_proto)                                                               \
    X(SHARDED_DIM, sharded_dim_proto)                                                              \
    X(SIMPLE_SHARDING, simple_sharded_dim_proto)                                                   \
    X(INT_LIST, int_int_list_entry_proto)

typedef enum Kind {
#define X(kind, descriptor) KIND_##kind,
    MOT_WIRE_KIND_LIST(X)
#undef X
        N_KINDS
} Kind;

/*
 * How a value is written. TEXT is a name or key: UTF-8 without NUL. DOC is text that nothing
 * depends on.
 */
typedef enum Form {
    FORM_UNKNOWN,
    FORM_INT64,
    FORM_INT32,
    FORM_FLOAT,
    FORM_DOUBLE,
    FORM_TEXT,
    FORM_DOC,
    FORM_BYTES,
    FORM_MESSAGE
} Form;

/*
 * LONG: no limit on the length of the text. DIM: counts against the rank. RAW: may become a ticket.
 * ONEOF: at most one.
 */
typedef enum FieldFlag {
    FIELD_REPEATED = 1,
    FIELD_LONG = 2,
    FIELD_DIM = 4,
    FIELD_RAW = 8,
    FIELD_ONEOF = 16
} FieldFlag;

typedef struct Field {
    const char *name;
    uint8_t form, child, flags;
} Field;

enum { MAX_FIELD = 26 };

#define INT64(name) {name, FORM_INT64, 0, 0}
#define INT32(name) {name, FORM_INT32, 0, 0}
#define TEXT(name) {name, FORM_TEXT, 0, 0}
#define DOC(name) {name, FORM_DOC, 0, 0}
#define ONE(kind, name) {name, FORM_MESSAGE, KIND_##kind, 0}
#define MANY(kind, name) {name, FORM_MESSAGE, KIND_##kind, FIELD_REPEATED}
#define EITHER(kind, name) {name, FORM_MESSAGE, KIND_##kind, FIELD_ONEOF}
#define LIST(form, name) {name, FORM_##form, 0, FIELD_REPEATED}
#define OF(form, name, flags) {name, FORM_##form, 0, flags}

static const Field schema[N_KINDS][MAX_FIELD + 1] = {
    [KIND_MODEL] = {[1] = INT64("ir_version"),
                    [2] = TEXT("producer_name"),
                    [3] = TEXT("producer_version"),
                    [4] = TEXT("domain"),
                    [5] = INT64("model_version"),
                    [6] = DOC("doc_string"),
                    [7] = ONE(GRAPH, "graph"),
                    [8] = MANY(OPSET, "opset_import"),
                    [14] = MANY(ENTRY, "metadata_props"),
                    [20] = MANY(TRAINING, "training_info"),
                    [25] = MANY(FUNCTION, "functions"),
                    [26] = MANY(CONFIGURATION, "configuration")},
    [KIND_OPSET] = {[1] = TEXT("domain"), [2] = INT64("version")},
    [KIND_ENTRY] = {[1] = TEXT("key"), [2] = OF(TEXT, "value", FIELD_LONG)},
    [KIND_TRAINING] = {[1] = ONE(GRAPH, "initialization"),
                       [2] = ONE(GRAPH, "algorithm"),
                       [3] = MANY(ENTRY, "initialization_binding"),
                       [4] = MANY(ENTRY, "update_binding")},
    [KIND_FUNCTION] = {[1] = TEXT("name"),
                       [4] = LIST(TEXT, "input"),
                       [5] = LIST(TEXT, "output"),
                       [6] = LIST(TEXT, "attribute"),
                       [7] = MANY(NODE, "node"),
                       [8] = DOC("doc_string"),
                       [9] = MANY(OPSET, "opset_import"),
                       [10] = TEXT("domain"),
                       [11] = MANY(ATTRIBUTE, "attribute_proto"),
                       [12] = MANY(VALUE_INFO, "value_info"),
                       [13] = TEXT("overload"),
                       [14] = MANY(ENTRY, "metadata_props")},
    [KIND_GRAPH] = {[1] = MANY(NODE, "node"),
                    [2] = TEXT("name"),
                    [5] = MANY(TENSOR, "initializer"),
                    [10] = DOC("doc_string"),
                    [11] = MANY(VALUE_INFO, "input"),
                    [12] = MANY(VALUE_INFO, "output"),
                    [13] = MANY(VALUE_INFO, "value_info"),
                    [14] = MANY(ANNOTATION, "quantization_annotation"),
                    [15] = MANY(SPARSE, "sparse_initializer"),
                    [16] = MANY(ENTRY, "metadata_props")},
    [KIND_NODE] = {[1] = LIST(TEXT, "input"),
                   [2] = LIST(TEXT, "output"),
                   [3] = TEXT("name"),
                   [4] = TEXT("op_type"),
                   [5] = MANY(ATTRIBUTE, "attribute"),
                   [6] = DOC("doc_string"),
                   [7] = TEXT("domain"),
                   [8] = TEXT("overload"),
                   [9] = MANY(ENTRY, "metadata_props"),
                   [10] = MANY(NODE_CONFIGURATION, "device_configurations")},
    [KIND_ATTRIBUTE] = {[1] = TEXT("name"),
                        [2] = OF(FLOAT, "f", 0),
                        [3] = INT64("i"),
                        [4] = OF(BYTES, "s", 0),
                        [5] = ONE(TENSOR, "t"),
                        [6] = ONE(GRAPH, "g"),
                        [7] = LIST(FLOAT, "floats"),
                        [8] = LIST(INT64, "ints"),
                        [9] = LIST(BYTES, "strings"),
                        [10] = MANY(TENSOR, "tensors"),
                        [11] = MANY(GRAPH, "graphs"),
                        [13] = DOC("doc_string"),
                        [14] = ONE(TYPE, "tp"),
                        [15] = MANY(TYPE, "type_protos"),
                        [20] = INT32("type"),
                        [21] = TEXT("ref_attr_name"),
                        [22] = ONE(SPARSE, "sparse_tensor"),
                        [23] = MANY(SPARSE, "sparse_tensors")},
    [KIND_VALUE_INFO] = {[1] = TEXT("name"),
                         [2] = ONE(TYPE, "type"),
                         [3] = DOC("doc_string"),
                         [4] = MANY(ENTRY, "metadata_props")},
    [KIND_ANNOTATION] =
        {[1] = TEXT("tensor_name"), [2] = MANY(ENTRY, "quant_parameter_tensor_names")},
    [KIND_TENSOR] = {[1] = OF(INT64, "dims", FIELD_REPEATED | FIELD_DIM),
                     [2] = INT32("data_type"),
                     [3] = ONE(SEGMENT, "segment"),
                     [4] = LIST(FLOAT, "float_data"),
                     [5] = LIST(INT32, "int32_data"),
                     [6] = LIST(BYTES, "string_data"),
                     [7] = LIST(INT64, "int64_data"),
                     [8] = TEXT("name"),
                     [9] = OF(BYTES, "raw_data", FIELD_RAW),
                     [10] = LIST(DOUBLE, "double_data"),
                     [11] = LIST(INT64, "uint64_data"),
                     [12] = DOC("doc_string"),
                     [13] = MANY(ENTRY, "external_data"),
                     [14] = INT32("data_location"),
                     [16] = MANY(ENTRY, "metadata_props")},
    [KIND_SEGMENT] = {[1] = INT64("begin"), [2] = INT64("end")},
    [KIND_SPARSE] = {[1] = ONE(TENSOR, "values"),
                     [2] = ONE(TENSOR, "indices"),
                     [3] = OF(INT64, "dims", FIELD_REPEATED | FIELD_DIM)},
    [KIND_SHAPE] = {[1] = {"dim", FORM_MESSAGE, KIND_DIMENSION, FIELD_REPEATED | FIELD_DIM}},
    [KIND_DIMENSION] = {[1] = OF(INT64, "dim_value", FIELD_ONEOF),
                        [2] = OF(TEXT, "dim_param", FIELD_ONEOF),
                        [3] = TEXT("denotation")},
    [KIND_TYPE] = {[1] = EITHER(TYPE_TENSOR, "tensor_type"),
                   [4] = EITHER(TYPE_SEQUENCE, "sequence_type"),
                   [5] = EITHER(TYPE_MAP, "map_type"),
                   [6] = TEXT("denotation"),
                   [7] = EITHER(TYPE_OPAQUE, "opaque_type"),
                   [8] = EITHER(TYPE_SPARSE, "sparse_tensor_type"),
                   [9] = EITHER(TYPE_OPTIONAL, "optional_type")},
    [KIND_TYPE_TENSOR] = {[1] = INT32("elem_type"), [2] = ONE(SHAPE, "shape")},
    [KIND_TYPE_SEQUENCE] = {[1] = ONE(TYPE, "elem_type")},
    [KIND_TYPE_MAP] = {[1] = INT32("key_type"), [2] = ONE(TYPE, "value_type")},
    [KIND_TYPE_OPTIONAL] = {[1] = ONE(TYPE, "elem_type")},
    [KIND_TYPE_SPARSE] = {[1] = INT32("elem_type"), [2] = ONE(SHAPE, "shape")},
    [KIND_TYPE_OPAQUE] = {[1] = TEXT("domain"), [2] = TEXT("name")},
    [KIND_CONFIGURATION] =
        {[1] = TEXT("name"), [2] = INT32("num_devices"), [3] = LIST(TEXT, "device")},
    [KIND_NODE_CONFIGURATION] = {[1] = TEXT("configuration_id"),
                                 [2] = MANY(SHARDING, "sharding_spec"),
                                 [3] = INT32("pipeline_stage")},
    [KIND_SHARDING] = {[1] = TEXT("tensor_name"),
                       [2] = LIST(INT64, "device"),
                       [3] = MANY(INT_LIST, "index_to_device_group_map"),
                       [4] = MANY(SHARDED_DIM, "sharded_dim")},
    [KIND_SHARDED_DIM] = {[1] = INT64("axis"), [2] = MANY(SIMPLE_SHARDING, "simple_sharding")},
    [KIND_SIMPLE_SHARDING] = {[1] = OF(INT64, "dim_value", FIELD_ONEOF),
                              [2] = OF(TEXT, "dim_param", FIELD_ONEOF),
                              [3] = INT64("num_shards")},
    [KIND_INT_LIST] = {[1] = INT64("key"), [2] = LIST(INT64, "value")},
};

#undef INT64
#undef INT32
#undef TEXT
#undef DOC
#undef ONE
#undef MANY
#undef EITHER
#undef LIST
#undef OF

static const ProtobufCMessageDescriptor *const descriptors[N_KINDS] = {
#define X(kind, descriptor) [KIND_##kind] = &onnx__##descriptor##__descriptor,
    MOT_WIRE_KIND_LIST(X)
#undef X
};

#endif
