/* Sources of training data, and the order of samples. */
#include "runtime/data.h"

#include "runtime/csv.h"
#include "runtime/idx.h"
#include "runtime/npy.h"
#include "support/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FIELDS = 8, VALIDATION_PART = 10 };

struct MotData {
    MotCtx *ctx;
    MotDataOpts opts;
    int64_t n_train, n_valid; /* samples */
    int64_t sample_bytes[MAX_FIELDS];
    MotTensor arrays[MAX_FIELDS]; /* npy, idx, csv */
    const uint32_t *tokens;       /* language models: all tokens */
    int64_t n_tokens, window, valid_start;
    const uint32_t *vocabulary;
    uint32_t n_vocabulary;
    uint32_t *order; /* the permutation of epoch `epoch` */
    int64_t epoch;
};

/* SplitMix64 (Steele et al. 2014): the state walks, the output is mixed. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/*
 * Fisher-Yates from a state that depends on seed and epoch only, so that a resumed run sees the
 * same order.
 */
static void shuffle(MotData *d, int64_t epoch)
{
    uint64_t state = d->opts.seed * 0x2545f4914f6cdd1du + (uint64_t)epoch;
    for (int64_t i = 0; i < d->n_train; i++)
        d->order[i] = (uint32_t)i;
    for (int64_t i = d->n_train - 1; i > 0; i--) {
        uint64_t k = (uint64_t)((unsigned __int128)next_random(&state) * (uint64_t)(i + 1) >> 64);
        uint32_t swap = d->order[i];
        d->order[i] = d->order[k];
        d->order[k] = swap;
    }
    d->epoch = epoch;
}

static MotStatus refuse(MotData *d, const char *file, const char *what)
{
    return mot_fail(d->ctx, MOT_ERR_DATA, (MotLoc){file, NULL}, "%s", what);
}

/*
 * The path at the beginning of `text`: the longest part up to a comma, or all, that is a file; if
 * none is, up to the first comma. So paths may hold commas. `out_rest` stands behind the comma;
 * NULL: there is none.
 */
static const char *take_path(MotData *d, const char *text, const char **out_rest)
{
    char *path = mot_arena_strdup(&d->ctx->arena, text);
    size_t n = strlen(text), first = strcspn(text, ",");
    while (n > first && access(path, F_OK) != 0) {
        do
            n--;
        while (path[n] != ',');
        path[n] = 0;
    }
    *out_rest = text[n] ? text + n + 1 : NULL;
    return path;
}

/* ---- Language models ---- */

/* One code point of valid UTF-8. */
static uint32_t decode(const unsigned char **p)
{
    uint32_t byte = *(*p)++;
    if (byte < 0x80)
        return byte;
    int more = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    uint32_t code = byte & (0x3fu >> more);
    while (more--)
        code = code << 6 | (*(*p)++ & 0x3f);
    return code;
}

static int compare_codes(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The sorted code points of tokens[0, n). */
static void collect_vocabulary(MotData *d, const uint32_t *codes, int64_t n)
{
    uint32_t *sorted = mot_arena_copy(&d->ctx->arena, codes, (size_t)n * sizeof *codes);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_codes);
    uint32_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || sorted[i] != sorted[kept - 1])
            sorted[kept++] = sorted[i];
    d->vocabulary = sorted;
    d->n_vocabulary = kept;
}

/* Characters outside the vocabulary can only be in the validation part. */
static MotStatus encode_characters(MotData *d, const char *path, uint32_t *codes, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t *at = bsearch(&codes[i], d->vocabulary, d->n_vocabulary,
                                     sizeof *d->vocabulary, compare_codes);
        if (!at) {
            mot_fail(d->ctx, MOT_ERR_DATA, (MotLoc){path, NULL},
                     "character U+%04X at %lld is in the validation part (the last 10 %%) only",
                     codes[i], (long long)i);
            mot_hint(d->ctx,
                     "remove it%s, or move text that has it towards the beginning: what "
                     "is trained on has to have every character",
                     codes[i] == '\n' && i == n - 1 ? " (it is the end of the last line)" : "");
            return d->ctx->status;
        }
        codes[i] = (uint32_t)(at - d->vocabulary);
    }
    return MOT_OK;
}

