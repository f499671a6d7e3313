/*
 * Requests to a training: what is sent arrives and is answered; nonsense, silence and long paths
 * are borne; nobody waits for ever.
 */
#include "cli/control.h"
#include "support/file.h"
#include "support/writer.h"
#include "tests/test_ctx.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

/* Who asks, in a thread of its own. */
typedef struct {
    const char *dir, *text;
    pthread_t thread;
    MotStatus status;
    char answer[64], error[256];
} Client;

static void *ask(void *self)
{
    Client *c = self;
    MotCtx ctx;
    MotJsonWriter w;
    const MotJson *answer;
    mot_ctx_init(&ctx);
    mot_json_begin(&w, &ctx.arena);
    mot_text_puts(&w.text, c->text);
    c->status = mot_control_ask(&ctx, c->dir, &w, &answer);
    if (c->status == MOT_OK)
        snprintf(c->answer, sizeof c->answer, "%s",
                 mot_json_string(mot_json_get(answer, "said"), ""));
    snprintf(c->error, sizeof c->error, "%s", mot_text_get(&ctx.error));
    mot_ctx_deinit(&ctx);
    return NULL;
}

static void start(Client *c, const char *dir, const char *text)
{
    *c = (Client){.dir = dir, .text = text};
    assert_int_equal(pthread_create(&c->thread, NULL, ask, c), 0);
}

static char root[] = "/tmp/motley-control-XXXXXX";

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static const char *make_dir(MotCtx *ctx)
{
    char *dir = mot_arena_printf(&ctx->arena, "%s/XXXXXX", root);
    assert_non_null(mkdtemp(dir));
    return dir;
}

/* The next request; waits for it. */
static MotRequest take(MotCtx *ctx, MotControl *control)
{
    MotRequest request;
    while (!mot_control_next(ctx, control, &request))
        usleep(1000);
    return request;
}

static void answer(MotCtx *ctx, MotRequest *request, const char *said)
{
    MotJsonWriter w;
    mot_json_begin(&w, &ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_string(&w, "said", said);
    mot_json_close(&w, '}');
    mot_control_answer(request, &w);
}

static void a_request_is_answered(void **state)
{
    MotCtx *ctx = *state;
    const char *dir = make_dir(ctx);
    MotControl *control = mot_control_open(ctx, dir);
    MotRequest request;
    Client a, b;
    assert_false(mot_control_next(ctx, control, &request));
    start(&a, dir, "{\"verb\": \"leave\"}");
    request = take(ctx, control);
    assert_string_equal(mot_json_string(mot_json_get(request.json, "verb"), ""), "leave");
    start(&b, dir, "{\"verb\": \"join\"}"); /* waits for its turn */
    answer(ctx, &request, "yes");
    pthread_join(a.thread, NULL);
    assert_int_equal(a.status, MOT_OK);
    assert_string_equal(a.answer, "yes");
    request = take(ctx, control);
    answer(ctx, &request, "no");
    pthread_join(b.thread, NULL);
    assert_string_equal(b.answer, "no");
}

static void nonsense_is_a_request_without_content(void **state)
{
    static const char *const texts[] = {"", "{", "verb", "[1, 2", "{\"verb\": \"\xff\"}"};
    MotCtx *ctx = *state;
    const char *dir = make_dir(ctx);
    MotControl *control = mot_control_open(ctx, dir);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Client c;
        start(&c, dir, texts[i]);
        MotRequest request = take(ctx, control);
        assert_null(request.json);
        assert_int_equal(ctx->status, MOT_OK);
        answer(ctx, &request, "what");
        pthread_join(c.thread, NULL);
        assert_string_equal(c.answer, "what");
    }
}

static int connect_to(const char *dir)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/control", dir);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    const struct sockaddr *place = (const void *)&address;
    assert_true(fd >= 0 && connect(fd, place, sizeof address) == 0);
    return fd;
}

/*
 * Who connects and says nothing holds nobody up, and is heard when it does; who goes away without
 * waiting does no harm.
 */
