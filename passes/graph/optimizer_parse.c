/* The text form of an optimizer, and its schedule. */
#include "passes/graph/optimizer.h"

#include "ir/sparse.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { SGD = 1, MOMENTUM = 2, ADAM = 4, ADAMW = 8, DEMO = 16, ALL = 31 };

/* Defaults are those of torch.optim. */
static const struct {
    const char *name;
    unsigned bit;
    MotOptimizer defaults;
} kinds[] = {
    {"sgd", SGD, {.update = MOT_OP_SGD, .lr = 1e-3}},
    {"momentum", MOMENTUM, {.update = MOT_OP_MOMENTUM, .lr = 1e-3, .momentum = 0.9}},
    {"adam", ADAM, {.update = MOT_OP_ADAM, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    {"adamw",
     ADAMW,
     {.update = MOT_OP_ADAM,
      .lr = 1e-3,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8,
      .wd = 0.01,
      .decoupled = true}},
    {"demo",
     DEMO,
     {.update = MOT_OP_SGD,
      .lr = 1e-3,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8,
      .decoupled = true,
      .demo = {.k = 32, .chunk = 64, .decay = 0.999, .beta = -1, .alpha = 1}}},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Options that are one number in [least, below). */
static const struct {
    const char *name;
    unsigned kinds;
    size_t offset;
    double least, below;
} numbers[] = {
    {"lr", ALL, offsetof(MotOptimizer, lr), 0, INFINITY},
    {"wd", ALL, offsetof(MotOptimizer, wd), 0, INFINITY},
    {"clip", ALL, offsetof(MotOptimizer, clip), 0, INFINITY},
    {"momentum", SGD | MOMENTUM, offsetof(MotOptimizer, momentum), 0, 1},
    {"eps", ADAM | ADAMW | DEMO, offsetof(MotOptimizer, eps), 0, INFINITY},
    {"decay", DEMO, offsetof(MotOptimizer, demo.decay), 0, 1},
    {"beta", DEMO, offsetof(MotOptimizer, demo.beta), 0, 1},
    {"alpha", DEMO, offsetof(MotOptimizer, demo.alpha), 0, INFINITY},
};
/* Options that are one integer, from 1 on. */
static const struct {
    const char *name;
    unsigned kinds;
    size_t offset;
    int64_t most;
} integers[] = {
    {"replicas", DEMO, offsetof(MotOptimizer, demo.replicas), MOT_MAX_PARTS},
    {"k", DEMO, offsetof(MotOptimizer, demo.k), INT32_MAX},
    {"s", DEMO, offsetof(MotOptimizer, demo.chunk), 4096},
};
enum { N_INTEGERS = sizeof integers / sizeof *integers };

/* Options that are one word; the number stored is its place. */
static const char *const base_names[] = {"sign", "sgd", "adamw", "muon", NULL};
static const char *const select_names[] = {"dct", "topk", "random", "striding", NULL};
static const char *const bit_names[] = {"0", "1", NULL};
static const struct {
    const char *name;
    unsigned kinds;
    size_t offset;
    const char *const *words;
    const char *what;
} words[] = {
    {"wire", DEMO, offsetof(MotOptimizer, demo.wire), mot_wire_names, "f32, bf16, int8 or sign"},
    {"base", DEMO, offsetof(MotOptimizer, demo.base), base_names, "sign, sgd, adamw or muon"},
    {"select", DEMO, offsetof(MotOptimizer, demo.select), select_names,
     "dct, topk, random or striding"},
    {"delay", DEMO, offsetof(MotOptimizer, demo.delay), bit_names, "0 or 1 round"},
    {"lookahead", DEMO, offsetof(MotOptimizer, demo.looks_ahead), bit_names, "0 or 1"},
};
enum { N_WORDS = sizeof words / sizeof *words };

enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

typedef struct {
    MotCtx *ctx;
    const char *text;
    unsigned kind;
    MotOptimizer o;
    MotVec(const char *) nodecay, seen;
} Parse;

static MotStatus refuse(Parse *p, const char *item, const char *what)
{
    MotArena *arena = &p->ctx->arena;
    mot_fail(p->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--optimizer %s: %s: %s",
             mot_quote(arena, p->text), mot_quote(arena, item), what);
    mot_hint(
        p->ctx,
        "sgd, momentum, adam or adamw, then :lr=3e-4,betas=0.9/0.95,eps=1e-8,wd=0.1,momentum=0.9,"
        "nodecay=GLOB,clip=1.0,schedule=cosine,warmup=100; or demo:lr=1e-3,replicas=4,k=32,s=64,"
        "decay=0.999,wire=sign");
    return p->ctx->status;
}

/* A number in [least, below) that ends at `stop`. */
static bool parse_number(const char *text, char stop, double least, double below, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == stop && *out >= least && *out < below;
}

static MotStatus parse_betas(Parse *p, const char *item, const char *value)
{
    const char *slash = strchr(value, '/');
    if (!(p->kind & (ADAM | ADAMW | DEMO)))
        return refuse(p, item, "this optimizer has no betas");
    if (!slash || !parse_number(value, '/', 0, 1, &p->o.beta1) ||
        !parse_number(slash + 1, 0, 0, 1, &p->o.beta2))
        return refuse(p, item, "two numbers in [0, 1) with a / between");
    return MOT_OK;
}

static MotStatus parse_schedule(Parse *p, const char *item, const char *value)
{
    p->o.is_cosine = strcmp(value, "cosine") == 0;
    if (!p->o.is_cosine && strcmp(value, "constant") != 0)
        return refuse(p, item, "the schedules are constant and cosine");
    return MOT_OK;
}

static MotStatus parse_warmup(Parse *p, const char *item, const char *value)
{
    double steps;
    if (!parse_number(value, 0, 0, 1e15, &steps) || steps != floor(steps))
        return refuse(p, item, "a number of steps, 0 or more");
    p->o.warmup = (int64_t)steps;
    return MOT_OK;
}

static MotStatus parse_nodecay(Parse *p, const char *item, const char *value)
{
    if (*value == 0)
        return refuse(p, item, "a glob over names of initializers");
    mot_vec_push(&p->ctx->arena, &p->nodecay, mot_intern(p->ctx, value));
    return MOT_OK;
}

static MotStatus parse_one_number(Parse *p, const char *item, size_t row, const char *value)
{
    double number;
    if (!(numbers[row].kinds & p->kind))
        return refuse(p, item, "this optimizer has no such option");
    if (!parse_number(value, 0, numbers[row].least, numbers[row].below, &number))
        return refuse(
            p, item, numbers[row].below == 1 ? "a number in [0, 1)" : "a finite number, 0 or more");
    memcpy((char *)&p->o + numbers[row].offset, &number, sizeof number);
    return MOT_OK;
}

static MotStatus parse_integer(Parse *p, const char *item, size_t row, const char *value)
{
    double number;
    if (!(integers[row].kinds & p->kind))
        return refuse(p, item, "this optimizer has no such option");
    if (!parse_number(value, 0, 1, (double)integers[row].most + 1, &number) ||
        number != floor(number))
        return refuse(p, item,
                      mot_arena_printf(&p->ctx->arena, "an integer from 1 to %lld",
                                       (long long)integers[row].most));
    *(int64_t *)(void *)((char *)&p->o + integers[row].offset) = (int64_t)number;
    return MOT_OK;
}

static MotStatus parse_word(Parse *p, const char *item, size_t row, const char *value)
{
    if (!(words[row].kinds & p->kind))
        return refuse(p, item, "this optimizer has no such option");
    for (int64_t i = 0; words[row].words[i]; i++)
        if (strcmp(words[row].words[i], value) == 0) {
            *(int64_t *)(void *)((char *)&p->o + words[row].offset) = i;
            return MOT_OK;
        }
    return refuse(p, item, words[row].what);
}

static bool is_seen(const Parse *p, const char *key)
{
    uint32_t i = 0;
    while (i < p->seen.n && strcmp(p->seen.data[i], key) != 0)
        i++;
    return i < p->seen.n;
}

static MotStatus check_unseen(Parse *p, const char *item, const char *key)
{
    if (is_seen(p, key))
        return refuse(p, item, "given twice");
    mot_vec_push(&p->ctx->arena, &p->seen, key);
    return MOT_OK;
}

static MotStatus parse_item(Parse *p, const char *item)
{
    static const struct {
        const char *name;
        MotStatus (*parse)(Parse *, const char *, const char *);
    } others[] = {{"betas", parse_betas}, {"schedule", parse_schedule}, {"warmup", parse_warmup}};
    const char *equals = strchr(item, '=');
    if (!equals)
        return refuse(p, item, "not key=value");
    const char *key = mot_arena_strndup(&p->ctx->arena, item, (size_t)(equals - item)),
               *value = equals + 1;
    if (strcmp(key, "nodecay") == 0)
        return parse_nodecay(p, item, value);
    MOT_TRY(check_unseen(p, item, key));
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (strcmp(key, numbers[i].name) == 0)
            return parse_one_number(p, item, i, value);
    for (size_t i = 0; i < N_INTEGERS; i++)
        if (strcmp(key, integers[i].name) == 0)
            return parse_integer(p, item, i, value);
    for (size_t i = 0; i < N_WORDS; i++)
        if (strcmp(key, words[i].name) == 0)
            return parse_word(p, item, i, value);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(key, others[i].name) == 0)
            return others[i].parse(p, item, value);
    return refuse(p, item, "unknown option");
}

static MotStatus parse_items(Parse *p, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, ",");
        MOT_TRY(parse_item(p, mot_arena_strndup(&p->ctx->arena, text, n)));
        text += n + (text[n] == ',');
    }
    return MOT_OK;
}

