#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "dead.h"
#include "filter.h"
#include "keeper.h"
#include "log.h"
#include "packet.h"
#include "proc.h"
#include "spawner.h"
#include "sys.h"

#define NAMESPACES                                                             \
	((uint64_t)CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | \
	    CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

#define FIRST_FD 3 /* after the log */

static const char *const own_names[] = { "HOME", "USER", "LOGNAME", "SHELL",
	"TMPDIR", "PWD", "OLDPWD", "SHLVL", "_" };

static int
is_own_name(const char *assignment)
{
	size_t i, n;

	for (i = 0; i < sizeof(own_names) / sizeof(own_names[0]); i++) {
		n = strlen(own_names[i]);
		if (strncmp(assignment, own_names[i], n) == 0 &&
		    assignment[n] == '=')
			return 1;
	}
	return 0;
}

/* Fixed part of a command's environment (native-sandbox 7.2, FT LF-5). */
static char **
build_env(const struct executor_config *c, const char *root)
{
	char **env;
	size_t i, n = 0;

	env = xcalloc(c->nenv + 24, sizeof(*env));
	for (i = 0; i < c->nenv; i++)
		if (!is_own_name(c->env[i]))
			env[n++] = xstrdup(c->env[i]);
	env[n++] = xasprintf("HOME=%s", c->home);
	env[n++] = xasprintf("USER=%s", c->user);
	env[n++] = xasprintf("LOGNAME=%s", c->user);
	env[n++] = xstrdup("SHELL=/bin/bash");
	env[n++] = xstrdup("TMPDIR=/tmp");
	env[n++] = xstrdup("SANDBOX_RUNTIME=1");
	/* Nobody can answer a question. */
	env[n++] = xstrdup("GIT_TERMINAL_PROMPT=0");
	env[n++] = xstrdup("DEBIAN_FRONTEND=noninteractive");
	env[n++] = xstrdup("PAGER=cat");
	env[n++] = xstrdup("GIT_PAGER=cat");
	env[n++] = xstrdup("GIT_CONFIG_NOSYSTEM=1");
	env[n++] = xstrdup("GIT_CONFIG_COUNT=1");
	env[n++] = xstrdup("GIT_CONFIG_KEY_0=safe.directory");
	env[n++] = xasprintf("GIT_CONFIG_VALUE_0=%s", root);
	return env;
}

/*
 * Gives the descriptors the numbers from FIRST_FD on and closes all others;
 * -1 stays -1. Returns 0 or -1.
 */
static int
keep_only(int *const *fds, size_t n)
{
	size_t i;
	int next = FIRST_FD;

	for (i = 0; i < n; i++) {
		if (*fds[i] == -1)
			continue;
		*fds[i] = fcntl(*fds[i], F_DUPFD_CLOEXEC, FIRST_FD + (int)n);
		if (*fds[i] == -1)
			return -1;
	}
	for (i = 0; i < n; i++) {
		if (*fds[i] == -1)
			continue;
		if (dup3(*fds[i], next, O_CLOEXEC) == -1)
			return -1;
		*fds[i] = next++;
	}
	proc_close_from(next);
	return 0;
}

static void
make_plan(const struct spawner *s, size_t index, struct mount_plan *mp,
    const char **others)
{
	const struct executor_config *c = s->config;
	size_t i;

	memset(mp, 0, sizeof(*mp));
	for (i = 0; i < s->nroots; i++)
		if (i != index)
			others[mp->nothers++] = s->roots[i]->path;
	mp->others = others;
	mp->root_path = s->roots[index]->path;
	mp->root_fd = s->fds[index].root;
	mp->uid = (uid_t)c->uid;
	mp->gid = (gid_t)c->gid;
	mp->user = c->user;
	mp->home = c->home;
	mp->hidden = c->hidden;
	mp->nhidden = c->nhidden;
	mp->tmp_bytes = c->tmp_bytes;
	mp->home_bytes = c->home_bytes;
	mp->protection = (enum protection)c->protection;
}

/* In the new namespaces. */
static void __attribute__((__noreturn__)) become_keeper(const struct spawner *s,
    size_t index, struct mount_plan *mp, int control, int files)
{
	struct keeper k;
	int *const keep[] = { &k.control, &k.files, &k.group, &mp->root_fd };

	memset(&k, 0, sizeof(k));
	k.control = control;
	k.files = files;
	k.plan = mp;
	k.id = s->roots[index]->id;
	k.env = build_env(s->config, s->roots[index]->path);
	k.filter = &s->filters[s->roots[index]->mount == ROOT_MAPPED];
	k.notify = s->notify;
	k.processes = s->config->processes;
	k.group = s->fds[index].group;
	if (keep_only(keep, sizeof(keep) / sizeof(keep[0])) == -1)
		_exit(1);
	keeper_main(&k);
}

static void
answer(const struct spawner *s, const struct spawn_request *q,
    const struct step_error *error, const int *fds)
{
	struct spawn_answer a;
	struct iovec iov = { &a, sizeof(a) };

	memset(&a, 0, sizeof(a));
	a.root = q->root;
	a.serial = q->serial;
	a.ok = fds != NULL;
	if (error != NULL)
		a.error = *error;
	/* Nobody is left to be told when this fails: the executor is dead. */
	(void)packet_send(
	    s->channel, &iov, 1, fds, fds == NULL ? 0 : SPAWN_FDS);
}

/*
 * A detached mount can be attached once and, before Linux 6.15, not cloned.
 * So the roots that come as one are attached in namespaces which exist for
 * that only and which the keepers of these roots are cloned from. They lie
 * where each sandbox has its private /dev in front of them.
 */
#define HOLD_PLACE "/dev/pts"

static int
attach_detached(const struct spawner *s, struct step_error *se)
{
	static const char *const options[] = { "size=64k", "mode=0755", NULL };
	char path[32];
	size_t i;
	int mnt;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == -1)
		return step_failed(se, "namespaces");
	if (keeper_map_account(s->config->uid, s->config->gid, se) == -1)
		return -1;
	mnt = sys_mount_new("tmpfs", options,
	    SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV | SYS_MOUNT_NOEXEC);
	if (mnt == -1 || sys_move_mount(mnt, AT_FDCWD, HOLD_PLACE) == -1)
		return step_failed(se, "mount %s: for the roots", HOLD_PLACE);
	for (i = 0; i < s->nroots; i++) {
		if (s->roots[i]->mount == ROOT_DIRECTORY)
			continue;
		(void)xsnprintf(path, sizeof(path), HOLD_PLACE "/%zu", i);
		if (mkdir(path, 0755) == -1 ||
		    sys_move_mount(s->fds[i].root, AT_FDCWD, path) == -1)
			return step_failed(
			    se, "root %s: attach", s->roots[i]->path);
	}
	return 0;
}

