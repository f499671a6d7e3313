/*
 * Faults on purpose: MOTLEY_FAIL=KIND:N has the N-th call of a kind refused, as the operating
 * system might. The contexts of a run, which may be on several threads, count together; a process
 * that is forked goes on counting by itself.
 */
#ifndef MOTLEY_SUPPORT_FAULT_H
#define MOTLEY_SUPPORT_FAULT_H

#include <stdbool.h>

/*
 * X(kind, errno): allocations; mappings; files opened to be read; files created, written, synced,
 * renamed; threads and processes.
 */
#define MOT_FAULT_LIST(X)                                                                          \
    X(alloc, ENOMEM) X(map, ENOMEM) X(open, EMFILE) X(write, ENOSPC) X(start, EAGAIN)

typedef enum MotFault {
#define X(name, error) MOT_FAULT_##name,
    MOT_FAULT_LIST(X)
#undef X
        MOT_N_FAULTS
} MotFault;
extern const char *const mot_fault_names[MOT_N_FAULTS];

typedef struct MotFaults {
    long at[MOT_N_FAULTS]; /* the call that is refused; 0: none */
    _Atomic long count[MOT_N_FAULTS];
} MotFaults;

/* Counts a call; whether it has to fail, and then errno is set. `faults` is NULL in normal runs. */
bool mot_fault(MotFaults *faults, MotFault kind);

#endif
