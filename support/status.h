/*
 * Status codes. A function that can fail returns a MotStatus by value; the text of the failure
 * lives in the context (context.h). MOT_TRY is the only macro that returns from its caller.
 */
#ifndef MOTLEY_SUPPORT_STATUS_H
#define MOTLEY_SUPPORT_STATUS_H

/*
 * X(name, exit code of the command, what it means). The exit codes are stable and listed in the man
 * page.
 */
#define MOT_STATUS_LIST(X)                                                                         \
    X(OK, 0, "ok")                                                                                 \
    X(ERR_INTERNAL, 1, "a fault of Motley itself")                                                 \
    X(ERR_IO, 1, "the operating system refused a file or a resource")                              \
    X(ERR_MEMORY, 1, "out of memory")                                                              \
    X(ERR_USAGE, 2, "the command line is wrong")                                                   \
    X(ERR_MODEL, 3, "the model is invalid")                                                        \
    X(ERR_UNSUPPORTED, 3, "the model uses what Motley does not support")                           \
    X(ERR_INFEASIBLE, 4, "no plan fits the devices")                                               \
    X(ERR_MISMATCH, 5, "plan, program or executable do not belong together")                       \
    X(ERR_RANK, 6, "a rank died or hung")                                                          \
    X(ERR_DATA, 7, "a checkpoint or the data is corrupt")                                          \
    X(ERR_NUMERICS, 8, "the numbers left the finite range")                                        \
    X(ERR_LIMIT, 9, "a limit was exceeded")                                                        \
    X(STOPPED, 75, "stopped on purpose; --resume goes on")

typedef enum MotStatus {
#define X(name, code, text) MOT_##name,
    MOT_STATUS_LIST(X)
#undef X
} MotStatus;

#define MOT_CHECKED __attribute__((warn_unused_result))

#define MOT_TRY(expr)                                                                              \
    do {                                                                                           \
        MotStatus mot_status_ = (expr);                                                            \
        if (mot_status_ != MOT_OK)                                                                 \
            return mot_status_;                                                                    \
    } while (0)

/* The process exit code of a status; 1 for a value that is none. */
int mot_status_exit_code(MotStatus status);
/* What the status means, in a few words. */
const char *mot_status_text(MotStatus status);

#endif
