#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "log.h"
#include "scan.h"

#define HELPERS_MAX 3
#define WORTH_HELP  32 /* items */
#define CLAIM       8 /* neighbours, often of one directory */

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

struct reader {
	struct parent parent;
	struct buf raw;
};

struct scan {
	int root;
	const struct text *query;
	int any_bytes; /* the raw bytes say nothing */
	struct reader own;
	pthread_t helpers[HELPERS_MAX];
	size_t nhelpers;
	int tried; /* to start them */

	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_cond_t done;
	unsigned int round; /* under lock */
	size_t busy; /* helpers, under lock */
	int end; /* under lock */

	struct scan_item *items; /* set before a round */
	size_t n;
	atomic_size_t next;
	atomic_int stopped;
};

/* ---- one file ---- */

/*
 * rg lists regular files only, so there is no look before the opening: what
 * took the place of one is opened without waiting, and left.
 */
enum scan_outcome
scan_read(struct parent *parent, const char *name, struct buf *b)
{
	struct stat st;
	const char *leaf;
	size_t want;
	ssize_t n;
	int dir, fd;
	enum scan_outcome r = SCAN_MISS;

	buf_reset(b);
	if ((dir = parent_open(parent, name, &leaf)) == -1)
		return SCAN_MISS;
	fd = openat(dir, leaf,
	    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd == -1)
		return SCAN_MISS;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		if (st.st_size > FILE_MAX)
			r = SCAN_LARGE;
		else if (st.st_size > 0) {
			want = (size_t)st.st_size;
			do {
				n = read(fd, buf_reserve(b, want), want);
			} while (n == -1 && errno == EINTR);
			if (n > 0) {
				b->len = (size_t)n;
				r = SCAN_HIT;
			}
		}
	}
	close(fd);
	return r;
}

static int
utf16(const struct buf *b)
{
	return b->len >= 2 &&
	    ((b->data[0] == 0xff && b->data[1] == 0xfe) ||
		(b->data[0] == 0xfe && b->data[1] == 0xff));
}

/*
 * Well-formed characters survive decoding as they are, so a query made of
 * them occurs in the text of a file only if it occurs in its bytes.
 */
static enum scan_outcome
look(const struct scan *sc, struct reader *rd, const char *name)
{
	enum scan_outcome r;

	if ((r = scan_read(&rd->parent, name, &rd->raw)) != SCAN_HIT)
		return r;
	if (sc->any_bytes || utf16(&rd->raw) ||
	    memmem(rd->raw.data, rd->raw.len, sc->query->data,
		sc->query->len) != NULL)
		return SCAN_HIT;
	return SCAN_MISS;
}

/* ---- many files ---- */

static void
reader_init(struct reader *rd, int root)
{
	parent_init(&rd->parent, root);
	buf_init(&rd->raw);
}

static void
reader_free(struct reader *rd)
{
	parent_free(&rd->parent);
	buf_free(&rd->raw);
}

static void
work(struct scan *sc, struct reader *rd, int (*stop)(void *), void *arg)
{
	size_t i, end;

	for (;;) {
		i = atomic_fetch_add(&sc->next, CLAIM);
		if (i >= sc->n)
			return;
		end = sc->n - i < CLAIM ? sc->n : i + CLAIM;
		for (; i < end; i++) {
			if (stop != NULL && stop(arg) != 0)
				atomic_store(&sc->stopped, 1);
			if (atomic_load(&sc->stopped))
				return;
			sc->items[i].outcome = look(sc, rd, sc->items[i].name);
		}
	}
}

static void *
helper(void *arg)
{
	struct scan *sc = arg;
	struct reader rd;
	unsigned int seen = 0;

	reader_init(&rd, sc->root);
	(void)pthread_mutex_lock(&sc->lock);
	for (;;) {
		while (!sc->end && sc->round == seen)
			(void)pthread_cond_wait(&sc->work, &sc->lock);
		if (sc->end)
			break;
		seen = sc->round;
		(void)pthread_mutex_unlock(&sc->lock);
		work(sc, &rd, NULL, NULL);
		(void)pthread_mutex_lock(&sc->lock);
		if (--sc->busy == 0)
			(void)pthread_cond_signal(&sc->done);
	}
	(void)pthread_mutex_unlock(&sc->lock);
	reader_free(&rd);
	return NULL;
}

/* As many as there are further processors; fewer will do. */
static void
start_helpers(struct scan *sc)
{
	cpu_set_t set;
	int want = 0;

	sc->tried = 1;
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		want = CPU_COUNT(&set) - 1;
	while (want-- > 0 && sc->nhelpers < HELPERS_MAX) {
		if (pthread_create(
			&sc->helpers[sc->nhelpers], NULL, helper, sc) != 0)
			return;
		sc->nhelpers++;
	}
}

struct scan *
scan_new(int root, const struct text *query)
{
	struct scan *sc;

	sc = xcalloc(1, sizeof(*sc));
	sc->root = root;
	sc->query = query;
	sc->any_bytes = memmem(query->data, query->len, REPLACEMENT, 3) != NULL;
	reader_init(&sc->own, root);
	if (pthread_mutex_init(&sc->lock, NULL) != 0 ||
	    pthread_cond_init(&sc->work, NULL) != 0 ||
	    pthread_cond_init(&sc->done, NULL) != 0)
		fatalx("files: threads");
	return sc;
}

void
scan_free(struct scan *sc)
{
	size_t i;

	(void)pthread_mutex_lock(&sc->lock);
	sc->end = 1;
	(void)pthread_cond_broadcast(&sc->work);
	(void)pthread_mutex_unlock(&sc->lock);
	for (i = 0; i < sc->nhelpers; i++)
		(void)pthread_join(sc->helpers[i], NULL);
	(void)pthread_cond_destroy(&sc->done);
	(void)pthread_cond_destroy(&sc->work);
	(void)pthread_mutex_destroy(&sc->lock);
	reader_free(&sc->own);
	free(sc);
}

int
scan_items(struct scan *sc, struct scan_item *items, size_t n,
    int (*stop)(void *), void *arg)
{
	if (!sc->tried && n >= WORTH_HELP)
		start_helpers(sc);
	sc->items = items;
	sc->n = n;
	atomic_store(&sc->next, 0);
	(void)pthread_mutex_lock(&sc->lock);
	sc->busy = sc->nhelpers;
	sc->round++;
	(void)pthread_cond_broadcast(&sc->work);
	(void)pthread_mutex_unlock(&sc->lock);
	work(sc, &sc->own, stop, arg);
	(void)pthread_mutex_lock(&sc->lock);
	while (sc->busy > 0)
		(void)pthread_cond_wait(&sc->done, &sc->lock);
	(void)pthread_mutex_unlock(&sc->lock);
	return stop(arg);
}
