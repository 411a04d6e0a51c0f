#ifndef BRIDGE_WORK_H
#define BRIDGE_WORK_H

#include <stdint.h>

#include "request.h"
#include "settlement.h"

struct bridge_config;
struct json;

/* What the assignment object of a lease answer asks for (protocol 8.1). */
struct work {
	struct fence fence;
	int64_t expires_at; /* server clock, ms since 1970; -1: not a time */
	const char *refusal; /* it is not to be run: why */
	struct tool_request tr; /* if there is no refusal */
	int has_root; /* tr.q.root is known */
};

/*
 * Reads it: 0, or -1 with a fixed phrase if it has no identity that could be
 * acknowledged. A request that is not valid, or of an unknown kind, is a
 * refusal.
 */
int work_read(struct work *, const struct bridge_config *, const struct json *,
    const char **error);
void work_free(struct work *);

#endif
