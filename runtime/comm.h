/*
 * Communication between the ranks of a mesh, and between stages: collectives with uneven parts as
 * data. `local` executes them over shared memory: every rank reads its peers' buffers and writes
 * only its own. Reductions add in rank order, so all ranks get the same bytes.
 */
#ifndef MOTLEY_RUNTIME_COMM_H
#define MOTLEY_RUNTIME_COMM_H

#include "runtime/clock.h"
#include "runtime/shared.h"

/* One rank's view: the programs, the binding of every rank, and who it is. */
typedef struct MotComm {
    MotShared *shared;
    MotClock clock; /* of the comm stream */
    const MotPipeline *pipeline;
    const MotCluster *cluster;
    const MotBinding *all_bindings; /* [ranks of all stages] */
    uint32_t stage, position;
    const MotProgram *program;     /* of the own stage; so all that follows */
    MotRankState *ranks;           /* by mesh position */
    const MotBinding *bindings;    /* by mesh position */
    MotRun run;                    /* the section and micro-batch at work */
    uint32_t passed[MOT_MAX_AXES]; /* collectives done, by axis */
    int64_t needed_ns; /* since when the rank has nothing to do but the collective at hand */
    int64_t busy_ns;   /* communicating since then, without waiting for peers */
} MotComm;

/*
 * Executes one collective, which the rank issued at `issued_ns` of its clock; returns when this
 * rank's result is there and its source is free. comm->clock then stands at its end.
 */
MOT_CHECKED MotStatus mot_comm_exec(MotComm *comm, const MotInstr *ins, int64_t issued_ns);
/* Executes a part or a copy, which meet nobody. */
void mot_comm_exec_local(MotComm *comm, const MotInstr *ins);
/*
 * Executes a send or a receive, at the time of the rank's `clock`; what it waits is counted in the
 * rank's state.
 */
MOT_CHECKED MotStatus mot_comm_exec_stage(MotComm *comm, const MotInstr *ins, MotClock *clock);

/* A whole tensor: how far apart neighbours along each dim are, in elements; NULL: row-major. */
typedef struct MotWhole {
    char *data;
    const int64_t *stride;
} MotWhole;

/*
 * Copies between a whole tensor and the part that `binding` gives of buffer `buf`: `to_whole`
 * gathers, else scatters. Nested and several split dims included. Partial values have no part.
 */
void mot_comm_copy_part(const MotProgram *program, const MotBinding *binding, uint32_t buf,
                        MotWhole whole, char *part, bool to_whole);

#endif
