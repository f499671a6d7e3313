/*
 * A Graph as a record: what texts that contain graphs (Plans, Programs) embed. Whole files:
 * mot_graph_print and _parse.
 */
#ifndef MOTLEY_IR_GRAPH_TEXT_H
#define MOTLEY_IR_GRAPH_TEXT_H

#include "ir/graph.h"
#include "ir/record.h"

enum { MOT_GRAPH_TEXT_VERSION = 1 };

/*
 * `graph @name { ... }`, one record an op in the order of the body. A value is %name where its name
 * is plain, begins with a letter or `_` and is unique; else %n, n counting results from 1: its id
 * once the graph is compact.
 */
MotRecord mot_graph_to_record(const MotGraph *g);
/* The way back; types and attributes are checked. `file` is for messages. */
MOT_CHECKED MotStatus mot_graph_from_record(MotCtx *ctx, const char *file, const MotRecord *record,
                                            MotGraph **out_graph);
/* The header and the graph, for mot_records_print_json. */
MotRecords mot_graph_to_records(const MotGraph *g);

/*
 * A type of the graph as its record: dims below zero become names. A dim that the graph has no name
 * for is @undefined.
 */
MotRecordType mot_type_to_record(const MotGraph *g, const MotType *type);

#endif
