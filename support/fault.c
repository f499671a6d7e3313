/* Counting up to a fault. */
#include "support/fault.h"

#include <errno.h>
#include <stdatomic.h>

const char *const mot_fault_names[MOT_N_FAULTS] = {
#define X(name, error) #name,
    MOT_FAULT_LIST(X)
#undef X
};
static const int errors[MOT_N_FAULTS] = {
#define X(name, error) error,
    MOT_FAULT_LIST(X)
#undef X
};

bool mot_fault(MotFaults *faults, MotFault kind)
{
    if (!faults || atomic_fetch_add(&faults->count[kind], 1) + 1 != faults->at[kind])
        return false;
    errno = errors[kind];
    return true;
}