/* What only makes sense together. */
static MotStatus check_demo(Parse *p)
{
    const MotDemo *d = &p->o.demo;
    if (!d->replicas)
        return refuse(p, "demo", "replicas=N is needed: it is part of what is computed");
    if (d->alpha > 1)
        return refuse(p, "alpha", "a part of what is sent, from 0 to 1");
    if (is_seen(p, "beta") && is_seen(p, "decay"))
        return refuse(p, "beta", "stands instead of decay, not beside it");
    if (d->looks_ahead && (!d->delay || d->base != MOT_BASE_SIGN))
        return refuse(p, "lookahead=1", "goes with delay=1 and base=sign only");
    bool is_scaled = d->base == MOT_BASE_SGD || d->base == MOT_BASE_ADAMW;
    if (is_scaled && d->beta < 0)
        return refuse(p, base_names[d->base],
                      "this base takes averaged momentum: give beta=0.999 instead of decay");
    if (d->base != MOT_BASE_SIGN && d->wire == MOT_WIRE_SIGN)
        return refuse(p, "wire=sign", "signs alone serve base=sign only");
    return MOT_OK;
}

MotStatus mot_optimizer_parse(MotCtx *ctx, const char *text, MotOptimizer *out_optimizer)
{
    Parse p = {.ctx = ctx, .text = text};
    size_t n = strcspn(text, ":");
    for (size_t i = 0; i < N_KINDS; i++)
        if (strlen(kinds[i].name) == n && memcmp(kinds[i].name, text, n) == 0) {
            p.kind = kinds[i].bit;
            p.o = kinds[i].defaults;
        }
    if (!p.kind)
        return refuse(&p, mot_arena_strndup(&ctx->arena, text, n), "unknown optimizer");
    MOT_TRY(parse_items(&p, text + n + (text[n] == ':')));
    if (p.kind == SGD && p.o.momentum > 0)
        p.o.update = MOT_OP_MOMENTUM;
    if (p.kind == DEMO)
        MOT_TRY(check_demo(&p));
    if (p.kind == DEMO && p.o.demo.base == MOT_BASE_ADAMW)
        p.o.update = MOT_OP_ADAM;
    p.o.nodecay = p.nodecay.data;
    p.o.n_nodecay = p.nodecay.n;
    *out_optimizer = p.o;
    return MOT_OK;
}

