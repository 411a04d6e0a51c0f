#include "config.h"

#include <sys/types.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "imsg.h"
#include "log.h"
#include "proc.h"

/*
 * Framing between the processes of the daemon: what a peer sends arrives as
 * it is, in whatever pieces, and what a broken or hostile one sends is
 * refused, without memory or descriptors staying behind.
 */
#define SMALL_MAX (3 * IMSG_READ_SIZE)
#define LARGE     (1024 * 1024 + 17)

static uint8_t pattern[LARGE];

static void
pair(struct imsgbuf *a, struct imsgbuf *b, size_t max, int take_fds)
{
	int sv[2];

	assert_int_equal(proc_socketpair(sv), 0);
	assert_int_equal(fcntl(sv[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(fcntl(sv[1], F_SETFL, O_NONBLOCK), 0);
	imsg_init(a, sv[0], max, take_fds);
	imsg_init(b, sv[1], max, take_fds);
}

static void
clear(struct imsgbuf *a, struct imsgbuf *b)
{
	imsg_clear(a);
	imsg_clear(b);
}

static int
open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	if (d == NULL)
		return 0;
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

/* Sends bytes as a peer that does not use imsg.c could. */
static void
send_raw(struct imsgbuf *a, const void *p, size_t n, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct cmsghdr *cm;
	struct msghdr msg;
	struct iovec iov;

	memset(&msg, 0, sizeof(msg));
	memset(&control, 0, sizeof(control));
	iov.iov_base = (void *)(uintptr_t)p;
	iov.iov_len = n;
	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	if (fd != -1) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(cm), &fd, sizeof(int));
	}
	assert_int_equal(sendmsg(a->fd, &msg, MSG_NOSIGNAL), n);
}

static void
header(uint8_t *h, uint32_t type, uint32_t len, uint32_t id, uint32_t flags)
{
	const uint32_t v[4] = { type, len, id, flags };
	size_t i;

	for (i = 0; i < IMSG_HEADER_SIZE; i++)
		h[i] = (uint8_t)(v[i / 4] >> (8 * (i % 4)));
}

static void
expect(struct imsg *im, uint32_t id, size_t len)
{
	assert_int_equal(im->type, 7);
	assert_int_equal(im->id, id);
	assert_int_equal(im->data.len, len);
	/* No more memory than it needs. */
	assert_true(im->data.cap <= (len == 0 ? 1 : len));
	if (len > 0)
		assert_memory_equal(im->data.data, pattern, len);
	imsg_free(im);
}

/* What waits in the kernel. */
static size_t
unread(const struct imsgbuf *b)
{
	int n;

	assert_int_equal(ioctl(b->fd, FIONREAD, &n), 0);
	return (size_t)n;
}

/* ---- what arrives ---- */

static void
messages_of_every_size_arrive_whole(void **state)
{
	static const size_t sizes[] = { 0, 1, IMSG_READ_SIZE - 17,
		IMSG_READ_SIZE - 16, IMSG_READ_SIZE - 15, IMSG_READ_SIZE, 3,
		SMALL_MAX, 0, 100000, LARGE, 5 };
	const size_t n = sizeof(sizes) / sizeof(sizes[0]);
	struct imsgbuf a, b;
	struct imsg im;
	struct buf data;
	ssize_t r;
	size_t i, got;
	int full = 0;

	(void)state;
	pair(&a, &b, IMSG_MESSAGE_MAX, 0);
	for (i = 0; i < n; i++) {
		/* By copy and by taking over. */
		if (i % 2 == 0) {
			imsg_compose(&a, 7, (uint32_t)i, -1, pattern, sizes[i]);
			continue;
		}
		buf_init(&data);
		buf_add(&data, pattern, sizes[i]);
		imsg_compose_buf(&a, 7, (uint32_t)i, -1, &data);
		assert_null(data.data);
		assert_int_equal(data.len, 0);
	}
	for (got = 0; got < n;) {
		assert_int_equal(imsg_flush(&a), 0);
		full |= imsg_pending(&a);
		r = imsg_read(&b);
		assert_true(r > 0);
		while (imsg_get(&b, &im) == 1) {
			expect(&im, (uint32_t)got, sizes[got]);
			got++;
		}
	}
	/* The socket is smaller than all of it. */
	assert_true(full);
	assert_false(imsg_pending(&a));
	assert_int_equal(a.queued, 0);
	assert_int_equal(imsg_get(&b, &im), 0);
	clear(&a, &b);
}

/* One byte at a time: two messages, the second right behind the first. */
static void
a_peer_that_trickles_is_understood(void **state)
{
	static const size_t sizes[] = { SMALL_MAX, 0, 40 };
	uint8_t h[IMSG_HEADER_SIZE];
	struct imsgbuf a, b;
	struct imsg im;
	size_t i, k, got = 0;

	(void)state;
	pair(&a, &b, IMSG_MESSAGE_MAX, 0);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		header(h, 7, (uint32_t)sizes[i], (uint32_t)i, 0);
		for (k = 0; k < sizeof(h) + sizes[i]; k++) {
			assert_int_equal(imsg_get(&b, &im), 0);
			send_raw(&a,
			    k < sizeof(h) ? h + k : pattern + k - sizeof(h), 1,
			    -1);
			assert_int_equal(imsg_read(&b), 1);
			assert_int_equal(imsg_read(&b), -1);
			assert_int_equal(errno, EAGAIN);
		}
		assert_int_equal(imsg_get(&b, &im), 1);
		expect(&im, (uint32_t)i, sizes[i]);
		got++;
	}
	assert_int_equal(got, 3);
	clear(&a, &b);
}

