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
#define WINDOW      512 /* names that are held at once; a power of two */
#define CLAIM       8 /* neighbours, often of one directory */
#define PIECE       (128 * 1024) /* bytes of a file that are read at once */

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

struct reader {
	struct parent parent;
	uint8_t *room; /* a piece, and what is kept of the one before */
};

struct item {
	char *name;
	enum scan_outcome outcome;
	int done; /* under lock */
};

/*
 * Items are numbered as they are added; ITEM finds one. They go through the
 * hands of the main thread, of whoever claims them, and of the main thread
 * again; the lock is taken at each change of hands.
 */
struct scan {
	int root;
	const struct text *query;
	int any_bytes; /* the raw bytes say nothing */
	struct reader own;
	pthread_t helpers[HELPERS_MAX];
	size_t nhelpers;
	char *last; /* name that scan_next returned */

	/* The main thread's; everything below ready is done. */
	size_t added;
	size_t ready;
	size_t next;

	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_cond_t done;
	size_t open; /* added ones that may be claimed */
	size_t claimed;
	size_t idle; /* helpers that wait for work */
	int waiting; /* the main thread, for the item ready */
	atomic_int end;

	struct item items[WINDOW];
};
#define ITEM(sc, n) (&(sc)->items[(n) % WINDOW])

/* ---- one file ---- */

/*
 * Opens a candidate: SCAN_HIT with *fd and its *size, which is not 0. rg lists
 * regular files only, so there is no look before the opening: what took the
 * place of one is opened without waiting, and left.
 */
static enum scan_outcome
open_candidate(struct parent *parent, const char *name, int *fd, size_t *size)
{
	struct stat st;
	const char *leaf;
	enum scan_outcome r = SCAN_MISS;
	int dir;

	if ((dir = parent_open(parent, name, &leaf)) == -1)
		return SCAN_MISS;
	*fd = openat(dir, leaf,
	    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (*fd == -1)
		return SCAN_MISS;
	if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) {
		*size = (size_t)st.st_size;
		if (st.st_size > FILE_MAX)
			r = SCAN_LARGE;
		else if (st.st_size > 0)
			return SCAN_HIT;
	}
	close(*fd);
	return r;
}

static ssize_t
read_more(int fd, uint8_t *p, size_t n)
{
	ssize_t r;

	do {
		r = read(fd, p, n);
	} while (r == -1 && errno == EINTR);
	return r;
}

enum scan_outcome
scan_read(struct parent *parent, const char *name, struct buf *b)
{
	enum scan_outcome r;
	size_t want;
	ssize_t n;
	int fd;

	buf_reset(b);
	if ((r = open_candidate(parent, name, &fd, &want)) != SCAN_HIT)
		return r;
	n = read_more(fd, buf_reserve(b, want), want);
	close(fd);
	if (n <= 0)
		return SCAN_MISS;
	b->len = (size_t)n;
	return SCAN_HIT;
}

static int
utf16(const uint8_t *p, size_t n)
{
	return n >= 2 &&
	    ((p[0] == 0xff && p[1] == 0xfe) || (p[0] == 0xfe && p[1] == 0xff));
}

/*
 * Pieces that stay in a processor's cache; the end of one that could be the
 * start of a match is kept in front of the next.
 */
static enum scan_outcome
look_inside(const struct scan *sc, uint8_t *p, int fd, size_t left)
{
	const struct text *q = sc->query;
	size_t here = 0, want;
	ssize_t n;
	int first = 1;

	while (left > 0) {
		want = left < PIECE ? left : PIECE;
		if ((n = read_more(fd, p + here, want)) <= 0)
			break;
		here += (size_t)n;
		left -= (size_t)n;
		if (sc->any_bytes || (first && utf16(p, here)) ||
		    memmem(p, here, q->data, q->len) != NULL)
			return SCAN_HIT;
		first = 0;
		if (here >= q->len) {
			memmove(p, p + here - (q->len - 1), q->len - 1);
			here = q->len - 1;
		}
	}
	return SCAN_MISS;
}

/*
 * Well-formed characters survive decoding as they are, so a query made of
 * them occurs in the text of a file only if it occurs in its bytes.
 */
static enum scan_outcome
look(const struct scan *sc, struct reader *rd, const char *name)
{
	enum scan_outcome r;
	size_t size;
	int fd;

	if ((r = open_candidate(&rd->parent, name, &fd, &size)) != SCAN_HIT)
		return r;
	r = look_inside(sc, rd->room, fd, size);
	close(fd);
	return r;
}

/* ---- many files ---- */

static void
reader_init(struct reader *rd, const struct scan *sc)
{
	parent_init(&rd->parent, sc->root);
	rd->room = xmalloc(PIECE + sc->query->len);
}

static void
reader_free(struct reader *rd)
{
	parent_free(&rd->parent);
	free(rd->room);
}

static void
lock(struct scan *sc)
{
	(void)pthread_mutex_lock(&sc->lock);
}

static void
unlock(struct scan *sc)
{
	(void)pthread_mutex_unlock(&sc->lock);
}

