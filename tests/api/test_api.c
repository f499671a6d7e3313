/*
 * The C API as a program of someone else uses it: nothing but motley.h and the shared library. The
 * MLP's export is trained on two devices and has PyTorch's losses; its weights go to a second model
 * that runs forward, and into a file; and every wrong call is an error with a text, after which the
 * model goes on.
 */
#include <motley.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 16, FEATURES = 20, CLASSES = 10, STEPS = 20 };

static const char model_file[] = "models/mlp_ts17_raw_static.onnx";
static int n_failures, n_checks;
static float x[BATCH * FEATURES], reference[BATCH * CLASSES];
static int64_t labels[BATCH];
static double curve[STEPS];

#define CHECK(holds) check(holds, #holds, __LINE__, NULL)
#define CHECK_STATUS(model, status, wanted)                                                        \
    check((status) == (wanted), #status " gives " #wanted, __LINE__, model)

static void check(int holds, const char *what, int line, const MotleyModel *model)
{
    n_checks++;
    if (holds)
        return;
    n_failures++;
    printf("FAILED: line %d: %s\n  %s\n", line, what, model ? motley_error(model) : "");
}

/* The elements of a .npy file of format 1. */
static void read_npy(const char *path, void *to, size_t bytes)
{
    unsigned char head[10];
    FILE *file = fopen(path, "rb");
    if (!file || fread(head, 1, 10, file) != 10 ||
        fseek(file, 10 + head[8] + 256 * head[9], SEEK_SET) != 0 ||
        fread(to, 1, bytes, file) != bytes) {
        printf("FAILED: can't read %s\n", path);
        exit(1);
    }
    fclose(file);
}

/* PyTorch's losses of sgd:lr=0.1, from the list behind that key. */
static void read_curve(void)
{
    static char text[1 << 16];
    FILE *file = fopen("models/fixtures/mlp/loss.json", "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = 0;
    char *p = strstr(text, "\"sgd:lr=0.1\"");
    p = p ? strchr(p, '[') : NULL;
    for (int i = 0; p && i < STEPS; i++)
        curve[i] = strtod(p + 1, &p);
    CHECK(p && curve[STEPS - 1] > 0);
}

static MotleyModel *open_model(const char *file, const char *loss)
{
    MotleyModel *m = motley_new();
    CHECK(m != NULL);
    if (loss) {
        CHECK_STATUS(m, motley_set(m, "--loss", loss), MOTLEY_OK);
        CHECK_STATUS(m, motley_set(m, "--optimizer", "sgd:lr=0.1"), MOTLEY_OK);
        CHECK_STATUS(m, motley_set(m, "-c", "models/clusters/two-equal.yaml"), MOTLEY_OK);
        CHECK_STATUS(m, motley_set(m, "--shares", "2/1"), MOTLEY_OK);
    }
    CHECK_STATUS(m, motley_open(m, file), MOTLEY_OK);
    return m;
}

static const MotleyTensor batch[] = {{"x", MOTLEY_F32, 2, {BATCH, FEATURES}, x},
                                     {"labels", MOTLEY_I64, 1, {BATCH}, labels}};

static void training_has_the_losses_of_pytorch(MotleyModel *m)
{
    double loss, before, after;
    CHECK(motley_count(m, MOTLEY_INPUT) == 2 && motley_count(m, MOTLEY_OUTPUT) == 0);
    CHECK(strstr(motley_plan(m), "step ") != NULL);
    CHECK_STATUS(m, motley_evaluate(m, batch, 2, &before), MOTLEY_OK);
    for (int i = 0; i < STEPS; i++) {
        CHECK_STATUS(m, motley_step(m, batch, 2, &loss), MOTLEY_OK);
        CHECK(fabs(loss - curve[i]) <= 1e-4 * curve[0]);
        if (i == 0)
            CHECK(loss == before);
    }
    CHECK_STATUS(m, motley_evaluate(m, batch, 2, &after), MOTLEY_OK);
    CHECK(after < loss);
}

static int64_t count_elements(const MotleyTensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= t->dims[d];
    return n;
}

static void forward_has_the_logits_of_pytorch(MotleyModel *forward)
{
    float logits[BATCH * CLASSES];
    const MotleyTensor out = {"logits", MOTLEY_F32, 2, {BATCH, CLASSES}, logits};
    MotleyTensor told;
    CHECK(motley_count(forward, MOTLEY_OUTPUT) == 1);
    CHECK_STATUS(forward, motley_describe(forward, MOTLEY_OUTPUT, 0, &told), MOTLEY_OK);
    CHECK(strcmp(told.name, "logits") == 0 && told.rank == 2 && told.dims[1] == CLASSES);
    CHECK_STATUS(forward, motley_run(forward, batch, 1, &out, 1), MOTLEY_OK);
    for (int i = 0; i < BATCH * CLASSES; i++)
        CHECK(fabsf(logits[i] - reference[i]) < 1e-5F);
}

/* The mean cross-entropy of the forward model's logits, as the trained model evaluates it. */
static void copied_weights_give_the_same_loss(MotleyModel *trained, MotleyModel *forward)
{
    float logits[BATCH][CLASSES];
    const MotleyTensor out = {"logits", MOTLEY_F32, 2, {BATCH, CLASSES}, logits};
    double loss, sum = 0;
    CHECK_STATUS(forward, motley_copy_params(forward, trained), MOTLEY_OK);
    CHECK_STATUS(forward, motley_run(forward, batch, 1, &out, 1), MOTLEY_OK);
    CHECK_STATUS(trained, motley_evaluate(trained, batch, 2, &loss), MOTLEY_OK);
    for (int i = 0; i < BATCH; i++) {
        double total = 0;
        for (int c = 0; c < CLASSES; c++)
            total += exp((double)logits[i][c]);
        sum += log(total) - (double)logits[i][labels[i]];
    }
    CHECK(fabs(sum / (double)BATCH - loss) < 1e-5);
}

/* What was saved is what is in memory, bit by bit; and a parameter that was written reads back. */
static void saved_weights_open_again(MotleyModel *trained, const char *path)
{
    CHECK_STATUS(trained, motley_save(trained, path), MOTLEY_OK);
    MotleyModel *again = open_model(path, NULL);
    size_t n = motley_count(trained, MOTLEY_PARAM);
    CHECK(n == 6 && motley_count(again, MOTLEY_PARAM) == n);
    for (size_t i = 0; i < n; i++) {
        MotleyTensor a, b;
        CHECK_STATUS(trained, motley_describe(trained, MOTLEY_PARAM, i, &a), MOTLEY_OK);
        b = a;
        size_t elements = (size_t)count_elements(&a);
        float *values = calloc(2 * elements, sizeof *values);
        a.data = values;
        b.data = values + elements;
        CHECK_STATUS(trained, motley_read_param(trained, &a), MOTLEY_OK);
        CHECK_STATUS(again, motley_read_param(again, &b), MOTLEY_OK);
        CHECK(memcmp(a.data, b.data, elements * sizeof *values) == 0);
        for (size_t k = 0; k < elements; k++)
            values[k] += (float)k;
        CHECK_STATUS(again, motley_write_param(again, &a), MOTLEY_OK);
        CHECK_STATUS(again, motley_read_param(again, &b), MOTLEY_OK);
        CHECK(memcmp(a.data, b.data, elements * sizeof *values) == 0);
        free(values);
    }
    motley_free(again);
}

static void wrong_calls_are_errors(MotleyModel *m)
{
    int64_t big[BATCH] = {0};
    big[3] = CLASSES;
    MotleyTensor wrong[2], t;
    memcpy(wrong, batch, sizeof batch);
    CHECK_STATUS(m, motley_step(m, batch, 1, NULL), MOTLEY_USAGE);
    CHECK(strstr(motley_error(m), "1 tensors are given, 1 batches of 2 inputs") != NULL);
    wrong[1].name = "x";
    CHECK_STATUS(m, motley_step(m, wrong, 2, NULL), MOTLEY_USAGE);
    CHECK(strstr(motley_error(m), "input \"labels\" is missing") != NULL);
    wrong[1] = batch[1];
    wrong[0].dtype = MOTLEY_F64;
    CHECK_STATUS(m, motley_step(m, wrong, 2, NULL), MOTLEY_DATA);
    CHECK(strcmp(motley_error(m), "\"x\" is f64[16x20], the model has f32[16x20]") == 0);
    wrong[0] = batch[0];
    wrong[0].rank = 99;
    CHECK_STATUS(m, motley_step(m, wrong, 2, NULL), MOTLEY_DATA);
    wrong[0] = batch[0];
    wrong[0].data = NULL;
    CHECK_STATUS(m, motley_step(m, wrong, 2, NULL), MOTLEY_DATA);
    wrong[0] = batch[0];
    wrong[1].data = big;
    CHECK_STATUS(m, motley_step(m, wrong, 2, NULL), MOTLEY_DATA);
    CHECK(strstr(motley_error(m), "label 10 at index 3") != NULL);
    CHECK_STATUS(m, motley_run(m, batch, 1, NULL, 0), MOTLEY_USAGE);
    CHECK_STATUS(m, motley_open(m, model_file), MOTLEY_USAGE);
    CHECK_STATUS(m, motley_set(m, "--loss", "x"), MOTLEY_USAGE);
    CHECK_STATUS(m, motley_describe(m, MOTLEY_INPUT, 2, &t), MOTLEY_USAGE);
    CHECK_STATUS(m, motley_read_param(m, &batch[0]), MOTLEY_USAGE);
    CHECK_STATUS(m, motley_save(m, "/nowhere/model.onnx"), MOTLEY_IO);
    CHECK_STATUS(m, motley_step(m, batch, 2, NULL), MOTLEY_OK);
    CHECK(strcmp(motley_error(m), "") == 0);
}

static void wrong_models_are_errors(void)
{
    MotleyModel *m = motley_new();
    CHECK_STATUS(m, motley_step(m, batch, 2, NULL), MOTLEY_USAGE);
    CHECK_STATUS(m, motley_set(m, "--bogus", "1"), MOTLEY_USAGE);
    CHECK_STATUS(m, motley_set(m, "loss", "1"), MOTLEY_USAGE);
    CHECK_STATUS(m, motley_set(m, "--loss", NULL), MOTLEY_USAGE);
    CHECK_STATUS(m, motley_set(m, "--strict", "1"), MOTLEY_USAGE);
    CHECK_STATUS(m, motley_set(m, "--strict", NULL), MOTLEY_OK);
    CHECK(motley_count(m, MOTLEY_PARAM) == 0 && strcmp(motley_plan(m), "") == 0);
    CHECK_STATUS(m, motley_open(m, "models/nofile.onnx"), MOTLEY_IO);
    CHECK_STATUS(m, motley_open(m, model_file), MOTLEY_USAGE); /* once a model */
    motley_free(m);
    m = motley_new();
    CHECK_STATUS(m, motley_open(m, "models/fixtures/mlp/x.npy"), MOTLEY_MODEL);
    motley_free(m);
    m = motley_new();
    CHECK_STATUS(m, motley_set(m, "--loss", "cross_entropy:logits:labels"), MOTLEY_OK);
    CHECK_STATUS(m, motley_set(m, "--optimizer", "sgd:lr=0.1,schedule=cosine"), MOTLEY_OK);
    CHECK_STATUS(m, motley_open(m, model_file), MOTLEY_USAGE);
    CHECK(strstr(motley_error(m), "--steps") != NULL);
    motley_free(m);
    motley_free(NULL);
}

static long count_pages(void)
{
    long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &all, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident;
}

/* Where a sanitizer keeps what was freed, this tells nothing; leaks are found there by itself. */
#ifdef NDEBUG
enum { MAY_GROW_PAGES = 64 };
#else
enum { MAY_GROW_PAGES = 65536 };
#endif

static void steps_take_no_memory(MotleyModel *m)
{
    CHECK_STATUS(m, motley_step(m, batch, 2, NULL), MOTLEY_OK);
    long before = count_pages();
    for (int i = 0; i < 500; i++) {
        CHECK_STATUS(m, motley_step(m, batch, 2, NULL), MOTLEY_OK);
        CHECK_STATUS(m, motley_step(m, batch, 1, NULL), MOTLEY_USAGE);
    }
    CHECK(count_pages() - before < MAY_GROW_PAGES);
}

/*
 * The mean over a batch and its copy is that over the batch: two of them a step have the losses of
 * one.
 */
static void accumulated_batches_stand_one_after_the_other(void)
{
    MotleyModel *m = motley_new();
    double loss;
    float zeros[BATCH * FEATURES] = {0};
    MotleyTensor two[4];
    memcpy(two, batch, sizeof batch);
    memcpy(two + 2, batch, sizeof batch);
    CHECK_STATUS(m, motley_set(m, "--loss", "cross_entropy:logits:labels"), MOTLEY_OK);
    CHECK_STATUS(m, motley_set(m, "--optimizer", "sgd:lr=0.1"), MOTLEY_OK);
    CHECK_STATUS(m, motley_set(m, "--accumulate", "2"), MOTLEY_OK);
    CHECK_STATUS(m, motley_open(m, model_file), MOTLEY_OK);
    CHECK_STATUS(m, motley_step(m, batch, 2, NULL), MOTLEY_USAGE);
    for (int i = 0; i < STEPS; i++) {
        CHECK_STATUS(m, motley_step(m, two, 4, &loss), MOTLEY_OK);
        CHECK(fabs(loss - curve[i]) <= 1e-4 * curve[0]);
    }
    two[2].data = zeros; /* the second batch counts too */
    CHECK_STATUS(m, motley_step(m, two, 4, &loss), MOTLEY_OK);
    CHECK(loss > curve[STEPS - 1]);
    motley_free(m);
}

/*
 * A process that dies is named; then the model can only be freed. Under TSan devices are threads.
 */
static void a_killed_device_is_named(void)
{
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return;
#endif
#endif
    MotleyModel *m = open_model(model_file, "cross_entropy:logits:labels");
    char path[64], children[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "r");
    if (file && fgets(children, sizeof children, file)) {
        kill((pid_t)strtol(children, NULL, 10), SIGKILL);
        CHECK_STATUS(m, motley_step(m, batch, 2, NULL), MOTLEY_RANK);
        CHECK(strstr(motley_error(m), "was killed by signal 9") != NULL);
        CHECK_STATUS(m, motley_step(m, batch, 2, NULL), MOTLEY_USAGE);
        CHECK(strstr(motley_error(m), "can only be freed") != NULL);
    }
    if (file)
        fclose(file);
    motley_free(m);
}

int main(void)
{
    char path[] = "/tmp/test_api.XXXXXX";
    int fd = mkstemp(path);
    read_npy("models/fixtures/mlp/x.npy", x, sizeof x);
    read_npy("models/fixtures/mlp/labels.npy", labels, sizeof labels);
    read_npy("models/fixtures/mlp/logits.f32.npy", reference, sizeof reference);
    read_curve();
    CHECK(fd >= 0 && strncmp(motley_version(), "0.1.", 4) == 0);
    MotleyModel *trained = open_model(model_file, "cross_entropy:logits:labels"),
                *forward = open_model(model_file, NULL);
    forward_has_the_logits_of_pytorch(forward);
    training_has_the_losses_of_pytorch(trained);
    copied_weights_give_the_same_loss(trained, forward);
    saved_weights_open_again(trained, path);
    wrong_calls_are_errors(trained);
    steps_take_no_memory(trained);
    motley_free(forward);
    motley_free(trained);
    wrong_models_are_errors();
    accumulated_batches_stand_one_after_the_other();
    a_killed_device_is_named();
    close(fd);
    unlink(path);
    printf("%d checks, %d failed\n", n_checks, n_failures);
    return n_failures != 0;
}
