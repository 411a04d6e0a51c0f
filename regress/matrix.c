#include "config.h"

#include "matrix.h"

#define STATUS(n)  "\"action\":\"status\",\"status\":" #n
#define CODE(n, c) STATUS(n) ",\"code\":\"" c "\""
#define ACTION(a)  "\"action\":\"" a "\""
#define BODY(n, b) STATUS(n) ",\"body\":\"" b "\""
#define OK         CLASS_OK, 0, 0, 0, 0
#define DEFINITE   CLASS_DEFINITE, 0, 0, 0, 0
#define NOT_FOUND  CLASS_DEFINITE, 0, 0, 1, 0
#define AMBIGUOUS  CLASS_AMBIGUOUS, 0, 0, 0, 0
#define SHUT_OUT   CLASS_DEFINITE, 1, 0, 0, 0
#define FENCED     CLASS_DEFINITE, 0, 1, 0, 0

/* Classes: protocol 2.4 and, for answers of the wrong shape, 2.2. */
const struct fault faults[] = {
	{ "slow headers", ACTION("slow-headers") ",\"ms\":1", OK },
	{ "slow body", ACTION("slow-body") ",\"ms\":1", OK },

	{ "302", STATUS(302), DEFINITE },
	{ "400", STATUS(400), DEFINITE },
	{ "404", STATUS(404), NOT_FOUND },
	{ "404 ASSIGNMENT_NOT_FOUND", CODE(404, "ASSIGNMENT_NOT_FOUND"),
	    NOT_FOUND },
	{ "409", STATUS(409), DEFINITE },
	{ "409 ASSIGNMENT_FENCED", CODE(409, "ASSIGNMENT_FENCED"), DEFINITE },
	{ "409 ASSIGNMENT_EXPIRED", CODE(409, "ASSIGNMENT_EXPIRED"), DEFINITE },
	{ "409 WORKER_MISMATCH", CODE(409, "WORKER_MISMATCH"), DEFINITE },
	{ "409 WORKSPACE_QUARANTINED", CODE(409, "WORKSPACE_QUARANTINED"),
	    DEFINITE },
	{ "409 WORKER_OFFLINE", CODE(409, "WORKER_OFFLINE"), DEFINITE },
	{ "413", STATUS(413), DEFINITE },

	{ "drop before", ACTION("drop-before"), AMBIGUOUS },
	{ "drop after", ACTION("drop-after"), AMBIGUOUS },
	{ "reset", ACTION("reset"), AMBIGUOUS },
	{ "reset after", ACTION("reset-after"), AMBIGUOUS },
	{ "408", STATUS(408), AMBIGUOUS },
	{ "429", STATUS(429), AMBIGUOUS },
	{ "500", STATUS(500), AMBIGUOUS },
	{ "502 HTML", BODY(502, "<html><h1>Bad Gateway</h1></html>"),
	    AMBIGUOUS },
	{ "503", STATUS(503), AMBIGUOUS },
	{ "503 WORKER_BUSY", CODE(503, "WORKER_BUSY"), AMBIGUOUS },
	{ "204", BODY(204, ""), AMBIGUOUS },
	{ "200 HTML", ACTION("html"), AMBIGUOUS },
	{ "200 empty", ACTION("empty"), AMBIGUOUS },
	{ "200 garbage", ACTION("garbage"), AMBIGUOUS },
	{ "200 half JSON", ACTION("half-json"), AMBIGUOUS },
	{ "200 array", BODY(200, "[]"), AMBIGUOUS },
	{ "no answer", ACTION("stall"), CLASS_AMBIGUOUS, 0, 0, 0, 1 },

	{ "401", STATUS(401), SHUT_OUT },
	{ "401 PROOF_INVALID", CODE(401, "PROOF_INVALID"), SHUT_OUT },
	{ "401 PROOF_REPLAYED", CODE(401, "PROOF_REPLAYED"), SHUT_OUT },
	{ "401 CREDENTIAL_INVALID", CODE(401, "CREDENTIAL_INVALID"), SHUT_OUT },
	{ "403", STATUS(403), SHUT_OUT },
	{ "403 WORKER_UNAUTHORIZED", CODE(403, "WORKER_UNAUTHORIZED"),
	    SHUT_OUT },
	{ "409 WORKER_FENCED", CODE(409, "WORKER_FENCED"), FENCED },
	{ "409 WORKER_QUARANTINED", CODE(409, "WORKER_QUARANTINED"), FENCED },
	{ "500 WORKER_QUARANTINED", CODE(500, "WORKER_QUARANTINED"),
	    CLASS_AMBIGUOUS, 0, 1, 0, 0 },
};
const size_t nfaults = sizeof(faults) / sizeof(faults[0]);