/* In a process of its own: makes the namespaces and sends them back. */
static void __attribute__((__noreturn__))
hold_main(const struct spawner *s, int sock)
{
	struct step_error error;
	struct iovec iov = { &error, sizeof(error) };
	int fds[2];

	memset(&error, 0, sizeof(error));
	if (attach_detached(s, &error) == 0) {
		fds[0] = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
		fds[1] = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
		if (fds[0] == -1 || fds[1] == -1)
			(void)step_failed(&error, "namespaces of the roots");
	}
	(void)packet_send(sock, &iov, 1, fds, error.text[0] == '\0' ? 2 : 0);
	_exit(0);
}

/* Gets the namespaces of the detached roots into user_ns and mount_ns. */
static int
hold_detached(struct spawner *s, struct step_error *se)
{
	struct step_error error;
	int sv[2], fds[2];
	size_t i, got;
	ssize_t n;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) == -1)
		return step_failed(se, "socketpair");
	if ((pid = fork()) == -1)
		return step_failed(se, "fork");
	if (pid == 0)
		hold_main(s, sv[1]);
	close(sv[1]);
	n = packet_receive(sv[0], &error, sizeof(error), fds, 2, &got, 0);
	close(sv[0]);
	if (n != (ssize_t)sizeof(error)) {
		errno = ECHILD;
		return step_failed(se, "roots: ended without a word");
	}
	error.text[sizeof(error.text) - 1] = '\0';
	if (got != 2) {
		*se = error;
		return -1;
	}
	s->user_ns = fds[0];
	s->mount_ns = fds[1];
	for (i = 0; i < s->nroots; i++)
		if (s->roots[i]->mount != ROOT_DIRECTORY) {
			close(s->fds[i].root);
			s->fds[i].root = -1;
		}
	return 0;
}

/* For the process that makes the keeper of such a root: its directory. */
static int
enter_detached(const struct spawner *s, size_t index, struct step_error *se)
{
	char path[32];
	int fd;

	if (setns(s->user_ns, CLONE_NEWUSER) == -1 ||
	    setns(s->mount_ns, CLONE_NEWNS) == -1)
		return step_failed(se, "namespaces of the roots");
	(void)xsnprintf(path, sizeof(path), HOLD_PLACE "/%zu", index);
	if ((fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)) == -1)
		return step_failed(se, "root %s: open", s->roots[index]->path);
	return fd;
}

