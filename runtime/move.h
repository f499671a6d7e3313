/*
 * What a change of shares moves: the parameters, states, inputs and constants, from the places that
 * one binding gives them to those of another. The host does it, between two steps.
 *
 * A persistent buffer has room for its whole tensor on every rank, and a row (an entry of its
 * outermost dim) has the same place there under any shares. So where shares change only which rows
 * a rank holds, nothing moves but the rows that change their owner, straight from rank to rank. A
 * tensor that is split along an inner dim is dense in every part: it passes through `room` as a
 * whole, one tensor at a time.
 */
#ifndef MOTLEY_RUNTIME_MOVE_H
#define MOTLEY_RUNTIME_MOVE_H

#include "runtime/shared.h"

typedef struct MotMover {
    const MotRankState *ranks; /* of the program's mesh */
    uint32_t n_ranks;
    const MotProgram *program;
    const MotBinding *from, *to; /* [n_ranks] */
} MotMover;

/* Bytes of room that mot_mover_run needs: of the largest tensor that can't go straight. */
size_t mot_mover_room(const MotMover *mover);
/* Gives back the whole pages in [begin, end) of an arena. */
void mot_mover_release(char *begin, char *end);
/* Moves all, and gives back the pages that no part needs any more. Returns the bytes copied. */
int64_t mot_mover_run(const MotMover *mover, char *room);

#endif
