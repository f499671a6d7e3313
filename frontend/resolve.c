/*
 * The walk keeps three things: the folder reached (a descriptor), its path as text, and the
 * components still to go.
 */
#include "frontend/resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/file.h"

enum { MAX_LINKS = 40 };

typedef struct Walk {
    int dir;
    MotResolved *out;
    char rest[2 * PATH_MAX]; /* what is left of the path */
    char name[NAME_MAX + 1]; /* the component at hand */
    int n_links;
    bool is_strict;
} Walk;

static bool fail_walk(Walk *w, const char *problem)
{
    w->out->problem = problem;
    return false;
}

static bool fail_errno(Walk *w)
{
    w->out->is_missing = errno == ENOENT || errno == ENOTDIR;
    return fail_walk(w, strerrordesc_np(errno));
}

/*
 * Moves to the folder `name` beneath the present one; the path has been or will be updated by the
 * caller.
 */
static bool enter_dir(Walk *w, const char *name)
{
    int fd = openat(w->dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(w);
    close(w->dir);
    w->dir = fd;
    return true;
}

static bool restart(Walk *w, const char *path)
{
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(w);
    if (w->dir >= 0)
        close(w->dir);
    w->dir = fd;
    snprintf(w->out->path, sizeof w->out->path, "%s", strcmp(path, "/") ? path : "");
    return true;
}

static bool append_name(Walk *w)
{
    size_t n = strlen(w->out->path), more = strlen(w->name);
    if (n + 1 + more >= sizeof w->out->path)
        return fail_walk(w, "the path is too long");
    w->out->path[n] = '/';
    memcpy(w->out->path + n + 1, w->name, more + 1);
    return true;
}

static void drop_name(Walk *w)
{
    char *slash = strrchr(w->out->path, '/');
    if (slash)
        *slash = 0;
}

/* Takes the next component off `rest` into `name`, which is empty if there is none. */
static bool take_name(Walk *w)
{
    char *from = w->rest + strspn(w->rest, "/");
    size_t n = strcspn(from, "/");
    if (n > NAME_MAX)
        return fail_walk(w, "a component of the path is too long");
    memcpy(w->name, from, n);
    w->name[n] = 0;
    memmove(w->rest, from + n, strlen(from + n) + 1);
    return true;
}

/* The component is a link, open as `fd`: puts its target in front of the rest. */
static bool follow_link(Walk *w, int fd)
{
    char target[PATH_MAX];
    if (w->is_strict)
        return fail_walk(w, "symbolic links are refused (--strict)");
    if (++w->n_links > MAX_LINKS)
        return fail_walk(w, "too many symbolic links");
    ssize_t n = readlinkat(fd, "", target, sizeof target - 1);
    if (n < 0)
        return fail_errno(w);
    if (n == 0 || (size_t)n + strlen(w->rest) + 1 > sizeof w->rest)
        return fail_walk(w, "the path is too long");
    memmove(w->rest + n, w->rest, strlen(w->rest) + 1);
    memcpy(w->rest, target, (size_t)n);
    return target[0] == '/' ? restart(w, "/") : true;
}

/*
 * Looks at the component `name`: a folder or link is walked on; a file ends the walk with
 * *out_is_file.
 */
static bool step(Walk *w, struct stat *st, bool *out_is_file)
{
    if (strcmp(w->name, ".") == 0)
        return true;
    if (strcmp(w->name, "..") == 0) {
        drop_name(w);
        return enter_dir(w, "..");
    }
    int fd = openat(w->dir, w->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    bool ok = fd >= 0 && fstat(fd, st) == 0;
    if (!ok)
        ok = fail_errno(w);
    else if (S_ISLNK(st->st_mode))
        ok = follow_link(w, fd);
    else if (!append_name(w))
        ok = false;
    else if (S_ISDIR(st->st_mode))
        ok = enter_dir(w, w->name);
    else
        *out_is_file = true;
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool is_beneath(const MotRoots *roots, const char *path)
{
    for (size_t i = 0; i < roots->n; i++) {
        size_t n = strlen(roots->paths[i]);
        if (strcmp(roots->paths[i], "/") == 0 ||
            (strncmp(path, roots->paths[i], n) == 0 && path[n] == '/'))
            return true;
    }
    return false;
}

/*
 * Opens the file `name` of the folder for reading and makes sure that it is the one that was looked
 * at.
 */
static bool open_file(Walk *w, const MotRoots *roots, const struct stat *seen)
{
    struct stat st;
    if (!is_beneath(roots, w->out->path))
        return fail_walk(w, "this lies outside of the model's folder");
    if (!S_ISREG(seen->st_mode))
        return fail_walk(w, mot_file_type_text(seen->st_mode));
    if (w->is_strict && seen->st_nlink > 1)
        return fail_walk(w, "hard links are refused (--strict)");
    w->out->fd = openat(w->dir, w->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (w->out->fd < 0)
        return fail_errno(w);
    if (fstat(w->out->fd, &st) != 0)
        return fail_errno(w);
    if (st.st_dev != seen->st_dev || st.st_ino != seen->st_ino)
        return fail_walk(w, "the file was replaced while it was opened");
    return true;
}

static bool walk(Walk *w, const MotRoots *roots)
{
    struct stat st = {0};
    bool is_file = false;
    while (take_name(w)) {
        if (!w->name[0])
            return is_file ? open_file(w, roots, &st) : fail_walk(w, "a folder");
        if (is_file) {
            w->out->is_missing = true;
            return fail_walk(w, "a component of the path is a file");
        }
        if (!step(w, &st, &is_file))
            return false;
        if (is_file && w->rest[strspn(w->rest, "/")] == 0)
            return open_file(w, roots, &st);
    }
    return false;
}

void mot_resolve(const MotRoots *roots, size_t base, const char *location, bool is_strict,
                 MotResolved *out)
{
    *out = (MotResolved){.fd = -1};
    Walk w = {.dir = -1, .out = out, .is_strict = is_strict};
    bool ok = restart(&w, roots->paths[base]);
    if (ok && strlen(location) >= PATH_MAX)
        ok = fail_walk(&w, "the path is too long");
    if (ok) {
        snprintf(w.rest, sizeof w.rest, "%s", location);
        ok = walk(&w, roots);
    }
    if (!ok && out->fd >= 0) {
        close(out->fd);
        out->fd = -1;
    }
    if (w.dir >= 0)
        close(w.dir);
}
