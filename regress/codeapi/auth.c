#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <sodium.h>

#include "auth.h"
#include "http.h"
#include "names.h"
#include "pairing.h"
#include "utf8.h"

#define CLOCK_WINDOW  60000 /* ms, each way (4.3) */
#define NONCE_LIFE    120000 /* ms (4.5) */
#define NONCE_BUCKETS 4096

struct nonce {
	TAILQ_ENTRY(nonce) entry;
	char hash[HASH_SIZE]; /* of credential and nonce */
	int64_t expires;
};

TAILQ_HEAD(nonce_list, nonce);

struct nonces {
	struct nonce_list bucket[NONCE_BUCKETS];
};

struct nonces *
nonces_new(void)
{
	struct nonces *n;
	size_t i;

	n = xcalloc(1, sizeof(*n));
	for (i = 0; i < NONCE_BUCKETS; i++)
		TAILQ_INIT(&n->bucket[i]);
	return n;
}

void
nonces_clear(struct nonces *n)
{
	struct nonce *e;
	size_t i;

	for (i = 0; i < NONCE_BUCKETS; i++) {
		while ((e = TAILQ_FIRST(&n->bucket[i])) != NULL) {
			TAILQ_REMOVE(&n->bucket[i], e, entry);
			free(e);
		}
	}
}

void
nonces_free(struct nonces *n)
{
	nonces_clear(n);
	free(n);
}

/* Consumes a nonce; 0 if it has been accepted before. */
static int
nonce_take(struct server *srv, const char *credential_hash, const char *nonce)
{
	struct nonce_list *list;
	struct nonce *e, *next;
	char hash[HASH_SIZE];
	struct buf b;
	int64_t now;

	buf_init(&b);
	buf_addf(&b, "%s %s", credential_hash, nonce);
	sha256_hex(hash, b.data, b.len);
	buf_free(&b);
	now = server_now(srv);
	list =
	    &srv->nonces->bucket[strtoul(hash + 56, NULL, 16) % NONCE_BUCKETS];
	TAILQ_FOREACH_SAFE (e, list, entry, next) {
		if (e->expires <= now) {
			TAILQ_REMOVE(list, e, entry);
			free(e);
		} else if (strcmp(e->hash, hash) == 0)
			return 0;
	}
	e = xcalloc(1, sizeof(*e));
	memcpy(e->hash, hash, sizeof(hash));
	e->expires = now + NONCE_LIFE;
	TAILQ_INSERT_TAIL(list, e, entry);
	return 1;
}

/* The trimmed value behind a scheme of the Authorization header, or NULL. */
static char *
authorization(const struct req *r, const char *scheme)
{
	const char *h;
	size_t n;

	h = req_header(r, "Authorization");
	n = strlen(scheme);
	if (h == NULL || strncasecmp(h, scheme, n) != 0 ||
	    (h[n] != ' ' && h[n] != '\t'))
		return NULL;
	h += n + strspn(h + n, " \t");
	n = strlen(h);
	while (n > 0 && (h[n - 1] == ' ' || h[n - 1] == '\t'))
		n--;
	return n == 0 ? NULL : xstrndup(h, n);
}

static int
token_matches(const struct server *srv, const struct req *r)
{
	char *given;
	size_t n;
	int ok;

	if (srv->set.token == NULL)
		return 0;
	if ((given = authorization(r, "Bearer")) == NULL)
		return 0;
	n = strlen(srv->set.token);
	ok = strlen(given) == n && sodium_memcmp(given, srv->set.token, n) == 0;
	free(given);
	return ok;
}

const char *
auth_worker_id(const struct req *r)
{
	if (r->worker_id != NULL)
		return r->worker_id;
	return json_text(json_get(r->body, "workerId"));
}

void
auth_canonical(struct buf *b, const char *method, const char *path,
    const char *timestamp, const char *nonce, const char *body_hash,
    const char *credential)
{
	buf_addf(b, "%s\n%s\n%s\n%s\n%s\n%s", method, path, timestamp, nonce,
	    body_hash, credential);
}

