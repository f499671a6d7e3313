/* Files written so that a reader sees the old or the new content, never half of it. */
#ifndef MOTLEY_SUPPORT_WRITER_H
#define MOTLEY_SUPPORT_WRITER_H

#include "support/context.h"

/*
 * A file that is written piece by piece and appears under its path, synced, only at
 * mot_writer_close; what fails closes and removes it. A path that is a device or a pipe gets every
 * piece at once.
 */
typedef struct MotWriter {
    MotCtx *ctx;
    const char *path;
    char *temporary; /* NULL: a device or a pipe */
    int fd;
    uint64_t bytes;
} MotWriter;

MOT_CHECKED MotStatus mot_writer_open(MotCtx *ctx, const char *path, MotWriter *out_writer);
MOT_CHECKED MotStatus mot_writer_add(MotWriter *writer, const void *data, size_t bytes);
MOT_CHECKED MotStatus mot_writer_close(MotWriter *writer);

/* The three in one. */
MOT_CHECKED MotStatus mot_file_write(MotCtx *ctx, const char *path, const void *data, size_t bytes);
/* Makes a directory and those above it; one that is there already is fine. */
MOT_CHECKED MotStatus mot_file_make_dir(MotCtx *ctx, const char *path);

typedef struct MotFileLock MotFileLock;
/*
 * Takes the file at `path` for this process until the context is released; makes it. MOT_ERR_USAGE
 * that names the other process if one has it. A lock ends with its process: what a killed one left
 * behind does not count, and children do not hold it.
 */
MOT_CHECKED MotStatus mot_file_lock(MotCtx *ctx, const char *path, MotFileLock **out_lock);
/* Gives it up before that; once more is no harm. */
void mot_file_unlock(MotFileLock *lock);
/* Whether another process holds it. */
bool mot_file_is_locked(const char *path);

#endif