/* Whether each glob of a is one of b's. */
static bool has_globs(const MotOptimizer *a, const MotOptimizer *b)
{
    for (uint32_t i = 0; i < a->n_nodecay; i++) {
        uint32_t k = 0;
        while (k < b->n_nodecay && strcmp(a->nodecay[i], b->nodecay[k]) != 0)
            k++;
        if (k == b->n_nodecay)
            return false;
    }
    return true;
}

static double number_of(const MotOptimizer *o, size_t offset)
{
    return *(const double *)(const void *)((const char *)o + offset);
}

static int64_t integer_of(const MotOptimizer *o, size_t offset)
{
    return *(const int64_t *)(const void *)((const char *)o + offset);
}

bool mot_optimizer_is_same(const MotOptimizer *a, const MotOptimizer *b)
{
    bool is_same = a->update == b->update && a->beta1 == b->beta1 && a->beta2 == b->beta2 &&
                   a->decoupled == b->decoupled && a->is_cosine == b->is_cosine &&
                   a->warmup == b->warmup && (a->demo.replicas > 0) == (b->demo.replicas > 0);
    for (size_t i = 0; i < N_NUMBERS; i++)
        is_same &= number_of(a, numbers[i].offset) == number_of(b, numbers[i].offset);
    for (size_t i = 0; i < N_INTEGERS; i++)
        if (integers[i].offset != offsetof(MotOptimizer, demo.replicas))
            is_same &= integer_of(a, integers[i].offset) == integer_of(b, integers[i].offset);
    for (size_t i = 0; i < N_WORDS; i++)
        is_same &= integer_of(a, words[i].offset) == integer_of(b, words[i].offset);
    return is_same && has_globs(a, b) && has_globs(b, a);
}

double mot_schedule_lr(const MotOptimizer *optimizer, int64_t step, int64_t total)
{
    int64_t done = step - 1 - optimizer->warmup, all = total - optimizer->warmup;
    if (step <= optimizer->warmup)
        return optimizer->lr * (double)step / (double)optimizer->warmup;
    if (!optimizer->is_cosine || all <= 0)
        return optimizer->lr;
    double part = done < all ? (double)done / (double)all : 1;
    return optimizer->lr * 0.5 * (1 + cos(3.14159265358979323846 * part));
}
