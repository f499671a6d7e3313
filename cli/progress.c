/* Lines are laid out in columns of one character each; escape sequences of colour take none. */
#include "cli/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LONGEST_NAME = 12, LONGEST_BAR = 10, SHORTEST_BAR = 3 };

void mot_progress_init(MotProgress *p, FILE *out, const char *const *devices, uint32_t n_devices)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    *p = (MotProgress){.out = out, .devices = devices, .n_devices = n_devices};
    p->is_terminal = out && isatty(fileno(out)) && term && strcmp(term, "dumb") != 0;
    p->has_color = p->is_terminal && !(no_color && *no_color);
}

/* 179664 -> "179,664" */
static const char *group_thousands(MotArena *arena, double value)
{
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%.0f", value);
    MotText text;
    mot_text_init(&text, arena);
    for (int i = 0; i < n; i++) {
        mot_text_add(&text, &digits[i], 1);
        if (i + 1 < n && (n - i - 1) % 3 == 0)
            mot_text_puts(&text, ",");
    }
    return mot_text_get(&text);
}

/* ---- The line ---- */

/*
 * Adds a field, and a bar before it, if the line stays within its columns; after one that did not
 * fit, no other is added.
 */
typedef struct {
    MotText text;
    uint32_t columns;
    bool is_full;
} Line;

static void add_field(Line *line, const char *field)
{
    const char *bar = line->text.n ? " | " : "";
    line->is_full |= line->text.n + strlen(bar) + strlen(field) > line->columns;
    if (!line->is_full)
        mot_text_printf(&line->text, "%s%s", bar, field);
}

const char *mot_progress_line(MotArena *arena, const MotStepReport *r, uint32_t columns)
{
    Line line = {.columns = columns};
    int64_t eta = (int64_t)((double)(r->steps - r->step) * r->ms * 1e-3);
    mot_text_init(&line.text, arena);
    add_field(&line,
              mot_arena_printf(arena, "step %lld/%lld", (long long)r->step, (long long)r->steps));
    add_field(&line, mot_arena_printf(arena, "loss %.4f", r->loss));
    if (!isnan(r->norm))
        add_field(&line, mot_arena_printf(arena, "norm %.2f", r->norm));
    add_field(&line, mot_arena_printf(arena, "lr %.2e", r->lr));
    add_field(&line, mot_arena_printf(arena, "%.1f ms", r->ms));
    add_field(&line, mot_arena_printf(arena, "%s %s/s", group_thousands(arena, r->rate), r->unit));
    if (!isnan(r->mfu))
        add_field(&line, mot_arena_printf(arena, "mfu %.1f%%", 100 * r->mfu));
    add_field(&line, mot_arena_printf(arena, "bal %.0f%%", 100 * r->balance));
    add_field(&line, mot_arena_printf(arena, "eta %02lld:%02lld:%02lld", (long long)(eta / 3600),
                                      (long long)(eta / 60 % 60), (long long)(eta % 60)));
    return mot_text_get(&line.text);
}

/* ---- The strip ---- */

/* Characters of UTF-8. */
static uint32_t count_columns(const char *text)
{
    uint32_t n = 0;
    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n;
}

/* A bar of `width` columns in eighths of a column. */
static void add_bar(MotText *text, double part, uint32_t width)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    double filled = part > 0 ? fmin(part, 1) * width : 0;
    uint32_t full = (uint32_t)filled, rest = (uint32_t)((filled - full) * 8),
             used = full + (rest > 0);
    for (uint32_t i = 0; i < full; i++)
        mot_text_puts(text, "█");
    mot_text_puts(text, eighths[rest]);
    for (; used < width; used++)
        mot_text_puts(text, "·");
}

/* Where there is no room for bars: a block a device, as high as it was busy. */
static void add_blocks(MotText *text, const double *busy, uint32_t n)
{
    static const char *const levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    for (uint32_t i = 0; i < n; i++) {
        double level = busy[i] > 0 ? fmin(busy[i] * 8, 7) : 0;
        mot_text_puts(text, levels[(int)level]);
    }
}

const char *mot_progress_strip(const MotProgress *p, MotArena *arena, const double *busy,
                               uint32_t columns)
{
    MotText text;
    mot_text_init(&text, arena);
    uint32_t n = p->n_devices, widest = 0;
    const char **names = mot_arena_array(arena, const char *, n);
    for (uint32_t i = 0; i < n; i++) {
        names[i] = mot_escape(arena, p->devices[i], LONGEST_NAME);
        uint32_t width = count_columns(names[i]);
        widest = width > widest ? width : widest;
    }
    /* Cells of equal width with two blanks between them: a name, a blank, a bar. */
    uint32_t room = n ? (columns + 2) / n : 0, cell = room > 2 ? room - 2 : 0;
    bool has_names = cell >= widest + 1 + SHORTEST_BAR;
    uint32_t bar = has_names ? cell - widest - 1 : cell;
    bar = bar > LONGEST_BAR ? LONGEST_BAR : bar;
    if (p->has_color)
        mot_text_puts(&text, "\x1b[36m");
    if (bar < SHORTEST_BAR)
        add_blocks(&text, busy, n < columns ? n : columns);
    for (uint32_t i = 0; i < n && bar >= SHORTEST_BAR; i++) {
        mot_text_puts(&text, i ? "  " : "");
        if (has_names)
            mot_text_printf(&text, "%s%*s", names[i], (int)(widest + 1 - count_columns(names[i])),
                            "");
        add_bar(&text, busy[i], bar);
    }
    if (p->has_color)
        mot_text_puts(&text, "\x1b[0m");
    return mot_text_get(&text);
}

/* ---- Painting ---- */

static uint32_t measure_columns(FILE *out)
{
    struct winsize size;
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void mot_progress_step(MotProgress *p, MotArena *arena, const MotStepReport *r)
{
    if (!p->out)
        return;
    if (!p->is_terminal) {
        fprintf(p->out, "%s\n", mot_progress_line(arena, r, UINT32_MAX));
        fflush(p->out);
        return;
    }
    uint32_t columns = measure_columns(p->out);
    const char *line = mot_progress_line(arena, r, columns),
               *strip = mot_progress_strip(p, arena, r->busy, columns);
    mot_progress_clear(p);
    fprintf(p->out, "%s\n%s", line, strip);
    fflush(p->out);
    p->n_painted = 2;
}

/* The cursor stands at the end of the last painted line. */
void mot_progress_clear(MotProgress *p)
{
    for (uint32_t i = 0; i < p->n_painted; i++)
        fprintf(p->out, "%s\r\x1b[2K", i ? "\x1b[1A" : "");
    if (p->n_painted)
        fflush(p->out);
    p->n_painted = 0;
}

void mot_progress_end(MotProgress *p)
{
    if (p->n_painted)
        fputs("\n", p->out);
    p->n_painted = 0;
}
