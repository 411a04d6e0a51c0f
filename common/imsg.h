#ifndef COMMON_IMSG_H
#define COMMON_IMSG_H

#include <sys/queue.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

/*
 * Framed messages over a Unix stream socketpair, after OpenBSD's imsg. The
 * wire format is in the file PROTOCOL: a message is one frame. A receiver
 * never takes a longer payload than the maximum it was made with. A message
 * can carry one descriptor.
 *
 * A long payload is copied by the kernel only: the sender's buffer is written
 * where it is, and the receiver reads into one buffer of exactly its size.
 */
#define IMSG_HEADER_SIZE 16
#define IMSG_MESSAGE_MAX (8U << 20) /* default for the payload, bytes */
#define IMSG_READ_SIZE   4096 /* what is read before a header is known */

struct imsg {
	uint32_t type;
	uint32_t id; /* of the request it belongs to, or 0 */
	int fd; /* owned by the receiver, or -1 */
	struct buf data;
};

struct imsg_frame {
	TAILQ_ENTRY(imsg_frame) entry;
	uint8_t header[IMSG_HEADER_SIZE];
	struct buf data;
	size_t sent; /* of header and data together */
	int fd;
};

#define IMSG_FDS_MAX 8

struct imsgbuf {
	int fd;
	size_t max; /* payload bytes of one message */
	int take_fds; /* descriptors are accepted at all */
	struct buf
	    in; /* received, not yet handed out; at most IMSG_READ_SIZE */
	struct imsg partial; /* a message that is longer than what is in in */
	size_t want; /* its payload bytes; 0: there is none */
	int fds[IMSG_FDS_MAX];
	size_t nfds;
	TAILQ_HEAD(, imsg_frame) out;
	size_t queued; /* bytes waiting in out */
};

/* Takes over fd, which must be non-blocking for use with an event loop. */
void imsg_init(struct imsgbuf *, int fd, size_t max, int take_fds);

/* Closes the socket and every descriptor that was not handed out. */
void imsg_clear(struct imsgbuf *);

/*
 * Queues a message. The bytes are copied. A descriptor other than -1 is taken
 * over and closed once it was sent.
 */
void imsg_compose(struct imsgbuf *, uint32_t type, uint32_t id, int fd,
    const void *data, size_t len);

/* As imsg_compose, but takes over the bytes and leaves *data empty. */
void imsg_compose_buf(
    struct imsgbuf *, uint32_t type, uint32_t id, int fd, struct buf *data);

/* 1 if frames wait to be written. */
int imsg_pending(const struct imsgbuf *);

/*
 * Writes what the socket takes. Returns 0, also when frames are left because
 * the socket is full, or -1 with errno when the peer is gone.
 */
int imsg_flush(struct imsgbuf *);

/*
 * Reads once, and not beyond the end of a message whose header is known; a
 * caller takes what is complete with imsg_get before it reads again. Returns
 * the number of bytes, 0 at end of file, -1 with errno (EAGAIN: nothing there
 * now; EPROTO: the peer broke the format or sent a descriptor where none is
 * accepted; all such descriptors are closed).
 */
ssize_t imsg_read(struct imsgbuf *);

/*
 * Hands out the next complete message: 1 and *im filled (the caller frees it
 * with imsg_free), 0 if there is none yet, -1 with errno EPROTO.
 */
int imsg_get(struct imsgbuf *, struct imsg *im);

/* Frees the payload (overwritten first) and closes a descriptor not taken. */
void imsg_free(struct imsg *);

/* For start-up, before there is an event loop; they retry on EINTR. */
int imsg_flush_blocking(struct imsgbuf *);

/*
 * Waits for the next message, at most timeout milliseconds (-1: for ever).
 * Returns 1, 0 at end of file, -1 with errno (ETIMEDOUT, EPROTO, ...).
 */
int imsg_get_blocking(struct imsgbuf *, struct imsg *, int timeout);

/*
 * Typed payloads. What m_add_X writes m_get_X reads, in the same order.
 * Integers are little-endian; strings and bytes have a 32-bit length in
 * front. A reader remembers the first error; m_end is -1 unless exactly
 * everything was read without one. Getters return zero or empty after an
 * error, so a parser may read all members and test once.
 */
struct mreader {
	const uint8_t *p;
	size_t left;
	int bad;
	int view; /* see msg.h: texts are not copied */
};

void m_add_u8(struct buf *, uint8_t);
void m_add_u32(struct buf *, uint32_t);
void m_add_u64(struct buf *, uint64_t);
void m_add_i64(struct buf *, int64_t);
void m_add_bytes(struct buf *, const void *, size_t); /* < 4 GiB */
void m_add_str(struct buf *, const char *); /* NULL is kept apart from "" */

void m_begin(struct mreader *, const struct imsg *);
uint8_t m_get_u8(struct mreader *);
uint32_t m_get_u32(struct mreader *);
uint64_t m_get_u64(struct mreader *);
int64_t m_get_i64(struct mreader *);

/* Points into the message; valid as long as it. */
const uint8_t *m_get_bytes(struct mreader *, size_t *len);

/* An own copy, or NULL if NULL was sent; an embedded NUL is an error. */
char *m_get_str(struct mreader *);

int m_end(const struct mreader *);

#endif
