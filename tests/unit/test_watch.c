/*
 * Who is to blame: ranks that published what they wait for, and hang or die. The ranks here are
 * processes that sleep; what they published is set by hand, so that every graph of waiting can be
 * tried.
 */
#include "runtime/host.h"
#include "tests/test_ctx.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_RANKS = 4, N_CHANNELS = 2, NOBODY = -1 };

/* Gates have cache lines of their own, of which an arena knows nothing. */
static void *in_lines(MotArena *arena, size_t bytes)
{
    enum { LINE = 64 };
    uintptr_t place = (uintptr_t)mot_arena_alloc(arena, bytes + LINE);
    return (void *)((place + LINE - 1) / LINE * LINE);
}

/* Four ranks in one command, whose program has a single all-reduce. */
static MotSession *make_session(MotCtx *ctx, double hang_seconds)
{
    MotArena *arena = &ctx->arena;
    MotProgram *p = mot_arena_new(arena, MotProgram);
    MotSession *s = mot_arena_new(arena, MotSession);
    p->mesh = (MotMesh){.n_axes = 1,
                        .n_devices = N_RANKS,
                        .devices = mot_arena_array(arena, uint32_t, N_RANKS),
                        .axis = {{"d", N_RANKS, mot_arena_array(arena, int64_t, N_RANKS)}}};
    for (uint32_t i = 0; i < N_RANKS; i++)
        p->mesh.devices[i] = i;
    mot_vec_push(arena, &p->section[MOT_SECTION_STEP],
                 (MotInstr){.kind = MOT_INS_ALL_REDUCE, .origin = "/mlp/MatMul"});
    *s = (MotSession){.ctx = ctx,
                      .cluster = mot_cluster_make(ctx, N_RANKS, 1),
                      .opts = {.hang_seconds = hang_seconds, .is_elastic = true},
                      .bindings = mot_arena_array(arena, MotBinding, N_RANKS),
                      .n_commands = 1};
    s->pipeline = mot_pipeline_make(ctx, &p, 1, NULL, 0);
    s->shared = in_lines(arena, sizeof *s->shared + N_RANKS * sizeof *s->shared->rank);
    s->shared->n_ranks = N_RANKS;
    s->shared->command = MOT_CMD_RUN;
    s->shared->mail = in_lines(arena, sizeof(MotMail) * N_CHANNELS * N_RANKS);
    for (uint32_t i = 0; i < N_RANKS; i++) {
        atomic_store(&s->shared->rank[i].section, MOT_SECTION_STEP);
        s->rank[i].pid = fork();
        if (s->rank[i].pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
        s->rank[i].is_running = true;
    }
    return s;
}

static void let_wait(MotSession *s, uint32_t rank, MotGate *gate)
{
    atomic_store(&s->shared->rank[rank].target, 1);
    atomic_store(&s->shared->rank[rank].awaited, gate);
}

/* Everybody waits for the rank given, or for NOBODY, at gates that have not opened. */
static void let_all_wait(MotSession *s, const int *awaited)
{
    for (uint32_t i = 0; i < N_RANKS; i++)
        if (awaited[i] != NOBODY)
            let_wait(s, i, &s->shared->rank[awaited[i]].arrived[0]);
}

static void expect(MotSession *s, const char *message)
{
    assert_int_equal(mot_watch_wait(s), MOT_ERR_RANK);
    if (!strstr(mot_text_get(&s->ctx->error), message))
        fail_msg("\"%s\" is not in\n%s", message, mot_text_get(&s->ctx->error));
    for (uint32_t i = 0; i < N_RANKS; i++)
        assert_false(s->rank[i].is_running);
}

/*
 * The sink is named, however long the way there is, and even if another rank is at work that fewer
 * wait for.
 */
static void the_sink_hangs(void **state)
{
    static const struct {
        int awaited[N_RANKS];
        const char *message;
    } cases[] = {
        {{1, 2, 3, NOBODY},
         "rank 3 (device cpu3) hangs in step instruction 0 (all_reduce of node \"/mlp/MatMul\")"},
        {{1, 2, 3, NOBODY}, "rank 0 waits for rank 1, rank 1 for rank 2, rank 2 for rank 3"},
        {{NOBODY, 2, NOBODY, 2}, "rank 2 (device cpu2) hangs"},
        {{NOBODY, 0, 3, NOBODY}, "rank 0 (device cpu0) hangs"}, /* as many wait for 3: the first */
        {{1, 0, 3, NOBODY},
         "rank 3 (device cpu3) hangs"}, /* nobody who waits in a circle can be it */
        {{NOBODY, NOBODY, NOBODY, NOBODY}, "rank 0 (device cpu0) hangs"},
        {{1, 2, 3, 0}, "and all others wait for one another"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        MotSession *s = make_session(&ctx, 0.05);
        let_all_wait(s, cases[i].awaited);
        expect(s, cases[i].message);
        mot_ctx_deinit(&ctx);
    }
}

/* A gate that has opened is waited for no longer; one of a channel belongs to a rank too. */
static void whose_gate_it_is(void **state)
{
    MotSession *s = make_session(*state, 0.05);
    let_wait(s, 0, &s->shared->mail[1 * N_RANKS + 2].taken);
    let_wait(s, 1, &s->shared->rank[3].left[0]);
    let_wait(s, 3, &s->shared->mail[0 * N_RANKS + 2].sent);
    let_wait(s, 2, &s->shared->rank[0].arrived[0]);
    mot_gate_open(&s->shared->rank[0].arrived[0]);
    expect(s, "rank 2 (device cpu2) hangs");
    assert_non_null(strstr(mot_text_get(&s->ctx->error),
                           "rank 0 waits for rank 2, rank 1 for rank 3, rank 3 for rank 2"));
}

/* Who needs no more of the rank that hangs has finished: that is said. */
static void who_has_finished_is_told(void **state)
{
    MotSession *s = make_session(*state, 0.05);
    mot_gate_open(&s->shared->rank[1].finished);
    mot_gate_open(&s->shared->rank[3].finished);
    let_wait(s, 0, &s->shared->rank[2].arrived[0]);
    expect(s, "rank 2 (device cpu2) hangs");
    assert_non_null(strstr(mot_text_get(&s->ctx->error),
                           "rank 0 waits for rank 2, rank 1 has finished, rank 3 has finished"));
}

/*
 * Whoever dies is lost, and so is whoever works on without getting anywhere; who waits for them is
 * not.
 */
static void the_dead_and_the_hung_are_lost(void **state)
{
    static const bool is_lost[N_RANKS] = {false, true, true, false};
    MotSession *s = make_session(*state, 0.2);
    let_all_wait(s, (const int[]){1, NOBODY, NOBODY, 1});
    kill(s->rank[1].pid, SIGKILL);
    expect(s, "rank 1 (device cpu1) was killed by signal 9 (Killed) in step instruction 0");
    assert_non_null(
        strstr(mot_text_get(&s->ctx->error), "rank 0 waits for rank 1, rank 3 for rank 1"));
    assert_non_null(strstr(mot_text_get(&s->ctx->error), "rank 2 (device cpu2) is lost too"));
    for (uint32_t i = 0; i < N_RANKS; i++)
        assert_int_equal(mot_session_is_lost(s, i), is_lost[i]);
}

/* All that died at once are named, whether the others go on or not. */
static void all_dead_are_named(void **state)
{
    (void)state;
    for (int is_elastic = 0; is_elastic < 2; is_elastic++) {
        MotCtx ctx;
        siginfo_t info;
        mot_ctx_init(&ctx);
        MotSession *s = make_session(&ctx, 0.2);
        s->opts.is_elastic = is_elastic;
        let_all_wait(s, (const int[]){1, NOBODY, NOBODY, NOBODY});
        for (uint32_t i = 1; i < N_RANKS; i++) {
            kill(s->rank[i].pid, SIGKILL);
            waitid(P_PID, (id_t)s->rank[i].pid, &info, WEXITED | WNOWAIT);
        }
        expect(s, "rank 1 (device cpu1) was killed by signal 9 (Killed) in step instruction 0");
        assert_non_null(strstr(mot_text_get(&ctx.error), "rank 2 (device cpu2) is lost too\n"));
        assert_non_null(strstr(mot_text_get(&ctx.error), "rank 3 (device cpu3) is lost too\n"));
        assert_null(strstr(mot_text_get(&ctx.error), "rank 0 (device cpu0)"));
        mot_ctx_deinit(&ctx);
    }
}

/*
 * Without a limit for hanging, too, those whom a death leaves in a circle of waiting are stopped at
 * once.
 */
static void survivors_in_a_circle_are_stopped(void **state)
{
    MotSession *s = make_session(*state, 0);
    let_all_wait(s, (const int[]){3, NOBODY, 0, 2});
    kill(s->rank[1].pid, SIGKILL);
    expect(s, "rank 1 (device cpu1) was killed by signal 9 (Killed)");
    for (uint32_t i = 0; i < N_RANKS; i++)
        assert_int_equal(mot_session_is_lost(s, i), i == 1);
}

/* Who has nothing left to do is waited for, and ended if it does not end. */
static void who_does_not_end_is_ended(void **state)
{
    (void)state;
    for (int is_stopped = 0; is_stopped < 2; is_stopped++) {
        MotSpawn s = {.is_running = true, .pid = fork()};
        if (s.pid == 0) {
            usleep(20000);
            _exit(0);
        }
        if (is_stopped)
            kill(s.pid, SIGSTOP);
        assert_int_equal(mot_spawn_finish(&s, is_stopped ? 50 : 60000), is_stopped ? SIGKILL : 0);
        assert_false(s.is_running);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_sink_hangs),
                                       TEST(whose_gate_it_is),
                                       TEST(who_has_finished_is_told),
                                       TEST(the_dead_and_the_hung_are_lost),
                                       cmocka_unit_test(all_dead_are_named),
                                       TEST(survivors_in_a_circle_are_stopped),
                                       cmocka_unit_test(who_does_not_end_is_ended)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
