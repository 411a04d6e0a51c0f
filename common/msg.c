#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "msg.h"
#include "msg_internal.h"

static const char *const names[MSG_MAX] = {
	[MSG_CONFIG] = "CONFIG",
	[MSG_ROOT] = "ROOT",
	[MSG_CGROUP] = "CGROUP",
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
void
msg_wipe_str(char **s)
{
	if (*s != NULL)
		explicit_bzero(*s, strlen(*s));
	free(*s);
	*s = NULL;
}

void
msg_free_str(char **s)
{
	free(*s);
	*s = NULL;
}

void
msg_add_list(struct buf *b, char *const *list, size_t n)
{
	size_t i;

	m_add_u32(b, (uint32_t)n);
	for (i = 0; i < n; i++)
		m_add_str(b, list[i]);
}

void
msg_get_list(struct mreader *r, char ***list, size_t *n, size_t max)
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

void
msg_free_list(char ***list, size_t *n)
{
	size_t i;

	for (i = 0; i < *n; i++)
		free((*list)[i]);
	free(*list);
	*list = NULL;
	*n = 0;
}

void
msg_add_text(struct buf *b, const struct text *t)
{
	m_add_bytes(b, t->data, t->len);
}

void
msg_get_text(struct mreader *r, struct text *t)
{
	const uint8_t *p;
	size_t len;

	p = m_get_bytes(r, &len);
	if (r->view)
		text_view(t, p, len);
	else
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
	t->foreign = 0;
}

void
text_view(struct text *t, const void *p, size_t len)
{
	t->data = (uint8_t *)(uintptr_t)p;
	t->len = len;
	t->foreign = 1;
}

void
text_free(struct text *t)
{
	if (!t->foreign)
		free(t->data);
	memset(t, 0, sizeof(*t));
}

/* A boolean or small enumeration; a value out of range is an error. */
uint8_t
msg_get_below(struct mreader *r, uint8_t limit)
{
	uint8_t v = m_get_u8(r);

	if (v >= limit) {
		r->bad = 1;
		return 0;
	}
	return v;
}

/* A string that must be there. */
char *
msg_get_required(struct mreader *r)
{
	char *s = m_get_str(r);

	if (s == NULL)
		r->bad = 1;
	return s;
}
