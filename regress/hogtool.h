#ifndef REGRESS_HOGTOOL_H
#define REGRESS_HOGTOOL_H

#include <sys/types.h>
#include <stdint.h>

#include "harness.h"

/*
 * For tests of limits: an executor whose roots have the program "hog" in
 * them, which the variable HOG names. A function fails the test when its step
 * does not work.
 */
#define WAIT_S 60 /* for what must happen, on a machine with other work */

double hog_now(void); /* monotonic, seconds */

#define WAIT_UNTIL(condition)                                   \
	do {                                                    \
		double end_ = hog_now() + WAIT_S;               \
                                                                \
		while (!(condition)) {                          \
			if (hog_now() > end_)                   \
				fail_msg("never: " #condition); \
			usleep(1000);                           \
		}                                               \
	} while (0)

/* As harness_init and harness_start, with processes as the limit. */
void hog_begin(struct harness *, size_t nroots, uint32_t processes);
void hog_start(struct harness *);

/* Runs a command that ends with 0: its standard output, to be freed. */
char *hog_output(struct harness *, uint32_t root, const char *command);

/* The same, and that is what it prints. */
void hog_expect(
    struct harness *, uint32_t root, const char *command, const char *out);

/* The number before "error" in what the hog prints. */
unsigned long hog_number(const char *text, const char *error);

/* A line that becomes the hog of root 0, to be freed. */
char *hog_command(const struct harness *, const char *what);

/*
 * Starts a command in root 0 and waits until it has made the directory
 * "begun": its id. Ends it: every process of it is dead then, and the root
 * can be used again.
 */
uint32_t hog_hold(struct harness *, const char *command);
void hog_release(struct harness *, uint32_t id);

#endif
