/*
 * Lexer of record texts. A token is a view of the text: looking ahead is copying the struct, and
 * nothing is allocated until a token is used. Lexing never fails: what is no token is a
 * MOT_TOKEN_BAD that the parser trips over.
 */
#ifndef MOTLEY_IR_LEXER_H
#define MOTLEY_IR_LEXER_H

#include "ir/record.h"

/* X(id, what it is called in messages) */
#define MOT_TOKEN_LIST(X)                                                                          \
    X(END, "the end of the text")                                                                  \
    X(WORD, "a word")                                                                              \
    X(VALUE, "a value %name")                                                                      \
    X(SYMBOL, "a symbol @name")                                                                    \
    X(INT, "an integer")                                                                           \
    X(FLOAT, "a float")                                                                            \
    X(STRING, "a string")                                                                          \
    X(PUNCTUATION, "punctuation")                                                                  \
    X(BAD, "an invalid token")

typedef enum MotTokenKind {
#define X(id, text) MOT_TOKEN_##id,
    MOT_TOKEN_LIST(X)
#undef X
} MotTokenKind;

typedef struct MotToken {
    MotTokenKind kind;
    MotTextPos pos;
    bool starts_line;  /* the first token of its line */
    const char *start; /* of the whole token, sigil and quotes included */
    uint32_t n;
} MotToken;

typedef struct MotLexer {
    const char *next, *line_start;
    uint32_t line;
    MotToken token; /* the present one */
} MotLexer;

/* The present token is the text's first. The text ends with NUL and stays where it is. */
MotLexer mot_lexer_make(const char *text);
void mot_lexer_next(MotLexer *lexer);
/* Whether the present token is this punctuation: one of `{}[]=,:`. */
bool mot_lexer_is(const MotLexer *lexer, char punctuation);

bool mot_is_name_byte(char c);
const char *mot_token_kind_text(MotTokenKind kind);

#endif
