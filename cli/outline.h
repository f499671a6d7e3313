/*
 * What `motley explain` prints of a plan that the cost model does not know: of several stages. The
 * same facts as of others, choices, shardings, memory and traffic, without times.
 */
#ifndef MOTLEY_CLI_OUTLINE_H
#define MOTLEY_CLI_OUTLINE_H

#include "ir/program.h"
#include "support/json.h"

typedef struct MotOutline MotOutline;

/* Of a plan and its programs. `why` there is no time. */
MOT_CHECKED MotStatus mot_outline_make(const MotPlan *plan, const MotPipeline *pipeline,
                                       const char *why, MotOutline **out_outline);
/*
 * A line a layer, a device, and a kind of collective; or these as members of an open JSON object.
 */
void mot_outline_print(const MotOutline *o, MotText *out);
void mot_outline_put(const MotOutline *o, MotJsonWriter *w);
/*
 * For every operator whose node matches `glob`: what each axis splits, and the sharding of operands
 * and results. One of `out` and `w` is NULL. Fails with MOT_ERR_USAGE when nothing matches.
 */
MOT_CHECKED MotStatus mot_outline_explain(const MotOutline *o, const char *glob, MotText *out,
                                          MotJsonWriter *w);

#endif
