/*
 * The socket in a training's folder at which it takes requests of the same user, and the side that
 * asks. A request and its answer are a JSON object each, in one message.
 */
#ifndef MOTLEY_CLI_CONTROL_H
#define MOTLEY_CLI_CONTROL_H

#include "support/json.h"

enum { MOT_CONTROL_CLIENTS = 8 };

typedef struct MotControl {
    int fd; /* -1: the folder's file system has no sockets, or it is closed */
    const char *dir;
    int client[MOT_CONTROL_CLIENTS]; /* who has connected and not said anything yet, oldest first */
    uint32_t n_clients;
} MotControl;

typedef struct MotRequest {
    int fd;
    const MotJson *json; /* an object, or NULL: what came is none */
} MotRequest;

/*
 * Makes DIR/control, in place of one that a killed training left. Where that can't be, a warning is
 * all.
 */
MotControl *mot_control_open(MotCtx *ctx, const char *dir);
/* Ends it before the context does; who has connected gets no answer. */
void mot_control_close(MotControl *control);
/*
 * Takes the next request; false if there is none. It has to be answered. Never waits: who connects
 * and says nothing is looked at again the next time, until too many others have come.
 */
bool mot_control_next(MotCtx *ctx, MotControl *control, MotRequest *out_request);
/* Sends the answer and ends the request. */
void mot_control_answer(MotRequest *request, const MotJsonWriter *answer);

/*
 * Sends a request to the training in DIR and waits for its answer. MOT_ERR_USAGE if none runs
 * there.
 */
MOT_CHECKED MotStatus mot_control_ask(MotCtx *ctx, const char *dir, const MotJsonWriter *request,
                                      const MotJson **out_answer);

#endif
