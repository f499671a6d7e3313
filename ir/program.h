/*
 * Program: one instruction list, the same on every rank of a stage's mesh; a plan of several stages
 * is a Pipeline of Programs. What differs between ranks is only the binding: the value of each dim.
 * A dim is split by one mesh axis; sizes, strides, bytes and offsets are evaluated from the dims
 * once a binding, never in the step.
 *
 * A buffer may be a view of another one's memory: the same elements under another shape, or whole
 * entries of the outermost dim. So a slice moves nothing, and what a concat joins is written where
 * it belongs.
 *
 * Kernels are small graphs whose types may name dims; every backend runs or compiles that graph.
 * Collectives name the dim along which uneven parts lie. Events order the streams: an instruction
 * starts when all events in `wait` were signalled. A collective runs from its place in the program
 * to its completion (mot_program_completions), beside the instructions between.
 *
 * A batched launch runs its kernel on several sets of buffers, such as all parameters with their
 * gradients and states. Such a kernel sees every buffer of a set as one line of elements: it has
 * one symbol, @n, and types [@n] or scalars. @n differs by set; it is evaluated at binding as well.
 *
 * A rank may cut a layer (ZERO-resizing): leave columns of the weight's contraction out of the
 * layer's products. Such a layer has two sets of launches, one for ranks that cut there and one for
 * those that don't; how many columns a rank keeps is a dim like any other.
 *
 * Instructions stand in sections; a step runs sections in `order`, some of them once a micro-batch.
 * What micro-batch m leaves for a later section of its own lies in copy m % copies of its buffer.
 */
#ifndef MOTLEY_IR_PROGRAM_H
#define MOTLEY_IR_PROGRAM_H

#include "ir/plan.h"

/*
 * A split dim: the part of `size` that mesh axis `axis` gives this rank, in units of `granule`.
 * With `parent` (an index + 1) the size is the local size of that dim: two axes split one dim, the
 * outer one first. With `of_one` that part is one granule of the outer one at most, because
 * elsewhere the two split two dims: shares that give a rank more can't be bound.
 */
typedef struct MotDim {
    const char *name;
    uint32_t axis, parent;
    int64_t size, granule;
    bool of_one;
    uint32_t cut; /* index + 1: no part of a split, but what the ranks do there: */
    enum MotCutDim {
        MOT_DIM_KEPT,    /* columns that a rank computes itself, 0 if it computes all */
        MOT_DIM_LENT,    /* columns that others compute for it */
        MOT_DIM_HELPED,  /* columns that it computes for its lender */
        MOT_DIM_HELPERS, /* who compute columns for it */
        MOT_DIM_HELPS,   /* 1 if it computes columns for its lender */
        MOT_DIM_LENDERS  /* the size that dim `parent` has at the lender; 0 without one */
    } what;
} MotDim;

typedef enum MotBufKind {
    MOT_BUF_SCRATCH, /* lives from its first writer to its last reader */
    MOT_BUF_PARAM,   /* lives on; gathered into checkpoints (optimizer states too) */
    MOT_BUF_INPUT,   /* filled by the host before the step */
    MOT_BUF_SCALAR,  /* lr, step: set by the host before the step */
    MOT_BUF_CONSTANT,
    MOT_BUF_STEP,  /* lives through a step, one for all its micro-batches: accumulated sums */
    MOT_BUF_LOCAL, /* lives on; every rank has contents of its own, which nobody else asks for */
    MOT_N_BUF_KINDS
} MotBufKind;
extern const char *const mot_buf_kind_names[MOT_N_BUF_KINDS];

typedef struct MotBuf {
    MotBufKind kind;
    const char *name; /* of the parameter, input or scalar; else NULL */
    MotType type;     /* local: a dim < 0 is dims[-dim - 1] */
    MotType global;   /* of the whole value */
    MotSharding sharding;
    const MotOp *source; /* param and constant: the op in the plan's graph */
    uint32_t copies;     /* at least 1; more for micro-batches in flight, and for inputs */
    bool is_sent; /* another stage reads it when it gets there: it lives to the end of the step */
    /* index + 1 of the buffer in whose memory this one lies; 0: memory of its own */
    uint32_t alias;
    int64_t alias_start; /* from which entry of that buffer's outermost dim on */
} MotBuf;

