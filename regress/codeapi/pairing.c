#include "config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "canon.h"
#include "control.h"
#include "dispatch.h"
#include "http.h"
#include "names.h"
#include "pairing.h"

#define CODE_BYTES       24
#define CREDENTIAL_BYTES 32
#define IDENTITY_BYTES   18
#define PEM_MAX          4096

int
binding_valid(const struct json *v)
{
	static const char *const types[] = { "deployment", "tenant", "user",
		"role", "group" };
	const struct json *principal;
	const char *type;
	size_t i;

	principal = json_get(v, "principal");
	type = json_text(json_get(principal, "type"));
	if (!name_is_id(json_text(json_get(v, "tenantId"))) ||
	    !name_is_id(json_text(json_get(principal, "id"))) || type == NULL)
		return 0;
	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (strcmp(type, types[i]) == 0)
			return 1;
	}
	return 0;
}

/* A binding without the members that do not belong in it. */
static struct json *
binding_copy(const struct json *v)
{
	struct json *b, *p;
	const struct json *principal;

	principal = json_get(v, "principal");
	p = json_object();
	json_put(p, "type", json_copy(json_get(principal, "type")));
	json_put(p, "id", json_copy(json_get(principal, "id")));
	b = json_object();
	json_put(b, "tenantId", json_copy(json_get(v, "tenantId")));
	json_put(b, "principal", p);
	return b;
}

void
pairing_code_clear(struct worker *w)
{
	w->code.expires = 0;
	json_free(w->code.binding);
	w->code.binding = NULL;
}

void
pairing_issue(
    struct server *srv, struct req *r, const char *id, struct json *binding)
{
	struct worker *w;
	char code[RANDOM_ID_SIZE], until[ISO_TIME_SIZE];
	struct buf b;

	w = worker_find(srv, id, 1);
	pairing_code_clear(w);
	random_id(code, CODE_BYTES);
	sha256_hex(w->code.hash, code, strlen(code));
	w->code.expires = server_now(srv) + srv->set.pairing_ttl;
	w->code.generation = w->pairing_generation;
	w->code.binding = binding;
	iso_time(until, w->code.expires);
	reply_open(&b);
	w_str(&b, "workerId", w->id);
	w_str(&b, "code", code);
	w_str(&b, "expiresAt", until);
	w_close(&b, '}');
	req_reply(r, 200, &b);
}

void
pairing_create(struct server *srv, struct req *r)
{
	const struct json *binding;
	const char *id;

	id = json_text(json_get(r->body, "workerId"));
	binding = json_get(r->body, "binding");
	if (!srv->set.paired)
		req_error(r, 409, NULL, "this server uses a static token");
	else if (!name_is_id(id) || !worker_configured(srv, id))
		req_error(r, 400, NULL, "workerId is not valid here");
	else if (binding != NULL && !binding_valid(binding))
		req_error(r, 400, NULL, "binding is not valid");
	else if (binding == NULL && srv->set.dynamic)
		req_error(r, 400, NULL, "dynamic workers need a binding");
	else
		pairing_issue(
		    srv, r, id, binding == NULL ? NULL : binding_copy(binding));
}

/* The key of a SubjectPublicKeyInfo PEM; -1 if it is not Ed25519. */
static int
parse_public_key(const char *pem, uint8_t key[32])
{
	static const char head[] = "-----BEGIN PUBLIC KEY-----";
	static const char tail[] = "-----END PUBLIC KEY-----";
	static const uint8_t spki[] = { 0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
		0x2b, 0x65, 0x70, 0x03, 0x21, 0x00 };
	const char *start, *end;
	uint8_t der[sizeof(spki) + 32];
	char text[PEM_MAX];
	size_t n;

	if ((start = strstr(pem, head)) == NULL)
		return -1;
	start += strlen(head);
	if ((end = strstr(start, tail)) == NULL)
		return -1;
	for (n = 0; start < end && n < sizeof(text); start++) {
		if (!isspace((unsigned char)*start))
			text[n++] = *start;
	}
	if (base64_decode(der, sizeof(der), text, n) != (int)sizeof(der) ||
	    memcmp(der, spki, sizeof(spki)) != 0)
		return -1;
	memcpy(key, der + sizeof(spki), 32);
	return 0;
}

struct credential *
credential_find(struct server *srv, const char *hash)
{
	struct credential *c;

	TAILQ_FOREACH (c, &srv->credentials, entry) {
		if (strcmp(c->hash, hash) == 0)
			return c->expires > server_now(srv) ? c : NULL;
	}
	return NULL;
}

void
credentials_sweep(struct server *srv, int all)
{
	struct credential *c, *next;

	TAILQ_FOREACH_SAFE (c, &srv->credentials, entry, next) {
		if (!all && c->expires > server_now(srv))
			continue;
		TAILQ_REMOVE(&srv->credentials, c, entry);
		json_free(c->binding);
		free(c);
	}
}

