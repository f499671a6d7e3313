/*
 * frontend/cluster_file: quantities, defaults, and one text that is refused beside each that is
 * accepted.
 */
#include "frontend/cluster_file.h"
#include "tests/test_ctx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static MotStatus parse(MotCtx *ctx, const char *text, MotCluster **out)
{
    mot_error_clear(ctx);
    return mot_cluster_parse(ctx, "c.yaml", text, strlen(text), out);
}

static void reads_what_the_contract_shows(void **state)
{
    MotCluster *c;
    assert_int_equal(
        parse(*state,
              "devices:\n"
              "  - {name: a, backend: cpu, threads: 1, slow: 1, memory: 2GiB}   # comment\n"
              "  - {name: b, backend: ref, threads: 3, slow: 2.5, memory: 512 MiB, gflops: 50, "
              "bandwidth: 10GB/s, functions: 1.5G, launch: 2us, gflops_beside: 40, "
              "functions_beside: 900M, bandwidth_beside: 5GB, launch_beside: 3us}\n"
              "links:\n"
              "  - {between: all, latency: 10us, bandwidth: 10Gbit}\n"
              "  - {between: [b, a], latency: 1us, bandwidth: 80GB, measured_latency: 30us, "
              "measured_bandwidth: 3GB}\n",
              &c),
        MOT_OK);
    assert_int_equal(c->devices.n, 2);
    const MotDevice *a = &c->devices.data[0], *b = &c->devices.data[1];
    assert_string_equal(a->name, "a");
    assert_true(a->memory == 0x1p31 && a->slow == 1 && a->alone.flops == 0 && a->threads == 1);
    assert_string_equal(b->backend, "ref");
    assert_true(b->memory == 0x1p29 && b->slow == 2.5 && b->alone.flops == 50e9 &&
                b->alone.bandwidth == 10e9 && b->threads == 3);
    assert_true(b->alone.functions == 1.5e9 && fabs(b->alone.launch - 2e-6) < 1e-12);
    assert_true(b->beside.flops == 40e9 && b->beside.functions == 9e8 &&
                b->beside.bandwidth == 5e9 && fabs(b->beside.launch - 3e-6) < 1e-12);
    assert_int_equal(c->links.n, 2);
    assert_true(c->links.data[0].a == MOT_ALL_DEVICES && c->links.data[0].is_emulated);
    assert_true(fabs(c->links.data[0].latency - 10e-6) < 1e-12);
    assert_true(c->links.data[0].bandwidth == 1.25e9);
    MotLink own = mot_cluster_link(c, 0, 1);
    assert_true(own.a == 1 && own.b == 0 && !own.is_emulated && own.bandwidth == 80e9);
    assert_true(fabs(own.measured_latency - 30e-6) < 1e-12 && own.measured_bandwidth == 3e9);
}