/* The header in two pieces, at each place. */
static void
a_partial_header_waits(void **state)
{
	uint8_t h[IMSG_HEADER_SIZE];
	struct imsgbuf a, b;
	struct imsg im;
	size_t cut;

	(void)state;
	for (cut = 1; cut < sizeof(h); cut++) {
		pair(&a, &b, IMSG_MESSAGE_MAX, 0);
		header(h, 7, 5, 9, 0);
		send_raw(&a, h, cut, -1);
		assert_int_equal(imsg_read(&b), cut);
		assert_int_equal(imsg_get(&b, &im), 0);
		send_raw(&a, h + cut, sizeof(h) - cut, -1);
		assert_int_equal(imsg_read(&b), sizeof(h) - cut);
		assert_int_equal(imsg_get(&b, &im), 0);
		send_raw(&a, pattern, 5, -1);
		assert_int_equal(imsg_read(&b), 5);
		assert_int_equal(imsg_get(&b, &im), 1);
		expect(&im, 9, 5);
		clear(&a, &b);
	}
}

/* A peer that dies in the middle of a header or payload was no message. */
static void
an_unfinished_message_is_none(void **state)
{
	static const size_t sent[] = { 1, 15, 16, 17, 16 + IMSG_READ_SIZE,
		15 + SMALL_MAX };
	uint8_t h[IMSG_HEADER_SIZE + SMALL_MAX];
	struct imsgbuf a, b;
	struct imsg im;
	ssize_t r;
	size_t i;

	(void)state;
	memcpy(h + IMSG_HEADER_SIZE, pattern, SMALL_MAX);
	for (i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
		pair(&a, &b, IMSG_MESSAGE_MAX, 0);
		header(h, 7, SMALL_MAX, 9, 0);
		send_raw(&a, h, sent[i], -1);
		imsg_clear(&a);
		while ((r = imsg_read(&b)) > 0)
			assert_int_equal(imsg_get(&b, &im), 0);
		assert_int_equal(r, 0);
		assert_int_equal(imsg_get(&b, &im), 0);
		imsg_clear(&b);
	}
}

/* A payload is read to its end and not beyond, however much is there. */
static void
a_payload_is_read_alone(void **state)
{
	struct imsgbuf a, b;
	struct imsg im;

	(void)state;
	pair(&a, &b, IMSG_MESSAGE_MAX, 0);
	imsg_compose(&a, 7, 1, -1, pattern, SMALL_MAX);
	imsg_compose(&a, 7, 2, -1, pattern, 30);
	assert_int_equal(imsg_flush(&a), 0);
	assert_int_equal(imsg_read(&b), IMSG_READ_SIZE);
	assert_int_equal(imsg_get(&b, &im), 0);
	while (unread(&b) > IMSG_HEADER_SIZE + 30) {
		assert_true(imsg_read(&b) > 0);
		if (imsg_get(&b, &im) == 1)
			break;
	}
	assert_int_equal(unread(&b), IMSG_HEADER_SIZE + 30);
	expect(&im, 1, SMALL_MAX);
	assert_int_equal(imsg_read(&b), IMSG_HEADER_SIZE + 30);
	assert_int_equal(imsg_get(&b, &im), 1);
	expect(&im, 2, 30);
	clear(&a, &b);
}

