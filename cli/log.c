/*
 * A run that crashed has logged steps that no checkpoint holds. They are done again, so their lines
 * have to go.
 */
#include "cli/log.h"

#include "support/file.h"
#include "support/json.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the line is of a step after `first_step`. What is no JSON is not ours to remove. */
static bool is_later(MotCtx *ctx, const char *path, const char *line, size_t n, int64_t first_step)
{
    const MotJson *root;
    MotScope scope = mot_scope_begin(ctx);
    MotStatus status = mot_json_parse(ctx, MOT_ERR_DATA, path, line, n, &root);
    bool later =
        status == MOT_OK && mot_json_int(mot_json_get(root, "step"), first_step) > first_step;
    mot_error_clear(ctx);
    mot_scope_end(ctx, scope);
    return later;
}

/* Bytes of the log up to the first line that goes. */
static MotStatus measure_kept(MotCtx *ctx, const char *path, int64_t first_step, size_t *out_n)
{
    const MotFileMap *map;
    MOT_TRY(mot_file_map(ctx, path, &map));
    const char *text = (const char *)map->data, *end = text + map->n, *line = text;
    for (const char *next; line < end; line = next + 1) {
        next = memchr(line, '\n', (size_t)(end - line));
        if (!next || is_later(ctx, path, line, (size_t)(next - line), first_step))
            break;
    }
    *out_n = (size_t)(line - text);
    return MOT_OK;
}

static MotStatus cut(MotCtx *ctx, const char *path, int64_t first_step)
{
    size_t kept;
    MotScope scope = mot_scope_begin(ctx);
    MOT_TRY(measure_kept(ctx, path, first_step, &kept));
    mot_scope_end(ctx, scope);
    if (truncate(path, (off_t)kept) != 0)
        return mot_fail(ctx, MOT_ERR_IO, (MotLoc){path, NULL}, "can't be shortened: %s",
                        strerror(errno));
    return MOT_OK;
}

MotStatus mot_log_open(MotCtx *ctx, const char *path, int64_t first_step, FILE **out_log)
{
    struct stat st;
    bool is_there = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    MOT_TRY(mot_file_check_output(ctx, path));
    if (first_step && is_there)
        MOT_TRY(cut(ctx, path, first_step));
    bool is_refused = mot_fault(ctx->faults, MOT_FAULT_write);
    *out_log = is_refused ? NULL : fopen(path, first_step ? "a" : "w");
    return *out_log ? MOT_OK
                    : mot_fail(ctx, MOT_ERR_IO, (MotLoc){path, NULL}, "can't be written: %s",
                               strerror(errno));
}
