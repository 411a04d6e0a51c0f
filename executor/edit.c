#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "fault.h"
#include "files.h"
#include "install.h"
#include "utf8.h"

#define BAD_PATH   "invalid workspace path"
#define BOM        "\xef\xbb\xbf"
#define BOM_LEN    3

#define SHA256_HEX (2 * crypto_hash_sha256_BYTES + 1)

/* The file that is edited. */
struct source {
	int fd;
	struct stat st;
	struct buf raw; /* its bytes, a byte-order mark included */
	char sha256[SHA256_HEX]; /* of them */
};

/* Where the old text of one edit is. */
struct region {
	size_t from;
	size_t to;
	int folded; /* found with CRLF and LF taken as equal */
};

enum found { FOUND_NONE, FOUND_ONCE, FOUND_MORE };

/* ---- matching (workspace-tools 9.2 step 5, field report FT-1) ---- */

/*
 * Byte-wise, which is right for well-formed UTF-8 on both sides. A second
 * occurrence may overlap the first.
 */
static enum found
find(const uint8_t *text, size_t n, const uint8_t *old, size_t m, size_t *at)
{
	const uint8_t *p;

	if (n < m || (p = memmem(text, n, old, m)) == NULL)
		return FOUND_NONE;
	*at = (size_t)(p - text);
	n -= *at + 1;
	if (n >= m && memmem(p + 1, n, old, m) != NULL)
		return FOUND_MORE;
	return FOUND_ONCE;
}

/* Length of a line ending at p, or 0. */
static size_t
line_ending(const uint8_t *p, size_t n)
{
	if (n >= 1 && p[0] == '\n')
		return 1;
	if (n >= 2 && p[0] == '\r' && p[1] == '\n')
		return 2;
	return 0;
}

/* Appends the text with each CRLF as LF. */
static void
fold(struct buf *to, const uint8_t *p, size_t n)
{
	uint8_t *out = buf_reserve(to, n);
	size_t i;

	for (i = 0; i < n; i++)
		if (p[i] != '\r' || line_ending(p + i, n - i) == 0)
			*out++ = p[i];
	to->len = (size_t)(out - to->data);
}

/* The offset in a text of an offset in its folded form. */
static size_t
unfold(const uint8_t *p, size_t n, size_t at)
{
	size_t i = 0;

	for (; at > 0; at--)
		i += line_ending(p + i, n - i) == 2 ? 2 : 1;
	return i;
}

static enum found
find_folded(const struct buf *text, const struct text *old, struct region *r)
{
	struct buf t, o;
	enum found found;
	size_t at;

	if (memchr(old->data, '\n', old->len) == NULL)
		return FOUND_NONE;
	buf_init(&t);
	buf_init(&o);
	fold(&t, text->data, text->len);
	fold(&o, old->data, old->len);
	found = find(t.data, t.len, o.data, o.len, &at);
	if (found == FOUND_ONCE) {
		r->from = unfold(text->data, text->len, at);
		r->to = r->from +
		    unfold(text->data + r->from, text->len - r->from, o.len);
		r->folded = 1;
	}
	buf_free(&t);
	buf_free(&o);
	return found;
}

/* The exact text wins, even if it is there more than once. */
static enum found
locate(const struct buf *text, const struct text *old, struct region *r)
{
	enum found found;

	if (text->len == 0)
		return FOUND_NONE;
	found = find(text->data, text->len, old->data, old->len, &r->from);
	if (found == FOUND_NONE)
		return find_folded(text, old, r);
	r->to = r->from + old->len;
	r->folded = 0;
	return found;
}

/*
 * Appends the new text with the line endings of the matched region: the first
 * line ends as the first one there, and so on; further ones as the last.
 */