/* A reader that does not take its messages buffers no more for it. */
static void
what_is_not_taken_is_not_read(void **state)
{
	struct imsgbuf a, b;
	struct imsg im;
	size_t i, got = 0;

	(void)state;
	pair(&a, &b, IMSG_MESSAGE_MAX, 0);
	for (i = 0; i < 1000; i++)
		imsg_compose(&a, 7, (uint32_t)i, -1, pattern, 100);
	while (got < 1000) {
		assert_int_equal(imsg_flush(&a), 0);
		while (imsg_read(&b) > 0)
			assert_true(b.in.len <= IMSG_READ_SIZE);
		assert_int_equal(errno, EAGAIN);
		while (imsg_get(&b, &im) == 1)
			expect(&im, (uint32_t)got++, 100);
	}
	clear(&a, &b);
}

/* ---- what is refused ---- */

static void
broken_frames_are_refused(void **state)
{
	static const struct {
		uint32_t len, flags;
	} t[] = {
		/* longer than a message may be */
		{ SMALL_MAX + 1, 0 },
		{ 0x7fffffff, 0 },
		{ 0x80000000, 0 },
		{ 0xfffffff0, 0 },
		{ 0xffffffff, 0 },
		/* unknown flags */
		{ 0, 2 },
		{ 0, 3 },
		{ 0, 4 },
		{ 0, 0x80000000 },
		/* descriptor announced, none sent */
		{ 0, 1 },
		{ 5, 1 },
	};
	uint8_t h[IMSG_HEADER_SIZE];
	struct imsgbuf a, b;
	struct imsg im;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		pair(&a, &b, SMALL_MAX, 1);
		header(h, 7, t[i].len, 0, t[i].flags);
		send_raw(&a, h, sizeof(h), -1);
		assert_int_equal(imsg_read(&b), sizeof(h));
		/* The header is enough. */
		errno = 0;
		if (imsg_get(&b, &im) != -1 || errno != EPROTO)
			fail_msg("row %zu", i);
		assert_int_equal(b.partial.data.cap, 0);
		clear(&a, &b);
	}
}

static void
message_size_is_bounded(void **state)
{
	uint8_t h[IMSG_HEADER_SIZE];
	struct imsgbuf a, b;
	struct imsg im;
	size_t got = 0;
	ssize_t n;

	(void)state;
	pair(&a, &b, SMALL_MAX, 0);
	imsg_compose(&a, 7, 1, -1, pattern, SMALL_MAX);
	assert_int_equal(imsg_flush(&a), 0);
	while (imsg_get(&b, &im) == 0) {
		n = imsg_read(&b);
		assert_true(n > 0);
		got += (size_t)n;
	}
	assert_int_equal(got, IMSG_HEADER_SIZE + SMALL_MAX);
	expect(&im, 1, SMALL_MAX);
	header(h, 7, SMALL_MAX + 1, 1, 0);
	send_raw(&a, h, sizeof(h), -1);
	assert_int_equal(imsg_read(&b), sizeof(h));
	assert_int_equal(imsg_get(&b, &im), -1);
	clear(&a, &b);
}

static void
unwanted_descriptors_are_closed(void **state)
{
	struct imsgbuf a, b;
	struct imsg im;
	int before, i;

	(void)state;
	before = open_descriptors();
	for (i = 0; i < 1000; i++) {
		pair(&a, &b, IMSG_MESSAGE_MAX, 0);
		imsg_compose(&a, 1, 0, dup(0), "x", 1);
		assert_int_equal(imsg_flush(&a), 0);
		assert_int_equal(imsg_read(&b), -1);
		assert_int_equal(errno, EPROTO);
		clear(&a, &b);
	}
	/* Wanted, but nobody took them. */
	for (i = 0; i < 1000; i++) {
		pair(&a, &b, IMSG_MESSAGE_MAX, 1);
		imsg_compose(&a, 1, 0, dup(0), "x", 1);
		assert_int_equal(imsg_flush(&a), 0);
		assert_int_equal(imsg_read(&b), IMSG_HEADER_SIZE + 1);
		if (i % 2 == 0) {
			assert_int_equal(imsg_get(&b, &im), 1);
			assert_int_not_equal(im.fd, -1);
			imsg_free(&im);
		}
		clear(&a, &b);
	}
	assert_int_equal(open_descriptors(), before);
}

