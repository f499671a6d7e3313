/*
 * The handler of SIGBUS. Which file it was is asked of the kernel, by the address, in
 * /proc/self/maps: no table of mappings is kept for it. Everything here may run in a signal
 * handler: open, read, write, _exit, and no memory but the stack.
 */
#include "cli/cutoff.h"

#include "support/status.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { LINE = PATH_MAX + 128 };

typedef struct {
    int fd;
    char bytes[4096];
    ssize_t n, next;
} Reader;

/* Cuts off what is longer than `line`. False at the end. */
static bool read_line(Reader *r, char line[LINE])
{
    size_t n = 0;
    for (;;) {
        if (r->next == r->n) {
            r->n = read(r->fd, r->bytes, sizeof r->bytes);
            r->next = 0;
        }
        if (r->n <= 0)
            return false;
        char c = r->bytes[r->next++];
        if (c == '\n')
            break;
        if (n < LINE - 1)
            line[n++] = c;
    }
    line[n] = 0;
    return true;
}

static uintptr_t read_hex(const char **text)
{
    uintptr_t value = 0;
    for (;; (*text)++) {
        char c = **text;
        if (c >= '0' && c <= '9')
            value = value * 16 + (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + (uintptr_t)(c - 'a' + 10);
        else
            return value;
    }
}

/*
 * `first-end r--p offset device inode   path`: the path, if the line is of a private read-only
 * mapping of a file around the address.
 */
static const char *match(const char *line, uintptr_t address)
{
    uintptr_t first = read_hex(&line);
    line += *line == '-';
    uintptr_t end = read_hex(&line);
    if (address < first || address >= end || strncmp(line, " r--p ", 6) != 0)
        return NULL;
    return strchr(line, '/');
}

static void say(const char *text)
{
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n; /* there is nobody else to tell */
}

static void tell_cutoff(int signal_number, siginfo_t *info, void *machine)
{
    (void)machine;
    Reader reader = {.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    char line[LINE];
    const char *path = NULL;
    while (!path && reader.fd >= 0 && read_line(&reader, line))
        path = match(line, (uintptr_t)info->si_addr);
    if (!path) { /* the access is done again, and kills */
        signal(signal_number, SIG_DFL);
        return;
    }
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    say(isatty(STDERR_FILENO) ? "\nmotley: " : "motley: "); /* below a line of progress */
    say(path);
    say(": was shortened while it was in use\n");
    _exit(mot_status_exit_code(MOT_ERR_DATA));
}

void mot_cutoff_watch(void)
{
    struct sigaction action = {.sa_sigaction = tell_cutoff, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
}
