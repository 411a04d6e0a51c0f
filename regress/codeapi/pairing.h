#ifndef CODEAPI_PAIRING_H
#define CODEAPI_PAIRING_H

#include "server.h"

struct req;

/* Routes of chapter 5. */
void pairing_create(struct server *, struct req *);
void pairing_redeem(struct server *, struct req *);
void pairing_refresh(struct server *, struct req *);
void pairing_revoke(struct server *, struct req *);

/* Makes a code for a worker id and answers as 5.1; takes over the binding. */
void pairing_issue(
    struct server *, struct req *, const char *id, struct json *binding);

/* Revokes everything of a worker (5.5). */
void worker_revoke(struct worker *);

/* Forgets a worker's live code, if any. */
void pairing_code_clear(struct worker *);

/* The live credential of that SHA-256, or NULL (5.3). */
struct credential *credential_find(struct server *, const char *hash);

/* Drops expired credentials; all of them if all is set. */
void credentials_sweep(struct server *, int all);

/* 1 if a binding is valid (5.1). */
int binding_valid(const struct json *);

#endif
