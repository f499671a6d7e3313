/*
 * One function a kind of token; a token's end depends on the bytes after its start only, never on
 * what came before.
 */
#include "ir/lexer.h"

#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool mot_is_name_byte(char c)
{
    return is_letter(c) || is_digit(c) || c == '.';
}

/* Skips blanks and comments; returns whether a line ended in them. */
static bool skip_blanks(MotLexer *lexer)
{
    bool has_newline = false;
    for (;; lexer->next++) {
        if (lexer->next[0] == '/' && lexer->next[1] == '/')
            lexer->next += strcspn(lexer->next, "\n");
        if (*lexer->next == '\n') {
            has_newline = true;
            lexer->line++;
            lexer->line_start = lexer->next + 1;
        } else if (*lexer->next != ' ' && *lexer->next != '\t' && *lexer->next != '\r') {
            return has_newline;
        }
    }
}

static const char *skip_name(const char *p)
{
    while (mot_is_name_byte(*p))
        p++;
    return p;
}

/*
 * Past the closing quote, or NULL if the string does not end on its line. p stands on the opening
 * quote.
 */
static const char *skip_string(const char *p)
{
    for (p++; *p != '"'; p++) {
        if (*p == '\\')
            p++;
        if ((unsigned char)*p < ' ')
            return NULL;
    }
    return p + 1;
}

static const char *skip_digits(const char *p)
{
    while (is_digit(*p))
        p++;
    return p;
}

/* [-+] digits [. digits] [e [-+] digits], or a signed inf. Past its end, or NULL. */
static const char *skip_number(const char *p, MotTokenKind *out_kind)
{
    if (*p == '-' || *p == '+')
        p++;
    *out_kind = MOT_TOKEN_FLOAT;
    if (strncmp(p, "inf", 3) == 0)
        return mot_is_name_byte(p[3]) ? NULL : p + 3;
    if (!is_digit(*p))
        return NULL;
    p = skip_digits(p);
    *out_kind = MOT_TOKEN_INT;
    if (p[0] == '.' && is_digit(p[1])) {
        p = skip_digits(p + 1);
        *out_kind = MOT_TOKEN_FLOAT;
    }
    if (*p == 'e') {
        const char *exponent = p[1] == '-' || p[1] == '+' ? p + 2 : p + 1;
        p = is_digit(*exponent) ? skip_digits(exponent) : exponent;
        *out_kind = MOT_TOKEN_FLOAT;
        if (p == exponent)
            return NULL;
    }
    return mot_is_name_byte(*p) ? NULL : p;
}

/* %name, @name, %"any text". */
static const char *skip_sigil(const char *p)
{
    if (p[1] == '"')
        return skip_string(p + 1);
    return mot_is_name_byte(p[1]) ? skip_name(p + 1) : NULL;
}

static const char *scan(const char *p, MotTokenKind *out_kind)
{
    if (is_letter(*p)) {
        *out_kind = MOT_TOKEN_WORD;
        return skip_name(p);
    }
    if (is_digit(*p) || *p == '-' || *p == '+')
        return skip_number(p, out_kind);
    if (*p == '%' || *p == '@') {
        *out_kind = *p == '%' ? MOT_TOKEN_VALUE : MOT_TOKEN_SYMBOL;
        return skip_sigil(p);
    }
    if (*p == '"') {
        *out_kind = MOT_TOKEN_STRING;
        return skip_string(p);
    }
    *out_kind = MOT_TOKEN_PUNCTUATION;
    return strchr("{}[]=,:", *p) ? p + 1 : NULL;
}

void mot_lexer_next(MotLexer *lexer)
{
    bool starts_line = skip_blanks(lexer);
    const char *start = lexer->next, *end = start;
    MotTokenKind kind = MOT_TOKEN_END;
    if (*start) {
        end = scan(start, &kind);
        if (!end) {
            kind = MOT_TOKEN_BAD;
            end = start + 1;
        }
    }
    lexer->token = (MotToken){.kind = kind,
                              .pos = {lexer->line, (uint32_t)(start - lexer->line_start) + 1},
                              .starts_line = starts_line,
                              .start = start,
                              .n = (uint32_t)(end - start)};
    lexer->next = end;
}

MotLexer mot_lexer_make(const char *text)
{
    MotLexer lexer = {.next = text, .line_start = text, .line = 1};
    mot_lexer_next(&lexer);
    lexer.token.starts_line = true;
    return lexer;
}

bool mot_lexer_is(const MotLexer *lexer, char punctuation)
{
    return lexer->token.kind == MOT_TOKEN_PUNCTUATION && *lexer->token.start == punctuation;
}

const char *mot_token_kind_text(MotTokenKind kind)
{
    static const char *const texts[] = {
#define X(id, text) text,
        MOT_TOKEN_LIST(X)
#undef X
    };
    return texts[kind];
}
