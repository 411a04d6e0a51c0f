#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <arpa/inet.h>

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "buf.h"
#include "error.h"
#include "url.h"

static int
digit(char c)
{
	return c >= '0' && c <= '9';
}

static int
hexdigit(char c)
{
	return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static int
alpha(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* A host whose last label is a number must be a plain dotted quad. */
static int
dotted_quad_rule(const char *host)
{
	struct in_addr in;
	const char *last;
	size_t len = strlen(host);
	char again[INET_ADDRSTRLEN];

	if (len > 0 && host[len - 1] == '.')
		return !digit(host[0]);
	last = strrchr(host, '.');
	last = last == NULL ? host : last + 1;
	if (!digit(*last))
		return 1;
	return inet_pton(AF_INET, host, &in) == 1 &&
	    inet_ntop(AF_INET, &in, again, sizeof(again)) != NULL &&
	    strcmp(again, host) == 0;
}

static int
host_valid(const char *host, size_t n)
{
	size_t i;

	if (n == 0 || n > 253 || host[0] == '.')
		return 0;
	for (i = 0; i < n; i++) {
		if (host[i] == '.' && i + 1 < n && host[i + 1] == '.')
			return 0;
		if (!alpha(host[i]) && !digit(host[i]) && host[i] != '-' &&
		    host[i] != '.' && host[i] != '_')
			return 0;
	}
	return dotted_quad_rule(host);
}

static int
ipv6_valid(const char *text)
{
	struct in6_addr in6;
	char again[INET6_ADDRSTRLEN];

	return strchr(text, '.') == NULL &&
	    inet_pton(AF_INET6, text, &in6) == 1 &&
	    inet_ntop(AF_INET6, &in6, again, sizeof(again)) != NULL &&
	    strcmp(again, text) == 0;
}

static void
lower(char *s)
{
	for (; *s != '\0'; s++)
		if (*s >= 'A' && *s <= 'Z')
			*s = (char)(*s + 32);
}

/* One segment: "." and ".." also in their percent-encoded spellings. */
static int
dot_segment(const char *p, size_t n)
{
	size_t dots = 0;

	while (n > 0) {
		if (*p == '.') {
			p++;
			n--;
		} else if (n >= 3 && strncasecmp(p, "%2e", 3) == 0) {
			p += 3;
			n -= 3;
		} else
			return 0;
		dots++;
	}
	return dots == 1 || dots == 2;
}

static int
path_valid(const char *path, const char **why)
{
	const char *p, *seg;

	for (p = path; *p != '\0'; p++) {
		if (*p == '%' && (!hexdigit(p[1]) || !hexdigit(p[2]))) {
			*why = "its path has a % without two hex digits";
			return 0;
		}
		if (*p == '?' || *p == '#') {
			*why = "a query or fragment is not supported";
			return 0;
		}
		if (*p <= ' ' || *p > '~' || strchr("\"<>\\^`{|}", *p)) {
			*why = "its path has a character that must be "
			       "percent-encoded";
			return 0;
		}
	}
	for (p = seg = path;; p++) {
		if (*p != '/' && *p != '\0')
			continue;
		if (dot_segment(seg, (size_t)(p - seg))) {
			*why = "its path has a . or .. segment";
			return 0;
		}
		if (*p == '\0')
			break;
		seg = p + 1;
	}
	return 1;
}

static int
parse_port(const char *p, unsigned int *port)
{
	unsigned int v = 0;
	size_t n;

	for (n = 0; digit(p[n]); n++) {
		v = v * 10 + (unsigned int)(p[n] - '0');
		if (v > 65535)
			return -1;
	}
	if (n == 0 || p[n] != '\0' || v == 0)
		return -1;
	*port = v;
	return 0;
}

/* "host", "host:port", "[v6]", "[v6]:port": what is wrong, or NULL. */
static const char *
parse_authority(char *auth, char **host, unsigned int *port, int *v6)
{
	char *end;

	*v6 = 0;
	if (strchr(auth, '@') != NULL)
		return "user information is not supported";
	lower(auth);
	if (auth[0] == '[') {
		if ((end = strchr(auth, ']')) == NULL)
			return "its IPv6 address has no ]";
		*end++ = '\0';
		*host = auth + 1;
		*v6 = 1;
		if (!ipv6_valid(*host))
			return "its IPv6 address is not in the canonical form";
	} else {
		*host = auth;
		end = strchr(auth, ':');
	}
	if (end != NULL && *end != '\0') {
		if (*end != ':')
			return "its authority is malformed";
		*end++ = '\0';
		if (parse_port(end, port) == -1)
			return "its port is not a number from 1 to 65535";
	}
	if (!*v6 && !host_valid(*host, strlen(*host)))
		return "its host is not an ASCII host name or plain address";
	return NULL;
}

int
base_url_parse(const char *text, struct base_url *u, char **error)
{
	const char *rest, *path, *why;
	char *auth, *host;
	struct buf b;
	unsigned int port, standard;
	size_t n, origin;
	int v6;

	memset(u, 0, sizeof(*u));
	if (strncasecmp(text, "https://", 8) == 0) {
		u->https = 1;
		rest = text + 8;
	} else if (strncasecmp(text, "http://", 7) == 0)
		rest = text + 7;
	else
		return errorf(error,
		    "Invalid URL: the Code API URL must begin with https:// "
		    "or http://");
	standard = port = u->https ? 443 : 80;
	n = strcspn(rest, "/?#\\");
	path = rest + n;
	auth = xstrndup(rest, n);
	if ((why = parse_authority(auth, &host, &port, &v6)) != NULL ||
	    !path_valid(path, &why)) {
		free(auth);
		return errorf(error, "Invalid URL: %s", why);
	}
	for (n = strlen(path); n > 0 && path[n - 1] == '/'; n--)
		;
	buf_init(&b);
	buf_addf(&b, "%s://%s%s%s", u->https ? "https" : "http", v6 ? "[" : "",
	    host, v6 ? "]" : "");
	if (port != standard)
		buf_addf(&b, ":%u", port);
	u->loopback = strcmp(host, "localhost") == 0 ||
	    (v6 && strcmp(host, "::1") == 0) ||
	    (strncmp(host, "127.", 4) == 0 &&
		strspn(host, "0123456789.") == strlen(host));
	free(auth);
	origin = b.len;
	buf_add(&b, path, n);
	u->base = buf_steal(&b);
	u->path = u->base + origin;
	u->canonical = n == 0 ? xasprintf("%s/", u->base) : xstrdup(u->base);
	return 0;
}

void
base_url_free(struct base_url *u)
{
	free(u->canonical);
	free(u->base);
	memset(u, 0, sizeof(*u));
}