static void
add_styled(struct buf *to, const struct text *new, const uint8_t *old, size_t n)
{
	size_t i, w, style = 0;

	for (i = 0; i < new->len; i += w == 0 ? 1 : w) {
		if ((w = line_ending(new->data + i, new->len - i)) == 0) {
			buf_addc(to, new->data[i]);
			continue;
		}
		while (n > 0 && line_ending(old, n) == 0)
			old++, n--;
		if (n > 0) {
			style = line_ending(old, n);
			old += style;
			n -= style;
		}
		buf_add(to, style == 2 ? "\r\n" : "\n", style == 2 ? 2 : 1);
	}
}

static void
replace(struct buf *text, const struct text *new, const struct region *r)
{
	struct buf out;

	buf_init(&out);
	(void)buf_reserve(&out, text->len - (r->to - r->from) + new->len);
	buf_add(&out, text->data, r->from);
	if (r->folded)
		add_styled(&out, new, text->data + r->from, r->to - r->from);
	else
		buf_add(&out, new->data, new->len);
	buf_add(&out, text->data + r->to, text->len - r->to);
	buf_free(text);
	*text = out;
}

static int
edit_failure(struct failure *f, size_t i, size_t n, const char *what)
{
	if (n == 1)
		(void)xsnprintf(f->room, sizeof(f->room), "old text %s", what);
	else
		(void)xsnprintf(f->room, sizeof(f->room),
		    "edit %zu of %zu: old text %s", i + 1, n, what);
	return failure(f, EC_EDIT_CONFLICT, NOT_COMMITTED, f->room);
}

static int
apply(struct buf *text, const struct request *q, struct failure *f)
{
	const struct edit *e;
	struct region r;
	size_t i;

	for (i = 0; i < q->nedits; i++) {
		e = &q->edits[i];
		switch (locate(text, &e->old, &r)) {
		case FOUND_NONE:
			return edit_failure(f, i, q->nedits, "was not found");
		case FOUND_MORE:
			return edit_failure(
			    f, i, q->nedits, "occurs more than once");
		case FOUND_ONCE:
			replace(text, &e->new, &r);
		}
	}
	return 0;
}

/* ---- one edit of a file ---- */

static void
source_init(struct source *s)
{
	memset(s, 0, sizeof(*s));
	s->fd = -1;
}

static void
source_free(struct source *s)
{
	if (s->fd != -1)
		close(s->fd);
	buf_free(&s->raw);
}

/* 0; 1 if the file is too large; -1 with errno. */
static int
source_read(struct tool *t, const struct request *q, struct source *s)
{
	struct place pl;
	int save;

	place_split(&pl, &q->path);
	s->fd = open_regular(t->root, &pl, &s->st);
	save = errno;
	place_free(&pl);
	errno = save;
	if (s->fd == -1)
		return -1;
	if (s->st.st_size > FILE_MAX)
		return 1;
	if (fault("edit.read") == -1 || read_whole(s->fd, &s->raw) == -1)
		return -1;
	return s->raw.len > FILE_MAX;
}

static void
source_hash(struct source *s)
{
	unsigned char hash[crypto_hash_sha256_BYTES];

	(void)crypto_hash_sha256(hash, s->raw.data, s->raw.len);
	(void)sodium_bin2hex(s->sha256, sizeof(s->sha256), hash, sizeof(hash));
}

static int
check_edits(const struct request *q, struct failure *f)
{
	size_t i;

	for (i = 0; i < q->nedits; i++)
		if (q->edits[i].old.len == 0)
			break;
	if (q->nedits == 0 || i < q->nedits)
		return failure(f, EC_INVALID_REQUEST, NOT_COMMITTED,
		    "invalid workspace tool request: edits");
	return 0;
}

static int
has_bom(const struct buf *b)
{
	return b->len >= BOM_LEN && memcmp(b->data, BOM, BOM_LEN) == 0;
}

/* Steps 4 to 6 of workspace-tools 9.2: the new bytes of the whole file. */
static int
make_outcome(const struct source *s, const struct request *q,
    struct buf *outcome, struct failure *f)
{
	struct buf text;
	size_t skip = has_bom(&s->raw) ? BOM_LEN : 0;
	int r = -1;

