/* Events between the streams. */
#include "passes/lower/events.h"

void mot_add_events(MotProgram *p, MotSection section)
{
    MotArena *arena = &p->ctx->arena;
    uint32_t *used[2], *written[2]; /* by stream and memory: the last instruction + 1 that did */
    for (int s = 0; s < 2; s++) {
        used[s] = mot_arena_array(arena, uint32_t, p->bufs.n);
        written[s] = mot_arena_array(arena, uint32_t, p->bufs.n);
    }
    uint32_t waited[2] = {0, 0}; /* by stream: it has waited for the other up to here */
    for (uint32_t i = 0; i < p->section[section].n; i++) {
        MotInstr *ins = &p->section[section].data[i];
        uint32_t newest = 0;
        for (uint32_t k = 0; k < ins->n_bufs; k++) {
            uint32_t memory = mot_program_owner(p, ins->bufs[k]);
            uint32_t last = (k < ins->n_in ? written : used)[!ins->stream][memory];
            newest = last > newest ? last : newest;
        }
        if (newest > waited[ins->stream]) {
            MotInstr *before = &p->section[section].data[newest - 1];
            if (!before->signal)
                before->signal = ++p->n_events;
            mot_vec_push(arena, &ins->wait, before->signal);
            waited[ins->stream] = newest;
        }
        for (uint32_t k = 0; k < ins->n_bufs; k++) {
            uint32_t memory = mot_program_owner(p, ins->bufs[k]);
            used[ins->stream][memory] = i + 1;
            if (k >= ins->n_in)
                written[ins->stream][memory] = i + 1;
        }
    }
}
