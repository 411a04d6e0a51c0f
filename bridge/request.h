#ifndef BRIDGE_REQUEST_H
#define BRIDGE_REQUEST_H

#include <stdint.h>

#include "msg.h"

struct json;
struct offer;

/* A validated request, with what only the admission needs to know. */
struct tool_request {
	struct request q; /* q.root is not set yet */
	char *workspace;
	int has_overwrite;
	int batch; /* edits were given as a list */
};

/*
 * Validates a workspace tool request completely (workspace-tools 1, 5 to
 * 11): closed objects, types, ranges, well-formed text. Returns NULL and
 * *tr, freed by the caller, or a fixed phrase that says what is wrong.
 * Defaults are filled in.
 */
const char *request_validate(const struct json *, struct tool_request *);
void tool_request_free(struct tool_request *);

/*
 * Checks a valid request against what was registered (protocol 8.3, steps 4
 * to 7) and sets q.root. Returns NULL, or why it is refused.
 */
const char *request_admit(struct tool_request *, const struct offer *,
    const struct workspace *, size_t n);

#endif
