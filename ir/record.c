/*
 * The record parser: recursive descent over the lexer's tokens, one function a line of the grammar
 * (docs/ir.md).
 *
 * Line ends matter in two places only: operands stand on the line of their op, and `{word}` is a
 * flag where the closing brace is on the same line. Everything else is decided by at most two
 * tokens of looking ahead.
 */
#include "ir/record.h"

#include "ir/lexer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    MotCtx *ctx;
    const char *file;
    MotLexer lexer;
    int depth;
} Parser;

MotLoc mot_record_loc(MotCtx *ctx, const char *file, MotTextPos pos)
{
    if (pos.line == 0)
        return (MotLoc){file, NULL};
    return (MotLoc){file,
                    mot_arena_printf(&ctx->arena, "line %u, column %u", pos.line, pos.column)};
}

const char *mot_term_kind_text(MotTermKind kind)
{
    static const char *const texts[] = {
#define X(id, member, text) text,
        MOT_TERM_LIST(X)
#undef X
    };
    return texts[kind];
}

static MotLoc loc_of(Parser *p, MotTextPos pos)
{
    return mot_record_loc(p->ctx, p->file, pos);
}

static char *text_of(Parser *p, const char *start, size_t n)
{
    return mot_arena_strndup(&p->ctx->arena, start, n);
}

/* What stands at the present token, for messages. */
static const char *describe(Parser *p)
{
    const MotToken *token = &p->lexer.token;
    if (token->kind == MOT_TOKEN_END)
        return mot_token_kind_text(token->kind);
    if (token->kind == MOT_TOKEN_BAD && *token->start == '"')
        return "a string that does not end on its line";
    const char *text = mot_quote(&p->ctx->arena, text_of(p, token->start, token->n));
    if (token->kind == MOT_TOKEN_BAD)
        return mot_arena_printf(&p->ctx->arena, "%s, which begins no token", text);
    return text;
}

static MotStatus expected(Parser *p, const char *what)
{
    return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, p->lexer.token.pos), "expected %s, found %s",
                    what, describe(p));
}

static MotStatus take_punctuation(Parser *p, char c)
{
    if (!mot_lexer_is(&p->lexer, c))
        return expected(p, (char[]){'`', c, '`', 0});
    mot_lexer_next(&p->lexer);
    return MOT_OK;
}

static MotStatus enter(Parser *p)
{
    if (++p->depth <= MOT_RECORD_MAX_DEPTH)
        return MOT_OK;
    return mot_fail(p->ctx, MOT_ERR_LIMIT, loc_of(p, p->lexer.token.pos),
                    "blocks and lists nest deeper than %d", MOT_RECORD_MAX_DEPTH);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Undoes mot_text_quote: `\"`, `\\`, `\xNN` but not NUL. The lexer has found both quotes. */
static MotStatus decode_string(Parser *p, const char *start, size_t n, const char **out_text)
{
    char *text = text_of(p, start + 1, n - 2), *to = text;
    for (const char *from = text; *from; from++) {
        if (*from == '\\' && (from[1] == '"' || from[1] == '\\')) {
            *to++ = *++from;
        } else if (*from == '\\') {
            int hi = from[1] == 'x' ? hex_digit(from[2]) : -1;
            int lo = hi >= 0 ? hex_digit(from[3]) : -1;
            if (lo < 0 || hi + lo == 0)
                return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, p->lexer.token.pos),
                                "bad escape in a string: there are \\\", \\\\ and \\x01 to \\xff");
            *to++ = (char)(hi * 16 + lo);
            from += 3;
        } else {
            *to++ = *from;
        }
    }
    *to = 0;
    *out_text = text;
    return MOT_OK;
}

/* %name, @name, %"any text". */
static MotStatus decode_name(Parser *p, MotTerm *term)
{
    const MotToken *token = &p->lexer.token;
    if (token->start[1] == '"')
        return decode_string(p, token->start + 1, token->n - 1, &term->text);
    term->text = text_of(p, token->start + 1, token->n - 1);
    return MOT_OK;
}

