#ifndef REGRESS_MATRIX_H
#define REGRESS_MATRIX_H

#include <stddef.h>

/*
 * What a worker has to do when one request of the Code API fails in one way
 * while it is in one situation. Every expectation is taken from the protocol
 * (chapter numbers stand beside the rows), none from the program.
 */

/* Class of an answer, protocol 2.4. */
enum class { CLASS_OK, CLASS_DEFINITE, CLASS_AMBIGUOUS };

struct fault {
	const char *name;
	const char *rule; /* members of a rule of /control/faults */
	enum class class;
	int shut_out; /* status 401 or 403 */
	int fenced; /* code WORKER_FENCED or WORKER_QUARANTINED */
	int not_found; /* status 404 */
	int slow; /* lasts until the worker's own limit */
};

enum situation {
	SI_IDLE, /* then a mutation comes */
	SI_IDLE_READ, /* then a read comes */
	SI_READING,
	SI_MUTATING,
	SI_SETTLING_READ, /* a result */
	SI_SETTLING, /* of a mutation */
	SI_REJECTING, /* "nothing happened", of a mutation */
	SI_BUSY_SETTLING /* a settlement is being repeated meanwhile */
};

enum outcome {
	DONE, /* done exactly once, caller has the result, no marker */
	UNDONE, /* not done, caller is told so, no marker, goes on */
	UNANSWERED, /* done; the caller's time runs out; goes on */
	CONFLICT, /* the caller gets the tool's own refusal */
	ENDS, /* status 1, not done, no marker */
	ENDS_DONE, /* status 1, a read was done, no marker */
	ENDS_MARKED /* status 1, done at most once, marker left */
};

struct row {
	const char *route;
	enum situation situation;
	const char *chapter;
	enum outcome ok;
	enum outcome definite;
	enum outcome ambiguous;
	enum outcome shut_out; /* 401, 403 */
	enum outcome fenced; /* by code */
	enum outcome not_found;
	int always; /* the fault does not go away; AMBIGUOUS only */
};

extern const struct fault faults[];
extern const size_t nfaults;
extern const struct row rows[];
extern const size_t nrows;

/* The expected outcome; -1 if the combination is not a cell. */
int matrix_expect(const struct row *, const struct fault *);

#endif
