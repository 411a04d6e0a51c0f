#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "buf.h"
#include "url.h"

static int
is_alnum(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
	    (c >= 'a' && c <= 'z');
}

static int
is_hex(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') ||
	    (c >= 'a' && c <= 'f');
}

/* Host and port: a name, an IPv4 address or [IPv6]. */
static int
authority_valid(const char *p, size_t n)
{
	size_t i = 0, digits;

	if (n > 255)
		return 0;
	if (n > 0 && p[0] == '[') {
		for (i = 1; i < n && p[i] != ']'; i++)
			if (!is_hex((unsigned char)p[i]) && p[i] != ':' &&
			    p[i] != '.')
				return 0;
		if (i == n || i < 3)
			return 0;
		i++;
	} else {
		while (i < n &&
		    (is_alnum((unsigned char)p[i]) || p[i] == '-' ||
			p[i] == '.' || p[i] == '_'))
			i++;
		if (i == 0)
			return 0;
	}
	if (i == n)
		return 1;
	if (p[i++] != ':')
		return 0;
	for (digits = 0; i < n; i++, digits++)
		if (p[i] < '0' || p[i] > '9')
			return 0;
	return digits >= 1 && digits <= 5;
}

/* One path segment without a slash: plain characters and %XX. */
static int
segment_valid(const char *p, size_t n)
{
	size_t i;

	if (n == 0 || (n == 1 && p[0] == '.') ||
	    (n == 2 && p[0] == '.' && p[1] == '.'))
		return 0;
	for (i = 0; i < n; i++) {
		if (p[i] == '%') {
			if (n - i < 3 || !is_hex((unsigned char)p[i + 1]) ||
			    !is_hex((unsigned char)p[i + 2]))
				return 0;
			/* %2e and %2f: dot segments and slashes again */
			if (p[i + 1] == '2' && strchr("eEfF", p[i + 2]) != NULL)
				return 0;
			i += 2;
			continue;
		}
		if (!is_alnum((unsigned char)p[i]) &&
		    strchr("-_.!~*'()@:$&+,;=", p[i]) == NULL)
			return 0;
	}
	return 1;
}

int
url_parse(const char *text, struct url *u, const char **error)
{
	const char *p, *host;
	size_t n, len;

	memset(u, 0, sizeof(*u));
	if (strncasecmp(text, "https://", 8) == 0) {
		host = text + 8;
		u->https = 1;
	} else if (strncasecmp(text, "http://", 7) == 0)
		host = text + 7;
	else {
		*error = "must start with https:// or http://";
		return -1;
	}
	if (strchr(text, '?') != NULL || strchr(text, '#') != NULL) {
		*error = "must not have a query or a fragment";
		return -1;
	}
	n = strcspn(host, "/");
	if (memchr(host, '@', n) != NULL) {
		*error = "must not contain a user name or password";
		return -1;
	}
	if (!authority_valid(host, n)) {
		*error = "has no valid host and port";
		return -1;
	}
	len = strlen(host);
	while (len > n && host[len - 1] == '/')
		len--;
	for (p = host + n; p < host + len; p += n) {
		p++;
		n = strcspn(p, "/");
		if (n > (size_t)(host + len - p))
			n = (size_t)(host + len - p);
		if (!segment_valid(p, n)) {
			*error = "has a path that is not plain (empty or dot "
				 "segments, or characters to be escaped)";
			return -1;
		}
	}
	n = strcspn(host, "/");
	u->origin = xasprintf(
	    "%s://%.*s", u->https ? "https" : "http", (int)n, host);
	u->prefix = xstrndup(host + n, len - n);
	return 0;
}

void
url_free(struct url *u)
{
	free(u->origin);
	free(u->prefix);
	memset(u, 0, sizeof(*u));
}

void
url_encode(struct buf *b, const char *id)
{
	static const char hex[] = "0123456789ABCDEF";
	const unsigned char *p;
	int dots = strcmp(id, ".") == 0 || strcmp(id, "..") == 0;

	for (p = (const unsigned char *)id; *p != '\0'; p++) {
		if (is_alnum(*p) || (*p == '.' && !dots) ||
		    strchr("-_!~*'()", *p) != NULL)
			buf_addc(b, *p);
		else {
			buf_addc(b, '%');
			buf_addc(b, (uint8_t)hex[*p >> 4]);
			buf_addc(b, (uint8_t)hex[*p & 15]);
		}
	}
}
