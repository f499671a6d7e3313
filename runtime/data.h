/*
 * Training data: samples by number, in a seeded order an epoch. The position is (epoch, index) and
 * part of the state.
 *
 * Language models: a sample is a window of T tokens at stride T and the same shifted by one; the
 * last 10 % of the tokens, contiguous, are for validation; a tail shorter than a window is dropped.
 * Arrays: sample i is row i of every array, the last 10 % of the rows are for validation. IDX:
 * unsigned bytes of images are divided by 255. CSV: the columns beside the label are the features.
 * Both take the dims of the model's input.
 */
#ifndef MOTLEY_RUNTIME_DATA_H
#define MOTLEY_RUNTIME_DATA_H

#include "ir/dtype.h"
#include "support/context.h"

/* A field of a sample: the graph input that it fills, and the type of a whole batch. */
typedef struct MotDataField {
    const char *input;
    MotType type; /* dims[0] is the batch, or batch times window */
    bool is_label;
} MotDataField;

typedef struct MotDataOpts {
    const MotDataField *fields; /* text and tokens: one input of tokens and one of labels */
    uint32_t n_fields;
    int64_t batch;     /* samples a step */
    int64_t n_classes; /* upper bound of labels and tokens: V */
    int64_t ignore;    /* label that is legal though it is no class */
    uint64_t seed;
    bool cast; /* float64 arrays may become float32 */
} MotDataOpts;

typedef struct MotData MotData;

/*
 * Every label of `path` is a class in [0, n_classes) or `ignore`; else MOT_ERR_DATA that names the
 * index.
 */
MOT_CHECKED MotStatus mot_labels_check(MotCtx *ctx, const char *path, const MotTensor *labels,
                                       int64_t n_classes, int64_t ignore);

/*
 * `spec` as in `--data` (text:FILE[,unit=char|byte], tokens:FILE, npy:IN=FILE,...,
 * idx:IMAGES,LABELS, csv:FILE,label=COLUMN). A FILE ends before the last comma up to which it is a
 * file. Fails with MOT_ERR_USAGE or MOT_ERR_DATA.
 */
MOT_CHECKED MotStatus mot_data_open(MotCtx *ctx, const char *spec, const MotDataOpts *opts,
                                    MotData **out_data);

int64_t mot_data_steps_per_epoch(const MotData *data);
int64_t mot_data_validation_batches(const MotData *data);
/*
 * Fills the buffers (one a field, a whole batch) with training batch `step` counted from 0 over all
 * epochs.
 */
void mot_data_batch(MotData *data, int64_t step, void *const *out_fields);
/* The same with validation batch `index`, in order. */
void mot_data_validation_batch(MotData *data, int64_t index, void *const *out_fields);

/* Characters: the code point of every token, `out_n` of them; NULL for other data. */
const uint32_t *mot_data_vocabulary(const MotData *data, uint32_t *out_n);

#endif
