/*
 * A mapping's record is registered before the mapping exists, so that running out of memory leaks
 * nothing.
 */
#include "support/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *mot_file_type_text(unsigned mode)
{
    static const struct {
        unsigned type;
        const char *text;
    } types[] = {
        {S_IFDIR, "a folder"}, {S_IFIFO, "a pipe"},    {S_IFCHR, "a device"},
        {S_IFBLK, "a device"}, {S_IFSOCK, "a socket"}, {S_IFLNK, "a symbolic link"},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if ((mode & S_IFMT) == types[i].type)
            return types[i].text;
    return "no regular file";
}

static int64_t mtime_of(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static void unmap(void *handle)
{
    MotFileMap *map = handle;
    if (map->data)
        munmap((void *)map->data, map->n);
}

MotStatus mot_file_map_fd(MotCtx *ctx, int fd, MotLoc loc, const MotFileMap **out_map)
{
    MotFileMap *map = mot_arena_new(&ctx->arena, MotFileMap);
    mot_ctx_defer(ctx, unmap, map);
    struct stat st;
    if (fstat(fd, &st) != 0)
        return mot_fail(ctx, MOT_ERR_IO, loc, "%s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return mot_fail(ctx, MOT_ERR_IO, loc, "is %s, not a file", mot_file_type_text(st.st_mode));
    *out_map = map;
    *map = (MotFileMap){.device = st.st_dev, .inode = st.st_ino, .mtime_ns = mtime_of(&st)};
    if (st.st_size == 0)
        return MOT_OK;
    void *data = mot_fault(ctx->faults, MOT_FAULT_map)
                     ? MAP_FAILED
                     : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return mot_fail(ctx, MOT_ERR_IO, loc, "cannot be mapped: %s", strerror(errno));
    map->data = data;
    map->n = (size_t)st.st_size;
    return MOT_OK;
}

/*
 * A mapping keeps its inode, so that no later file gets its number; of an empty file there is none.
 */
static bool is_file_of(const MotFileMap *map, const struct stat *st)
{
    return map->data && map->device == st->st_dev && map->inode == st->st_ino;
}

MotStatus mot_file_check_unchanged(MotCtx *ctx, const char *path, const MotFileMap *map)
{
    struct stat st;
    if (stat(path, &st) != 0 || !is_file_of(map, &st) ||
        (map->n == (size_t)st.st_size && map->mtime_ns == mtime_of(&st)))
        return MOT_OK;
    return mot_fail(ctx, MOT_ERR_IO, (MotLoc){path, NULL}, "was changed since it was read");
}

MotStatus mot_file_check_output(MotCtx *ctx, const char *path)
{
    struct stat st;
    bool is_there = stat(path, &st) == 0;
    for (uint32_t i = 0; is_there && i < ctx->deferred.n; i++)
        if (ctx->deferred.data[i].release == unmap && is_file_of(ctx->deferred.data[i].handle, &st))
            return mot_fail(ctx, MOT_ERR_USAGE, (MotLoc){path, NULL},
                            "is read here, it can't be written over");
    return MOT_OK;
}

void mot_file_forget(const MotFileMap *map)
{
    if (map->data)
        madvise((void *)map->data, map->n, MADV_DONTNEED);
}

typedef struct MapCall {
    int fd;
    MotLoc loc;
    const MotFileMap **out_map;
} MapCall;

static MotStatus map_body(MotCtx *ctx, void *arg)
{
    MapCall *call = arg;
    return mot_file_map_fd(ctx, call->fd, call->loc, call->out_map);
}

MotStatus mot_file_map(MotCtx *ctx, const char *path, const MotFileMap **out_map)
{
    MotLoc loc = {path, NULL};
    int fd =
        mot_fault(ctx->faults, MOT_FAULT_open) ? -1 : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return mot_fail(ctx, MOT_ERR_IO, loc, "%s", strerror(errno));
    MapCall call = {fd, loc, out_map};
    MotStatus status = mot_ctx_run(ctx, map_body, &call);
    close(fd);
    return status;
}
