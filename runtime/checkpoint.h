/*
 * Checkpoints: DIR/step-000120/{model.safetensors, optimizer.safetensors, manifest.json}. Tensors
 * are gathered, in the shape and layout of the model file, named `<initializer>` and
 * `<initializer>/exp_avg`; so they do not depend on plan or shares. The manifest is written last
 * and holds a hash of each file; then `latest`. A torn or changed checkpoint is refused with
 * MOT_ERR_DATA.
 */
#ifndef MOTLEY_RUNTIME_CHECKPOINT_H
#define MOTLEY_RUNTIME_CHECKPOINT_H

#include "runtime/session.h"
#include "support/json.h"

/* The size of a symbolic dim of the model. */
typedef struct MotCheckpointDim {
    const char *name;
    int64_t size;
} MotCheckpointDim;

typedef struct MotCheckpointInfo {
    int64_t step; /* steps done, and the number of the next batch */
    uint64_t seed;
    int64_t batch, sample; /* samples a step; elements of a sample in the first input */
    double cut_spent;      /* of the accuracy budget, in steps; 0 where nothing was cut */
    const char *structure; /* what identifies the model beside its weights */
    const MotCheckpointDim *dims;
    uint32_t n_dims;
    /* as given on the command line; for `sample` and for checks at resume */
    const char *model, *loss, *optimizer, *data;
    const uint32_t *vocabulary; /* code points of character tokens, or NULL */
    uint32_t n_vocabulary;
    const MotJson *ties;   /* read only: pairs of initializers that were trained as one */
    const MotJson *stages; /* read only: devices and shares of each stage; NULL: none are there */
} MotCheckpointInfo;

/* Writes DIR/step-NNNNNN and DIR/latest, then removes all but the two newest. */
MOT_CHECKED MotStatus mot_checkpoint_save(MotCtx *ctx, MotSession *session, const char *dir,
                                          const MotCheckpointInfo *info);

/* Whether a run has saved into the folder. */
bool mot_checkpoint_is_in(MotCtx *ctx, const char *dir);
/*
 * DIR itself if it is a checkpoint, else the checkpoints in it, newest first, whether they are
 * sound, damaged or not finished.
 */
MOT_CHECKED MotStatus mot_checkpoint_list(MotCtx *ctx, const char *dir, const char ***out_paths,
                                          uint32_t *out_n);
/*
 * Whether it has a manifest. Without, it is what a save that was cut short has left, and no
 * checkpoint yet.
 */
bool mot_checkpoint_is_finished(MotCtx *ctx, const char *path);
/*
 * DIR itself if it is a checkpoint, else its newest sound one: `latest`, or the one before it with
 * a warning when that one is damaged. Fails with MOT_ERR_DATA when none is sound. `out_path` is its
 * folder.
 */
MOT_CHECKED MotStatus mot_checkpoint_find(MotCtx *ctx, const char *dir, const char **out_path,
                                          MotCheckpointInfo *out_info);
/* Checks one folder in full: manifest, the step of its name, hashes, both files. */
MOT_CHECKED MotStatus mot_checkpoint_verify(MotCtx *ctx, const char *path,
                                            MotCheckpointInfo *out_info);
/*
 * Loads parameters and states into a session; every trained parameter and state must be there with
 * its shape, and the session must train every parameter that is there.
 */
MOT_CHECKED MotStatus mot_checkpoint_load(MotCtx *ctx, MotSession *session, const char *path);
/*
 * That the session trains as one what was trained as one, and nothing else: for going on with a
 * training, as the tensors alone don't tell. A checkpoint that is only read, as `sample` does,
 * holds both initializers of a pair.
 */
MOT_CHECKED MotStatus mot_checkpoint_check_ties(MotCtx *ctx, const MotSession *session,
                                                const char *path, const MotCheckpointInfo *info);
/*
 * Gives a session the shares under which the checkpoint was saved, if its stages are of the same
 * devices in meshes of the same form; else it keeps its own. MOT_ERR_INFEASIBLE if a device has no
 * memory for them any more.
 */
MOT_CHECKED MotStatus mot_checkpoint_take_shares(MotCtx *ctx, MotSession *session, const char *path,
                                                 const MotCheckpointInfo *info);

#endif
