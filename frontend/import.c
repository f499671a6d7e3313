/*
 * The import's driver: what is not supported, sizes of symbolic dims, initializers and inputs, then
 * every node by its lowering (onnx_ops.def), then outputs.
 *
 * Runs again from the start when a lowering needs the contents of an input that the caller has
 * offered: that input is a constant in the next attempt. Cost: linear in the file, times one more
 * than the number of such inputs.
 */
#include "frontend/import_node.h"

#include "frontend/onnx_check.h"

#include <string.h>

static const int64_t default_max_value_bytes = (int64_t)256 << 30;

static const Onnx__GraphProto *get_graph(const MotImport *im)
{
    return im->file->model->graph;
}

static MotLoc file_loc(const MotImport *im)
{
    return (MotLoc){im->file->path, NULL};
}

static const char *quote(const MotImport *im, const char *name)
{
    return mot_quote(&im->ctx->arena, name);
}

/* ---- What is not supported ---- */

static int64_t find_version(const MotImport *im, const char *domain)
{
    const Onnx__ModelProto *model = im->file->model;
    for (size_t i = 0; i < model->n_opset_import; i++)
        if (strcmp(mot_onnx_domain(model->opset_import[i]->domain), domain) == 0)
            return model->opset_import[i]->version;
    return 0;
}

static const MotLowering *find_lowering(const MotImport *im, const Onnx__NodeProto *node)
{
    const char *domain = mot_onnx_domain(node->domain);
    return mot_lowering_find(domain, node->op_type, find_version(im, domain));
}

/* An operator without a row: how often it occurs, and where first. */
typedef struct {
    const Onnx__NodeProto *node;
    size_t index, count;
} Missing;

static MotStatus report_missing(MotImport *im, const Missing *missing, uint32_t n)
{
    MotStatus status = mot_fail(im->ctx, MOT_ERR_UNSUPPORTED, file_loc(im),
                                "%u operator%s not supported", n, n == 1 ? " is" : "s are");
    for (uint32_t i = 0; i < n; i++) {
        const Onnx__NodeProto *node = missing[i].node;
        const char *domain = mot_onnx_domain(node->domain);
        mot_note(im->ctx, "%s.%s version %lld: %zu node%s, the first is node %zu %s",
                 domain[0] ? domain : "ai.onnx", node->op_type, (long long)find_version(im, domain),
                 missing[i].count, missing[i].count == 1 ? "" : "s", missing[i].index,
                 quote(im, node->name ? node->name : ""));
    }
    return status;
}

/* All unsupported operators at once, in the order of their first nodes. */
static MotStatus check_operators(MotImport *im)
{
    const Onnx__GraphProto *graph = get_graph(im);
    MotVec(Missing) missing = {0};
    MotMap seen;
    mot_map_init(&seen, &im->ctx->arena);
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        if (find_lowering(im, node))
            continue;
        const char *key = mot_arena_printf(&im->ctx->arena, "%s %s", mot_onnx_domain(node->domain),
                                           node->op_type);
        uint64_t at = missing.n;
        if (!mot_map_get_str(&seen, key, &at)) {
            mot_map_put_str(&seen, key, at);
            mot_vec_push(&im->ctx->arena, &missing, (Missing){.node = node, .index = i});
        }
        MOT_ASSERT(at < missing.n);
        missing.data[at].count++;
    }
    return missing.n ? report_missing(im, missing.data, missing.n) : MOT_OK;
}

static MotStatus check_initializers(MotImport *im)
{
    const Onnx__GraphProto *graph = get_graph(im);
    if (!graph->n_sparse_initializer)
        return MOT_OK;
    return mot_fail(im->ctx, MOT_ERR_UNSUPPORTED, file_loc(im),
                    "initializer %s is sparse, which is not supported",
                    quote(im, graph->sparse_initializer[0]->values->name));
}

/* ---- Names ---- */

static void bind(MotImport *im, const char *name, MotBound bound)
{
    mot_map_put_str(&im->names, name, im->bound.n);
    mot_vec_push(&im->ctx->arena, &im->bound, bound);
    if (bound.value && !im->g->values.data[bound.value].name)
        im->g->values.data[bound.value].name = mot_intern(im->ctx, name);
}

