#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "path.h"
#include "rg.h"
#include "target.h"
#include "times.h"

#define LIST_TIME_MS 10000

/*
 * With a path, everything below it is listed, hidden and ignored or not, but
 * rg must be able to walk there from the root (workspace-tools 7.4). One glob
 * says the former: an override wins over the ignore rules. To walk there and
 * nowhere else, further globs exclude at each level what is named
 * differently, as far as that can be said with a few of the name's first
 * characters; a neighbour that is not excluded costs time and no more, for
 * no file outside the path matches the first glob.
 */
#define DIFFERENT_MAX 24 /* characters of a name to tell others by */

struct globs {
	struct buf buf; /* the one being made */
	const char **args;
	size_t n;
};

static void
glob_end(struct globs *g)
{
	g->args = xreallocarray(g->args, g->n + 3, sizeof(*g->args));
	g->args[g->n++] = "--glob";
	g->args[g->n++] = buf_steal(&g->buf);
	g->args[g->n] = NULL;
}

static void
globs_free(struct globs *g)
{
	size_t i;

	/* Each second one is ours. */
	for (i = 1; i < g->n; i += 2)
		free((void *)(uintptr_t)g->args[i]);
	free(g->args);
}

static int
plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	    (c >= '0' && c <= '9') || c == '.' || c == '_';
}

/* Bytes that stand for themselves: others are ASCII and escaped. */
static void
add_literal(struct buf *b, const char *p, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (!plain(p[i]) && p[i] != '/' && (p[i] & 0x80) == 0)
			buf_addc(b, '\\');
		buf_addc(b, (uint8_t)p[i]);
	}
}

/* Everything in the directory dir that is not named so. */
static void
exclude_others(struct globs *g, const char *dir, size_t dir_len,
    const char *name, size_t len)
{
	size_t i;

	buf_adds(&g->buf, "!/");
	add_literal(&g->buf, dir, dir_len);
	buf_addc(&g->buf, '{');
	for (i = 0; i < len && i < DIFFERENT_MAX; i++) {
		/* A class knows no escapes; a longer character no bytes. */
		if (!plain(name[i]))
			continue;
		add_literal(&g->buf, name, i);
		buf_addf(&g->buf, "[!%c]*,", name[i]);
	}
	add_literal(&g->buf, name, len);
	buf_adds(&g->buf, "?*}");
	glob_end(g);
}

static void
make_globs(struct globs *g, const struct target *tg)
{
	const char *path = tg->canonical, *name, *slash;
	size_t n = strlen(path), dir;

	buf_adds(&g->buf, "/");
	if (S_ISDIR(tg->st.st_mode)) {
		add_literal(&g->buf, path, n);
		buf_adds(&g->buf, "/**");
	} else {
		/* The brace keeps white space at the end. */
		slash = strrchr(path, '/');
		dir = slash == NULL ? 0 : (size_t)(slash - path) + 1;
		add_literal(&g->buf, path, dir);
		buf_addc(&g->buf, '{');
		add_literal(&g->buf, path + dir, n - dir);
		buf_addc(&g->buf, '}');
	}
	glob_end(g);
	for (name = path; name != NULL;
	     name = slash == NULL ? NULL : slash + 1) {
		slash = strchr(name, '/');
		n = slash == NULL ? strlen(name) : (size_t)(slash - name);
		exclude_others(g, path, (size_t)(name - path), name, n);
	}
}

/* ---- the listing ---- */

struct listing {
	struct tool *tool;
	const struct request *request;
	const struct target *target;
	struct parent reported; /* by the names that are reported */
	struct parent found; /* by those that rg found */
	struct buf name;
	struct result *res;
};

