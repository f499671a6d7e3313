/*
 * Rewrite rules: tables of a pattern and an action, and the one driver that applies them.
 *
 * A rule replaces the value that its pattern matches by the one its action builds, of the same
 * type. The driver sweeps over the ops, operands first, until no rule fires; it counts firings in
 * the context (MOTLEY_RULE_LIMIT stops there) and logs them by rule at debug level.
 */
#ifndef MOTLEY_PASSES_GRAPH_REWRITE_H
#define MOTLEY_PASSES_GRAPH_REWRITE_H

#include "passes/graph/match.h"

typedef struct MotRule {
    const char *name;
    const char *pattern;             /* match.h */
    MotValue (*action)(MotMatch *m); /* 0: does not apply */
} MotRule;

typedef struct MotRules {
    const MotRule *data;
    uint32_t n;
} MotRules;
/* Initialises a MotRules. */
#define MOT_RULES(array) {(array), sizeof(array) / sizeof *(array)}

/*
 * Applies the tables, earlier rules first, to a fixpoint and compacts the graph if there were
 * firings (*out_changed; value ids are stale then). Cost: a sweep is linear in ops times rules; as
 * many sweeps as rewrites enable one another.
 */
MOT_CHECKED MotStatus mot_rewrite(MotGraph *g, const MotRules *tables, uint32_t n_tables,
                                  bool *out_changed);

/*
 * An action for rules whose result is ?x: broadcast to the root's shape where the other operand had
 * made it larger.
 */
MotValue mot_rule_to_x(MotMatch *m);

#endif
