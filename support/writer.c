/*
 * A temporary file beside the target, fsync, rename. A device or a pipe is not replaced by a file
 * but written to.
 */
#include "support/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Closes and removes the temporary file. */
static void abandon(MotWriter *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    if (w->temporary)
        unlink(w->temporary);
}

static MotStatus fail_write(MotWriter *w)
{
    int error = errno;
    abandon(w);
    return mot_fail(w->ctx, MOT_ERR_IO, (MotLoc){w->path, NULL}, "can't be written: %s",
                    strerror(error));
}

/*
 * Makes PATH.PID-N, with the permissions that the umask leaves: mkstemp would give it those of a
 * secret. A name that is taken, by another thread or a run that was killed, is passed over.
 */
static void open_temporary(MotWriter *w)
{
    enum { MOST_TAKEN = 1000 };
    for (int i = 0; i < MOST_TAKEN && w->fd < 0; i++) {
        w->temporary = mot_arena_printf(&w->ctx->arena, "%s.%d-%d", w->path, (int)getpid(), i);
        w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd < 0 && errno != EEXIST)
            return;
    }
}

MotStatus mot_writer_open(MotCtx *ctx, const char *path, MotWriter *out_writer)
{
    struct stat st;
    bool is_file = stat(path, &st) != 0 || S_ISREG(st.st_mode);
    *out_writer = (MotWriter){.ctx = ctx, .path = path, .fd = -1};
    if (!mot_fault(ctx->faults, MOT_FAULT_write)) {
        if (is_file)
            open_temporary(out_writer);
        else
            out_writer->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    }
    if (out_writer->fd < 0)
        return mot_fail(ctx, MOT_ERR_IO, (MotLoc){path, NULL}, "can't be written: %s",
                        strerror(errno));
    return MOT_OK;
}

MotStatus mot_writer_add(MotWriter *w, const void *data, size_t bytes)
{
    const char *p = data;
    while (bytes) {
        ssize_t n = mot_fault(w->ctx->faults, MOT_FAULT_write) ? -1 : write(w->fd, p, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_write(w);
        p += n;
        bytes -= (size_t)n;
        w->bytes += (size_t)n;
    }
    return MOT_OK;
}

MotStatus mot_writer_close(MotWriter *w)
{
    MotFaults *faults = w->ctx->faults;
    if (mot_fault(faults, MOT_FAULT_write) || (w->temporary && fsync(w->fd) != 0))
        return fail_write(w);
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0 || mot_fault(faults, MOT_FAULT_write) ||
        (w->temporary && rename(w->temporary, w->path) != 0))
        return fail_write(w);
    return MOT_OK;
}

MotStatus mot_file_write(MotCtx *ctx, const char *path, const void *data, size_t bytes)
{
    MotWriter w;
    MOT_TRY(mot_writer_open(ctx, path, &w));
    MOT_TRY(mot_writer_add(&w, data, bytes));
    return mot_writer_close(&w);
}

/* As mkdir, with the folders above. `path` is as it was afterwards. */
static int make_dirs(char *path)
{
    char *slash = strrchr(path, '/');
    if (mkdir(path, 0777) == 0)
        return 0;
    if (errno != ENOENT || !slash || slash == path)
        return -1;
    *slash = 0;
    int made = make_dirs(path);
    *slash = '/';
    return made == 0 || errno == EEXIST ? mkdir(path, 0777) : -1;
}

MotStatus mot_file_make_dir(MotCtx *ctx, const char *path)
{
    struct stat st;
    char *copy = mot_arena_strdup(&ctx->arena, path);
    int made = mot_fault(ctx->faults, MOT_FAULT_write) ? -1 : make_dirs(copy);
    if (made == 0 || (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return MOT_OK;
    return mot_fail(ctx, MOT_ERR_IO, (MotLoc){path, NULL}, "can't be made a directory: %s",
                    strerror(errno));
}

struct MotFileLock {
    int fd; /* -1: it is given up */
};

void mot_file_unlock(MotFileLock *lock)
{
    if (lock->fd >= 0)
        close(lock->fd);
    lock->fd = -1;
}

static void unlock(void *lock)
{
    mot_file_unlock(lock);
}

MotStatus mot_file_lock(MotCtx *ctx, const char *path, MotFileLock **out_lock)
{
    MotFileLock *held = *out_lock = mot_arena_new(&ctx->arena, MotFileLock);
    held->fd = -1;
    mot_ctx_defer(ctx, unlock, held);
    bool is_refused = mot_fault(ctx->faults, MOT_FAULT_write);
    held->fd = is_refused ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (held->fd >= 0 && fcntl(held->fd, F_SETLK, &lock) == 0)
        return MOT_OK;
    if (held->fd < 0 || (errno != EACCES && errno != EAGAIN))
        return mot_fail(ctx, MOT_ERR_IO, (MotLoc){path, NULL}, "can't be locked: %s",
                        strerror(errno));
    bool is_known = fcntl(held->fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    return mot_fail(ctx, MOT_ERR_USAGE, (MotLoc){path, NULL}, "is held by another process (%lld)",
                    is_known ? (long long)lock.l_pid : -1);
}

bool mot_file_is_locked(const char *path)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool is_held = fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    if (fd >= 0)
        close(fd);
    return is_held;
}
