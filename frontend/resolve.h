/*
 * Opening a file that untrusted text names, without leaving the folders that are allowed.
 *
 * The path is walked component by component with openat and O_NOFOLLOW; symbolic links are read and
 * followed by us. What is checked is therefore what is opened, whatever is renamed meanwhile.
 * Nothing is opened for reading before it is known to be a regular file inside.
 */
#ifndef MOTLEY_FRONTEND_RESOLVE_H
#define MOTLEY_FRONTEND_RESOLVE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* Folders by their absolute paths without links (realpath). A file must lie beneath one of them. */
typedef struct MotRoots {
    const char *paths[3];
    size_t n;
} MotRoots;

typedef struct MotResolved {
    int fd;              /* -1 on failure */
    bool is_missing;     /* failed only since there is no such file */
    const char *problem; /* a constant text on failure */
    char path[PATH_MAX]; /* how far the walk came; the resolved path on success */
} MotResolved;

/*
 * Opens `location`, relative to roots->paths[base], for reading. `is_strict` refuses symbolic and
 * hard links. Neither allocates nor blocks; the caller closes out->fd.
 */
void mot_resolve(const MotRoots *roots, size_t base, const char *location, bool is_strict,
                 MotResolved *out);

#endif
