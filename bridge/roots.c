#include "config.h"

#include <stdlib.h>

#include "buf.h"
#include "roots.h"

struct one_root {
	TAILQ_HEAD(, root_turn) line; /* the first one holds it */
	char *fenced; /* why, or NULL */
};

struct roots {
	size_t n;
	struct one_root list[];
};

struct roots *
roots_new(const struct bridge_config *c)
{
	struct roots *rs;
	size_t i;

	rs = xcalloc(1, sizeof(*rs) + c->nworkspaces * sizeof(rs->list[0]));
	rs->n = c->nworkspaces;
	for (i = 0; i < rs->n; i++) {
		TAILQ_INIT(&rs->list[i].line);
		if (c->workspaces[i].quarantined)
			rs->list[i].fenced = xstrdup(
			    "its quarantine has not been cleared");
	}
	return rs;
}

void
roots_free(struct roots *rs)
{
	size_t i;

	if (rs == NULL)
		return;
	for (i = 0; i < rs->n; i++)
		free(rs->list[i].fenced);
	free(rs);
}

int
roots_enter(struct roots *rs, struct root_turn *t, uint32_t root)
{
	t->waiting = 1;
	t->root = root;
	TAILQ_INSERT_TAIL(&rs->list[root].line, t, entry);
	return TAILQ_FIRST(&rs->list[root].line) == t;
}

void
roots_leave(struct roots *rs, struct root_turn *t)
{
	struct root_turn *next;
	int held;

	if (!t->waiting)
		return;
	t->waiting = 0;
	held = TAILQ_FIRST(&rs->list[t->root].line) == t;
	TAILQ_REMOVE(&rs->list[t->root].line, t, entry);
	next = TAILQ_FIRST(&rs->list[t->root].line);
	if (held && next != NULL)
		next->granted(next->arg);
}

void
roots_fence(struct roots *rs, uint32_t root, const char *why)
{
	if (rs->list[root].fenced == NULL)
		rs->list[root].fenced = xstrdup(why);
}

const char *
roots_fenced(const struct roots *rs, uint32_t root)
{
	return rs->list[root].fenced;
}

int
roots_any_fenced(const struct roots *rs)
{
	size_t i;

	for (i = 0; i < rs->n; i++)
		if (rs->list[i].fenced != NULL)
			return 1;
	return 0;
}