static MotStatus decode_number(Parser *p, MotTerm *term)
{
    const MotToken *token = &p->lexer.token;
    errno = 0;
    if (term->kind == MOT_TERM_INT) {
        term->integer = strtoll(token->start, NULL, 10);
    } else {
        term->number = strtod(token->start, NULL);
        if (isfinite(term->number))
            errno = 0; /* rounding to zero or to a subnormal is fine */
    }
    if (errno)
        return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, token->pos), "%s does not fit 64 bits",
                        text_of(p, token->start, token->n));
    return MOT_OK;
}

/* A word; `inf` and `nan` are numbers. */
static void decode_word(Parser *p, MotTerm *term)
{
    const char *word = text_of(p, p->lexer.token.start, p->lexer.token.n);
    if (strcmp(word, "inf") == 0)
        *term = (MotTerm){.kind = MOT_TERM_FLOAT, .pos = term->pos, .number = (double)INFINITY};
    else if (strcmp(word, "nan") == 0)
        *term = (MotTerm){.kind = MOT_TERM_FLOAT, .pos = term->pos, .number = (double)NAN};
    else
        term->text = word;
}

static bool is_absent(const MotToken *token)
{
    return token->kind == MOT_TOKEN_WORD && token->n == 1 && *token->start == '_';
}

/* Decodes the present token, which is of that kind, and goes on to the next. */
static MotStatus take_atom(Parser *p, MotTermKind kind, MotTerm *out)
{
    *out = (MotTerm){.kind = kind, .pos = p->lexer.token.pos};
    switch (kind) {
    case MOT_TERM_VALUE:
    case MOT_TERM_SYMBOL:
        MOT_TRY(decode_name(p, out));
        break;
    case MOT_TERM_STRING:
        MOT_TRY(decode_string(p, p->lexer.token.start, p->lexer.token.n, &out->text));
        break;
    case MOT_TERM_INT:
    case MOT_TERM_FLOAT:
        MOT_TRY(decode_number(p, out));
        break;
    case MOT_TERM_WORD:
        decode_word(p, out);
        break;
    default:
        break;
    }
    mot_lexer_next(&p->lexer);
    return MOT_OK;
}

/* The kind of term a token stands for; NONE if for none. */
static const MotTermKind atoms[] = {
    [MOT_TOKEN_WORD] = MOT_TERM_WORD,     [MOT_TOKEN_VALUE] = MOT_TERM_VALUE,
    [MOT_TOKEN_SYMBOL] = MOT_TERM_SYMBOL, [MOT_TOKEN_INT] = MOT_TERM_INT,
    [MOT_TOKEN_FLOAT] = MOT_TERM_FLOAT,   [MOT_TOKEN_STRING] = MOT_TERM_STRING,
    [MOT_TOKEN_BAD] = MOT_TERM_NONE,
};

static MotStatus parse_term(Parser *p, MotTerm *out);

static MotStatus parse_list(Parser *p, MotTerm *out)
{
    MotVec(MotTerm) items = {0};
    MotTextPos pos = p->lexer.token.pos;
    MOT_TRY(enter(p));
    MOT_TRY(take_punctuation(p, '['));
    while (!mot_lexer_is(&p->lexer, ']')) {
        MotTerm item;
        if (items.n)
            MOT_TRY(take_punctuation(p, ','));
        MOT_TRY(parse_term(p, &item));
        mot_vec_push(&p->ctx->arena, &items, item);
    }
    mot_lexer_next(&p->lexer);
    p->depth--;
    *out = mot_term_list(items.data, items.n);
    out->pos = pos;
    return MOT_OK;
}

static MotStatus parse_term(Parser *p, MotTerm *out)
{
    if (mot_lexer_is(&p->lexer, '['))
        return parse_list(p, out);
    MotTermKind kind = atoms[p->lexer.token.kind];
    if (kind == MOT_TERM_NONE || is_absent(&p->lexer.token))
        return expected(p, "a number, string, word, value, symbol or list");
    return take_atom(p, kind, out);
}