static void silence_is_borne(void **state)
{
    MotCtx *ctx = *state;
    const char *dir = make_dir(ctx);
    MotControl *control = mot_control_open(ctx, dir);
    MotRequest request;
    int fd = connect_to(dir), other = connect_to(dir);
    assert_false(mot_control_next(ctx, control, &request));
    Client c;
    start(&c, dir, "{\"verb\": \"leave\"}");
    request = take(ctx, control); /* the silent ones are before it */
    assert_non_null(request.json);
    answer(ctx, &request, "yes");
    pthread_join(c.thread, NULL);
    assert_string_equal(c.answer, "yes");
    assert_true(fd >= 0 && send(fd, "{\"verb\": \"late\"}", 16, 0) == 16);
    request = take(ctx, control);
    assert_string_equal(mot_json_string(mot_json_get(request.json, "verb"), ""), "late");
    close(fd);
    answer(ctx, &request, "nobody hears");
    close(other);
    request = take(ctx, control);
    assert_null(request.json);
    answer(ctx, &request, "nobody hears");
    assert_false(mot_control_next(ctx, control, &request));
    assert_int_equal(control->n_clients, 0);
}

/* However many are silent, others are heard; and it costs no descriptors in the end. */
static void a_crowd_is_borne(void **state)
{
    MotCtx *ctx = *state;
    const char *dir = make_dir(ctx);
    MotControl *control = mot_control_open(ctx, dir);
    MotRequest request;
    int fds[3 * MOT_CONTROL_CLIENTS], before = dup(0);
    close(before);
    for (int i = 0; i < 3 * MOT_CONTROL_CLIENTS; i++) {
        fds[i] = connect_to(dir);
        assert_false(mot_control_next(ctx, control, &request));
    }
    assert_int_equal(control->n_clients, MOT_CONTROL_CLIENTS);
    Client c;
    start(&c, dir, "{}");
    request = take(ctx, control);
    answer(ctx, &request, "yes");
    pthread_join(c.thread, NULL);
    assert_string_equal(c.answer, "yes");
    for (int i = 0; i < 3 * MOT_CONTROL_CLIENTS; i++)
        close(fds[i]);
    mot_control_close(control);
    int after = dup(0);
    close(after);
    assert_int_equal(after, before - 1); /* its own is gone too */
    assert_false(mot_control_next(ctx, control, &request));
}

static void an_end_is_told(void **state)
{
    MotCtx *ctx = *state, training;
    const char *dir = make_dir(ctx);
    Client c;
    start(&c, dir, "{}");
    pthread_join(c.thread, NULL);
    assert_int_equal(c.status, MOT_ERR_USAGE);
    assert_non_null(strstr(c.error, "no training runs there"));
    mot_ctx_init(&training);
    MotControl *control = mot_control_open(&training, dir);
    start(&c, dir, "{}");
    MotRequest request = take(&training, control);
    close(request.fd); /* as its process ends */
    pthread_join(c.thread, NULL);
    assert_non_null(strstr(c.error, "the training ended before it answered"));
    for (int i = 0; i < 100; i++) { /* it ends while others ask, before or after they are heard */
        enum { CROWD = 8 };
        MotCtx brief;
        Client crowd[CROWD];
        mot_ctx_init(&brief);
        mot_control_open(&brief, dir);
        for (int k = 0; k < CROWD; k++)
            start(&crowd[k], dir, "{}");
        mot_ctx_deinit(&brief);
        for (int k = 0; k < CROWD; k++) {
            pthread_join(crowd[k].thread, NULL);
            assert_int_equal(crowd[k].status, MOT_ERR_USAGE);
        }
    }
    mot_ctx_deinit(&training);
    assert_int_equal(access(mot_arena_printf(&ctx->arena, "%s/control", dir), F_OK), -1);
}

/*
 * Addresses of sockets hold some 100 characters. The file is for this user alone, and takes the
 * place of an old one.
 */
static void the_folder_may_lie_deep(void **state)
{
    MotCtx *ctx = *state;
    struct stat st;
    const char *dir = make_dir(ctx);
    for (int i = 0; i < 8; i++) {
        dir = mot_arena_printf(&ctx->arena, "%s/a-folder-with-a-very-long-name", dir);
        assert_int_equal(mot_file_make_dir(ctx, dir), MOT_OK);
    }
    const char *path = mot_arena_printf(&ctx->arena, "%s/control", dir);
    assert_int_equal(mot_file_write(ctx, path, "old", 3), MOT_OK);
    MotControl *control = mot_control_open(ctx, dir);
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    Client c;
    start(&c, dir, "{}");
    MotRequest request = take(ctx, control);
    answer(ctx, &request, "yes");
    pthread_join(c.thread, NULL);
    assert_string_equal(c.answer, "yes");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_is_answered), TEST(nonsense_is_a_request_without_content),
        TEST(silence_is_borne),      TEST(a_crowd_is_borne),
        TEST(an_end_is_told),        TEST(the_folder_may_lie_deep)};
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
