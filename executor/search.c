#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "files.h"
#include "preview.h"
#include "rg.h"
#include "scan.h"
#include "target.h"
#include "times.h"
#include "utf8.h"

/* Bounds of a search (workspace-tools 6.3). */
#define SEARCH_TIME_MS 10000
#define CANDIDATES_MAX 20000
#define OUTPUT_MAX     (1024 * 1024) /* bytes of candidate names, by rg */

struct search {
	struct tool *tool;
	const struct request *request;
	const struct target *target;
	struct result *res;
	int64_t deadline;
	int64_t asked; /* when, whether it was cancelled */
	enum rg_next end; /* RG_NAME: not yet */
	struct scan *scan;
	size_t count; /* of candidates */
	size_t bytes; /* of their names */
	struct parent parent; /* of files with matches */
	struct buf name; /* to report */
	struct buf raw;
	struct buf text;
};

/* 1 if enough is known: the list is full and there is more. */
static int
add_match(struct search *s, int64_t line, const uint8_t *p, size_t n, size_t at)
{
	struct result *res = s->res;
	struct match *m;

	if (res->nmatches == s->request->max) {
		res->truncated = 1;
		return 1;
	}
	m = &res->matches[res->nmatches++];
	text_set(&m->path, s->name.data, s->name.len);
	m->line = line;
	preview(m, p, n, at, s->request->query.data, s->request->query.len);
	return 0;
}

/* Steps 5 to 7 of 6.4: one match a line, at the first occurrence. */
static void
match_lines(struct search *s)
{
	const struct text *query = &s->request->query;
	const uint8_t *p = s->text.data, *end = p + s->text.len;
	const uint8_t *hit, *lf, *stop;
	int64_t line = 1;

	/* p is the start of a line, and line its number. */
	while (p < end &&
	    (hit = memmem(p, (size_t)(end - p), query->data, query->len)) !=
		NULL) {
		while ((lf = memchr(p, '\n', (size_t)(hit - p))) != NULL) {
			p = lf + 1;
			line++;
		}
		lf = memchr(hit, '\n', (size_t)(end - hit));
		stop = lf != NULL ? lf : end;
		if (stop[-1] == '\r')
			stop--;
		if (add_match(
			s, line, p, (size_t)(stop - p), (size_t)(hit - p)))
			return;
		if (lf == NULL)
			return;
		p = lf + 1;
		line++;
	}
}

/*
 * What cancels or ends the whole search, before and after each file. Most
 * files take microseconds: the channel is asked once a millisecond.
 */
static int
may_not_go_on(void *arg)
{
	struct search *s = arg;
	int64_t now = time_mono_ms();

	if (s->end == RG_NAME && now != s->asked) {
		s->asked = now;
		if (tool_cancelled(s->tool))
			s->end = RG_ABORTED;
		else if (now >= s->deadline)
			s->end = RG_TIMEOUT;
	}
	return s->end != RG_NAME;
}

/* Step 4: a file whose bytes make a match possible. */
static void
match_file(struct search *s, const char *found)
{
	if (!target_name(s->target, found, strlen(found), &s->name) ||
	    scan_read(&s->parent, found, &s->raw) != SCAN_HIT)
		return;
	buf_reset(&s->text);
	decode_file(&s->text, s->raw.data, s->raw.len);
	match_lines(s);
}

static void
candidate(struct search *s, const char *name, enum scan_outcome outcome)
{
	const size_t extra = s->target->canonical == NULL ? 3 : 1;

	if (outcome == SCAN_LARGE)
		return;
	/* As rg says it: with "./" at the root, and a NUL. */
	s->bytes += strlen(name) + extra;
	if (++s->count > CANDIDATES_MAX || s->bytes > OUTPUT_MAX)
		s->res->truncated = 1;
	else if (outcome == SCAN_HIT)
		match_file(s, name);
	if (s->res->truncated && s->end == RG_NAME)
		s->end = RG_END;
}

/*
 * Those that were looked at, in their order. They are looked at in any order
 * and while rg still walks, which changes no result: the first ones up to a
 * bound are the same in any case.
 */
static void
take_candidates(struct search *s)
{
	enum scan_outcome outcome;
	const char *name;

	while (
	    !may_not_go_on(s) && (name = scan_next(s->scan, &outcome)) != NULL)
		candidate(s, name, outcome);
}

static void
add_candidate(struct search *s, const char *found, size_t len)
{
	if (target_name(s->target, found, len, &s->name))
		scan_add(s->scan, found, len);
}

