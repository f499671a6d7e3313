/*
 * A Plan as records, for mot_records_print_json. Whole texts: mot_plan_print and mot_plan_parse
 * (plan.h).
 */
#ifndef MOTLEY_IR_PLAN_TEXT_H
#define MOTLEY_IR_PLAN_TEXT_H

#include "ir/plan.h"
#include "ir/record.h"

/* The header and the plan. */
MotRecords mot_plan_to_records(const MotPlan *plan);

#endif
