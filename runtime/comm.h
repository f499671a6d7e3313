/*
 * Communication between the ranks of a mesh: collectives with uneven parts as data. `local` executes them over shared memory: every
 * rank reads its peers' buffers and writes only its own. Reductions add in rank order, so all ranks get the same bytes.
 */
#ifndef MOTLEY_RUNTIME_COMM_H
#define MOTLEY_RUNTIME_COMM_H

#include "runtime/clock.h"
#include "runtime/shared.h"

/* One rank's view: the program, the binding of every rank, and who it is. */
typedef struct MotComm {
    MotShared *shared;
    MotClock clock; /* of the comm stream */
    const MotProgram *program;
    const MotCluster *cluster;
    const MotBinding *bindings; /* [n_ranks], by mesh position */
    uint32_t position;
    uint32_t micro;                /* the micro-batch at work */
    uint32_t passed[MOT_MAX_AXES]; /* collectives done, by axis */
    int64_t busy_ns;               /* in collectives, without waiting for peers */
} MotComm;

/*
 * Executes one collective, which the rank issued at `issued_ns` of its clock; returns when this rank's result is there and its source is
 * free. comm->clock then stands at its end.
 */
MOT_CHECKED MotStatus mot_comm_exec(MotComm *comm, const MotInstr *ins, int64_t issued_ns);
/* Executes a part or a copy, which meet nobody. */
void mot_comm_exec_local(MotComm *comm, const MotInstr *ins);

/* A whole tensor: how far apart neighbours along each dim are, in elements; NULL: row-major. */
typedef struct MotWhole {
    char *data;
    const int64_t *stride;
} MotWhole;

/*
 * Copies between a whole tensor and the part that `binding` gives of buffer `buf`: `to_whole` gathers, else scatters. Nested and
 * several split dims included. Partial values have no part.
 */
void mot_comm_copy_part(const MotProgram *program, const MotBinding *binding, uint32_t buf,
                        MotWhole whole, char *part, bool to_whole);

#endif
