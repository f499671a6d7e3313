/* A context of its own for every cmocka test, with the verifier after every pass. */
#ifndef MOTLEY_TESTS_TEST_CTX_H
#define MOTLEY_TESTS_TEST_CTX_H

#include <stdlib.h>

#include "support/context.h"

static inline int make_ctx(void **state)
{
    MotCtx *ctx = *state = calloc(1, sizeof *ctx);
    mot_ctx_init(ctx);
    ctx->debug.verify = true;
    return 0;
}

static inline int drop_ctx(void **state)
{
    mot_ctx_deinit(*state);
    free(*state);
    return 0;
}

#endif