static const MotBound *look_up(const MotImport *im, const char *name)
{
    uint64_t at;
    return mot_map_get_str(&im->names, name, &at) ? &im->bound.data[at] : NULL;
}

/* ---- Symbolic dims ---- */

static const MotTensor *find_offered(const MotImport *im, const char *name)
{
    for (uint32_t i = 0; i < im->opts->n_inputs; i++)
        if (strcmp(im->opts->inputs[i].name, name) == 0)
            return &im->opts->inputs[i].tensor;
    return NULL;
}

static const Onnx__TypeProto__Tensor *get_tensor_type(const Onnx__ValueInfoProto *info)
{
    bool is_tensor = info->type && info->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    return is_tensor ? info->type->tensor_type : NULL;
}

/* The size a dim states, or -1 and the name to bind it by: its symbol, else INPUT.AXIS. */
static int64_t read_dim(const MotImport *im, const Onnx__ValueInfoProto *info, size_t axis,
                        const char **out_symbol)
{
    const Onnx__TensorShapeProto__Dimension *dim = get_tensor_type(info)->shape->dim[axis];
    *out_symbol = NULL;
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
        dim->dim_value >= 0)
        return dim->dim_value;
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
        dim->dim_param[0])
        *out_symbol = dim->dim_param;
    else
        *out_symbol = mot_arena_printf(&im->ctx->arena, "%s.%zu", info->name, axis);
    return -1;
}

static bool is_initializer(const MotImport *im, const char *name)
{
    return look_up(im, name) != NULL; /* initializers are bound before inputs */
}

/* `f32[batchx784]`, as the file declares the input. */
static const char *declared_type(const MotImport *im, const Onnx__ValueInfoProto *info)
{
    const Onnx__TypeProto__Tensor *type = get_tensor_type(info);
    MotText text;
    mot_text_init(&text, &im->ctx->arena);
    mot_text_puts(&text, mot_dtype_name(mot_dtype_from_onnx(type->elem_type)));
    for (size_t i = 0; type->shape && i < type->shape->n_dim; i++) {
        const char *symbol;
        int64_t size = read_dim(im, info, i, &symbol);
        uint64_t bound;
        mot_text_puts(&text, i ? "x" : "[");
        if (symbol && !mot_map_get_str(&im->symbols, symbol, &bound))
            mot_text_escape(&text, symbol, strlen(symbol));
        else
            mot_text_printf(&text, "%lld", (long long)(symbol ? (int64_t)bound : size));
    }
    mot_text_puts(&text, type->shape && type->shape->n_dim ? "]" : "");
    return mot_text_get(&text);
}

/*
 * What is offered for an input is not of its type: the message is about the file that it is from.
 */
static MotStatus fail_offered(MotImport *im, const Onnx__ValueInfoProto *info)
{
    const MotInputTensor *offered = im->opts->inputs;
    while (strcmp(offered->name, info->name) != 0)
        offered++;
    const MotType *type = &offered->tensor.type;
    mot_fail(im->ctx, MOT_ERR_DATA, (MotLoc){offered->file, NULL}, "is %s[%s], input %s takes %s",
             mot_dtype_name(type->dtype), mot_shape_text(&im->ctx->arena, type->dims, type->rank),
             quote(im, info->name), declared_type(im, info));
    mot_note(im->ctx, "in %s", im->file->path);
    if (type->dtype == MOT_F64)
        mot_hint(im->ctx, "--cast converts float64 to float32");
    return im->ctx->status;
}

/* Binds symbols of one input to the shape of the tensor offered for it. */
static MotStatus bind_offered_dims(MotImport *im, const Onnx__ValueInfoProto *info)
{
    const MotTensor *offered = find_offered(im, info->name);
    const Onnx__TypeProto__Tensor *type = get_tensor_type(info);
    if (!offered || !type || !type->shape)
        return MOT_OK;
    bool fits = type->shape->n_dim == (size_t)offered->type.rank;
    for (size_t i = 0; i < type->shape->n_dim && fits; i++) {
        const char *symbol;
        uint64_t bound = (uint64_t)read_dim(im, info, i, &symbol);
        uint64_t size = (uint64_t)offered->type.dims[i];
        if (symbol && !mot_map_get_str(&im->symbols, symbol, &bound)) {
            mot_map_put_str(&im->symbols, symbol, size);
            bound = size;
        }
        fits = bound == size;
    }
    return fits ? MOT_OK : fail_offered(im, info);
}

