#include "config.h"

#include <string.h>

#include "buf.h"
#include "json.h"
#include "path.h"
#include "result.h"
#include "utf8.h"

#define TEXT_MAX        1048576
#define MATCH_MAX       2000 /* UTF-16 units of a matching line */
#define SIGNAL_MAX      32
#define BOM_SIZE        3

#define LINE_MAX_NUMBER 9007199254740991LL

static int
well_formed(const struct text *t)
{
	return utf8_valid(t->data, t->len);
}

static const char *
check_read(const struct request *q, const struct result *r)
{
	const uint8_t *p = r->content.data;
	const uint8_t *end = p == NULL ? NULL : p + r->content.len;
	int64_t lines, lf = 0;

	if (r->end_line < 0 || r->end_line > LINE_MAX_NUMBER)
		return "the last line is out of range";
	lines = r->end_line - q->start_line + 1;
	if (!well_formed(&r->content) || r->content.len > TEXT_MAX)
		return "content is too long or not well-formed";
	if (r->start_line != q->start_line || lines < 0 ||
	    lines > (int64_t)q->max)
		return "the line numbers do not fit the request";
	for (; p != end && (p = memchr(p, '\n', (size_t)(end - p))) != NULL;
	     p++)
		lf++;
	if (r->content.len > 0 ? lf + 1 != lines : lines > 1)
		return "the line numbers do not fit the content";
	if (r->truncated && lines < 1)
		return "it is truncated without a line";
	return NULL;
}

static int
contains(const struct text *t, const struct text *part)
{
	return memmem(t->data, t->len, part->data, part->len) != NULL;
}

static const char *
check_search(const struct request *q, const struct result *r)
{
	const struct match *m;
	size_t i;

	if (r->nmatches > q->max)
		return "there are too many matches";
	for (i = 0; i < r->nmatches; i++) {
		m = &r->matches[i];
		if (!path_portable(m->path.data, m->path.len) ||
		    !path_within(
			m->path.data, m->path.len, q->path.data, q->path.len))
			return "a path is outside the requested one";
		if (m->line < 1 || m->column < 1)
			return "a line or column is below 1";
		if (!well_formed(&m->text) ||
		    utf8_units(m->text.data, m->text.len) > MATCH_MAX ||
		    !contains(&m->text, &q->query))
			return "a line does not contain the query or is too "
			       "long";
	}
	return NULL;
}

static int
is_normal(const struct text *t)
{
	struct buf b;
	int same;

	buf_init(&b);
	path_normalise(&b, t->data, t->len);
	same = b.len == t->len && memcmp(b.data, t->data, t->len) == 0;
	buf_free(&b);
	return same;
}

static const char *
check_list(const struct request *q, const struct result *r, int after_path)
{
	const struct text *p, *last = q->after.len > 0 ? &q->after : NULL;
	size_t i;

	if (r->npaths > q->max)
		return "there are too many paths";
	for (i = 0; i < r->npaths; i++, last = p) {
		p = &r->paths[i];
		if (!path_portable(p->data, p->len) || !is_normal(p) ||
		    !path_within(p->data, p->len, q->path.data, q->path.len))
			return "a path is outside the requested one";
		if (last != NULL &&
		    path_compare(last->data, last->len, p->data, p->len) >= 0)
			return "the paths are not in order";
	}
	if (after_path && r->truncated && r->npaths == 0)
		return "it is truncated without a path";
	return NULL;
}

static const char *
check_preview(const struct request *q, const struct result *r)
{
	int64_t bytes = (int64_t)r->content.len + (r->has_bom ? BOM_SIZE : 0);

	if (!well_formed(&r->content))
		return "content is not well-formed";
	if (r->base_sha256 == NULL || strlen(r->base_sha256) != 64 ||
	    strspn(r->base_sha256, "0123456789abcdef") != 64)
		return "the digest is not one";
	if (r->replacements != q->nedits)
		return "the number of replacements is wrong";
	if (r->bytes_written != bytes || bytes > TEXT_MAX)
		return "the number of bytes is wrong";
	return NULL;
}

