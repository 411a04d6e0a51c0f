#ifndef COMMON_PEER_H
#define COMMON_PEER_H

#include <stdint.h>

#include "imsg.h"

struct event_base;
struct peer;

/*
 * One row a message type that a peer may send. states is a mask of the
 * process states in which it is permitted (bit n = state n); a message that
 * is not in the table, comes in another state, carries a descriptor without
 * want_fd (or lacks it), or that its handler refuses by returning -1, ends
 * the process: a peer that breaks the protocol is not argued with.
 *
 * A handler may take im->fd by setting it to -1, and im->data by emptying it
 * (buf_init, or by sending it on); it must not keep pointers into what it
 * leaves.
 */
struct peer_handler {
	uint32_t type;
	uint32_t states;
	int want_fd;
	int (*handle)(struct peer *, struct imsg *, void *arg);
};

#define PEER_ANY_STATE 0xffffffffU

/*
 * Puts a socketpair end on the event loop. name (kept by reference) is used
 * in the log; state points to the current state number of the process; the
 * table ends with a row of type 0. gone is called once when the peer closed
 * or failed; it may free the peer.
 */
struct peer *peer_new(struct event_base *, const char *name, int fd,
    const struct peer_handler *table, const unsigned int *state,
    void (*gone)(struct peer *, void *), void *arg);

/* As peer_new with a framer that has been used for start-up messages. */
struct peer *peer_adopt(struct event_base *, const char *name, struct imsgbuf *,
    const struct peer_handler *table, const unsigned int *state,
    void (*gone)(struct peer *, void *), void *arg);

/*
 * From now on a peer that breaks the protocol is gone, after one line in the
 * log, and does not end this process. For peers of which there are several,
 * each with its own share of the work.
 */
void peer_isolate(struct peer *);

void peer_free(struct peer *);

/* Sends b (which is emptied) now, or as soon as the socket takes it. */
void peer_send(
    struct peer *, uint32_t type, uint32_t id, int fd, struct buf *b);

/* Waits until everything queued is written; for the moment before exit. */
void peer_drain(struct peer *);

const char *peer_name(const struct peer *);

#endif
