/* Whole files, mapped read-only. A mapping lives until the context is released. */
#ifndef MOTLEY_SUPPORT_FILE_H
#define MOTLEY_SUPPORT_FILE_H

#include "support/context.h"

typedef struct MotFileMap {
    const uint8_t *data; /* NULL for an empty file */
    size_t n;
} MotFileMap;

/*
 * Maps the regular file at `path`. MOT_ERR_IO if it cannot be read or is a folder, pipe or device (opening does not
 * block). The map is in ctx's arena. If another process cuts the file off meanwhile, reading beyond raises SIGBUS.
 */
MOT_CHECKED MotStatus mot_file_map(MotCtx *ctx, const char *path, const MotFileMap **out_map);

/* The same for an open descriptor, which the caller keeps and may close. `loc` is for messages. */
MOT_CHECKED MotStatus mot_file_map_fd(MotCtx *ctx, int fd, MotLoc loc, const MotFileMap **out_map);

/*
 * Takes the map's pages out of this process's memory; they are read again when they are touched. For whoever has gone
 * through a large file once.
 */
void mot_file_forget(const MotFileMap *map);

/* "a folder", "a pipe", ... for a mode (struct stat) that is not that of a regular file. */
const char *mot_file_type_text(unsigned mode);

#endif