static MotStatus read_characters(MotData *d, const char *path, const MotFileMap *file)
{
    if (!mot_utf8_is_valid((const char *)file->data, file->n))
        return refuse(d, path, "is not valid UTF-8; use unit=byte");
    uint32_t *codes = mot_arena_array(&d->ctx->arena, uint32_t, file->n + 1);
    const unsigned char *p = file->data, *end = p + file->n;
    while (p < end)
        codes[d->n_tokens++] = decode(&p);
    d->valid_start = d->n_tokens - d->n_tokens / VALIDATION_PART;
    collect_vocabulary(d, codes, d->valid_start);
    if (d->n_vocabulary > d->opts.n_classes)
        return mot_fail(d->ctx, MOT_ERR_DATA, (MotLoc){path, NULL},
                        "has %u different characters, the model's vocabulary is %lld",
                        d->n_vocabulary, (long long)d->opts.n_classes);
    d->tokens = codes;
    return encode_characters(d, path, codes, d->n_tokens);
}

static MotStatus read_bytes(MotData *d, const char *path, const MotFileMap *file)
{
    if (d->opts.n_classes < 256)
        return mot_fail(d->ctx, MOT_ERR_DATA, (MotLoc){path, NULL},
                        "bytes need a vocabulary of 256, the model's is %lld",
                        (long long)d->opts.n_classes);
    uint32_t *codes = mot_arena_array(&d->ctx->arena, uint32_t, file->n + 1);
    for (size_t i = 0; i < file->n; i++)
        codes[i] = file->data[i];
    d->tokens = codes;
    d->n_tokens = (int64_t)file->n;
    return MOT_OK;
}

/* uint16 tokens; llm.c's header is 256 int32 that start with 20240520, 1, count. */
static MotStatus read_tokens(MotData *d, const char *path, const MotFileMap *file)
{
    const uint8_t *p = file->data;
    size_t n = file->n;
    int32_t head[3] = {0};
    if (n >= 1024)
        memcpy(head, p, sizeof head);
    if (head[0] == 20240520) {
        if (head[1] != 1 || (size_t)head[2] != (n - 1024) / 2)
            return refuse(d, path, "has a header that does not fit its length");
        p += 1024;
        n -= 1024;
    }
    if (n % 2)
        return refuse(d, path, "has an odd number of bytes; tokens are uint16");
    d->n_tokens = (int64_t)(n / 2);
    uint32_t *tokens = mot_arena_array(&d->ctx->arena, uint32_t, d->n_tokens + 1);
    for (int64_t i = 0; i < d->n_tokens; i++) {
        uint16_t token;
        memcpy(&token, p + 2 * i, sizeof token);
        tokens[i] = token;
        if (token >= d->opts.n_classes)
            return mot_fail(d->ctx, MOT_ERR_DATA, (MotLoc){path, NULL},
                            "token %u at index %lld is not below the model's vocabulary %lld",
                            token, (long long)i, (long long)d->opts.n_classes);
    }
    d->tokens = tokens;
    return MOT_OK;
}

static void divide_windows(MotData *d)
{
    int64_t per_batch = mot_type_elements(&d->opts.fields[0].type);
    d->window = per_batch / d->opts.batch;
    if (!d->valid_start)
        d->valid_start = d->n_tokens - d->n_tokens / VALIDATION_PART;
    d->n_train = d->valid_start > 0 ? (d->valid_start - 1) / d->window : 0;
    d->n_valid =
        d->n_tokens - d->valid_start > 0 ? (d->n_tokens - d->valid_start - 1) / d->window : 0;
}

static void fill_window(const MotData *d, uint32_t field, int64_t sample, int64_t slot, void *out)
{
    const MotDataField *f = &d->opts.fields[field];
    MotTensor t = {f->type, out};
    const uint32_t *from = d->tokens + sample * d->window + (f->is_label ? 1 : 0);
    if (sample >= d->n_train)
        from =
            d->tokens + d->valid_start + (sample - d->n_train) * d->window + (f->is_label ? 1 : 0);
    for (int64_t i = 0; i < d->window; i++)
        mot_tensor_set_int(&t, slot * d->window + i, from[i]);
}

