/*
 * External data: the one way from a tensor to bytes outside of the model file, whatever carries the
 * tensor.
 *
 * Policy. `location` is relative; it has no "..", drive letter, backslash or control character. It
 * is looked for in the folder of the path that was given for the model, then in the folder where
 * that path's links end, then in --external-data-root. Symbolic links are followed, but the file
 * must lie beneath one of these folders in the end (the caches of Hugging Face store model and data
 * as links into one folder of blobs). --strict refuses links, hard ones too. Only a regular file is
 * opened, and opening never blocks. A file is mapped once, however many tensors it holds.
 */
#ifndef MOTLEY_FRONTEND_EXTERNAL_H
#define MOTLEY_FRONTEND_EXTERNAL_H

#include "frontend/resolve.h"
#include "support/file.h"

#include "frontend/onnx.pb-c.h"

typedef struct MotExternalFile {
    const MotFileMap *map;
    const char *path;     /* of the mapped file */
    const char *checksum; /* hexadecimal, once it was asked for */
} MotExternalFile;

typedef struct MotExternal {
    MotRoots roots;
    bool is_strict, has_warned;
    MotMap opened; /* location -> index in `files` */
    MotVec(MotExternalFile) files;
} MotExternal;

/* A tensor's external_data. */
typedef struct MotExternalRef {
    const char *location, *checksum; /* checksum: NULL if not given */
    uint64_t offset, length;
    bool has_length;
} MotExternalRef;

/*
 * `model_path` NULL: the model came from memory. `root` NULL: none. MOT_ERR_IO if root is not a
 * folder.
 */
MOT_CHECKED MotStatus mot_external_init(MotCtx *ctx, MotExternal *external, const char *model_path,
                                        const char *root, bool is_strict);
/* Reads the entries without touching the disk. Warns of an unknown key, once a file. */
MOT_CHECKED MotStatus mot_external_parse(MotCtx *ctx, MotExternal *external,
                                         const Onnx__TensorProto *tensor, MotLoc loc,
                                         MotExternalRef *out_ref);
/* The `bytes` bytes that the tensor has; not aligned; mapped until the context is released. */
MOT_CHECKED MotStatus mot_external_read(MotCtx *ctx, MotExternal *external,
                                        const MotExternalRef *ref, uint64_t bytes, MotLoc loc,
                                        const uint8_t **out_data);

#endif
