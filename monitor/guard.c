#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "error.h"
#include "guard.h"

int
guard_arm(struct guard *g, const char *worker, const char *owner,
    const char *assignment, uint32_t request, char **error)
{
	if (g->state != GUARD_FREE)
		return errorf(error,
		    "workspace %s is armed for another assignment",
		    g->root->id);
	if (marker_arm(&g->root->marker, worker, g->root->id, owner,
		"Workspace mutation did not settle", error) == -1)
		return -1;
	g->state = GUARD_ALLOWING;
	g->assignment = xstrdup(assignment);
	g->request = request;
	g->known = 0;
	g->clearing = 0;
	return 0;
}

static int
ours(const struct guard *g, const char *assignment)
{
	return g->assignment != NULL && strcmp(g->assignment, assignment) == 0;
}

int
guard_allowed(struct guard *g, const char *assignment)
{
	if (g->state != GUARD_ALLOWING || !ours(g, assignment))
		return -1;
	g->state = GUARD_ARMED;
	return 0;
}

void
guard_outcome(struct guard *g, const char *assignment, enum certainty outcome)
{
	if (g->state != GUARD_ARMED || !ours(g, assignment))
		return;
	if (g->known && g->outcome == UNCERTAIN)
		return;
	g->known = 1;
	g->outcome = outcome;
}

static enum clear_result
clear_now(struct guard *g, char **error)
{
	g->clearing = 0;
	if (g->outcome == UNCERTAIN) {
		errorf(error,
		    "the outcome of the mutation of workspace %s is uncertain: "
		    "its quarantine stays",
		    g->root->id);
		return CLEAR_FAILED;
	}
	if (marker_clear(&g->root->marker, error) == -1)
		return CLEAR_FAILED;
	free(g->assignment);
	g->assignment = NULL;
	g->state = GUARD_FREE;
	return CLEAR_DONE;
}

enum clear_result
guard_clear(struct guard *g, const char *assignment, uint32_t request,
    int64_t now, char **error)
{
	if (g->state != GUARD_ARMED || g->clearing || !ours(g, assignment)) {
		errorf(error, "workspace %s is not armed for that assignment",
		    g->root->id);
		return CLEAR_FAILED;
	}
	if (g->known)
		return clear_now(g, error);
	g->clearing = 1;
	g->clear_request = request;
	g->clear_deadline = now + CLEAR_WAIT_MS;
	return CLEAR_LATER;
}

enum clear_result
guard_settle(struct guard *g, int64_t now, char **error)
{
	if (g->known)
		return clear_now(g, error);
	if (now < g->clear_deadline)
		return CLEAR_LATER;
	g->clearing = 0;
	errorf(error,
	    "the executor did not report the outcome for workspace %s: its "
	    "quarantine stays",
	    g->root->id);
	return CLEAR_FAILED;
}

void
guard_free(struct guard *g)
{
	free(g->assignment);
	g->assignment = NULL;
}
