#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "model.h"

#define MIB      1048576
#define TEXT_MAX 4096

static uint64_t chance_state;

void
chance_begin(void)
{
	const char *v = getenv("TEST_SEED");

	chance_state = (uint64_t)time(NULL) * 65536 + (uint64_t)getpid();
	if (v != NULL)
		chance_state = strtoull(v, NULL, 10);
	print_message("# TEST_SEED=%llu\n", (unsigned long long)chance_state);
}

uint32_t
chance(uint32_t n)
{
	chance_state = chance_state * 6364136223846793005U +
	    1442695040888963407U;
	return (uint32_t)(chance_state >> 33) % n;
}

static void
random_text(struct buf *b, size_t max)
{
	size_t n = chance(8) == 0 ? 0 : chance((uint32_t)max);

	buf_reset(b);
	while (b->len < n)
		buf_addc(b, (uint8_t)("abcdefgh \n"[chance(10)]));
}

/* Plainly, to be a judge of the tool: how often old is in the text. */
static size_t
occurrences(const struct buf *text, const struct text *old, size_t *at)
{
	size_t i, n = 0;

	for (i = 0; i + old->len <= text->len; i++)
		if (memcmp(text->data + i, old->data, old->len) == 0) {
			*at = i;
			n++;
		}
	return n;
}

/* The outcome of the edits: 1, or 0 if they conflict. */
static int
model_edit(const struct buf *from, const struct request *q, struct buf *to)
{
	struct buf next;
	size_t i, at;

	buf_reset(to);
	buf_add(to, from->data, from->len);
	for (i = 0; i < q->nedits; i++) {
		if (occurrences(to, &q->edits[i].old, &at) != 1)
			return 0;
		buf_init(&next);
		buf_add(&next, to->data, at);
		buf_add(&next, q->edits[i].new.data, q->edits[i].new.len);
		at += q->edits[i].old.len;
		buf_add(&next, to->data + at, to->len - at);
		buf_free(to);
		*to = next;
	}
	return 1;
}

static void
random_edit(struct request *q, const struct model *m)
{
	struct buf new;
	size_t i, at, len;

	buf_init(&new);
	q->nedits = 1 + chance(3);
	q->edits = xcalloc(q->nedits, sizeof(*q->edits));
	for (i = 0; i < q->nedits; i++) {
		at = m->text.len == 0 ? 0 : chance((uint32_t)m->text.len);
		len = 1 + chance(12);
		if (len > m->text.len - at)
			text_set(&q->edits[i].old, "none", 4);
		else
			text_set(&q->edits[i].old, m->text.data + at, len);
		random_text(&new, 16);
		text_set(&q->edits[i].new, new.data, new.len);
	}
	buf_free(&new);
}

enum error_code
model_request(struct request *q, const struct model *m, struct buf *outcome)
{
	memset(q, 0, sizeof(*q));
	text_set(&q->path, m->name, strlen(m->name));
	if (chance(2) == 0) {
		q->operation = OP_WRITE_FILE;
		q->create_only = chance(4) == 0;
		random_text(outcome, chance(50) == 0 ? MIB : TEXT_MAX);
		text_set(&q->content, outcome->data, outcome->len);
		return q->create_only && m->exists ? EC_EDIT_CONFLICT : EC_NONE;
	}
	q->operation = chance(5) == 0 ? OP_PREVIEW_EDIT : OP_EDIT_FILE;
	random_edit(q, m);
	if (!m->exists)
		return EC_INVALID_PATH;
	if (!model_edit(&m->text, q, outcome))
		return EC_EDIT_CONFLICT;
	return outcome->len > MIB ? EC_WRITE_LIMIT_EXCEEDED : EC_NONE;
}

int
model_holds(const char *dir, const struct model *m, int file_exists,
    const struct buf *text)
{
	char *p = xasprintf("%s/%s", dir, m->name);
	struct stat st;
	struct buf b;
	int fd, r;

	fd = open(p, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	free(p);
	if (fd == -1) {
		assert_int_equal(errno, ENOENT);
		return !file_exists;
	}
	assert_int_equal(fstat(fd, &st), 0);
	buf_init(&b);
	(void)buf_reserve(&b, (size_t)st.st_size + 1);
	assert_int_equal(read(fd, b.data, (size_t)st.st_size + 1), st.st_size);
	b.len = (size_t)st.st_size;
	close(fd);
	r = file_exists && b.len == text->len &&
	    (b.len == 0 || memcmp(b.data, text->data, b.len) == 0);
	buf_free(&b);
	return r;
}

void
model_take(struct model *m, const struct buf *outcome)
{
	m->exists = 1;
	buf_reset(&m->text);
	buf_add(&m->text, outcome->data, outcome->len);
}

void
model_init(struct model *m, size_t n)
{
	size_t i;

	memset(m, 0, n * sizeof(*m));
	for (i = 0; i < n; i++)
		(void)xsnprintf(m[i].name, sizeof(m[i].name), "%sm%zu",
		    i % 3 == 0 ? "d/" : "", i);
}

void
model_free(struct model *m, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		buf_free(&m[i].text);
}