/* Names that YAML would read otherwise, quantities in other units than they were given in. */
static void what_is_printed_parses_back(void **state)
{
    MotCtx *ctx = *state;
    MotCluster *first, *second;
    MotText text[2];
    assert_int_equal(
        parse(
            ctx,
            "devices:\n"
            "  - {name: \"a: [b]\", threads: 2, memory: 1.5GB, slow: 1.75, gflops: 163.4}\n"
            "  - {name: \"\\\"\", backend: ref, memory: 2GiB, functions: 2020M, bandwidth: 12345kB,"
            " launch: 900ns, launch_beside: 0.001ms}\n"
            "links:\n"
            "  - {between: all, latency: 3us, bandwidth: 10Gbit}\n"
            "  - {between: [\"\\\"\", \"a: [b]\"], measured_latency: 37us, measured_bandwidth: "
            "0.3GB}\n",
            &first),
        MOT_OK);
    mot_text_init(&text[0], &ctx->arena);
    mot_text_init(&text[1], &ctx->arena);
    mot_cluster_print(first, &text[0]);
    assert_int_equal(parse(ctx, mot_text_get(&text[0]), &second), MOT_OK);
    mot_cluster_print(second, &text[1]);
    assert_string_equal(mot_text_get(&text[0]), mot_text_get(&text[1]));
    static const char *const parts[] = {"memory: 1.5GB", "memory: 2GiB", "gflops: 163.4",
                                        "latency: 3us",  "10Gbit",       "functions: 2.02G",
                                        "launch: 0.9us", "1us",          "measured_latency: 37us"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_non_null(strstr(mot_text_get(&text[0]), parts[i]));
    assert_true(second->devices.data[0].memory == 1.5e9 && second->devices.data[0].threads == 2);
    assert_true(fabs(second->links.data[1].measured_latency - 37e-6) < 1e-15);
}

/* A schedule of `slow`, printed and read again; --slow changes it afterwards. */
static void slow_may_be_a_schedule(void **state)
{
    MotCtx *ctx = *state;
    MotCluster *first, *second;
    MotText text;
    assert_int_equal(
        parse(ctx, "devices: [{name: a, slow: {0: 1.5, 50: 2, 150: 1}}, {name: b, slow: {7: 4}}]",
              &first),
        MOT_OK);
    mot_text_init(&text, &ctx->arena);
    mot_cluster_print(first, &text);
    assert_non_null(strstr(mot_text_get(&text), "slow: {0: 1.5, 50: 2, 150: 1}"));
    assert_int_equal(parse(ctx, mot_text_get(&text), &second), MOT_OK);
    MotDevice *a = &second->devices.data[0], *b = &second->devices.data[1];
    assert_true(mot_device_slows_alike(a, &first->devices.data[0]));
    assert_false(mot_device_slows_alike(a, b));
    assert_true(mot_device_slow_at(a, 0) == 1.5 && mot_device_slow_at(a, 49) == 1.5);
    assert_true(mot_device_slow_at(a, 50) == 2 && mot_device_slow_at(a, 149) == 2);
    assert_true(mot_device_slow_at(a, 150) == 1 && mot_device_slow_at(a, 9999) == 1);
    assert_true(mot_device_slow_at(b, 6) == 1 && mot_device_slow_at(b, 7) == 4);
    mot_device_slow_down(ctx, b, 3, 8);
    mot_device_slow_down(ctx, b, 7, 2);
    mot_device_slow_down(ctx, b, 0, 3);
    assert_true(mot_device_slow_at(b, 2) == 3 && mot_device_slow_at(b, 3) == 8 &&
                mot_device_slow_at(b, 7) == 2);
}

static void json_has_plain_numbers(void **state)
{
    MotCtx *ctx = *state;
    MotCluster *c;
    MotJsonWriter w;
    assert_int_equal(parse(ctx,
                           "devices: [{name: \"\\\"\", gflops: 50, launch: 2us}, {name: b}]\n"
                           "links: [{between: [\"\\\"\", b], latency: 1ms}]",
                           &c),
                     MOT_OK);
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_cluster_put_json(c, &w);
    mot_json_close(&w, '}');
    const MotJson *root;
    assert_int_equal(mot_json_parse(ctx, MOT_ERR_DATA, "t", w.text.data, w.text.n, &root), MOT_OK);
    const MotJson *device = mot_json_at(mot_json_get(root, "devices"), 0);
    assert_string_equal(mot_json_string(mot_json_get(device, "name"), ""), "\"");
    assert_true(mot_json_number(mot_json_get(device, "gflops"), 0) == 50);
    assert_true(mot_json_number(mot_json_get(device, "launch"), 0) == 2e-6);
    const MotJson *link = mot_json_at(mot_json_get(root, "links"), 0);
    assert_true(mot_json_number(mot_json_get(link, "latency"), 0) == 1e-3);
    assert_int_equal(mot_json_length(mot_json_get(link, "between")), 2);
}

static void leaves_out_what_is_not_written(void **state)
{
    MotCluster *c;
    assert_int_equal(parse(*state, "devices: [{name: x}]", &c), MOT_OK);
    const MotDevice *x = &c->devices.data[0];
    assert_string_equal(x->backend, "cpu");
    assert_true(x->threads == 1 && x->slow == 1 && x->memory == 0 && x->alone.flops == 0 &&
                x->alone.bandwidth == 0);
    assert_int_equal(c->links.n, 0);
}

/* `clock` is the cluster's, and is printed where it is not the usual one. */
static void clock_may_be_modelled(void **state)
{
    MotCtx *ctx = *state;
    static const char *const texts[] = {"devices: [{name: x}]\nclock: modelled",
                                        "devices: [{name: x}]\nclock: measured"};
    for (int i = 0; i < 2; i++) {
        MotCluster *c;
        MotText text;
        assert_int_equal(parse(ctx, texts[i], &c), MOT_OK);
        assert_int_equal(c->is_modelled, i == 0);
        mot_text_init(&text, &ctx->arena);
        mot_cluster_print(c, &text);
        assert_int_equal(parse(ctx, mot_text_get(&text), &c), MOT_OK);
        assert_int_equal(c->is_modelled, i == 0);
    }
}

#define DEVICES "devices: [{name: a}, {name: b}]\n"

static const struct {
    const char *good, *bad, *cause;
} refused[] = {
    {"devices: [{name: a}]", "", "at least one device"},
    {"devices: [{name: a}]", "devices: []", "at least one device"},
    {"devices: [{name: a}]", "[a, b]", "keys devices, links and clock"},
    {"devices: [{name: a}]", "devices: [{name: a}]\ncolour: red", "line 2: unknown key \"colour\""},
    {"devices: [{name: a}]", "devices: [{nam: a}]", "line 1: unknown key \"nam\""},
    {"devices: [{name: a}]", "devices: [{nam: a}]", "the keys are name, backend, threads, slow"},
    {DEVICES "links: [{between: all}]", DEVICES "links: [{betwen: all}]",
     "the keys are between, latency, bandwidth"},
    {"devices: [{name: a}]", "devices: [{threads: 2}]", "no name"},
    {"devices: [{name: a}]", "devices: [a]", "a device is \"a\""},
    {"devices: [{name: a}]", "devices: {name: a}", "devices is not a list"},
    {"devices: [{name: a}]", "devices:\n  - {name: a", "c.yaml: line"},
    {"devices: [{name: a}]", "devices: [{name: a, name: b}]", "duplicate key"},
    {"devices: [{name: a}]", "devices: [&x {name: a}]", "anchors"},
    {"devices: [{name: a}]", "devices: [{name: a}]\n---\nlinks: []\n",
     "more than one YAML document"},
    {"devices: [{name: a}]", "devices: [*x]", "aliases"},
    {"devices: [{name: a}]", "devices: [{name: }]", "name has no value"},
    {"devices: [{name: a}]", "devices: [{name: \"a\\nb\"}]", "has control characters"},
    {DEVICES, "devices: [{name: a}, {name: a}]", "two devices are named \"a\""},
    {"devices: [{name: a, backend: cpu}]", "devices: [{name: a, backend: tpu}]",
     "no backend \"tpu\""},
    {"devices: [{name: a, threads: 2}]", "devices: [{name: a, threads: 0}]", "threads: \"0\""},
    {"devices: [{name: a, threads: 2}]", "devices: [{name: a, threads: 1.5}]", "whole number"},
    {"devices: [{name: a, slow: 1.5}]", "devices: [{name: a, slow: 0.5}]",
     "slow: \"0.5\" is not from 1 to 1e+06"},
    {"devices: [{name: a, slow: 1.5}]", "devices: [{name: a, slow: nan}]", "slow: \"nan\""},
    {"devices: [{name: a, slow: 16}]", "devices: [{name: a, slow: 0x10}]", "slow: \"0x10\""},
    {"devices: [{name: a, slow: {0: 1, 50: 2}}]", "devices: [{name: a, slow: {0: 1, 50: 0.5}}]",
     "slow: \"0.5\""},
    {"devices: [{name: a, slow: {50: 2, 60: 3}}]", "devices: [{name: a, slow: {60: 2, 50: 3}}]",
     "\"50\" is no step after"},
    {"devices: [{name: a, slow: {5: 2}}]", "devices: [{name: a, slow: {5.5: 2}}]",
     "\"5.5\" is no step"},
    {"devices: [{name: a, slow: {5: 2}}]", "devices: [{name: a, slow: {5: {1: 2}}}]", "slow"},
    {"devices: [{name: a, memory: 1GiB}]", "devices: [{name: a, memory: 1Gib}]",
     "memory: \"1Gib\" is not like 2GiB"},
    {"devices: [{name: a, memory: 1GiB}]", "devices: [{name: a, memory: -1GiB}]",
     "memory: \"-1GiB\""},
    {"devices: [{name: a, memory: 1GiB}]", "devices: [{name: a, memory: 1e99GiB}]",
     "memory: \"1e99GiB\" is not from 1MiB to 1024TiB"},
    {"devices: [{name: a, memory: 1024KiB}]", "devices: [{name: a, memory: 700KiB}]",
     "memory: \"700KiB\" is not from 1MiB to 1024TiB"},
    {"devices: [{name: a, gflops: 1}]", "devices: [{name: a, gflops: 1e10}]",
     "gflops: \"1e10\" is not from 0.0001 to 1e+09"},
    {"devices: [{name: a, launch: 1us}]", "devices: [{name: a, launch: 2s}]",
     "launch: \"2s\" is not from 1ns to 1s"},
    {DEVICES "clock: modelled", DEVICES "clock: fast", "\"fast\" is neither measured nor"},
    {DEVICES "clock: measured", DEVICES "clock: [modelled]", "neither measured nor"},
    {DEVICES "links: [{between: all}]", DEVICES "links: [{latency: 1us}]", "line 2: a link needs"},
    {DEVICES "links: [{between: all}]", DEVICES "links: [all]", "a link is \"all\""},
    {DEVICES "links: [{between: [a, b]}]", DEVICES "links: [{between: [a, c]}]",
     "the device \"c\""},
    {DEVICES "links: [{between: [a, b]}]", DEVICES "links: [{between: [a, a]}]", "itself"},
    {DEVICES "links: [{between: [a, b]}]", DEVICES "links: [{between: [a, b]}, {between: [b, a]}]",
     "two links"},
    {DEVICES "links: [{between: all, latency: 1us}]",
     DEVICES "links: [{between: all, latency: 1Gbit}]", "latency"},
    {DEVICES "links: [{between: all, bandwidth: 1Gbit}]",
     DEVICES "links: [{between: all, bandwidth: 0Gbit}]",
     "bandwidth: \"0Gbit\" is not from 1kB to 1000TB"},
    {DEVICES "links: [{between: all, latency: 0s}]",
     DEVICES "links: [{between: all, latency: 11s}]", "latency: \"11s\" is not from 0s to 10s"},
};

static void refuses_with_file_and_line(void **state)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        MotCtx *ctx = *state;
        MotCluster *c = NULL;
        if (parse(ctx, refused[i].good, &c) != MOT_OK)
            fail_msg("refused: %s: %s", refused[i].good, mot_text_get(&ctx->error));
        if (parse(ctx, refused[i].bad, &c) != MOT_ERR_USAGE)
            fail_msg("status %d: %s", ctx->status, refused[i].bad);
        if (!strstr(mot_text_get(&ctx->error), refused[i].cause))
            fail_msg("%s: %s", refused[i].bad, mot_text_get(&ctx->error));
    }
}

