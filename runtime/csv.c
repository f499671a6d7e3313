/* A record is split into cells, one after the other; the header's are kept for messages. */
#include "runtime/csv.h"

#include "support/file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    MotCtx *ctx;
    const char *path;
    const MotCsvOpts *opts;
    const char *at, *end;
    int64_t line;     /* of `at`, from 1 */
    MotText cell;     /* without quotes around it */
    bool ends_record; /* the cell was the last of its record */
    MotVec(const char *) names;
    uint32_t label; /* its column */
    MotTensor features, labels;
} Csv;

static MotStatus refuse(Csv *csv, int64_t line, uint32_t column, const char *what)
{
    MotArena *arena = &csv->ctx->arena;
    const char *place =
        column < csv->names.n
            ? mot_arena_printf(arena, "line %lld, column %s", (long long)line,
                               mot_quote(arena, csv->names.data[column]))
            : mot_arena_printf(arena, "line %lld, column %u", (long long)line, column + 1);
    return mot_fail(csv->ctx, MOT_ERR_DATA, (MotLoc){csv->path, place}, "%s", what);
}

static MotStatus refuse_cell(Csv *csv, int64_t line, uint32_t column, const char *what)
{
    return refuse(csv, line, column,
                  mot_arena_printf(&csv->ctx->arena, "%s %s",
                                   mot_quote(&csv->ctx->arena, mot_text_get(&csv->cell)), what));
}

/* Steps over the end of a line, if `at` is at one. */
static bool skip_line_end(Csv *csv)
{
    if (csv->at < csv->end && *csv->at == '\r' && csv->at + 1 < csv->end && csv->at[1] == '\n')
        csv->at++;
    if (csv->at == csv->end || *csv->at != '\n')
        return false;
    csv->at++;
    csv->line++;
    return true;
}

/* What stands between quotes, `""` for one of them. */
static MotStatus read_quoted(Csv *csv, uint32_t column)
{
    int64_t line = csv->line;
    for (csv->at++; csv->at < csv->end; csv->at++) {
        if (*csv->at == '"') {
            if (csv->at + 1 == csv->end || csv->at[1] != '"') {
                csv->at++;
                return MOT_OK;
            }
            csv->at++;
        }
        csv->line += *csv->at == '\n';
        mot_text_add(&csv->cell, csv->at, 1);
    }
    return refuse(csv, line, column, "a quote is not closed");
}

static MotStatus read_cell(Csv *csv, uint32_t column)
{
    csv->cell.n = 0;
    mot_text_puts(&csv->cell, "");
    if (csv->at < csv->end && *csv->at == '"') {
        MOT_TRY(read_quoted(csv, column));
    } else {
        const char *p = csv->at;
        while (p < csv->end && *p != ',' && *p != '\n' && *p != '"' &&
               !(*p == '\r' && p + 1 < csv->end && p[1] == '\n'))
            p++;
        mot_text_add(&csv->cell, csv->at, (size_t)(p - csv->at));
        csv->at = p;
    }
    if (memchr(csv->cell.data, 0, csv->cell.n))
        return refuse(csv, csv->line, column, "holds a NUL byte");
    bool is_comma = csv->at < csv->end && *csv->at == ',';
    csv->ends_record = !is_comma;
    csv->at += is_comma;
    if (is_comma || csv->at == csv->end || skip_line_end(csv))
        return MOT_OK;
    return refuse(csv, csv->line, column, "a quote stands inside of a cell");
}

static MotStatus read_header(Csv *csv)
{
    bool is_found = false;
    if (csv->end - csv->at >= 3 && memcmp(csv->at, "\xef\xbb\xbf", 3) == 0)
        csv->at += 3;
    do {
        MOT_TRY(read_cell(csv, csv->names.n));
        const char *name = mot_arena_strdup(&csv->ctx->arena, mot_text_get(&csv->cell));
        if (strcmp(name, csv->opts->label) == 0) {
            if (is_found)
                return refuse(csv, 1, csv->names.n, "is there twice");
            is_found = true;
            csv->label = csv->names.n;
        }
        mot_vec_push(&csv->ctx->arena, &csv->names, name);
    } while (!csv->ends_record);
    if (is_found && csv->names.n > 1)
        return MOT_OK;
    return mot_fail(csv->ctx, MOT_ERR_DATA, (MotLoc){csv->path, "line 1"},
                    is_found ? "there is no column beside the label %s" : "there is no column %s",
                    mot_quote(&csv->ctx->arena, csv->opts->label));
}