	buf_init(&text);
	buf_add(&text, s->raw.data + skip, s->raw.len - skip);
	if (!utf8_valid(text.data, text.len))
		(void)failure(f, EC_INVALID_REQUEST, NOT_COMMITTED,
		    "file is not UTF-8 text and cannot be edited");
	else if (apply(&text, q, f) == 0) {
		if (text.len + skip > FILE_MAX)
			(void)failure(f, EC_WRITE_LIMIT_EXCEEDED, NOT_COMMITTED,
			    "edited file exceeds write limit");
		else
			r = 0;
	}
	if (r == 0 && skip > 0) {
		buf_add(outcome, BOM, BOM_LEN);
		buf_add(outcome, text.data, text.len);
	} else if (r == 0) {
		*outcome = text;
		buf_init(&text);
	}
	buf_free(&text);
	return r;
}

static int
edit_unreadable(struct failure *f, int e)
{
	if (path_errno(e) || e == EISDIR || e == EINVAL)
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED, BAD_PATH);
	return unavailable(f, e);
}

static int
edit(struct tool *t, const struct request *q, struct source *s,
    struct buf *outcome, struct failure *f)
{
	struct install in;
	int r;

	if ((r = source_read(t, q, s)) == -1)
		return edit_unreadable(f, errno);
	if (r == 1)
		return failure(f, EC_WRITE_LIMIT_EXCEEDED, NOT_COMMITTED,
		    "file exceeds write limit");
	if (q->base_sha256 != NULL) {
		source_hash(s);
		if (strcmp(q->base_sha256, s->sha256) != 0)
			return failure(f, EC_EDIT_CONFLICT, NOT_COMMITTED,
			    "file has changed since it was read");
	}
	if (make_outcome(s, q, outcome, f) == -1)
		return -1;
	memset(&in, 0, sizeof(in));
	in.path = &q->path;
	in.data = outcome->data;
	in.len = outcome->len;
	in.base_st = &s->st;
	in.base = &s->raw;
	return install(t, &in, f);
}

int
tool_edit_file(struct tool *t, const struct request *q, struct result *res,
    struct failure *f)
{
	struct source s;
	struct buf outcome;
	int r;

	if (tool_cancelled(t))
		return tool_aborted(f);
	if (check_edits(q, f) == -1)
		return -1;
	source_init(&s);
	buf_init(&outcome);
	r = edit(t, q, &s, &outcome, f);
	res->replacements = (uint32_t)q->nedits;
	res->bytes_written = (int64_t)outcome.len;
	source_free(&s);
	buf_free(&outcome);
	return r;
}

static int
preview(struct tool *t, const struct request *q, struct source *s,
    struct buf *outcome, struct failure *f)
{
	int r;

	if ((r = source_read(t, q, s)) == -1)
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED, BAD_PATH);
	if (r == 1)
		return failure(f, EC_READ_LIMIT_EXCEEDED, NOT_COMMITTED,
		    "file exceeds read limit");
	(void)fault("preview.read");
	if (tool_cancelled(t))
		return tool_aborted(f);
	if (make_outcome(s, q, outcome, f) == -1)
		return -1;
	if (tool_cancelled(t))
		return tool_aborted(f);
	source_hash(s);
	return 0;
}

int
tool_preview_edit(struct tool *t, const struct request *q, struct result *res,
    struct failure *f)
{
	struct source s;
	struct buf *outcome = &t->text;
	size_t skip;
	int r;

	if (tool_cancelled(t))
		return tool_aborted(f);
	if (check_edits(q, f) == -1)
		return -1;
	source_init(&s);
	if ((r = preview(t, q, &s, outcome, f)) == 0) {
		skip = has_bom(outcome) ? BOM_LEN : 0;
		res->has_bom = skip > 0;
		text_view(
		    &res->content, outcome->data + skip, outcome->len - skip);
		res->base_sha256 = xstrdup(s.sha256);
		res->replacements = (uint32_t)q->nedits;
		res->bytes_written = (int64_t)outcome->len;
	}
	source_free(&s);
	return r;
}
