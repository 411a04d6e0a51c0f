#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "buf.h"
#include "log.h"
#include "sign.h"
#include "times.h"

#define SEED_BYTES   32
#define PUBLIC_BYTES 32
#define B64          sodium_base64_VARIANT_ORIGINAL
#define B64URL       sodium_base64_VARIANT_URLSAFE_NO_PADDING

/* RFC 8410: what stands before the key bytes in DER. */
static const unsigned char spki[12] = { 0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
	0x2b, 0x65, 0x70, 0x03, 0x21, 0x00 };
static const unsigned char pkcs8[16] = { 0x30, 0x2e, 0x02, 0x01, 0x00, 0x30,
	0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20 };

static const char public_begin[] = "-----BEGIN PUBLIC KEY-----";
static const char public_end[] = "-----END PUBLIC KEY-----";
static const char private_begin[] = "-----BEGIN PRIVATE KEY-----";
static const char private_end[] = "-----END PRIVATE KEY-----";

static void
key_alloc(struct key *k)
{
	if ((k->sk = sodium_malloc(crypto_sign_SECRETKEYBYTES)) == NULL)
		fatal("guarded memory for the key");
}

void
key_from_seed(struct key *k, const unsigned char seed[SEED_BYTES])
{
	unsigned char pk[PUBLIC_BYTES];

	key_alloc(k);
	crypto_sign_seed_keypair(pk, k->sk, seed);
	(void)sodium_mprotect_readonly(k->sk);
}

void
key_generate(struct key *k)
{
	unsigned char pk[PUBLIC_BYTES];

	key_alloc(k);
	crypto_sign_keypair(pk, k->sk);
	(void)sodium_mprotect_readonly(k->sk);
}

void
key_free(struct key *k)
{
	sodium_free(k->sk);
	k->sk = NULL;
}

/*
 * The bytes between two PEM lines: decodes at most max of them into der.
 * Returns their number, or 0.
 */
static size_t
pem_decode(const char *p, size_t n, const char *begin, const char *end,
    unsigned char *der, size_t max)
{
	size_t bl = strlen(begin), el = strlen(end), used;
	const char *stop;

	while (n > 0 && (p[n - 1] == '\n' || p[n - 1] == '\r'))
		n--;
	if (n < bl + el || memcmp(p, begin, bl) != 0 ||
	    memcmp(p + n - el, end, el) != 0)
		return 0;
	p += bl;
	n -= bl + el;
	if (sodium_base642bin(der, max, p, n, "\r\n", &used, &stop, B64) != 0 ||
	    stop != p + n)
		return 0;
	return used;
}

int
key_from_pem(struct key *k, const char *p, size_t n)
{
	unsigned char *der;
	size_t want = sizeof(pkcs8) + SEED_BYTES;
	int r = -1;

	k->sk = NULL;
	if ((der = sodium_malloc(want)) == NULL)
		fatal("guarded memory for the key");
	if (pem_decode(p, n, private_begin, private_end, der, want) == want &&
	    memcmp(der, pkcs8, sizeof(pkcs8)) == 0) {
		key_from_seed(k, der + sizeof(pkcs8));
		r = 0;
	}
	sodium_free(der);
	return r;
}

char *
key_public_pem(const struct key *k)
{
	unsigned char der[sizeof(spki) + PUBLIC_BYTES];
	char b64[sodium_base64_ENCODED_LEN(sizeof(der), B64)];

	memcpy(der, spki, sizeof(spki));
	memcpy(der + sizeof(spki), k->sk + SEED_BYTES, PUBLIC_BYTES);
	sodium_bin2base64(b64, sizeof(b64), der, sizeof(der), B64);
	return xasprintf("%s\n%s\n%s\n", public_begin, b64, public_end);
}

