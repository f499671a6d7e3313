/* Error texts, the unwind point, logging. */
#include "support/context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#define MOT_HAS_TSAN __has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define MOT_HAS_TSAN 1
#else
#define MOT_HAS_TSAN 0
#endif

/* Out of memory: the message must not allocate. */
static void write_exhausted(MotCtx *ctx, size_t wanted_bytes)
{
    char *to = ctx->exhausted, size[64] = "";
    if (wanted_bytes > SIZE_MAX / 4)
        snprintf(size, sizeof size, ": a size is beyond what can be addressed");
    else if (wanted_bytes >> 20)
        snprintf(size, sizeof size, ": the system refuses %zu MiB more", wanted_bytes >> 20);
    snprintf(to, sizeof ctx->exhausted, "out of memory%s%s%s", ctx->doing ? " while " : "",
             ctx->doing ? ctx->doing : "", size);
    ctx->error = (MotText){.arena = &ctx->arena, .data = to, .n = strlen(to)};
}

static void unwind_exhausted(void *self, size_t wanted_bytes)
{
    MotCtx *ctx = self;
    if (!ctx->unwind)
        mot_bug(__FILE__, __LINE__, "memory exhausted outside mot_ctx_run");
    if (ctx->status == MOT_OK) {
        ctx->status = MOT_ERR_MEMORY;
        write_exhausted(ctx, wanted_bytes);
    }
    longjmp(*(jmp_buf *)ctx->unwind, 1);
}

void mot_ctx_init(MotCtx *ctx)
{
    *ctx = (MotCtx){0};
    mot_arena_init(&ctx->arena, unwind_exhausted, ctx);
    mot_arena_init(&ctx->names, unwind_exhausted, ctx);
    mot_map_init(&ctx->strings, &ctx->names);
    mot_text_init(&ctx->error, &ctx->arena);
#ifndef NDEBUG
    ctx->debug.verify = true;
#endif
    ctx->debug.ranks_are_threads = MOT_HAS_TSAN;
}

static void use_faults(MotCtx *ctx, MotFaults *faults)
{
    ctx->faults = ctx->arena.faults = ctx->names.faults = faults;
}

void mot_ctx_inherit(MotCtx *ctx, const MotCtx *from)
{
    ctx->debug = from->debug;
    ctx->doing = from->doing;
    ctx->log = from->log;
    ctx->log_self = from->log_self;
    use_faults(ctx, from->faults);
}

void mot_ctx_fail_at(MotCtx *ctx, MotFault kind, long n)
{
    ctx->own_faults.at[kind] = n;
    atomic_store(&ctx->own_faults.count[kind], 0);
    use_faults(ctx, &ctx->own_faults);
}

static void release_deferred(MotCtx *ctx, uint32_t n_kept)
{
    while (ctx->deferred.n > n_kept) {
        MotDeferred d = ctx->deferred.data[--ctx->deferred.n];
        d.release(d.handle);
    }
}

void mot_ctx_deinit(MotCtx *ctx)
{
    release_deferred(ctx, 0);
    mot_arena_deinit(&ctx->arena);
    mot_arena_deinit(&ctx->names);
}

MotStatus mot_ctx_run(MotCtx *ctx, MotStatus (*body)(MotCtx *, void *), void *arg)
{
    jmp_buf here;
    void *outer = ctx->unwind;
    ctx->unwind = &here;
    MotStatus status = setjmp(here) ? MOT_ERR_MEMORY : body(ctx, arg);
    ctx->unwind = outer;
    return status;
}

void mot_ctx_defer(MotCtx *ctx, void (*release)(void *), void *handle)
{
    mot_vec_push(&ctx->names, &ctx->deferred, (MotDeferred){release, handle});
}

MotScope mot_scope_begin(MotCtx *ctx)
{
    return (MotScope){mot_arena_mark(&ctx->arena), ctx->deferred.n};
}

