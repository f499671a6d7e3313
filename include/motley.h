/*
 * Motley as a library: train an ONNX model on devices of unequal speed, from C.
 *
 *     MotleyModel *m = motley_new();
 *     motley_set(m, "--loss", "cross_entropy:logits:labels");
 *     motley_set(m, "--optimizer", "adamw:lr=3e-4,clip=1.0");
 *     motley_set(m, "-c", "cluster.yaml");
 *     if (motley_open(m, "model.onnx") != MOTLEY_OK)
 *         fprintf(stderr, "%s\n", motley_error(m));
 *     MotleyTensor batch[] = {{"x", MOTLEY_F32, 2, {16, 20}, x},
 *                             {"labels", MOTLEY_I64, 1, {16}, y}};
 *     double loss;
 *     for (int i = 0; i < 1000; i++)
 *         motley_step(m, batch, 2, &loss);
 *     motley_save(m, "trained.onnx");
 *     motley_free(m);
 *
 * With a loss a model trains (motley_step, motley_evaluate), without one it runs forward
 * (motley_run); motley_copy_params takes weights from one to the other.
 *
 * Errors: a function returns MOTLEY_OK or what went wrong; motley_error tells it in words. The
 * library neither prints nor exits. After MOTLEY_INTERNAL, MOTLEY_MEMORY and MOTLEY_RANK, and when
 * motley_open has failed, a model can only be freed.
 *
 * Processes and threads: the devices of an open model are child processes of the thread that opened
 * it, and end with it. A model is used by one thread at a time; several models may be used at once.
 * The locale in force does not matter.
 *
 * Files: the model file is mapped and has to stay as it is until motley_free. Compiled kernels are
 * kept in $XDG_CACHE_HOME/motley, or $HOME/.cache/motley.
 */
#ifndef MOTLEY_H
#define MOTLEY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Programs built against one version run with every later one of the same major number (0.x: of the
 * same minor number too).
 */
#define MOTLEY_VERSION_MAJOR 0
#define MOTLEY_VERSION_MINOR 1

#if defined(__GNUC__)
#define MOTLEY_API __attribute__((visibility("default")))
#else
#define MOTLEY_API
#endif

typedef struct MotleyModel MotleyModel;

/* Up to 9 the exit codes of the command. */
typedef enum MotleyStatus {
    MOTLEY_OK = 0,
    MOTLEY_INTERNAL = 1,   /* a fault of Motley itself */
    MOTLEY_USAGE = 2,      /* an option or a call is wrong */
    MOTLEY_MODEL = 3,      /* the model is invalid, or uses what is not supported */
    MOTLEY_INFEASIBLE = 4, /* no plan fits the devices */
    MOTLEY_MISMATCH = 5,   /* files that do not belong together */
    MOTLEY_RANK = 6,       /* the process of a device died or hung */
    MOTLEY_DATA = 7,       /* data are malformed, or of another type than the model takes */
    MOTLEY_NUMERICS = 8,   /* the loss is not finite; the update was made */
    MOTLEY_LIMIT = 9,      /* a limit on the model file was exceeded */
    MOTLEY_IO = 10,        /* the operating system refused a file or a resource */
    MOTLEY_MEMORY = 11     /* out of memory */
} MotleyStatus;

/* The numbers of ONNX. */
typedef enum MotleyDtype {
    MOTLEY_F32 = 1,
    MOTLEY_U8 = 2,
    MOTLEY_I32 = 6,
    MOTLEY_I64 = 7,
    MOTLEY_BOOL = 9,
    MOTLEY_F16 = 10,
    MOTLEY_F64 = 11,
    MOTLEY_BF16 = 16
} MotleyDtype;

enum { MOTLEY_MAX_RANK = 8 };

/*
 * A dense tensor, the last dim the fastest, in the byte order of the machine. Name and data belong
 * to the caller.
 */
typedef struct MotleyTensor {
    const char *name;
    MotleyDtype dtype;
    int rank;
    int64_t dims[MOTLEY_MAX_RANK];
    void *data;
} MotleyTensor;

typedef enum MotleyKind {
    MOTLEY_INPUT,  /* what a step or a run takes; the labels of a loss are one */
    MOTLEY_OUTPUT, /* what a run gives; a model with a loss has none but the loss */
    MOTLEY_PARAM   /* an initializer that trains; without a loss, one that would */
} MotleyKind;