/* The symbols of all inputs, each with its first place: the input's index << 32 | axis. */
static MotMap find_symbols(const MotImport *im)
{
    const Onnx__GraphProto *graph = get_graph(im);
    MotMap symbols;
    mot_map_init(&symbols, &im->ctx->arena);
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__TypeProto__Tensor *type = get_tensor_type(graph->input[i]);
        if (!type || !type->shape || is_initializer(im, graph->input[i]->name))
            continue;
        for (size_t d = 0; d < type->shape->n_dim; d++) {
            const char *symbol;
            read_dim(im, graph->input[i], d, &symbol);
            if (symbol && !mot_map_get_str(&symbols, symbol, NULL))
                mot_map_put_str(&symbols, symbol, (uint64_t)i << 32 | d);
        }
    }
    return symbols;
}

/* Every --dim must name a symbol of an input. */
static MotStatus bind_named_dims(MotImport *im, const MotMap *symbols)
{
    for (uint32_t k = 0; k < im->opts->n_dims; k++) {
        const MotDimBinding *dim = &im->opts->dims[k];
        if (!mot_map_get_str(symbols, dim->name, NULL)) {
            mot_fail(im->ctx, MOT_ERR_USAGE, file_loc(im), "no input has a symbolic dim %s",
                     quote(im, dim->name));
            for (uint32_t i = 0; i < symbols->n && i < 8; i++)
                mot_hint(im->ctx, "there is %s", quote(im, symbols->entries[i].key));
            if (symbols->n == 0)
                mot_hint(im->ctx, "all sizes of this model are fixed");
            return im->ctx->status;
        }
        if (dim->size < 0)
            return mot_fail(im->ctx, MOT_ERR_USAGE, file_loc(im), "dim %s cannot be negative",
                            quote(im, dim->name));
        mot_map_put_str(&im->symbols, dim->name, (uint64_t)dim->size);
    }
    return MOT_OK;
}

/* All symbols that have no size, each with the first place that needs it. */
static MotStatus check_bound(MotImport *im, const MotMap *symbols)
{
    uint32_t n = symbols->n - im->symbols.n;
    if (n == 0)
        return MOT_OK;
    MotStatus status = mot_fail(im->ctx, MOT_ERR_USAGE, file_loc(im), "%u symbolic dim%s no size",
                                n, n == 1 ? " has" : "s have");
    MotText hint;
    mot_text_init(&hint, &im->ctx->arena);
    for (uint32_t i = 0; i < symbols->n; i++) {
        const MotMapEntry *entry = &symbols->entries[i];
        if (mot_map_get_str(&im->symbols, entry->key, NULL))
            continue;
        mot_note(im->ctx, "%s: dim %u of input %s", quote(im, entry->key), (uint32_t)entry->value,
                 quote(im, get_graph(im)->input[entry->value >> 32]->name));
        mot_text_printf(&hint, " --dim %s=8", entry->key);
    }
    mot_hint(im->ctx, "bind %s, for example%s", n == 1 ? "it" : "them",
             n < 8 ? mot_text_get(&hint) : " --dim NAME=SIZE");
    return status;
}

/* Afterwards every symbol of an input has a size. */
static MotStatus bind_symbols(MotImport *im)
{
    const Onnx__GraphProto *graph = get_graph(im);
    MotMap symbols = find_symbols(im);
    MOT_TRY(bind_named_dims(im, &symbols));
    for (size_t i = 0; i < graph->n_input; i++)
        if (!is_initializer(im, graph->input[i]->name))
            MOT_TRY(bind_offered_dims(im, graph->input[i]));
    return check_bound(im, &symbols);
}

/* ---- Initializers and inputs ---- */