/* ---- Arrays ---- */

MotStatus mot_labels_check(MotCtx *ctx, const char *path, const MotTensor *labels,
                           int64_t n_classes, int64_t ignore)
{
    int64_t n = mot_type_elements(&labels->type);
    for (int64_t i = 0; i < n; i++) {
        int64_t label = mot_tensor_get_int(labels, i);
        if ((label < 0 || label >= n_classes) && label != ignore)
            return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){path, NULL},
                            "label %lld at index %lld is none of the %lld classes from 0, nor the "
                            "ignored label %lld",
                            (long long)label, (long long)i, (long long)n_classes,
                            (long long)ignore);
    }
    return MOT_OK;
}

static MotStatus convert(MotData *d, const MotDataField *field, MotTensor *array, const char *path)
{
    MotDtype want = field->type.dtype, have = array->type.dtype;
    bool is_widening = mot_dtype_class(want) == MOT_CLASS_INT &&
                       mot_dtype_class(have) == MOT_CLASS_INT && field->is_label;
    bool is_cast = want == MOT_F32 && have == MOT_F64 && d->opts.cast;
    if (want == have)
        return MOT_OK;
    if (!is_widening && !is_cast) {
        mot_fail(d->ctx, MOT_ERR_DATA, (MotLoc){path, NULL}, "is %s, input %s is %s",
                 mot_dtype_name(have), mot_quote(&d->ctx->arena, field->input),
                 mot_dtype_name(want));
        if (have == MOT_F64)
            mot_hint(d->ctx, "--cast converts float64 to float32");
        return d->ctx->status;
    }
    *array = mot_tensor_cast(&d->ctx->arena, array, want);
    return MOT_OK;
}

static MotStatus refuse_shape(MotData *d, const MotDataField *field, const MotType *have,
                              const char *path)
{
    mot_fail(d->ctx, MOT_ERR_DATA, (MotLoc){path, NULL}, "is [%s]; input %s takes batches [%s]",
             mot_shape_text(&d->ctx->arena, have->dims, have->rank),
             mot_quote(&d->ctx->arena, field->input),
             mot_shape_text(&d->ctx->arena, field->type.dims, field->type.rank));
    if (field->is_label && have->rank == field->type.rank)
        mot_hint(d->ctx, "labels have the dims of the logits without that of the classes, which is "
                         "the last one unless the loss has axis=N");
    return d->ctx->status;
}

/* Field k comes from the array: a sample a row. */
static MotStatus take_array(MotData *d, uint32_t k, const MotTensor *array, const char *path)
{
    const MotDataField *field = &d->opts.fields[k];
    bool fits = array->type.rank == field->type.rank && array->type.rank > 0;
    if (fits && field->type.dims[0] != d->opts.batch)
        return mot_fail(d->ctx, MOT_ERR_UNSUPPORTED, (MotLoc){path, NULL},
                        "input %s is [%s]: its first dim is not the batch of %lld",
                        mot_quote(&d->ctx->arena, field->input),
                        mot_shape_text(&d->ctx->arena, field->type.dims, field->type.rank),
                        (long long)d->opts.batch);
    for (int i = 1; fits && i < array->type.rank; i++)
        fits = array->type.dims[i] == field->type.dims[i];
    if (!fits)
        return refuse_shape(d, field, &array->type, path);
    if (d->arrays[0].data && d->n_train + d->n_valid != array->type.dims[0])
        return mot_fail(d->ctx, MOT_ERR_DATA, (MotLoc){path, NULL},
                        "has %lld rows, the array before it has %lld",
                        (long long)array->type.dims[0], (long long)(d->n_train + d->n_valid));
    d->arrays[k] = *array;
    d->sample_bytes[k] = mot_type_bytes(&field->type) / d->opts.batch;
    d->n_valid = array->type.dims[0] / VALIDATION_PART;
    d->n_train = array->type.dims[0] - d->n_valid;
    return MOT_OK;
}