/* 1 for a regular file; the last component may not be a link. */
static int
regular(struct parent *p, const char *name, struct stat *st)
{
	const char *leaf;
	int dir;

	return (dir = parent_open(p, name, &leaf)) != -1 &&
	    fstatat(dir, leaf, st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISREG(st->st_mode);
}

/* Step 7: both names are those of one regular file. */
static int
acceptable(struct listing *ls, const char *found, size_t len)
{
	struct stat a, b;
	char *name;
	int ok;

	if (!regular(&ls->reported, (const char *)ls->name.data, &a))
		return 0;
	if (len == ls->name.len && memcmp(found, ls->name.data, len) == 0)
		return 1;
	name = xstrndup(found, len);
	ok = regular(&ls->found, name, &b) && a.st_dev == b.st_dev &&
	    a.st_ino == b.st_ino;
	free(name);
	return ok;
}

/* The cursor, and what keeps the order strict whatever rg says. */
static int
comes_later(const struct listing *ls)
{
	const struct text *last = &ls->request->after;

	if (ls->res->npaths > 0)
		last = &ls->res->paths[ls->res->npaths - 1];
	return last->len == 0 ||
	    path_compare(ls->name.data, ls->name.len, last->data, last->len) >
	    0;
}

/*
 * Names come in order, so each is decided at once and rg is stopped as soon
 * as one more than wanted was found: no window of candidates that could turn
 * out empty (7.2).
 */
static enum rg_next
collect(struct listing *ls, struct rg_run *run)
{
	struct result *res = ls->res;
	const char *found;
	enum rg_next r;
	size_t len;

	while ((r = rg_next(run, &found, &len)) == RG_NAME) {
		if (!target_name(ls->target, found, len, &ls->name) ||
		    !comes_later(ls))
			continue;
		if (tool_cancelled(ls->tool))
			return RG_ABORTED;
		if (time_mono_ms() >= run->deadline)
			return RG_TIMEOUT;
		if (!acceptable(ls, found, len))
			continue;
		if (res->npaths == ls->request->max) {
			res->truncated = 1;
			return RG_END;
		}
		text_set(
		    &res->paths[res->npaths++], ls->name.data, ls->name.len);
	}
	return r;
}

static int
list(struct tool *t, const struct request *q, const struct target *tg,
    struct result *res, struct failure *f)
{
	static const char *const whole[] = { "--", ".", NULL };
	struct globs g;
	struct listing ls;
	struct rg_run run;
	enum rg_next r;
	int64_t deadline = time_mono_ms() + LIST_TIME_MS;

	memset(&g, 0, sizeof(g));
	if (tg->canonical != NULL) {
		make_globs(&g, tg);
		g.args = xreallocarray(g.args, g.n + 3, sizeof(*g.args));
		memcpy(g.args + g.n, whole, sizeof(whole));
	}
	memset(&ls, 0, sizeof(ls));
	ls.tool = t;
	ls.request = q;
	ls.target = tg;
	ls.res = res;
	parent_init(&ls.reported, t->root);
	parent_init(&ls.found, t->root);
	res->paths = xcalloc(q->max, sizeof(*res->paths));
	r = RG_FAILED;
	if (rg_start(&run, t, g.args != NULL ? g.args : whole, deadline) == 0)
		r = collect(&ls, &run);
	if (r == RG_END && run.incomplete && target_unreadable(tg, t))
		r = RG_FAILED;
	rg_stop(&run);
	globs_free(&g);
	parent_free(&ls.reported);
	parent_free(&ls.found);
	buf_free(&ls.name);
	switch (r) {
	case RG_TIMEOUT:
		return failure(f, EC_LIST_TIMEOUT, NOT_COMMITTED,
		    "file listing timed out");
	case RG_ABORTED:
		return tool_aborted(f);
	case RG_FAILED:
		return failure(f, EC_LIST_UNAVAILABLE, NOT_COMMITTED,
		    "file listing is unavailable");
	default:
		return 0;
	}
}

int
tool_list_files(struct tool *t, const struct request *q, struct result *res,
    struct failure *f)
{
	struct target tg;
	int r;

	if (tool_cancelled(t))
		return tool_aborted(f);
	if (q->max == 0 || q->max > PATHS_MAX)
		return failure(f, EC_INVALID_REQUEST, NOT_COMMITTED,
		    "invalid workspace tool request: maxResults");
	if (target_locate(&tg, t, &q->path) == -1)
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED,
		    "invalid workspace path");
	r = list(t, q, &tg, res, f);
	target_free(&tg);
	return r;
}
