/* support/: arena, vector, map, text, status, context. */
#include "support/context.h"
#include "tests/test_ctx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define assert_text_equal(text, expected) assert_string_equal(mot_text_get(&(text)), (expected))

/* ---- Status ---- */

static void status_has_the_documented_exit_codes(void **state)
{
    (void)state;
    static const struct {
        MotStatus status;
        int code;
    } documented[] = {
        {MOT_OK, 0},
        {MOT_ERR_INTERNAL, 1},
        {MOT_ERR_IO, 1},
        {MOT_ERR_MEMORY, 1},
        {MOT_ERR_USAGE, 2},
        {MOT_ERR_MODEL, 3},
        {MOT_ERR_UNSUPPORTED, 3},
        {MOT_ERR_INFEASIBLE, 4},
        {MOT_ERR_MISMATCH, 5},
        {MOT_ERR_RANK, 6},
        {MOT_ERR_DATA, 7},
        {MOT_ERR_NUMERICS, 8},
        {MOT_ERR_LIMIT, 9},
        {MOT_STOPPED, 75},
    };
    for (size_t i = 0; i < sizeof documented / sizeof documented[0]; i++) {
        assert_int_equal(mot_status_exit_code(documented[i].status), documented[i].code);
        assert_true(strlen(mot_status_text(documented[i].status)) > 0);
    }
    assert_int_equal(mot_status_exit_code((MotStatus)99), 1);
    assert_string_equal(mot_status_text((MotStatus)99), mot_status_text(MOT_ERR_INTERNAL));
}

static MotStatus try_then_count(MotStatus status, int *n_after)
{
    MOT_TRY(status);
    ++*n_after;
    return MOT_OK;
}

static void try_returns_the_first_failure(void **state)
{
    (void)state;
    int n_after = 0;
    assert_int_equal(try_then_count(MOT_ERR_DATA, &n_after), MOT_ERR_DATA);
    assert_int_equal(n_after, 0);
    assert_int_equal(try_then_count(MOT_OK, &n_after), MOT_OK);
    assert_int_equal(n_after, 1);
}

/* ---- Arena ---- */

