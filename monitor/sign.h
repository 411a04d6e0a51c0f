#ifndef MONITOR_SIGN_H
#define MONITOR_SIGN_H

#include <stddef.h>
#include <stdint.h>

#include "msg.h"
#include "storage.h"

/* Ed25519 key pair in guarded memory (protocol 3.1). */
struct key {
	unsigned char *sk; /* 64 bytes, libsodium form; NULL if there is none */
};

void key_generate(struct key *);

/* From the 32-byte seed; for the test vectors. */
void key_from_seed(struct key *, const unsigned char seed[32]);

/* Parses a PKCS#8 PEM: 0, or -1. */
int key_from_pem(struct key *, const char *, size_t);
void key_free(struct key *);

/* SubjectPublicKeyInfo PEM, allocated; three lines, each ended by LF. */
char *key_public_pem(const struct key *);

/* PKCS#8 PEM, in guarded memory. */
void key_private_pem(const struct key *, struct secret *);

/* 0 if the text is a SPKI PEM of this key's public half, else -1. */
int key_matches_public(const struct key *, const char *, size_t);

/*
 * The target of a signed request: the base path, then /bridge/workers/, then
 * "register" or the percent-encoded worker id and what belongs to it; visible
 * ASCII without query. 1 if the monitor may sign it.
 */
int sign_path_permitted(
    const char *base_path, const char *worker, const char *path);

/* Appends the worker id as it stands in a path (protocol 2.3). */
void sign_encode_id(struct buf *, const char *);

#define NONCE_BYTES 18

/*
 * Makes the three header values of protocol 4.1 for a request. The strings of
 * *a are allocated.
 */
void sign_request(const struct key *, const char *credential,
    const struct sign_request *, int64_t now,
    const unsigned char nonce[NONCE_BYTES], struct sign_answer *a);

#endif
