/*
 * Patterns over the graph, written as text:
 *
 *     ?x                 any value; a second ?x must be the same value
 *     ?x=PATTERN         what the pattern matches, named
 *     0, 0.5, ~0.7071    a constant whose elements all equal that number, or are within 1e-4 of it
 *     #c                 a constant whose elements all are equal, named
 *     add(P, Q)          the first result of an op with exactly these operands; of commutative ops
 *                        in either order
 *     add                the first result of that op, whatever its operands
 *     product(P, Q, 2)   factors in any order and association, written with mul, neg or div by a
 *                        constant; the constants among them are multiplied into one, which must be
 *                        the number (1 if the pattern has none)
 *     *, pointwise       any op that is no source or sink, any pointwise op
 *
 * Matching backtracks over orders and associations, so that a pattern is found if it is there.
 * Cost: exponential only in the size of the pattern.
 */
#ifndef MOTLEY_PASSES_GRAPH_MATCH_H
#define MOTLEY_PASSES_GRAPH_MATCH_H

#include "ir/builder.h"

typedef struct MotPattern MotPattern;

/* A broken pattern is our bug: fails with MOT_ERR_INTERNAL. */
MOT_CHECKED MotStatus mot_pattern_parse(MotCtx *ctx, const char *text, MotPattern **out_pattern);
/* Whether an op of that kind can be the root of a match. */
bool mot_pattern_may_match(const MotPattern *pattern, MotOpKind kind);

/* What a rule's action sees: the match, and where to build. */
typedef struct MotMatch {
    MotGraph *graph;
    MotBuilder *b;           /* appends with the root's origin, role and forward op */
    MotValue root;           /* the value that the action replaces */
    MotValue value[26];      /* ?a .. ?z */
    double number[26];       /* #a .. #z */
    const uint32_t *uses;    /* how often each value is read */
    uint32_t n_uses;         /* values of a higher id are new: read once */
    MotValue old[2], new[2]; /* what else is replaced (mot_match_replace) */
    uint32_t n_replaced;
} MotMatch;

bool mot_pattern_match(const MotPattern *pattern, MotMatch *match, MotValue root);

/* ?x and #c by letter: mot_match_value(m, 'x'). */
static inline MotValue mot_match_value(const MotMatch *m, char letter)
{
    return m->value[letter - 'a'];
}
static inline double mot_match_number(const MotMatch *m, char letter)
{
    return m->number[letter - 'a'];
}
static inline const MotType *mot_match_type(const MotMatch *m, char letter)
{
    return mot_graph_type(m->graph, m->value[letter - 'a']);
}
/* The op that defines ?x, or the root; the pointer lasts until the next op is built. */
static inline const MotOp *mot_match_def(const MotMatch *m, char letter)
{
    return mot_graph_def(m->graph, m->value[letter - 'a']);
}
static inline const MotOp *mot_match_root(const MotMatch *m)
{
    return mot_graph_def(m->graph, m->root);
}
/*
 * Beside the root, `old` becomes `new`: for actions that find several results of one composite. At
 * most 2 a match.
 */
void mot_match_replace(MotMatch *m, MotValue old, MotValue new);
/* Whether only one operand in the graph reads the value: replacing its reader leaves it dead. */
bool mot_match_is_single_use(const MotMatch *m, MotValue v);

/*
 * Whether v is a constant, perhaps reshaped or broadcast, whose elements all are equal (and which
 * it is).
 */
bool mot_value_is_uniform(const MotGraph *g, MotValue v, double *out_number);

#endif
