/*
 * cluster.yaml <-> Cluster: tables of keys, quantities with units, and the checks that no key can
 * make alone. Nothing is guessed: what is not written is the field's zero, "not known", or the
 * native link's.
 */
#include "frontend/cluster_file.h"

#include "support/yaml.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    double factor;
} Unit;

static const Unit byte_units[] = {
    {"B", 1},        {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9}, {"TB", 1e12},
    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {0}};
static const Unit time_units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {0}};
/* Per second. Networks count bits, memories bytes. */
#define BYTE_RATES                                                                                 \
    {"B", 1}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"KiB", 0x1p10},   \
        {"MiB", 0x1p20}, {"GiB", 0x1p30}, {0}
static const Unit link_rates[] = {{"bit", 0.125},  {"kbit", 125},   {"Kbit", 125}, {"Mbit", 125e3},
                                  {"Gbit", 125e6}, {"Tbit", 125e9}, BYTE_RATES};
static const Unit memory_rates[] = {BYTE_RATES};
static const Unit giga[] = {{"", 1e9}, {0}};
static const Unit counts[] = {{"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {0}};
static const Unit none[] = {{"", 1}, {0}};

/* A key: a quantity in one of `units` that lands in a double at `offset`, or a text. */
typedef struct {
    const char *key;
    const Unit *units; /* NULL: a text at `offset` */
    size_t offset;
    double least, most; /* in the field's own unit */
    const char *example;
} Key;

/* A device as it is written; threads are checked to be whole. */
typedef struct {
    MotDevice device;
    double threads;
} DeviceEntry;

#define AT(field) offsetof(DeviceEntry, field)
static const Key device_keys[] = {
    {"name", NULL, AT(device.name), 0, 0, "a"},
    {"backend", NULL, AT(device.backend), 0, 0, "cpu or ref"},
    {"threads", none, AT(threads), 1, 1024, "4"},
    {"slow", none, AT(device.slow), 1, 1e6, "2.5"},
    {"memory", byte_units, AT(device.memory), 0x1p20, 0x1p50, "2GiB"},
    {"gflops", giga, AT(device.alone.flops), 1e5, 1e18, "50"},
    {"functions", counts, AT(device.alone.functions), 1e4, 1e18, "1.2G"},
    {"bandwidth", memory_rates, AT(device.alone.bandwidth), 1e5, 1e15, "10GB"},
    {"launch", time_units, AT(device.alone.launch), 1e-9, 1, "2us"},
    {"gflops_beside", giga, AT(device.beside.flops), 1e5, 1e18, "50"},
    {"functions_beside", counts, AT(device.beside.functions), 1e4, 1e18, "1.2G"},
    {"bandwidth_beside", memory_rates, AT(device.beside.bandwidth), 1e5, 1e15, "10GB"},
    {"launch_beside", time_units, AT(device.beside.launch), 1e-9, 1, "2us"},
    {0},
};
#undef AT
static const size_t SLOW = offsetof(DeviceEntry, device.slow);
static const Key link_keys[] = {
    {"latency", time_units, offsetof(MotLink, latency), 0, 10, "10us"},
    {"bandwidth", link_rates, offsetof(MotLink, bandwidth), 1e3, 1e15, "10Gbit or 8GB"},
    {"measured_latency", time_units, offsetof(MotLink, measured_latency), 1e-9, 10, "30us"},
    {"measured_bandwidth", memory_rates, offsetof(MotLink, measured_bandwidth), 1e3, 1e15, "3GB"},
    {0},
};

typedef struct {
    MotCtx *ctx;
    MotStatus error; /* what is wrong is */
    const char *file;
    MotCluster *cluster;
    const MotYaml *devices, *links;
    DeviceEntry device; /* being read */
    MotLink link;
    const MotYaml *between;
} Reader;

/* `format` has one %s, for `text` quoted. */
static MotStatus fail(const Reader *r, const MotYaml *at, const char *format, const char *text)
{
    return mot_fail(r->ctx, r->error, mot_yaml_loc(r->ctx, r->file, at), format,
                    text ? mot_quote(&r->ctx->arena, text) : "nothing");
}

static const Unit *find_unit(const Unit *units, const char *text)
{
    size_t n = strlen(text);
    if (n > 2 && strcmp(text + n - 2, "/s") == 0)
        n -= 2;
    for (const Unit *u = units; u->name; u++)
        if (strlen(u->name) == n && memcmp(u->name, text, n) == 0)
            return u;
    return NULL;
}

/* Whether `text` is a decimal number and a unit: `10us`, `2.5 GiB`. */
static bool parse_quantity(const char *text, const Unit *units, double *out_value)
{
    if (!strchr("0123456789.", text[0]) || !text[0] || strpbrk(text, "xXnNpP") == text + 1)
        return false;
    char *end;
    double number = strtod(text, &end);
    while (*end == ' ')
        end++;
    const Unit *unit = find_unit(units, end);
    if (!unit || !isfinite(number))
        return false;
    *out_value = number * unit->factor;
    return true;
}

static bool is_in_range(const Key *k, double number)
{
    return number >= k->least && number <= k->most;
}

/* A limit in the largest unit of which it has one. */
static const char *limit_text(MotCtx *ctx, const Unit *units, double limit)
{
    const Unit *best = units;
    for (const Unit *u = units; u->name; u++)
        if (u->factor <= limit && (u->factor > best->factor || best->factor > limit))
            best = u;
    return mot_arena_printf(&ctx->arena, "%g%s", limit / best->factor, best->name);
}

static MotStatus set_quantity(Reader *r, const Key *k, void *entry, const MotYaml *value)
{
    const char *text = mot_yaml_string(r->ctx, value);
    double number;
    MotLoc at = mot_yaml_loc(r->ctx, r->file, value);
    const char *quoted = mot_quote(&r->ctx->arena, text ? text : "");
    if (!text || !parse_quantity(text, k->units, &number))
        return mot_fail(r->ctx, MOT_ERR_USAGE, at, "%s: %s is not like %s", k->key, quoted,
                        k->example);
    if (!is_in_range(k, number))
        return mot_fail(r->ctx, MOT_ERR_USAGE, at, "%s: %s is not from %s to %s", k->key, quoted,
                        limit_text(r->ctx, k->units, k->least),
                        limit_text(r->ctx, k->units, k->most));
    *(double *)(void *)((char *)entry + k->offset) = number;
    return MOT_OK;
}

static MotStatus refuse_key(Reader *r, const Key *keys, const MotYaml *key, const char *name)
{
    MotText known;
    mot_text_init(&known, &r->ctx->arena);
    mot_text_puts(&known, keys == link_keys ? "between" : "");
    for (const Key *k = keys; k->key; k++)
        mot_text_printf(&known, "%s%s", known.n ? ", " : "", k->key);
    MotStatus status = fail(r, key, "unknown key %s", name);
    mot_hint(r->ctx, "the keys are %s", mot_text_get(&known));
    return status;
}

static MotStatus set_field(Reader *r, const Key *keys, void *entry, const MotYaml *key,
                           const MotYaml *value)
{
    const char *name = mot_yaml_string(r->ctx, key), *text = mot_yaml_string(r->ctx, value);
    const Key *k = keys;
    while (k->key && (!name || strcmp(k->key, name) != 0))
        k++;
    if (!k->key)
        return refuse_key(r, keys, key, name);
    if (!text || !text[0])
        return mot_fail(r->ctx, MOT_ERR_USAGE, mot_yaml_loc(r->ctx, r->file, key),
                        "%s has no value", k->key);
    if (k->units)
        return set_quantity(r, k, entry, value);
    *(const char **)(void *)((char *)entry + k->offset) = text;
    return MOT_OK;
}

static uint32_t find_device(const MotCluster *cluster, const char *name)
{
    uint32_t i = 0;
    while (i < cluster->devices.n && (!name || strcmp(cluster->devices.data[i].name, name) != 0))
        i++;
    return i;
}

/* `50: 2` of a schedule, whose steps stand in order. */
static MotStatus visit_slowdown(void *self, const MotYaml *key, const MotYaml *value)
{
    Reader *r = self;
    MotDevice *d = &r->device.device;
    DeviceEntry changed = {0};
    const char *text = mot_yaml_string(r->ctx, key);
    int64_t last = d->slowdowns.n ? d->slowdowns.data[d->slowdowns.n - 1].step : -1;
    double step;
    if (!text || !parse_quantity(text, none, &step) || floor(step) != step || step > INT32_MAX ||
        (double)last >= step)
        return fail(r, key, "slow: %s is no step after the one before it", text);
    for (const Key *k = device_keys; k->key; k++)
        if (k->offset == SLOW)
            MOT_TRY(set_quantity(r, k, &changed, value));
    mot_device_slow_down(r->ctx, d, (int64_t)step, changed.device.slow);
    return MOT_OK;
}

static MotStatus visit_device_key(void *self, const MotYaml *key, const MotYaml *value)
{
    Reader *r = self;
    const char *name = mot_yaml_string(r->ctx, key);
    if (name && strcmp(name, "slow") == 0 && mot_yaml_is_map(value))
        return mot_yaml_each(r->ctx, value, visit_slowdown, r);
    return set_field(r, device_keys, &r->device, key, value);
}

/* Names stand in lines of the log and in tables. */
static MotStatus check_name(const Reader *r, const MotYaml *node, const char *name)
{
    enum { LONGEST = 200 };
    if (!name || !name[0])
        return mot_fail(r->ctx, r->error, mot_yaml_loc(r->ctx, r->file, node),
                        "a device has no name");
    if (strlen(name) > LONGEST)
        return mot_fail(r->ctx, r->error, mot_yaml_loc(r->ctx, r->file, node),
                        "a device's name has %zu bytes; the most is %d", strlen(name), LONGEST);
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return fail(r, node, "the name %s has control characters", name);
    return MOT_OK;
}

/* The device beside those before it. */
static MotStatus check_device(const Reader *r, const MotYaml *node, const MotCluster *cluster,
                              uint32_t i)
{
    const MotDevice *d = &cluster->devices.data[i];
    MOT_TRY(check_name(r, node, d->name));
    if (find_device(cluster, d->name) < i)
        return fail(r, node, "two devices are named %s", d->name);
    if (strcmp(d->backend, "cpu") != 0 && strcmp(d->backend, "ref") != 0)
        return fail(r, node, "there is no backend %s: use cpu or ref", d->backend);
    return MOT_OK;
}

static MotStatus read_device(Reader *r, const MotYaml *node)
{
    if (!mot_yaml_is_map(node))
        return fail(r, node ? node : r->devices, "a device is %s, not {name: a, ...}",
                    mot_yaml_string(r->ctx, node));
    r->device = (DeviceEntry){.device = {.backend = "cpu", .slow = 1}, .threads = 1};
    MOT_TRY(mot_yaml_each(r->ctx, node, visit_device_key, r));
    MotDevice *d = &r->device.device;
    if (floor(r->device.threads) != r->device.threads)
        return mot_fail(r->ctx, MOT_ERR_USAGE, mot_yaml_loc(r->ctx, r->file, node),
                        "threads: %g is not a whole number", r->device.threads);
    d->threads = (uint32_t)r->device.threads;
    mot_vec_push(&r->ctx->arena, &r->cluster->devices, *d);
    return check_device(r, node, r->cluster, r->cluster->devices.n - 1);
}

static MotStatus visit_link_key(void *self, const MotYaml *key, const MotYaml *value)
{
    Reader *r = self;
    const char *name = mot_yaml_string(r->ctx, key);
    if (!name || strcmp(name, "between") != 0)
        return set_field(r, link_keys, &r->link, key, value);
    r->between = value;
    return MOT_OK;
}

static MotStatus set_ends(Reader *r, const MotYaml *node)
{
    const char *all = mot_yaml_string(r->ctx, r->between);
    if (all && strcmp(all, "all") == 0) {
        r->link.a = r->link.b = MOT_ALL_DEVICES;
        return MOT_OK;
    }
    if (mot_yaml_length(r->between) != 2)
        return mot_fail(r->ctx, MOT_ERR_USAGE, mot_yaml_loc(r->ctx, r->file, node),
                        "a link needs `between: all` or `between: [a, b]`");
    uint32_t *ends[] = {&r->link.a, &r->link.b};
    for (uint32_t i = 0; i < 2; i++) {
        const char *name = mot_yaml_string(r->ctx, mot_yaml_at(r->between, i));
        *ends[i] = find_device(r->cluster, name);
        if (*ends[i] == r->cluster->devices.n)
            return fail(r, node, "a link names the device %s, which is not listed", name);
    }
    if (r->link.a == r->link.b)
        return mot_fail(r->ctx, MOT_ERR_USAGE, mot_yaml_loc(r->ctx, r->file, node),
                        "a link joins a device to itself");
    return MOT_OK;
}

/* The link beside those before it. */
static MotStatus check_link(const Reader *r, const MotYaml *node, const MotCluster *cluster,
                            uint32_t i)
{
    const MotLink *link = &cluster->links.data[i];
    for (const MotLink *other = cluster->links.data; other < link; other++)
        if ((other->a == link->a && other->b == link->b) ||
            (other->a == link->b && other->b == link->a))
            return mot_fail(r->ctx, r->error, mot_yaml_loc(r->ctx, r->file, node),
                            "two links join the same devices");
    return MOT_OK;
}

static MotStatus read_link(Reader *r, const MotYaml *node)
{
    if (!mot_yaml_is_map(node))
        return fail(r, node ? node : r->links, "a link is %s, not {between: all, ...}",
                    mot_yaml_string(r->ctx, node));
    const MotLink native = mot_cluster_link(&(MotCluster){0}, 0, 0);
    r->link = native;
    r->between = NULL;
    MOT_TRY(mot_yaml_each(r->ctx, node, visit_link_key, r));
    MOT_TRY(set_ends(r, node));
    r->link.is_emulated = r->link.latency > native.latency || r->link.bandwidth < native.bandwidth;
    mot_vec_push(&r->ctx->arena, &r->cluster->links, r->link);
    return check_link(r, node, r->cluster, r->cluster->links.n - 1);
}

static MotStatus set_clock(Reader *r, const MotYaml *value)
{
    const char *text = mot_yaml_string(r->ctx, value);
    r->cluster->is_modelled = text && strcmp(text, "modelled") == 0;
    if (r->cluster->is_modelled || (text && strcmp(text, "measured") == 0))
        return MOT_OK;
    return fail(r, value, "clock: %s is neither measured nor modelled", text);
}

static MotStatus visit_section(void *self, const MotYaml *key, const MotYaml *value)
{
    Reader *r = self;
    const char *name = mot_yaml_string(r->ctx, key);
    if (name && strcmp(name, "clock") == 0)
        return set_clock(r, value);
    const MotYaml **section = name && strcmp(name, "devices") == 0 ? &r->devices
                              : name && strcmp(name, "links") == 0 ? &r->links
                                                                   : NULL;
    if (!section)
        return fail(r, key, "unknown key %s; the keys are devices, links and clock", name);
    if (!mot_yaml_is_list(value))
        return mot_fail(r->ctx, MOT_ERR_USAGE, mot_yaml_loc(r->ctx, r->file, key),
                        "%s is not a list", name);
    *section = value;
    return MOT_OK;
}

static MotStatus check_length(const Reader *r, const MotYaml *list, uint32_t most, const char *what)
{
    if (mot_yaml_length(list) <= most)
        return MOT_OK;
    return mot_fail(r->ctx, MOT_ERR_LIMIT, (MotLoc){r->file, NULL}, "%u %s; the most is %u",
                    mot_yaml_length(list), what, most);
}

MotStatus mot_cluster_parse(MotCtx *ctx, const char *file, const char *text, size_t n,
                            MotCluster **out_cluster)
{
    if (n > MOT_CLUSTER_MAX_TEXT)
        return mot_fail(ctx, MOT_ERR_LIMIT, (MotLoc){file, NULL}, "a cluster file has at most %s",
                        mot_bytes_text(&ctx->arena, MOT_CLUSTER_MAX_TEXT));
    const MotYaml *root;
    MOT_TRY(mot_yaml_parse(ctx, MOT_ERR_USAGE, file, text, n, &root));
    Reader r = {.ctx = ctx,
                .error = MOT_ERR_USAGE,
                .file = file,
                .cluster = mot_arena_new(&ctx->arena, MotCluster)};
    if (root && !mot_yaml_is_map(root))
        return mot_fail(ctx, MOT_ERR_USAGE, mot_yaml_loc(ctx, file, root),
                        "a cluster file has the keys devices, links and clock");
    MOT_TRY(mot_yaml_each(ctx, root, visit_section, &r));
    MOT_TRY(check_length(&r, r.devices, MOT_MAX_DEVICES, "devices"));
    MOT_TRY(check_length(&r, r.links, MOT_CLUSTER_MAX_LINKS, "links"));
    if (mot_yaml_length(r.devices) == 0)
        return mot_fail(ctx, MOT_ERR_USAGE, (MotLoc){file, NULL},
                        "a cluster needs at least one device");
    for (uint32_t i = 0; i < mot_yaml_length(r.devices); i++)
        MOT_TRY(read_device(&r, mot_yaml_at(r.devices, i)));
    for (uint32_t i = 0; i < mot_yaml_length(r.links); i++)
        MOT_TRY(read_link(&r, mot_yaml_at(r.links, i)));
    *out_cluster = r.cluster;
    return MOT_OK;
}

MotStatus mot_cluster_read(MotCtx *ctx, const char *path, MotCluster **out_cluster)
{
    char *text = mot_arena_alloc(&ctx->arena, MOT_CLUSTER_MAX_TEXT + 1);
    FILE *file = mot_fault(ctx->faults, MOT_FAULT_open) ? NULL : fopen(path, "rb");
    if (!file)
        return mot_fail(ctx, MOT_ERR_IO, (MotLoc){path, NULL}, "%s", strerror(errno));
    size_t n = fread(text, 1, MOT_CLUSTER_MAX_TEXT + 1, file);
    bool has_failed = ferror(file) != 0;
    fclose(file);
    if (has_failed)
        return mot_fail(ctx, MOT_ERR_IO, (MotLoc){path, NULL}, "the file can't be read");
    return mot_cluster_parse(ctx, path, text, n, out_cluster);
}

/* ---- What was not read here ---- */

static bool is_empty(const Key *k, const void *entry)
{
    return k->units && *(const double *)(const void *)((const char *)entry + k->offset) == 0;
}

static MotStatus check_ranges(const Reader *r, const Key *keys, const void *entry)
{
    for (const Key *k = keys; k->key; k++) {
        const void *field = (const char *)entry + k->offset;
        if (k->units && !is_empty(k, entry) && !is_in_range(k, *(const double *)field))
            return mot_fail(r->ctx, r->error, (MotLoc){r->file, NULL}, "%s: %g is out of range",
                            k->key, *(const double *)field);
    }
    return MOT_OK;
}

MotStatus mot_cluster_check(MotCtx *ctx, MotStatus error, const char *file,
                            const MotCluster *cluster)
{
    const Reader r = {.ctx = ctx, .error = error, .file = file};
    for (uint32_t i = 0; i < cluster->devices.n; i++) {
        const MotDevice *d = &cluster->devices.data[i];
        MOT_TRY(check_device(&r, NULL, cluster, i));
        MOT_TRY(check_ranges(&r, device_keys, &(DeviceEntry){*d, d->threads}));
        for (uint32_t k = 0; k < d->slowdowns.n; k++)
            MOT_TRY(check_ranges(&r, device_keys,
                                 &(DeviceEntry){.device.slow = d->slowdowns.data[k].slow}));
    }
    for (uint32_t i = 0; i < cluster->links.n; i++) {
        MOT_TRY(check_link(&r, NULL, cluster, i));
        MOT_TRY(check_ranges(&r, link_keys, &cluster->links.data[i]));
    }
    return MOT_OK;
}

/* ---- Printing ---- */

/* The quantity with the fewest digits, in the largest such unit; it parses back within rounding. */
static const char *quantity_text(MotArena *arena, double value, const Unit *units)
{
    const char *best = NULL;
    size_t fewest = SIZE_MAX;
    double largest = 0;
    for (const Unit *u = units; u->name; u++)
        for (int digits = 6; digits <= 17; digits += 11) {
            const char *number = mot_arena_printf(arena, "%.*g", digits, value / u->factor);
            const char *text = mot_arena_printf(arena, "%s%s", number, u->name);
            double back;
            size_t n = strlen(number);
            if ((n < fewest || (n == fewest && u->factor > largest)) && !strchr(number, 'e') &&
                parse_quantity(text, units, &back) && fabs(back - value) <= 1e-12 * value) {
                best = text;
                fewest = n;
                largest = u->factor;
            }
        }
    return best ? best : mot_arena_printf(arena, "%.17g%s", value / units->factor, units->name);
}

/* `2`, or with a schedule `{0: 1, 50: 2}` */
static void print_slow(MotText *text, const DeviceEntry *entry)
{
    const MotDevice *d = &entry->device;
    const char *at_first = quantity_text(text->arena, d->slow, none);
    mot_text_printf(text, d->slowdowns.n ? "{0: %s" : "%s", at_first);
    for (uint32_t i = 0; i < d->slowdowns.n; i++)
        mot_text_printf(text, ", %lld: %s", (long long)d->slowdowns.data[i].step,
                        quantity_text(text->arena, d->slowdowns.data[i].slow, none));
    mot_text_puts(text, d->slowdowns.n ? "}" : "");
}

/*
 * `key: value, key: value}` for the keys that hold something, behind what stands in the braces
 * already.
 */
static void print_entry(MotText *text, const Key *keys, const void *entry)
{
    for (const Key *k = keys; k->key; k++) {
        const void *field = (const char *)entry + k->offset;
        if (is_empty(k, entry))
            continue;
        mot_text_printf(text, "%s%s: ", text->data[text->n - 1] == '{' ? "" : ", ", k->key);
        if (keys == device_keys && k->offset == SLOW)
            print_slow(text, entry);
        else if (k->units)
            mot_text_puts(text, quantity_text(text->arena, *(const double *)field, k->units));
        else
            mot_json_quote(text, *(const char *const *)field);
    }
    mot_text_puts(text, "}\n");
}

void mot_cluster_print(const MotCluster *cluster, MotText *text)
{
    mot_text_puts(text, cluster->is_modelled ? "clock: modelled\ndevices:\n" : "devices:\n");
    for (uint32_t i = 0; i < cluster->devices.n; i++) {
        const MotDevice *device = &cluster->devices.data[i];
        mot_text_puts(text, "  - {");
        print_entry(text, device_keys, &(DeviceEntry){*device, device->threads});
    }
    mot_text_puts(text, cluster->links.n ? "links:\n" : "");
    for (uint32_t i = 0; i < cluster->links.n; i++) {
        const MotLink *link = &cluster->links.data[i];
        mot_text_puts(text, "  - {between: ");
        if (link->a == MOT_ALL_DEVICES) {
            mot_text_puts(text, "all");
        } else {
            mot_text_puts(text, "[");
            mot_json_quote(text, cluster->devices.data[link->a].name);
            mot_text_puts(text, ", ");
            mot_json_quote(text, cluster->devices.data[link->b].name);
            mot_text_puts(text, "]");
        }
        print_entry(text, link_keys, link);
    }
}

/* The members of the keys that hold something. */
static void put_entry(MotJsonWriter *w, const Key *keys, const void *entry)
{
    for (const Key *k = keys; k->key; k++) {
        const void *field = (const char *)entry + k->offset;
        if (is_empty(k, entry))
            continue;
        if (k->units)
            mot_json_put_number(w, k->key, *(const double *)field / (k->units == giga ? 1e9 : 1));
        else
            mot_json_put_string(w, k->key, *(const char *const *)field);
    }
}

static void put_slowdowns(MotJsonWriter *w, const MotDevice *device)
{
    if (device->slowdowns.n == 0)
        return;
    mot_json_open(w, "slowdowns", '[');
    for (uint32_t i = 0; i < device->slowdowns.n; i++) {
        mot_json_open(w, NULL, '{');
        mot_json_put_int(w, "step", device->slowdowns.data[i].step);
        mot_json_put_number(w, "slow", device->slowdowns.data[i].slow);
        mot_json_close(w, '}');
    }
    mot_json_close(w, ']');
}

void mot_cluster_put_json(const MotCluster *cluster, MotJsonWriter *w)
{
    mot_json_put_string(w, "clock", cluster->is_modelled ? "modelled" : "measured");
    mot_json_open(w, "devices", '[');
    for (uint32_t i = 0; i < cluster->devices.n; i++) {
        const MotDevice *device = &cluster->devices.data[i];
        mot_json_open(w, NULL, '{');
        put_entry(w, device_keys, &(DeviceEntry){*device, device->threads});
        put_slowdowns(w, device);
        mot_json_close(w, '}');
    }
    mot_json_close(w, ']');
    mot_json_open(w, "links", '[');
    for (uint32_t i = 0; i < cluster->links.n; i++) {
        const MotLink *link = &cluster->links.data[i];
        mot_json_open(w, NULL, '{');
        if (link->a == MOT_ALL_DEVICES) {
            mot_json_put_string(w, "between", "all");
        } else {
            mot_json_open(w, "between", '[');
            mot_json_put_string(w, NULL, cluster->devices.data[link->a].name);
            mot_json_put_string(w, NULL, cluster->devices.data[link->b].name);
            mot_json_close(w, ']');
        }
        put_entry(w, link_keys, link);
        mot_json_close(w, '}');
    }
    mot_json_close(w, ']');
}
