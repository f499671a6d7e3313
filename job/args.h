/*
 * Command lines: every verb has a table of options; parsing, --help and the man page read the same
 * table.
 */
#ifndef MOTLEY_JOB_ARGS_H
#define MOTLEY_JOB_ARGS_H

#include "support/context.h"

/*
 * `value` is the placeholder in the help text; NULL: a flag. Options may be repeated where their
 * reader takes lists.
 */
typedef struct MotOption {
    const char *name, *value, *help;
} MotOption;

typedef struct MotArgs MotArgs;

typedef struct MotShareList {
    const char *axis; /* NULL: not named */
    int64_t *data;
    uint32_t n;
} MotShareList;

/* Every verb takes them too. */
extern const MotOption mot_common_options[];

typedef struct MotVerb {
    const char *name;
    const char *operands; /* "MODEL", "DIR..." */
    const char *summary;
    const MotOption *const *options; /* groups, each ended by a NULL name; the list by NULL */
    MotStatus (*run)(MotCtx *ctx, const MotArgs *args);
} MotVerb;

MOT_CHECKED MotStatus mot_args_parse(MotCtx *ctx, const MotVerb *verb, int argc, char **argv,
                                     const MotArgs **out_args);

/* Operand i, or NULL. */
const char *mot_args_operand(const MotArgs *args, uint32_t i);
/* The operand, or MOT_ERR_USAGE. */
MOT_CHECKED MotStatus mot_args_need_operand(MotCtx *ctx, const MotArgs *args, uint32_t i,
                                            const char **out_operand);
bool mot_args_has(const MotArgs *args, const char *option);
/* The last value of the option, or `otherwise`. */
const char *mot_args_get(const MotArgs *args, const char *option, const char *otherwise);
/* All values of the option, in order. */
const char *const *mot_args_list(const MotArgs *args, const char *option, uint32_t *out_n);
MOT_CHECKED MotStatus mot_args_int(MotCtx *ctx, const MotArgs *args, const char *option,
                                   int64_t least, int64_t most, int64_t otherwise,
                                   int64_t *out_value);
MOT_CHECKED MotStatus mot_args_number(MotCtx *ctx, const MotArgs *args, const char *option,
                                      double otherwise, double *out_value);
/* "8/4/2/1" or "AXIS=8/4/2/1": integers >= 0, not all 0. */
MOT_CHECKED MotStatus mot_args_shares(MotCtx *ctx, const char *text, MotShareList *out_shares);

/* The options of the groups as they were given, each as "--name=value" or "--name". */
const char **mot_args_texts(MotCtx *ctx, const MotArgs *args, const MotOption *const *groups,
                            uint32_t *out_n);
/* Whether mot_args_texts of these groups could give this text. */
bool mot_args_is_text(const MotOption *const *groups, const char *text);
/* The same command line, with those of these options added that it lacks and the verb takes. */
const MotArgs *mot_args_with(MotCtx *ctx, const MotArgs *args, const char *const *options,
                             uint32_t n);

#endif