static MotStatus fail_dtype(MotImport *im, const char *what, const char *name, int64_t data_type)
{
    return mot_fail(im->ctx, MOT_ERR_UNSUPPORTED, file_loc(im),
                    "%s %s has data type %s, which is not supported", what, quote(im, name),
                    mot_onnx_dtype_name(&im->ctx->arena, data_type));
}

/* Floats with more than one element may train; all else is constant. */
static MotStatus add_initializer(MotImport *im, const Onnx__TensorProto *proto)
{
    MotTensorData data;
    MotLoc loc = {im->file->path,
                  mot_arena_printf(&im->ctx->arena, "initializer %s", quote(im, proto->name))};
    if (mot_dtype_from_onnx(proto->data_type) == MOT_NO_DTYPE)
        return fail_dtype(im, "initializer", proto->name, proto->data_type);
    if (proto->n_dims > MOT_MAX_RANK)
        return mot_fail(im->ctx, MOT_ERR_UNSUPPORTED, loc, "has rank %zu; Motley goes up to %d",
                        proto->n_dims, MOT_MAX_RANK);
    MOT_TRY(mot_onnx_tensor_data(im->ctx, im->file, proto, loc, &data));
    MotType type = mot_type_make(mot_dtype_from_onnx(proto->data_type), data.rank, data.dims);
    im->b.origin = NULL;
    MotValue v;
    if (mot_dtype_class(type.dtype) == MOT_CLASS_FLOAT && mot_type_elements(&type) > 1) {
        int64_t perm[MOT_MAX_RANK];
        for (int i = 0; i < type.rank; i++)
            perm[i] = i;
        MotInts dims = {type.dims, (uint32_t)type.rank};
        v = mot_param(
            &im->b,
            &(MotAttr_param){.name = proto->name, .file_dims = dims, .perm = {perm, dims.n}}, type);
    } else {
        MotTensor t;
        MOT_TRY(mot_onnx_tensor(im->ctx, im->file, proto, loc, &t));
        v = mot_constant(&im->b, t);
    }
    bind(im, proto->name, (MotBound){.value = v, .node = UINT32_MAX});
    return im->ctx->status;
}

static MotStatus read_input_type(MotImport *im, const Onnx__ValueInfoProto *info, MotType *out_type)
{
    const Onnx__TypeProto__Tensor *type = get_tensor_type(info);
    const MotTensor *offered = find_offered(im, info->name);
    if (!type)
        return mot_fail(im->ctx, MOT_ERR_UNSUPPORTED, file_loc(im), "input %s is no tensor",
                        quote(im, info->name));
    *out_type = (MotType){.dtype = mot_dtype_from_onnx(type->elem_type)};
    if (out_type->dtype == MOT_NO_DTYPE)
        return fail_dtype(im, "input", info->name, type->elem_type);
    if (offered && offered->type.dtype != out_type->dtype)
        return fail_offered(im, info);
    if (!type->shape && !offered)
        return mot_fail(im->ctx, MOT_ERR_UNSUPPORTED, file_loc(im), "input %s has no shape",
                        quote(im, info->name));
    if (!type->shape) {
        *out_type = offered->type;
        return MOT_OK;
    }
    if (type->shape->n_dim > MOT_MAX_RANK)
        return mot_fail(im->ctx, MOT_ERR_UNSUPPORTED, file_loc(im),
                        "input %s has rank %zu; Motley goes up to %d", quote(im, info->name),
                        type->shape->n_dim, MOT_MAX_RANK);
    for (size_t i = 0; i < type->shape->n_dim; i++) {
        const char *symbol;
        int64_t size = read_dim(im, info, i, &symbol);
        uint64_t bound = 0;
        if (symbol && mot_map_get_str(&im->symbols, symbol, &bound))
            size = (int64_t)bound;
        out_type->dims[out_type->rank++] = size;
    }
    return MOT_OK;
}

static MotStatus add_input(MotImport *im, const Onnx__ValueInfoProto *info)
{
    MotType type;
    MOT_TRY(read_input_type(im, info, &type));
    im->b.origin = NULL;
    MotValue v = mot_map_get_str(&im->needed, info->name, NULL)
                     ? mot_constant(&im->b, *find_offered(im, info->name))
                     : mot_input(&im->b, info->name, type);
    bind(im, info->name, (MotBound){.value = v, .node = UINT32_MAX});
    return im->ctx->status;
}

