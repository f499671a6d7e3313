/*
 * ONNX model -> Graph: the main graph of a checked file becomes ops of our table.
 *
 * All dims become sizes: symbols of the inputs are bound by `dims`. Whatever follows from shapes
 * and constants alone is computed here, so that reshapes, slices and masks arrive static. Types
 * that the file states for results are hints: a contradiction is a warning.
 */
#ifndef MOTLEY_FRONTEND_IMPORT_H
#define MOTLEY_FRONTEND_IMPORT_H

#include "frontend/onnx_file.h"
#include "ir/graph.h"

/* A symbolic dim and its size. A dim without a symbol is called INPUT.AXIS. */
typedef struct MotDimBinding {
    const char *name;
    int64_t size;
} MotDimBinding;

typedef struct MotInputTensor {
    const char *name;
    MotTensor tensor;
    const char *file; /* it is from, for messages; NULL: from the caller */
} MotInputTensor;

/* All zero: nothing bound, the limits below. */
typedef struct MotImportOpts {
    const MotDimBinding *dims;
    uint32_t n_dims;
    /*
     * What the inputs will hold, where that is known. Binds symbolic dims; and an input on whose
     * contents a shape depends becomes a constant. The others stay inputs.
     */
    const MotInputTensor *inputs;
    uint32_t n_inputs;
    int64_t max_fold_bytes;  /* larger results are not computed at import; 0: 64 MiB */
    int64_t max_value_bytes; /* a larger value is an error; 0: 256 GiB */
} MotImportOpts;

/*
 * The graph is in ctx's arena; the data of its parameters and constants is borrowed from `file`.
 * Values and ops keep the names of the file. Fails with MOT_ERR_UNSUPPORTED and the full list of
 * what is not supported, with MOT_ERR_MODEL on the first node that is wrong, with MOT_ERR_USAGE on
 * a symbolic dim without a size, with MOT_ERR_LIMIT on a value too large.
 */
MOT_CHECKED MotStatus mot_import(MotCtx *ctx, MotOnnxFile *file, const MotImportOpts *opts,
                                 MotGraph **out_graph);

#endif
