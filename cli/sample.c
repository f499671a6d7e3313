/*
 * motley sample: text from a trained language model. The window is fixed and right-padded, which is
 * exact for causal models.
 */
#include "cli/answer.h"
#include "cli/verbs.h"
#include "job/job.h"
#include "runtime/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const MotOption sample_options[] = {
    {"--prompt", "TEXT", "what the text begins with; numbers if tokens were the data"},
    {"--tokens", "N", "tokens to add; default 200"},
    {"--temperature", "T", "0: always the likeliest; default 0.8"},
    {"--seed", "S", "of the random choice; default 0"},
    {"--model", "FILE.onnx", "the model file, if it is not where it was"},
    {NULL, NULL, NULL}};

/*
 * How tokens are spelled: as characters of the training's vocabulary, as bytes, or as numbers where
 * its data were.
 */
typedef enum { CHARACTERS, BYTES, NUMBERS } Spelling;

typedef struct {
    MotCtx *ctx;
    MotJob job;
    MotCheckpointInfo info;
    Spelling spelling;
    MotVec(int64_t) tokens;
    MotTensor window; /* the input: [B,T] */
    const char *input, *output, *prompt;
    int64_t length, vocabulary, known; /* tokens from `known` on were in no data */
    double temperature;
    uint64_t state;
    MotText text; /* generated so far */
    bool is_json; /* it is printed at the end */
} Sampler;

/* UTF-8 of a code point, into a buffer of at least 5 bytes. */
static void encode(uint32_t code, char *out)
{
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    *out++ = (char)(lead[more] | code >> (6 * more));
    while (more--)
        *out++ = (char)(0x80 | (code >> (6 * more) & 0x3f));
    *out = 0;
}

static void add_token(Sampler *s, int64_t token)
{
    char text[24] = {(char)token, 0}; /* a byte: NUL is one, too */
    bool is_first = !*s->prompt && !*mot_text_get(&s->text);
    if (s->spelling == CHARACTERS)
        encode(s->info.vocabulary[token], text);
    else if (s->spelling == NUMBERS)
        snprintf(text, sizeof text, "%s%lld", is_first ? "" : " ", (long long)token);
    mot_vec_push(&s->ctx->arena, &s->tokens, token);
    mot_text_puts(&s->text, text);
    if (s->is_json)
        return;
    fwrite(text, 1, s->spelling == BYTES ? 1 : strlen(text), stdout);
    fflush(stdout);
}

/* The token that `text` begins with, -1: none; `out_end` stands behind it. */
static int64_t read_token(const Sampler *s, const char *text, char **out_end)
{
    char spelled[5];
    *out_end = (char *)(uintptr_t)text + 1;
    if (s->spelling == BYTES)
        return (unsigned char)*text;
    if (s->spelling == NUMBERS) {
        long long token = strtoll(text, out_end, 10);
        bool is_number = *out_end != text && (!**out_end || strchr(" ,\n", **out_end));
        *out_end += strspn(*out_end, " ,\n");
        return is_number && token < s->known ? token : -1;
    }
    for (uint32_t i = 0; i < s->info.n_vocabulary; i++) {
        encode(s->info.vocabulary[i], spelled);
        *out_end = (char *)(uintptr_t)text + strlen(spelled);
        if (strncmp(text, spelled, strlen(spelled)) == 0)
            return i;
    }
    return -1;
}

