#ifndef REGRESS_MODEL_H
#define REGRESS_MODEL_H

#include <stdint.h>

#include "buf.h"
#include "msg.h"

/*
 * Files as they should be, in memory, and random requests on them: the judge
 * of tests that let processes die.
 */
struct model {
	char name[16]; /* relative to the root */
	int exists;
	struct buf text;
};

/* Begins the chance of a test: TEST_SEED, or another one each time. */
void chance_begin(void);
uint32_t chance(uint32_t n); /* 0 to n - 1 */

/* Names n files; each third one lies in a directory "d". */
void model_init(struct model *, size_t n);
void model_free(struct model *, size_t n);

/*
 * Makes a write_file, edit_file or preview_edit on a file of the model, to be
 * freed with request_free. Returns the code that is expected (EC_NONE:
 * fulfilled) and what the file then holds.
 */
enum error_code model_request(
    struct request *, const struct model *, struct buf *outcome);

/* 1 if the file in a directory is exactly this. */
int model_holds(const char *dir, const struct model *, int file_exists,
    const struct buf *text);

/* The file now has this content. */
void model_take(struct model *, const struct buf *);

#endif
