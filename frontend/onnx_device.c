/*
 * Multi-device annotations (IR 11): hints, but wrong ones are refused, as a plan may be pinned to
 * them.
 */
#include "frontend/onnx_check.h"

typedef struct Devices {
    MotCtx *ctx;
    const MotOnnxFile *file;
    MotMap by_name;    /* configuration -> its number of devices */
    MotLoc loc;        /* of the node at hand */
    MotMap values;     /* its inputs and outputs */
    int64_t n_devices; /* of the configuration at hand */
} Devices;

#define FAIL(d, ...) mot_fail((d)->ctx, MOT_ERR_MODEL, (d)->loc, __VA_ARGS__)

static const char *quote(const Devices *d, const char *text)
{
    return mot_quote(&d->ctx->arena, text ? text : "");
}

static MotStatus check_configuration(Devices *d, const Onnx__DeviceConfigurationProto *c)
{
    const char *name = quote(d, c->name);
    d->loc = (MotLoc){d->file->path, mot_arena_printf(&d->ctx->arena, "configuration %s", name)};
    if (!c->name || !*c->name)
        return FAIL(d, "it has no name");
    if (c->num_devices <= 0)
        return FAIL(d, "num_devices is %d", c->num_devices);
    if (c->n_device && c->n_device != (size_t)c->num_devices)
        return FAIL(d, "%zu names for %d devices", c->n_device, c->num_devices);
    if (mot_map_put_str(&d->by_name, c->name, (uint64_t)c->num_devices))
        return FAIL(d, "there is such a configuration already");
    return MOT_OK;
}

/*
 * The axes are distinct; how many parts they make together. Ranks are not known yet: the axis must
 * fit the largest.
 */
static MotStatus count_parts(const Devices *d, const Onnx__ShardingSpecProto *spec,
                             int64_t *out_parts)
{
    MotMap axes;
    mot_map_init(&axes, &d->ctx->arena);
    int64_t most = (int64_t)d->file->limits.rank;
    *out_parts = 1;
    for (size_t i = 0; i < spec->n_sharded_dim; i++) {
        const Onnx__ShardedDimProto *dim = spec->sharded_dim[i];
        if (!dim->has_axis || dim->axis < -most || dim->axis >= most)
            return FAIL(d, "sharding of %s: axis %lld is out of range", quote(d, spec->tensor_name),
                        (long long)dim->axis);
        if (mot_map_put(&axes, &dim->axis, sizeof dim->axis, 0))
            return FAIL(d, "sharding of %s: axis %lld is given twice", quote(d, spec->tensor_name),
                        (long long)dim->axis);
        for (size_t k = 0; k < dim->n_simple_sharding; k++) {
            int64_t shards = dim->simple_sharding[k]->num_shards;
            if (shards < 1)
                return FAIL(d, "sharding of %s: num_shards is %lld", quote(d, spec->tensor_name),
                            (long long)shards);
            if (__builtin_mul_overflow(*out_parts, shards, out_parts))
                return FAIL(d, "sharding of %s: too many shards", quote(d, spec->tensor_name));
        }
    }
    return MOT_OK;
}

/* A real device, which no part before it uses. */
static MotStatus use_device(const Devices *d, const char *tensor, int64_t device, MotMap *used)
{
    if (device < 0 || device >= d->n_devices)
        return FAIL(d, "sharding of %s: device %lld is neither one of the %lld devices nor a group",
                    quote(d, tensor), (long long)device, (long long)d->n_devices);
    if (mot_map_put(used, &device, sizeof device, 0))
        return FAIL(d, "sharding of %s: device %lld is given twice", quote(d, tensor),
                    (long long)device);
    return MOT_OK;
}

static MotStatus check_spec(const Devices *d, const Onnx__ShardingSpecProto *spec)
{
    MotMap groups, used;
    mot_map_init(&groups, &d->ctx->arena);
    mot_map_init(&used, &d->ctx->arena);
    if (!spec->tensor_name || !mot_map_get_str(&d->values, spec->tensor_name, NULL))
        return FAIL(d, "sharding of %s, which is neither input nor output of the node",
                    quote(d, spec->tensor_name));
    for (size_t i = 0; i < spec->n_index_to_device_group_map; i++)
        if (mot_map_put(&groups, &spec->index_to_device_group_map[i]->key, sizeof(int64_t), i))
            return FAIL(d, "sharding of %s: group %lld is given twice", quote(d, spec->tensor_name),
                        (long long)spec->index_to_device_group_map[i]->key);
    for (size_t i = 0; i < spec->n_device; i++) {
        uint64_t g;
        if (!mot_map_get(&groups, &spec->device[i], sizeof(int64_t), &g)) {
            MOT_TRY(use_device(d, spec->tensor_name, spec->device[i], &used));
            continue;
        }
        const Onnx__IntIntListEntryProto *group = spec->index_to_device_group_map[g];
        for (size_t k = 0; k < group->n_value; k++)
            MOT_TRY(use_device(d, spec->tensor_name, group->value[k], &used));
    }
    int64_t parts;
    MOT_TRY(count_parts(d, spec, &parts));
    if (spec->n_sharded_dim && parts != (int64_t)spec->n_device)
        return FAIL(d, "sharding of %s: %lld parts for %zu devices or groups",
                    quote(d, spec->tensor_name), (long long)parts, spec->n_device);
    return MOT_OK;
}

static MotStatus check_specs(Devices *d, const Onnx__NodeDeviceConfigurationProto *c)
{
    uint64_t n_devices;
    if (!c->configuration_id || !mot_map_get_str(&d->by_name, c->configuration_id, &n_devices))
        return FAIL(d, "device configuration %s is not declared", quote(d, c->configuration_id));
    d->n_devices = (int64_t)n_devices;
    for (size_t i = 0; i < c->n_sharding_spec; i++) {
        MotArenaMark mark = mot_arena_mark(&d->ctx->arena);
        MOT_TRY(check_spec(d, c->sharding_spec[i]));
        mot_arena_rewind(&d->ctx->arena, mark);
    }
    return MOT_OK;
}

static MotStatus check_node(Devices *d, const MotOnnxScope *scope, uint32_t i)
{
    const Onnx__NodeProto *node = scope->nodes[i];
    if (node->n_device_configurations == 0)
        return MOT_OK;
    MotArenaMark mark = mot_arena_mark(&d->ctx->arena);
    d->loc = mot_onnx_scope_node_loc(d->ctx, d->file, scope, i);
    mot_map_init(&d->values, &d->ctx->arena);
    for (size_t k = 0; k < node->n_input; k++)
        mot_map_put_str(&d->values, node->input[k], 0);
    for (size_t k = 0; k < node->n_output; k++)
        mot_map_put_str(&d->values, node->output[k], 0);
    for (size_t k = 0; k < node->n_device_configurations; k++)
        MOT_TRY(check_specs(d, node->device_configurations[k]));
    mot_arena_rewind(&d->ctx->arena, mark);
    return MOT_OK;
}

MotStatus mot_onnx_check_devices(MotCtx *ctx, const MotOnnxFile *file)
{
    Devices d = {.ctx = ctx, .file = file};
    mot_map_init(&d.by_name, &ctx->arena);
    for (size_t i = 0; i < file->model->n_configuration; i++)
        MOT_TRY(check_configuration(&d, file->model->configuration[i]));
    for (uint32_t s = 0; s < file->scopes->all.n; s++)
        for (uint32_t i = 0; i < file->scopes->all.data[s].n_nodes; i++)
            MOT_TRY(check_node(&d, &file->scopes->all.data[s], i));
    return MOT_OK;
}