static MotStatus read_prompt(Sampler *s)
{
    if (!mot_utf8_is_valid(s->prompt, strlen(s->prompt)))
        return mot_fail(s->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--prompt is not valid UTF-8");
    char *end;
    for (const char *p = s->prompt; *p; p = end) {
        int64_t token = read_token(s, p, &end);
        if (token < 0 && s->spelling == NUMBERS)
            return mot_fail(s->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "--prompt: %s: the model was trained on tokens, and takes numbers "
                            "from 0 to %lld with blanks between",
                            mot_quote(&s->ctx->arena, p), (long long)s->known - 1);
        if (token < 0)
            return mot_fail(s->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "--prompt: the model does not know the character at %s",
                            mot_quote(&s->ctx->arena, p));
        mot_vec_push(&s->ctx->arena, &s->tokens, token);
    }
    if (s->tokens.n == 0)
        mot_vec_push(&s->ctx->arena, &s->tokens, 0);
    return MOT_OK;
}

/* xorshift64* in [0, 1). */
static double next_uniform(Sampler *s)
{
    s->state ^= s->state >> 12;
    s->state ^= s->state << 25;
    s->state ^= s->state >> 27;
    return (double)(s->state * 0x2545f4914f6cdd1du >> 11) * 0x1p-53;
}

/* A token with probability softmax(logits / temperature). */
static int64_t choose(Sampler *s, const MotTensor *logits, int64_t row)
{
    int64_t best = 0, known = s->known;
    const int64_t first = row * s->vocabulary;
    for (int64_t v = 1; v < known; v++)
        if (mot_tensor_get(logits, first + v) > mot_tensor_get(logits, first + best))
            best = v;
    if (s->temperature <= 0)
        return best;
    double most = mot_tensor_get(logits, first + best), total = 0;
    for (int64_t v = 0; v < known; v++)
        total += exp((mot_tensor_get(logits, first + v) - most) / s->temperature);
    double left = next_uniform(s) * total;
    for (int64_t v = 0; v < known; v++) {
        left -= exp((mot_tensor_get(logits, first + v) - most) / s->temperature);
        if (left < 0)
            return v;
    }
    return best;
}

static MotStatus generate(Sampler *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        MotScope scope = mot_scope_begin(s->ctx);
        int64_t start = s->tokens.n > s->length ? s->tokens.n - s->length : 0,
                used = s->tokens.n - start;
        for (int64_t t = 0; t < s->length; t++)
            mot_tensor_set_int(&s->window, t, t < used ? s->tokens.data[start + t] : 0);
        MotTensor logits;
        MOT_TRY(mot_session_write(s->job.session, s->input, &s->window));
        MOT_TRY(mot_session_run(s->job.session, MOT_SECTION_EVAL));
        MOT_TRY(mot_session_output(s->job.session, s->output, MOT_SECTION_EVAL, &logits));
        int64_t token = choose(s, &logits, used - 1);
        mot_scope_end(s->ctx, scope);
        add_token(s, token);
    }
    if (!s->is_json)
        puts("");
    return MOT_OK;
}

static void print_json(const Sampler *s, const char *path, int64_t n)
{
    MotJsonWriter w;
    mot_json_begin(&w, &s->ctx->arena);
    mot_json_open(&w, NULL, '{');
    mot_json_put_string(&w, "checkpoint", path);
    mot_json_put_int(&w, "step", s->info.step);
    mot_json_put_string(&w, "prompt", s->prompt);
    mot_json_put_string(&w, "text", mot_text_get(&s->text));
    mot_json_put_ints(&w, "tokens", s->tokens.data + s->tokens.n - n, (size_t)n);
    mot_json_close(&w, '}');
    mot_answer_print(&w);
}

/* The one integer input [B,T] and the output [B,T,V]. */
static MotStatus find_signature(Sampler *s)
{
    const MotPipeline *p = s->job.pipeline;
    for (uint32_t i = 0; i < p->vars.n; i++)
        if (p->vars.data[i]->kind == MOT_BUF_INPUT) {
            s->input = s->input ? "" : p->vars.data[i]->name;
            s->window.type = p->vars.data[i]->global;
        }
    const MotType *out = p->results.n ? &p->results.data[0].type : NULL;
    if (s->input && mot_type_elements(&s->window.type) == 0)
        return mot_fail(s->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "input %s is [%s]: it holds no text",
                        mot_quote(&s->ctx->arena, s->input),
                        mot_shape_text(&s->ctx->arena, s->window.type.dims, s->window.type.rank));
    if (!s->input || !*s->input || s->window.type.rank != 2 ||
        mot_dtype_class(s->window.type.dtype) != MOT_CLASS_INT || !out || out->rank != 3)
        return mot_fail(s->ctx, MOT_ERR_UNSUPPORTED, (MotLoc){s->job.model, NULL},
                        "is no language model with one input of tokens [B,T] and logits [B,T,V]");
    s->output = p->results.data[0].name;
    s->length = s->window.type.dims[1];
    s->vocabulary = out->dims[2];
    s->window.data = mot_arena_alloc(&s->ctx->arena, (size_t)mot_type_bytes(&s->window.type));
    return MOT_OK;
}

