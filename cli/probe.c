/*
 * motley probe: measures the devices and links of a cluster, and writes the cluster file with what
 * it found.
 */
#include "cli/answer.h"
#include "cli/verbs.h"
#include "frontend/cluster_file.h"
#include "job/job.h"
#include "job/load.h"
#include "job/measure.h"
#include "support/writer.h"

#include <stdio.h>
#include <unistd.h>

static const MotOption probe_options[] = {
    {"-o", "FILE", "write the cluster with its rates there; without: to the standard output"},
    {NULL, NULL, NULL}};

static void print_json(MotCtx *ctx, const MotCluster *cluster)
{
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_cluster_put_json(cluster, &w);
    mot_json_close(&w, '}');
    mot_answer_print(&w);
}

/* What others take from the cores is missing in the rates. */
static void warn_of_others(MotCtx *ctx, double cores)
{
    static const double NOISE = 0.1; /* of all cores */
    double all = (double)sysconf(_SC_NPROCESSORS_ONLN);
    if (cores > NOISE * all)
        mot_warn(
            ctx, MOT_NOWHERE,
            "other programs kept %.1f of the %.0f cores busy meanwhile: the rates are those of a "
            "machine that is shared with them",
            cores, all);
}

static MotStatus run_probe(MotCtx *ctx, const MotArgs *args)
{
    MotJob job = {.args = args};
    MotText text;
    const char *path = mot_args_get(args, "-o", NULL);
    MOT_TRY(mot_job_cluster(ctx, &job));
    if (job.cluster->is_modelled)
        return mot_fail(
            ctx, MOT_ERR_USAGE, MOT_NOWHERE,
            "there is nothing to measure: with clock: modelled the devices are what the "
            "cluster file says");
    MotLoad before = mot_load_now();
    MOT_TRY(mot_measure_devices(ctx, args, job.cluster));
    MOT_TRY(mot_measure_links(ctx, args, job.cluster));
    MotLoad after = mot_load_now();
    warn_of_others(ctx, mot_load_others(&before, &after));
    mot_text_init(&text, &ctx->arena);
    mot_cluster_print(job.cluster, &text);
    if (path)
        MOT_TRY(mot_file_write(ctx, path, mot_text_get(&text), text.n));
    if (mot_args_has(args, "--json"))
        print_json(ctx, job.cluster);
    else if (!path)
        fputs(mot_text_get(&text), stdout);
    return MOT_OK;
}

const MotVerb mot_verb_probe = {
    .name = "probe",
    .operands = "",
    .summary = "measure the devices and links of a cluster",
    .options = (const MotOption *const[]){probe_options, mot_device_options, NULL},
    .run = run_probe};
