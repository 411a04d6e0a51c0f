#ifndef COMMON_BUF_H
#define COMMON_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A growable string of bytes. Zero-initialise it or call buf_init. The bytes
 * are not NUL-terminated unless buf_cstr was called. A function that cannot
 * get memory ends the process (fatal), so callers bound what they append.
 */
struct buf {
	uint8_t *data;
	size_t len; /* bytes in use */
	size_t cap; /* bytes allocated */
};

void buf_init(struct buf *);

/* Frees the memory and leaves an empty buffer. */
void buf_free(struct buf *);

/* As buf_free, but overwrites the bytes first; for secrets. */
void buf_wipe(struct buf *);

/* Empties the buffer and keeps its memory. */
void buf_reset(struct buf *);

/* Makes room for n more bytes and returns where they go; len is unchanged. */
uint8_t *buf_reserve(struct buf *, size_t n);

/* For an empty one: makes room for n bytes and not more. */
void buf_exact(struct buf *, size_t n);

void buf_add(struct buf *, const void *, size_t);
void buf_addc(struct buf *, uint8_t);
void buf_adds(struct buf *, const char *);
void buf_addf(struct buf *, const char *, ...)
    __attribute__((__format__(__printf__, 2, 3)));

/* Drops the first n bytes; n must not exceed len. */
void buf_drain(struct buf *, size_t n);

/* Terminates the bytes with a NUL (not counted in len) and returns them. */
char *buf_cstr(struct buf *);

/* Moves the bytes out as a NUL-terminated string that the caller frees. */
char *buf_steal(struct buf *);

/* malloc and friends that end the process when there is no memory. */
void *xmalloc(size_t);
void *xcalloc(size_t, size_t);
void *xreallocarray(void *, size_t, size_t);
char *xstrdup(const char *);
char *xstrndup(const char *, size_t);
char *xasprintf(const char *, ...)
    __attribute__((__format__(__printf__, 1, 2)));

/*
 * Formats into a fixed buffer; a text that does not fit is cut. Returns the
 * number of bytes really in dst (never what would have been needed).
 */
size_t xsnprintf(char *, size_t, const char *, ...)
    __attribute__((__format__(__printf__, 3, 4)));

#endif
