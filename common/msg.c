#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "msg.h"

static const char *const names[MSG_MAX] = {
	[MSG_CONFIG] = "CONFIG",
	[MSG_ROOT] = "ROOT",
	[MSG_READY] = "READY",
	[MSG_FAILED] = "FAILED",
	[MSG_START] = "START",
	[MSG_STOP] = "STOP",
	[MSG_ENDED] = "ENDED",
	[MSG_SIGN] = "SIGN",
	[MSG_SIGNED] = "SIGNED",
	[MSG_STORE_CREDENTIAL] = "STORE_CREDENTIAL",
	[MSG_CREDENTIAL_STORED] = "CREDENTIAL_STORED",
	[MSG_ARM] = "ARM",
	[MSG_ARMED] = "ARMED",
	[MSG_CLEAR] = "CLEAR",
	[MSG_CLEARED] = "CLEARED",
	[MSG_STATE] = "STATE",
	[MSG_PAIRED] = "PAIRED",
	[MSG_ALLOW] = "ALLOW",
	[MSG_ALLOWED] = "ALLOWED",
	[MSG_OUTCOME] = "OUTCOME",
	[MSG_REQUEST] = "REQUEST",
	[MSG_CANCEL] = "CANCEL",
	[MSG_RESULT] = "RESULT",
	[MSG_ERROR] = "ERROR",
};

static const char *const operations[OP_MAX] = {
	[OP_READ_FILE] = "read_file",
	[OP_SEARCH_TEXT] = "search_text",
	[OP_LIST_FILES] = "list_files",
	[OP_WRITE_FILE] = "write_file",
	[OP_PREVIEW_EDIT] = "preview_edit",
	[OP_EDIT_FILE] = "edit_file",
	[OP_EXECUTE_COMMAND] = "execute_command",
};

static const char *const codes[EC_MAX] = {
	[EC_INVALID_PATH] = "INVALID_PATH",
	[EC_INVALID_REQUEST] = "INVALID_REQUEST",
	[EC_READ_LIMIT_EXCEEDED] = "READ_LIMIT_EXCEEDED",
	[EC_WRITE_LIMIT_EXCEEDED] = "WRITE_LIMIT_EXCEEDED",
	[EC_WRITE_DISABLED] = "WRITE_DISABLED",
	[EC_WRITE_UNAVAILABLE] = "WRITE_UNAVAILABLE",
	[EC_EDIT_CONFLICT] = "EDIT_CONFLICT",
	[EC_REGISTRATION_INVALID] = "REGISTRATION_INVALID",
	[EC_EXECUTION_ABORTED] = "EXECUTION_ABORTED",
	[EC_LIST_TIMEOUT] = "LIST_TIMEOUT",
	[EC_LIST_UNAVAILABLE] = "LIST_UNAVAILABLE",
	[EC_SEARCH_TIMEOUT] = "SEARCH_TIMEOUT",
	[EC_SEARCH_UNAVAILABLE] = "SEARCH_UNAVAILABLE",
	[EC_COMMAND_TIMEOUT] = "COMMAND_TIMEOUT",
	[EC_COMMAND_UNAVAILABLE] = "COMMAND_UNAVAILABLE",
	[EC_COMMAND_DISABLED] = "COMMAND_DISABLED",
};

const char *
msg_name(uint32_t type)
{
	if (type >= MSG_MAX || names[type] == NULL)
		return "?";
	return names[type];
}

const char *
operation_name(enum operation op)
{
	return op < OP_MAX ? operations[op] : "?";
}

enum operation
operation_by_name(const void *name, size_t len)
{
	unsigned int op;

	for (op = 0; op < OP_MAX; op++)
		if (strlen(operations[op]) == len &&
		    memcmp(operations[op], name, len) == 0)
			break;
	return (enum operation)op;
}

const char *
error_code_name(enum error_code code)
{
	return code < EC_MAX ? codes[code] : NULL;
}