/*
 * A layer that may be cut: a weight, and its columns along one dim. Every rank has its own list of
 * columns, which the host writes between steps. Positions are local ones, of the rank's part of the
 * weight.
 *
 * Columns may also be lent (SEMI-migration): others compute them. Whom a rank helps is one for all
 * layers. The columns that are lent are numbered lender by lender, helper by helper; so what goes
 * to helpers and comes back is a dim that is split anew.
 */
typedef struct MotCut {
    uint32_t param;  /* the weight's buffer */
    int param_dim;   /* the dim that its columns are numbered along */
    uint32_t dim;    /* the dim that says how many are kept */
    uint32_t list;   /* buffer, i64[dim]: the columns kept, ascending */
    uint32_t place;  /* buffer, i64[columns]: the place of each in the list, -1: it is cut */
    uint32_t held;   /* buffer, i64[columns]: 0, or -1: it is cut and nobody computes it */
    int64_t *n_kept; /* [n_devices] by mesh position; 0: the rank cuts nothing here */
    bool is_lendable;
    uint32_t lent, lent_place;     /* as list and place: of columns that others compute */
    uint32_t helped, helped_place; /* of those that the rank computes, among its own input's */
    uint32_t dim_lent, dim_helped;
    int64_t *n_helped; /* [n_devices]: columns that the rank computes for its lender */
    double flops;      /* of the layer's products, a step, uncut, of all ranks */
} MotCut;

typedef struct MotKernel {
    const char *name; /* k_<hash of the graph text> */
    /* inputs in operand order, outputs in result order; symbols are the program's dims */
    MotGraph *graph;
    const void *image; /* compiled for a CPU (support/image.h), or NULL */
    size_t image_bytes;
} MotKernel;

typedef enum MotInstrKind {
    MOT_INS_LAUNCH,         /* kernel; bufs: operands, then results, of all sets */
    MOT_INS_ALL_REDUCE,     /* collectives: bufs are sources, then as many destinations */
    MOT_INS_REDUCE_SCATTER, /* destination is the own part of `dim` */
    MOT_INS_ALL_GATHER,     /* source is the own part of `dim` */
    /* source is split along `dim`, destination along `dim_out` (or elsewhere along `dim`) */
    MOT_INS_ALL_TO_ALL,
    MOT_INS_PART, /* no communication: destination is the own part of source along `dim` */
    MOT_INS_COPY, /* destination = source (a new parameter value) */
    /* bufs: the own part of what goes over `channel`; it stays as it is until it was received */
    MOT_INS_SEND,
    MOT_INS_RECV, /* bufs: the own part, in whatever sharding, of what comes over `channel` */
    MOT_N_INS
} MotInstrKind;
extern const char *const mot_instr_names[MOT_N_INS];

typedef enum MotStream { MOT_STREAM_COMPUTE, MOT_STREAM_COMM } MotStream;

/* At which micro-batches of a step an instruction runs. */
typedef enum MotWhen { MOT_WHEN_ALL, MOT_WHEN_FIRST, MOT_WHEN_LATER } MotWhen;

/* The dims of one source and destination that the axis splits, or -1. */
typedef struct MotMove {
    int dim, dim_out;
} MotMove;

typedef struct MotInstr {
    MotInstrKind kind;
    MotStream stream;
    uint32_t kernel, n_sets;      /* launch; n_sets > 0: a batched one */
    uint32_t *bufs, n_bufs, n_in; /* the first n_in are read, the others written */
    uint32_t axis;                /* collectives and part: the mesh axis */
    MotMove *moves;               /* collectives and part: [n_in] */
    bool is_max;                  /* reduction: maximum instead of sum */
    uint32_t channel;             /* send and receive */
    MotWhen when;
    uint32_t cut; /* launch, and exchange: index + 1 of a cut that decides who runs it; 0: all do */
    enum MotWho {
        MOT_WHO_WHOLE,  /* ranks that compute all of the layer */
        MOT_WHO_CUTS,   /* ranks that don't */
        MOT_WHO_LENDS,  /* of these, those for which others compute some of it */
        MOT_WHO_HELPS,  /* ranks that do so for another */
        MOT_WHO_IF_LENT /* all ranks, if there is a lender; exchanges are for them */
    } who;
    MotVec(uint32_t) wait; /* events */
    uint32_t signal;       /* event, 0: none */
    const char *origin;
    MotRole role;
} MotInstr;