/* Makes a credential of the worker's identity, the active one, and answers. */
static void
issue_credential(struct server *srv, struct req *r, struct worker *w,
    const uint8_t key[32], const struct json *binding)
{
	struct credential *c;
	char secret[RANDOM_ID_SIZE], until[ISO_TIME_SIZE];
	struct buf b;

	random_id(secret, CREDENTIAL_BYTES);
	c = xcalloc(1, sizeof(*c));
	sha256_hex(c->hash, secret, strlen(secret));
	memcpy(c->worker, w->id, sizeof(c->worker));
	memcpy(c->identity, w->identity, sizeof(c->identity));
	memcpy(c->public_key, key, sizeof(c->public_key));
	c->binding = json_copy(binding);
	c->expires = server_now(srv) + srv->set.credential_ttl;
	TAILQ_INSERT_TAIL(&srv->credentials, c, entry);
	memcpy(w->active_hash, c->hash, sizeof(w->active_hash));
	w->identity_expires = c->expires;
	iso_time(until, c->expires);
	reply_open(&b);
	w_str(&b, "workerId", w->id);
	w_str(&b, "credential", secret);
	w_str(&b, "expiresAt", until);
	w_close(&b, '}');
	req_reply(r, 200, &b);
}

/* The worker whose live code has that hash, or NULL. */
static struct worker *
code_owner(struct server *srv, const char *hash)
{
	struct worker *w;

	TAILQ_FOREACH (w, &srv->workers, entry) {
		if (w->code.expires > server_now(srv) &&
		    strcmp(w->code.hash, hash) == 0)
			return w;
	}
	return NULL;
}

static void
redeem(struct server *srv, struct req *r, const char *id, const char *code,
    const char *pem)
{
	struct worker *w;
	char hash[HASH_SIZE];
	uint8_t key[32];

	sha256_hex(hash, code, strlen(code));
	if ((w = code_owner(srv, hash)) == NULL) {
		req_error(r, 401, "PAIRING_INVALID", "the code is not valid");
		return;
	}
	if (strcmp(w->id, id) != 0) {
		pairing_code_clear(w);
		req_error(r, 401, "PAIRING_INVALID", "the code is not valid");
		return;
	}
	if (parse_public_key(pem, key) == -1) {
		req_error(r, 400, "PUBLIC_KEY_INVALID",
		    "publicKey is not an Ed25519 key in PEM");
		return;
	}
	if (w->code.generation != w->pairing_generation) {
		pairing_code_clear(w);
		req_error(r, 401, "PAIRING_INVALID", "the code is not valid");
		return;
	}
	random_id(w->identity, IDENTITY_BYTES);
	issue_credential(srv, r, w, key, w->code.binding);
	pairing_code_clear(w);
}

void
pairing_redeem(struct server *srv, struct req *r)
{
	const struct json *code, *pem;
	const char *id;

	id = json_text(json_get(r->body, "workerId"));
	code = json_get(r->body, "code");
	pem = json_get(r->body, "publicKey");
	if (!srv->set.paired)
		req_error(r, 409, NULL, "this server uses a static token");
	else if (!json_int(json_get(r->body, "protocolVersion"), 1, 1, NULL) ||
	    !name_is_id(id) || !worker_configured(srv, id) ||
	    !json_is(code, JSON_STRING) || json_units(code) < 16 ||
	    !json_is(pem, JSON_STRING) || json_units(pem) > PEM_MAX)
		req_error(r, 400, NULL, "the request is not valid");
	else
		redeem(srv, r, id, code->u.string.data, pem->u.string.data);
}

void
pairing_refresh(struct server *srv, struct req *r)
{
	struct credential *c;
	struct worker *w;
	uint8_t key[32];

	w = worker_find(srv, r->worker_id, 0);
	if (w == NULL || worker_identity(w) == NULL ||
	    (c = credential_find(srv, w->active_hash)) == NULL) {
		req_error(r, 401, "CREDENTIAL_INVALID",
		    "the worker has no live identity");
		return;
	}
	memcpy(key, c->public_key, sizeof(key));
	issue_credential(srv, r, w, key, c->binding);
}

void
worker_revoke(struct worker *w)
{
	const char *current;

	w->pairing_generation++;
	pairing_code_clear(w);
	w->active_hash[0] = w->identity[0] = '\0';
	w->identity_expires = 0;
	if ((current = worker_current(w)) != NULL)
		worker_incarnation(w, current, 1)->fenced = 1;
	worker_unregister(w);
	dispatch_pump(w);
}

void
pairing_revoke(struct server *srv, struct req *r)
{
	if (!name_is_id(r->worker_id) ||
	    !worker_configured(srv, r->worker_id)) {
		req_error(r, 400, NULL, "workerId is not valid here");
		return;
	}
	worker_revoke(worker_find(srv, r->worker_id, 1));
	req_accept(r, "revoked");
}
