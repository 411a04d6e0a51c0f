#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sodium.h>

#include "buf.h"
#include "names.h"

#define ALNUM "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

int
name_is_id(const char *s)
{
	size_t n;

	if (s == NULL || *s == '\0' || strchr(ALNUM, *s) == NULL)
		return 0;
	n = strlen(s);
	return n < WORKER_ID_SIZE && strspn(s, ALNUM "._:-") == n;
}

int
name_is_incarnation(const char *s)
{
	size_t n;

	if (s == NULL)
		return 0;
	n = strlen(s);
	return n >= 16 && n < INCARNATION_ID_SIZE && strspn(s, ALNUM "_-") == n;
}

int
name_is_digest(const char *s)
{
	return s != NULL && strlen(s) == HASH_SIZE - 1 &&
	    strspn(s, "0123456789abcdef") == HASH_SIZE - 1;
}

void
random_id(char out[RANDOM_ID_SIZE], size_t n)
{
	uint8_t bytes[32];

	randombytes_buf(bytes, n);
	sodium_bin2base64(out, RANDOM_ID_SIZE, bytes, n,
	    sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

void
sha256_hex(char out[HASH_SIZE], const void *data, size_t len)
{
	uint8_t hash[crypto_hash_sha256_BYTES];

	crypto_hash_sha256(hash, data, len);
	sodium_bin2hex(out, HASH_SIZE, hash, sizeof(hash));
}

int
base64_decode(uint8_t *out, size_t size, const char *text, size_t len)
{
	char *plain;
	size_t i, n;
	int ok;

	while (len > 0 && text[len - 1] == '=')
		len--;
	plain = xstrndup(text, len);
	for (i = 0; i < len; i++) {
		if (plain[i] == '+')
			plain[i] = '-';
		else if (plain[i] == '/')
			plain[i] = '_';
	}
	ok = sodium_base642bin(out, size, plain, len, NULL, &n, NULL,
		 sodium_base64_VARIANT_URLSAFE_NO_PADDING) == 0;
	free(plain);
	return ok ? (int)n : -1;
}

void
iso_time(char out[ISO_TIME_SIZE], int64_t ms)
{
	struct tm tm;
	time_t t;
	char text[ISO_TIME_SIZE];
	int milli;

	milli = (int)(ms % 1000);
	t = (time_t)(ms / 1000);
	if (milli < 0) {
		milli += 1000;
		t--;
	}
	gmtime_r(&t, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	xsnprintf(out, ISO_TIME_SIZE, "%.23s.%03dZ", text, milli);
}

static int
digits(const char **s, int n, int *value)
{
	int i, v;

	for (i = v = 0; i < n; i++) {
		if (!isdigit((unsigned char)(*s)[i]))
			return -1;
		v = v * 10 + (*s)[i] - '0';
	}
	*s += n;
	*value = v;
	return 0;
}

static int
skip(const char **s, char c)
{
	if (**s != c)
		return -1;
	(*s)++;
	return 0;
}

/* The offset behind a time: "Z", or a sign and hours and minutes. */
static int
parse_zone(const char *s, int *minutes)
{
	int sign, h, m;

	*minutes = 0;
	if (strcmp(s, "Z") == 0)
		return 0;
	sign = *s == '-' ? -1 : 1;
	if (*s != '+' && *s != '-')
		return -1;
	s++;
	if (digits(&s, 2, &h) == -1 || skip(&s, ':') == -1 ||
	    digits(&s, 2, &m) == -1 || *s != '\0' || h > 23 || m > 59)
		return -1;
	*minutes = sign * (h * 60 + m);
	return 0;
}

int
iso_parse(const char *s, int64_t *ms)
{
	struct tm tm, back;
	time_t t;
	int scale, milli, minutes;

	memset(&tm, 0, sizeof(tm));
	if (digits(&s, 4, &tm.tm_year) == -1 || skip(&s, '-') == -1 ||
	    digits(&s, 2, &tm.tm_mon) == -1 || skip(&s, '-') == -1 ||
	    digits(&s, 2, &tm.tm_mday) == -1 || skip(&s, 'T') == -1 ||
	    digits(&s, 2, &tm.tm_hour) == -1 || skip(&s, ':') == -1 ||
	    digits(&s, 2, &tm.tm_min) == -1 || skip(&s, ':') == -1 ||
	    digits(&s, 2, &tm.tm_sec) == -1)
		return -1;
	milli = 0;
	if (*s == '.') {
		s++;
		if (!isdigit((unsigned char)*s))
			return -1;
		for (scale = 100; isdigit((unsigned char)*s); s++) {
			milli += (*s - '0') * scale;
			scale /= 10;
		}
	}
	if (parse_zone(s, &minutes) == -1)
		return -1;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	back = tm;
	t = timegm(&back);
	if (back.tm_mon != tm.tm_mon || back.tm_mday != tm.tm_mday ||
	    back.tm_hour != tm.tm_hour || back.tm_min != tm.tm_min ||
	    back.tm_sec != tm.tm_sec)
		return -1;
	*ms = ((int64_t)t - minutes * 60) * 1000 + milli;
	return 0;
}

int64_t
monotonic_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The next segment of a path, or NULL; empty and "." segments are passed. */
static const char *
segment(const char **path, size_t *len)
{
	const char *s;

	for (;;) {
		while (**path == '/')
			(*path)++;
		if (**path == '\0')
			return NULL;
		s = *path;
		*len = strcspn(s, "/");
		*path = s + *len;
		if (*len != 1 || *s != '.')
			return s;
	}
}

int
path_valid(const struct json *v)
{
	const char *s, *p;
	size_t len;

	if ((s = json_text(v)) == NULL || !json_well_formed(v) || *s == '\0' ||
	    json_units(v) > 4096 || strchr(s, '\\') != NULL || *s == '/')
		return 0;
	if (isalpha((unsigned char)s[0]) && s[1] == ':')
		return 0;
	while ((p = segment(&s, &len)) != NULL) {
		if (len == 2 && memcmp(p, "..", 2) == 0)
			return 0;
	}
	return 1;
}

char *
path_normalise(const char *path)
{
	const char *s;
	struct buf b;
	size_t len;

	buf_init(&b);
	while ((s = segment(&path, &len)) != NULL) {
		if (b.len > 0)
			buf_addc(&b, '/');
		buf_add(&b, s, len);
	}
	if (b.len == 0)
		buf_addc(&b, '.');
	return buf_steal(&b);
}

int
path_within(const char *path, const char *top)
{
	char *p, *t;
	size_t n;
	int r;

	if (top == NULL)
		return 1;
	p = path_normalise(path);
	t = path_normalise(top);
	n = strlen(t);
	r = strcmp(t, ".") == 0 ||
	    (strncmp(p, t, n) == 0 && (p[n] == '\0' || p[n] == '/'));
	free(p);
	free(t);
	return r;
}

int
path_compare(const char *a, const char *b)
{
	const char *x, *y;
	size_t n, m;
	int r;

	for (;;) {
		x = segment(&a, &n);
		y = segment(&b, &m);
		if (x == NULL || y == NULL)
			return (x != NULL) - (y != NULL);
		r = memcmp(x, y, n < m ? n : m);
		if (r != 0)
			return r;
		if (n != m)
			return n < m ? -1 : 1;
	}
}