/* Whether the present token is followed by one of these punctuations. */
static bool is_before(const Parser *p, const char *punctuations)
{
    MotLexer ahead = p->lexer;
    mot_lexer_next(&ahead);
    return ahead.token.kind == MOT_TOKEN_PUNCTUATION && strchr(punctuations, *ahead.token.start);
}

/* `%a, %b =`, or nothing. */
static MotStatus parse_results(Parser *p, MotRecord *record)
{
    if (p->lexer.token.kind != MOT_TOKEN_VALUE)
        return MOT_OK;
    for (;;) {
        MotTerm result;
        if (p->lexer.token.kind != MOT_TOKEN_VALUE)
            return expected(p, mot_token_kind_text(MOT_TOKEN_VALUE));
        MOT_TRY(take_atom(p, MOT_TERM_VALUE, &result));
        mot_vec_push(&p->ctx->arena, &record->out, result);
        if (!mot_lexer_is(&p->lexer, ','))
            return take_punctuation(p, '=');
        mot_lexer_next(&p->lexer);
    }
}

/* Whether the present token goes on with the operands; `only_words` have been seen so far. */
static bool is_operand(const Parser *p, bool only_words)
{
    const MotToken *token = &p->lexer.token;
    if (token->starts_line)
        return false;
    switch (token->kind) {
    case MOT_TOKEN_WORD:
        return only_words || is_absent(token);
    case MOT_TOKEN_VALUE:
        return !is_before(p, "=,"); /* else a result of the next record */
    case MOT_TOKEN_SYMBOL:
    case MOT_TOKEN_INT:
        return true;
    default:
        return false;
    }
}

static MotStatus parse_operands(Parser *p, MotRecord *record)
{
    bool only_words = true;
    while (is_operand(p, only_words)) {
        MotTerm operand;
        MotTermKind kind = is_absent(&p->lexer.token) ? MOT_TERM_NONE : atoms[p->lexer.token.kind];
        MOT_TRY(take_atom(p, kind, &operand));
        if (operand.kind == MOT_TERM_FLOAT)
            return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, operand.pos),
                            "inf and nan are numbers, which are no operands");
        only_words = only_words && kind == MOT_TERM_WORD;
        mot_vec_push(&p->ctx->arena, &record->in, operand);
    }
    return MOT_OK;
}

/* Attributes, not a body: `{word=`, `{word,` or, on one line, `{word}`. */
static bool opens_attrs(const Parser *p)
{
    if (!mot_lexer_is(&p->lexer, '{'))
        return false;
    MotLexer ahead = p->lexer;
    mot_lexer_next(&ahead);
    if (ahead.token.kind != MOT_TOKEN_WORD)
        return false;
    mot_lexer_next(&ahead);
    return mot_lexer_is(&ahead, '=') || mot_lexer_is(&ahead, ',') ||
           (mot_lexer_is(&ahead, '}') && !ahead.token.starts_line);
}

static MotStatus parse_attr(Parser *p, MotRecord *record)
{
    const MotToken token = p->lexer.token;
    if (token.kind != MOT_TOKEN_WORD)
        return expected(p, "the name of an attribute");
    MotRecordAttr attr = {.name = text_of(p, token.start, token.n), .pos = token.pos};
    if (mot_record_attr(record, attr.name))
        return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, token.pos), "attribute %s is given twice",
                        attr.name);
    if (record->attrs.n == MOT_RECORD_MAX_ATTRS)
        return mot_fail(p->ctx, MOT_ERR_LIMIT, loc_of(p, token.pos), "more than %d attributes",
                        MOT_RECORD_MAX_ATTRS);
    mot_lexer_next(&p->lexer);
    if (mot_lexer_is(&p->lexer, '=')) {
        mot_lexer_next(&p->lexer);
        MOT_TRY(parse_term(p, &attr.value));
    }
    mot_vec_push(&p->ctx->arena, &record->attrs, attr);
    return MOT_OK;
}

