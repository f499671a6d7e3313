/*
 * Rows of few entries: choosing, and messages as they travel, sound ones and those that nobody
 * sent.
 */
#include "ir/sparse.h"

#include "ir/eval.h"
#include "ir/graph.h"
#include "tests/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 400, N_ROUNDS = 300 };

static uint64_t state_of_random = 1;

static uint32_t draw(uint32_t below)
{
    return random_below(&state_of_random, below);
}

/* Numbers of few magnitudes, so that ties are many. */
static void draw_row(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)draw(9) - 4;
}

/* Of entries before i in rank there are fewer than k: that is what being chosen means. */
static bool belongs(const float *x, int64_t n, int64_t k, int64_t i)
{
    int64_t before = 0;
    for (int64_t j = 0; j < n; j++)
        before += fabsf(x[j]) > fabsf(x[i]) || (fabsf(x[j]) == fabsf(x[i]) && j < i);
    return before < k;
}

static void the_largest_are_chosen_and_the_lower_of_equal_ones(void **state)
{
    (void)state;
    static float x[MOST], value[MOST];
    static int32_t index[MOST];
    for (int round = 0; round < N_ROUNDS; round++) {
        int64_t n = 1 + draw(MOST), k = 1 + draw((uint32_t)n), at = 0;
        draw_row(x, n);
        mot_sparse_top_k(x, n, k, index, value);
        for (int64_t i = 0; i < n; i++)
            if (belongs(x, n, k, i)) {
                assert_true(at < k && index[at] == i && value[at] == x[i]);
                at++;
            }
        assert_int_equal(at, k);
    }
}

static void nan_is_chosen_first(void **state)
{
    (void)state;
    float x[] = {5, 1, NAN, 2, 9, INFINITY}, value[2];
    int32_t index[2];
    mot_sparse_top_k(x, 6, 2, index, value);
    assert_int_equal(index[0], 2);
    assert_int_equal(index[1], 5);
}

static void the_mean_is_over_contributors(void **state)
{
    (void)state;
    const int32_t index[] = {0, 2, 1, 2, 2, 3};
    const float value[] = {1, 2, 4, 4, 9, 8};
    float out[5];
    assert_true(mot_sparse_mean(&(MotSparseRows){index, value, 2, 3, 2}, 5, out));
    const float want[] = {1, 4, 5, 8, 0};
    for (int i = 0; i < 5; i++)
        assert_true(out[i] == want[i]);
    const int32_t twice[] = {2, 2}, outside[] = {1, 5};
    assert_false(mot_sparse_mean(&(MotSparseRows){twice, value, 2, 1, 2}, 5, out));
    assert_false(mot_sparse_mean(&(MotSparseRows){outside, value, 2, 1, 2}, 5, out));
}

/* What wire may lose of x in a row whose largest magnitude is `scale`. */
static double loss_of(MotWireForm wire, double x, double scale)
{
    return wire == MOT_WIRE_F32    ? 0
           : wire == MOT_WIRE_BF16 ? fabs(x) / 256
           : wire == MOT_WIRE_INT8 ? scale / 254 * 1.001
                                   : INFINITY;
}

static void messages_give_what_was_packed(void **state)
{
    (void)state;
    static float x[MOST], value[MOST], got[MOST];
    static int32_t index[MOST], got_index[MOST];
    static uint8_t message[8 * MOST];
    for (int round = 0; round < N_ROUNDS; round++) {
        MotWireForm wire = (MotWireForm)(round % MOT_N_WIRES);
        int64_t n = 1 + draw(MOST), k = 1 + draw((uint32_t)n);
        float scale = 0;
        for (int64_t i = 0; i < n; i++)
            x[i] = ((float)draw(20001) - 10000) / 777;
        mot_sparse_top_k(x, n, k, index, value);
        for (int64_t i = 0; i < k; i++)
            scale = fmaxf(scale, fabsf(value[i]));
        mot_sparse_pack(wire, n, k, index, value, message);
        assert_true(mot_sparse_unpack(wire, n, k, message, got_index, got));
        for (int64_t i = 0; i < k; i++) {
            assert_int_equal(got_index[i], index[i]);
            double most = loss_of(wire, (double)value[i], (double)scale);
            assert_true(fabs((double)got[i] - (double)value[i]) <= most);
            if (wire == MOT_WIRE_SIGN)
                assert_true(got[i] == (value[i] < 0 ? -1.0F : 1.0F));
        }
    }
}

