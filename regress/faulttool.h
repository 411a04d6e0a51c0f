#ifndef REGRESS_FAULTTOOL_H
#define REGRESS_FAULTTOOL_H

#include "filetool.h"

/*
 * A harness whose file process can be made to fail, die or wait at named
 * steps (executor/fault.h). Its one root is in memory where that is possible.
 */
struct fault_harness {
	struct harness h;
	int mounted; /* the root is a mount of ours */
	int reached; /* FIFOs, both ends open */
	int go;
};
int fault_start(struct fault_harness *); /* -1 after a message */
void fault_stop(struct fault_harness *);

/* Lines "POINT ACTION" from now on; none any more. */
void set_fault(struct fault_harness *, const char *lines);
void clear_fault(struct fault_harness *);

/*
 * Waits until the file process waits at the point that a fault names, and
 * takes the fault away. The process goes on after let_go.
 */
void await_point(struct fault_harness *);
void let_go(struct fault_harness *);

/* Kills the executor and starts it again when all it made is dead. */
void start_again(struct fault_harness *);

/* Steps of an installation, in their order, and what death there leaves. */
enum left { OLD_FILE, NEW_FILE };
struct fault_point {
	const char *name;
	enum left over; /* when a file is replaced */
	enum left new; /* when there was none */
};
#define FAULT_POINTS 14
extern const struct fault_point fault_points[FAULT_POINTS];

#endif