/* The first three run once a micro-batch, and are empty where a step has only one. */
typedef enum MotSection {
    /* for all micro-batches before the others: what these need of all, the number of labels */
    MOT_SECTION_COUNT,
    MOT_SECTION_FORWARD,
    MOT_SECTION_BACKWARD,
    MOT_SECTION_STEP, /* once a step: the update; with one micro-batch, everything */
    MOT_SECTION_EVAL, /* not part of a step */
    MOT_N_SECTIONS
} MotSection;
extern const char *const mot_section_names[MOT_N_SECTIONS];

/* One run of a section, for one micro-batch. */
typedef struct MotRun {
    MotSection section;
    uint32_t micro;
} MotRun;

#define MOT_NO_BUF UINT32_MAX

/*
 * An output of the graph: the buffer that holds it, whole, after the step and after the eval
 * section, or MOT_NO_BUF.
 */
typedef struct MotOutput {
    const char *name;
    uint32_t buf, eval_buf;
} MotOutput;

typedef struct MotProgram {
    MotCtx *ctx;
    const char *name;
    MotMesh mesh;
    MotVec(MotDim) dims;
    MotVec(MotCut) cuts;
    /* [n_devices]: mesh position + 1 that a rank computes columns for, 0: none; NULL: no lending */
    int64_t *lender;
    MotVec(MotBuf) bufs;
    MotVec(MotKernel) kernels;
    MotVec(MotInstr) section[MOT_N_SECTIONS];
    uint32_t n_micro;     /* micro-batches a step */
    MotVec(MotRun) order; /* what a step runs */
    MotVec(MotOutput) outputs;
    uint32_t n_events;
} MotProgram;

/*
 * What goes from one stage to another, once a micro-batch or once a step: a value in its buffer
 * there and here. Every rank of the sending stage sends and every rank of the receiving stage
 * receives; what of a part comes from whom follows from the bindings.
 */
typedef struct MotChannel {
    uint32_t from, to;       /* stages */
    uint32_t source, target; /* buffers of their programs */
} MotChannel;

/* What a host can read after a section. */
typedef struct MotResult {
    const char *name;
    MotType type;
} MotResult;

/* The programs of all stages. Ranks are numbered stage by stage, in a stage by mesh position. */
typedef struct MotPipeline {
    MotCtx *ctx;
    MotVec(MotProgram *) stages;
    MotVec(MotChannel) channels;
    MotVec(const MotBuf *) vars; /* parameters, inputs and scalars, each name once */
    MotVec(MotResult) results;   /* the outputs of all stages */
} MotPipeline;

/* Of these stages and channels, which stay as they are from now on. */
MotPipeline *mot_pipeline_make(MotCtx *ctx, MotProgram *const *stages, uint32_t n_stages,
                               const MotChannel *channels, uint32_t n_channels);
uint32_t mot_pipeline_ranks(const MotPipeline *pipeline);
/* The first rank of a stage. */
uint32_t mot_pipeline_first_rank(const MotPipeline *pipeline, uint32_t stage);
/* The stage of a rank. */
uint32_t mot_pipeline_stage(const MotPipeline *pipeline, uint32_t rank);
/*
 * Buffer `name` (param, input, scalar) of the first stage from *stage on that has it; false if none
 * has.
 */
bool mot_pipeline_find(const MotPipeline *pipeline, const char *name, uint32_t *stage,
                       uint32_t *out_buf);

/*
 * The numbers of one rank under one share vector an axis. Everything the walker needs; computed in
 * microseconds to milliseconds.
 */
typedef struct MotBinding {
    uint32_t position; /* in the mesh */
    /* [dims.n]: local size, offset in the whole dim (in the parent's part for nested dims) */
    int64_t *size, *offset;
    MotType *types;        /* [bufs.n]: concrete local types */
    int64_t *arena_offset; /* [bufs.n]: bytes into the rank's arena, of the first copy */
    int64_t *stride;       /* [bufs.n]: bytes from one copy to the next */
    /* of the arena's addresses that persistent buffers have room in: for their whole tensors */
    int64_t room_bytes;
    int64_t arena_bytes; /* memory that the rank needs */
} MotBinding;

/*
 * Evaluates the dims for mesh position `position` and lays out the buffers: persistent ones first,
 * each with room for its whole tensor and a row at the same place under any shares, then scratch
 * ones reusing memory by lifetime. The shares are those in program->mesh.
 */
MOT_CHECKED MotStatus mot_program_bind(MotCtx *ctx, const MotProgram *program, uint32_t position,
                                       MotBinding *out_binding);
