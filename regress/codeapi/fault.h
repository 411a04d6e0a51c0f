#ifndef CODEAPI_FAULT_H
#define CODEAPI_FAULT_H

#include <stdint.h>

struct json;
struct req;
struct server;

enum fault_kind {
	FAULT_NONE,
	FAULT_DROP_BEFORE,
	FAULT_DROP_AFTER,
	FAULT_STATUS,
	FAULT_DELAY,
	FAULT_STALL,
	FAULT_GARBAGE,
	FAULT_HTML,
	FAULT_EMPTY,
	FAULT_SLOW_HEADERS,
	FAULT_SLOW_BODY,
	FAULT_RESET,
	FAULT_RESET_AFTER,
	FAULT_HALF_JSON
};

/* What happens to one request; the texts are owned. */
struct fault_action {
	enum fault_kind kind;
	int status;
	char *code;
	char *body;
	int64_t ms;
};

/* Replaces the rules by {"rules":[...]}; -1 if they are not valid. */
int fault_rules(struct server *, const struct json *);
void fault_clear(struct server *);

/* Chooses what happens to a request of that route and counts it. */
void fault_choose(struct server *, const char *route, struct fault_action *);
void fault_action_free(struct fault_action *);
const char *fault_name(enum fault_kind);

/*
 * Applies a fault that replaces the processing of a request. Returns 1 if it
 * did and the request is gone.
 */
int fault_before(struct req *);

#endif
