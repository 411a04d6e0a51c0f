#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "buf.h"
#include "repository.h"

int
repository_here(int dir)
{
	static const char *const names[] = { "HEAD", "objects", "refs" };
	struct stat st;
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (fstatat(dir, names[i], &st, AT_SYMLINK_NOFOLLOW) == -1)
			return 0;
	return 1;
}

char *
repository_pointer(const char *text, size_t len)
{
	static const char word[] = "gitdir: ";

	if (len < sizeof(word) || memcmp(text, word, sizeof(word) - 1) != 0)
		return NULL;
	text += sizeof(word) - 1;
	len -= sizeof(word) - 1;
	while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
		len--;
	if (len == 0 || memchr(text, '\0', len) != NULL)
		return NULL;
	return xstrndup(text, len);
}

struct config {
	const char *p;
	const char *end;
	int core; /* in section core */
	int include; /* in section include or includeIf */
};

static int
peek(const struct config *c)
{
	return c->p < c->end ? (unsigned char)*c->p : -1;
}

static void
skip_blanks(struct config *c)
{
	while (peek(c) == ' ' || peek(c) == '\t' || peek(c) == '\r')
		c->p++;
}

static void
skip_line(struct config *c)
{
	while (c->p < c->end && *c->p++ != '\n')
		;
}

static int
is_word(const char *p, size_t len, const char *word)
{
	return len == strlen(word) && strncasecmp(p, word, len) == 0;
}

/*
 * [section] or [section "subsection"]; text may follow on the line. A
 * subsection of core, which Git would not look at, counts as core.
 */
static void
read_section(struct config *c)
{
	const char *name = ++c->p;
	size_t len;
	int quoted = 0;

	while (isalnum(peek(c)) || peek(c) == '-' || peek(c) == '.')
		c->p++;
	len = (size_t)(c->p - name);
	c->core = is_word(name, len, "core");
	c->include = is_word(name, len, "include") ||
	    is_word(name, len, "includeIf");
	while (c->p < c->end && *c->p != '\n' && (quoted || *c->p != ']')) {
		if (*c->p == '"')
			quoted = !quoted;
		else if (*c->p == '\\' && c->p + 1 < c->end)
			c->p++;
		c->p++;
	}
	if (peek(c) == ']')
		c->p++;
}

/* The value up to the end of its line; the line end is left. */
static void
read_value(struct config *c, struct buf *v)
{
	int ch, quoted = 0;
	size_t keep = 0;

	skip_blanks(c);
	while ((ch = peek(c)) != -1 && ch != '\n') {
		if (!quoted && (ch == '#' || ch == ';'))
			break;
		c->p++;
		if (ch == '"') {
			quoted = !quoted;
			keep = v->len;
			continue;
		}
		if (ch == '\\') {
			if ((ch = peek(c)) == -1)
				break;
			c->p++;
			if (ch == '\n')
				continue;
			ch = ch == 'n' ? '\n' : ch == 't' ? '\t' : ch;
			buf_addc(v, (uint8_t)ch);
			keep = v->len;
			continue;
		}
		buf_addc(v, (uint8_t)ch);
		if (quoted || !isspace(ch))
			keep = v->len;
	}
	v->len = keep;
}

void
repository_values(const char *text, size_t len,
    void (*fn)(void *, enum repository_value, const char *), void *arg)
{
	struct config c = { text, text + len, 0, 0 };
	struct buf v;
	const char *name;
	size_t n;

	buf_init(&v);
	while (c.p < c.end) {
		skip_blanks(&c);
		if (peek(&c) == '[') {
			read_section(&c);
			continue;
		}
		name = c.p;
		while (isalnum(peek(&c)) || peek(&c) == '-')
			c.p++;
		n = (size_t)(c.p - name);
		skip_blanks(&c);
		if (n == 0 || peek(&c) != '=') {
			skip_line(&c);
			continue;
		}
		c.p++;
		buf_reset(&v);
		read_value(&c, &v);
		if (c.core && is_word(name, n, "hooksPath"))
			fn(arg, REPOSITORY_HOOKS_PATH, buf_cstr(&v));
		else if (c.include && is_word(name, n, "path"))
			fn(arg, REPOSITORY_INCLUDE, buf_cstr(&v));
		skip_line(&c);
	}
	buf_free(&v);
}
