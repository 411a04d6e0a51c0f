#include "config.h"

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "dead.h"
#include "keeper.h"
#include "log.h"
#include "proc.h"
#include "sandbox.h"
#include "sys.h"

#define SET_UP_TIMEOUT_MS 30000

#define NAMESPACES                                                             \
	((uint64_t)CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | \
	    CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

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

static int
wait_ready(int control, pid_t pid, struct keeper_ready *ready)
{
	struct pollfd pfd = { control, POLLIN, 0 };
	ssize_t n;
	int r;

	memset(ready, 0, sizeof(*ready));
	do {
		r = poll(&pfd, 1, SET_UP_TIMEOUT_MS);
	} while (r == -1 && errno == EINTR);
	if (r == 0)
		errno = ETIMEDOUT;
	if (r <= 0)
		return step_failed(&ready->error, "set-up");
	n = recv(control, ready, sizeof(*ready), 0);
	if (n == 0) {
		(void)waitpid(pid, NULL, 0);
		errno = ECHILD;
		return step_failed(
		    &ready->error, "set-up ended without a word");
	}
	if (n != (ssize_t)sizeof(*ready)) {
		memset(ready, 0, sizeof(*ready));
		errno = EPROTO;
		return step_failed(&ready->error, "set-up");
	}
	ready->error.text[sizeof(ready->error.text) - 1] = '\0';
	return ready->ok ? 0 : -1;
}

static int
kernel_setting(const char *path)
{
	char c = '\0';
	int fd, save = errno;

	/* The caller has an error to report. */
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) != -1) {
		if (read(fd, &c, 1) != 1)
			c = '\0';
		close(fd);
	}
	errno = save;
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
	return strncmp(step, "user namespace", 14) == 0 ||
	    strncmp(step, "loopback", 8) == 0 ||
	    strncmp(step, "mount ", 6) == 0 ||
	    strncmp(step, "pivot_root", 10) == 0;
}

static int
start_keeper(struct sandbox *sb, struct keeper *k, char **error)
{
	int control[2], files[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) ==
	    -1) {
		*error = xasprintf("socketpair: %s", strerror(errno));
		return -1;
	}
	if (proc_socketpair(files) == -1) {
		*error = xasprintf("socketpair: %s", strerror(errno));
		close(control[0]);
		close(control[1]);
		return -1;
	}
	k->control = control[1];
	k->files = files[1];
	/* The keeper finds the root as its current directory (mount.c). */
	if (!k->plan->root_detached && fchdir(k->plan->root_fd) == -1) {
		*error = xasprintf("root %s: the account may not enter it: %s",
		    sb->root.path, strerror(errno));
		pid = -1;
	} else {
		pid = sys_clone(NAMESPACES, NULL);
		if (pid == 0) {
			close(control[0]);
			close(files[0]);
			keeper_main(k);
		}
		if (pid == -1)
			*error = xasprintf(
			    "namespaces: %s; %s", strerror(errno), remedy());
	}
	if (chdir("/") == -1)
		fatal("chdir /");
	close(control[1]);
	close(files[1]);
	if (pid == -1) {
		close(control[0]);
		close(files[0]);
		return -1;
	}
	sb->pid = pid;
	sb->control = control[0];
	sb->files_fd = files[0];
	return 0;
}

/* Nothing works on a root whose file system is dead. */
static int
check_root(const struct mount_plan *mp, char **error)
{
	size_t i;

	for (i = 0; i < mp->ndead; i++)
		if (path_below(mp->root_path, mp->dead[i])) {
			*error = xasprintf("root %s: the file system mounted "
					   "at %s does not answer",
			    mp->root_path, mp->dead[i]);
			return -1;
		}
	return 0;
}

/* Looked for once: each of them costs a second. */
static char *const *
dead_points(size_t *n)
{
	static char **points;
	static size_t count;
	static int done;

	if (!done)
		dead_find(&points, &count);
	done = 1;
	*n = count;
	return points;
}

int
sandbox_start(struct sandbox *sandboxes, size_t n, size_t i,
    const struct executor_config *c, const struct sock_fprog *filter,
    const struct sock_fprog *notify, char **error)
{
	struct sandbox *sb = &sandboxes[i];
	struct keeper_ready ready;
	struct mount_plan mp;
	struct keeper k;
	const char *others[ROOTS_MAX];
	size_t j, m = 0;

	for (j = 0; j < n; j++)
		if (j != i)
			others[m++] = sandboxes[j].root.path;
	memset(&mp, 0, sizeof(mp));
	mp.root_path = sb->root.path;
	mp.root_fd = sb->root_fd;
	mp.root_detached = sb->root.mount != ROOT_DIRECTORY;
	mp.uid = (uid_t)c->uid;
	mp.gid = (gid_t)c->gid;
	mp.user = c->user;
	mp.home = c->home;
	mp.hidden = c->hidden;
	mp.nhidden = c->nhidden;
	mp.others = others;
	mp.nothers = m;
	mp.dead = dead_points(&mp.ndead);
	mp.tmp_bytes = c->tmp_bytes;
	mp.home_bytes = c->home_bytes;
	mp.protection = (enum protection)c->protection;
	sb->env = build_env(c, sb->root.path);

	memset(&k, 0, sizeof(k));
	k.plan = &mp;
	k.id = sb->root.id;
	k.env = sb->env;
	k.filter = filter;
	k.notify = notify;
	if (check_root(&mp, error) == -1 || start_keeper(sb, &k, error) == -1)
		return -1;
	if (wait_ready(sb->control, sb->pid, &ready) == -1) {
		*error = xasprintf("workspace %s: sandbox: %s%s%s", sb->root.id,
		    ready.error.text,
		    about_namespaces(ready.error.text) ? "; " : "",
		    about_namespaces(ready.error.text) ? remedy() : "");
		return -1;
	}
	close(sb->root_fd);
	sb->root_fd = -1;
	return 0;
}