static MotStatus add_array(MotData *d, uint32_t k, MotTensor array, const char *path)
{
    const MotDataField *field = &d->opts.fields[k];
    if (field->is_label && mot_dtype_class(array.type.dtype) == MOT_CLASS_INT)
        MOT_TRY(mot_labels_check(d->ctx, path, &array, d->opts.n_classes, d->opts.ignore));
    MOT_TRY(convert(d, field, &array, path));
    return take_array(d, k, &array, path);
}

/*
 * The field that an item `NAME=FILE` is for: the longest name counts, as names may hold '='.
 * n_fields: none.
 */
static uint32_t find_field(const MotData *d, const char *item)
{
    uint32_t found = d->opts.n_fields;
    for (uint32_t k = 0; k < d->opts.n_fields; k++) {
        const char *name = d->opts.fields[k].input;
        size_t n = strlen(name);
        bool is_longer = found == d->opts.n_fields || n > strlen(d->opts.fields[found].input);
        if (strncmp(item, name, n) == 0 && item[n] == '=' && is_longer)
            found = k;
    }
    return found;
}

/* `IN=X.npy,labels=Y.npy`: every field of the graph needs its file, and every file its field. */
static MotStatus open_arrays(MotData *d, const char *list)
{
    const char *path[MAX_FIELDS] = {0};
    for (const char *item = list; item && *item;) {
        uint32_t k = find_field(d, item);
        if (k == d->opts.n_fields)
            return mot_fail(d->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                            "--data npy: %s names no input of the model",
                            mot_quote(&d->ctx->arena, item));
        path[k] = take_path(d, item + strlen(d->opts.fields[k].input) + 1, &item);
    }
    for (uint32_t k = 0; k < d->opts.n_fields; k++) {
        const char *name = d->opts.fields[k].input;
        MotTensor array;
        if (!path[k])
            return mot_fail(
                d->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--data npy: no file for %s; add %s=FILE.npy",
                mot_quote(&d->ctx->arena, name), mot_escape(&d->ctx->arena, name, SIZE_MAX));
        MOT_TRY(mot_npy_read(d->ctx, path[k], &array));
        MOT_TRY(add_array(d, k, array, path[k]));
    }
    return MOT_OK;
}

/* ---- Samples with a label: idx and csv ---- */

/* One input of floats, and the labels: fields 0 and 1. */
static MotStatus check_labelled(MotData *d, const char *kind)
{
    const MotDataField *f = d->opts.fields;
    if (d->opts.n_fields == 2 && !f[0].is_label && f[1].is_label &&
        mot_dtype_class(f[0].type.dtype) == MOT_CLASS_FLOAT && f[1].type.rank > 0)
        return MOT_OK;
    return mot_fail(d->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                    "--data %s: needs a model with one input of floats, and a loss with labels",
                    kind);
}

/* The same elements in the dims of the field: images become features, or get a channel. */
static void shape_as_field(MotTensor *array, const MotDataField *field)
{
    MotType type = field->type;
    type.dtype = array->type.dtype;
    type.dims[0] = array->type.dims[0];
    if (mot_type_elements(&type) == mot_type_elements(&array->type))
        array->type = type;
}

/* Bytes of 0 to 255 become floats of 0 to 1. */
static MotTensor scale_bytes(MotData *d, const MotTensor *bytes, MotDtype dtype)
{
    MotTensor scaled = mot_tensor_cast(&d->ctx->arena, bytes, dtype);
    int64_t n = mot_type_elements(&scaled.type);
    for (int64_t i = 0; i < n; i++)
        mot_tensor_set(&scaled, i, mot_tensor_get(bytes, i) / 255);
    return scaled;
}

