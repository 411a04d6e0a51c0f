#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "buf.h"
#include "log.h"
#include "packet.h"
#include "pool.h"

/* ---- why a sandbox cannot be made ---- */

static int
kernel_setting(const char *path)
{
	char c = '\0';
	int fd;

	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		return -1;
	if (read(fd, &c, 1) != 1)
		c = '\0';
	close(fd);
	return c;
}

/* What an operator can do about a refused namespace or mount. */
static const char *
remedy(void)
{
	if (kernel_setting("/proc/sys/kernel/"
			   "apparmor_restrict_unprivileged_userns") == '1')
		return "AppArmor restricts user namespaces: copy " PKGDATADIR
		       "/librechat-code.apparmor to /etc/apparmor.d and load "
		       "it with apparmor_parser -r";
	if (kernel_setting("/proc/sys/kernel/unprivileged_userns_clone") == '0')
		return "set kernel.unprivileged_userns_clone=1";
	if (kernel_setting("/proc/sys/user/max_user_namespaces") == '0')
		return "set user.max_user_namespaces to 10000 or more";
	return "if this is a container, it must allow user namespaces and "
	       "mounts";
}

/* Steps whose failure the kernel's configuration explains. */
static int
about_namespaces(const char *step)
{
	static const char *const steps[] = { "namespaces", "user namespace",
		"loopback", "mount ", "pivot_root" };
	size_t i;

	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (strncmp(step, steps[i], strlen(steps[i])) == 0)
			return 1;
	return 0;
}

/* ---- capacity ---- */

static size_t
count_live(const struct pool *p)
{
	size_t i, n = 0;

	for (i = 0; i < p->n; i++)
		n += p->sandboxes[i].state == SANDBOX_ASKED ||
		    p->sandboxes[i].state == SANDBOX_SET_UP ||
		    p->sandboxes[i].state == SANDBOX_UP;
	return n;
}

static int
has_commands(const struct sandbox *sb)
{
	return (sb->root.operations & OP_BIT(OP_EXECUTE_COMMAND)) != 0;
}

/* The idle sandbox that is missed least, or NULL. */
static struct sandbox *
find_victim(const struct pool *p)
{
	struct sandbox *sb, *victim = NULL;
	size_t i;

	for (i = 0; i < p->n; i++) {
		sb = &p->sandboxes[i];
		if (sb->state != SANDBOX_UP || sb->busy)
			continue;
		if (victim == NULL || has_commands(sb) < has_commands(victim) ||
		    (has_commands(sb) == has_commands(victim) &&
			sb->used < victim->used))
			victim = sb;
	}
	return victim;
}

/*
 * Destroys idle sandboxes until there are at most max, if that is possible.
 * Returns the last one or NULL.
 */
static struct sandbox *
shrink(struct pool *p, size_t max)
{
	struct sandbox *victim, *last = NULL;

	while (count_live(p) > max && (victim = find_victim(p)) != NULL) {
		log_debug("workspace %s: its idle sandbox makes room",
		    victim->root.id);
		sandbox_kill(victim);
		last = victim;
	}
	return last;
}

static void
make(struct sandbox *sb)
{
	struct pool *p = sb->pool;

	sb->held = 0;
	sb->after = shrink(p, p->capacity - 1);
	if (sandbox_ask(sb, p->spawner) == -1)
		p->handlers->no_spawner(p->arg);
}

enum pool_answer
pool_want(struct sandbox *sb)
{
	sb->busy = 1;
	sb->used = ++sb->pool->clock;
	if (sb->state == SANDBOX_UP && !sandbox_alive(sb)) {
		/* Its end has not been noticed yet. */
		sb->busy = 0;
		pool_died(sb, "first process");
		sb->busy = 1;
	}
	switch (sb->state) {
	case SANDBOX_UP:
		return sb->held ? POOL_LATER : POOL_UP;
	case SANDBOX_STUCK:
		sb->busy = 0;
		return POOL_UNAVAILABLE;
	case SANDBOX_NONE:
		make(sb);
		return POOL_LATER;
	default:
		return POOL_LATER;
	}
}