void mot_scope_end(MotCtx *ctx, MotScope scope)
{
    release_deferred(ctx, scope.n_deferred);
    mot_arena_rewind(&ctx->arena, scope.mark);
}

static void add_loc(MotText *text, MotLoc loc)
{
    if (loc.file)
        mot_text_printf(text, "%s: ", loc.file);
    if (loc.place)
        mot_text_printf(text, "%s: ", loc.place);
}

/*
 * Whatever stands in the arguments, names from files among them, a message can be shown on a
 * terminal.
 */
static const char *format_args(MotArena *arena, const char *format, va_list args)
{
    MotText visible;
    mot_text_init(&visible, arena);
    mot_text_add_visible(&visible, mot_arena_vprintf(arena, format, args));
    return mot_text_get(&visible);
}

#undef mot_fail
MotStatus mot_fail(MotCtx *ctx, MotStatus status, MotLoc loc, const char *format, ...)
{
    if (ctx->status != MOT_OK)
        return ctx->status;
    ctx->status = status;
    mot_text_init(&ctx->error, &ctx->arena);
    add_loc(&ctx->error, loc);
    va_list args;
    va_start(args, format);
    mot_text_puts(&ctx->error, format_args(&ctx->arena, format, args));
    va_end(args);
    return status;
}

/* When the arena is exhausted, adding would allocate. */
static bool takes_notes(const MotCtx *ctx)
{
    return ctx->status != MOT_OK && ctx->error.data != ctx->exhausted;
}

void mot_note(MotCtx *ctx, const char *format, ...)
{
    if (!takes_notes(ctx))
        return;
    va_list args;
    va_start(args, format);
    mot_text_printf(&ctx->error, "\n  %s", format_args(&ctx->arena, format, args));
    va_end(args);
}

void mot_hint(MotCtx *ctx, const char *format, ...)
{
    if (!takes_notes(ctx))
        return;
    va_list args;
    va_start(args, format);
    mot_text_printf(&ctx->error, "\n  hint: %s", format_args(&ctx->arena, format, args));
    va_end(args);
}

void mot_error_clear(MotCtx *ctx)
{
    ctx->status = MOT_OK;
    mot_text_init(&ctx->error, &ctx->arena);
}

static void emit(MotCtx *ctx, MotLogLevel level, const char *line)
{
    if (ctx->log)
        ctx->log(ctx->log_self, level, line);
}

void mot_warn(MotCtx *ctx, MotLoc loc, const char *format, ...)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    add_loc(&text, loc);
    va_list args;
    va_start(args, format);
    mot_text_puts(&text, format_args(&ctx->arena, format, args));
    va_end(args);
    emit(ctx, MOT_LOG_WARN, mot_text_get(&text));
}

void mot_info(MotCtx *ctx, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    emit(ctx, MOT_LOG_INFO, format_args(&ctx->arena, format, args));
    va_end(args);
}

void mot_debug(MotCtx *ctx, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    emit(ctx, MOT_LOG_DEBUG, format_args(&ctx->arena, format, args));
    va_end(args);
}

const char *mot_intern(MotCtx *ctx, const char *string)
{
    return mot_map_intern(&ctx->strings, string, strlen(string));
}

_Noreturn void mot_bug(const char *file, int line, const char *what)
{
    fprintf(stderr, "motley: bug at %s:%d: %s\n", file, line, what);
    abort();
}

static bool equals(const char *text, size_t n, const char *prefix, const char *name)
{
    size_t n_prefix = strlen(prefix), n_name = strlen(name);
    return n == n_prefix + n_name && memcmp(text, prefix, n_prefix) == 0 &&
           memcmp(text + n_prefix, name, n_name) == 0;
}

bool mot_debug_lists(const char *list, const char *prefix, const char *name)
{
    while (list && *list) {
        size_t n = strcspn(list, ",");
        if (equals(list, n, prefix, name))
            return true;
        list += n + (list[n] == ',');
    }
    return false;
}