void
key_private_pem(const struct key *k, struct secret *out)
{
	unsigned char der[sizeof(pkcs8) + SEED_BYTES];
	char b64[sodium_base64_ENCODED_LEN(sizeof(der), B64)];
	size_t size = sizeof(private_begin) + sizeof(b64) + sizeof(private_end);
	size_t len;

	memcpy(der, pkcs8, sizeof(pkcs8));
	memcpy(der + sizeof(pkcs8), k->sk, SEED_BYTES);
	sodium_bin2base64(b64, sizeof(b64), der, sizeof(der), B64);
	sodium_memzero(der, sizeof(der));
	if ((out->data = sodium_malloc(size + 1)) == NULL)
		fatal("guarded memory for the key");
	len = xsnprintf(out->data, size + 1, "%s\n%s\n%s\n", private_begin, b64,
	    private_end);
	out->len = len;
	sodium_memzero(b64, sizeof(b64));
}

int
key_matches_public(const struct key *k, const char *p, size_t n)
{
	unsigned char der[sizeof(spki) + PUBLIC_BYTES];

	if (pem_decode(p, n, public_begin, public_end, der, sizeof(der)) !=
		sizeof(der) ||
	    memcmp(der, spki, sizeof(spki)) != 0 ||
	    memcmp(der + sizeof(spki), k->sk + SEED_BYTES, PUBLIC_BYTES) != 0)
		return -1;
	return 0;
}

void
sign_encode_id(struct buf *b, const char *id)
{
	for (; *id != '\0'; id++) {
		if ((*id >= 'a' && *id <= 'z') || (*id >= 'A' && *id <= 'Z') ||
		    (*id >= '0' && *id <= '9') ||
		    strchr("-_.!~*'()", *id) != NULL)
			buf_addc(b, (uint8_t)*id);
		else
			buf_addf(b, "%%%02X", (unsigned int)(unsigned char)*id);
	}
}

int
sign_path_permitted(const char *base_path, const char *worker, const char *path)
{
	struct buf b;
	const char *p;
	int ok;

	for (p = path; *p != '\0'; p++)
		if (*p <= ' ' || *p > '~' || *p == '?' || *p == '#')
			return 0;
	buf_init(&b);
	buf_addf(&b, "%s/bridge/workers/", base_path);
	if (strncmp(path, buf_cstr(&b), b.len) != 0) {
		buf_free(&b);
		return 0;
	}
	path += b.len;
	if (strcmp(path, "register") == 0) {
		buf_free(&b);
		return 1;
	}
	buf_reset(&b);
	sign_encode_id(&b, worker);
	buf_addc(&b, '/');
	ok = strncmp(path, buf_cstr(&b), b.len) == 0 && path[b.len] != '\0';
	buf_free(&b);
	return ok;
}

void
sign_request(const struct key *k, const char *credential,
    const struct sign_request *q, int64_t now,
    const unsigned char nonce[NONCE_BYTES], struct sign_answer *a)
{
	unsigned char sig[crypto_sign_BYTES];
	char time[TIME_ISO_SIZE], digest[2 * sizeof(q->sha256) + 1];
	char n64[sodium_base64_ENCODED_LEN(NONCE_BYTES, B64URL)];
	char s64[sodium_base64_ENCODED_LEN(sizeof(sig), B64URL)];
	struct buf b;

	time_format_iso(now, time);
	sodium_bin2base64(n64, sizeof(n64), nonce, NONCE_BYTES, B64URL);
	sodium_bin2hex(digest, sizeof(digest), q->sha256, sizeof(q->sha256));
	buf_init(&b);
	buf_addf(&b, "POST\n%s\n%s\n%s\n%s\n%s", q->path, time, n64, digest,
	    credential);
	crypto_sign_detached(sig, NULL, b.data, b.len, k->sk);
	buf_wipe(&b);
	sodium_bin2base64(s64, sizeof(s64), sig, sizeof(sig), B64URL);
	a->timestamp = xstrdup(time);
	a->nonce = xstrdup(n64);
	a->signature = xstrdup(s64);
}
