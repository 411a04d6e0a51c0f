#ifndef CODEAPI_CALLER_H
#define CODEAPI_CALLER_H

#include "json.h"

struct req;
struct server;

/* POST /v1/workspace-tools/execute in local mode (chapter 17). */
void caller_execute(struct server *, struct req *);

/*
 * Validates and dispatches a workspace request to a worker that was chosen
 * (explicit: by a caller's claim) and answers as 17.5.
 */
void caller_dispatch(struct server *, struct req *, const char *worker,
    const struct json *request, const char *tenant, int is_explicit);

/* Answers as table 17.5; the code NULL is the unexpected failure. */
void caller_fail(struct req *, const char *code);

/* Answers for a rejected settlement. */
void caller_rejected(struct req *, const struct json *settlement);

/* Answers with the result itself. */
void caller_fulfilled(struct req *, const struct json *result);

#endif
