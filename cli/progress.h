/*
 * What `train` says on the way. Away from a terminal a line a step; on a terminal one line that is
 * painted over, and under it a strip with a bar a device: how much of the step it was busy.
 */
#ifndef MOTLEY_CLI_PROGRESS_H
#define MOTLEY_CLI_PROGRESS_H

#include "support/context.h"

#include <stdio.h>

typedef struct MotStepReport {
    int64_t step, steps; /* done, in all */
    double loss, norm, lr, ms;
    double rate; /* units a second */
    const char *unit;
    double mfu, balance; /* parts of 1; norm and mfu are NaN where they are not known */
    const double *busy;  /* part of the step, a device */
} MotStepReport;

typedef struct MotProgress {
    FILE *out; /* NULL: silent */
    bool is_terminal, has_color;
    const char *const *devices; /* their names */
    uint32_t n_devices;
    uint32_t n_painted; /* lines to paint over */
} MotProgress;

/* `out` may be NULL. The names are borrowed. */
void mot_progress_init(MotProgress *p, FILE *out, const char *const *devices, uint32_t n_devices);
void mot_progress_step(MotProgress *p, MotArena *arena, const MotStepReport *report);
/* Takes the painted lines away, so that something else can be written. */
void mot_progress_clear(MotProgress *p);
/* Leaves the painted lines where they are and goes on below them. */
void mot_progress_end(MotProgress *p);

/*
 * The two lines for a terminal of `columns`: neither is longer. Fields and names that do not fit
 * are left out. Exposed for the test.
 */
const char *mot_progress_line(MotArena *arena, const MotStepReport *report, uint32_t columns);
const char *mot_progress_strip(const MotProgress *p, MotArena *arena, const double *busy,
                               uint32_t columns);

#endif
