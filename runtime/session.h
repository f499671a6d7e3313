/*
 * A session: a Pipeline running on the ranks of one machine. The host (the process that opened it)
 * forks one process a device, writes inputs and scalars into the ranks' arenas between steps, reads
 * results from there, and watches the ranks.
 *
 * Errors: MOT_ERR_RANK when a rank died or hung; the context then names the rank, its instruction
 * and the ONNX node, and the other ranks have been stopped: the session is halted. It runs nothing
 * any more, but what its ranks hold can be read (mot_session_held).
 */
#ifndef MOTLEY_RUNTIME_SESSION_H
#define MOTLEY_RUNTIME_SESSION_H

#include "runtime/shared.h"

typedef struct MotSessionOpts {
    const char *backend; /* overrides the devices' own; NULL: theirs */
    double hang_seconds; /* no instruction retired for so long: a rank hangs; 0: never */
    /*
     * When a rank dies or hangs, the others come as far as they can before they are stopped, so
     * that as much as possible is left.
     */
    bool is_elastic;
} MotSessionOpts;

/* What the ranks of a halted session hold of all parameters and states. */
typedef enum MotHeld {
    MOT_HELD_BEFORE, /* those before the last command */
    MOT_HELD_AFTER,  /* those after it; its results can be read too */
    MOT_HELD_TORN    /* neither: some part was being written, and no other rank holds it */
} MotHeld;

typedef struct MotSession MotSession;

/*
 * Starts the ranks; constants get their values, parameters are zeros. An elastic session may be
 * halted at once.
 */
MOT_CHECKED MotStatus mot_session_open(MotCtx *ctx, MotPipeline *pipeline,
                                       const MotCluster *cluster, const MotSessionOpts *opts,
                                       MotSession **out_session);
/* Ends the ranks and unmaps the region. Safe after a failure. */
void mot_session_close(MotSession *session);

/*
 * Buffer `name` of kind input, scalar or param: scatters a whole tensor to the ranks / gathers it.
 * Types must be equal. An input is written for every micro-batch, or with _batch for one; the eval
 * section reads that of micro-batch 0.
 */
MOT_CHECKED MotStatus mot_session_write(MotSession *session, const char *name,
                                        const MotTensor *whole);
MOT_CHECKED MotStatus mot_session_write_batch(MotSession *session, const char *name, uint32_t micro,
                                              const MotTensor *whole);
MOT_CHECKED MotStatus mot_session_read(MotSession *session, const char *name, MotTensor *out_whole);
/*
 * Parameter `name` from the elements in its file, in the file's layout (ir/layout.h), aligned or
 * not.
 */
MOT_CHECKED MotStatus mot_session_write_param(MotSession *session, const char *name,
                                              const void *file);
/* The other way: a parameter or state of the pipeline, in the shape and layout of its file. */
MOT_CHECKED MotStatus mot_session_read_param(MotSession *session, const MotBuf *buf,
                                             MotTensor *out_file);
/*
 * Whether all ranks that hold the same elements of a parameter or of state hold the same bytes, as
 * replicas do. Fails with MOT_ERR_INTERNAL, naming the first parameter and rank that differ. Reads
 * all parameters once.
 */
MOT_CHECKED MotStatus mot_session_check_copies(MotSession *session);
/*
 * Output `name` after a section, gathered; a loss is replicated, `gradient:<param>` is split like
 * its parameter.
 */
MOT_CHECKED MotStatus mot_session_output(MotSession *session, const char *name, MotSection section,
                                         MotTensor *out_value);
/*
 * The number of the next step, from 0: emulated devices change their speed by it. Without, it is 0.
 */
void mot_session_set_step(MotSession *session, int64_t step);
/* Runs a whole step (MOT_SECTION_STEP) or one section on all ranks and waits for its end. */
MOT_CHECKED MotStatus mot_session_run(MotSession *session, MotSection section);
/*
 * The two halves of mot_session_run: the host may prepare the next batch in between, but not touch
 * the ranks' buffers.
 */
void mot_session_start(MotSession *session, MotSection section);
MOT_CHECKED MotStatus mot_session_wait(MotSession *session);
/*
 * Changes the shares of an axis between two steps; parameters and states move (runtime/move.h),
 * nothing is compiled. `out_moved`: bytes that were copied. A failure ends the session.
 */
MOT_CHECKED MotStatus mot_session_reshare(MotSession *session, uint32_t stage, uint32_t axis,
                                          const int64_t *share, int64_t *out_moved);

/* Whether a rank died or hung; then what the others hold, and which ranks it was. */
bool mot_session_is_halted(const MotSession *session);
MotHeld mot_session_held(const MotSession *session);
bool mot_session_is_lost(const MotSession *session, uint32_t rank);
/*
 * Parameters and states from another session of the same graph, under whatever plan; `from` loses
 * them, so that they take memory once. It may be halted, unless they are torn.
 */
MOT_CHECKED MotStatus mot_session_take(MotSession *session, MotSession *from);

/* Other shares of an axis. */
typedef struct MotReshare {
    uint32_t stage, axis;
    const int64_t *share;
} MotReshare;

/*
 * Whether every device has the memory that it would need after all these changes, in their order:
 * MOT_ERR_INFEASIBLE, with the one that has not.
 */
MOT_CHECKED MotStatus mot_session_check_shares(MotSession *session, const MotReshare *changes,
                                               uint32_t n);
bool mot_session_fits(MotSession *session, uint32_t stage, uint32_t axis, const int64_t *share);

/*
 * Which columns of a layer that may be cut (MotProgram's cuts) a rank keeps, ascending, from the
 * next mot_session_rebind on; all of them: it cuts nothing there. At least one. Other shares make
 * ranks cut nothing.
 */
void mot_session_cut(MotSession *session, uint32_t cut, uint32_t rank, const int64_t *list,
                     int64_t n);
/*
 * Which columns of its lender's part of a lendable layer a helper computes, from the next
 * mot_session_rebind on. A rank has one lender, whose own list of columns lacks them.
 */
void mot_session_help(MotSession *session, uint32_t cut, uint32_t helper, uint32_t lender,
                      const int64_t *list, int64_t n);
/* Columns that the rank's part of the layer has. */
int64_t mot_session_columns(const MotSession *session, uint32_t cut, uint32_t rank);
/* The first of them in the whole weight. */
int64_t mot_session_first_column(const MotSession *session, uint32_t cut, uint32_t rank);
/* Of each of them -1 if nobody computes it since the last mot_session_rebind, else 0. */
const int64_t *mot_session_uncomputed(const MotSession *session, uint32_t cut, uint32_t rank);
/* Binds the ranks to the cuts that were set; nothing moves. A failure ends the session. */
MOT_CHECKED MotStatus mot_session_rebind(MotSession *session);

/* What a rank measured in the last step or section. */
const MotRankState *mot_session_rank(const MotSession *session, uint32_t rank);
/* Peak resident memory of the rank's process so far, in MiB. */
double mot_session_rank_memory(const MotSession *session, uint32_t rank);
/* The process of the rank; the host's where ranks are threads. */
int64_t mot_session_pid(const MotSession *session, uint32_t rank);
uint32_t mot_session_ranks(const MotSession *session);
/* The rank's device in the cluster. */
uint32_t mot_session_device(const MotSession *session, uint32_t rank);
/* The rank's share of axis 0 of its stage. */
int64_t mot_session_share(const MotSession *session, uint32_t rank);
const MotCluster *mot_session_cluster(const MotSession *session);
const MotPipeline *mot_session_pipeline(const MotSession *session);

#endif