/* Announced by a frame that never comes, or comes in pieces. */
static void
a_descriptor_with_a_partial_frame(void **state)
{
	static const size_t sizes[] = { 0, 5, SMALL_MAX };
	uint8_t h[IMSG_HEADER_SIZE];
	struct imsgbuf a, b;
	struct imsg im;
	size_t i, cut, sent, n;
	int before = open_descriptors();
	ssize_t r;

	(void)state;
	for (i = 0; i < 3; i++)
		for (cut = 1; cut <= sizeof(h); cut++) {
			pair(&a, &b, IMSG_MESSAGE_MAX, 1);
			header(h, 7, (uint32_t)sizes[i], 3, 1);
			send_raw(&a, h, cut, 0);
			assert_int_equal(imsg_read(&b), cut);
			r = imsg_get(&b, &im);
			if (cut == sizeof(h) && sizes[i] == 0)
				assert_int_equal(r, 1);
			else
				assert_int_equal(r, 0);
			/* Every second one ends here. */
			if (r == 0 && cut % 2 == 0) {
				clear(&a, &b);
				continue;
			}
			if (cut < sizeof(h))
				send_raw(&a, h + cut, sizeof(h) - cut, -1);
			for (sent = 0; sent < sizes[i]; sent += n) {
				n = sizes[i] - sent < 1000 ? sizes[i] - sent
							   : 1000;
				send_raw(&a, pattern + sent, n, -1);
			}
			while (r == 0) {
				assert_true(imsg_read(&b) > 0);
				r = imsg_get(&b, &im);
			}
			assert_int_equal(r, 1);
			assert_true(im.fd > 2);
			expect(&im, 3, sizes[i]);
			clear(&a, &b);
		}
	assert_int_equal(open_descriptors(), before);
}

static void
a_descriptor_belongs_to_the_start_of_its_frame(void **state)
{
	uint8_t h[IMSG_HEADER_SIZE];
	struct imsgbuf a, b;
	struct imsg im;
	int before = open_descriptors();

	(void)state;
	/* In the middle of a payload. */
	pair(&a, &b, IMSG_MESSAGE_MAX, 1);
	header(h, 7, SMALL_MAX, 3, 0);
	send_raw(&a, h, sizeof(h), -1);
	assert_int_equal(imsg_read(&b), sizeof(h));
	assert_int_equal(imsg_get(&b, &im), 0);
	send_raw(&a, pattern, 100, 0);
	assert_int_equal(imsg_read(&b), -1);
	assert_int_equal(errno, EPROTO);
	clear(&a, &b);
	/* With a frame that says nothing of it. */
	pair(&a, &b, IMSG_MESSAGE_MAX, 1);
	header(h, 7, 0, 3, 0);
	send_raw(&a, h, sizeof(h), 0);
	assert_int_equal(imsg_read(&b), sizeof(h));
	assert_int_equal(imsg_get(&b, &im), 1);
	expect(&im, 3, 0);
	assert_int_equal(imsg_get(&b, &im), -1);
	clear(&a, &b);
	assert_int_equal(open_descriptors(), before);
}

/* No more than a bounded number is kept for frames that do not come. */
static void
descriptors_are_bounded(void **state)
{
	uint8_t h[IMSG_HEADER_SIZE];
	struct imsgbuf a, b;
	int before = open_descriptors();
	ssize_t r = 0;
	size_t i;

	(void)state;
	pair(&a, &b, IMSG_MESSAGE_MAX, 1);
	header(h, 7, 0, 3, 0);
	for (i = 0; i < sizeof(h) && r != -1; i++) {
		send_raw(&a, h + i, 1, 0);
		r = imsg_read(&b);
	}
	assert_int_equal(r, -1);
	assert_int_equal(errno, EPROTO);
	assert_int_equal(i, IMSG_FDS_MAX + 1);
	clear(&a, &b);
	assert_int_equal(open_descriptors(), before);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_every_size_arrive_whole),
		cmocka_unit_test(a_peer_that_trickles_is_understood),
		cmocka_unit_test(a_partial_header_waits),
		cmocka_unit_test(an_unfinished_message_is_none),
		cmocka_unit_test(a_payload_is_read_alone),
		cmocka_unit_test(what_is_not_taken_is_not_read),
		cmocka_unit_test(broken_frames_are_refused),
		cmocka_unit_test(message_size_is_bounded),
		cmocka_unit_test(unwanted_descriptors_are_closed),
		cmocka_unit_test(a_descriptor_with_a_partial_frame),
		cmocka_unit_test(
		    a_descriptor_belongs_to_the_start_of_its_frame),
		cmocka_unit_test(descriptors_are_bounded),
	};
	size_t i;

	log_init("test", 0);
	for (i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(i * 31 >> 3);
	return cmocka_run_group_tests_name("imsg", tests, NULL, NULL);
}