static MotStatus add_sources(MotImport *im)
{
    const Onnx__GraphProto *graph = get_graph(im);
    for (size_t i = 0; i < graph->n_initializer; i++)
        MOT_TRY(add_initializer(im, graph->initializer[i]));
    MOT_TRY(bind_symbols(im));
    for (size_t i = 0; i < graph->n_input; i++)
        if (!is_initializer(im, graph->input[i]->name))
            MOT_TRY(add_input(im, graph->input[i]));
    return mot_import_fold(im, 1);
}

/* ---- Nodes ---- */

static void check_arity(MotNode *n)
{
    const MotLowering *row = n->row;
    bool is_variadic = row->n_max == MOT_ANY_NUMBER;
    uint32_t used = n->n_out;
    while (used > 0 && !mot_node_wants(n, used - 1))
        used--;
    if (n->n_in < row->n_min || n->n_in > row->n_max)
        mot_node_fail(n, MOT_ERR_MODEL, "has %u inputs; it takes %u to %u", n->n_in, row->n_min,
                      row->n_max);
    if (used < 1 || used > row->n_out)
        mot_node_fail(n, MOT_ERR_MODEL, "has %u outputs; it gives 1 to %u", used, row->n_out);
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (!mot_node_has(n, i) && (i < row->n_min || is_variadic))
            mot_node_fail(n, MOT_ERR_MODEL, "input %u is missing", i);
        if (n->sequence[i] && !row->takes_sequence)
            mot_node_fail(n, MOT_ERR_MODEL, "input %s is a sequence",
                          quote(n->im, n->proto->input[i]));
    }
}

/* Resolves operand names; optional trailing operands that are left out count as not there. */
static void read_operands(MotNode *n)
{
    MotArena *arena = &n->im->ctx->arena;
    const Onnx__NodeProto *proto = n->proto;
    n->n_in = (uint32_t)proto->n_input;
    while (n->n_in > n->row->n_min && !proto->input[n->n_in - 1][0])
        n->n_in--;
    n->in = mot_arena_array(arena, MotValue, n->n_in + 1);
    n->sequence = mot_arena_array(arena, const MotSequence *, n->n_in + 1);
    for (uint32_t i = 0; i < n->n_in; i++) {
        const char *name = proto->input[i];
        const MotBound *bound = name[0] ? look_up(n->im, name) : NULL;
        if (name[0] && !bound)
            mot_node_fail(n, MOT_ERR_MODEL, "input %s is not defined", quote(n->im, name));
        if (!bound)
            continue;
        n->in[i] = bound->value;
        n->sequence[i] = bound->sequence;
    }
    n->n_out = (uint32_t)proto->n_output;
    n->out = mot_arena_array(arena, MotValue, n->n_out + 1);
    n->out_sequence = mot_arena_array(arena, const MotSequence *, n->n_out + 1);
}

/* Says of each operand what it is and which node it comes from. */
static void note_operands(const MotNode *n)
{
    MotImport *im = n->im;
    for (uint32_t i = 0; i < n->n_in && i < 4; i++) {
        if (!n->in[i])
            continue;
        uint32_t from = look_up(im, n->proto->input[i])->node;
        const Onnx__NodeProto *node = from == UINT32_MAX ? NULL : get_graph(im)->node[from];
        if (node)
            mot_note(im->ctx, "input %s comes from node %u %s", mot_node_operand_text(n, i), from,
                     quote(im, node->name && node->name[0] ? node->name : node->op_type));
        else
            mot_note(im->ctx, "input %s", mot_node_operand_text(n, i));
    }
}

