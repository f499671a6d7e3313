/*
 * Orders the streams of a section: an instruction that reads what the other stream wrote last, or
 * writes what it touched last, waits for that instruction's event. Instructions of one stream are
 * in order without. mot_program_verify checks it. Linear in the operands.
 */
#ifndef MOTLEY_PASSES_LOWER_EVENTS_H
#define MOTLEY_PASSES_LOWER_EVENTS_H

#include "ir/program.h"

void mot_add_events(MotProgram *program, MotSection section);

#endif