/*
 * Names that rg has found, as far as there is room; waits for one if there is
 * nothing else to do. RG_NAME: there will be more.
 */
static enum rg_next
add_candidates(struct search *s, struct rg_run *run, int wait)
{
	const char *found;
	enum rg_next r;
	size_t len;

	while (scan_room(s->scan)) {
		r = wait ? rg_next(run, &found, &len)
			 : rg_try(run, &found, &len);
		if (r == RG_LATER)
			break;
		if (r != RG_NAME)
			return r;
		add_candidate(s, found, len);
		wait = 0;
	}
	return RG_NAME;
}

/* run is NULL if all candidates were added. */
static void
search_candidates(struct search *s, struct rg_run *run)
{
	enum rg_next r = run == NULL ? RG_END : RG_NAME;
	int idle = 1;

	for (;;) {
		if (r == RG_NAME)
			r = add_candidates(s, run, idle);
		if (r != RG_NAME && r != RG_END) {
			s->end = r;
			return;
		}
		take_candidates(s);
		if (s->end != RG_NAME)
			return;
		if (r == RG_END && !scan_pending(s->scan))
			break;
		idle = !scan_help(s->scan, may_not_go_on, s);
		if (idle && (r == RG_END || !scan_room(s->scan)))
			scan_wait(s->scan);
	}
	s->end = RG_END;
}

static void
search_directory(struct search *s)
{
	const char *args[] = { "--", NULL, NULL };
	struct rg_run run;
	char *path;

	/* "-" alone would mean standard input. */
	path = s->target->canonical == NULL
	    ? xstrdup(".")
	    : xasprintf("./%s", s->target->canonical);
	args[1] = path;
	if (rg_start(&run, s->tool, args, s->deadline) == 0) {
		scan_start(s->scan);
		search_candidates(s, &run);
	} else
		s->end = RG_FAILED;
	if (s->end == RG_END && run.incomplete &&
	    target_unreadable(s->target, s->tool))
		s->end = RG_FAILED;
	rg_stop(&run);
	free(path);
}

static void
search_target(struct search *s)
{
	const struct target *tg = s->target;

	if (s->tool->rg->program == NULL)
		s->end = RG_FAILED;
	else if (S_ISDIR(tg->st.st_mode))
		search_directory(s);
	else if (S_ISREG(tg->st.st_mode)) {
		/* Its own and only candidate, ignored or not. */
		add_candidate(s, tg->canonical, strlen(tg->canonical));
		search_candidates(s, NULL);
	}
}

static int
search(struct tool *t, const struct request *q, const struct target *tg,
    struct result *res, struct failure *f)
{
	struct search s;

	memset(&s, 0, sizeof(s));
	s.tool = t;
	s.request = q;
	s.target = tg;
	s.res = res;
	s.end = RG_NAME;
	s.deadline = time_mono_ms() + SEARCH_TIME_MS;
	s.scan = scan_new(t->root, &q->query);
	parent_init(&s.parent, t->root);
	res->matches = xcalloc(q->max, sizeof(*res->matches));
	search_target(&s);
	scan_free(s.scan);
	parent_free(&s.parent);
	buf_free(&s.name);
	buf_free(&s.raw);
	buf_free(&s.text);
	switch (s.end) {
	case RG_TIMEOUT:
		return failure(f, EC_SEARCH_TIMEOUT, NOT_COMMITTED,
		    "text search timed out");
	case RG_ABORTED:
		return tool_aborted(f);
	case RG_FAILED:
		return failure(f, EC_SEARCH_UNAVAILABLE, NOT_COMMITTED,
		    "text search is unavailable");
	default:
		return 0;
	}
}

/* What the matching relies on (6.1). */
static int
query_valid(const struct text *query)
{
	return query->len > 0 && utf8_valid(query->data, query->len) &&
	    memchr(query->data, '\n', query->len) == NULL &&
	    memchr(query->data, '\r', query->len) == NULL;
}

int
tool_search_text(struct tool *t, const struct request *q, struct result *res,
    struct failure *f)
{
	struct target tg;
	int r;

	if (tool_cancelled(t))
		return tool_aborted(f);
	if (q->max == 0 || q->max > MATCHES_MAX || !query_valid(&q->query))
		return failure(f, EC_INVALID_REQUEST, NOT_COMMITTED,
		    "invalid workspace tool request: query or maxResults");
	if (target_locate(&tg, t, &q->path) == -1)
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED,
		    "invalid workspace path");
	r = search(t, q, &tg, res, f);
	target_free(&tg);
	return r;
}