/* Frees a string that may be secret. */
static void
wipe_str(char **s)
{
	if (*s != NULL)
		explicit_bzero(*s, strlen(*s));
	free(*s);
	*s = NULL;
}

static void
free_str(char **s)
{
	free(*s);
	*s = NULL;
}

static void
add_list(struct buf *b, char *const *list, size_t n)
{
	size_t i;

	m_add_u32(b, (uint32_t)n);
	for (i = 0; i < n; i++)
		m_add_str(b, list[i]);
}

static void
get_list(struct mreader *r, char ***list, size_t *n, size_t max)
{
	uint32_t i, count;

	*list = NULL;
	*n = 0;
	count = m_get_u32(r);
	if (count > max) {
		r->bad = 1;
		return;
	}
	*list = xcalloc(count, sizeof(**list));
	for (i = 0; i < count; i++) {
		(*list)[i] = m_get_str(r);
		(*n)++;
		if ((*list)[i] == NULL) {
			r->bad = 1;
			return;
		}
	}
}

static void
free_list(char ***list, size_t *n)
{
	size_t i;

	for (i = 0; i < *n; i++)
		free((*list)[i]);
	free(*list);
	*list = NULL;
	*n = 0;
}

static void
add_text(struct buf *b, const struct text *t)
{
	m_add_bytes(b, t->data, t->len);
}

static void
get_text(struct mreader *r, struct text *t)
{
	const uint8_t *p;
	size_t len;

	p = m_get_bytes(r, &len);
	text_set(t, p, len);
}

void
text_set(struct text *t, const void *p, size_t len)
{
	t->data = xmalloc(len + 1);
	if (len > 0)
		memcpy(t->data, p, len);
	t->data[len] = '\0';
	t->len = len;
}

void
text_free(struct text *t)
{
	free(t->data);
	t->data = NULL;
	t->len = 0;
}

/* A boolean or small enumeration; a value out of range is an error. */
static uint8_t
get_below(struct mreader *r, uint8_t limit)
{
	uint8_t v = m_get_u8(r);

	if (v >= limit) {
		r->bad = 1;
		return 0;
	}
	return v;
}

/* A string that must be there. */
static char *
get_required(struct mreader *r)
{
	char *s = m_get_str(r);

	if (s == NULL)
		r->bad = 1;
	return s;
}

void
bridge_config_build(struct buf *b, const struct bridge_config *c)
{
	size_t i;

	m_add_u8(b, c->role);
	m_add_u8(b, c->auth);
	m_add_u8(b, c->verbose);
	m_add_str(b, c->base_url);
	m_add_str(b, c->worker_id);
	m_add_str(b, c->incarnation);
	m_add_str(b, c->credential);
	m_add_i64(b, c->expires);
	m_add_str(b, c->code);
	m_add_str(b, c->public_key);
	m_add_str(b, c->sandbox_profile);
	add_list(b, c->runtimes, c->nruntimes);
	m_add_str(b, c->policy_digest);
	m_add_u8(b, c->lease_slots);
	m_add_u32(b, (uint32_t)c->nworkspaces);
	for (i = 0; i < c->nworkspaces; i++) {
		m_add_str(b, c->workspaces[i].id);
		m_add_str(b, c->workspaces[i].name);
		m_add_u32(b, c->workspaces[i].operations);
	}
	m_add_str(b, c->ca_file);
	m_add_str(b, c->https_proxy);
	m_add_str(b, c->http_proxy);
	m_add_str(b, c->all_proxy);
	m_add_str(b, c->no_proxy);
}

