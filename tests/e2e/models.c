/*
 * Every committed export against PyTorch: outputs, every gradient by initializer, and 20 losses of
 * every optimizer, on one device and on several with even, uneven and zero shares and a resize in
 * between. The command is run as a user would run it ($MOTLEY).
 *
 *     models [--backend NAME] [--all]
 *
 * Without --all: one optimizer and one split an export, in turn.
 *
 * Tolerances (r: PyTorch float64, t: PyTorch float32, a: ours): ||a - r|| <= 10 max(||t - r||,
 * 2^-23 ||r||, 2^-23 ||all gradients|| sqrt(share of elements)); curves: |difference| <= 1e-4 of
 * the first loss.
 */
#include "runtime/npy.h"
#include "support/file.h"
#include "support/json.h"

#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    MotCtx ctx;
    const char *motley, *backend, *work;
    bool is_quick;
    uint32_t n_checks, n_failures;
} Test;

typedef struct {
    Test *t;
    const char *name, *arch; /* export, architecture */
    const MotJson *loss, *map;
    const char *model, *inputs, *dims, *output, *ties;
} Export;

static void check(Test *t, bool holds, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void check(Test *t, bool holds, const char *format, ...)
{
    t->n_checks++;
    if (holds)
        return;
    t->n_failures++;
    va_list args;
    va_start(args, format);
    printf("FAILED: ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

static const MotJson *read_json(Test *t, const char *path)
{
    const MotFileMap *map;
    const MotJson *root;
    if (mot_file_map(&t->ctx, path, &map) != MOT_OK ||
        mot_json_parse(&t->ctx, MOT_ERR_DATA, path, (const char *)map->data, map->n, &root) !=
            MOT_OK) {
        printf("%s\n", mot_text_get(&t->ctx.error));
        exit(1);
    }
    return root;
}

/* Runs a command; its standard output, or NULL when it fails. */
static const char *run(Test *t, const char *command)
{
    MotText out;
    char piece[4096];
    mot_text_init(&out, &t->ctx.arena);
    FILE *pipe = popen(command, "r");
    for (size_t n; pipe && (n = fread(piece, 1, sizeof piece, pipe)) > 0;)
        mot_text_add(&out, piece, n);
    int status = pipe ? pclose(pipe) : -1;
    check(t, status == 0, "exit status %d of %s", status, command);
    return status == 0 ? mot_text_get(&out) : NULL;
}

static bool read_tensor(Test *t, const char *path, MotTensor *out)
{
    bool ok = mot_npy_read(&t->ctx, path, out) == MOT_OK;
    check(t, ok, "%s", mot_text_get(&t->ctx.error));
    mot_error_clear(&t->ctx);
    return ok;
}

/* Element i of a reference tensor, as the file's layout has it. */
static double reference_at(const MotTensor *tensor, const MotType *as, bool is_transposed,
                           int64_t i)
{
    if (!is_transposed)
        return mot_tensor_get(tensor, i);
    int64_t columns = as->dims[1];
    return mot_tensor_get(tensor, i % columns * as->dims[0] + i / columns);
}

static void compare(Export *e, const char *what, const MotTensor *a, const char *stem,
                    bool is_transposed, double norm_part)
{
    Test *t = e->t;
    MotTensor r, f;
    if (!read_tensor(t, mot_arena_printf(&t->ctx.arena, "%s.f64.npy", stem), &r) ||
        !read_tensor(t, mot_arena_printf(&t->ctx.arena, "%s.f32.npy", stem), &f))
        return;
    int64_t n = mot_type_elements(&a->type);
    check(t, n == mot_type_elements(&r.type), "%s: %s has %lld elements", e->name, what,
          (long long)n);
    if (n != mot_type_elements(&r.type))
        return;
    double error = 0, torch_error = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double want = reference_at(&r, &a->type, is_transposed, i);
        error += pow(mot_tensor_get(a, i) - want, 2);
        torch_error += pow(reference_at(&f, &a->type, is_transposed, i) - want, 2);
        norm += want * want;
    }
    double bound = 10 * fmax(sqrt(torch_error), 0x1p-23 * fmax(sqrt(norm), norm_part));
    check(t, sqrt(error) <= bound, "%s: %s: error %.3g, bound %.3g", e->name, what, sqrt(error),
          bound);
}

static const char *common_options(const Export *e)
{
    return mot_arena_printf(&e->t->ctx.arena, "'%s' %s %s%s%s", e->model, e->inputs, e->dims,
                            e->t->backend ? " --backend " : "", e->t->backend ? e->t->backend : "");
}

static void check_outputs(Export *e)
{
    Test *t = e->t;
    MotTensor out;
    const char *file = mot_arena_printf(&t->ctx.arena, "%s/out.npy", t->work);
    const char *stem = mot_arena_printf(&t->ctx.arena, "models/fixtures/%s/%s", e->arch, e->output);
    if (run(t, mot_arena_printf(&t->ctx.arena, "%s run %s --output '%s=%s'", t->motley,
                                common_options(e), e->output, file)) &&
        read_tensor(t, file, &out))
        compare(e, "output", &out, stem, false, 0);
}

typedef struct {
    Export *e;
    const MotJson *files;
    double norm, elements;
} GradientCheck;

static MotStatus check_gradient(void *self, const char *name, const MotJson *entry)
{
    GradientCheck *g = self;
    Test *t = g->e->t;
    const char *file = mot_json_string(mot_json_get(g->files, name), NULL);
    const char *transform = mot_json_string(mot_json_get(entry, "transform"), "none");
    MotTensor gradient;
    check(t, file != NULL, "%s: no gradient of %s", g->e->name, name);
    if (file && read_tensor(t, file, &gradient)) {
        const char *stem =
            mot_arena_printf(&t->ctx.arena, "models/fixtures/%s/grads/%s", g->e->arch,
                             mot_json_string(mot_json_get(entry, "grad"), ""));
        double part = g->norm * sqrt((double)mot_type_elements(&gradient.type) / g->elements);
        compare(g->e, name, &gradient, stem, strcmp(transform, "transpose") == 0, part);
    }
    return MOT_OK;
}

static MotStatus count_elements(void *self, const char *name, const MotJson *entry)
{
    double *total = self, n = 1;
    const MotJson *shape = mot_json_get(entry, "shape");
    (void)name;
    for (size_t i = 0; i < mot_json_length(shape); i++)
        n *= (double)mot_json_int(mot_json_at(shape, i), 0);
    *total += n;
    return MOT_OK;
}

static const char *loss_option(const Export *e)
{
    const char *form = mot_json_string(mot_json_get(e->loss, "loss"), "");
    const char *name = strrchr(form, ':') + 1, *options = strchr(name, ',');
    return mot_arena_printf(&e->t->ctx.arena, "--loss '%.*smodels/fixtures/%s/labels.npy%s'",
                            (int)(name - form), form, e->arch, options ? options : "");
}

static double value_of(const MotJson *entry)
{
    return mot_json_number(mot_json_get(entry, "f64"), NAN);
}

static void check_gradients(Export *e, const char *devices)
{
    Test *t = e->t;
    const char *json =
        run(t, mot_arena_printf(&t->ctx.arena, "%s grad %s %s %s --grads '%s/grads' --json",
                                t->motley, common_options(e), loss_option(e), devices, t->work));
    const MotJson *root = NULL;
    if (!json ||
        mot_json_parse(&t->ctx, MOT_ERR_DATA, "grad --json", json, strlen(json), &root) != MOT_OK)
        return;
    double want = value_of(mot_json_get(e->loss, "value")),
           have = mot_json_number(mot_json_get(root, "loss"), NAN);
    check(t, fabs(have - want) <= 1e-5 * fabs(want), "%s %s: loss %.9g, PyTorch's is %.9g", e->name,
          devices, have, want);
    GradientCheck g = {.e = e,
                       .files = mot_json_get(root, "gradients"),
                       .norm = value_of(mot_json_get(e->loss, "grad_norm"))};
    if (mot_json_each(mot_json_get(e->map, "trained"), count_elements, &g.elements) != MOT_OK ||
        mot_json_each(mot_json_get(e->map, "trained"), check_gradient, &g) != MOT_OK)
        check(t, false, "%s: the map can't be walked", e->name);
}

typedef struct {
    Export *e;
    const char *devices;
    uint32_t n;
} CurveCheck;

static MotStatus check_curve(void *self, const char *optimizer, const MotJson *curve)
{
    CurveCheck *c = self;
    Test *t = c->e->t;
    if (c->n++ && t->is_quick)
        return MOT_OK;
    const char *json =
        run(t, mot_arena_printf(&t->ctx.arena,
                                "%s bench %s %s --optimizer '%s' %s %s --steps 20 --warmup 0",
                                t->motley, common_options(c->e), loss_option(c->e), optimizer,
                                c->devices, c->e->ties));
    const MotJson *root, *want = mot_json_get(curve, "f64");
    if (!json ||
        mot_json_parse(&t->ctx, MOT_ERR_DATA, "bench", json, strlen(json), &root) != MOT_OK)
        return MOT_OK;
    double first = mot_json_number(mot_json_at(want, 0), NAN), worst = 0;
    for (size_t i = 0; i < 20; i++) {
        double a = mot_json_number(mot_json_at(mot_json_get(root, "losses"), i), NAN);
        double difference = fabs(a - mot_json_number(mot_json_at(want, i), NAN));
        if (!(difference <= worst))
            worst = difference;
    }
    check(t, worst <= 1e-4 * first, "%s %s %s: the curve differs by %.3g, bound %.3g", c->e->name,
          c->devices, optimizer, worst, 1e-4 * first);
    return MOT_OK;
}

static void check_curves(Export *e, const char *devices)
{
    CurveCheck c = {.e = e, .devices = devices};
    if (mot_json_each(mot_json_get(e->loss, "curves"), check_curve, &c) != MOT_OK)
        check(e->t, false, "%s: the curves can't be walked", e->name);
}

/* What the model reads and gives, and which of its initializers are one. */
static void describe(Export *e)
{
    MotArena *arena = &e->t->ctx.arena;
    const char *input = mot_json_string(mot_json_get(e->loss, "input"), "");
    e->inputs =
        mot_arena_printf(arena, "--input %s=models/fixtures/%s/%s.npy", input, e->arch, input);
    e->output = mot_json_string(mot_json_get(e->loss, "output"), "");
    const MotJson *tie = mot_json_at(mot_json_get(e->map, "tie"), 0);
    e->ties =
        tie ? mot_arena_printf(arena, "--tie '%s=%s'", mot_json_string(mot_json_at(tie, 0), ""),
                               mot_json_string(mot_json_at(tie, 1), ""))
            : "";
    e->dims = "";
}

static const char *const splits[] = {
    "--devices 1",
    "--devices 2",
    "--devices 3 --shares 5/3/0",
    "--devices 4 --shares 8/4/2/1",
    "--devices 4 --shares 5/3/0/0 --fix '*=batch'",
};

static void check_export(Test *t, const char *arch, const char *name)
{
    MotCtx *ctx = &t->ctx;
    Export e = {
        .t = t,
        .arch = arch,
        .name = name,
        .model = mot_arena_printf(&ctx->arena, "models/%s.onnx", name),
        .loss = read_json(t, mot_arena_printf(&ctx->arena, "models/fixtures/%s/loss.json", arch)),
        .map = read_json(
            t, mot_arena_printf(&ctx->arena, "models/fixtures/%s/maps/%s.json", arch, name))};
    uint32_t before = t->n_failures, checks = t->n_checks;
    describe(&e);
    check_outputs(&e);
    size_t n_splits = sizeof splits / sizeof *splits;
    for (size_t i = 0; i < (t->is_quick ? 1 : n_splits); i++)
        check_gradients(&e, splits[i]);
    /* Splits are walked in turn over the exports when there is no time for all. */
    static size_t turn;
    for (size_t i = 0; i < n_splits; i++)
        if (!t->is_quick || i == turn % n_splits)
            check_curves(&e, splits[i]);
    turn++;
    printf("%s: %u checks, %u failed\n", name, t->n_checks - checks, t->n_failures - before);
    fflush(stdout);
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names in a folder, sorted, without `suffix`. */
static uint32_t list_folder(Test *t, const char *path, const char *suffix, const char ***out_names)
{
    MotVec(const char *) names = {0};
    DIR *dir = opendir(path);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        size_t n = strlen(entry->d_name), k = strlen(suffix);
        if (entry->d_name[0] != '.' && n > k && strcmp(entry->d_name + n - k, suffix) == 0)
            mot_vec_push(&t->ctx.arena, &names,
                         mot_arena_strndup(&t->ctx.arena, entry->d_name, n - k));
    }
    if (dir)
        closedir(dir);
    if (names.n)
        qsort(names.data, names.n, sizeof *names.data, compare_strings);
    *out_names = names.data;
    return names.n;
}

static MotStatus check_all(MotCtx *ctx, void *self)
{
    Test *t = self;
    const char **archs, **exports;
    uint32_t n_archs = list_folder(t, "models/fixtures", "", &archs), n_all = 0;
    (void)ctx;
    for (uint32_t a = 0; a < n_archs; a++) {
        uint32_t n =
            list_folder(t, mot_arena_printf(&t->ctx.arena, "models/fixtures/%s/maps", archs[a]),
                        ".json", &exports);
        for (uint32_t i = 0; i < n; i++)
            check_export(t, archs[a], exports[i]);
        n_all += n;
    }
    check(t, n_all >= 23, "only %u exports were found", n_all);
    return MOT_OK;
}

int main(int argc, char **argv)
{
    char work[] = "/tmp/motley-models-XXXXXX";
    Test t = {.motley = getenv("MOTLEY"), .is_quick = true};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc)
            t.backend = argv[++i];
        else if (strcmp(argv[i], "--all") == 0)
            t.is_quick = false;
    }
    if (!t.motley || !mkdtemp(work)) {
        printf("skipped: $MOTLEY is not set\n");
        return 77;
    }
    t.work = work;
    mot_ctx_init(&t.ctx);
    MotStatus status = mot_ctx_run(&t.ctx, check_all, &t);
    printf("%u checks, %u failed\n", t.n_checks, t.n_failures);
    mot_ctx_deinit(&t.ctx);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", work);
    return system(command) != 0 || status != MOT_OK || t.n_failures ? 1 : 0;
}
