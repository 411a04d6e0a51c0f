#ifndef CODEAPI_JOURNAL_H
#define CODEAPI_JOURNAL_H

#include <stdint.h>

struct buf;
struct req;
struct server;

struct journal *journal_new(void);
void journal_free(struct journal *);
void journal_clear(struct journal *);

/* Enters a worker request at its arrival and numbers it from 1 on. */
void journal_arrival(
    struct server *, struct req *, const void *raw, size_t rawlen);

/* Completes the entry; status 0 if the request was never answered. */
void journal_answer(
    struct server *, const struct req *, int status, const char *code);

/* Writes the entries after that number as the answer's body. */
void journal_write(const struct server *, struct buf *, uint64_t since);

/* Writes {"<route>":count,...} of all worker requests ever. */
void journal_counters(const struct server *, struct buf *);

#endif