static MotStatus find_spelling(Sampler *s)
{
    static const char text[] = "text:";
    bool is_text = strncmp(s->info.data, text, strlen(text)) == 0;
    s->spelling = !is_text ? NUMBERS : s->info.n_vocabulary ? CHARACTERS : BYTES;
    s->known = s->spelling == CHARACTERS ? s->info.n_vocabulary
               : s->spelling == BYTES    ? 256
                                         : s->vocabulary;
    if (s->known > s->vocabulary)
        return mot_fail(s->ctx, MOT_ERR_MISMATCH, (MotLoc){s->job.model, NULL},
                        "has a vocabulary of %lld, the checkpoint has %lld characters",
                        (long long)s->vocabulary, (long long)s->known);
    return MOT_OK;
}

/* The model as it was trained, with its sizes; options overrule. */
static MotStatus import_model(Sampler *s, const MotArgs *args)
{
    const MotCheckpointInfo *info = &s->info;
    s->job.dims = mot_arena_array(&s->ctx->arena, MotDimBinding, info->n_dims);
    s->job.n_dims = info->n_dims;
    for (uint32_t i = 0; i < info->n_dims; i++)
        s->job.dims[i] = (MotDimBinding){info->dims[i].name, info->dims[i].size};
    const char *model = mot_args_get(args, "--model", info->model);
    return mot_answer_opened(s->ctx, args, mot_job_import_file(s->ctx, args, model, &s->job));
}

static MotStatus run_sample(MotCtx *ctx, const MotArgs *args)
{
    Sampler s = {.ctx = ctx,
                 .prompt = mot_args_get(args, "--prompt", ""),
                 .is_json = mot_args_has(args, "--json")};
    const char *dir, *path;
    int64_t n, seed;
    MOT_TRY(mot_args_need_operand(ctx, args, 0, &dir));
    MOT_TRY(mot_args_int(ctx, args, "--tokens", 1, 1000000, 200, &n));
    MOT_TRY(mot_args_int(ctx, args, "--seed", 0, INT64_MAX, 0, &seed));
    MOT_TRY(mot_args_number(ctx, args, "--temperature", 0.8, &s.temperature));
    mot_text_init(&s.text, &ctx->arena);
    s.state = ((uint64_t)seed + 1) * 0x9e3779b97f4a7c15u;
    MOT_TRY(mot_checkpoint_find(ctx, dir, &path, &s.info));
    MOT_TRY(import_model(&s, args));
    MOT_TRY(mot_job_prepare_forward(ctx, &s.job));
    MOT_TRY(mot_job_place(ctx, &s.job));
    MOT_TRY(find_signature(&s));
    MOT_TRY(find_spelling(&s));
    MOT_TRY(read_prompt(&s));
    MOT_TRY(mot_job_start(ctx, &s.job));
    MotStatus status = mot_checkpoint_load(ctx, s.job.session, path);
    if (status == MOT_OK) {
        fputs(s.is_json ? "" : s.prompt, stdout);
        status = generate(&s, n);
    }
    mot_session_close(s.job.session);
    if (status == MOT_OK && s.is_json)
        print_json(&s, path, n);
    return status;
}

const MotVerb mot_verb_sample = {
    .name = "sample",
    .operands = "DIR",
    .summary = "text from a trained language model",
    .options = (const MotOption *const[]){sample_options, mot_model_options, mot_device_options,
                                          mot_plan_options, mot_rank_options, NULL},
    .run = run_sample};
