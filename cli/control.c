/*
 * A socket and no file to be polled: who asks gets an answer, or is told that the training ended before it. Looking for a request costs a
 * step one system call. Addresses of sockets are short, paths are not: they go through /proc/self/fd of the folder.
 */
#include "cli/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { LONGEST_MESSAGE = 1 << 16 };
static const char name[] = "control";

/* Binds or connects `fd` to DIR/control; 0, or what errno says. */
static int attach(int fd, const char *dir, bool binds)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int folder = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return errno;
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder, name);
    const struct sockaddr *to = (const struct sockaddr *)(const void *)&address;
    if (binds) {
        unlinkat(folder, name, 0);
        fchmod(fd, 0600); /* what the file gets: it is for this user alone */
    }
    int error = (binds ? bind : connect)(fd, to, sizeof address) == 0 ? 0 : errno;
    close(folder);
    return error;
}

static int open_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}

static void close_control(void *self)
{
    MotControl *control = self;
    char path[4096];
    if (control->fd < 0)
        return;
    close(control->fd);
    control->fd = -1;
    if (snprintf(path, sizeof path, "%s/%s", control->dir, name) < (int)sizeof path)
        unlink(path);
}

MotControl *mot_control_open(MotCtx *ctx, const char *dir)
{
    MotControl *control = mot_arena_new(&ctx->arena, MotControl);
    *control = (MotControl){-1, dir};
    mot_ctx_defer(ctx, close_control, control);
    control->fd = open_socket();
    int error = control->fd < 0 ? errno : attach(control->fd, dir, true);
    if (!error && (listen(control->fd, 8) != 0 || fcntl(control->fd, F_SETFL, O_NONBLOCK) != 0))
        error = errno;
    if (error) {
        mot_warn(ctx, (MotLoc){dir, NULL}, "no socket can be made (%s): nobody can join or leave",
                 strerror(error));
        close_control(control);
    }
    return control;
}

/* One message into ctx's arena: an object, or NULL. Waits for it as long as the socket does. */
static const MotJson *receive(MotCtx *ctx, int fd, const char *from, ssize_t *out_n)
{
    const MotJson *json;
    char text[LONGEST_MESSAGE];
    do
        *out_n = recv(fd, text, LONGEST_MESSAGE, 0);
    while (*out_n < 0 && errno == EINTR);
    if (*out_n > 0 &&
        mot_json_parse(ctx, MOT_ERR_USAGE, from, text, (size_t)*out_n, &json) == MOT_OK)
        return json;
    mot_error_clear(ctx);
    return NULL;
}

bool mot_control_next(MotCtx *ctx, const MotControl *control, MotRequest *out_request)
{
    ssize_t n;
    struct timeval patience = {.tv_usec = 100000}; /* who connects has something to say at once */
    int fd = control->fd < 0 ? -1 : accept4(control->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    *out_request = (MotRequest){fd, receive(ctx, fd, "the request", &n)};
    return true;
}

void mot_control_answer(MotRequest *request, const MotJsonWriter *answer)
{
    /* Who does not wait for it does not get it. */
    (void)!send(request->fd, answer->text.data, answer->text.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(request->fd);
}

static void close_socket(void *fd)
{
    if (*(int *)fd >= 0)
        close(*(int *)fd);
}

MotStatus mot_control_ask(MotCtx *ctx, const char *dir, const MotJsonWriter *request,
                          const MotJson **out_answer)
{
    ssize_t n;
    int *fd = mot_arena_new(&ctx->arena, int);
    *fd = -1;
    mot_ctx_defer(ctx, close_socket, fd);
    *fd = open_socket();
    int error = *fd < 0 ? errno : attach(*fd, dir, false);
    if (error == EACCES)
        return mot_fail(ctx, MOT_ERR_USAGE, (MotLoc){dir, NULL}, "is another user's training");
    if (error) {
        mot_fail(ctx, MOT_ERR_USAGE, (MotLoc){dir, NULL}, "no training runs there (%s)",
                 strerror(error));
        mot_hint(ctx, "give the --out of a training on this machine");
        return ctx->status;
    }
    if (send(*fd, request->text.data, request->text.n, MSG_NOSIGNAL) < 0)
        return mot_fail(ctx, MOT_ERR_IO, (MotLoc){dir, NULL}, "the request can't be sent: %s",
                        strerror(errno));
    *out_answer = receive(ctx, *fd, "the answer", &n);
    if (*out_answer)
        return MOT_OK;
    return mot_fail(ctx, MOT_ERR_USAGE, (MotLoc){dir, NULL},
                    "the training ended before it answered");
}
