/* Whole files, mapped read-only. A mapping lives until the context is released. */
#ifndef MOTLEY_SUPPORT_FILE_H
#define MOTLEY_SUPPORT_FILE_H

#include "support/context.h"

typedef struct MotFileMap {
    const uint8_t *data; /* NULL for an empty file */
    size_t n;
    uint64_t device, inode; /* which file it is, whatever its name */
    int64_t mtime_ns;       /* when it was mapped */
} MotFileMap;

/*
 * Maps the regular file at `path`. MOT_ERR_IO if it cannot be read or is a folder, pipe or device
 * (opening does not block). The map is in ctx's arena. If another process cuts the file off
 * meanwhile, reading beyond raises SIGBUS, which cli/cutoff.h explains to the user.
 */
MOT_CHECKED MotStatus mot_file_map(MotCtx *ctx, const char *path, const MotFileMap **out_map);

/* The same for an open descriptor, which the caller keeps and may close. `loc` is for messages. */
MOT_CHECKED MotStatus mot_file_map_fd(MotCtx *ctx, int fd, MotLoc loc, const MotFileMap **out_map);

/*
 * Takes the map's pages out of this process's memory; they are read again when they are touched.
 * For whoever has gone through a large file once.
 */
void mot_file_forget(const MotFileMap *map);

/*
 * MOT_ERR_IO if somebody has written into the mapped file since. A file that was put in its place
 * under `path` is no matter: the mapped one is as it was.
 */
MOT_CHECKED MotStatus mot_file_check_unchanged(MotCtx *ctx, const char *path,
                                               const MotFileMap *map);

/*
 * MOT_ERR_USAGE if `path`, by whatever name, is a file that the context has mapped: what is read is
 * not to be written over.
 */
MOT_CHECKED MotStatus mot_file_check_output(MotCtx *ctx, const char *path);

/* "a folder", "a pipe", ... for a mode (struct stat) that is not that of a regular file. */
const char *mot_file_type_text(unsigned mode);

#endif
