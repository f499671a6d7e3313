/*
 * Tables in comma-separated text (RFC 4180) with a header row: one column is the label, the others
 * are numbers.
 */
#ifndef MOTLEY_RUNTIME_CSV_H
#define MOTLEY_RUNTIME_CSV_H

#include "ir/dtype.h"
#include "support/context.h"

typedef struct MotCsvOpts {
    const char *label;                   /* name of its column */
    MotDtype feature_dtype, label_dtype; /* f32 or f64; for the label also i32 or i64 */
    int64_t n_classes, ignore;           /* an integer label is in [0, n_classes), or `ignore` */
} MotCsvOpts;

/*
 * Reads `path` into features [rows, columns - 1], in the order of the file, and labels [rows].
 * Fails with MOT_ERR_DATA naming file, line and column: rows of another length than the header's,
 * cells that are no finite number, labels that are no class. A line may end in CR LF; a quoted cell
 * may hold line breaks. Memory: twice the file at most.
 */
MOT_CHECKED MotStatus mot_csv_read(MotCtx *ctx, const char *path, const MotCsvOpts *opts,
                                   MotTensor *out_features, MotTensor *out_labels);

#endif