int
auth_verify(
    const struct buf *text, const char *signature, const uint8_t key[32])
{
	uint8_t bytes[crypto_sign_BYTES];

	return base64_decode(bytes, sizeof(bytes), signature,
		   strlen(signature)) == (int)sizeof(bytes) &&
	    crypto_sign_verify_detached(bytes, text->data, text->len, key) == 0;
}

/* Steps 3 to 5 of chapter 4.3. */
static struct credential *
credential_of(struct server *srv, const char *hash, const char *worker_id)
{
	struct credential *c;
	struct worker *w;
	const char *identity;

	c = credential_find(srv, hash);
	w = worker_find(srv, worker_id, 0);
	if (c == NULL || w == NULL || (identity = worker_identity(w)) == NULL)
		return NULL;
	if (strcmp(c->hash, w->active_hash) != 0 &&
	    strcmp(c->identity, identity) != 0)
		return NULL;
	return strcmp(c->worker, worker_id) == 0 ? c : NULL;
}

static void
refuse(struct req *r, const char *code, const char *text)
{
	req_error(r, 401, code, text);
}

/* Chapter 4.3 with the credential already taken out of the header. */
static int
check_proof(
    struct server *srv, struct req *r, const char *id, const char *credential)
{
	const char *timestamp, *nonce, *signature;
	struct credential *c;
	char hash[HASH_SIZE];
	struct buf text;
	int64_t ms, skew;
	int ok;

	timestamp = req_header(r, "X-LibreChat-Code-Timestamp");
	nonce = req_header(r, "X-LibreChat-Code-Nonce");
	signature = req_header(r, "X-LibreChat-Code-Signature");
	if (!name_is_id(id) || credential == NULL || timestamp == NULL ||
	    nonce == NULL || signature == NULL || *timestamp == '\0' ||
	    *nonce == '\0' || *signature == '\0') {
		refuse(r, NULL, "a credential and a proof are needed");
		return 0;
	}
	if (iso_parse(timestamp, &ms) == -1 ||
	    (skew = ms - server_now(srv)) > CLOCK_WINDOW ||
	    skew < -CLOCK_WINDOW) {
		refuse(r, "PROOF_INVALID", "the proof's time is not now");
		return 0;
	}
	sha256_hex(hash, credential, strlen(credential));
	if ((c = credential_of(srv, hash, id)) == NULL) {
		refuse(r, "CREDENTIAL_INVALID", "the credential is not valid");
		return 0;
	}
	buf_init(&text);
	auth_canonical(&text, r->route->method, r->path, timestamp, nonce,
	    r->body_hash, credential);
	ok = auth_verify(&text, signature, c->public_key);
	buf_free(&text);
	if (!ok) {
		refuse(r, "PROOF_INVALID", "the signature does not verify");
		return 0;
	}
	if (!nonce_take(srv, hash, nonce)) {
		refuse(r, "PROOF_REPLAYED", "the nonce was used before");
		return 0;
	}
	memcpy(r->identity, c->identity, sizeof(r->identity));
	r->binding = c->binding;
	return 1;
}

static int
check_worker(struct server *srv, struct req *r)
{
	char *credential;
	int ok;

	if (!srv->set.paired) {
		if (token_matches(srv, r))
			return 1;
		refuse(r, NULL, "the token is missing or wrong");
		return 0;
	}
	credential = authorization(r, "Bridge");
	ok = check_proof(srv, r, auth_worker_id(r), credential);
	free(credential);
	return ok;
}

int
auth_check(struct server *srv, struct req *r)
{
	switch (r->route->auth) {
	case AUTH_ADMIN:
		if (srv->set.token == NULL) {
			req_error(r, 503, NULL, "no administrator token");
			return 0;
		}
		if (!token_matches(srv, r)) {
			refuse(r, NULL, "the token is missing or wrong");
			return 0;
		}
		return 1;
	case AUTH_WORKER:
		return check_worker(srv, r);
	default:
		return 1;
	}
}
