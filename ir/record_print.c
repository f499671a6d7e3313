/*
 * The two printers of records: text and JSON. A table gives each kind of term its function in
 * either.
 */
#include "ir/lexer.h"
#include "ir/record.h"
#include "support/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool mot_name_is_plain(const char *name)
{
    const char *p = name;
    while (mot_is_name_byte(*p))
        p++;
    return p > name && *p == 0;
}

bool mot_dim_name_is_plain(const char *name)
{
    return mot_name_is_plain(name) && !strchr(name, 'x');
}

void mot_text_add_float(MotText *text, double number)
{
    char digits[40];
    if (isnan(number)) {
        mot_text_puts(text, "nan");
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    mot_text_puts(text, digits);
    if (!strpbrk(digits, ".ei"))
        mot_text_puts(text, ".0");
}

void mot_text_add_type(MotText *text, const MotRecordType *type)
{
    mot_text_puts(text, mot_dtype_name(type->dtype));
    for (int i = 0; i < type->rank; i++) {
        mot_text_puts(text, i ? "x" : "[");
        if (type->dims[i].symbol)
            mot_text_printf(text, "@%s", type->dims[i].symbol);
        else
            mot_text_printf(text, "%lld", (long long)type->dims[i].size);
    }
    if (type->rank)
        mot_text_puts(text, "]");
}

/* ---- Text ---- */

typedef void (*PrintTerm)(MotText *, const MotTerm *);
static void print_term(MotText *text, const MotTerm *term);

static void print_none(MotText *text, const MotTerm *term)
{
    (void)term;
    mot_text_puts(text, "_");
}

static void print_name(MotText *text, const MotTerm *term)
{
    mot_text_puts(text, term->kind == MOT_TERM_VALUE ? "%" : "@");
    if (mot_name_is_plain(term->text))
        mot_text_puts(text, term->text);
    else
        mot_text_quote(text, term->text, strlen(term->text));
}

static void print_word(MotText *text, const MotTerm *term)
{
    mot_text_puts(text, term->text);
}

static void print_string(MotText *text, const MotTerm *term)
{
    mot_text_quote(text, term->text, strlen(term->text));
}

static void print_int(MotText *text, const MotTerm *term)
{
    mot_text_printf(text, "%lld", (long long)term->integer);
}

static void print_float(MotText *text, const MotTerm *term)
{
    mot_text_add_float(text, term->number);
}

static void print_list(MotText *text, const MotTerm *term)
{
    mot_text_puts(text, "[");
    for (uint32_t i = 0; i < term->items.n; i++) {
        mot_text_puts(text, i ? ", " : "");
        print_term(text, &term->items.data[i]);
    }
    mot_text_puts(text, "]");
}

static void print_term(MotText *text, const MotTerm *term)
{
    static const PrintTerm printers[MOT_N_TERMS] = {
        [MOT_TERM_NONE] = print_none,     [MOT_TERM_VALUE] = print_name,
        [MOT_TERM_SYMBOL] = print_name,   [MOT_TERM_WORD] = print_word,
        [MOT_TERM_STRING] = print_string, [MOT_TERM_INT] = print_int,
        [MOT_TERM_FLOAT] = print_float,   [MOT_TERM_LIST] = print_list,
    };
    printers[term->kind](text, term);
}

static void print_attrs(MotText *text, const MotRecord *record)
{
    if (!record->attrs.n)
        return;
    for (uint32_t i = 0; i < record->attrs.n; i++) {
        const MotRecordAttr *attr = &record->attrs.data[i];
        mot_text_puts(text, i ? ", " : " {");
        mot_text_puts(text, attr->name);
        if (attr->value.kind != MOT_TERM_NONE) {
            mot_text_puts(text, "=");
            print_term(text, &attr->value);
        }
    }
    mot_text_puts(text, "}");
}

static void print_record(MotText *text, const MotRecord *record, int indent)
{
    mot_text_printf(text, "%*s", indent, "");
    for (uint32_t i = 0; i < record->out.n; i++) {
        mot_text_puts(text, i ? ", " : "");
        print_term(text, &record->out.data[i]);
    }
    mot_text_printf(text, "%s%s", record->out.n ? " = " : "", record->op);
    for (uint32_t i = 0; i < record->in.n; i++) {
        mot_text_puts(text, " ");
        print_term(text, &record->in.data[i]);
    }
    print_attrs(text, record);
    for (uint32_t i = 0; i < record->types.n; i++) {
        mot_text_puts(text, i ? ", " : " : ");
        mot_text_add_type(text, &record->types.data[i]);
    }
    mot_text_puts(text, record->has_body ? " {\n" : "\n");
    for (uint32_t i = 0; i < record->body.n; i++)
        print_record(text, &record->body.data[i], indent + 2);
    if (record->has_body)
        mot_text_printf(text, "%*s}\n", indent, "");
}

void mot_records_print(const MotRecords *records, MotText *text)
{
    for (uint32_t i = 0; i < records->n; i++)
        print_record(text, &records->data[i], 0);
}

/* ---- JSON ---- */

static void json_term(MotText *text, const MotTerm *term);

static void json_none(MotText *text, const MotTerm *term)
{
    (void)term;
    mot_text_puts(text, "null");
}

static void json_name(MotText *text, const MotTerm *term)
{
    const char *sigil = term->kind == MOT_TERM_VALUE ? "%" : "@";
    mot_json_quote(text, mot_arena_printf(text->arena, "%s%s", sigil, term->text));
}

static void json_text(MotText *text, const MotTerm *term)
{
    mot_json_quote(text, term->text);
}

static void json_float(MotText *text, const MotTerm *term)
{
    const char *quote = isfinite(term->number) ? "" : "\"";
    mot_text_puts(text, quote);
    mot_text_add_float(text, term->number);
    mot_text_puts(text, quote);
}

static void json_list(MotText *text, const MotTerm *term)
{
    mot_text_puts(text, "[");
    for (uint32_t i = 0; i < term->items.n; i++) {
        mot_text_puts(text, i ? ", " : "");
        json_term(text, &term->items.data[i]);
    }
    mot_text_puts(text, "]");
}

static void json_term(MotText *text, const MotTerm *term)
{
    static const PrintTerm printers[MOT_N_TERMS] = {
        [MOT_TERM_NONE] = json_none,   [MOT_TERM_VALUE] = json_name,  [MOT_TERM_SYMBOL] = json_name,
        [MOT_TERM_WORD] = json_text,   [MOT_TERM_STRING] = json_text, [MOT_TERM_INT] = print_int,
        [MOT_TERM_FLOAT] = json_float, [MOT_TERM_LIST] = json_list,
    };
    printers[term->kind](text, term);
}

static void json_terms(MotText *text, const char *member, MotTerm *terms, uint32_t n)
{
    MotTerm list = mot_term_list(terms, n);
    if (n == 0)
        return;
    mot_text_printf(text, ", \"%s\": ", member);
    json_list(text, &list);
}

static void json_attrs(MotText *text, const MotRecord *record)
{
    for (uint32_t i = 0; i < record->attrs.n; i++) {
        const MotRecordAttr *attr = &record->attrs.data[i];
        mot_text_puts(text, i ? ", " : ", \"attributes\": {");
        mot_json_quote(text, attr->name);
        mot_text_puts(text, ": ");
        if (attr->value.kind == MOT_TERM_NONE)
            mot_text_puts(text, "true");
        else
            json_term(text, &attr->value);
    }
    mot_text_puts(text, record->attrs.n ? "}" : "");
}

static void json_types(MotText *text, const MotRecord *record)
{
    for (uint32_t i = 0; i < record->types.n; i++) {
        mot_text_puts(text, i ? ", \"" : ", \"types\": [\"");
        mot_text_add_type(text, &record->types.data[i]);
        mot_text_puts(text, "\"");
    }
    mot_text_puts(text, record->types.n ? "]" : "");
}

static void json_records(MotText *text, const MotRecords *records, int indent);

static void json_record(MotText *text, const MotRecord *record, int indent)
{
    mot_text_puts(text, "{\"op\": ");
    mot_json_quote(text, record->op);
    json_terms(text, "results", record->out.data, record->out.n);
    json_terms(text, "operands", record->in.data, record->in.n);
    json_attrs(text, record);
    json_types(text, record);
    if (record->has_body) {
        mot_text_puts(text, ", \"body\": ");
        json_records(text, &record->body, indent);
    }
    mot_text_puts(text, "}");
}

/* A record a line. */
static void json_records(MotText *text, const MotRecords *records, int indent)
{
    mot_text_puts(text, "[");
    for (uint32_t i = 0; i < records->n; i++) {
        mot_text_printf(text, "%s\n%*s", i ? "," : "", indent + 2, "");
        json_record(text, &records->data[i], indent + 2);
    }
    if (records->n)
        mot_text_printf(text, "\n%*s", indent, "");
    mot_text_puts(text, "]");
}

void mot_records_print_json(const MotRecords *records, MotText *text)
{
    json_records(text, records, 0);
    mot_text_puts(text, "\n");
}
