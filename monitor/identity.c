#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "buf.h"
#include "error.h"
#include "identity.h"
#include "json.h"
#include "log.h"
#include "times.h"
#include "utf8.h"

#define ADVICE                                                              \
	"Revoke the worker on the server, remove the file and pair again: " \
	"its key may be known to others."

enum member {
	M_VERSION,
	M_WORKER,
	M_CREDENTIAL,
	M_EXPIRES,
	M_URL,
	M_PUBLIC,
	M_PRIVATE,
	M_MAX
};

static const char *const member_names[M_MAX] = { "protocolVersion", "workerId",
	"credential", "expiresAt", "codeApiUrl", "publicKey", "privateKey" };

/* Where the value of a member stands in the text, quotes included. */
struct span {
	size_t at;
	size_t len;
};

static size_t
skip_blank(const char *p, size_t n, size_t i)
{
	while (i < n &&
	    (p[i] == ' ' || p[i] == '\t' || p[i] == '\n' || p[i] == '\r'))
		i++;
	return i;
}

/* From an opening quote to behind the closing one; 0 if there is none. */
static size_t
skip_string(const char *p, size_t n, size_t i)
{
	for (i++; i < n; i++) {
		if (p[i] == '\\')
			i++;
		else if (p[i] == '"')
			return i + 1;
	}
	return 0;
}

/* Behind a value of any kind; 0 if the text ends in it. */
static size_t
skip_value(const char *p, size_t n, size_t i)
{
	size_t depth = 0;

	for (; i < n; i++) {
		if (p[i] == '"') {
			if ((i = skip_string(p, n, i)) == 0)
				return 0;
			if (depth == 0)
				return i;
			i--;
		} else if (p[i] == '{' || p[i] == '[')
			depth++;
		else if (p[i] == '}' || p[i] == ']') {
			if (depth == 0)
				return i;
			if (--depth == 0)
				return i + 1;
		} else if (p[i] == ',' && depth == 0)
			return i;
	}
	return 0;
}

/*
 * Finds the values of the known members of the top object without copying
 * any of them. Each must be there exactly once; a known name that is spelt
 * with escapes is not found. The grammar as a whole is checked by the parser.
 */
static int
find_members(const char *p, size_t n, struct span found[M_MAX])
{
	size_t i, key, keylen, m, end;

	memset(found, 0, sizeof(*found) * M_MAX);
	i = skip_blank(p, n, 0);
	if (i >= n || p[i] != '{')
		return -1;
	for (i = skip_blank(p, n, i + 1); i < n && p[i] == '"';) {
		key = i + 1;
		if ((i = skip_string(p, n, i)) == 0)
			return -1;
		keylen = i - 1 - key;
		i = skip_blank(p, n, i);
		if (i >= n || p[i] != ':')
			return -1;
		i = skip_blank(p, n, i + 1);
		if ((end = skip_value(p, n, i)) == 0 || end == i)
			return -1;
		for (m = 0; m < M_MAX; m++) {
			if (strlen(member_names[m]) != keylen ||
			    memcmp(member_names[m], p + key, keylen) != 0)
				continue;
			if (found[m].len != 0)
				return -1;
			found[m].at = i;
			found[m].len = end - i;
		}
		i = skip_blank(p, n, end);
		if (i < n && p[i] == ',')
			i = skip_blank(p, n, i + 1);
	}
	for (m = 0; m < M_MAX; m++)
		if (found[m].len == 0)
			return -1;
	return 0;
}

/* A JSON string without escapes but \n, \/, \" and \\, in guarded memory. */
static int
decode_secret(const char *p, size_t n, struct secret *out)
{
	size_t i, o = 0;

	if (n < 2 || p[0] != '"' || p[n - 1] != '"')
		return -1;
	secret_set(out, p, n);
	for (i = 1; i < n - 1; i++) {
		if (p[i] != '\\') {
			out->data[o++] = p[i];
			continue;
		}
		switch (p[++i]) {
		case 'n':
			out->data[o++] = '\n';
			break;
		case 'r':
			out->data[o++] = '\r';
			break;
		case '/':
		case '"':
		case '\\':
			out->data[o++] = p[i];
			break;
		default:
			secret_free(out);
			return -1;
		}
	}
	out->data[o] = '\0';
	out->len = o;
	return 0;
}