/* Decimal digits, sign, point and exponent: strtod reads more than these. */
static bool parse_number(const char *text, double *out_value)
{
    char *end;
    *out_value = strtod(text, &end);
    return *text && !*end && strspn(text, "+-.0123456789eE") == strlen(text) &&
           isfinite(*out_value);
}

static MotStatus take_label(Csv *csv, int64_t row, int64_t line)
{
    const MotCsvOpts *opts = csv->opts;
    const char *text = mot_text_get(&csv->cell);
    double number;
    if (mot_dtype_class(opts->label_dtype) != MOT_CLASS_INT) {
        if (!parse_number(text, &number))
            return refuse_cell(csv, line, csv->label, "is no finite number");
        mot_tensor_set(&csv->labels, row, number);
        return MOT_OK;
    }
    char *end;
    errno = 0;
    long long label = strtoll(text, &end, 10);
    if (!*text || *end || errno || strspn(text, "+-0123456789") != strlen(text))
        return refuse_cell(csv, line, csv->label, "is no integer");
    if ((label < 0 || label >= opts->n_classes) && label != opts->ignore)
        return refuse_cell(csv, line, csv->label,
                           mot_arena_printf(&csv->ctx->arena, "is none of the %lld classes from 0",
                                            (long long)opts->n_classes));
    mot_tensor_set_int(&csv->labels, row, label);
    return MOT_OK;
}

static MotStatus read_row(Csv *csv, int64_t row)
{
    uint32_t n = csv->names.n, column = 0;
    int64_t line = csv->line, first = row * (n - 1);
    do {
        double number;
        MOT_TRY(read_cell(csv, column));
        if (column == n)
            return refuse(csv, line, column, "is one more than the header has");
        if (column == csv->label) {
            MOT_TRY(take_label(csv, row, line));
        } else {
            if (!parse_number(mot_text_get(&csv->cell), &number))
                return refuse_cell(csv, line, column, "is no finite number");
            mot_tensor_set(&csv->features, first + column - (column > csv->label), number);
        }
        column++;
    } while (!csv->ends_record);
    return column == n ? MOT_OK : refuse(csv, line, column, "is missing: the row ends before it");
}

/*
 * A row has a character and a comma or line end a column at least, so the file's length bounds
 * their number.
 */
static int64_t bound_rows(const Csv *csv)
{
    return (csv->end - csv->at) / (2 * (int64_t)csv->names.n) + 1;
}

MotStatus mot_csv_read(MotCtx *ctx, const char *path, const MotCsvOpts *opts,
                       MotTensor *out_features, MotTensor *out_labels)
{
    const MotFileMap *file;
    Csv csv = {.ctx = ctx, .path = path, .opts = opts, .line = 1};
    MOT_TRY(mot_file_map(ctx, path, &file));
    if (file->n == 0)
        return mot_fail(ctx, MOT_ERR_DATA, (MotLoc){path, NULL}, "is empty");
    csv.at = (const char *)file->data;
    csv.end = csv.at + file->n;
    mot_text_init(&csv.cell, &ctx->arena);
    MOT_TRY(read_header(&csv));
    int64_t shape[2] = {bound_rows(&csv), csv.names.n - 1}, row = 0;
    csv.features.type = mot_type_make(opts->feature_dtype, 2, shape);
    csv.labels.type = mot_type_make(opts->label_dtype, 1, shape);
    csv.features.data = mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&csv.features.type));
    csv.labels.data = mot_arena_alloc(&ctx->arena, (size_t)mot_type_bytes(&csv.labels.type));
    for (; csv.at < csv.end; row++)
        MOT_TRY(read_row(&csv, row));
    csv.features.type.dims[0] = csv.labels.type.dims[0] = row;
    *out_features = csv.features;
    *out_labels = csv.labels;
    return MOT_OK;
}
