#include "config.h"

#include <sys/types.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "leftover.h"
#include "log.h"
#include "sys.h"

#define STEP_ENTRIES      256
#define WALK_ENTRIES      500000
#define WALK_MS           3000 /* spent in steps, not since the start */
#define WALK_DIRS         50000 /* waiting to be read */
#define DIRECTORY_ENTRIES 20000
#define KNOWN_DIRS        256

/* What the file process knows about leftovers. */
static struct {
	struct timespec start;
	uid_t uid;
	int root;
	dev_t dev;
	/* the walk */
	int walking;
	char **queue; /* directories to read, below the root */
	size_t head, tail, size;
	DIR *dir; /* being read */
	char *path; /* its path; NULL for the root */
	size_t entries;
	double ms;
	size_t removed;
	/* directories looked at before a write */
	int complete; /* no need to: the walk saw everything */
	struct {
		dev_t dev;
		ino_t ino;
	} known[KNOWN_DIRS];
	size_t nknown; /* ever added */
} lo;

int
stage_name(char *to, size_t size)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char raw[STAGE_DIGITS / 2];
	char *p;
	size_t i;

	if (size < STAGE_SIZE) {
		errno = EINVAL;
		return -1;
	}
	if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
		return -1;
	p = stpcpy(to, STAGE_PREFIX);
	for (i = 0; i < sizeof(raw); i++) {
		*p++ = hex[raw[i] >> 4];
		*p++ = hex[raw[i] & 15];
	}
	memcpy(p, STAGE_SUFFIX, sizeof(STAGE_SUFFIX));
	return 0;
}

static int
is_stage_name(const char *name)
{
	if (strncmp(name, STAGE_PREFIX, strlen(STAGE_PREFIX)) != 0)
		return 0;
	name += strlen(STAGE_PREFIX);
	return strspn(name, "0123456789abcdef") == STAGE_DIGITS &&
	    strcmp(name + STAGE_DIGITS, STAGE_SUFFIX) == 0;
}

int
stage_hold(int fd)
{
	struct stat st;

	/* Without locks on this file system nothing is ever removed there. */
	if (flock(fd, LOCK_EX | LOCK_NB) == -1)
		return errno == EWOULDBLOCK ? -1 : 0;
	return fstat(fd, &st) == 0 && st.st_nlink == 0 ? -1 : 0;
}

static int
is_leftover(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == lo.uid &&
	    (st->st_ctim.tv_sec < lo.start.tv_sec ||
		(st->st_ctim.tv_sec == lo.start.tv_sec &&
		    st->st_ctim.tv_nsec < lo.start.tv_nsec));
}

/* Opens it in any way that its mode allows; a lock may want it writable. */
static int
open_any(int dir, const char *name)
{
	static const int ways[] = { O_RDWR, O_RDONLY, O_WRONLY };
	size_t i;
	int fd = -1;

	for (i = 0; fd == -1 && i < sizeof(ways) / sizeof(ways[0]); i++)
		fd = openat(dir, name,
		    ways[i] | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return fd;
}

/* 0: removed, or not ours to remove; -1: still held by somebody. */
static int
remove_leftover(int dir, const char *name)
{
	struct stat st;
	int fd, r = 0;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == -1 ||
	    !is_leftover(&st) || (fd = open_any(dir, name)) == -1)
		return 0;
	if (fstat(fd, &st) == 0 && is_leftover(&st)) {
		if (flock(fd, LOCK_EX | LOCK_NB) == -1)
			r = errno == EWOULDBLOCK ? -1 : 0;
		else if (unlinkat(dir, name, 0) == 0)
			lo.removed++;
	}
	close(fd);
	return r;
}

/* ---- the walk ---- */

static double
now_ms(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_MONOTONIC, &ts) == -1)
		fatal("clock_gettime");
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static void
enqueue(const char *name)
{
	if (lo.tail - lo.head >= WALK_DIRS) {
		lo.complete = 0;
		return;
	}
	if (lo.tail == lo.size) {
		if (lo.head > lo.size / 2) {
			memmove(lo.queue, lo.queue + lo.head,
			    (lo.tail - lo.head) * sizeof(*lo.queue));
			lo.tail -= lo.head;
			lo.head = 0;
		} else {
			lo.size = lo.size == 0 ? 64 : lo.size * 2;
			lo.queue = xreallocarray(
			    lo.queue, lo.size, sizeof(*lo.queue));
		}
	}
	if (lo.path == NULL)
		lo.queue[lo.tail++] = xstrdup(name);
	else
		lo.queue[lo.tail++] = xasprintf("%s/%s", lo.path, name);
}

