#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "buf.h"
#include "log.h"
#include "status.h"
#include "times.h"

#define REFILL_MS    60000 /* one more line */
#define WATCHDOG_MIN 10 /* ms between two signs of life */

struct status {
	int fd; /* of the service manager, or -1 */
	int ready;
	int stopping;
	struct event *watchdog;
	struct event *later; /* tells what was held back */
	char *last; /* line logged last */
	char *held; /* line not logged yet */
	int tokens;
	int64_t refilled; /* monotonic ms */
};

/* sd_notify(3): "/path" or "@name", the latter in the abstract name space. */
static int
connect_manager(const char *name)
{
	struct sockaddr_un sun;
	size_t n = strlen(name);
	int fd;

	memset(&sun, 0, sizeof(sun));
	sun.sun_family = AF_UNIX;
	if ((*name != '/' && *name != '@') || n < 2 ||
	    n >= sizeof(sun.sun_path)) {
		errno = EINVAL;
		return -1;
	}
	memcpy(sun.sun_path, name, n);
	if (*name == '@')
		sun.sun_path[0] = '\0';
	if ((fd = socket(AF_UNIX, SOCK_DGRAM, 0)) == -1)
		return -1;
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	/* The manager may be slow; nobody here waits for it. */
	(void)fcntl(fd, F_SETFL, O_NONBLOCK);
	if (connect(fd, (struct sockaddr *)&sun,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) ==
	    -1) {
		close(fd);
		return -1;
	}
	return fd;
}

struct status *
status_new(int service)
{
	struct status *s;
	const char *name;

	s = xcalloc(1, sizeof(*s));
	s->fd = -1;
	s->tokens = STATUS_BURST;
	s->refilled = time_mono_ms();
	if (!service || (name = getenv("NOTIFY_SOCKET")) == NULL ||
	    *name == '\0')
		return s;
	if ((s->fd = connect_manager(name)) == -1)
		log_warn("NOTIFY_SOCKET %s", name);
	return s;
}

void
status_free(struct status *s)
{
	if (s == NULL)
		return;
	if (s->fd != -1)
		close(s->fd);
	if (s->watchdog != NULL)
		event_free(s->watchdog);
	if (s->later != NULL)
		event_free(s->later);
	free(s->last);
	free(s->held);
	free(s);
}

static void
notify(struct status *s, const char *text)
{
	if (s->fd != -1 && write(s->fd, text, strlen(text)) == -1)
		log_debug("service manager: %s", strerror(errno));
}

static void
on_watchdog(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	notify(arg, "WATCHDOG=1");
}

static void
log_held(struct status *s)
{
	s->tokens--;
	/* The same again says nothing new. */
	if (s->last == NULL || strcmp(s->last, s->held) != 0)
		log_info("%s", s->held);
	free(s->last);
	s->last = s->held;
	s->held = NULL;
}

static void
on_later(evutil_socket_t fd, short what, void *arg)
{
	struct status *s = arg;

	(void)fd;
	(void)what;
	s->refilled = time_mono_ms();
	s->tokens = 1;
	if (s->held != NULL)
		log_held(s);
}

/* sd_watchdog_enabled(3); twice as often as asked for. */
static int64_t
watchdog_ms(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid;
	int64_t ms;

	if (usec == NULL || (ms = strtoll(usec, NULL, 10) / 2000) <= 0)
		return 0;
	pid = getenv("WATCHDOG_PID");
	if (pid != NULL && strtoll(pid, NULL, 10) != getpid())
		return 0;
	return ms < WATCHDOG_MIN ? WATCHDOG_MIN : ms;
}

void
status_watch(struct status *s, struct event_base *base)
{
	struct timeval tv;
	int64_t ms;

	if ((s->later = evtimer_new(base, on_later, s)) == NULL)
		fatalx("out of memory");
	if (s->fd == -1 || (ms = watchdog_ms()) == 0)
		return;
	s->watchdog = event_new(base, -1, EV_PERSIST, on_watchdog, s);
	if (s->watchdog == NULL)
		fatalx("out of memory");
	tv.tv_sec = (time_t)(ms / 1000);
	tv.tv_usec = (suseconds_t)(ms % 1000 * 1000);
	(void)event_add(s->watchdog, &tv);
	notify(s, "WATCHDOG=1");
}

/* Gives back what the time since the last refill is worth. */
static void
refill(struct status *s)
{
	int64_t now = time_mono_ms(), n = (now - s->refilled) / REFILL_MS;

	if (n <= 0)
		return;
	s->refilled += n * REFILL_MS;
	s->tokens = n > STATUS_BURST - s->tokens ? STATUS_BURST
						 : s->tokens + (int)n;
}

void
status_tell(struct status *s, const char *line, int ready)
{
	struct timeval tv;
	int64_t ms;
	char *text;

	text = xasprintf(
	    "%sSTATUS=%s", ready && !s->ready ? "READY=1\n" : "", line);
	s->ready |= ready;
	notify(s, text);
	free(text);
	free(s->held);
	s->held = xstrdup(line);
	refill(s);
	if (s->tokens > 0) {
		log_held(s);
		return;
	}
	ms = s->refilled + REFILL_MS - time_mono_ms();
	tv.tv_sec = (time_t)(ms / 1000);
	tv.tv_usec = (suseconds_t)(ms % 1000 * 1000);
	if (s->later != NULL && !evtimer_pending(s->later, NULL))
		(void)evtimer_add(s->later, &tv);
}

void
status_stopping(struct status *s)
{
	if (!s->stopping)
		notify(s, "STOPPING=1\nSTATUS=stopping");
	s->stopping = 1;
}
