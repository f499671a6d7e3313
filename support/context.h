/*
 * The context of one compilation or run: arena, first error, debugging options, log.
 *
 * Errors: the first failure wins; callers on the way up may add notes. Out of memory unwinds to
 * mot_ctx_run, the public entry, which returns MOT_ERR_MEMORY. Handles of libraries made on the way
 * are registered with mot_ctx_defer.
 */
#ifndef MOTLEY_SUPPORT_CONTEXT_H
#define MOTLEY_SUPPORT_CONTEXT_H

#include "support/arena.h"
#include "support/map.h"
#include "support/status.h"
#include "support/text.h"
#include "support/vector.h"

#include <stdbool.h>
#include <stdint.h>

/* Where something is wrong: a file and a place in it, such as `node 57 "/h.0/attn/Reshape"` or
 * `line 3`. Each may be NULL. */
typedef struct MotLoc {
    const char *file, *place;
} MotLoc;
#define MOT_NOWHERE ((MotLoc){NULL, NULL})

typedef enum MotLogLevel { MOT_LOG_WARN, MOT_LOG_INFO, MOT_LOG_DEBUG } MotLogLevel;

/* Debugging switches, parsed once from the environment by cli/; all NULL or 0 by default. */
typedef struct MotDebug {
    const char *dump;       /* MOTLEY_DUMP=after:PASS, comma-separated; `all` */
    const char *stop;       /* MOTLEY_STOP=after:PASS */
    const char *skip;       /* MOTLEY_SKIP=PASS, comma-separated; `batch` of lowering */
    long rule_limit;        /* MOTLEY_RULE_LIMIT=n: rewrites stop after n firings; 0: none */
    bool verify;            /* run the verifier between passes; default in debug builds */
    bool ranks_are_threads; /* MOTLEY_RANKS=threads, and not processes; default under TSan */
} MotDebug;

/* Whether the comma-separated `list` (may be NULL) has the item prefix + name. */
bool mot_debug_lists(const char *list, const char *prefix, const char *name);

typedef struct MotDeferred {
    void (*release)(void *);
    void *handle;
} MotDeferred;

typedef struct MotCtx {
    MotArena arena;
    MotArena names; /* of the interned strings, which outlive every mark of the arena above */
    MotMap strings; /* interned */
    MotStatus status;
    MotText error;       /* first line: the failure; then notes and hints, a line each */
    const char *doing;   /* "reading the data", in case the arena is exhausted; or NULL */
    char exhausted[128]; /* what is said then */
    MotDebug debug;
    MotFaults *faults; /* NULL, or own_faults of this context or of the one that it inherits from */
    MotFaults own_faults;
    long rule_firings;
    void (*log)(void *self, MotLogLevel level, const char *line);
    void *log_self;
    MotVec(MotDeferred) deferred;
    void *unwind; /* jmp_buf of the innermost mot_ctx_run; NULL outside */
} MotCtx;

void mot_ctx_init(MotCtx *ctx);
/* Gives a context the switches, the log and the faults of another one, which outlives it. */
void mot_ctx_inherit(MotCtx *ctx, const MotCtx *from);
/* Has the n-th call of a kind from now refused (fault.h). */
void mot_ctx_fail_at(MotCtx *ctx, MotFault kind, long n);
/* Releases the deferred handles, newest first, then the arena. */
void mot_ctx_deinit(MotCtx *ctx);

/* Runs `body` with an unwind point for exhaustion. Not to be called from a library's callback. */
MOT_CHECKED MotStatus mot_ctx_run(MotCtx *ctx, MotStatus (*body)(MotCtx *, void *), void *arg);

/* Has `release(handle)` called when the innermost open scope ends, or by mot_ctx_deinit. */
void mot_ctx_defer(MotCtx *ctx, void (*release)(void *), void *handle);

/*
 * A scope: what was allocated and deferred after its beginning is released at its end. Use it, and
 * not the arena's mark alone, around anything that may open files or libraries (a step that writes
 * a checkpoint, say).
 */
typedef struct MotScope {
    MotArenaMark mark;
    uint32_t n_deferred;
} MotScope;
MotScope mot_scope_begin(MotCtx *ctx);
void mot_scope_end(MotCtx *ctx, MotScope scope);

/*
 * Records the failure unless one is recorded already; returns `status`, so that callers write
 * `return mot_fail(...)`.
 */
MotStatus mot_fail(MotCtx *ctx, MotStatus status, MotLoc loc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#ifdef __clang_analyzer__ /* it can't see that a failure never returns MOT_OK */
#define mot_fail(ctx, status, ...) (mot_fail(ctx, status, __VA_ARGS__), status)
#endif
/* Adds a line of context, or what to do about it, to the recorded failure. */
void mot_note(MotCtx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));
void mot_hint(MotCtx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Forgets the recorded failure (an alternative is tried). */
void mot_error_clear(MotCtx *ctx);

void mot_warn(MotCtx *ctx, MotLoc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void mot_info(MotCtx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What `-v` shows. */
void mot_debug(MotCtx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Equal strings get equal pointers. */
const char *mot_intern(MotCtx *ctx, const char *string);

/* A broken invariant of our own where going on would corrupt: prints and aborts. */
_Noreturn void mot_bug(const char *file, int line, const char *what);
#if defined(NDEBUG) && !defined(__clang_analyzer__)
#define MOT_ASSERT(cond) ((void)sizeof(cond))
#else
#define MOT_ASSERT(cond) ((cond) ? (void)0 : mot_bug(__FILE__, __LINE__, #cond))
#endif

#endif
