#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "fence.h"

static struct fence *
find(const struct worker *w, const char *name)
{
	struct fence *f;

	TAILQ_FOREACH (f, &w->fences, entry) {
		if (strcmp(f->name, name) == 0)
			return f;
	}
	return NULL;
}

static struct fence *
find_or_make(struct worker *w, const char *name)
{
	struct fence *f;

	if ((f = find(w, name)) == NULL) {
		f = xcalloc(1, sizeof(*f));
		f->name = xstrdup(name);
		TAILQ_INSERT_TAIL(&w->fences, f, entry);
	}
	return f;
}

const char *
fence_value(const struct worker *w, const char *name)
{
	const struct fence *f;

	return (f = find(w, name)) == NULL ? NULL : f->value;
}

void
fence_set(struct worker *w, const char *name, const char *value)
{
	struct fence *f;

	f = find_or_make(w, name);
	free(f->value);
	f->value = xstrdup(value);
}

void
fence_clear(struct worker *w, const char *name)
{
	struct fence *f;

	if ((f = find(w, name)) == NULL)
		return;
	free(f->value);
	f->value = NULL;
}

int
fence_is(const struct worker *w, const char *name, const char *owner)
{
	const char *value;

	return name != NULL && (value = fence_value(w, name)) != NULL &&
	    strcmp(value, owner) == 0;
}

void
fence_reset(struct worker *w, const char *name)
{
	fence_clear(w, name);
	find_or_make(w, name)->epoch++;
}

uint64_t
fence_epoch(const struct worker *w, const char *name)
{
	const struct fence *f;

	return (f = find(w, name)) == NULL ? 0 : f->epoch;
}

void
fences_free(struct worker *w)
{
	struct fence *f;

	while ((f = TAILQ_FIRST(&w->fences)) != NULL) {
		TAILQ_REMOVE(&w->fences, f, entry);
		free(f->name);
		free(f->value);
		free(f);
	}
}