int
bridge_config_parse(const struct imsg *im, struct bridge_config *c)
{
	struct mreader r;
	uint32_t i, n;

	memset(c, 0, sizeof(*c));
	m_begin(&r, im);
	c->role = get_below(&r, ROLE_MAX);
	c->auth = get_below(&r, AUTH_MAX);
	c->verbose = m_get_u8(&r);
	c->base_url = get_required(&r);
	c->worker_id = get_required(&r);
	c->incarnation = m_get_str(&r);
	c->credential = m_get_str(&r);
	c->expires = m_get_i64(&r);
	c->code = m_get_str(&r);
	c->public_key = m_get_str(&r);
	c->sandbox_profile = m_get_str(&r);
	get_list(&r, &c->runtimes, &c->nruntimes, 32);
	c->policy_digest = m_get_str(&r);
	c->lease_slots = m_get_u8(&r);
	n = m_get_u32(&r);
	if (n > ROOTS_MAX)
		r.bad = 1;
	else if (n > 0)
		c->workspaces = xcalloc(n, sizeof(*c->workspaces));
	for (i = 0; !r.bad && i < n; i++) {
		c->nworkspaces++;
		c->workspaces[i].id = get_required(&r);
		c->workspaces[i].name = m_get_str(&r);
		c->workspaces[i].operations = m_get_u32(&r);
	}
	c->ca_file = m_get_str(&r);
	c->https_proxy = m_get_str(&r);
	c->http_proxy = m_get_str(&r);
	c->all_proxy = m_get_str(&r);
	c->no_proxy = m_get_str(&r);
	if (m_end(&r) == -1) {
		bridge_config_free(c);
		return -1;
	}
	return 0;
}

void
bridge_config_free(struct bridge_config *c)
{
	size_t i;

	free_str(&c->base_url);
	free_str(&c->worker_id);
	free_str(&c->incarnation);
	wipe_str(&c->credential);
	wipe_str(&c->code);
	free_str(&c->public_key);
	free_str(&c->sandbox_profile);
	free_list(&c->runtimes, &c->nruntimes);
	free_str(&c->policy_digest);
	for (i = 0; i < c->nworkspaces; i++) {
		free_str(&c->workspaces[i].id);
		free_str(&c->workspaces[i].name);
	}
	free(c->workspaces);
	free_str(&c->ca_file);
	wipe_str(&c->https_proxy);
	wipe_str(&c->http_proxy);
	wipe_str(&c->all_proxy);
	free_str(&c->no_proxy);
	memset(c, 0, sizeof(*c));
}

#define ENV_MAX    64
#define HIDDEN_MAX 256

void
executor_config_build(struct buf *b, const struct executor_config *c)
{
	m_add_u8(b, c->verbose);
	m_add_u32(b, c->uid);
	m_add_u32(b, c->gid);
	m_add_str(b, c->user);
	m_add_str(b, c->home);
	add_list(b, c->env, c->nenv);
	add_list(b, c->hidden, c->nhidden);
	m_add_u64(b, c->tmp_bytes);
	m_add_u64(b, c->home_bytes);
	m_add_u32(b, c->nroots);
}

int
executor_config_parse(const struct imsg *im, struct executor_config *c)
{
	struct mreader r;

	memset(c, 0, sizeof(*c));
	m_begin(&r, im);
	c->verbose = m_get_u8(&r);
	c->uid = m_get_u32(&r);
	c->gid = m_get_u32(&r);
	c->user = get_required(&r);
	c->home = get_required(&r);
	get_list(&r, &c->env, &c->nenv, ENV_MAX);
	get_list(&r, &c->hidden, &c->nhidden, HIDDEN_MAX);
	c->tmp_bytes = m_get_u64(&r);
	c->home_bytes = m_get_u64(&r);
	c->nroots = m_get_u32(&r);
	if (c->nroots > ROOTS_MAX)
		r.bad = 1;
	if (m_end(&r) == -1) {
		executor_config_free(c);
		return -1;
	}
	return 0;
}

void
executor_config_free(struct executor_config *c)
{
	free_str(&c->user);
	free_str(&c->home);
	free_list(&c->env, &c->nenv);
	free_list(&c->hidden, &c->nhidden);
	memset(c, 0, sizeof(*c));
}

void
root_config_build(struct buf *b, const struct root_config *c)
{
	m_add_u32(b, c->index);
	m_add_str(b, c->id);
	m_add_str(b, c->path);
	m_add_u32(b, c->operations);
	m_add_u8(b, c->mount);
}