/* "0.1.0", of the library that runs. */
MOTLEY_API const char *motley_version(void);

/* A model without a file. NULL if there is no memory. */
MOTLEY_API MotleyModel *motley_new(void);
/* Ends its processes and frees all that belongs to it. NULL is fine. */
MOTLEY_API void motley_free(MotleyModel *model);

/*
 * What failed in the last call, with notes and hints a line each; "" if nothing did. It lives until
 * the next call.
 */
MOTLEY_API const char *motley_error(const MotleyModel *model);
/*
 * Has warnings and notes told, a line each, without its newline; NULL, the default: they are
 * dropped.
 */
MOTLEY_API void motley_set_log(MotleyModel *model, void (*log)(void *self, const char *line),
                               void *self);

/*
 * An option, before motley_open, as `motley train --help` and `motley run --help` list them: those
 * of the model, of inputs, of training and of devices, such as "--loss", "--optimizer", "--dim",
 * "--tie", "-c", "--devices", "--threads", "--shares", "--fix", "--plan" and "--backend", and
 * "--steps", which schedules of the learning rate need. `value` is copied; NULL for options that
 * take none. Repeatable options add up. Labels in "--loss" are the name of an input. MOTLEY_USAGE
 * if there is no such option; a bad value is told by motley_open.
 */
MOTLEY_API MotleyStatus motley_set(MotleyModel *model, const char *option, const char *value);

/*
 * Reads the ONNX file at `path`, adds loss, gradients and optimizer if "--loss" was set, plans,
 * compiles, and starts the devices with the weights of the file. Once a model. All dims are sizes
 * from here on: symbolic ones need "--dim".
 */
MOTLEY_API MotleyStatus motley_open(MotleyModel *model, const char *path);

/* The plan, as `motley plan` prints it; "" before motley_open. It lives as long as the model. */
MOTLEY_API const char *motley_plan(const MotleyModel *model);

/* How many there are; 0 before motley_open. */
MOTLEY_API size_t motley_count(const MotleyModel *model, MotleyKind kind);
/*
 * Name, dtype and dims of number `i`; data becomes NULL. The name lives as long as the model.
 * MOTLEY_USAGE if there is none.
 */
MOTLEY_API MotleyStatus motley_describe(MotleyModel *model, MotleyKind kind, size_t i,
                                        MotleyTensor *out);

/*
 * A training step on one batch: all inputs, in any order, of the types that motley_describe tells;
 * after "--accumulate" N on N batches, whose inputs stand one batch after the other. `out_loss` is
 * the mean loss before the update and may be NULL. MOTLEY_DATA on another type and on a label that
 * is no class.
 */
MOTLEY_API MotleyStatus motley_step(MotleyModel *model, const MotleyTensor *inputs, size_t n,
                                    double *out_loss);
/* The same without an update, on one batch. */
MOTLEY_API MotleyStatus motley_evaluate(MotleyModel *model, const MotleyTensor *inputs, size_t n,
                                        double *out_loss);
/*
 * A forward pass of a model without a loss. The outputs that are wanted name type and buffer of the
 * caller, which is filled.
 */
MOTLEY_API MotleyStatus motley_run(MotleyModel *model, const MotleyTensor *inputs, size_t n_inputs,
                                   const MotleyTensor *outputs, size_t n_outputs);

/*
 * Copies a parameter, gathered from the devices, into the caller's buffer. Names, dtypes and dims
 * are those of the file. Of two initializers that were tied, both can be read, the first one
 * written.
 */
MOTLEY_API MotleyStatus motley_read_param(MotleyModel *model, const MotleyTensor *out);
/* Gives a parameter new values. The state of the optimizer stays as it is. */
MOTLEY_API MotleyStatus motley_write_param(MotleyModel *model, const MotleyTensor *value);
/*
 * Gives all parameters of `to` the values that they have in `from`. MOTLEY_USAGE if one is not
 * there, MOTLEY_DATA if it is of another type, told by motley_error(to); parameters before it have
 * been copied then.
 */
MOTLEY_API MotleyStatus motley_copy_params(MotleyModel *to, MotleyModel *from);

/*
 * Writes the model file with the weights of now to `path`; all else in it is as it was. The file
 * appears whole or not at all.
 */
MOTLEY_API MotleyStatus motley_save(MotleyModel *model, const char *path);

#ifdef __cplusplus
}
#endif

#endif