/* Makes the keeper of one sandbox; 0, or -1 with the failed step. */
static int
make(const struct spawner *s, size_t index, int *fds, struct step_error *se)
{
	const char *others[ROOTS_MAX];
	int control[2], files[2];
	struct mount_plan mp;
	uint64_t namespaces = NAMESPACES;
	char **dead;
	size_t i, ndead;
	pid_t pid;

	dead_find(&dead, &ndead);
	for (i = 0; i < ndead; i++)
		if (path_below(s->roots[index]->path, dead[i])) {
			errno = ETIMEDOUT;
			return step_failed(se,
			    "root %s: the file system mounted at %s does not "
			    "answer",
			    s->roots[index]->path, dead[i]);
		}
	/* With a group each command has its own instead (init.c). */
	if (s->fds[index].group != -1)
		namespaces &= ~(uint64_t)CLONE_NEWCGROUP;
	if (s->broken.text[0] != '\0') {
		*se = s->broken;
		return -1;
	}
	make_plan(s, index, &mp, others);
	mp.dead = dead;
	mp.ndead = ndead;
	if (s->roots[index]->mount != ROOT_DIRECTORY &&
	    (mp.root_fd = enter_detached(s, index, se)) == -1)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) ==
		-1 ||
	    proc_socketpair(files) == -1)
		return step_failed(se, "socketpair");
	/* The keeper finds the root as its current directory (mount.c). */
	if (fchdir(mp.root_fd) == -1)
		return step_failed(
		    se, "root %s: the account may not enter it", mp.root_path);
	pid = sys_clone(namespaces | CLONE_PARENT, &fds[SPAWN_PIDFD], -1);
	if (pid == 0)
		become_keeper(s, index, &mp, control[1], files[1]);
	if (pid == -1)
		return step_failed(se, "namespaces");
	fds[SPAWN_CONTROL] = control[0];
	fds[SPAWN_FILES] = files[0];
	return 0;
}

/* One request in a process of its own: its descriptors go with it. */
static void __attribute__((__noreturn__))
serve(const struct spawner *s, const struct spawn_request *q)
{
	int fds[SPAWN_FDS] = { -1, -1, -1 };
	struct step_error error;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1)
		_exit(1);
	memset(&error, 0, sizeof(error));
	if (make(s, q->root, fds, &error) == -1)
		answer(s, q, &error, NULL);
	else
		answer(s, q, NULL, fds);
	_exit(0);
}

static int
any_detached(const struct spawner *s)
{
	size_t i;

	for (i = 0; i < s->nroots; i++)
		if (s->roots[i]->mount != ROOT_DIRECTORY)
			return 1;
	return 0;
}

static int
restrict_spawner(struct spawner *s)
{
	int *keep[3 + ROOTS_MAX * (sizeof(struct root_fds) / sizeof(int))];
	size_t i, n = 0;

	keep[n++] = &s->channel;
	keep[n++] = &s->user_ns;
	keep[n++] = &s->mount_ns;
	for (i = 0; i < s->nroots; i++) {
		keep[n++] = &s->fds[i].root;
		keep[n++] = &s->fds[i].group;
	}
	if (keep_only(keep, n) == -1 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1 ||
	    prctl(PR_SET_DUMPABLE, 0) == -1)
		return -1;
	return filter_install(s->own);
}

static void __attribute__((__noreturn__)) spawner_main(struct spawner *s)
{
	struct spawn_request q;
	struct step_error error;
	size_t got;
	ssize_t n;
	pid_t pid;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1)
		_exit(1);
	(void)prctl(PR_SET_NAME, "spawner", 0, 0, 0);
	log_init("spawner", log_verbose());
	s->user_ns = s->mount_ns = -1;
	if (any_detached(s))
		(void)hold_detached(s, &s->broken);
	if (restrict_spawner(s) == -1)
		fatal("spawner");
	for (;;) {
		n = packet_receive(s->channel, &q, sizeof(q), NULL, 0, &got, 0);
		if (n == 0)
			_exit(0);
		if (n != (ssize_t)sizeof(q) || q.root >= s->nroots)
			fatalx("spawner: malformed request");
		if ((pid = sys_clone(CLONE_PARENT, NULL, -1)) == 0)
			serve(s, &q);
		if (pid == -1) {
			(void)step_failed(&error, "fork");
			answer(s, &q, &error, NULL);
		}
	}
}

int
spawner_start(struct spawner *s, char **error)
{
	int sv[2];
	size_t i;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) == -1) {
		*error = xasprintf("spawner: socketpair: %s", strerror(errno));
		return -1;
	}
	if ((pid = fork()) == -1) {
		*error = xasprintf("spawner: fork: %s", strerror(errno));
		packet_close(sv, 2);
		return -1;
	}
	if (pid == 0) {
		s->channel = sv[1];
		spawner_main(s);
	}
	close(sv[1]);
	for (i = 0; i < s->nroots; i++) {
		close(s->fds[i].root);
		if (s->fds[i].group != -1)
			close(s->fds[i].group);
		s->fds[i].root = s->fds[i].group = -1;
	}
	return sv[0];
}
