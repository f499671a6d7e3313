/*
 * An ONNX file that was read and found sound: scanned (wire.h), parsed by protobuf-c, checked
 * (onnx_check.h).
 *
 * What the checks promise to whoever reads `model`: a graph; known versions; every node with
 * operator, imported domain and well-formed attributes; every name defined, once; an order for each
 * list of nodes; tensors whose data fits their dims; functions that end. Not checked is what needs
 * knowledge of operators: their number of inputs, types, shapes.
 *
 * Everything lives until the context is released. raw_data in the parsed tensors is not to be read
 * (wire.h); ask mot_onnx_tensor.
 */
#ifndef MOTLEY_FRONTEND_ONNX_FILE_H
#define MOTLEY_FRONTEND_ONNX_FILE_H

#include "frontend/external.h"
#include "frontend/onnx_tensor.h"
#include "frontend/wire.h"

typedef struct MotOnnxOpts {
    MotOnnxLimits limits;
    bool is_strict;                 /* --strict: external data through links is refused */
    const char *external_data_root; /* --external-data-root, or NULL */
} MotOnnxOpts;

/* The data of tensors for which it had to be made: unpacked from typed fields, or aligned. */
typedef struct MotOnnxConverted {
    MotMap by_tensor; /* address of the TensorProto -> index in `data` */
    MotVec(const uint8_t *) data;
} MotOnnxConverted;

struct MotOnnxFile {
    const char *path;      /* as given; what messages call the file */
    MotWire wire;          /* its bytes */
    const MotFileMap *map; /* where they lie; NULL if the caller keeps them */
    MotOnnxLimits limits;
    const Onnx__ModelProto *model;   /* of a model file */
    const Onnx__TensorProto *tensor; /* of a tensor file */
    struct MotOnnxScopes *scopes;    /* of a model: onnx_check.h */
    MotExternal *external;
    MotOnnxConverted *converted;
};

MotOnnxOpts mot_onnx_opts_default(void);

/*
 * Takes the pages of the file and of its external data out of memory; they come back when they are
 * read (support/file.h).
 */
void mot_onnx_forget(const MotOnnxFile *file);

/*
 * MOT_ERR_IO if the file or its external data, where it was read, was written to since
 * (support/file.h).
 */
MOT_CHECKED MotStatus mot_onnx_check_unchanged(MotCtx *ctx, const MotOnnxFile *file);

/*
 * Opens the model at `path`. MOT_ERR_IO if it cannot be read, MOT_ERR_MODEL if it is malformed,
 * MOT_ERR_LIMIT (with the flag that helps) beyond a limit. Tolerated, with a warning: unknown
 * fields, an IR version newer than known, nodes out of order, an initializer that an old IR version
 * wants among the inputs.
 */
MOT_CHECKED MotStatus mot_onnx_open(MotCtx *ctx, const char *path, const MotOnnxOpts *opts,
                                    MotOnnxFile **out_file);
/*
 * The same over bytes that the caller keeps; `name` is for messages. External data needs
 * opts->external_data_root.
 */
MOT_CHECKED MotStatus mot_onnx_open_memory(MotCtx *ctx, const char *name, const void *bytes,
                                           size_t n, const MotOnnxOpts *opts,
                                           MotOnnxFile **out_file);
/* Opens a file that holds one bare TensorProto, as ONNX's test cases do. */
MOT_CHECKED MotStatus mot_onnx_open_tensor(MotCtx *ctx, const char *path, const MotOnnxOpts *opts,
                                           MotOnnxFile **out_file);

/* Equal for models of the same nodes, whatever their weights. Node order and value names count. */
uint64_t mot_onnx_fingerprint(MotCtx *ctx, const MotOnnxFile *file);

#endif
