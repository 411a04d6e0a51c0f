#include "config.h"

#include <string.h>

#include "slots.h"

static int
slot_live(const struct worker *w, const struct reservation *s)
{
	return s->used && s->expires > server_now(w->srv);
}

static int
serial_live(const struct worker *w)
{
	return w->lock.held && w->lock.expires > server_now(w->srv);
}

int
slots_reserved(const struct worker *w)
{
	int i;

	for (i = 0; i < SLOTS_MAX; i++) {
		if (slot_live(w, &w->reservations[i]))
			return 1;
	}
	return 0;
}

int
lock_held(const struct worker *w)
{
	return serial_live(w) || slots_reserved(w);
}

int
lock_held_by_other(const struct worker *w, const char *incarnation)
{
	const struct reservation *s;
	int i;

	if (serial_live(w) && strcmp(w->lock.incarnation, incarnation) != 0)
		return 1;
	for (i = 0; i < SLOTS_MAX; i++) {
		s = &w->reservations[i];
		if (slot_live(w, s) && strcmp(s->incarnation, incarnation) != 0)
			return 1;
	}
	return 0;
}

int
lock_take(struct worker *w, uint64_t owner, int64_t expires)
{
	if (lock_held(w))
		return 0;
	w->lock.held = 1;
	w->lock.owner = owner;
	w->lock.expires = expires;
	memcpy(
	    w->lock.incarnation, w->incarnation, sizeof(w->lock.incarnation));
	return 1;
}

int
slot_root_taken(const struct worker *w, const char *root)
{
	const struct reservation *s;
	int i;

	for (i = 0; i < SLOTS_MAX; i++) {
		s = &w->reservations[i];
		if (slot_live(w, s) && strcmp(s->root, root) == 0)
			return 1;
	}
	return 0;
}

int
slot_reserve(
    struct worker *w, uint64_t owner, const char *root, int64_t expires)
{
	struct reservation *s;
	int i;

	if (serial_live(w) || lock_held_by_other(w, w->incarnation) ||
	    slot_root_taken(w, root))
		return -1;
	for (i = 0; i < (int)w->slots && i < SLOTS_MAX; i++) {
		s = &w->reservations[i];
		if (slot_live(w, s))
			continue;
		memset(s, 0, sizeof(*s));
		s->used = 1;
		s->owner = owner;
		s->expires = expires;
		xsnprintf(s->root, sizeof(s->root), "%s", root);
		memcpy(s->incarnation, w->incarnation, sizeof(s->incarnation));
		return i;
	}
	return -1;
}

void
lock_release(struct worker *w, uint64_t owner)
{
	int i;

	if (w->lock.held && w->lock.owner == owner)
		w->lock.held = 0;
	for (i = 0; i < SLOTS_MAX; i++) {
		if (w->reservations[i].used &&
		    w->reservations[i].owner == owner)
			w->reservations[i].used = 0;
	}
}

int
lock_is_owner(const struct worker *w, uint64_t owner)
{
	int i;

	if (serial_live(w) && w->lock.owner == owner)
		return 1;
	for (i = 0; i < SLOTS_MAX; i++) {
		if (slot_live(w, &w->reservations[i]) &&
		    w->reservations[i].owner == owner)
			return 1;
	}
	return 0;
}
