#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "canon.h"
#include "capabilities.h"
#include "http.h"
#include "journal.h"

#define JOURNAL_MAX  10000 /* entries kept */
#define JOURNAL_BODY 65536 /* bytes of a body that is kept */
#define COUNTERS_MAX 32
#define KEPT_ROUTES \
	"register settle ack lease ready quarantine workspace-cleanup reset"

struct entry {
	uint64_t number;
	const char *route; /* static text */
	const char *fault; /* static text, or NULL */
	char hash[HASH_SIZE];
	char *path;
	char *body; /* serialised, or NULL */
	char *code;
	int64_t arrived; /* server clock */
	int64_t started; /* monotonic */
	int64_t ms;
	int status;
	int done;
};

struct journal {
	struct entry ring[JOURNAL_MAX];
	uint64_t last; /* number of the newest entry */
	struct {
		const char *route;
		uint64_t n;
	} counter[COUNTERS_MAX];
};

struct journal *
journal_new(void)
{
	return xcalloc(1, sizeof(struct journal));
}

static void
entry_clear(struct entry *e)
{
	free(e->path);
	free(e->body);
	free(e->code);
	memset(e, 0, sizeof(*e));
}

void
journal_clear(struct journal *j)
{
	size_t i;

	for (i = 0; i < JOURNAL_MAX; i++)
		entry_clear(&j->ring[i]);
}

void
journal_free(struct journal *j)
{
	journal_clear(j);
	free(j);
}

static void
count(struct journal *j, const char *route)
{
	size_t i;

	for (i = 0; i < COUNTERS_MAX; i++) {
		if (j->counter[i].route == NULL)
			j->counter[i].route = route;
		if (strcmp(j->counter[i].route, route) == 0) {
			j->counter[i].n++;
			return;
		}
	}
}

void
journal_arrival(
    struct server *srv, struct req *r, const void *raw, size_t rawlen)
{
	struct journal *j = srv->journal;
	struct entry *e;
	struct buf b;

	r->number = ++j->last;
	e = &j->ring[r->number % JOURNAL_MAX];
	entry_clear(e);
	e->number = r->number;
	e->route = route_name(r);
	e->path = xstrdup(r->path);
	e->arrived = server_now(srv);
	e->started = r->started;
	sha256_hex(e->hash, raw, rawlen);
	if (r->body != NULL && name_in(KEPT_ROUTES, e->route)) {
		buf_init(&b);
		canon_json(&b, r->body);
		if (b.len <= JOURNAL_BODY)
			e->body = buf_steal(&b);
		buf_free(&b);
	}
	count(j, e->route);
}

void
journal_answer(
    struct server *srv, const struct req *r, int status, const char *code)
{
	struct entry *e;

	if (r->number == 0)
		return;
	e = &srv->journal->ring[r->number % JOURNAL_MAX];
	if (e->number != r->number || e->done)
		return;
	e->done = 1;
	e->status = status;
	e->fault = fault_name(r->fault.kind);
	e->code = code == NULL ? NULL : xstrdup(code);
	e->ms = monotonic_ms() - e->started;
}

static void
write_entry(struct buf *b, const struct entry *e)
{
	char when[ISO_TIME_SIZE];

	iso_time(when, e->arrived);
	w_open(b, NULL, '{');
	w_int(b, "number", (long long)e->number);
	w_str(b, "time", when);
	w_str(b, "route", e->route);
	w_str(b, "path", e->path);
	w_bool(b, "done", e->done);
	w_int(b, "status", e->status);
	if (e->code != NULL)
		w_str(b, "code", e->code);
	if (e->fault != NULL)
		w_str(b, "fault", e->fault);
	w_int(b, "ms", e->ms);
	w_str(b, "bodySha256", e->hash);
	if (e->body != NULL) {
		buf_adds(b, ",\"body\":");
		buf_adds(b, e->body);
	}
	w_close(b, '}');
}

void
journal_write(const struct server *srv, struct buf *b, uint64_t since)
{
	const struct journal *j = srv->journal;
	uint64_t n;

	w_open(b, NULL, '{');
	w_int(b, "last", (long long)j->last);
	w_open(b, "requests", '[');
	n = j->last > JOURNAL_MAX ? j->last - JOURNAL_MAX : 0;
	for (n = n > since ? n : since; n < j->last; n++) {
		if (j->ring[(n + 1) % JOURNAL_MAX].number == n + 1)
			write_entry(b, &j->ring[(n + 1) % JOURNAL_MAX]);
	}
	w_close(b, ']');
	w_close(b, '}');
}

void
journal_counters(const struct server *srv, struct buf *b)
{
	const struct journal *j = srv->journal;
	size_t i;

	w_open(b, "counters", '{');
	for (i = 0; i < COUNTERS_MAX && j->counter[i].route != NULL; i++)
		w_int(b, j->counter[i].route, (long long)j->counter[i].n);
	w_close(b, '}');
}
