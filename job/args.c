/* Parsing by table. `--option value` and `--option=value` are the same; `--` ends the options. */
#include "job/args.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef MotVec(const char *) Values;

struct MotArgs {
    const MotVerb *verb;
    MotMap index; /* option name -> index into values + 1 */
    MotVec(Values) values;
    Values operands;
};

const MotOption mot_common_options[] = {{"--json", NULL, "the answer as one JSON document"},
                                        {"-q", NULL, "only the answer, warnings and errors"},
                                        {"-v", NULL, "what the stages do, and how long they take"},
                                        {NULL, NULL, NULL}};

static const MotOption *find_in_group(const MotOption *group, const char *name, size_t n)
{
    for (const MotOption *o = group; o->name; o++)
        if (strlen(o->name) == n && memcmp(o->name, name, n) == 0)
            return o;
    return NULL;
}

static const MotOption *find_in_groups(const MotOption *const *groups, const char *name, size_t n)
{
    const MotOption *found = NULL;
    for (uint32_t g = 0; groups[g] && !found; g++)
        found = find_in_group(groups[g], name, n);
    return found;
}

static const MotOption *find_option(const MotVerb *verb, const char *name, size_t n)
{
    const MotOption *found = find_in_group(mot_common_options, name, n);
    return found ? found : find_in_groups(verb->options, name, n);
}

static void add_value(MotCtx *ctx, MotArgs *args, const char *name, const char *value)
{
    uint64_t index;
    if (!mot_map_get_str(&args->index, name, &index)) {
        mot_vec_push(&ctx->arena, &args->values, (Values){0});
        index = args->values.n - 1;
        mot_map_put_str(&args->index, name, index);
    }
    mot_vec_push(&ctx->arena, &args->values.data[index], value);
}

/*
 * As many operands as the verb's usage has words; a word that ends in "..." stands for any number.
 */
static MotStatus check_operands(MotCtx *ctx, const MotArgs *args)
{
    const char *usage = args->verb->operands;
    uint32_t most = *usage ? 1 : 0;
    for (const char *p = usage; *p; p++)
        most += *p == ' ';
    if (strstr(usage, "...") || args->operands.n <= most)
        return MOT_OK;
    return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s is one operand too many: motley %s%s%s",
                    mot_quote(&ctx->arena, args->operands.data[most]), args->verb->name,
                    *usage ? " " : "", usage);
}

MotStatus mot_args_parse(MotCtx *ctx, const MotVerb *verb, int argc, char **argv,
                         const MotArgs **out_args)
{
    MotArgs *args = mot_arena_new(&ctx->arena, MotArgs);
    args->verb = verb;
    mot_map_init(&args->index, &ctx->arena);
    bool takes_options = true;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (!takes_options || arg[0] != '-' || !arg[1]) {
            mot_vec_push(&ctx->arena, &args->operands, arg);
            continue;
        }
        if (strcmp(arg, "--") == 0) {
            takes_options = false;
            continue;
        }
        size_t n = strncmp(arg, "--", 2) == 0 ? strcspn(arg, "=") : strlen(arg);
        const MotOption *option = find_option(verb, arg, n);
        if (!option) {
            mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s: there is no option %s", verb->name,
                     mot_quote(&ctx->arena, mot_arena_strndup(&ctx->arena, arg, n)));
            mot_hint(ctx, "motley %s --help lists the options", verb->name);
            return ctx->status;
        }
        const char *value = arg[n] == '=' ? arg + n + 1 : "";
        if (option->value && arg[n] != '=') {
            if (++i == argc)
                return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s needs a value: %s %s",
                                option->name, option->name, option->value);
            value = argv[i];
        } else if (!option->value && arg[n] == '=') {
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s takes no value", option->name);
        }
        add_value(ctx, args, option->name, value);
    }
    *out_args = args;
    return check_operands(ctx, args);
}

const char *mot_args_operand(const MotArgs *args, uint32_t i)
{
    return i < args->operands.n ? args->operands.data[i] : NULL;
}

MotStatus mot_args_need_operand(MotCtx *ctx, const MotArgs *args, uint32_t i,
                                const char **out_operand)
{
    *out_operand = mot_args_operand(args, i);
    if (*out_operand)
        return MOT_OK;
    return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "usage: motley %s %s [options]",
                    args->verb->name, args->verb->operands);
}

static const Values *find_values(const MotArgs *args, const char *option)
{
    uint64_t index;
    return mot_map_get_str(&args->index, option, &index) ? &args->values.data[index] : NULL;
}

