#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "keeper.h"
#include "log.h"
#include "packet.h"
#include "peer.h"
#include "pool.h"
#include "sandbox.h"
#include "sys.h"

#define SET_UP_MS 30000 /* native-sandbox 14.4 */
#define DEATH_MS  10000
#define HOLD_MS   20

static void
set_timer(struct sandbox *sb, int ms)
{
	struct timeval tv = { ms / 1000, (ms % 1000) * 1000 };

	if (event_add(sb->timer, &tv) == -1)
		fatalx("sandbox: no timer");
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct sandbox *sb = arg;

	(void)fd;
	(void)what;
	switch (sb->state) {
	case SANDBOX_ASKED:
	case SANDBOX_SET_UP:
		pool_failed(sb, "set-up: time limit");
		break;
	case SANDBOX_DYING:
		sb->state = SANDBOX_STUCK;
		pool_stuck(sb);
		break;
	case SANDBOX_UP:
		pool_unhold(sb);
		break;
	default:
		break;
	}
}

static void
on_end(evutil_socket_t fd, short what, void *arg)
{
	struct sandbox *sb = arg;

	(void)fd;
	(void)what;
	event_del(sb->timer);
	event_free(sb->pid_ev);
	sb->pid_ev = NULL;
	close(sb->pidfd);
	sb->pidfd = -1;
	if (sb->state == SANDBOX_STUCK)
		log_warnx("workspace %s: available again", sb->root.id);
	sb->state = SANDBOX_NONE;
	pool_gone(sb);
}

/* The first packet of a keeper. */
static void
read_ready(struct sandbox *sb)
{
	struct keeper_ready ready;
	ssize_t n;

	do {
		n = recv(sb->control, &ready, sizeof(ready), MSG_DONTWAIT);
	} while (n == -1 && errno == EINTR);
	if (n == -1 && errno == EAGAIN)
		return;
	if (n != (ssize_t)sizeof(ready)) {
		pool_failed(sb, "set-up: ended without a word");
		return;
	}
	ready.error.text[sizeof(ready.error.text) - 1] = '\0';
	if (!ready.ok) {
		pool_failed(sb, ready.error.text);
		return;
	}
	event_del(sb->timer);
	sb->state = SANDBOX_UP;
	pool_set_up(sb);
}

void
sandbox_hold(struct sandbox *sb)
{
	set_timer(sb, HOLD_MS);
}

int
sandbox_alive(const struct sandbox *sb)
{
	char c;

	return recv(sb->control, &c, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

static void
on_control(evutil_socket_t fd, short what, void *arg)
{
	struct sandbox *sb = arg;

	(void)fd;
	(void)what;
	if (sb->state == SANDBOX_SET_UP)
		read_ready(sb);
	else if (!sandbox_alive(sb))
		pool_died(sb, "first process");
	else
		sb->pool->handlers->answered(sb);
}

int
sandbox_init(struct sandbox *sb, struct event_base *base)
{
	sb->state = SANDBOX_NONE;
	sb->control = sb->files_fd = sb->pidfd = -1;
	sb->timer = event_new(base, -1, 0, on_timer, sb);
	return sb->timer == NULL ? -1 : 0;
}

int
sandbox_ask(struct sandbox *sb, int spawner)
{
	struct spawn_request q;
	struct iovec iov = { &q, sizeof(q) };

	q.root = sb->root.index;
	q.serial = ++sb->serial;
	if (packet_send(spawner, &iov, 1, NULL, 0) == -1)
		return -1;
	sb->state = SANDBOX_ASKED;
	set_timer(sb, SET_UP_MS);
	return 0;
}

void
sandbox_answer(
    struct sandbox *sb, const struct spawn_answer *a, int fds[SPAWN_FDS])
{
	struct event_base *base = event_get_base(sb->timer);

	if (sb->state != SANDBOX_ASKED || a->serial != sb->serial) {
		/* It came after its time limit. */
		if (a->ok) {
			(void)sys_pidfd_kill(fds[SPAWN_PIDFD], SIGKILL);
			packet_close(fds, SPAWN_FDS);
		}
		return;
	}
	if (!a->ok) {
		pool_failed(sb, a->error.text);
		return;
	}
	sb->state = SANDBOX_SET_UP;
	sb->control = fds[SPAWN_CONTROL];
	sb->files_fd = fds[SPAWN_FILES];
	sb->pidfd = fds[SPAWN_PIDFD];
	sb->control_ev = event_new(
	    base, sb->control, EV_READ | EV_PERSIST, on_control, sb);
	sb->pid_ev = event_new(base, sb->pidfd, EV_READ, on_end, sb);
	if (sb->control_ev == NULL || sb->pid_ev == NULL ||
	    event_add(sb->control_ev, NULL) == -1)
		fatalx("sandbox: no event");
}

void
sandbox_kill(struct sandbox *sb)
{
	event_del(sb->timer);
	if (sb->control_ev != NULL) {
		event_free(sb->control_ev);
		sb->control_ev = NULL;
	}
	if (sb->control != -1)
		close(sb->control);
	peer_free(sb->files);
	sb->files = NULL;
	if (sb->files_fd != -1)
		close(sb->files_fd);
	sb->control = sb->files_fd = -1;
	if (sb->pidfd == -1) {
		sb->state = SANDBOX_NONE;
		return;
	}
	if (sys_pidfd_kill(sb->pidfd, SIGKILL) == -1 && errno != ESRCH)
		log_warn("workspace %s: kill of its sandbox", sb->root.id);
	sb->state = SANDBOX_DYING;
	set_timer(sb, DEATH_MS);
	if (event_add(sb->pid_ev, NULL) == -1)
		fatalx("sandbox: no event");
}
