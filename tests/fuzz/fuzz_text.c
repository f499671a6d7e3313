/*
 * Any bytes as a text of records and as a graph: never a crash, and what was read prints, as text
 * that reads back to the same and as valid JSON.
 */
#include "ir/graph_text.h"
#include "support/json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, MotCtx *ctx, const char *what)
{
    if (!holds)
        mot_bug("fuzz_text", 0,
                mot_arena_printf(&ctx->arena, "%s\n%s", what, mot_text_get(&ctx->error)));
}

static void check_json(MotCtx *ctx, const MotRecords *records)
{
    MotText json;
    const MotJson *root;
    mot_text_init(&json, &ctx->arena);
    mot_records_print_json(records, &json);
    require(mot_json_parse(ctx, MOT_ERR_DATA, "json", json.data, json.n, &root) == MOT_OK, ctx,
            "the JSON is invalid");
    require(mot_json_length(root) == records->n, ctx, "the JSON has another length");
}

static void check_records(MotCtx *ctx, const char *text)
{
    MotRecords first, second;
    MotText printed, again;
    mot_text_init(&printed, &ctx->arena);
    mot_text_init(&again, &ctx->arena);
    if (mot_records_parse(ctx, "fuzz", text, &first) != MOT_OK)
        return;
    mot_records_print(&first, &printed);
    require(mot_records_parse(ctx, "printed", mot_text_get(&printed), &second) == MOT_OK, ctx,
            "printed records do not parse");
    mot_records_print(&second, &again);
    require(strcmp(mot_text_get(&printed), mot_text_get(&again)) == 0, ctx,
            "printed records print differently");
    check_json(ctx, &first);
}

static void check_graph(MotCtx *ctx, const char *text)
{
    MotGraph *first, *second;
    MotText printed, again;
    mot_text_init(&printed, &ctx->arena);
    mot_text_init(&again, &ctx->arena);
    if (mot_graph_parse(ctx, "fuzz", text, &first) != MOT_OK)
        return;
    mot_graph_print(first, &printed);
    if (mot_graph_verify(first) != MOT_OK)
        mot_error_clear(ctx);
    require(mot_graph_parse(ctx, "printed", mot_text_get(&printed), &second) == MOT_OK, ctx,
            "a printed graph does not parse");
    mot_graph_print(second, &again);
    require(strcmp(mot_text_get(&printed), mot_text_get(&again)) == 0, ctx,
            "a printed graph prints differently");
}

static MotStatus check(MotCtx *ctx, void *text)
{
    check_records(ctx, text);
    mot_error_clear(ctx);
    check_graph(ctx, text);
    return MOT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    MotCtx ctx;
    mot_ctx_init(&ctx);
    ctx.arena.limit_bytes = (size_t)1 << 30;
    char *text = mot_arena_strndup(&ctx.arena, (const char *)data, size);
    (void)!mot_ctx_run(&ctx, check, text);
    mot_ctx_deinit(&ctx);
    return 0;
}