/* `IMAGES,LABELS`. */
static MotStatus open_idx(MotData *d, const char *list)
{
    const MotDataField *f = d->opts.fields;
    const char *labels, *images = take_path(d, list, &labels);
    MotTensor image, label;
    if (!*images || !labels || !*labels)
        return mot_fail(d->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--data %s: it is idx:IMAGES,LABELS",
                        mot_quote(&d->ctx->arena, list));
    MOT_TRY(check_labelled(d, "idx"));
    MOT_TRY(mot_idx_read(d->ctx, images, &image));
    MOT_TRY(mot_idx_read(d->ctx, labels, &label));
    if (image.type.dtype == MOT_U8)
        image = scale_bytes(d, &image, f[0].type.dtype);
    if (mot_dtype_class(f[1].type.dtype) == MOT_CLASS_FLOAT &&
        mot_dtype_class(label.type.dtype) == MOT_CLASS_INT)
        label = mot_tensor_cast(&d->ctx->arena, &label, f[1].type.dtype);
    shape_as_field(&image, &f[0]);
    shape_as_field(&label, &f[1]);
    MOT_TRY(add_array(d, 0, image, images));
    return add_array(d, 1, label, labels);
}

/* `FILE,label=COLUMN`. */
static MotStatus open_csv(MotData *d, const char *rest)
{
    const char *label = NULL;
    for (const char *p = rest; (p = strstr(p, ",label=")); p++)
        label = p;
    if (!label || label == rest)
        return mot_fail(d->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "--data csv: it is csv:FILE,label=COLUMN");
    MOT_TRY(check_labelled(d, "csv"));
    const char *path = mot_arena_strndup(&d->ctx->arena, rest, (size_t)(label - rest));
    const MotDataField *f = d->opts.fields;
    MotCsvOpts opts = {.label = label + strlen(",label="),
                       .feature_dtype = f[0].type.dtype,
                       .label_dtype = f[1].type.dtype,
                       .n_classes = d->opts.n_classes,
                       .ignore = d->opts.ignore};
    MotTensor features, labels;
    MOT_TRY(mot_csv_read(d->ctx, path, &opts, &features, &labels));
    shape_as_field(&features, &f[0]);
    shape_as_field(&labels, &f[1]);
    MOT_TRY(take_array(d, 0, &features, path));
    return take_array(d, 1, &labels, path);
}

/* ---- Common ---- */

/* The file, and that the model is one of language. */
static MotStatus begin_text(MotData *d, const char *kind, const char *path,
                            const MotFileMap **out_file)
{
    const MotDataField *f = d->opts.fields;
    if (!*path)
        return mot_fail(d->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--data %s: names no file; %s:FILE",
                        kind, kind);
    if (d->opts.n_fields != 2 || mot_dtype_class(f[0].type.dtype) != MOT_CLASS_INT ||
        mot_dtype_class(f[1].type.dtype) != MOT_CLASS_INT ||
        mot_type_elements(&f[0].type) != mot_type_elements(&f[1].type))
        return mot_fail(d->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "--data %s: needs a model with one input of tokens and a label a token",
                        kind);
    return mot_file_map(d->ctx, path, out_file);
}

static MotStatus open_text(MotData *d, const char *rest)
{
    const char *option, *path = take_path(d, rest, &option);
    const MotFileMap *file;
    bool has_bytes = option && strcmp(option, "unit=byte") == 0;
    if (option && !has_bytes && strcmp(option, "unit=char") != 0)
        return mot_fail(d->ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "--data: %s is not unit=char or unit=byte",
                        mot_quote(&d->ctx->arena, option));
    MOT_TRY(begin_text(d, "text", path, &file));
    MOT_TRY(has_bytes ? read_bytes(d, path, file) : read_characters(d, path, file));
    divide_windows(d);
    return MOT_OK;
}

static MotStatus open_tokens(MotData *d, const char *rest)
{
    const char *option, *path = take_path(d, rest, &option);
    const MotFileMap *file;
    if (option)
        return mot_fail(d->ctx, MOT_ERR_USAGE, MOT_NOWHERE, "--data tokens: takes no option %s",
                        mot_quote(&d->ctx->arena, option));
    MOT_TRY(begin_text(d, "tokens", path, &file));
    MOT_TRY(read_tokens(d, path, file));
    divide_windows(d);
    return MOT_OK;
}

static const struct {
    const char *kind;
    MotStatus (*open)(MotData *d, const char *rest);
} sources[] = {{"text", open_text},
               {"tokens", open_tokens},
               {"npy", open_arrays},
               {"idx", open_idx},
               {"csv", open_csv}};