/* The same for every rank. */
MOT_CHECKED MotStatus mot_pipeline_bind(MotCtx *ctx, const MotPipeline *pipeline,
                                        MotBinding *out_bindings);
/* The buffer that owns the memory of `buf`. */
uint32_t mot_program_owner(const MotProgram *program, uint32_t buf);
/* Where the copy of `buf` that micro-batch `micro` uses begins, in bytes into the rank's arena. */
int64_t mot_program_offset(const MotProgram *program, const MotBinding *binding, uint32_t buf,
                           uint32_t micro);
/*
 * Where the part along dim `d` of a buffer begins in the whole tensor: dims that several axes split
 * are nested.
 */
int64_t mot_program_part_offset(const MotProgram *program, const MotBinding *binding, uint32_t buf,
                                int d);
/* Whether the section runs once a micro-batch. */
bool mot_section_is_repeated(MotSection section);
/* Whether the instruction has a part in this micro-batch. */
bool mot_instr_is_due(const MotInstr *ins, uint32_t micro);
/* Evaluates dim i, which is one of a cut. */
void mot_program_bind_cut(const MotProgram *program, MotBinding *binding, uint32_t i);
/*
 * Whether the binding's rank never runs the launch: it is for ranks that cut a layer, or for those
 * that don't.
 */
bool mot_instr_is_idle(const MotProgram *program, const MotBinding *binding, const MotInstr *ins);
/* Whether it is a launch, and the size of a buffer of its follows the shares. */
bool mot_instr_is_resizable(const MotProgram *program, const MotInstr *ins);
/*
 * How many messages of this step must have been received before the `send` of this run ends: with
 * them the copy of the buffer is free to which the next micro-batch writes. A send that nothing
 * overwrites in the step waits for none.
 */
uint32_t mot_program_must_be_taken(const MotProgram *program, const MotInstr *send, MotRun run);
/* Bytes rounded up to what a buffer in an arena takes. */
int64_t mot_program_align(int64_t bytes);
/* A kernel's graph with its symbolic dims replaced by these sizes. */
MotGraph *mot_program_bind_kernel(MotCtx *ctx, const MotProgram *program, uint32_t kernel,
                                  const int64_t *sizes);

/* How many sets of buffers a launch has: 1 if it isn't batched. */
uint32_t mot_launch_sets(const MotInstr *launch);
/* Buffer k of a set: operands, then results, in the order of the kernel. */
uint32_t mot_launch_buf(const MotInstr *launch, uint32_t set, uint32_t k);
/*
 * The sizes of the kernel's symbols: those of set s are at [s]. The binding's, or in ctx's arena.
 */
const int64_t *mot_launch_sizes(MotCtx *ctx, const MotProgram *program, const MotInstr *launch,
                                const MotBinding *binding);

/*
 * Proves before anything starts: views lie inside their buffers; buffers (all parts of them) are
 * written before they are read, and no two have one name; launches have buffers of their kernel's
 * types; collectives on existing axes and dims, and on their stream; shapes of sources and
 * destinations fit; waits acyclic (an event is signalled before it is waited for in program order);
 * no stream touches what the other may still write, or writes what it may still read; what a rank
 * that cuts a layer reads it has made, and what the others read they have.
 */
MOT_CHECKED MotStatus mot_program_verify(const MotProgram *program);
/* Collectives that are issued and not complete. What they read and write lives as long. */
enum { MOT_MAX_IN_FLIGHT = 3 };
/*
 * By instruction: before which position the collective there is complete. That is the first
 * instruction that waits for its event, or for one of a collective after it (a stream keeps its
 * order), or that would be one too many in flight; or else the end of the section.
 */
uint32_t *mot_program_completions(MotCtx *ctx, const MotProgram *program, MotSection section);
/* Whether an instruction meets the other ranks of its axis. */
bool mot_instr_is_collective(const MotInstr *ins);

/*
 * Each program verified, and all together: every channel has one send and one receive of the same
 * value that run equally often, and the stages come to the end of a step and of an evaluation
 * whatever their speeds: no order of theirs waits for itself. Time: instructions of a step.
 */
MOT_CHECKED MotStatus mot_pipeline_verify(const MotPipeline *pipeline);

/* The text form (docs/ir.md). There is no parser for it. */
void mot_program_print(const MotProgram *program, MotText *text);

#endif