/* Columns: OK, DEFINITE, AMBIGUOUS, 401 and 403, fenced, 404. */
const struct row rows[] = {
	/*
	 * A registration that fails is tried again after a pause; 401, 403
	 * and the two codes end the process (14).
	 */
	{ "register", SI_IDLE, "7.5, 14", DONE, DONE, DONE, ENDS, ENDS, DONE,
	    0 },
	/*
	 * A heartbeat that fails once is repeated while the registration
	 * lives (6.2, decided in README); TERMINAL ends the process, which
	 * leaves the marker of a mutation (9.4 row 5).
	 */
	{ "register", SI_READING, "6.2, 9.4", DONE, DONE, DONE, ENDS, ENDS,
	    DONE, 0 },
	{ "register", SI_MUTATING, "6.2, 9.4", DONE, DONE, DONE, ENDS_MARKED,
	    ENDS_MARKED, DONE, 0 },
	{ "register", SI_BUSY_SETTLING, "6.2, 9.4", DONE, DONE, DONE,
	    ENDS_MARKED, ENDS_MARKED, DONE, 0 },

	/* A lost lease answer costs nothing (7.3, code-api-server 8.4). */
	{ "lease", SI_IDLE_READ, "7.1, 14", DONE, DONE, DONE, ENDS, ENDS, DONE,
	    0 },
	{ "lease", SI_IDLE, "7.1, 14", DONE, DONE, DONE, ENDS, ENDS, DONE, 0 },

	/*
	 * DEFINITE: nothing is done for this delivery; the server that did
	 * not record it hands the assignment out again (code-api-server 8.4).
	 * AMBIGUOUS: rejected as unexecuted (7.4).
	 */
	{ "ack", SI_IDLE_READ, "7.3, 7.4", DONE, DONE, UNDONE, ENDS, ENDS, DONE,
	    0 },
	{ "ack", SI_IDLE, "7.3, 7.4", DONE, DONE, UNDONE, ENDS, ENDS, DONE, 0 },

	/* 404 is "cancelled"; everything else is ignored, 401 too (10.1). */
	{ "cancellation", SI_READING, "10.1, 9.4 row 2", DONE, DONE, DONE, DONE,
	    DONE, UNDONE, 0 },
	{ "cancellation", SI_MUTATING, "10.1, 9.4 row 4", DONE, DONE, DONE,
	    DONE, DONE, UNDONE, 0 },

	/* Settlement, 9.3 and the rows of 9.4; then 7.5 for TERMINAL. */
	{ "settle", SI_SETTLING_READ, "9.4 row 1", DONE, UNANSWERED, DONE,
	    ENDS_DONE, ENDS_DONE, UNANSWERED, 0 },
	{ "settle", SI_SETTLING, "9.4 row 3", DONE, ENDS_MARKED, DONE,
	    ENDS_MARKED, ENDS_MARKED, ENDS_MARKED, 0 },
	{ "settle", SI_REJECTING, "9.4 row 4", CONFLICT, ENDS_MARKED, CONFLICT,
	    ENDS_MARKED, ENDS_MARKED, ENDS_MARKED, 0 },
	{ "settle", SI_SETTLING_READ, "9.4 row 1", DONE, DONE, UNANSWERED, DONE,
	    DONE, DONE, 1 },
	{ "settle", SI_SETTLING, "9.4 row 3", DONE, DONE, ENDS_MARKED, DONE,
	    DONE, DONE, 1 },

	/*
	 * Rotation. During an assignment only 401 and 403 abort, any other
	 * failure is repeated (3.3, 14); what is being settled is delivered.
	 */
	{ "refresh", SI_IDLE, "3.3, 14", DONE, DONE, DONE, ENDS, ENDS, DONE,
	    0 },
	{ "refresh", SI_READING, "3.3, 9.4 row 2", DONE, DONE, DONE, UNDONE,
	    DONE, DONE, 0 },
	{ "refresh", SI_MUTATING, "3.3, 9.4 row 4", DONE, DONE, DONE, UNDONE,
	    DONE, DONE, 0 },
	{ "refresh", SI_BUSY_SETTLING, "3.3, 9.3", DONE, DONE, DONE, DONE, DONE,
	    DONE, 0 },
};
const size_t nrows = sizeof(rows) / sizeof(rows[0]);

int
matrix_expect(const struct row *r, const struct fault *f)
{
	if (r->always && (f->class != CLASS_AMBIGUOUS || f->slow || f->fenced))
		return -1;
	/* A settlement that failed with 5xx is repeated whatever it says. */
	if (f->fenced && f->class == CLASS_AMBIGUOUS &&
	    (r->situation == SI_SETTLING_READ || r->situation == SI_SETTLING ||
		r->situation == SI_REJECTING))
		return r->ambiguous;
	if (f->shut_out)
		return r->shut_out;
	if (f->fenced)
		return r->fenced;
	if (f->not_found)
		return r->not_found;
	switch (f->class) {
	case CLASS_OK:
		return r->ok;
	case CLASS_DEFINITE:
		return r->definite;
	case CLASS_AMBIGUOUS:
		return r->ambiguous;
	}
	return -1;
}