/* Opens a directory of the root's own file system; NULL is the root. */
static DIR *
open_directory(const char *path)
{
	struct stat st;
	DIR *d;
	int fd;

	fd = sys_openat2(lo.root, path == NULL ? "." : path,
	    O_RDONLY | O_DIRECTORY, 0,
	    SYS_RESOLVE_BENEATH | SYS_RESOLVE_NO_SYMLINKS |
		SYS_RESOLVE_NO_MAGICLINKS | SYS_RESOLVE_NO_XDEV);
	if (fd == -1)
		return NULL;
	if (fstat(fd, &st) == -1 || st.st_dev != lo.dev ||
	    (d = fdopendir(fd)) == NULL) {
		close(fd);
		return NULL;
	}
	return d;
}

static void
walk_end(void)
{
	if (lo.dir != NULL)
		closedir(lo.dir);
	lo.dir = NULL;
	free(lo.path);
	lo.path = NULL;
	while (lo.head < lo.tail)
		free(lo.queue[lo.head++]);
	free(lo.queue);
	lo.queue = NULL;
	lo.head = lo.tail = lo.size = 0;
	lo.walking = 0;
	if (lo.removed > 0)
		log_info(
		    "staging files of an earlier run removed: %zu", lo.removed);
}

static void
walk_entry(const struct dirent *de)
{
	struct stat st;
	unsigned char type = de->d_type;

	if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
		return;
	if (type == DT_UNKNOWN) {
		if (fstatat(dirfd(lo.dir), de->d_name, &st,
			AT_SYMLINK_NOFOLLOW) == -1)
			return;
		type = S_ISDIR(st.st_mode) ? DT_DIR : DT_REG;
	}
	if (type == DT_DIR)
		enqueue(de->d_name);
	else if (type == DT_REG && is_stage_name(de->d_name) &&
	    remove_leftover(dirfd(lo.dir), de->d_name) == -1)
		lo.complete = 0;
}

/* Goes on to the next directory; 0 if there is none. */
static int
walk_next(void)
{
	closedir(lo.dir);
	lo.dir = NULL;
	while (lo.dir == NULL && lo.head < lo.tail) {
		free(lo.path);
		lo.path = lo.queue[lo.head++];
		if ((lo.dir = open_directory(lo.path)) == NULL)
			lo.complete = 0;
	}
	return lo.dir != NULL;
}

int
leftover_step(void)
{
	struct dirent *de;
	double begin;
	size_t i;

	if (!lo.walking)
		return 0;
	begin = now_ms();
	for (i = 0; i < STEP_ENTRIES; i++) {
		if ((de = readdir(lo.dir)) != NULL)
			walk_entry(de);
		else if (!walk_next()) {
			walk_end();
			return 0;
		}
	}
	lo.entries += STEP_ENTRIES;
	lo.ms += now_ms() - begin;
	if (lo.entries < WALK_ENTRIES && lo.ms < WALK_MS)
		return 1;
	lo.complete = 0;
	walk_end();
	return 0;
}

void
leftover_init(int root)
{
	struct stat st;

	memset(&lo, 0, sizeof(lo));
	lo.uid = geteuid();
	lo.root = root;
	if (clock_gettime(CLOCK_REALTIME, &lo.start) == -1 ||
	    fstat(root, &st) == -1)
		fatal("leftovers");
	lo.dev = st.st_dev;
	if ((lo.dir = open_directory(NULL)) == NULL)
		return;
	lo.walking = lo.complete = 1;
}

/* ---- before a write ---- */

static int
is_known(const struct stat *st)
{
	size_t i;

	for (i = 0; i < KNOWN_DIRS && i < lo.nknown; i++)
		if (lo.known[i].dev == st->st_dev &&
		    lo.known[i].ino == st->st_ino)
			return 1;
	return 0;
}

void
leftover_directory(int dir)
{
	struct dirent *de;
	struct stat st;
	size_t i;
	DIR *d;
	int fd, held = 0;

	if ((lo.complete && !lo.walking) || fstat(dir, &st) == -1 ||
	    is_known(&st))
		return;
	fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		return;
	if ((d = fdopendir(fd)) == NULL) {
		close(fd);
		return;
	}
	for (i = 0; i < DIRECTORY_ENTRIES && (de = readdir(d)) != NULL; i++)
		if (is_stage_name(de->d_name) &&
		    remove_leftover(dirfd(d), de->d_name) == -1)
			held = 1;
	closedir(d);
	if (held)
		return;
	lo.known[lo.nknown % KNOWN_DIRS].dev = st.st_dev;
	lo.known[lo.nknown % KNOWN_DIRS].ino = st.st_ino;
	lo.nknown++;
}
