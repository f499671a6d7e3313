/* Starting and ending ranks. */
#include "runtime/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The whole life of a rank's process. Nothing of the host's is flushed or run at its exit. */
static _Noreturn void be_process(const MotRankArgs *args, pid_t host)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN); /* the host finishes the step, then tells the ranks */
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    MotStatus status = getppid() == host ? mot_rank_run(args) : MOT_ERR_RANK;
    _exit(status == MOT_OK ? 0 : 1);
}

static void *be_thread(void *self)
{
    MotSpawn *s = self;
    MotStatus status = mot_rank_run(&s->args);
    atomic_store(&s->has_returned, true);
    (void)status; /* stands in the rank's state */
    return NULL;
}

MotStatus mot_spawn_start(MotCtx *ctx, const MotRankArgs *args, MotSpawn *out_spawn)
{
    pid_t host = getpid();
    bool is_refused = mot_fault(ctx->faults, MOT_FAULT_start);
    int error = 0;
    *out_spawn = (MotSpawn){.args = *args};
    if (ctx->debug.ranks_are_threads) {
        error = is_refused ? errno : pthread_create(&out_spawn->thread, NULL, be_thread, out_spawn);
    } else {
        fflush(NULL);
        out_spawn->pid = is_refused ? -1 : fork();
        if (out_spawn->pid == 0)
            be_process(args, host);
        error = out_spawn->pid < 0 ? errno : 0;
    }
    if (error)
        return mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "can't start rank %u: %s", args->rank,
                        strerror(error));
    out_spawn->is_running = true;
    return MOT_OK;
}

bool mot_spawn_has_ended(const MotSpawn *s)
{
    siginfo_t info = {0};
    if (s->pid == 0)
        return atomic_load(&s->has_returned);
    return waitid(P_PID, (id_t)s->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

void mot_spawn_kill(MotSpawn *s)
{
    if (s->pid > 0)
        kill(s->pid, SIGKILL);
}

int mot_spawn_join(MotSpawn *s)
{
    int status = 0;
    if (s->pid == 0)
        pthread_join(s->thread, NULL);
    else
        while (waitpid(s->pid, &status, 0) < 0 && errno == EINTR)
            ;
    s->is_running = false;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int mot_spawn_finish(MotSpawn *s, uint32_t patience_ms)
{
    for (uint32_t ms = 0; s->pid && ms < patience_ms && !mot_spawn_has_ended(s); ms++)
        mot_sleep_until_ns(mot_now_ns() + 1000000);
    if (s->pid && !mot_spawn_has_ended(s))
        mot_spawn_kill(s);
    return mot_spawn_join(s);
}