/* 64 x 64 tiles: 12 bits an index, and no more than the fewest bytes. */
static void messages_are_small(void **state)
{
    (void)state;
    assert_int_equal(mot_sparse_message_bytes(MOT_WIRE_F32, 4096, 32), 32 * 44 / 8);
    assert_int_equal(mot_sparse_message_bytes(MOT_WIRE_SIGN, 4096, 32), 32 * 13 / 8);
    assert_int_equal(mot_sparse_message_bytes(MOT_WIRE_SIGN, 4097, 8), 14);
    assert_int_equal(mot_sparse_message_bytes(MOT_WIRE_SIGN, 8, 8), 1);
    assert_int_equal(mot_sparse_message_bytes(MOT_WIRE_INT8, 1, 1), 5);
}

/* Random bytes: refused, or entries that somebody could have sent. */
static void other_messages_are_refused(void **state)
{
    (void)state;
    static uint8_t message[8 * MOST];
    static int32_t index[MOST];
    static float value[MOST];
    int n_refused = 0, n_sound = 0;
    for (int round = 0; round < 20 * N_ROUNDS; round++) {
        MotWireForm wire = (MotWireForm)(round % MOT_N_WIRES);
        int64_t n = 1 + draw(9), k = 1 + draw((uint32_t)n);
        for (int64_t i = 0; i < mot_sparse_message_bytes(wire, n, k); i++)
            message[i] = (uint8_t)draw(256);
        bool is_sound = mot_sparse_unpack(wire, n, k, message, index, value);
        n_refused += !is_sound;
        n_sound += is_sound;
        for (int64_t i = 0; i < k; i++) {
            assert_true(isfinite(value[i]) && index[i] >= 0 && index[i] < n);
            assert_true(i == 0 || index[i] > index[i - 1]);
        }
    }
    assert_true(n_refused > 100 && n_sound > 100);
}

/* The third of four replicas sends a NaN: the error says who. */
static void a_bad_message_names_the_replica(void **state)
{
    (void)state;
    static const char text[] =
        "motley graph 1\ngraph @t {\n%m = input {name=\"m\"} : u8[4x2x5]\n"
        "%i, %v = unpack %m {size=9, k=1, wire=\"f32\"} : i32[4x2x1], f32[4x2x1]\n"
        "output %v {name=\"v\"}\n}\n";
    for (int bad = 0; bad < 2; bad++) {
        MotCtx ctx;
        mot_ctx_init(&ctx);
        MotGraph *g;
        uint8_t message[4 * 2][5] = {0};
        assert_int_equal(mot_graph_parse(&ctx, "t", text, &g), MOT_OK);
        for (int row = 0; row < 8; row++) {
            float value = bad && row == 5 ? NAN : 1.5F;
            mot_sparse_pack(MOT_WIRE_F32, 9, 1, (int32_t[]){row}, &value, message[row]);
        }
        MotTensor *values = mot_arena_array(&ctx.arena, MotTensor, g->values.n);
        values[1] = (MotTensor){*mot_graph_type(g, 1), message};
        assert_int_equal(mot_eval_graph(&ctx, g, values, false), bad ? MOT_ERR_NUMERICS : MOT_OK);
        assert_true(!bad || strstr(mot_text_get(&ctx.error), "replica 2"));
        mot_ctx_deinit(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_are_chosen_and_the_lower_of_equal_ones),
        cmocka_unit_test(nan_is_chosen_first),
        cmocka_unit_test(the_mean_is_over_contributors),
        cmocka_unit_test(messages_give_what_was_packed),
        cmocka_unit_test(messages_are_small),
        cmocka_unit_test(other_messages_are_refused),
        cmocka_unit_test(a_bad_message_names_the_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