/* What a builder or the evaluation refused gets the node's place; they know the operator only. */
static void relocate(MotNode *n)
{
    MotCtx *ctx = n->im->ctx;
    char *text = mot_arena_strdup(&ctx->arena, mot_text_get(&ctx->error));
    MotStatus status = ctx->status == MOT_ERR_DATA ? MOT_ERR_MODEL : ctx->status;
    const char *prefix = mot_arena_printf(&ctx->arena, "node %s: ", quote(n->im, n->b->origin));
    if (strncmp(text, n->loc.file, strlen(n->loc.file)) == 0)
        return;
    char *line = strncmp(text, prefix, strlen(prefix)) == 0 ? text + strlen(prefix) : text;
    char *rest = strchr(line, '\n');
    if (rest)
        *rest++ = 0;
    mot_error_clear(ctx);
    mot_node_fail(n, status, "%s", line);
    while (rest && *rest) {
        line = rest + strspn(rest, " ");
        rest = strchr(line, '\n');
        if (rest)
            *rest++ = 0;
        mot_note(ctx, "%s", line);
    }
}

/*
 * The sizes of new values must be countable and below the limit, before anything is computed with
 * them.
 */
static void check_sizes(MotNode *n, MotValue first)
{
    const MotImport *im = n->im;
    int64_t limit = im->opts->max_value_bytes ? im->opts->max_value_bytes : default_max_value_bytes;
    for (MotValue v = first; v < im->g->values.n && mot_node_ok(n); v++) {
        const MotType *type = mot_graph_type(im->g, v);
        int64_t bytes = mot_dtype_bytes(type->dtype);
        bool is_over = false;
        for (int i = 0; i < type->rank; i++)
            is_over =
                is_over || __builtin_mul_overflow(bytes, type->dims[i] ? type->dims[i] : 1, &bytes);
        if (is_over || bytes > limit)
            mot_node_fail(n, MOT_ERR_LIMIT, "a value of shape [%s] exceeds the limit of %s",
                          mot_shape_text(&im->ctx->arena, type->dims, type->rank),
                          mot_bytes_text(&im->ctx->arena, (double)limit));
    }
}

static void bind_results(MotNode *n)
{
    for (uint32_t i = 0; i < n->n_out; i++) {
        if (!mot_node_wants(n, i))
            continue;
        if (!n->out[i] && !n->out_sequence[i])
            mot_node_fail(n, MOT_ERR_UNSUPPORTED, "output %u (%s) is not supported", i,
                          quote(n->im, n->proto->output[i]));
        else
            bind(n->im, n->proto->output[i],
                 (MotBound){.value = n->out[i], .sequence = n->out_sequence[i], .node = n->index});
    }
}

static MotStatus lower_node(MotImport *im, uint32_t index)
{
    const Onnx__NodeProto *proto = get_graph(im)->node[index];
    MotArena *arena = &im->ctx->arena;
    const char *name = proto->name && proto->name[0]
                           ? proto->name
                           : mot_arena_printf(arena, "%s_%u", proto->op_type, index);
    MotNode n = {.im = im,
                 .b = &im->b,
                 .row = find_lowering(im, proto),
                 .proto = proto,
                 .index = index,
                 .loc = mot_onnx_node_loc(im->ctx, im->file, get_graph(im), index)};
    MotOpId first_op = im->g->ops.n;
    MotValue first_value = im->g->values.n;
    im->b.origin = mot_intern(im->ctx, name);
    read_operands(&n);
    if (mot_node_ok(&n))
        check_arity(&n);
    if (mot_node_ok(&n) && mot_node_check_attrs(&n) == MOT_OK)
        n.row->lower(&n);
    check_sizes(&n, first_value);
    if (mot_node_ok(&n))
        bind_results(&n);
    MotStatus status = mot_node_ok(&n) ? mot_import_fold(im, first_op) : im->ctx->status;
    if (status != MOT_OK && !im->starts_again) {
        relocate(&n);
        note_operands(&n);
    }
    return im->ctx->status;
}

/* ---- Outputs and hints ---- */

static MotStatus add_outputs(MotImport *im)
{
    const Onnx__GraphProto *graph = get_graph(im);
    im->b.origin = NULL;
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *name = graph->output[i]->name;
        const MotBound *bound = look_up(im, name);
        if (!bound)
            return mot_fail(im->ctx, MOT_ERR_MODEL, file_loc(im), "output %s is not defined",
                            quote(im, name));
        if (!bound->value)
            return mot_fail(im->ctx, MOT_ERR_UNSUPPORTED, file_loc(im), "output %s is a sequence",
                            quote(im, name));
        mot_output(&im->b, name, bound->value);
    }
    return im->ctx->status;
}

