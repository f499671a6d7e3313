/* Names and exit codes of the status values: two projections of MOT_STATUS_LIST. */
#include "support/status.h"

typedef struct {
    int exit_code;
    const char *text;
} StatusInfo;

static const StatusInfo infos[] = {
#define X(name, code, text) [MOT_##name] = {code, text},
    MOT_STATUS_LIST(X)
#undef X
};

static const StatusInfo *find_info(MotStatus status)
{
    unsigned index = (unsigned)status;
    return index < sizeof infos / sizeof infos[0] ? &infos[index] : &infos[MOT_ERR_INTERNAL];
}

int mot_status_exit_code(MotStatus status)
{
    return find_info(status)->exit_code;
}

const char *mot_status_text(MotStatus status)
{
    return find_info(status)->text;
}