static void holds_its_limits(void **state)
{
    MotCtx *ctx = *state;
    for (int n = MOT_MAX_DEVICES; n <= MOT_MAX_DEVICES + 1; n++) {
        MotText text;
        MotCluster *c;
        mot_text_init(&text, &ctx->arena);
        mot_text_puts(&text, "devices:\n");
        for (int i = 0; i < n; i++)
            mot_text_printf(&text, "  - {name: d%d}\n", i);
        assert_int_equal(parse(ctx, text.data, &c), n == MOT_MAX_DEVICES ? MOT_OK : MOT_ERR_LIMIT);
    }
}

static void reads_the_committed_files(void **state)
{
    MotCtx *ctx = *state;
    static const struct {
        const char *path;
        uint32_t n_devices;
    } files[] = {{"models/clusters/four.yaml", 4},
                 {"models/clusters/four-slow-links.yaml", 4},
                 {"models/clusters/two-equal.yaml", 2}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        MotCluster *c;
        assert_int_equal(mot_cluster_read(ctx, files[i].path, &c), MOT_OK);
        assert_int_equal(c->devices.n, files[i].n_devices);
    }
    MotCluster *c;
    assert_int_equal(mot_cluster_read(ctx, "models/clusters/none.yaml", &c), MOT_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_what_the_contract_shows, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(what_is_printed_parses_back, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(slow_may_be_a_schedule, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(json_has_plain_numbers, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(leaves_out_what_is_not_written, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(clock_may_be_modelled, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(refuses_with_file_and_line, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(holds_its_limits, make_ctx, drop_ctx),
        cmocka_unit_test_setup_teardown(reads_the_committed_files, make_ctx, drop_ctx),
    };
    return cmocka_run_group_tests_name("cluster_file", tests, NULL, NULL);
}
