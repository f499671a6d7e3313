/* The verbs of the command. Each is one file; main.c lists them. */
#ifndef MOTLEY_CLI_VERBS_H
#define MOTLEY_CLI_VERBS_H

#include "job/args.h"

extern const MotVerb mot_verb_import, mot_verb_run, mot_verb_grad, mot_verb_check, mot_verb_plan,
    mot_verb_explain, mot_verb_train, mot_verb_bench, mot_verb_sample, mot_verb_opt, mot_verb_ckpt,
    mot_verb_probe, mot_verb_top, mot_verb_join, mot_verb_leave;

#endif
