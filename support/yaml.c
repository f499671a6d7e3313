/*
 * YAML by libfyaml. Nodes are libfyaml's own; its functions take them without const but do not
 * change them.
 */
#include "support/yaml.h"

#include <libfyaml.h>
#include <string.h>

static struct fy_node *as_fy(const MotYaml *node)
{
    return (struct fy_node *)(uintptr_t)node;
}

static const MotYaml *as_ours(struct fy_node *node)
{
    return (const MotYaml *)(void *)node;
}

static void release(void *document)
{
    fy_document_destroy(document);
}

/* The first error that libfyaml collected, or what an error without one must have been. */
static MotStatus report(MotCtx *ctx, MotStatus status, const char *file, struct fy_diag *diag)
{
    void *at = NULL;
    const struct fy_diag_error *error = fy_diag_errors_iterate(diag, &at);
    if (!error)
        return mot_fail(ctx, status, (MotLoc){file, NULL}, "this is not YAML");
    const char *place = mot_arena_printf(&ctx->arena, "line %d", error->line);
    return mot_fail(ctx, status, (MotLoc){file, place}, "%s", error->msg);
}

/*
 * Anchors, aliases and tags have no use in our files; an alias could make a text much larger than
 * it is.
 */
static MotStatus refuse_references(MotCtx *ctx, MotStatus status, const char *file,
                                   struct fy_node *node)
{
    if (!node)
        return MOT_OK;
    if (fy_node_is_alias(node) || fy_node_get_anchor(node))
        return mot_fail(ctx, status, mot_yaml_loc(ctx, file, as_ours(node)),
                        "anchors and aliases are not allowed");
    for (int i = 0; i < fy_node_sequence_item_count(node); i++)
        MOT_TRY(refuse_references(ctx, status, file, fy_node_sequence_get_by_index(node, i)));
    void *at = NULL;
    for (struct fy_node_pair *pair;
         fy_node_is_mapping(node) && (pair = fy_node_mapping_iterate(node, &at));) {
        MOT_TRY(refuse_references(ctx, status, file, fy_node_pair_key(pair)));
        MOT_TRY(refuse_references(ctx, status, file, fy_node_pair_value(pair)));
    }
    return MOT_OK;
}

/* Whether the text, which is YAML, holds more than one document. */
static bool has_several_documents(const struct fy_parse_cfg *cfg, const char *text, size_t n)
{
    struct fy_parser *parser = fy_parser_create(cfg);
    int documents = 0;
    if (parser && fy_parser_set_string(parser, text, n) == 0)
        for (struct fy_event *e; (e = fy_parser_parse(parser)); fy_parser_event_free(parser, e))
            documents += e->type == FYET_DOCUMENT_START;
    fy_parser_destroy(parser);
    return documents > 1;
}

MotStatus mot_yaml_parse(MotCtx *ctx, MotStatus status, const char *file, const char *text,
                         size_t n, const MotYaml **out_root)
{
    *out_root = NULL;
    size_t blank = 0;
    while (blank < n && strchr(" \t\r\n", text[blank]))
        blank++;
    if (blank == n)
        return MOT_OK;
    if (!mot_utf8_is_valid(text, n))
        return mot_fail(ctx, status, (MotLoc){file, NULL}, "the text is not UTF-8");
    struct fy_diag_cfg diag_cfg;
    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    struct fy_diag *diag = fy_diag_create(&diag_cfg);
    if (!diag)
        return mot_fail(ctx, MOT_ERR_MEMORY, (MotLoc){file, NULL}, "libfyaml refused to start");
    fy_diag_set_collect_errors(diag, true);
    struct fy_parse_cfg cfg = {.flags = FYPCF_QUIET | FYPCF_DEFAULT_PARSE, .diag = diag};
    const char *copy = mot_arena_strndup(&ctx->arena, text, n); /* nodes point into it */
    struct fy_document *document = fy_document_build_from_string(&cfg, copy, n);
    MotStatus result = document ? MOT_OK : report(ctx, status, file, diag);
    if (document)
        mot_ctx_defer(ctx, release, document);
    if (document && has_several_documents(&cfg, copy, n))
        result = mot_fail(ctx, status, (MotLoc){file, NULL}, "more than one YAML document");
    fy_diag_destroy(diag);
    if (result != MOT_OK)
        return result;
    *out_root = as_ours(fy_document_root(document));
    return refuse_references(ctx, status, file, fy_document_root(document));
}

bool mot_yaml_is_map(const MotYaml *node)
{
    return node && fy_node_is_mapping(as_fy(node));
}

bool mot_yaml_is_list(const MotYaml *node)
{
    return node && fy_node_is_sequence(as_fy(node));
}

uint32_t mot_yaml_length(const MotYaml *list)
{
    return mot_yaml_is_list(list) ? (uint32_t)fy_node_sequence_item_count(as_fy(list)) : 0;
}

const MotYaml *mot_yaml_at(const MotYaml *list, uint32_t i)
{
    return i < mot_yaml_length(list) ? as_ours(fy_node_sequence_get_by_index(as_fy(list), (int)i))
                                     : NULL;
}

MotStatus mot_yaml_each(MotCtx *ctx, const MotYaml *map,
                        MotStatus (*visit)(void *self, const MotYaml *key, const MotYaml *value),
                        void *self)
{
    if (!mot_yaml_is_map(map))
        return ctx->status;
    void *at = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(as_fy(map), &at));)
        MOT_TRY(visit(self, as_ours(fy_node_pair_key(pair)), as_ours(fy_node_pair_value(pair))));
    return ctx->status;
}

const char *mot_yaml_string(MotCtx *ctx, const MotYaml *node)
{
    if (!node || !fy_node_is_scalar(as_fy(node)))
        return NULL;
    size_t n;
    const char *text = fy_node_get_scalar(as_fy(node), &n);
    return text ? mot_arena_strndup(&ctx->arena, text, n) : NULL;
}

/* Lists and maps stand where their first scalar stands. */
static struct fy_node *find_scalar(struct fy_node *node)
{
    while (node && !fy_node_is_scalar(node)) {
        void *at = NULL;
        node = fy_node_is_sequence(node) ? fy_node_sequence_get_by_index(node, 0)
                                         : fy_node_pair_key(fy_node_mapping_iterate(node, &at));
    }
    return node;
}

MotLoc mot_yaml_loc(MotCtx *ctx, const char *file, const MotYaml *node)
{
    struct fy_node *scalar = find_scalar(as_fy(node));
    struct fy_token *token = scalar ? fy_node_get_scalar_token(scalar) : NULL;
    const struct fy_mark *mark = token ? fy_token_start_mark(token) : NULL;
    return (MotLoc){file, mark ? mot_arena_printf(&ctx->arena, "line %d", mark->line + 1) : NULL};
}
