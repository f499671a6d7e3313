/* The members of a training: ranks that die, and devices that join and leave between two steps. */
#ifndef MOTLEY_CLI_MEMBERS_H
#define MOTLEY_CLI_MEMBERS_H

#include "cli/train.h"

/*
 * Reads --elastic, and takes requests from now on. MOT_ERR_USAGE when the plan can't go on without
 * a device.
 */
MOT_CHECKED MotStatus mot_members_begin(MotTrainer *t);
/* Whether what failed is that ranks died or hung, and the others are to go on. */
bool mot_members_can_go_on(const MotTrainer *t, MotStatus status);
/* The failure becomes a warning. */
void mot_members_tell(MotTrainer *t);
/*
 * If the session is halted: new ranks on the devices that are left, from the last agreed step. That
 * is t->step, unless what the dead ranks held was torn: then it is the newest checkpoint's, or the
 * beginning, and the log loses what came later. Not to be called within a scope.
 */
MOT_CHECKED MotStatus mot_members_mend(MotTrainer *t);
/*
 * Answers `motley join` and `motley leave`, between two steps. What can't be done changes nothing.
 * Not to be called within a scope.
 */
MOT_CHECKED MotStatus mot_members_serve(MotTrainer *t);

#endif