/*
 * Under lock: takes some items, fewer towards the end so that nobody is left
 * with many. Returns their number.
 */
static size_t
claim(struct scan *sc, size_t *first)
{
	size_t n = sc->open - sc->claimed;

	if (n > 1)
		n = n / (2 * (sc->nhelpers + 1)) + 1;
	if (n > CLAIM)
		n = CLAIM;
	*first = sc->claimed;
	sc->claimed += n;
	return n;
}

static void
finished(struct scan *sc, size_t first, size_t n)
{
	size_t i;

	for (i = first; i < first + n; i++)
		ITEM(sc, i)->done = 1;
	if (sc->waiting && ITEM(sc, sc->ready)->done)
		(void)pthread_cond_signal(&sc->done);
}

static void *
helper(void *arg)
{
	struct scan *sc = arg;
	struct reader rd;
	size_t first, n, i;

	reader_init(&rd, sc);
	lock(sc);
	for (;;) {
		while (!atomic_load(&sc->end) && sc->claimed == sc->open) {
			sc->idle++;
			(void)pthread_cond_wait(&sc->work, &sc->lock);
			sc->idle--;
		}
		if (atomic_load(&sc->end))
			break;
		n = claim(sc, &first);
		unlock(sc);
		for (i = first; i < first + n && !atomic_load(&sc->end); i++)
			ITEM(sc, i)->outcome = look(sc, &rd, ITEM(sc, i)->name);
		lock(sc);
		finished(sc, first, n);
	}
	unlock(sc);
	reader_free(&rd);
	return NULL;
}

/* As many as there are further processors; fewer will do. */
void
scan_start(struct scan *sc)
{
	cpu_set_t set;
	int want = 0;
	size_t n = 0;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		want = CPU_COUNT(&set) - 1;
	while (want-- > 0 && n < HELPERS_MAX) {
		if (pthread_create(&sc->helpers[n], NULL, helper, sc) != 0)
			break;
		n++;
	}
	lock(sc);
	sc->nhelpers = n;
	unlock(sc);
}

struct scan *
scan_new(int root, const struct text *query)
{
	struct scan *sc;

	sc = xcalloc(1, sizeof(*sc));
	sc->root = root;
	sc->query = query;
	sc->any_bytes = memmem(query->data, query->len, REPLACEMENT, 3) != NULL;
	reader_init(&sc->own, sc);
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

	lock(sc);
	atomic_store(&sc->end, 1);
	(void)pthread_cond_broadcast(&sc->work);
	unlock(sc);
	for (i = 0; i < sc->nhelpers; i++)
		(void)pthread_join(sc->helpers[i], NULL);
	(void)pthread_cond_destroy(&sc->done);
	(void)pthread_cond_destroy(&sc->work);
	(void)pthread_mutex_destroy(&sc->lock);
	for (; sc->next < sc->added; sc->next++)
		free(ITEM(sc, sc->next)->name);
	free(sc->last);
	reader_free(&sc->own);
	free(sc);
}

int
scan_room(const struct scan *sc)
{
	return sc->added - sc->next < WINDOW;
}

int
scan_pending(const struct scan *sc)
{
	return sc->next < sc->added;
}

void
scan_add(struct scan *sc, const char *name, size_t len)
{
	struct item *it = ITEM(sc, sc->added);

	it->name = xstrndup(name, len);
	it->done = 0;
	sc->added++;
}

/* Under lock: what was added may be claimed, and what is done is known. */
static void
exchange(struct scan *sc)
{
	if (sc->open < sc->added) {
		sc->open = sc->added;
		if (sc->idle > 0)
			(void)pthread_cond_broadcast(&sc->work);
	}
	while (sc->ready < sc->claimed && ITEM(sc, sc->ready)->done)
		sc->ready++;
}

const char *
scan_next(struct scan *sc, enum scan_outcome *outcome)
{
	struct item *it;

	free(sc->last);
	sc->last = NULL;
	if (sc->next == sc->ready) {
		lock(sc);
		exchange(sc);
		unlock(sc);
	}
	if (sc->next == sc->ready)
		return NULL;
	it = ITEM(sc, sc->next);
	sc->next++;
	*outcome = it->outcome;
	sc->last = it->name;
	return sc->last;
}

int
scan_help(struct scan *sc, int (*stop)(void *), void *arg)
{
	size_t first, n, i;

	lock(sc);
	exchange(sc);
	n = claim(sc, &first);
	unlock(sc);
	for (i = first; i < first + n && stop(arg) == 0; i++)
		ITEM(sc, i)->outcome = look(sc, &sc->own, ITEM(sc, i)->name);
	lock(sc);
	finished(sc, first, n);
	unlock(sc);
	return n > 0;
}

void
scan_wait(struct scan *sc)
{
	lock(sc);
	exchange(sc);
	while (sc->next == sc->ready && sc->ready < sc->claimed) {
		sc->waiting = 1;
		(void)pthread_cond_wait(&sc->done, &sc->lock);
		sc->waiting = 0;
		exchange(sc);
	}
	unlock(sc);
}