static MotStatus parse_attrs(Parser *p, MotRecord *record)
{
    if (!opens_attrs(p))
        return MOT_OK;
    do {
        mot_lexer_next(&p->lexer);
        MOT_TRY(parse_attr(p, record));
    } while (mot_lexer_is(&p->lexer, ','));
    if (!mot_lexer_is(&p->lexer, '}'))
        return expected(p, "`=`, `,` or `}` after an attribute");
    mot_lexer_next(&p->lexer);
    return MOT_OK;
}

static MotStatus fail_in_shape(Parser *p, const char *at, const char *what)
{
    MotTextPos pos = {p->lexer.line, (uint32_t)(at - p->lexer.line_start) + 1};
    return mot_fail(p->ctx, MOT_ERR_MODEL, loc_of(p, pos), "%s", what);
}

/* A dim at *at: digits, or @ and a name without x. */
static MotStatus parse_dim(Parser *p, const char **at, MotRecordDim *out)
{
    const char *start = *at, *end = start + (*start == '@');
    int64_t size = 0;
    *out = (MotRecordDim){0};
    if (*start == '@') {
        while (mot_is_name_byte(*end) && *end != 'x')
            end++;
        out->symbol = text_of(p, start + 1, (size_t)(end - start - 1));
    } else {
        for (; *end >= '0' && *end <= '9'; end++)
            if (__builtin_mul_overflow(size, 10, &size) ||
                __builtin_add_overflow(size, *end - '0', &size))
                return fail_in_shape(p, start, "the size does not fit 64 bits");
        out->size = size;
    }
    if (end == start + (*start == '@'))
        return fail_in_shape(p, end, "expected a size or @name in the shape");
    *at = end;
    return MOT_OK;
}

/*
 * `[8x256x@h]`, right behind the dtype: dims are no tokens, as `8x256` would be an invalid number.
 */
static MotStatus parse_dims(Parser *p, MotRecordType *type)
{
    const char *at = p->lexer.next;
    if (*at != '[')
        return MOT_OK;
    if (*++at != ']')
        for (;; at++) {
            if (type->rank == MOT_MAX_RANK)
                return fail_in_shape(p, at, "a shape has at most 8 dims");
            MOT_TRY(parse_dim(p, &at, &type->dims[type->rank++]));
            if (*at == ']')
                break;
            if (*at != 'x')
                return fail_in_shape(p, at, "expected `x` or `]` in the shape");
        }
    p->lexer.next = at + 1;
    return MOT_OK;
}

static const char *list_dtypes(void)
{
    static const char names[] = ""
#define X(id, name, bytes, onnx, class) " " #name
        MOT_DTYPE_LIST(X);
#undef X
    return names + 1;
}

static MotStatus parse_type(Parser *p, MotRecordType *out)
{
    const MotToken token = p->lexer.token;
    *out = (MotRecordType){.pos = token.pos};
    if (token.kind == MOT_TOKEN_WORD)
        out->dtype = mot_dtype_find(text_of(p, token.start, token.n));
    if (out->dtype == MOT_NO_DTYPE) {
        MotStatus status = expected(p, "a type such as f32[8x256]");
        mot_hint(p->ctx, "the element types are %s", list_dtypes());
        return status;
    }
    MOT_TRY(parse_dims(p, out));
    mot_lexer_next(&p->lexer);
    return MOT_OK;
}

static MotStatus parse_types(Parser *p, MotRecord *record)
{
    if (!mot_lexer_is(&p->lexer, ':'))
        return MOT_OK;
    do {
        MotRecordType type;
        mot_lexer_next(&p->lexer);
        MOT_TRY(parse_type(p, &type));
        mot_vec_push(&p->ctx->arena, &record->types, type);
    } while (mot_lexer_is(&p->lexer, ','));
    return MOT_OK;
}

static MotStatus parse_record(Parser *p, MotRecord *out);