/* Whether what is left after validation fills a batch. */
static MotStatus check_batch(MotData *d, const char *spec)
{
    MotArena *arena = &d->ctx->arena;
    if (d->n_train >= d->opts.batch)
        return MOT_OK;
    const char *what = d->tokens
                           ? mot_arena_printf(arena, "windows of %lld tokens", (long long)d->window)
                           : "rows";
    mot_fail(d->ctx, MOT_ERR_DATA, MOT_NOWHERE,
             "--data %s: %lld training %s are less than a batch of %lld (the last %d %% are for "
             "validation: %lld)",
             mot_quote(arena, spec), (long long)d->n_train, what, (long long)d->opts.batch,
             100 / VALIDATION_PART, (long long)d->n_valid);
    mot_hint(d->ctx,
             "give more data or, where the model leaves it open, a smaller batch with --dim");
    return d->ctx->status;
}

MotStatus mot_data_open(MotCtx *ctx, const char *spec, const MotDataOpts *opts, MotData **out_data)
{
    MotData *d = mot_arena_new(&ctx->arena, MotData);
    *d = (MotData){.ctx = ctx, .opts = *opts, .epoch = -1};
    size_t n = strcspn(spec, ":");
    const char *kind = mot_arena_strndup(&ctx->arena, spec, n), *rest = spec[n] ? spec + n + 1 : "";
    if (opts->n_fields > MAX_FIELDS)
        return mot_fail(ctx, MOT_ERR_LIMIT, MOT_NOWHERE, "more than %d inputs", MAX_FIELDS);
    for (uint32_t k = 0; k < opts->n_fields; k++)
        if (mot_type_elements(&opts->fields[k].type) == 0)
            return mot_fail(
                ctx, MOT_ERR_USAGE, MOT_NOWHERE, "input %s is [%s]: there is nothing to train on",
                mot_quote(&ctx->arena, opts->fields[k].input),
                mot_shape_text(&ctx->arena, opts->fields[k].type.dims, opts->fields[k].type.rank));
    MotStatus (*open)(MotData *, const char *) = NULL;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (strcmp(sources[i].kind, kind) == 0)
            open = sources[i].open;
    if (!open)
        return mot_fail(ctx, MOT_ERR_USAGE, MOT_NOWHERE,
                        "--data %s: the kinds are text:, tokens:, npy:, idx: and csv:",
                        mot_quote(&ctx->arena, spec));
    MOT_TRY(open(d, rest));
    MOT_TRY(check_batch(d, spec));
    d->order = mot_arena_array(&ctx->arena, uint32_t, d->n_train);
    *out_data = d;
    return MOT_OK;
}

int64_t mot_data_steps_per_epoch(const MotData *d)
{
    return d->n_train / d->opts.batch;
}

int64_t mot_data_validation_batches(const MotData *d)
{
    return d->n_valid / d->opts.batch;
}

static void fill(MotData *d, int64_t sample, int64_t slot, void *const *out_fields)
{
    for (uint32_t k = 0; k < d->opts.n_fields; k++)
        if (d->tokens)
            fill_window(d, k, sample, slot, out_fields[k]);
        else
            memcpy((char *)out_fields[k] + slot * d->sample_bytes[k],
                   (const char *)d->arrays[k].data + sample * d->sample_bytes[k],
                   (size_t)d->sample_bytes[k]);
}

void mot_data_batch(MotData *d, int64_t step, void *const *out_fields)
{
    int64_t epoch = step / mot_data_steps_per_epoch(d), index = step % mot_data_steps_per_epoch(d);
    if (epoch != d->epoch)
        shuffle(d, epoch);
    for (int64_t i = 0; i < d->opts.batch; i++)
        fill(d, d->order[index * d->opts.batch + i], i, out_fields);
}

void mot_data_validation_batch(MotData *d, int64_t index, void *const *out_fields)
{
    for (int64_t i = 0; i < d->opts.batch; i++)
        fill(d, d->n_train + index * d->opts.batch + i, i, out_fields);
}

const uint32_t *mot_data_vocabulary(const MotData *d, uint32_t *out_n)
{
    *out_n = d->n_vocabulary;
    return d->vocabulary;
}
