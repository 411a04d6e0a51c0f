#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode.h"
#include "files.h"
#include "preview.h"
#include "rg.h"
#include "target.h"
#include "times.h"
#include "utf8.h"

/* Bounds of a search (workspace-tools 6.3). */
#define SEARCH_TIME_MS 10000
#define CANDIDATES_MAX 20000
#define OUTPUT_MAX     (1024 * 1024) /* bytes of candidate names, by rg */

#define REPLACEMENT    "\xef\xbf\xbd" /* U+FFFD */

struct search {
	struct tool *tool;
	const struct request *request;
	const struct target *target;
	struct parent parent; /* of the candidates */
	int decoded_only; /* the raw bytes say nothing */
	struct buf name; /* to report */
	struct buf raw;
	struct buf text;
	struct result *res;
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

static int
utf16(const struct buf *b)
{
	return b->len >= 2 &&
	    ((b->data[0] == 0xff && b->data[1] == 0xfe) ||
		(b->data[0] == 0xfe && b->data[1] == 0xff));
}

/*
 * Well-formed characters survive decoding as they are, so a query made of
 * them occurs in the text of a file only if it occurs in its bytes.
 */
static int
worth_decoding(const struct search *s)
{
	const struct text *query = &s->request->query;

	return s->decoded_only || utf16(&s->raw) ||
	    memmem(s->raw.data, s->raw.len, query->data, query->len) != NULL;
}

/* Reads a candidate whole; -1 if it is to be skipped. */
static int
read_candidate(struct search *s, const char *found, size_t len)
{
	struct stat st;
	const char *leaf;
	char *name;
	int dir, fd = -1, r = -1;

	name = xstrndup(found, len);
	if ((dir = parent_open(&s->parent, name, &leaf)) != -1)
		fd = open_regular_at(dir, leaf, &st);
	free(name);
	if (fd == -1)
		return -1;
	buf_reset(&s->raw);
	if (st.st_size > 0 && st.st_size <= FILE_MAX)
		r = read_whole(fd, &s->raw);
	close(fd);
	return r == -1 || s->raw.len > FILE_MAX ? -1 : 0;
}

/* What cancels or ends the whole search; looked at before and after a file. */
static enum rg_next
may_go_on(struct search *s, int64_t deadline)
{
	if (tool_cancelled(s->tool))
		return RG_ABORTED;
	if (time_mono_ms() >= deadline)
		return RG_TIMEOUT;
	return RG_NAME;
}

static enum rg_next
search_candidate(
    struct search *s, const char *found, size_t len, int64_t deadline)
{
	enum rg_next r;
	int got;

	if (!target_name(s->target, found, len, &s->name))
		return RG_NAME;
	if ((r = may_go_on(s, deadline)) != RG_NAME)
		return r;
	got = read_candidate(s, found, len);
	if ((r = may_go_on(s, deadline)) != RG_NAME)
		return r;
	if (got == -1 || !worth_decoding(s))
		return RG_NAME;
	buf_reset(&s->text);
	decode_file(&s->text, s->raw.data, s->raw.len);
	match_lines(s);
	return s->res->truncated ? RG_END : RG_NAME;
}

/*
 * Candidates are searched in path order while rg still walks, which changes
 * no result: the first ones up to a bound are the same in any case.
 */
static enum rg_next
search_walk(struct search *s, struct rg_run *run)
{
	const size_t extra = s->target->canonical == NULL ? 3 : 1;
	const char *found;
	enum rg_next r;
	size_t len, count = 0, bytes = 0;

	while ((r = rg_next(run, &found, &len)) == RG_NAME) {
		/* rg's output: "./" before it at the root, and a NUL. */
		bytes += len + extra;
		if (++count > CANDIDATES_MAX || bytes > OUTPUT_MAX) {
			s->res->truncated = 1;
			return RG_END;
		}
		r = search_candidate(s, found, len, run->deadline);
		if (r != RG_NAME)
			return r;
	}
	return r;
}

static enum rg_next
search_directory(struct search *s, int64_t deadline)
{
	const char *args[] = { "--max-filesize", "1M", "--", NULL, NULL };
	struct rg_run run;
	enum rg_next r = RG_FAILED;
	char *path;

	/* "-" alone would mean standard input. */
	path = s->target->canonical == NULL
	    ? xstrdup(".")
	    : xasprintf("./%s", s->target->canonical);
	args[3] = path;
	if (rg_start(&run, s->tool, args, deadline) == 0)
		r = search_walk(s, &run);
	if (r == RG_END && run.incomplete &&
	    target_unreadable(s->target, s->tool))
		r = RG_FAILED;
	rg_stop(&run);
	free(path);
	return r;
}

static enum rg_next
search_target(struct search *s)
{
	const struct target *tg = s->target;
	int64_t deadline = time_mono_ms() + SEARCH_TIME_MS;
	enum rg_next r;

	if (s->tool->rg->program == NULL)
		return RG_FAILED;
	if (S_ISDIR(tg->st.st_mode))
		return search_directory(s, deadline);
	/* A file is its own and only candidate, ignored or not. */
	if (!S_ISREG(tg->st.st_mode))
		return RG_END;
	r = search_candidate(s, tg->canonical, strlen(tg->canonical), deadline);
	return r == RG_NAME ? RG_END : r;
}

static int
search(struct tool *t, const struct request *q, const struct target *tg,
    struct result *res, struct failure *f)
{
	struct search s;
	enum rg_next r;

	memset(&s, 0, sizeof(s));
	s.tool = t;
	s.request = q;
	s.target = tg;
	s.res = res;
	s.decoded_only = memmem(q->query.data, q->query.len, REPLACEMENT, 3) !=
	    NULL;
	parent_init(&s.parent, t->root);
	res->matches = xcalloc(q->max, sizeof(*res->matches));
	r = search_target(&s);
	parent_free(&s.parent);
	buf_free(&s.name);
	buf_free(&s.raw);
	buf_free(&s.text);
	switch (r) {
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
