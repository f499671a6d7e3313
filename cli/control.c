/*
 * A socket and no file to be polled: who asks gets an answer, or is told that the training ended
 * before it. Looking for a request costs a step one system call. Addresses of sockets are short,
 * paths are not: they go through /proc/self/fd of the folder.
 */
#include "cli/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

/* Takes the client out of those that have not said anything. */
static int release_client(MotControl *control, uint32_t i)
{
    int fd = control->client[i];
    control->n_clients--;
    for (; i < control->n_clients; i++)
        control->client[i] = control->client[i + 1];
    return fd;
}

void mot_control_close(MotControl *control)
{
    char path[4096];
    if (control->fd < 0)
        return;
    while (control->n_clients > 0)
        close(release_client(control, 0));
    close(control->fd);
    control->fd = -1;
    if (snprintf(path, sizeof path, "%s/%s", control->dir, name) < (int)sizeof path)
        unlink(path);
}

static void close_control(void *control)
{
    mot_control_close(control);
}

MotControl *mot_control_open(MotCtx *ctx, const char *dir)
{
    MotControl *control = mot_arena_new(&ctx->arena, MotControl);
    *control = (MotControl){.fd = -1, .dir = dir};
    mot_ctx_defer(ctx, close_control, control);
    control->fd = open_socket();
    int error = control->fd < 0 ? errno : attach(control->fd, dir, true);
    if (!error && (listen(control->fd, 8) != 0 || fcntl(control->fd, F_SETFL, O_NONBLOCK) != 0))
        error = errno;
    if (error) {
        mot_warn(ctx, (MotLoc){dir, NULL}, "no socket can be made (%s): nobody can join or leave",
                 strerror(error));
        mot_control_close(control);
    }
    return control;
}

/*
 * One message into ctx's arena: an object, or NULL where it is none or the other side is gone.
 * False: nothing has come yet, of a socket that does not wait.
 */
static bool receive(MotCtx *ctx, int fd, const char *from, const MotJson **out_json)
{
    ssize_t n;
    char text[LONGEST_MESSAGE];
    *out_json = NULL;
    do
        n = recv(fd, text, LONGEST_MESSAGE, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return false;
    if (n > 0 && mot_json_parse(ctx, MOT_ERR_USAGE, from, text, (size_t)n, out_json) != MOT_OK) {
        mot_error_clear(ctx);
        *out_json = NULL;
    }
    return true;
}

/* Those who have connected since the last time; the longest silent ones make room. */
static void accept_clients(MotControl *control)
{
    for (int i = 0; control->fd >= 0 && i < MOT_CONTROL_CLIENTS; i++) {
        int fd = accept4(control->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        if (control->n_clients == MOT_CONTROL_CLIENTS)
            close(release_client(control, 0));
        control->client[control->n_clients++] = fd;
    }
}

bool mot_control_next(MotCtx *ctx, MotControl *control, MotRequest *out_request)
{
    accept_clients(control);
    for (uint32_t i = 0; i < control->n_clients; i++)
        if (receive(ctx, control->client[i], "the request", &out_request->json)) {
            out_request->fd = release_client(control, i);
            return true;
        }
    return false;
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
    bool is_sent = send(*fd, request->text.data, request->text.n, MSG_NOSIGNAL) >= 0;
    if (!is_sent && errno != EPIPE && errno != ECONNRESET) /* of these, it has just ended */
        return mot_fail(ctx, MOT_ERR_IO, (MotLoc){dir, NULL}, "the request can't be sent: %s",
                        strerror(errno));
    if (is_sent && receive(ctx, *fd, "the answer", out_answer) && *out_answer)
        return MOT_OK;
    return mot_fail(ctx, MOT_ERR_USAGE, (MotLoc){dir, NULL},
                    "the training ended before it answered");
}