static void arena_memory_is_zeroed_aligned_and_disjoint(void **state)
{
    MotCtx *ctx = *state;
    static const size_t sizes[] = {1, 16, 17, 0, 4096, 65536, 3, 200000, 15};
    enum { N = sizeof sizes / sizeof sizes[0] };
    unsigned char *blocks[N];
    for (size_t i = 0; i < N; i++) {
        blocks[i] = mot_arena_alloc(&ctx->arena, sizes[i]);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(blocks[i][k], 0);
        memset(blocks[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(blocks[i][k], i + 1);
}

static void arena_rewinds_to_a_mark_and_reuses_the_memory(void **state)
{
    MotCtx *ctx = *state;
    char *kept = mot_arena_strdup(&ctx->arena, "kept");
    MotArenaMark mark = mot_arena_mark(&ctx->arena);
    size_t used = ctx->arena.used_bytes;

    char *first = mot_arena_alloc(&ctx->arena, 100);
    memset(first, 0xff, 100);
    mot_arena_alloc(&ctx->arena, 1 << 20); /* in chunks of their own */
    mot_arena_alloc(&ctx->arena, 4 << 20);
    assert_true(ctx->arena.used_bytes > used);

    mot_arena_rewind(&ctx->arena, mark);
    assert_int_equal(ctx->arena.used_bytes, used);
    assert_string_equal(kept, "kept");
    char *again = mot_arena_alloc(&ctx->arena, 100);
    assert_ptr_equal(again, first);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(again[i], 0);
}

static void arena_rewinds_to_a_mark_of_the_empty_arena(void **state)
{
    (void)state;
    MotArena arena;
    mot_arena_init(&arena, NULL, NULL);
    MotArenaMark mark = mot_arena_mark(&arena);
    mot_arena_alloc(&arena, 10);
    mot_arena_rewind(&arena, mark);
    assert_int_equal(arena.used_bytes, 0);
    assert_null(arena.head);
    mot_arena_deinit(&arena);
}

static void arena_grow_keeps_the_old_bytes_and_zeroes_the_new(void **state)
{
    MotCtx *ctx = *state;
    char *p = mot_arena_copy(&ctx->arena, "abcdefgh", 8);
    assert_ptr_equal(mot_arena_grow(&ctx->arena, p, 8, 8), p);
    assert_ptr_equal(mot_arena_grow(&ctx->arena, p, 8, 3), p);
    char *q = mot_arena_grow(&ctx->arena, p, 8, 100000);
    assert_memory_equal(q, "abcdefgh", 8);
    for (size_t i = 8; i < 100000; i++)
        assert_int_equal(q[i], 0);
    assert_non_null(mot_arena_grow(&ctx->arena, NULL, 0, 1));
}

static void arena_copies_strings(void **state)
{
    MotCtx *ctx = *state;
    assert_string_equal(mot_arena_strndup(&ctx->arena, "abcdef", 3), "abc");
    assert_string_equal(mot_arena_strndup(&ctx->arena, NULL, 0), "");
    assert_string_equal(mot_arena_strdup(&ctx->arena, ""), "");
    assert_memory_equal(mot_arena_copy(&ctx->arena, "a\0b", 3), "a\0b", 3);
    assert_non_null(mot_arena_copy(&ctx->arena, NULL, 0));
    assert_string_equal(mot_arena_printf(&ctx->arena, "%d-%s", 7, "x"), "7-x");
    assert_string_equal(mot_arena_printf(&ctx->arena, "%s", ""), "");
    char *wide = mot_arena_printf(&ctx->arena, "%0100000d", 1);
    assert_int_equal(strlen(wide), 100000);
    assert_int_equal(wide[99999], '1');
}

/* ---- Exhaustion ---- */

typedef struct {
    enum { PLAIN, ARRAY_OVERFLOW, HUGE_SIZE } how;
    size_t bytes; /* of one allocation */
    int n, n_done;
} Hunger;

static MotStatus allocate(MotCtx *ctx, void *arg)
{
    Hunger *h = arg;
    for (int i = 0; i < h->n; i++, h->n_done++) {
        switch (h->how) {
        case PLAIN:
            mot_arena_alloc(&ctx->arena, h->bytes);
            break;
        case ARRAY_OVERFLOW:
            mot_arena_array(&ctx->arena, uint64_t, SIZE_MAX / 4);
            break;
        case HUGE_SIZE:
            mot_arena_alloc(&ctx->arena, SIZE_MAX - 8);
            break;
        }
    }
    return MOT_OK;
}

static void fail_at_unwinds_at_exactly_that_allocation(void **state)
{
    MotCtx *ctx = *state;
    for (int n = 1; n <= 5; n++) {
        Hunger h = {.bytes = 24, .n = 5};
        mot_ctx_fail_at(ctx, MOT_FAULT_alloc, n);
        assert_int_equal(mot_ctx_run(ctx, allocate, &h), MOT_ERR_MEMORY);
        assert_int_equal(h.n_done, n - 1);
        assert_int_equal(ctx->status, MOT_ERR_MEMORY);
        assert_text_equal(ctx->error, "out of memory");
        assert_null(ctx->unwind);
        mot_error_clear(ctx);
    }
    Hunger enough = {.bytes = 24, .n = 5};
    mot_ctx_fail_at(ctx, MOT_FAULT_alloc, 6);
    assert_int_equal(mot_ctx_run(ctx, allocate, &enough), MOT_OK);
    assert_int_equal(ctx->status, MOT_OK);
}

static void limit_bytes_bounds_the_arena(void **state)
{
    MotCtx *ctx = *state;
    ctx->arena.limit_bytes = 1 << 20;
    Hunger modest = {.bytes = 1000, .n = 900};
    assert_int_equal(mot_ctx_run(ctx, allocate, &modest), MOT_OK);
    Hunger greedy = {.bytes = 1000, .n = 2000};
    assert_int_equal(mot_ctx_run(ctx, allocate, &greedy), MOT_ERR_MEMORY);
    assert_text_equal(ctx->error, "out of memory");
    mot_error_clear(ctx);
    Hunger piece = {.bytes = 3 << 20, .n = 1};
    ctx->doing = "testing";
    assert_int_equal(mot_ctx_run(ctx, allocate, &piece), MOT_ERR_MEMORY);
    assert_text_equal(ctx->error, "out of memory while testing: the system refuses 3 MiB more");
    assert_true(ctx->arena.used_bytes <= ctx->arena.limit_bytes);
    assert_true(modest.n_done + greedy.n_done >= 1000); /* little of the limit is lost to slack */
}

static void limit_bytes_admits_what_just_fits(void **state)
{
    MotCtx *ctx = *state;
    ctx->arena.limit_bytes = 1600;
    Hunger fits = {.bytes = 1600, .n = 1};
    assert_int_equal(mot_ctx_run(ctx, allocate, &fits), MOT_OK);
    Hunger one_more = {.bytes = 1, .n = 1};
    assert_int_equal(mot_ctx_run(ctx, allocate, &one_more), MOT_ERR_MEMORY);
}

static void impossible_sizes_count_as_exhaustion(void **state)
{
    MotCtx *ctx = *state;
    Hunger overflow = {.how = ARRAY_OVERFLOW, .n = 1};
    assert_int_equal(mot_ctx_run(ctx, allocate, &overflow), MOT_ERR_MEMORY);
    mot_error_clear(ctx);
    Hunger huge = {.how = HUGE_SIZE, .n = 1};
    assert_int_equal(mot_ctx_run(ctx, allocate, &huge), MOT_ERR_MEMORY);
    assert_text_equal(ctx->error, "out of memory: a size is beyond what can be addressed");
    assert_int_equal(huge.n_done, 0);
}

/* What a context holds is usable, and can be released, after an unwind. */
static void the_context_lives_on_after_exhaustion(void **state)
{
    MotCtx *ctx = *state;
    const char *name = mot_intern(ctx, "before");
    Hunger h = {.bytes = 8, .n = 1};
    mot_ctx_fail_at(ctx, MOT_FAULT_alloc, 1);
    assert_int_equal(mot_ctx_run(ctx, allocate, &h), MOT_ERR_MEMORY);
    mot_note(ctx, "while testing");
    assert_text_equal(ctx->error, "out of memory");
    mot_error_clear(ctx);
    assert_ptr_equal(mot_intern(ctx, "before"), name);
    assert_int_equal(mot_ctx_run(ctx, allocate, &h), MOT_OK);
}

static MotStatus run_inner(MotCtx *ctx, void *arg)
{
    void *mine = ctx->unwind;
    mot_ctx_fail_at(ctx, MOT_FAULT_alloc, 1);
    MotStatus inner = mot_ctx_run(ctx, allocate, arg);
    assert_ptr_equal(ctx->unwind, mine);
    return inner == MOT_ERR_MEMORY ? MOT_ERR_LIMIT : MOT_ERR_INTERNAL;
}

static void runs_nest_and_the_inner_one_catches(void **state)
{
    MotCtx *ctx = *state;
    Hunger h = {.bytes = 8, .n = 1};
    assert_int_equal(mot_ctx_run(ctx, run_inner, &h), MOT_ERR_LIMIT);
    assert_null(ctx->unwind);
}

static MotStatus fail_in_body(MotCtx *ctx, void *arg)
{
    return mot_fail(ctx, MOT_ERR_MODEL, MOT_NOWHERE, "%s", (const char *)arg);
}

static void run_hands_on_the_status_of_its_body(void **state)
{
    MotCtx *ctx = *state;
    char text[] = "bad";
    assert_int_equal(mot_ctx_run(ctx, fail_in_body, text), MOT_ERR_MODEL);
    assert_text_equal(ctx->error, "bad");
}

/* ---- Vector ---- */

static void vector_grows_and_keeps_its_elements(void **state)
{
    MotCtx *ctx = *state;
    MotVec(struct {
        uint64_t a;
        char b;
    }) v = {0};
    for (uint32_t i = 0; i < 10000; i++) {
        mot_vec_reserve(&ctx->arena, &v, v.n + 1);
        v.data[v.n].a = 3 * (uint64_t)i;
        v.data[v.n++].b = (char)(i % 100);
    }
    assert_int_equal(v.n, 10000);
    assert_true(v.cap >= v.n);
    for (uint32_t i = 0; i < v.n; i++) {
        assert_int_equal(v.data[i].a, i * 3);
        assert_int_equal(v.data[i].b, i % 100);
    }
}

static void vector_reserve_makes_room_once(void **state)
{
    MotCtx *ctx = *state;
    MotVec(int) v = {0};
    uint32_t none = 0;
    mot_vec_reserve(&ctx->arena, &v, none);
    assert_null(v.data);
    mot_vec_reserve(&ctx->arena, &v, 1000);
    assert_true(v.cap >= 1000);
    assert_int_equal(v.n, 0);
    int *data = v.data;
    for (int i = 0; i < 1000; i++)
        mot_vec_push(&ctx->arena, &v, i);
    assert_ptr_equal(v.data, data);
    mot_vec_reserve(&ctx->arena, &v, 10);
    assert_ptr_equal(v.data, data);
}

static void vector_takes_compound_literals(void **state)
{
    MotCtx *ctx = *state;
    MotVec(MotLoc) v = {0};
    mot_vec_push(&ctx->arena, &v, (MotLoc){"file", "place"});
    assert_string_equal(v.data[0].place, "place");
}

/* ---- Map ---- */

static void map_finds_what_was_put(void **state)
{
    MotCtx *ctx = *state;
    MotMap map;
    mot_map_init(&map, &ctx->arena);
    uint64_t value = 77;
    assert_false(mot_map_get_str(&map, "a", &value));
    assert_false(mot_map_put_str(&map, "a", 1));
    assert_false(mot_map_put_str(&map, "b", UINT64_MAX));
    assert_false(mot_map_get_str(&map, "c", &value));
    assert_int_equal(value, 77);
    assert_true(mot_map_get_str(&map, "a", &value));
    assert_int_equal(value, 1);
    assert_true(mot_map_put_str(&map, "a", 2));
    assert_true(mot_map_get_str(&map, "a", &value));
    assert_int_equal(value, 2);
    assert_true(mot_map_get_str(&map, "b", &value));
    assert_true(value == UINT64_MAX);
    assert_true(mot_map_get_str(&map, "b", NULL));
    assert_int_equal(map.n, 2);
}

static void map_keys_are_bytes_and_copied(void **state)
{
    MotCtx *ctx = *state;
    MotMap map;
    mot_map_init(&map, &ctx->arena);
    char key[] = "k\0x";
    mot_map_put(&map, key, 3, 1);
    mot_map_put(&map, "k\0y", 3, 2);
    mot_map_put(&map, "k", 1, 3);
    mot_map_put(&map, "", 0, 4);
    memset(key, '?', sizeof key);
    uint64_t value;
    assert_int_equal(map.n, 4);
    assert_true(mot_map_get(&map, "k\0x", 3, &value));
    assert_int_equal(value, 1);
    assert_true(mot_map_get(&map, "k\0y", 3, &value));
    assert_int_equal(value, 2);
    assert_true(mot_map_get_str(&map, "k", &value));
    assert_int_equal(value, 3);
    assert_true(mot_map_get_str(&map, "", &value));
    assert_int_equal(value, 4);
    assert_string_equal(map.entries[2].key, "k");
}

static void map_iterates_in_insertion_order_at_any_size(void **state)
{
    MotCtx *ctx = *state;
    enum { N = 5000 };
    MotMap map;
    mot_map_init(&map, &ctx->arena);
    for (uint64_t i = 0; i < N; i++)
        mot_map_put_str(&map, mot_arena_printf(&ctx->arena, "key %d", (int)(i * 7919 % N)), i);
    for (uint64_t i = 0; i < N; i += 3) /* a second put does not move an entry */
        mot_map_put_str(&map, mot_arena_printf(&ctx->arena, "key %d", (int)(i * 7919 % N)), i);
    assert_int_equal(map.n, N);
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(map.entries[i].value, i);
        assert_string_equal(map.entries[i].key,
                            mot_arena_printf(&ctx->arena, "key %d", (int)(i * 7919 % N)));
        uint64_t value;
        assert_true(mot_map_get_str(&map, map.entries[i].key, &value));
        assert_int_equal(value, i);
    }
    assert_false(mot_map_get_str(&map, "key 5000", NULL));
}

static void interned_strings_outlive_the_marks_of_the_arena(void **state)
{
    MotCtx *ctx = *state;
    MotArenaMark mark = mot_arena_mark(&ctx->arena);
    const char *name = mot_intern(ctx, "within");
    mot_arena_rewind(&ctx->arena, mark);
    memset(mot_arena_alloc(&ctx->arena, 4096), 0xff, 4096);
    assert_string_equal(name, "within");
    assert_ptr_equal(mot_intern(ctx, "within"), name);
}

static void intern_gives_equal_strings_one_pointer(void **state)
{
    MotCtx *ctx = *state;
    char text[] = "weight";
    const char *a = mot_intern(ctx, text);
    for (int i = 0; i < 1000; i++)
        mot_intern(ctx, mot_arena_printf(&ctx->arena, "%d", i));
    assert_ptr_equal(mot_intern(ctx, "weight"), a);
    assert_ptr_not_equal(a, text);
    assert_string_equal(a, "weight");
    assert_ptr_not_equal(mot_intern(ctx, "weigh"), a);

    MotMap map;
    mot_map_init(&map, &ctx->arena);
    mot_map_put_str(&map, "x", 5); /* interning does not change a value that is there */
    mot_map_intern(&map, "x", 1);
    uint64_t value;
    assert_true(mot_map_get_str(&map, "x", &value));
    assert_int_equal(value, 5);
}

/* ---- Text ---- */

static void text_builds_up_across_growth(void **state)
{
    MotCtx *ctx = *state;
    MotText text;
    mot_text_init(&text, &ctx->arena);
    assert_text_equal(text, "");
    mot_text_printf(&text, "%s", "");
    assert_text_equal(text, "");
    for (int i = 0; i < 1000; i++) {
        mot_text_puts(&text, "ab");
        mot_text_add(&text, "cdX", 2);
        mot_text_printf(&text, "%03d", i);
    }
    assert_int_equal(text.n, 7000);
    assert_int_equal(strlen(mot_text_get(&text)), 7000);
    assert_memory_equal(text.data, "abcd000abcd001", 14);
    assert_string_equal(text.data + 6993, "abcd999");
}

/* Byte strings with their quoted form; some hold NUL, so lengths are explicit. */
#define BYTES(literal) (literal), sizeof(literal) - 1

static void quote_escapes_what_a_terminal_must_not_see(void **state)
{
    MotCtx *ctx = *state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *quoted;
    } cases[] = {
        {BYTES(""), "\"\""},
        {BYTES("/h.0/attn/MatMul"), "\"/h.0/attn/MatMul\""},
        {BYTES("say \"hi\" \\o/"), "\"say \\\"hi\\\" \\\\o/\""},
        {BYTES("\x1b[2J"), "\"\\x1b[2J\""},
        {BYTES("a\nb\tc\r"), "\"a\\x0ab\\x09c\\x0d\""},
        {BYTES("a\0b"), "\"a\\x00b\""},
        {BYTES("\x7f"), "\"\\x7f\""},
        {BYTES("\xc2\x9b"
               "2J"),
         "\"\\xc2\\x9b2J\""}, /* CSI as one character */
        {BYTES("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
         "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\""},
        {BYTES("\xc3"), "\"\\xc3\""},            /* cut off */
        {BYTES("\xc0\xaf"), "\"\\xc0\\xaf\""},   /* overlong */
        {BYTES("\xffz"), "\"\\xffz\""},          /* never valid */
        {BYTES("\xe2\x82z"), "\"\\xe2\\x82z\""}, /* broken in the middle */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        MotText text;
        mot_text_init(&text, &ctx->arena);
        mot_text_quote(&text, cases[i].bytes, cases[i].n);
        assert_text_equal(text, cases[i].quoted);
    }
}

static void quote_cuts_long_strings(void **state)
{
    MotCtx *ctx = *state;
    char name[301];
    memset(name, 'n', 300);
    name[300] = 0;
    const char *quoted = mot_quote(&ctx->arena, name);
    assert_int_equal(strlen(quoted), 200 + 2 + 3);
    assert_string_equal(quoted + 200, "n\"...");
    name[200] = 0;
    assert_int_equal(strlen(mot_quote(&ctx->arena, name)), 202);
}

static void utf8_is_checked_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        bool valid;
    } cases[] = {
        {BYTES(""), true},
        {BYTES("ascii ~"), true},
        {BYTES("\xc2\x80"), true},          /* U+0080, the least of two bytes */
        {BYTES("\xdf\xbf"), true},          /* U+07FF */
        {BYTES("\xe0\xa0\x80"), true},      /* U+0800, the least of three */
        {BYTES("\xed\x9f\xbf"), true},      /* U+D7FF, before the surrogates */
        {BYTES("\xee\x80\x80"), true},      /* U+E000, after them */
        {BYTES("\xef\xbf\xbf"), true},      /* U+FFFF */
        {BYTES("\xf0\x90\x80\x80"), true},  /* U+10000, the least of four */
        {BYTES("\xf4\x8f\xbf\xbf"), true},  /* U+10FFFF, the last */
        {BYTES("a\0b"), false},             /* NUL */
        {BYTES("\x80"), false},             /* a continuation alone */
        {BYTES("\xc1\xbf"), false},         /* overlong, two bytes */
        {BYTES("\xe0\x9f\xbf"), false},     /* overlong, three */
        {BYTES("\xf0\x8f\xbf\xbf"), false}, /* overlong, four */
        {BYTES("\xed\xa0\x80"), false},     /* U+D800, a surrogate */
        {BYTES("\xed\xbf\xbf"), false},     /* U+DFFF, a surrogate */
        {BYTES("\xf4\x90\x80\x80"), false}, /* U+110000 */
        {BYTES("\xf5\x80\x80\x80"), false},
        {BYTES("\xe2\x82"), false}, /* cut off */
        {BYTES("\xf0\x9f\x98"), false},
        {BYTES("\xc3z"), false}, /* no continuation */
        {BYTES("ok\xff"), false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (mot_utf8_is_valid(cases[i].bytes, cases[i].n) != cases[i].valid)
            fail_msg("case %zu is taken for %s", i, cases[i].valid ? "invalid" : "valid");
}

static void globs_match_whole_names(void **state)
{
    (void)state;
    static const struct {
        const char *glob, *name;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "anything", true},
        {"?", "", false},
        {"?", "a", true},
        {"abc", "abc", true},
        {"abc", "abcd", false},
        {"abcd", "abc", false},
        {"h.*.weight", "h.0.attn.weight", true},
        {"h.*.weight", "h.0.attn.bias", false},
        {"h.*.weight", "h.weight", false},
        {"*bias", "h.0.bias", true},
        {"*a*b", "xaybzb", true},
        {"*a*b", "xaybz", false},
        {"a**b", "ab", true},
        {"a*?b", "ab", false},
        {"a*?b", "acb", true},
        {"[a]", "a", false}, /* brackets are ordinary: names of PyTorch hold them */
        {"[a]", "[a]", true},
        {"\\*", "*", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (mot_glob_match(cases[i].glob, cases[i].name) != cases[i].matches)
            fail_msg("\"%s\" on \"%s\"", cases[i].glob, cases[i].name);
}

/* A matcher that backtracks over every star would need years for this one. */
static void globs_with_many_stars_stay_cheap(void **state)
{
    (void)state;
    char name[2001], glob[] = "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*ab";
    memset(name, 'a', 2000);
    name[2000] = 0;
    assert_false(mot_glob_match(glob, name));
    name[1999] = 'b';
    assert_true(mot_glob_match(glob, name));
}

static void shapes_and_sizes_print_as_in_messages(void **state)
{
    MotCtx *ctx = *state;
    MotArena *a = &ctx->arena;
    assert_string_equal(mot_shape_text(a, NULL, 0), "scalar");
    assert_string_equal(mot_shape_text(a, (int64_t[]){7}, 1), "7");
    assert_string_equal(mot_shape_text(a, (int64_t[]){8, 0, INT64_MAX}, 3),
                        "8x0x9223372036854775807");
    assert_string_equal(mot_bytes_text(a, 0), "0 B");
    assert_string_equal(mot_bytes_text(a, 7), "7 B");
    assert_string_equal(mot_bytes_text(a, 1023), "1023 B");
    assert_string_equal(mot_bytes_text(a, 1024), "1.0 KiB");
    assert_string_equal(mot_bytes_text(a, 1536.0 * 1024 * 1024), "1.5 GiB");
    assert_string_equal(mot_bytes_text(a, 512.0 * 1024), "512 KiB");
    assert_string_equal(mot_bytes_text(a, 5000.0 * 1099511627776.0), "5000 TiB");
}

/* ---- Errors and log ---- */

static void the_first_failure_wins(void **state)
{
    MotCtx *ctx = *state;
    MotLoc loc = {"model.onnx", "node 57 \"/h.0/Reshape\""};
    assert_int_equal(mot_fail(ctx, MOT_ERR_MODEL, loc, "inner %d vs %d", 3, 4), MOT_ERR_MODEL);
    assert_int_equal(mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "a consequence"), MOT_ERR_MODEL);
    mot_note(ctx, "while lowering %s", "h.0");
    mot_hint(ctx, "bind it with --dim batch=%d", 8);
    assert_int_equal(ctx->status, MOT_ERR_MODEL);
    assert_text_equal(ctx->error, "model.onnx: node 57 \"/h.0/Reshape\": inner 3 vs 4\n"
                                  "  while lowering h.0\n"
                                  "  hint: bind it with --dim batch=8");
}

static void a_location_may_be_half_known(void **state)
{
    MotCtx *ctx = *state;
    (void)mot_fail(ctx, MOT_ERR_DATA, (MotLoc){.place = "line 3"}, "x");
    assert_text_equal(ctx->error, "line 3: x");
    mot_error_clear(ctx);
    (void)mot_fail(ctx, MOT_ERR_DATA, (MotLoc){.file = "f"}, "x");
    assert_text_equal(ctx->error, "f: x");
    mot_error_clear(ctx);
    (void)mot_fail(ctx, MOT_ERR_DATA, MOT_NOWHERE, "%s", "");
    assert_text_equal(ctx->error, "");
    assert_int_equal(ctx->status, MOT_ERR_DATA);
}

static void notes_without_a_failure_are_dropped(void **state)
{
    MotCtx *ctx = *state;
    mot_note(ctx, "nothing happened");
    mot_hint(ctx, "nothing to do");
    assert_int_equal(ctx->status, MOT_OK);
    assert_text_equal(ctx->error, "");
}

static void clearing_admits_the_next_failure(void **state)
{
    MotCtx *ctx = *state;
    (void)mot_fail(ctx, MOT_ERR_MODEL, MOT_NOWHERE, "first");
    mot_error_clear(ctx);
    assert_int_equal(ctx->status, MOT_OK);
    assert_text_equal(ctx->error, "");
    assert_int_equal(mot_fail(ctx, MOT_ERR_LIMIT, MOT_NOWHERE, "second"), MOT_ERR_LIMIT);
    assert_text_equal(ctx->error, "second");
}

static void format_characters_in_arguments_stay_text(void **state)
{
    MotCtx *ctx = *state;
    (void)mot_fail(ctx, MOT_ERR_MODEL, (MotLoc){"%s%n", "%d"}, "%s", "%x %s");
    mot_note(ctx, "%s", "%n");
    assert_text_equal(ctx->error, "%s%n: %d: %x %s\n  %n");
}

typedef struct {
    int n;
    MotLogLevel level;
    char line[100];
} Heard;

static void listen(void *self, MotLogLevel level, const char *line)
{
    Heard *heard = self;
    heard->n++;
    heard->level = level;
    strncpy(heard->line, line, sizeof heard->line - 1);
}

static void warnings_and_infos_go_to_the_log(void **state)
{
    MotCtx *ctx = *state;
    mot_warn(ctx, MOT_NOWHERE, "nobody listens");
    Heard heard = {0};
    ctx->log = listen;
    ctx->log_self = &heard;
    mot_warn(ctx, (MotLoc){"m.onnx", NULL}, "%d odd names", 2);
    assert_int_equal(heard.level, MOT_LOG_WARN);
    assert_string_equal(heard.line, "m.onnx: 2 odd names");
    mot_info(ctx, "read %s", "it");
    assert_int_equal(heard.level, MOT_LOG_INFO);
    assert_string_equal(heard.line, "read it");
    assert_int_equal(heard.n, 2);
    assert_int_equal(ctx->status, MOT_OK);
}

static void messages_hold_no_control_characters(void **state)
{
    MotCtx *ctx = *state;
    mot_fail(ctx, MOT_ERR_MODEL, MOT_NOWHERE, "op %s,\nand \"%s\"", "\x1b[2J\r",
             "gr\xc3\xbc\xc3\x9f\\\xff");
    mot_note(ctx, "%s", "\x07");
    assert_text_equal(ctx->error, "op \\x1b[2J\\x0d,\nand \"gr\xc3\xbc\xc3\x9f\\\\xff\"\n  \\x07");
}

static char released[8];

static void release_letter(void *handle)
{
    strncat(released, handle, 1);
}

static void deferred_handles_are_released_newest_first(void **state)
{
    (void)state;
    MotCtx ctx;
    mot_ctx_init(&ctx);
    char letters[] = "abc";
    released[0] = 0;
    for (int i = 0; i < 3; i++)
        mot_ctx_defer(&ctx, release_letter, letters + i);
    Hunger h = {.bytes = 8, .n = 1};
    mot_ctx_fail_at(&ctx, MOT_FAULT_alloc, 1);
    assert_int_equal(mot_ctx_run(&ctx, allocate, &h), MOT_ERR_MEMORY);
    assert_string_equal(released, ""); /* an unwind alone releases nothing */
    mot_ctx_deinit(&ctx);
    assert_string_equal(released, "cba");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_ctx, drop_ctx)

static void count_release(void *handle)
{
    ++*(int *)handle;
}

static void a_scope_releases_what_was_deferred_in_it(void **state)
{
    (void)state;
    MotCtx ctx;
    int outer = 0, inner = 0;
    mot_ctx_init(&ctx);
    mot_ctx_defer(&ctx, count_release, &outer);
    for (int i = 0; i < 100; i++) {
        MotScope scope = mot_scope_begin(&ctx);
        mot_arena_alloc(&ctx.arena, 100000);
        mot_ctx_defer(&ctx, count_release, &inner);
        mot_scope_end(&ctx, scope);
        assert_int_equal(inner, i + 1);
        assert_int_equal(outer, 0);
    }
    mot_ctx_deinit(&ctx);
    assert_int_equal(outer, 1);
    assert_int_equal(inner, 100);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(status_has_the_documented_exit_codes),
        TEST(try_returns_the_first_failure),
        TEST(arena_memory_is_zeroed_aligned_and_disjoint),
        TEST(arena_rewinds_to_a_mark_and_reuses_the_memory),
        TEST(arena_rewinds_to_a_mark_of_the_empty_arena),
        TEST(arena_grow_keeps_the_old_bytes_and_zeroes_the_new),
        TEST(arena_copies_strings),
        TEST(fail_at_unwinds_at_exactly_that_allocation),
        TEST(limit_bytes_bounds_the_arena),
        TEST(limit_bytes_admits_what_just_fits),
        TEST(impossible_sizes_count_as_exhaustion),
        TEST(the_context_lives_on_after_exhaustion),
        TEST(runs_nest_and_the_inner_one_catches),
        TEST(run_hands_on_the_status_of_its_body),
        TEST(vector_grows_and_keeps_its_elements),
        TEST(vector_reserve_makes_room_once),
        TEST(vector_takes_compound_literals),
        TEST(map_finds_what_was_put),
        TEST(map_keys_are_bytes_and_copied),
        TEST(map_iterates_in_insertion_order_at_any_size),
        TEST(intern_gives_equal_strings_one_pointer),
        TEST(interned_strings_outlive_the_marks_of_the_arena),
        TEST(text_builds_up_across_growth),
        TEST(quote_escapes_what_a_terminal_must_not_see),
        TEST(messages_hold_no_control_characters),
        TEST(quote_cuts_long_strings),
        TEST(utf8_is_checked_strictly),
        TEST(globs_match_whole_names),
        TEST(globs_with_many_stars_stay_cheap),
        TEST(shapes_and_sizes_print_as_in_messages),
        TEST(the_first_failure_wins),
        TEST(a_location_may_be_half_known),
        TEST(notes_without_a_failure_are_dropped),
        TEST(clearing_admits_the_next_failure),
        TEST(format_characters_in_arguments_stay_text),
        TEST(warnings_and_infos_go_to_the_log),
        TEST(deferred_handles_are_released_newest_first),
        TEST(a_scope_releases_what_was_deferred_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
