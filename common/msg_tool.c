#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "msg.h"
#include "msg_internal.h"

/* A large payload is made in one piece of the right size. */
#define BUILD_ROOM 1024 /* for all members but texts */

static void
build_room(struct buf *b, size_t texts)
{
	if (b->cap == 0)
		buf_exact(b, texts + BUILD_ROOM);
}

void
request_build(struct buf *b, const struct request *q)
{
	size_t i;

	build_room(b, q->content.len + q->command.len);
	m_add_u8(b, q->operation);
	m_add_u32(b, q->root);
	m_add_str(b, q->assignment);
	msg_add_text(b, &q->path);
	m_add_i64(b, q->start_line);
	m_add_u32(b, q->max);
	msg_add_text(b, &q->query);
	msg_add_text(b, &q->after);
	msg_add_text(b, &q->content);
	m_add_u8(b, q->create_only);
	m_add_u32(b, (uint32_t)q->nedits);
	for (i = 0; i < q->nedits; i++) {
		msg_add_text(b, &q->edits[i].old);
		msg_add_text(b, &q->edits[i].new);
	}
	m_add_str(b, q->base_sha256);
	msg_add_text(b, &q->command);
	msg_add_text(b, &q->cwd);
	m_add_u32(b, q->timeout_ms);
	m_add_u32(b, q->max_output);
}

static int
request_read(const struct imsg *im, struct request *q, int view)
{
	struct mreader r;
	uint32_t i, n;

	memset(q, 0, sizeof(*q));
	m_begin(&r, im);
	r.view = view;
	q->operation = msg_get_below(&r, OP_MAX);
	q->root = m_get_u32(&r);
	q->assignment = msg_get_required(&r);
	msg_get_text(&r, &q->path);
	q->start_line = m_get_i64(&r);
	q->max = m_get_u32(&r);
	msg_get_text(&r, &q->query);
	msg_get_text(&r, &q->after);
	msg_get_text(&r, &q->content);
	q->create_only = msg_get_below(&r, 2);
	n = m_get_u32(&r);
	if (n > EDITS_MAX)
		r.bad = 1;
	else if (n > 0)
		q->edits = xcalloc(n, sizeof(*q->edits));
	for (i = 0; !r.bad && i < n; i++) {
		q->nedits++;
		msg_get_text(&r, &q->edits[i].old);
		msg_get_text(&r, &q->edits[i].new);
	}
	q->base_sha256 = m_get_str(&r);
	msg_get_text(&r, &q->command);
	msg_get_text(&r, &q->cwd);
	q->timeout_ms = m_get_u32(&r);
	q->max_output = m_get_u32(&r);
	if (q->root >= ROOTS_MAX)
		r.bad = 1;
	if (m_end(&r) == -1) {
		request_free(q);
		return -1;
	}
	return 0;
}

int
request_parse(const struct imsg *im, struct request *q)
{
	return request_read(im, q, 0);
}

int
request_view(const struct imsg *im, struct request *q)
{
	return request_read(im, q, 1);
}

void
request_free(struct request *q)
{
	size_t i;

	msg_free_str(&q->assignment);
	text_free(&q->path);
	text_free(&q->query);
	text_free(&q->after);
	text_free(&q->content);
	for (i = 0; i < q->nedits; i++) {
		text_free(&q->edits[i].old);
		text_free(&q->edits[i].new);
	}
	free(q->edits);
	msg_free_str(&q->base_sha256);
	text_free(&q->command);
	text_free(&q->cwd);
	memset(q, 0, sizeof(*q));
}

void
result_build(struct buf *b, const struct result *q)
{
	size_t i;

	build_room(b, q->content.len + q->out.len + q->err.len);
	m_add_u8(b, q->operation);
	msg_add_text(b, &q->content);
	m_add_i64(b, q->start_line);
	m_add_i64(b, q->end_line);
	m_add_u8(b, q->truncated);
	m_add_u32(b, (uint32_t)q->nmatches);
	for (i = 0; i < q->nmatches; i++) {
		msg_add_text(b, &q->matches[i].path);
		m_add_i64(b, q->matches[i].line);
		m_add_i64(b, q->matches[i].column);
		msg_add_text(b, &q->matches[i].text);
	}
	m_add_u32(b, (uint32_t)q->npaths);
	for (i = 0; i < q->npaths; i++)
		msg_add_text(b, &q->paths[i]);
	m_add_u8(b, q->created);
	m_add_i64(b, q->bytes_written);
	m_add_u32(b, q->replacements);
	m_add_u8(b, q->has_bom);
	m_add_str(b, q->base_sha256);
	m_add_i64(b, q->exit_code);
	m_add_str(b, q->signal);
	msg_add_text(b, &q->out);
	msg_add_text(b, &q->err);
	m_add_u8(b, q->timed_out);
}