static int
invalid(const char *path, const char *why, char **error)
{
	return errorf(error,
	    "Invalid bridge identity file: %s (%s). Pair the worker again.",
	    path, why);
}

/* Everything but the two secrets, from the parsed text. */
static int
take_members(
    struct identity *id, const struct json *j, const char *path, char **error)
{
	const char *worker, *expires, *url, *public;
	int64_t version;

	if (json_get_integer(j, "protocolVersion", &version) == -1 ||
	    version != 1)
		return invalid(path, "protocolVersion is not 1", error);
	worker = json_get_str(j, "workerId");
	expires = json_get_str(j, "expiresAt");
	url = json_get_str(j, "codeApiUrl");
	public = json_get_str(j, "publicKey");
	if (worker == NULL || expires == NULL || url == NULL || public == NULL)
		return invalid(path, "a member is not a string", error);
	if (time_parse_iso(expires, &id->expires) == -1)
		return invalid(path, "expiresAt is not a date", error);
	id->worker = xstrdup(worker);
	id->expires_text = xstrdup(expires);
	id->url = xstrdup(url);
	id->public_key = xstrdup(public);
	return 0;
}

static int
take_secrets(struct identity *id, const char *text,
    const struct span found[M_MAX], const char *path, char **error)
{
	const struct span *s = &found[M_PRIVATE];
	struct secret pem;
	int r;

	if (decode_secret(text + s->at, s->len, &pem) == -1)
		return invalid(path, "privateKey is not a PEM text", error);
	r = key_from_pem(&id->key, pem.data, pem.len);
	secret_free(&pem);
	if (r == -1)
		return invalid(
		    path, "privateKey is not an Ed25519 PKCS#8 PEM", error);
	if (key_matches_public(
		&id->key, id->public_key, strlen(id->public_key)) == -1)
		return invalid(
		    path, "publicKey does not belong to privateKey", error);
	s = &found[M_CREDENTIAL];
	if (decode_secret(text + s->at, s->len, &id->credential) == -1)
		return invalid(path, "credential is not a plain string", error);
	return 0;
}

int
identity_parse(struct identity *id, const char *path, const char *text,
    size_t len, char **error)
{
	struct span found[M_MAX];
	struct secret shown;
	struct json *j;
	const char *why;
	int r = -1;

	memset(id, 0, sizeof(*id));
	if (len == 0)
		return invalid(path, "it is empty", error);
	if (!utf8_valid(text, len) || text[0] == '\xef')
		return invalid(path, "it is not plain UTF-8", error);
	if (find_members(text, len, found) == -1)
		return invalid(path,
		    "it is no JSON object with each known member once", error);
	/* The parser sees the text with the secrets blanked. */
	secret_set(&shown, text, len);
	if (found[M_PRIVATE].len >= 2)
		memset(shown.data + found[M_PRIVATE].at + 1, ' ',
		    found[M_PRIVATE].len - 2);
	if (found[M_CREDENTIAL].len >= 2)
		memset(shown.data + found[M_CREDENTIAL].at + 1, ' ',
		    found[M_CREDENTIAL].len - 2);
	j = json_parse(shown.data, shown.len, &why);
	secret_free(&shown);
	if (j == NULL)
		return invalid(path, why, error);
	if (j->type != JSON_OBJECT)
		invalid(path, "it is no JSON object", error);
	else if (take_members(id, j, path, error) == 0 &&
	    take_secrets(id, text, found, path, error) == 0) {
		id->path = xstrdup(path);
		secret_set(&id->text, text, len);
		r = 0;
	}
	json_free(j);
	if (r == -1)
		identity_free(id);
	return r;
}

enum storage_result
identity_load(const char *path, struct identity *id, char **error)
{
	struct secret text;
	enum storage_result r;
	int fd;

	memset(id, 0, sizeof(*id));
	r = storage_open(path, "Bridge identity", ADVICE, &fd, error);
	if (r != STORAGE_OK)
		return r;
	if (storage_read(fd, IDENTITY_MAX, &text) == -1) {
		if (errno == EFBIG)
			invalid(path, "it is longer than 64 KiB", error);
		else
			error_errno(error, "read %s", path);
		close(fd);
		return STORAGE_ERROR;
	}
	close(fd);
	r = identity_parse(id, path, text.data, text.len, error) == 0
	    ? STORAGE_OK
	    : STORAGE_ERROR;
	secret_free(&text);
	return r;
}

