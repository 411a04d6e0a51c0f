#ifndef CODEAPI_CLIENT_H
#define CODEAPI_CLIENT_H

#include <sys/types.h>

#include <stdint.h>

#include "buf.h"
#include "json.h"

/* A server that runs as a child of the test. */
struct child {
	pid_t pid;
	int port;
	char token[128];
};

/* A worker that signs its requests by itself. */
struct client {
	int port;
	const char *id;
	const char *escaped; /* the id as it stands in paths */
	char incarnation[32];
	char credential[64];
	char nonce[32]; /* if set, used once instead of a
			 * random one */
	int64_t skew; /* ms added to the timestamp */
	uint8_t public_key[32];
	uint8_t secret_key[64];
};

/* What came back; status 0 is a connection closed without an answer. */
struct answer {
	int status;
	char *body;
	size_t len;
	struct json *json; /* NULL if the body is not JSON */
};

/* What is needed of an assignment to acknowledge and settle it. */
struct job {
	char id[64];
	char token[64];
	long long generation;
	long long slot; /* -1 is none */
	long long remaining;
	char *request; /* serialised; owned */
};

/*
 * Starts ./codeapi with the arguments, a list that ends with NULL, and waits
 * until it listens. Ends the test program if it does not.
 */
void child_start(struct child *, const char *const *args);

/* Ends it by SIGTERM; returns its exit status, or -1. */
int child_stop(struct child *);

/* A connection to the server; ends the test program if there is none. */
int http_connect(int port);

/* Sends a request and returns the socket. headers end with CRLF, or NULL. */
int http_send(int port, const char *method, const char *path,
    const char *headers, const char *body);

/* 1 if bytes or the end can be read within the time. */
int http_pending(int fd, int ms);

/* Reads the answer and closes the socket. */
void http_receive(int fd, struct answer *);
void answer_free(struct answer *);

/* Send and receive; only the status is kept. */
int http_status(int port, const char *method, const char *path,
    const char *headers, const char *body);

/* Member of an answer as text or number; NULL or -1 if absent. */
const char *answer_text(const struct answer *, const char *);
long long answer_number(const struct answer *, const char *);

/* "/v1/..." with the id put in; the result is static. */
const char *client_path(const struct client *, const char *tail);

/* Makes a key pair and a random incarnation id. */
void client_init(struct client *, int port, const char *id);
void client_incarnate(struct client *);

/* The public key as a JSON string of PEM text; static. */
const char *client_pem(const struct client *);

/* Pairs through the control route; 1 if it worked. */
int client_pair(struct client *);

/* Sends a signed POST; hashed is what is signed instead of the body. */
int client_send_as(
    struct client *, const char *path, const char *body, const char *hashed);
int client_send(struct client *, const char *path, const char *body);
void client_call(
    struct client *, const char *path, const char *body, struct answer *);

/* Status of a signed POST, and the code in out of 64 bytes if not NULL. */
int client_status(
    struct client *, const char *path, const char *body, char *code);

/* Registration with that many slots (0: member absent), then ready. */
int client_register(struct client *, int slots, char *code);
int client_ready(struct client *, long long generation, char *code);
int client_start(struct client *, int slots);

/* Lease with a wait; slot -1 is the legacy lane. */
int client_lease_send(struct client *, int slot, int wait_ms);
int client_lease_receive(int fd, struct job *);
int client_lease(struct client *, int slot, int wait_ms, struct job *);
void job_free(struct job *);

/* Routes of an assignment; status, and code if not NULL. */
int client_ack(struct client *, const struct job *, char *code);
int client_settle(struct client *, const struct job *, const char *status,
    const char *member, char *code);
int client_receipt(struct client *, const struct job *, const char *route,
    const char *text, char *code);
int client_cancelled(struct client *, const struct job *);

/* Sends a caller's request; the socket. */
int caller_send(int port, const char *body);

#endif
