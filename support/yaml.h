/*
 * Reading YAML (libfyaml behind it). Anchors, aliases and several documents in one text are
 * refused.
 */
#ifndef MOTLEY_SUPPORT_YAML_H
#define MOTLEY_SUPPORT_YAML_H

#include "support/context.h"

/*
 * A node of a parsed document; freed with the context. NULL stands for an empty value and is
 * accepted everywhere.
 */
typedef struct MotYaml MotYaml;

/* Fails with `status` (of the caller's choice) naming file and line. An empty text gives NULL. */
MOT_CHECKED MotStatus mot_yaml_parse(MotCtx *ctx, MotStatus status, const char *file,
                                     const char *text, size_t n, const MotYaml **out_root);
bool mot_yaml_is_map(const MotYaml *node);
bool mot_yaml_is_list(const MotYaml *node);
/* Length of a list and its i-th item; 0 and NULL for other nodes. */
uint32_t mot_yaml_length(const MotYaml *list);
const MotYaml *mot_yaml_at(const MotYaml *list, uint32_t i);
/* Calls `visit` for each member in the order of the text; stops at the first failure. */
MotStatus mot_yaml_each(MotCtx *ctx, const MotYaml *map,
                        MotStatus (*visit)(void *self, const MotYaml *key, const MotYaml *value),
                        void *self);
/* The text of a scalar, copied; NULL for other nodes. */
const char *mot_yaml_string(MotCtx *ctx, const MotYaml *node);
/* `line 3` of `file`, for messages. */
MotLoc mot_yaml_loc(MotCtx *ctx, const char *file, const MotYaml *node);

#endif