void
identity_free(struct identity *id)
{
	free(id->path);
	free(id->worker);
	free(id->url);
	free(id->public_key);
	free(id->expires_text);
	secret_free(&id->credential);
	secret_free(&id->text);
	key_free(&id->key);
	memset(id, 0, sizeof(*id));
}

int
credential_valid(const char *s)
{
	size_t n = strlen(s), i;

	if (n < 32 || n > 4096)
		return 0;
	for (i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~')
			return 0;
	return 1;
}

/* Appends a JSON string of printable text and LF; out has room. */
static void
put_string(char *out, size_t *o, const char *s)
{
	out[(*o)++] = '"';
	for (; *s != '\0'; s++) {
		if (*s == '"' || *s == '\\')
			out[(*o)++] = '\\';
		if (*s == '\n') {
			out[(*o)++] = '\\';
			out[(*o)++] = 'n';
		} else
			out[(*o)++] = *s;
	}
	out[(*o)++] = '"';
}

static void
put_raw(char *out, size_t *o, const void *p, size_t n)
{
	memcpy(out + *o, p, n);
	*o += n;
}

static void
put_member(
    char *out, size_t *o, const char *name, const char *value, const char *tail)
{
	put_raw(out, o, "  \"", 3);
	put_raw(out, o, name, strlen(name));
	put_raw(out, o, "\": ", 3);
	put_string(out, o, value);
	put_raw(out, o, tail, strlen(tail));
}

static char *
guarded(size_t size)
{
	char *p;

	if ((p = sodium_malloc(size)) == NULL)
		fatal("guarded memory for the identity");
	return p;
}

void
identity_format(struct secret *out, const char *worker, const char *credential,
    const char *expires, const char *url, const struct key *k)
{
	static const char head[] = "{\n  \"protocolVersion\": 1,\n";
	struct secret private;
	char *public = key_public_pem(k);
	size_t o = 0;

	key_private_pem(k, &private);
	out->data = guarded(1024 +
	    2 *
		(strlen(worker) + strlen(credential) + strlen(expires) +
		    strlen(url) + strlen(public) + private.len));
	put_raw(out->data, &o, head, sizeof(head) - 1);
	put_member(out->data, &o, "workerId", worker, ",\n");
	put_member(out->data, &o, "credential", credential, ",\n");
	put_member(out->data, &o, "expiresAt", expires, ",\n");
	put_member(out->data, &o, "codeApiUrl", url, ",\n");
	put_member(out->data, &o, "publicKey", public, ",\n");
	put_member(out->data, &o, "privateKey", private.data, "\n}\n");
	out->data[o] = '\0';
	out->len = o;
	secret_free(&private);
	free(public);
}

int
identity_splice(const struct secret *old, const char *credential,
    const char *expires, struct secret *out, char **error)
{
	struct span found[M_MAX], first, second;
	const char *a = credential, *b = expires;
	size_t o = 0, tail;

	if (find_members(old->data, old->len, found) == -1)
		return errorf(error, "the identity cannot be rewritten");
	first = found[M_CREDENTIAL];
	second = found[M_EXPIRES];
	if (second.at < first.at) {
		first = found[M_EXPIRES];
		second = found[M_CREDENTIAL];
		a = expires;
		b = credential;
	}
	out->data = guarded(
	    old->len + 2 * (strlen(credential) + strlen(expires)) + 8);
	put_raw(out->data, &o, old->data, first.at);
	put_string(out->data, &o, a);
	tail = first.at + first.len;
	put_raw(out->data, &o, old->data + tail, second.at - tail);
	put_string(out->data, &o, b);
	tail = second.at + second.len;
	put_raw(out->data, &o, old->data + tail, old->len - tail);
	out->data[o] = '\0';
	out->len = o;
	return 0;
}

int
identity_rotate(struct identity *id, const char *credential,
    const char *expires, int64_t expires_ms, int mountinfo, char **error)
{
	struct secret text;

	if (identity_splice(&id->text, credential, expires, &text, error) == -1)
		return -1;
	if (identity_save(id->path, &text, mountinfo, error) == -1) {
		secret_free(&text);
		return -1;
	}
	secret_free(&id->text);
	id->text = text;
	secret_free(&id->credential);
	secret_set(&id->credential, credential, strlen(credential));
	free(id->expires_text);
	id->expires_text = xstrdup(expires);
	id->expires = expires_ms;
	return 0;
}
