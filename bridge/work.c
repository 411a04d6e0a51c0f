#include "config.h"

#include <string.h>

#include "json.h"
#include "log.h"
#include "times.h"
#include "work.h"

#define ID_BYTES_MAX 512

static void
read_request(
    struct work *w, const struct bridge_config *c, const struct json *j)
{
	const char *kind = json_get_str(j, "executionKind");
	size_t i;

	if (kind == NULL || strcmp(kind, "sandbox") == 0) {
		w->refusal = "this worker has no sandbox runtime";
		return;
	}
	if (strcmp(kind, "workspace_tool") != 0) {
		w->refusal = "this worker does not know the execution kind";
		return;
	}
	w->refusal = request_validate(json_get(j, "request"), &w->tr);
	if (w->refusal != NULL) {
		log_debug("assignment %s: invalid request: %s",
		    w->fence.assignment, w->refusal);
		return;
	}
	w->tr.q.assignment = xstrdup(w->fence.assignment);
	for (i = 0; i < c->nworkspaces; i++) {
		if (strcmp(c->workspaces[i].id, w->tr.workspace) != 0)
			continue;
		w->tr.q.root = (uint32_t)i;
		w->has_root = 1;
	}
}

int
work_read(struct work *w, const struct bridge_config *c, const struct json *j,
    const char **error)
{
	const char *id, *token, *expires;
	int64_t generation;

	memset(w, 0, sizeof(*w));
	id = json_get_str(j, "assignmentId");
	token = json_get_str(j, "leaseToken");
	if (id == NULL || *id == '\0' || strlen(id) > ID_BYTES_MAX ||
	    token == NULL || *token == '\0' ||
	    json_get_integer(j, "generation", &generation) == -1) {
		*error = "the assignment has no valid id, generation or "
			 "lease token";
		return -1;
	}
	w->fence.assignment = xstrdup(id);
	w->fence.token = xstrdup(token);
	w->fence.generation = generation;
	expires = json_get_str(j, "expiresAt");
	if (expires == NULL || time_parse_iso(expires, &w->expires_at) == -1)
		w->expires_at = -1;
	read_request(w, c, j);
	return 0;
}

void
work_free(struct work *w)
{
	tool_request_free(&w->tr);
	fence_free(&w->fence);
}
