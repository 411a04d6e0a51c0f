#ifndef REGRESS_FILETOOL_H
#define REGRESS_FILETOOL_H

#include <sys/types.h>

#include "harness.h"

/*
 * What the tests of the file tools share. Names are relative to the first
 * root of the harness; a failed assertion ends the test (cmocka).
 */
#define MIB  1048576
#define S(s) (s), sizeof(s) - 1 /* a literal with embedded NULs */

char *in_root(const struct harness *, const char *name); /* caller frees */

/* Requests; they return when the answer is there. */
void ask_read(struct harness *, const char *path, struct answer *);
void ask_write(struct harness *, const char *path, const void *, size_t,
    int create, struct answer *);

struct pair {
	const char *old;
	size_t old_n;
	const char *new;
	size_t new_n;
};
#define PAIR(o, n)         \
	{                  \
		S(o), S(n) \
	}
/* Fills a request for OP_EDIT_FILE or OP_PREVIEW_EDIT; sha may be NULL. */
void edit_request(struct request *, enum operation, const char *path,
    const struct pair *, size_t n, const char *sha);
void ask_edit(struct harness *, enum operation, const char *path,
    const struct pair *, size_t n, const char *sha, struct answer *);

/* An error answer with this code and certainty, and the outcome told. */
void expect_failure(struct harness *, const char *what, struct answer *,
    enum error_code, enum certainty);

void expect_content(
    const struct harness *, const char *name, const void *, size_t);
/* Permission and set-id bits, and that it belongs to the account. */
void expect_mode(const struct harness *, const char *name, mode_t);

/* Number of names in a directory that look like a staging file. */
size_t count_staging(const struct harness *, const char *dir);

/*
 * Puts the test into a mount namespace of its own, so that it may mount
 * without trace; an ordinary user gets a user namespace with it. Call it
 * before anything else. 0, or -1 with errno.
 */
int private_mounts(void);
int mount_tmpfs(const char *path, const char *options);
int mount_bind(const char *from, const char *to);

/* Prints the reason and skips the test. */
void skip_because(const char *reason);

#endif