static int
signal_valid(const char *s)
{
	return strlen(s) <= SIGNAL_MAX && strncmp(s, "SIG", 3) == 0 &&
	    s[3] != '\0' &&
	    s[3 + strspn(s + 3, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")] ==
	    '\0';
}

static const char *
check_execute(const struct request *q, const struct result *r)
{
	if (r->signal != NULL && !signal_valid(r->signal))
		return "the signal has no valid name";
	if (!well_formed(&r->out) || !well_formed(&r->err) ||
	    r->out.len > q->max_output ||
	    r->err.len > q->max_output - r->out.len)
		return "the output is too long or not well-formed";
	if (r->exit_code < 0
		? !r->timed_out && r->signal == NULL
		: r->timed_out || r->signal != NULL || r->exit_code > 255)
		return "exit code, signal and time-out contradict each other";
	return NULL;
}

const char *
result_check(const struct request *q, const struct result *r, int after_path)
{
	if (r->operation != q->operation)
		return "it is of another operation";
	switch ((enum operation)q->operation) {
	case OP_READ_FILE:
		return check_read(q, r);
	case OP_SEARCH_TEXT:
		return check_search(q, r);
	case OP_LIST_FILES:
		return check_list(q, r, after_path);
	case OP_WRITE_FILE:
		if (q->create_only && !r->created)
			return "a new file was asked for and not created";
		if (r->bytes_written != (int64_t)q->content.len)
			return "the number of bytes is wrong";
		return NULL;
	case OP_PREVIEW_EDIT:
		return check_preview(q, r);
	case OP_EDIT_FILE:
		if (r->replacements != q->nedits)
			return "the number of replacements is wrong";
		if (r->bytes_written < 0 || r->bytes_written > TEXT_MAX)
			return "the number of bytes is wrong";
		return NULL;
	case OP_EXECUTE_COMMAND:
		return check_execute(q, r);
	case OP_MAX:
		break;
	}
	return "it is of no operation";
}

static void
write_text(struct jwriter *w, const char *name, const struct text *t)
{
	jw_member_bytes(w, name, t->data, t->len);
}

static void
write_matches(struct jwriter *w, const struct result *r)
{
	const struct match *m;
	size_t i;

	jw_name(w, "matches");
	jw_array(w);
	for (i = 0; i < r->nmatches; i++) {
		m = &r->matches[i];
		jw_object(w);
		write_text(w, "path", &m->path);
		jw_member_int(w, "line", m->line);
		jw_member_int(w, "column", m->column);
		write_text(w, "text", &m->text);
		jw_object_end(w);
	}
	jw_array_end(w);
}

static void
write_paths(struct jwriter *w, const struct result *r, int after_path)
{
	size_t i;

	jw_name(w, "paths");
	jw_array(w);
	for (i = 0; i < r->npaths; i++)
		jw_bytes(w, r->paths[i].data, r->paths[i].len);
	jw_array_end(w);
	jw_member_bool(w, "truncated", r->truncated);
	if (r->truncated && after_path && r->npaths > 0)
		write_text(w, "nextAfterPath", &r->paths[r->npaths - 1]);
}

static void
write_execute(struct jwriter *w, const struct result *r)
{
	jw_name(w, "exitCode");
	if (r->exit_code < 0)
		jw_null(w);
	else
		jw_int(w, r->exit_code);
	if (r->signal != NULL)
		jw_member_str(w, "signal", r->signal);
	write_text(w, "stdout", &r->out);
	write_text(w, "stderr", &r->err);
	jw_member_bool(w, "truncated", r->truncated);
	jw_member_bool(w, "timedOut", r->timed_out);
}

void
result_write(struct jwriter *w, const char *workspace, const struct request *q,
    const struct result *r, int after_path)
{
	enum operation op = (enum operation)q->operation;

	jw_object(w);
	jw_member_int(w, "protocolVersion", 1);
	jw_member_str(w, "operation", operation_name(op));
	jw_member_str(w, "workspaceId", workspace);
	if (op != OP_SEARCH_TEXT && op != OP_LIST_FILES &&
	    op != OP_EXECUTE_COMMAND)
		write_text(w, "path", &q->path);
	switch (op) {
	case OP_READ_FILE:
		write_text(w, "content", &r->content);
		jw_member_int(w, "startLine", r->start_line);
		jw_member_int(w, "endLine", r->end_line);
		jw_member_bool(w, "truncated", r->truncated);
		if (r->truncated)
			jw_member_int(w, "nextStartLine", r->end_line + 1);
		break;
	case OP_SEARCH_TEXT:
		write_matches(w, r);
		jw_member_bool(w, "truncated", r->truncated);
		break;
	case OP_LIST_FILES:
		write_paths(w, r, after_path);
		break;
	case OP_WRITE_FILE:
		jw_member_bool(w, "created", r->created);
		jw_member_int(w, "bytesWritten", r->bytes_written);
		break;
	case OP_PREVIEW_EDIT:
		write_text(w, "content", &r->content);
		jw_member_bool(w, "hasUtf8Bom", r->has_bom);
		jw_member_str(w, "baseSha256", r->base_sha256);
		jw_member_int(w, "replacements", r->replacements);
		jw_member_int(w, "bytesWritten", r->bytes_written);
		break;
	case OP_EDIT_FILE:
		jw_member_int(w, "replacements", r->replacements);
		jw_member_int(w, "bytesWritten", r->bytes_written);
		break;
	case OP_EXECUTE_COMMAND:
		write_execute(w, r);
		break;
	case OP_MAX:
		break;
	}
	jw_object_end(w);
}
