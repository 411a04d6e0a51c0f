#ifndef CODEAPI_AUTH_H
#define CODEAPI_AUTH_H

#include <stddef.h>

#include "server.h"

struct req;

/*
 * Authenticates a request as its route asks (chapter 4). Returns 1 if it may
 * go on; else it has been answered. On success of a paired worker the
 * request's identity and binding are set.
 */
int auth_check(struct server *, struct req *);

/* The worker id a request speaks for: path, or body on register; or NULL. */
const char *auth_worker_id(const struct req *);

/* The canonical string of 4.4, not NUL-terminated. */
void auth_canonical(struct buf *, const char *method, const char *path,
    const char *timestamp, const char *nonce, const char *body_hash,
    const char *credential);

/* 1 if the base64 text is the signature of the string by that key. */
int auth_verify(
    const struct buf *, const char *signature, const uint8_t key[32]);

/* The memory of accepted nonces (4.5). */
struct nonces *nonces_new(void);
void nonces_free(struct nonces *);
void nonces_clear(struct nonces *);

#endif
