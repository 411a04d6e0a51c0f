#ifndef BRIDGE_API_H
#define BRIDGE_API_H

#include <stdint.h>

#include "bridge.h"
#include "buf.h"

struct api;
struct call;
struct imsg;
struct json;

/*
 * One attempt of one Code API request: signed by the monitor (protocol 4),
 * sent, and its answer put into a class (protocol 2.4).
 */
enum outcome {
	API_OK, /* 2xx with a JSON object */
	API_DEFINITE, /* refused for good */
	API_AMBIGUOUS /* may or may not have been done */
};

struct reply {
	enum outcome outcome;
	int terminal; /* ends the process where the loop sees it */
	int status; /* 0: there is no complete answer */
	char code[48]; /* machine code of a refusal, or "" */
	char text[FAILURE_TEXT]; /* for the log: "lease: HTTP 502" */
	char error[FAILURE_TEXT]; /* the server's own words; pairing only */
	const struct json *json; /* API_OK: the object; else NULL */
};

/*
 * Class of an answer with this status; json_ok says whether a 2xx body is a
 * JSON object.
 */
enum outcome api_outcome(int status, int json_ok);

/* 1 if an answer means that this worker is shut out (protocol 2.4). */
int api_terminal(int status, const char *code);

/*
 * 1 if a refused proof can be explained by the clocks: the server's Date
 * (ms, or -1) is so far from the local time of the proof that the time stamp
 * is outside the window of 60 s (code-api-server 4.3). *skew gets server
 * minus local in ms.
 */
int api_clock_suspect(int status, const char *code, int64_t date,
    int64_t proof_time, int64_t *skew);

struct api *api_new(struct bridge *);
void api_free(struct api *);

#define CALL_UNSIGNED 1 /* no authentication: pairing */

/*
 * Starts a request to target ("/bridge/..." below the base URL). name is a
 * word for the log, kept by reference. body is moved out and overwritten at
 * the end. done is called once, from the event loop, unless the call is
 * cancelled; within limit ms, counted from now, at the latest.
 */
struct call *api_call(struct bridge *, const char *name, const char *target,
    struct buf *body, int64_t limit, int flags,
    void (*done)(const struct reply *, void *), void *arg);

/* Targets; the caller frees them. what is "lease"; "ack". */
char *api_worker_target(const struct bridge *, const char *what);
char *api_assignment_target(
    const struct bridge *, const char *assignment, const char *what);

/* Status of the answer once all its headers came, else 0. */
int call_status(const struct call *);

/* Ends *c without calling back and makes it NULL; NULL is fine. */
void call_cancel(struct call **);

/*
 * While the monitor stores a new credential no proof is asked for, so that
 * a request never carries another credential than its proof.
 */
void api_hold(struct api *);
void api_release(struct api *);

/* MSG_SIGNED */
int api_signed(struct peer *, struct imsg *, void *bridge);

/* Makes a reply of the right class but the wrong shape ambiguous. */
void reply_misshapen(struct reply *, const char *name, const char *what);

#endif