void
pool_release(struct sandbox *sb)
{
	sb->busy = 0;
	(void)shrink(sb->pool, sb->pool->capacity);
}

/* ---- what becomes of a sandbox ---- */

void
pool_set_up(struct sandbox *sb)
{
	struct pool *p = sb->pool;

	p->handlers->ready(sb);
	if (!sb->busy)
		(void)shrink(p, p->capacity);
	else if (sb->after != NULL) {
		sb->held = 1;
		sandbox_hold(sb);
	} else
		p->handlers->up(sb);
}

void
pool_unhold(struct sandbox *sb)
{
	sb->after = NULL;
	if (!sb->held)
		return;
	sb->held = 0;
	if (sb->busy)
		sb->pool->handlers->up(sb);
}

void
pool_failed(struct sandbox *sb, const char *step)
{
	struct pool *p = sb->pool;
	int about = about_namespaces(step);
	char *text;

	text = xasprintf("workspace %s: sandbox: %s%s%s", sb->root.id, step,
	    about ? "; " : "", about ? p->remedy : "");
	sandbox_kill(sb);
	log_warnx("%s", text);
	if (sb->busy)
		p->handlers->failed(sb, text);
	free(text);
}

void
pool_died(struct sandbox *sb, const char *what)
{
	if (sb->state != SANDBOX_UP)
		return;
	log_warnx(
	    "workspace %s: the %s of its sandbox died", sb->root.id, what);
	sandbox_kill(sb);
	if (sb->busy)
		sb->pool->handlers->lost(sb);
}

void
pool_gone(struct sandbox *sb)
{
	struct pool *p = sb->pool;
	size_t i;

	for (i = 0; i < p->n; i++)
		if (p->sandboxes[i].after == sb)
			pool_unhold(&p->sandboxes[i]);
	if (sb->busy)
		make(sb);
}

void
pool_stuck(struct sandbox *sb)
{
	char *text;

	text = xasprintf("workspace %s: unavailable: a process of its old "
			 "sandbox does not end when killed",
	    sb->root.id);
	log_warnx("%s", text);
	if (sb->busy)
		sb->pool->handlers->failed(sb, text);
	free(text);
}

/* ---- the spawner ---- */

static void
on_spawner(evutil_socket_t fd, short what, void *arg)
{
	struct pool *p = arg;
	struct spawn_answer a;
	int fds[SPAWN_FDS];
	size_t got;
	ssize_t n;

	(void)what;
	n = packet_receive(
	    fd, &a, sizeof(a), fds, SPAWN_FDS, &got, MSG_DONTWAIT);
	if (n == -1 && errno == EAGAIN)
		return;
	if (n <= 0) {
		p->handlers->no_spawner(p->arg);
		return;
	}
	if (n != (ssize_t)sizeof(a) || a.root >= p->n ||
	    got != (a.ok ? SPAWN_FDS : 0))
		fatalx("the spawner sent a malformed answer");
	a.error.text[sizeof(a.error.text) - 1] = '\0';
	sandbox_answer(&p->sandboxes[a.root], &a, fds);
}

int
pool_init(struct pool *p, struct event_base *base, struct sandbox *sandboxes,
    size_t n, size_t capacity, int spawner,
    const struct pool_handlers *handlers, void *arg)
{
	size_t i;

	memset(p, 0, sizeof(*p));
	p->handlers = handlers;
	p->arg = arg;
	p->sandboxes = sandboxes;
	p->n = n;
	p->capacity = capacity;
	p->spawner = spawner;
	p->remedy = remedy();
	for (i = 0; i < n; i++) {
		sandboxes[i].pool = p;
		if (sandbox_init(&sandboxes[i], base) == -1)
			return -1;
	}
	p->spawner_ev = event_new(
	    base, spawner, EV_READ | EV_PERSIST, on_spawner, p);
	if (p->spawner_ev == NULL || event_add(p->spawner_ev, NULL) == -1)
		return -1;
	return 0;
}
