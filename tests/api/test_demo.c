/*
 * DeMo against the paper's formulas, written a second time in Python (tests/fixtures/demo.py): 20
 * steps of a network with parameters of every kind of shape, for 1, 2 and 4 replicas and each
 * option, on one device and on several, evenly and not. All parameters equal the oracle's to 1e-5.
 * Which devices compute what must not matter.
 */
#include <motley.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, FEATURES = 8, STEPS = 20, MAX_PARAMS = 1024 };

static const char folder[] = "tests/fixtures/demo";
/* In the order of the fixtures. */
static const char *const params[] = {"w1", "b1", "c4", "c3", "w2", "b2", "w3", "b3"};
enum { N_PARAMS = sizeof params / sizeof *params };

typedef struct {
    const char *backend, *devices, *shares, *fix;
} Placement;

static const Placement placements[] = {
    {"ref", "1", NULL, NULL},      {"cpu", "1", NULL, NULL},         {"cpu", "2", NULL, NULL},
    {"cpu", "4", NULL, "*=batch"}, {"cpu", "3", "5/3/0", "*=batch"}, {"ref", "4", "8/4/2/1", NULL},
};
enum { N_PLACEMENTS = sizeof placements / sizeof *placements };

static int n_failures, n_checks;

static void check(int holds, const char *what, const MotleyModel *model)
{
    n_checks++;
    if (holds)
        return;
    n_failures++;
    printf("FAILED: %s\n  %s\n", what, model ? motley_error(model) : "");
}

/*
 * The elements of FOLDER/CASE<suffix>, a .npy file of format 1, up to `bytes`; gives the bytes
 * read.
 */
static size_t read_npy(int n, const char *suffix, void *to, size_t bytes)
{
    char path[128];
    unsigned char head[10];
    snprintf(path, sizeof path, "%s/%d%s", folder, n, suffix);
    FILE *file = fopen(path, "rb");
    if (!file || fread(head, 1, 10, file) != 10 ||
        fseek(file, 10 + head[8] + 256 * head[9], SEEK_SET) != 0) {
        printf("FAILED: can't read %s\n", path);
        exit(1);
    }
    size_t got = fread(to, 1, bytes, file);
    fclose(file);
    return got;
}

static size_t count_elements(const MotleyTensor *t)
{
    size_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= (size_t)t->dims[d];
    return n;
}

/* The tensors of all parameters over one array, in the order of the fixtures. */
static size_t describe_params(MotleyModel *m, float *data, MotleyTensor *out)
{
    size_t at = 0, n = motley_count(m, MOTLEY_PARAM);
    for (size_t p = 0; p < N_PARAMS; p++)
        for (size_t i = 0; i < n; i++) {
            MotleyTensor t;
            if (motley_describe(m, MOTLEY_PARAM, i, &t) != MOTLEY_OK ||
                strcmp(t.name, params[p]) != 0)
                continue;
            t.data = data + at;
            at += count_elements(&t);
            out[p] = t;
        }
    return at;
}

static MotleyModel *open_model(const char *optimizer, const Placement *p)
{
    char model[128];
    MotleyModel *m = motley_new();
    snprintf(model, sizeof model, "%s/model.onnx", folder);
    motley_set(m, "--loss", "cross_entropy:logits:labels");
    motley_set(m, "--optimizer", optimizer);
    motley_set(m, "--devices", p->devices);
    motley_set(m, "--backend", p->backend);
    if (p->shares)
        motley_set(m, "--shares", p->shares);
    if (p->fix)
        motley_set(m, "--fix", p->fix);
    check(motley_open(m, model) == MOTLEY_OK, optimizer, m);
    return m;
}

static void run_case(int n, const char *optimizer, const Placement *p)
{
    static float data[MAX_PARAMS], x[BATCH * FEATURES];
    static double want[MAX_PARAMS];
    static int64_t labels[BATCH];
    const MotleyTensor batch[] = {{"x", MOTLEY_F32, 2, {BATCH, FEATURES}, x},
                                  {"labels", MOTLEY_I64, 1, {BATCH}, labels}};
    MotleyTensor tensors[N_PARAMS] = {{0}};
    MotleyModel *m = open_model(optimizer, p);
    size_t n_data = describe_params(m, data, tensors);
    size_t bytes = read_npy(n, ".start.npy", data, sizeof data);
    size_t n_want = read_npy(n, ".npy", want, sizeof want) / sizeof *want;
    read_npy(n, ".x.npy", x, sizeof x);
    read_npy(n, ".labels.npy", labels, sizeof labels);
    check(bytes == n_data * sizeof *data && n_want == n_data, "all parameters train", NULL);
    for (int i = 0; i < N_PARAMS; i++)
        check(motley_write_param(m, &tensors[i]) == MOTLEY_OK, "write_param", m);
    for (int i = 0; i < STEPS; i++)
        check(motley_step(m, batch, 2, NULL) == MOTLEY_OK, optimizer, m);
    for (int i = 0; i < N_PARAMS; i++)
        check(motley_read_param(m, &tensors[i]) == MOTLEY_OK, "read_param", m);
    double worst = 0;
    for (size_t i = 0; i < n_data; i++)
        worst = fmax(worst, fabs((double)data[i] - want[i]));
    char what[256];
    snprintf(what, sizeof what, "%s on %s %s %s: parameters differ by %.3g", optimizer, p->devices,
             p->backend, p->shares ? p->shares : "", worst);
    check(worst <= 1e-5, what, NULL);
    motley_free(m);
}

int main(void)
{
    char path[128], line[256];
    snprintf(path, sizeof path, "%s/cases.tsv", folder);
    FILE *cases = fopen(path, "r");
    int n = 0;
    for (; cases && fgets(line, sizeof line, cases); n++) {
        char *optimizer = strchr(line, '\t') + 1;
        optimizer[strcspn(optimizer, "\n")] = 0;
        run_case(n, optimizer, &placements[0]);
        /* Each case on some, each on half of the cases. */
        for (int p = 1 + n % 2; p < N_PLACEMENTS; p += 2)
            run_case(n, optimizer, &placements[p]);
    }
    if (cases)
        fclose(cases);
    check(n >= 10, "the fixtures are there", NULL);
    printf("%d checks, %d failed\n", n_checks, n_failures);
    return n_failures != 0;
}
