#include <sys/types.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/*
 * Preloaded into a bridge under test: moves its clocks by what stands in the
 * file that CLOCK_SHIM names, two numbers of ms, for the clock that goes on
 * during a suspend and for the wall clock. A third number, if it is not 0, is
 * how many times faster the monotonic clock goes, and all waiting with it.
 */
static const volatile int64_t *shift;
static struct timespec begun;

static void __attribute__((__constructor__)) begin(void)
{
	const char *file = getenv("CLOCK_SHIM");
	void *p;
	int fd;

	if (file == NULL || (fd = open(file, O_RDONLY | O_CLOEXEC)) == -1)
		return;
	(void)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &begun);
	/* The coarse clock is behind; no reading may come out negative. */
	begun.tv_sec--;
	p = mmap(NULL, 3 * sizeof(*shift), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (p != MAP_FAILED)
		shift = p;
}

static int64_t
speed(void)
{
	return shift != NULL && shift[2] > 1 ? shift[2] : 1;
}

static void
hurry(struct timespec *ts)
{
	int64_t ns = (ts->tv_sec - begun.tv_sec) * 1000000000LL +
	    (ts->tv_nsec - begun.tv_nsec);

	ns = ns * speed() + begun.tv_nsec;
	ts->tv_sec = begun.tv_sec + (time_t)(ns / 1000000000);
	ts->tv_nsec = (long)(ns % 1000000000);
}

int
epoll_wait(int fd, struct epoll_event *events, int n, int ms)
{
	if (ms > 0)
		ms = (int)((ms + speed() - 1) / speed());
	return (int)syscall(SYS_epoll_pwait, fd, events, n, ms, NULL, 8);
}

int
clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, id, ts);

	if (r == 0 && shift != NULL && id == CLOCK_BOOTTIME)
		ts->tv_sec += (time_t)(shift[0] / 1000);
	if (r == 0 && shift != NULL && id == CLOCK_REALTIME)
		ts->tv_sec += (time_t)(shift[1] / 1000);
	if (r == 0 &&
	    (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE ||
		id == CLOCK_MONOTONIC_RAW))
		hurry(ts);
	return r;
}