int
root_config_parse(const struct imsg *im, struct root_config *c)
{
	struct mreader r;

	memset(c, 0, sizeof(*c));
	m_begin(&r, im);
	c->index = m_get_u32(&r);
	c->id = get_required(&r);
	c->path = get_required(&r);
	c->operations = m_get_u32(&r);
	c->mount = get_below(&r, ROOT_MOUNT_MAX);
	if (c->index >= ROOTS_MAX || (c->path != NULL && c->path[0] != '/'))
		r.bad = 1;
	if (m_end(&r) == -1) {
		root_config_free(c);
		return -1;
	}
	return 0;
}

void
root_config_free(struct root_config *c)
{
	free_str(&c->id);
	free_str(&c->path);
}

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
		free_str(&e->text);
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
	s->path = get_required(&r);
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
	free_str(&s->path);
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
	s->timestamp = get_required(&r);
	s->nonce = get_required(&r);
	s->signature = get_required(&r);
	if (m_end(&r) == -1) {
		sign_answer_free(s);
		return -1;
	}
	return 0;
}

void
sign_answer_free(struct sign_answer *s)
{
	free_str(&s->timestamp);
	free_str(&s->nonce);
	free_str(&s->signature);
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
	c->credential = get_required(&r);
	c->expires_text = get_required(&r);
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
	wipe_str(&c->credential);
	free_str(&c->expires_text);
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
	a->assignment = get_required(&r);
	if (a->root >= ROOTS_MAX)
		r.bad = 1;
	if (m_end(&r) == -1) {
		free_str(&a->assignment);
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
		free_str(&v->error);
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
	*state = (enum bridge_state)get_below(&r, BS_MAX);
	*text = m_get_str(&r);
	if (m_end(&r) == -1) {
		free_str(text);
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
	a->assignment = get_required(&r);
	*certainty = (enum certainty)get_below(&r, CERTAINTY_MAX);
	if (a->root >= ROOTS_MAX)
		r.bad = 1;
	if (m_end(&r) == -1) {
		free_str(&a->assignment);
		return -1;
	}
	return 0;
}

void
request_build(struct buf *b, const struct request *q)
{
	size_t i;

	m_add_u8(b, q->operation);
	m_add_u32(b, q->root);
	m_add_str(b, q->assignment);
	add_text(b, &q->path);
	m_add_i64(b, q->start_line);
	m_add_u32(b, q->max);
	add_text(b, &q->query);
	add_text(b, &q->after);
	add_text(b, &q->content);
	m_add_u8(b, q->create_only);
	m_add_u32(b, (uint32_t)q->nedits);
	for (i = 0; i < q->nedits; i++) {
		add_text(b, &q->edits[i].old);
		add_text(b, &q->edits[i].new);
	}
	m_add_str(b, q->base_sha256);
	add_text(b, &q->command);
	add_text(b, &q->cwd);
	m_add_u32(b, q->timeout_ms);
	m_add_u32(b, q->max_output);
}

int
request_parse(const struct imsg *im, struct request *q)
{
	struct mreader r;
	uint32_t i, n;

	memset(q, 0, sizeof(*q));
	m_begin(&r, im);
	q->operation = get_below(&r, OP_MAX);
	q->root = m_get_u32(&r);
	q->assignment = get_required(&r);
	get_text(&r, &q->path);
	q->start_line = m_get_i64(&r);
	q->max = m_get_u32(&r);
	get_text(&r, &q->query);
	get_text(&r, &q->after);
	get_text(&r, &q->content);
	q->create_only = get_below(&r, 2);
	n = m_get_u32(&r);
	if (n > EDITS_MAX)
		r.bad = 1;
	else if (n > 0)
		q->edits = xcalloc(n, sizeof(*q->edits));
	for (i = 0; !r.bad && i < n; i++) {
		q->nedits++;
		get_text(&r, &q->edits[i].old);
		get_text(&r, &q->edits[i].new);
	}
	q->base_sha256 = m_get_str(&r);
	get_text(&r, &q->command);
	get_text(&r, &q->cwd);
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

void
request_free(struct request *q)
{
	size_t i;

	free_str(&q->assignment);
	text_free(&q->path);
	text_free(&q->query);
	text_free(&q->after);
	text_free(&q->content);
	for (i = 0; i < q->nedits; i++) {
		text_free(&q->edits[i].old);
		text_free(&q->edits[i].new);
	}
	free(q->edits);
	free_str(&q->base_sha256);
	text_free(&q->command);
	text_free(&q->cwd);
	memset(q, 0, sizeof(*q));
}

void
result_build(struct buf *b, const struct result *q)
{
	size_t i;

	m_add_u8(b, q->operation);
	add_text(b, &q->content);
	m_add_i64(b, q->start_line);
	m_add_i64(b, q->end_line);
	m_add_u8(b, q->truncated);
	m_add_u32(b, (uint32_t)q->nmatches);
	for (i = 0; i < q->nmatches; i++) {
		add_text(b, &q->matches[i].path);
		m_add_i64(b, q->matches[i].line);
		m_add_i64(b, q->matches[i].column);
		add_text(b, &q->matches[i].text);
	}
	m_add_u32(b, (uint32_t)q->npaths);
	for (i = 0; i < q->npaths; i++)
		add_text(b, &q->paths[i]);
	m_add_u8(b, q->created);
	m_add_i64(b, q->bytes_written);
	m_add_u32(b, q->replacements);
	m_add_u8(b, q->has_bom);
	m_add_str(b, q->base_sha256);
	m_add_i64(b, q->exit_code);
	m_add_str(b, q->signal);
	add_text(b, &q->out);
	add_text(b, &q->err);
	m_add_u8(b, q->timed_out);
}

int
result_parse(const struct imsg *im, struct result *q)
{
	struct mreader r;
	uint32_t i, n;
	int64_t code;

	memset(q, 0, sizeof(*q));
	m_begin(&r, im);
	q->operation = get_below(&r, OP_MAX);
	get_text(&r, &q->content);
	q->start_line = m_get_i64(&r);
	q->end_line = m_get_i64(&r);
	q->truncated = get_below(&r, 2);
	n = m_get_u32(&r);
	if (n > MATCHES_MAX)
		r.bad = 1;
	else if (n > 0)
		q->matches = xcalloc(n, sizeof(*q->matches));
	for (i = 0; !r.bad && i < n; i++) {
		q->nmatches++;
		get_text(&r, &q->matches[i].path);
		q->matches[i].line = m_get_i64(&r);
		q->matches[i].column = m_get_i64(&r);
		get_text(&r, &q->matches[i].text);
	}
	n = m_get_u32(&r);
	if (n > PATHS_MAX)
		r.bad = 1;
	else if (n > 0)
		q->paths = xcalloc(n, sizeof(*q->paths));
	for (i = 0; !r.bad && i < n; i++) {
		q->npaths++;
		get_text(&r, &q->paths[i]);
	}
	q->created = get_below(&r, 2);
	q->bytes_written = m_get_i64(&r);
	q->replacements = m_get_u32(&r);
	q->has_bom = get_below(&r, 2);
	q->base_sha256 = m_get_str(&r);
	code = m_get_i64(&r);
	if (code < -1 || code > 255)
		r.bad = 1;
	else
		q->exit_code = (int32_t)code;
	q->signal = m_get_str(&r);
	get_text(&r, &q->out);
	get_text(&r, &q->err);
	q->timed_out = get_below(&r, 2);
	if (m_end(&r) == -1) {
		result_free(q);
		return -1;
	}
	return 0;
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
	free_str(&q->base_sha256);
	free_str(&q->signal);
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
	e->code = get_below(&r, EC_MAX);
	e->certainty = get_below(&r, CERTAINTY_MAX);
	e->text = get_required(&r);
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
	free_str(&e->text);
}