static MotStatus parse_body(Parser *p, MotRecord *record)
{
    if (!mot_lexer_is(&p->lexer, '{'))
        return MOT_OK;
    MOT_TRY(enter(p));
    record->has_body = true;
    mot_lexer_next(&p->lexer);
    while (!mot_lexer_is(&p->lexer, '}')) {
        MotRecord inner;
        MOT_TRY(parse_record(p, &inner));
        mot_vec_push(&p->ctx->arena, &record->body, inner);
    }
    mot_lexer_next(&p->lexer);
    p->depth--;
    return MOT_OK;
}

static MotStatus parse_record(Parser *p, MotRecord *out)
{
    *out = (MotRecord){.pos = p->lexer.token.pos};
    MOT_TRY(parse_results(p, out));
    const MotToken *token = &p->lexer.token;
    if (token->kind != MOT_TOKEN_WORD || is_absent(token))
        return expected(p, p->depth && !out->out.n ? "an op, a result or `}`"
                           : out->out.n            ? "an op"
                                                   : "an op or a result");
    out->op = text_of(p, token->start, token->n);
    mot_lexer_next(&p->lexer);
    MOT_TRY(parse_operands(p, out));
    MOT_TRY(parse_attrs(p, out));
    MOT_TRY(parse_types(p, out));
    return parse_body(p, out);
}

MotStatus mot_records_parse(MotCtx *ctx, const char *file, const char *text,
                            MotRecords *out_records)
{
    if (strnlen(text, MOT_RECORD_MAX_TEXT + 1u) > MOT_RECORD_MAX_TEXT)
        return mot_fail(ctx, MOT_ERR_LIMIT, (MotLoc){file, NULL}, "the text is longer than %s",
                        mot_bytes_text(&ctx->arena, MOT_RECORD_MAX_TEXT));
    Parser p = {.ctx = ctx, .file = file, .lexer = mot_lexer_make(text)};
    *out_records = (MotRecords){0};
    while (p.lexer.token.kind != MOT_TOKEN_END) {
        MotRecord record;
        MOT_TRY(parse_record(&p, &record));
        mot_vec_push(&ctx->arena, out_records, record);
    }
    return MOT_OK;
}

const MotTerm *mot_record_attr(const MotRecord *record, const char *name)
{
    for (uint32_t i = 0; i < record->attrs.n; i++)
        if (strcmp(record->attrs.data[i].name, name) == 0)
            return &record->attrs.data[i].value;
    return NULL;
}

void mot_record_add_attr(MotArena *arena, MotRecord *record, const char *name, MotTerm value)
{
    mot_vec_push(arena, &record->attrs, (MotRecordAttr){.name = name, .value = value});
}

MotRecord mot_record_header(MotCtx *ctx, const char *what, int version)
{
    MotRecord header = {.op = "motley"};
    mot_vec_push(&ctx->arena, &header.in, mot_term_text(MOT_TERM_WORD, what));
    mot_vec_push(&ctx->arena, &header.in, mot_term_int(version));
    return header;
}

MotStatus mot_records_check_header(MotCtx *ctx, const char *file, const MotRecords *records,
                                   const char *what, int version)
{
    const MotRecord *r = records->n ? &records->data[0] : NULL;
    MotLoc loc = mot_record_loc(ctx, file, r ? r->pos : (MotTextPos){0});
    if (!r || strcmp(r->op, "motley") != 0 || r->in.n != 2 || r->in.data[0].kind != MOT_TERM_WORD ||
        r->in.data[1].kind != MOT_TERM_INT)
        return mot_fail(ctx, MOT_ERR_MISMATCH, loc, "expected the header `motley %s %d`", what,
                        version);
    if (strcmp(r->in.data[0].text, what) != 0)
        return mot_fail(ctx, MOT_ERR_MISMATCH, loc, "this is a motley %s, not a motley %s",
                        r->in.data[0].text, what);
    if (r->in.data[1].integer != version)
        return mot_fail(ctx, MOT_ERR_MISMATCH, loc, "%s version %lld, this Motley reads version %d",
                        what, (long long)r->in.data[1].integer, version);
    return MOT_OK;
}
