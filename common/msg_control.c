#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "msg.h"
#include "msg_internal.h"

void
ended_build(struct buf *b, uint8_t status, const char *text)
{
	m_add_u8(b, status);
	m_add_str(b, text);
}

int
ended_parse(const struct imsg *im, struct ended *e)
{
	struct mreader r;

	m_begin(&r, im);
	e->status = m_get_u8(&r);
	e->text = m_get_str(&r);
	if (m_end(&r) == -1) {
		msg_free_str(&e->text);
		return -1;
	}
	return 0;
}

void
sign_request_build(struct buf *b, const struct sign_request *s)
{
	m_add_str(b, s->path);
	m_add_bytes(b, s->sha256, sizeof(s->sha256));
}

int
sign_request_parse(const struct imsg *im, struct sign_request *s)
{
	struct mreader r;
	const uint8_t *p;
	size_t len;

	m_begin(&r, im);
	s->path = msg_get_required(&r);
	p = m_get_bytes(&r, &len);
	if (len != sizeof(s->sha256))
		r.bad = 1;
	else
		memcpy(s->sha256, p, sizeof(s->sha256));
	if (m_end(&r) == -1) {
		sign_request_free(s);
		return -1;
	}
	return 0;
}

void
sign_request_free(struct sign_request *s)
{
	msg_free_str(&s->path);
}

void
sign_answer_build(struct buf *b, const struct sign_answer *s)
{
	m_add_str(b, s->timestamp);
	m_add_str(b, s->nonce);
	m_add_str(b, s->signature);
}

int
sign_answer_parse(const struct imsg *im, struct sign_answer *s)
{
	struct mreader r;

	m_begin(&r, im);
	s->timestamp = msg_get_required(&r);
	s->nonce = msg_get_required(&r);
	s->signature = msg_get_required(&r);
	if (m_end(&r) == -1) {
		sign_answer_free(s);
		return -1;
	}
	return 0;
}

void
sign_answer_free(struct sign_answer *s)
{
	msg_free_str(&s->timestamp);
	msg_free_str(&s->nonce);
	msg_free_str(&s->signature);
}

void
credential_build(struct buf *b, const struct credential *c)
{
	m_add_str(b, c->credential);
	m_add_str(b, c->expires_text);
	m_add_i64(b, c->expires);
}

int
credential_parse(const struct imsg *im, struct credential *c)
{
	struct mreader r;

	m_begin(&r, im);
	c->credential = msg_get_required(&r);
	c->expires_text = msg_get_required(&r);
	c->expires = m_get_i64(&r);
	if (m_end(&r) == -1) {
		credential_free(c);
		return -1;
	}
	return 0;
}

void
credential_free(struct credential *c)
{
	msg_wipe_str(&c->credential);
	msg_free_str(&c->expires_text);
}

void
assignment_ref_build(struct buf *b, uint32_t root, const char *assignment)
{
	m_add_u32(b, root);
	m_add_str(b, assignment);
}

int
assignment_ref_parse(const struct imsg *im, struct assignment_ref *a)
{
	struct mreader r;

	m_begin(&r, im);
	a->root = m_get_u32(&r);
	a->assignment = msg_get_required(&r);
	if (a->root >= ROOTS_MAX)
		r.bad = 1;
	if (m_end(&r) == -1) {
		msg_free_str(&a->assignment);
		return -1;
	}
	return 0;
}

void
verdict_build(struct buf *b, const char *error)
{
	m_add_str(b, error);
}

int
verdict_parse(const struct imsg *im, struct verdict *v)
{
	struct mreader r;

	m_begin(&r, im);
	v->error = m_get_str(&r);
	if (m_end(&r) == -1) {
		msg_free_str(&v->error);
		return -1;
	}
	return 0;
}

void
state_build(struct buf *b, enum bridge_state state, const char *text)
{
	m_add_u8(b, (uint8_t)state);
	m_add_str(b, text);
}

int
state_parse(const struct imsg *im, enum bridge_state *state, char **text)
{
	struct mreader r;

	m_begin(&r, im);
	*state = (enum bridge_state)msg_get_below(&r, BS_MAX);
	*text = m_get_str(&r);
	if (m_end(&r) == -1) {
		msg_free_str(text);
		return -1;
	}
	return 0;
}

void
outcome_build(struct buf *b, uint32_t root, const char *assignment,
    enum certainty certainty)
{
	m_add_u32(b, root);
	m_add_str(b, assignment);
	m_add_u8(b, (uint8_t)certainty);
}

int
outcome_parse(
    const struct imsg *im, struct assignment_ref *a, enum certainty *certainty)
{
	struct mreader r;

	m_begin(&r, im);
	a->root = m_get_u32(&r);
	a->assignment = msg_get_required(&r);
	*certainty = (enum certainty)msg_get_below(&r, CERTAINTY_MAX);
	if (a->root >= ROOTS_MAX)
		r.bad = 1;
	if (m_end(&r) == -1) {
		msg_free_str(&a->assignment);
		return -1;
	}
	return 0;
}