bool mot_args_has(const MotArgs *args, const char *option)
{
    return find_values(args, option) != NULL;
}

const char *mot_args_get(const MotArgs *args, const char *option, const char *otherwise)
{
    const Values *v = find_values(args, option);
    return v ? v->data[v->n - 1] : otherwise;
}

const char *const *mot_args_list(const MotArgs *args, const char *option, uint32_t *out_n)
{
    const Values *v = find_values(args, option);
    *out_n = v ? v->n : 0;
    return v ? v->data : NULL;
}

MotStatus mot_args_int(MotCtx *ctx, const MotArgs *args, const char *option, int64_t least,
                       int64_t most, int64_t otherwise, int64_t *out_value)
{
    const char *text = mot_args_get(args, option, NULL);
    *out_value = otherwise;
    if (!text)
        return MOT_OK;
    char *end;
    errno = 0;
    *out_value = strtoll(text, &end, 10);
    if (end == text || *end || errno || *out_value < least || *out_value > most)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "%s %s: an integer from %lld to %lld is needed", option,
                        mot_quote(&ctx->arena, text), (long long)least, (long long)most);
    return MOT_OK;
}

MotStatus mot_args_number(MotCtx *ctx, const MotArgs *args, const char *option, double otherwise,
                          double *out_value)
{
    const char *text = mot_args_get(args, option, NULL);
    *out_value = otherwise;
    if (!text)
        return MOT_OK;
    char *end;
    *out_value = strtod(text, &end);
    if (end == text || *end || !(*out_value >= 0))
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "%s %s: a number >= 0 is needed", option,
                        mot_quote(&ctx->arena, text));
    return MOT_OK;
}

MotStatus mot_args_shares(MotCtx *ctx, const char *text, MotShareList *out_shares)
{
    MotVec(int64_t) shares = {0};
    int64_t total = 0;
    const char *equals = strrchr(text, '=');
    for (const char *p = equals ? equals + 1 : text;; p++) {
        char *end;
        errno = 0;
        long long share = strtoll(p, &end, 10);
        bool ends_well = *end == '/' || *end == 0;
        if (end == p || !ends_well || errno || share < 0 || share > 1000000)
            return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "%s: shares are integers such as 8/4/2/1",
                            mot_quote(&ctx->arena, text));
        mot_vec_push(&ctx->arena, &shares, share);
        total += share;
        p = end;
        if (!*p)
            break;
    }
    *out_shares = (MotShareList){
        equals ? mot_arena_strndup(&ctx->arena, text, (size_t)(equals - text)) : NULL, shares.data,
        shares.n};
    return total > 0
               ? MOT_OK
               : mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE, "the shares %s are all zero", text);
}

const char **mot_args_texts(MotCtx *ctx, const MotArgs *args, const MotOption *const *groups,
                            uint32_t *out_n)
{
    MotVec(const char *) texts = {0};
    for (uint32_t g = 0; groups[g]; g++)
        for (const MotOption *o = groups[g]; o->name; o++) {
            const Values *v = find_values(args, o->name);
            for (uint32_t i = 0; v && i < v->n; i++)
                mot_vec_push(&ctx->arena, &texts,
                             mot_arena_printf(&ctx->arena, "%s%s%s", o->name, o->value ? "=" : "",
                                              v->data[i]));
        }
    *out_n = texts.n;
    return texts.data;
}

bool mot_args_is_text(const MotOption *const *groups, const char *text)
{
    size_t n = strcspn(text, "=");
    const MotOption *o = find_in_groups(groups, text, n);
    return o && (o->value != NULL) == (text[n] == '=');
}

const MotArgs *mot_args_with(MotCtx *ctx, const MotArgs *args, const char *const *options,
                             uint32_t n)
{
    MotArgs *all = mot_arena_new(&ctx->arena, MotArgs);
    *all = (MotArgs){.verb = args->verb, .operands = args->operands};
    mot_map_init(&all->index, &ctx->arena);
    for (uint32_t i = 0; i < args->index.n; i++) {
        const char *name = args->index.entries[i].key;
        const Values *v = find_values(args, name);
        for (uint32_t k = 0; k < v->n; k++)
            add_value(ctx, all, name, v->data[k]);
    }
    for (uint32_t i = 0; i < n; i++) {
        size_t length = strcspn(options[i], "=");
        const MotOption *o = find_option(args->verb, options[i], length);
        if (o && !mot_args_has(args, o->name))
            add_value(ctx, all, o->name, options[i][length] ? options[i] + length + 1 : "");
    }
    return all;
}