static int
result_read(const struct imsg *im, struct result *q, int view)
{
	struct mreader r;
	uint32_t i, n;
	int64_t code;

	memset(q, 0, sizeof(*q));
	m_begin(&r, im);
	r.view = view;
	q->operation = msg_get_below(&r, OP_MAX);
	msg_get_text(&r, &q->content);
	q->start_line = m_get_i64(&r);
	q->end_line = m_get_i64(&r);
	q->truncated = msg_get_below(&r, 2);
	n = m_get_u32(&r);
	if (n > MATCHES_MAX)
		r.bad = 1;
	else if (n > 0)
		q->matches = xcalloc(n, sizeof(*q->matches));
	for (i = 0; !r.bad && i < n; i++) {
		q->nmatches++;
		msg_get_text(&r, &q->matches[i].path);
		q->matches[i].line = m_get_i64(&r);
		q->matches[i].column = m_get_i64(&r);
		msg_get_text(&r, &q->matches[i].text);
	}
	n = m_get_u32(&r);
	if (n > PATHS_MAX)
		r.bad = 1;
	else if (n > 0)
		q->paths = xcalloc(n, sizeof(*q->paths));
	for (i = 0; !r.bad && i < n; i++) {
		q->npaths++;
		msg_get_text(&r, &q->paths[i]);
	}
	q->created = msg_get_below(&r, 2);
	q->bytes_written = m_get_i64(&r);
	q->replacements = m_get_u32(&r);
	q->has_bom = msg_get_below(&r, 2);
	q->base_sha256 = m_get_str(&r);
	code = m_get_i64(&r);
	if (code < -1 || code > 255)
		r.bad = 1;
	else
		q->exit_code = (int32_t)code;
	q->signal = m_get_str(&r);
	msg_get_text(&r, &q->out);
	msg_get_text(&r, &q->err);
	q->timed_out = msg_get_below(&r, 2);
	if (m_end(&r) == -1) {
		result_free(q);
		return -1;
	}
	return 0;
}

int
result_parse(const struct imsg *im, struct result *q)
{
	return result_read(im, q, 0);
}

int
result_view(const struct imsg *im, struct result *q)
{
	return result_read(im, q, 1);
}

void
result_free(struct result *q)
{
	size_t i;

	text_free(&q->content);
	for (i = 0; i < q->nmatches; i++) {
		text_free(&q->matches[i].path);
		text_free(&q->matches[i].text);
	}
	free(q->matches);
	for (i = 0; i < q->npaths; i++)
		text_free(&q->paths[i]);
	free(q->paths);
	msg_free_str(&q->base_sha256);
	msg_free_str(&q->signal);
	text_free(&q->out);
	text_free(&q->err);
	memset(q, 0, sizeof(*q));
}

void
tool_error_build(
    struct buf *b, enum error_code code, enum certainty c, const char *text)
{
	m_add_u8(b, (uint8_t)code);
	m_add_u8(b, (uint8_t)c);
	m_add_str(b, text);
}

int
tool_error_parse(const struct imsg *im, struct tool_error *e)
{
	struct mreader r;

	m_begin(&r, im);
	e->code = msg_get_below(&r, EC_MAX);
	e->certainty = msg_get_below(&r, CERTAINTY_MAX);
	e->text = msg_get_required(&r);
	if (e->certainty == COMMITTED)
		r.bad = 1;
	if (m_end(&r) == -1) {
		tool_error_free(e);
		return -1;
	}
	return 0;
}

void
tool_error_free(struct tool_error *e)
{
	msg_free_str(&e->text);
}
