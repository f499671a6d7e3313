/*
 * Any bytes as a file of data: never a crash, and what was read is as large as its type says. The
 * first byte chooses the format.
 */
#include "runtime/csv.h"
#include "runtime/idx.h"
#include "runtime/npy.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads every element: a tensor that is shorter than its type is found by ASan. */
static void touch(const MotTensor *t)
{
    double sum = 0;
    for (int64_t i = 0; i < mot_type_elements(&t->type); i++)
        sum += mot_tensor_get(t, i);
    if (sum == 0.123456789)
        fputs("\n", stderr);
}

typedef struct {
    uint8_t kind;
    char path[32];
} Input;

static MotStatus read_file(MotCtx *ctx, void *arg)
{
    const Input *in = arg;
    MotTensor t, labels;
    MotCsvOpts opts = {.label = "y",
                       .feature_dtype = in->kind & 4 ? MOT_F64 : MOT_F32,
                       .label_dtype = in->kind & 8 ? MOT_I64 : MOT_F32,
                       .n_classes = 10,
                       .ignore = -100};
    switch (in->kind % 3) {
    case 0:
        MOT_TRY(mot_npy_read(ctx, in->path, &t));
        break;
    case 1:
        MOT_TRY(mot_idx_read(ctx, in->path, &t));
        break;
    default:
        MOT_TRY(mot_csv_read(ctx, in->path, &opts, &t, &labels));
        touch(&labels);
    }
    touch(&t);
    return MOT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    MotCtx ctx;
    Input in = {.kind = size ? data[0] : 0};
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (size == 0 || fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1)) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    snprintf(in.path, sizeof in.path, "/proc/self/fd/%d", fd);
    mot_ctx_init(&ctx);
    ctx.arena.limit_bytes = (size_t)1 << 28;
    (void)!mot_ctx_run(&ctx, read_file, &in);
    mot_ctx_deinit(&ctx);
    close(fd);
    return 0;
}
