#include "config.h"

#include <stdlib.h>

#include "assignment.h"
#include "buf.h"
#include "lanes.h"
#include "lease.h"
#include "log.h"
#include "pulse.h"

#define SLOTS_MAX 8

struct lanes {
	struct lane *list[SLOTS_MAX + 1]; /* [0] the legacy lane */
	size_t n; /* running */
	unsigned int slots; /* in force; 0: none yet */
	struct pulse *pulse; /* with several slots */
	char *unclean;
};

struct lanes *
lanes_new(struct bridge *b)
{
	struct lanes *ls;

	ls = xcalloc(1, sizeof(*ls));
	ls->list[0] = lane_new(b, LANE_LEGACY);
	ls->n = 1;
	return ls;
}

void
lanes_start(struct bridge *b)
{
	lane_start(b->lanes->list[0]);
}

void
lanes_stop(struct bridge *b)
{
	size_t i;

	for (i = 0; i < b->lanes->n; i++)
		lane_stop(b->lanes->list[i]);
	lanes_end_if_stopping(b);
}

void
lanes_pause(struct bridge *b)
{
	size_t i;

	for (i = 0; i < b->lanes->n; i++)
		lane_pause(b->lanes->list[i]);
}

void
lanes_resume(struct bridge *b)
{
	size_t i;

	if (b->lanes->pulse != NULL)
		pulse_beat(b->lanes->pulse);
	for (i = 0; i < b->lanes->n; i++)
		lane_resume(b->lanes->list[i]);
}

int
lanes_concurrent(const struct bridge *b)
{
	return b->lanes->slots > 1;
}

unsigned int
lanes_slots(const struct bridge *b)
{
	return b->lanes->slots;
}

int
lanes_busy(const struct bridge *b)
{
	size_t i;

	for (i = 0; i < b->lanes->n; i++)
		if (lane_assignment(b->lanes->list[i]) != NULL)
			return 1;
	return 0;
}

int
lanes_active(const struct bridge *b, const struct lane *but, const char *id)
{
	const struct assignment *as;
	size_t i;

	for (i = 0; i < b->lanes->n; i++) {
		as = lane_assignment(b->lanes->list[i]);
		if (b->lanes->list[i] != but && as != NULL &&
		    assignment_is(as, id))
			return 1;
	}
	return 0;
}

static void
on_lost(const char *why, void *arg)
{
	struct lanes *ls = arg;
	struct assignment *as;
	size_t i;

	for (i = 0; i < ls->n; i++)
		if ((as = lane_assignment(ls->list[i])) != NULL)
			assignment_lost(as, why);
}

/* Ends the lanes that are too many and starts those that lack. */
static void
resize(struct bridge *b, size_t n)
{
	struct lanes *ls = b->lanes;

	while (ls->n > n) {
		ls->n--;
		lane_free(ls->list[ls->n]);
		ls->list[ls->n] = NULL;
	}
	while (ls->n < n) {
		ls->list[ls->n] = lane_new(b, (int)ls->n - 1);
		lane_start(ls->list[ls->n++]);
	}
}

void
lanes_follow(struct bridge *b, unsigned int slots)
{
	struct lanes *ls = b->lanes;

	if (slots == ls->slots || bridge_stopping(b))
		return;
	if (ls->slots != 0 || slots > 1)
		log_info("the Code API grants %u of %u lease slots", slots,
		    b->config.lease_slots);
	ls->slots = slots;
	if (slots > 1 && ls->pulse == NULL)
		ls->pulse = pulse_start(b, on_lost, ls);
	else if (slots == 1)
		pulse_stop(&ls->pulse);
	resize(b, slots > 1 ? slots + 1 : 1);
}

struct assignment *
lanes_awaiting(const struct bridge *b, uint32_t type, uint32_t id)
{
	struct assignment *as;
	size_t i;

	for (i = 0; i < b->lanes->n; i++) {
		as = lane_assignment(b->lanes->list[i]);
		if (as != NULL && assignment_awaits(as, type, id))
			return as;
	}
	return NULL;
}

void
lanes_unclean(struct bridge *b, const char *text)
{
	if (b->lanes->unclean == NULL)
		b->lanes->unclean = xstrdup(text);
}

void
lanes_end_if_stopping(struct bridge *b)
{
	if (!bridge_stopping(b) || lanes_busy(b))
		return;
	if (b->lanes->unclean != NULL)
		bridge_end(b, END_GENERAL, b->lanes->unclean);
	bridge_end(b, END_CLEAN, NULL);
}