/*
 * Whether what the file states of a value agrees with its type; symbols and -1 agree with
 * everything.
 */
static bool agrees(const MotImport *im, const Onnx__ValueInfoProto *info, const MotType *type)
{
    const Onnx__TypeProto__Tensor *stated = get_tensor_type(info);
    if (!stated)
        return true;
    if (stated->elem_type && mot_dtype_from_onnx(stated->elem_type) != type->dtype)
        return false;
    if (!stated->shape)
        return true;
    if (stated->shape->n_dim != (size_t)type->rank)
        return false;
    for (size_t i = 0; i < stated->shape->n_dim; i++) {
        const char *symbol;
        int64_t size = read_dim(im, info, i, &symbol);
        if (!symbol && size != type->dims[i])
            return false;
    }
    return true;
}

static void check_hints(MotImport *im, Onnx__ValueInfoProto **infos, size_t n)
{
    size_t wrong = 0;
    const Onnx__ValueInfoProto *first = NULL;
    for (size_t i = 0; i < n; i++) {
        const MotBound *bound = look_up(im, infos[i]->name);
        if (!bound || !bound->value || agrees(im, infos[i], mot_graph_type(im->g, bound->value)))
            continue;
        first = first ? first : infos[i];
        wrong++;
    }
    if (!wrong)
        return;
    const MotType *type = mot_graph_type(im->g, look_up(im, first->name)->value);
    mot_warn(im->ctx, file_loc(im), "the file states another type for %zu value%s; %s is %s[%s]",
             wrong, wrong == 1 ? "" : "s, among them", quote(im, first->name),
             mot_dtype_name(type->dtype),
             type->rank ? mot_shape_text(&im->ctx->arena, type->dims, type->rank) : "");
}

/* ---- The import ---- */

static MotStatus attempt(MotImport *im)
{
    const Onnx__GraphProto *graph = get_graph(im);
    MotArena *arena = &im->ctx->arena;
    im->g = mot_graph_make(im->ctx, graph->name && graph->name[0] ? graph->name : "model");
    im->b = mot_builder_make(im->g);
    im->bound.n = im->known.n = 0;
    im->starts_again = false;
    mot_map_init(&im->names, arena);
    mot_map_init(&im->symbols, arena);
    MOT_TRY(add_sources(im));
    const uint32_t *order = mot_onnx_order(im->file, graph);
    for (uint32_t i = 0; i < graph->n_node; i++)
        MOT_TRY(lower_node(im, order[i]));
    MOT_TRY(add_outputs(im));
    check_hints(im, graph->value_info, graph->n_value_info);
    check_hints(im, graph->output, graph->n_output);
    mot_import_materialize(im);
    mot_graph_compact(im->g);
    return im->ctx->status;
}

static void release_contents(void *handle)
{
    mot_arena_deinit(handle);
}

/*
 * An arena of its own. It is given back by the end of the import, and by the context if that does
 * not end.
 */
static MotArena *make_contents(MotCtx *ctx)
{
    MotArena *contents = mot_arena_new(&ctx->arena, MotArena);
    mot_arena_init(contents, ctx->arena.on_exhausted, ctx->arena.self);
    mot_ctx_defer(ctx, release_contents, contents);
    return contents;
}

MotStatus mot_import(MotCtx *ctx, MotOnnxFile *file, const MotImportOpts *opts,
                     MotGraph **out_graph)
{
    MotImport im = {.ctx = ctx, .file = file, .opts = opts, .contents = make_contents(ctx)};
    mot_map_init(&im.needed, &ctx->arena);
    MOT_TRY(check_operators(&im));
    MOT_TRY(check_initializers(&im));
    MotStatus status = attempt(&im);
    while (status != MOT_OK && im.starts_again) {
        mot_error_clear(ctx);
        mot_arena_deinit(im.contents);
        status = attempt(&im);
    }
    mot_arena_deinit(im.contents);
    *out_graph = status == MOT_OK ? im.g : NULL;
    return status;
}
