#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/vfs.h>
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "cgroup.h"
#include "error.h"
#include "times.h"

#define DAEMON    "daemon"
#define WORKSPACE "workspace-"
#define EMPTY_MS  2000 /* until killed processes have left a group */
#define POLL_MS   5
#define STALE_MAX 256 /* groups of an earlier daemon */

static int
make(int dir, const char *name)
{
	return mkdirat(dir, name, 0755);
}

static int
remove_group(int dir, const char *name)
{
	return unlinkat(dir, name, AT_REMOVEDIR);
}

/* The kernel takes one value with one write(2). */
static int
write_text(int dir, const char *name, const char *text)
{
	ssize_t n;
	int fd, save;

	fd = openat(dir, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd == -1)
		return -1;
	do {
		n = write(fd, text, strlen(text));
	} while (n == -1 && errno == EINTR);
	save = errno;
	close(fd);
	errno = save;
	if (n != -1 && (size_t)n != strlen(text)) {
		errno = EIO;
		return -1;
	}
	return n == -1 ? -1 : 0;
}

const struct cgroup_host cgroup_here = { "/proc/self/cgroup", NULL, make,
	remove_group, write_text };

/* A small file of the kernel, as a string: 0 or -1 with errno. */
static int
read_text(int dir, const char *name, char *text, size_t size)
{
	size_t got = 0;
	ssize_t n = 0;
	int fd, save;

	if ((fd = openat(dir, name, O_RDONLY | O_CLOEXEC)) == -1)
		return -1;
	while (got < size - 1) {
		n = read(fd, text + got, size - 1 - got);
		if (n == -1 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	save = errno;
	close(fd);
	errno = save;
	text[got] = '\0';
	return n == -1 ? -1 : 0;
}

/* ---- which group is ours ---- */

static const char *
find_top(void)
{
#ifdef __linux__
	static const char *const tops[] = { "/sys/fs/cgroup",
		"/sys/fs/cgroup/unified" };
	struct statfs sf;
	size_t i;

	for (i = 0; i < sizeof(tops) / sizeof(tops[0]); i++)
		if (statfs(tops[i], &sf) == 0 && sf.f_type == 0x63677270)
			return tops[i];
#endif
	return NULL;
}

/* The path after "0::", or NULL. */
static char *
own_group(const struct cgroup_host *h)
{
	char text[8192], *p, *end;

	if (read_text(AT_FDCWD, h->membership, text, sizeof(text)) == -1)
		return NULL;
	for (p = text; p != NULL; p = end) {
		if ((end = strchr(p, '\n')) != NULL)
			*end++ = '\0';
		if (strncmp(p, "0::/", 4) == 0 && strstr(p, "/..") == NULL)
			return xstrdup(p + 3);
	}
	return NULL;
}

static int
open_group(struct cgroups *g, const struct cgroup_host *h, char **why)
{
	const char *top = h->top != NULL ? h->top : find_top();
	char *own = own_group(h);

	memset(g, 0, sizeof(*g));
	g->host = h;
	g->fd = -1;
	if (top == NULL || own == NULL) {
		free(own);
		return errorf(why,
		    "there is no unified hierarchy of control groups (cgroup "
		    "v2)");
	}
	g->path = xasprintf("%s%s", top, strcmp(own, "/") == 0 ? "" : own);
	free(own);
	g->fd = open(g->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (g->fd == -1)
		return error_errno(why, "control group %s", g->path);
	return 0;
}

static void
close_group(struct cgroups *g)
{
	size_t i;

	for (i = 0; i < g->n; i++)
		close(g->groups[i]);
	free(g->groups);
	free(g->path);
	if (g->fd != -1)
		close(g->fd);
	memset(g, 0, sizeof(*g));
	g->fd = -1;
}

static int
has_word(const char *text, const char *word)
{
	size_t n = strlen(word);
	const char *p;

	for (p = text; (p = strstr(p, word)) != NULL; p += n)
		if ((p == text || p[-1] == ' ') &&
		    (p[n] == ' ' || p[n] == '\n' || p[n] == '\0'))
			return 1;
	return 0;
}

/* This process has it to itself: nobody else's limits are changed. */
static int
check_alone(const struct cgroups *g, char **why)
{
	char text[4096], *own;
	int alone;

	if (read_text(g->fd, "cgroup.procs", text, sizeof(text)) == -1)
		return error_errno(why, "control group %s", g->path);
	own = xasprintf("%ld\n", (long)getpid());
	alone = strcmp(text, own) == 0;
	free(own);
	if (!alone)
		return errorf(why,
		    "control group %s has other processes too; start the "
		    "worker as a service, or with systemd-run --scope -p "
		    "Delegate=yes",
		    g->path);
	return 0;
}

static int
check_group(const struct cgroups *g, char **why)
{
	static const char *const files[] = { ".", "cgroup.procs",
		"cgroup.subtree_control" };
	char text[1024];
	size_t i;

	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (faccessat(g->fd, files[i], W_OK, AT_EACCESS) == -1)
			return error_errno(why,
			    "control group %s is not delegated (in a unit of "
			    "systemd: Delegate=yes): %s",
			    g->path, files[i]);
	if (read_text(g->fd, "cgroup.controllers", text, sizeof(text)) == -1)
		return error_errno(why, "control group %s", g->path);
	if (!has_word(text, "memory") || !has_word(text, "pids"))
		return errorf(why,
		    "control group %s lacks the controllers memory and pids",
		    g->path);
	return check_alone(g, why);
}

int
cgroup_check(const struct cgroup_host *h, char **why)
{
	struct cgroups g;
	int r;

	r = open_group(&g, h, why);
	if (r == 0)
		r = check_group(&g, why);
	close_group(&g);
	return r;
}

/* ---- end of a group ---- */

static void
pause_ms(int ms)
{
	struct timespec ts = { ms / 1000, (ms % 1000) * 1000000L };

	(void)nanosleep(&ts, NULL);
}

/* Waits until no process is left: 0, or -1 with errno. */
static int
wait_empty(int fd)
{
	int64_t end = time_mono_ms() + EMPTY_MS;
	char text[1024];

	for (;;) {
		if (read_text(fd, "cgroup.events", text, sizeof(text)) == -1)
			return -1;
		if (strstr(text, "populated 0") != NULL)
			return 0;
		if (time_mono_ms() >= end) {
			errno = EBUSY;
			return -1;
		}
		pause_ms(POLL_MS);
	}
}

/* cgroup.kill: since Linux 5.14; without it the group must be empty. */
static int
end_group(const struct cgroups *g, const char *name, int kill)
{
	int fd, r = 0, save;

	fd = openat(g->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		return errno == ENOENT ? 0 : -1;
	if (kill && g->host->write(fd, "cgroup.kill", "1") == -1 &&
	    errno != ENOENT)
		r = -1;
	if (r == 0)
		r = wait_empty(fd);
	save = errno;
	close(fd);
	errno = save;
	return r == -1 ? -1 : g->host->remove(g->fd, name);
}

static int
is_ours(const char *name)
{
	size_t n = strlen(WORKSPACE);

	if (strcmp(name, DAEMON) == 0)
		return 1;
	return strncmp(name, WORKSPACE, n) == 0 && name[n] != '\0' &&
	    name[n + strspn(name + n, "0123456789")] == '\0';
}

/* What a daemon that was killed has left here. */
static int
remove_stale(struct cgroups *g, char **why)
{
	char *names[STALE_MAX];
	struct dirent *de;
	size_t i, n = 0;
	DIR *dir;
	int fd, r = 0;

	fd = openat(g->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1 || (dir = fdopendir(fd)) == NULL) {
		error_errno(why, "control group %s", g->path);
		if (fd != -1)
			close(fd);
		return -1;
	}
	while (n < STALE_MAX && (de = readdir(dir)) != NULL)
		if (is_ours(de->d_name))
			names[n++] = xstrdup(de->d_name);
	(void)closedir(dir);
	for (i = 0; i < n; i++) {
		if (r == 0 && end_group(g, names[i], 1) == -1)
			r = error_errno(why,
			    "control group %s/%s of an earlier start", g->path,
			    names[i]);
		free(names[i]);
	}
	return r;
}

/* ---- start ---- */

struct value {
	const char *name;
	char *text;
	int needed; /* else the file may be missing */
};

/* Limits of a workspace; a file that is missing has no effect to lose. */
static int
set_limits(const struct cgroups *g, int fd, const char *name,
    const struct cgroup_limits *l, char **why)
{
	struct value values[] = {
		{ "memory.max",
		    l->memory == 0
			? xstrdup("max")
			: xasprintf("%llu", (unsigned long long)l->memory),
		    1 },
		/* What is swapped out would not be seen by the limit. */
		{ "memory.swap.max", xstrdup(l->memory == 0 ? "max" : "0"), 0 },
		/* Half a build is of no use: the whole command ends. */
		{ "memory.oom.group", xstrdup("1"), 0 },
		{ "pids.max",
		    l->processes == 0
			? xstrdup("max")
			: xasprintf("%lu", (unsigned long)l->processes),
		    1 },
		/* Half the share of the daemon, which has little to do. */
		{ "cpu.weight", xstrdup("50"), 0 },
	};
	size_t i;
	int r = 0;

	for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		if (r == 0 &&
		    g->host->write(fd, values[i].name, values[i].text) == -1 &&
		    (values[i].needed || errno != ENOENT))
			r = error_errno(why, "control group %s/%s: %s", g->path,
			    name, values[i].name);
		free(values[i].text);
	}
	return r;
}

static int
make_workspace(struct cgroups *g, const struct cgroup_limits *l, uid_t owner,
    gid_t group, char **why)
{
	char *name = xasprintf("%s%zu", WORKSPACE, g->n);
	int fd = -1, r = -1;

	if (g->host->make(g->fd, name) == -1)
		error_errno(why, "control group %s/%s", g->path, name);
	else if ((fd = openat(
		      g->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) == -1) {
		error_errno(why, "control group %s/%s", g->path, name);
		(void)g->host->remove(g->fd, name);
	} else if (fchmod(fd, 0755) == -1)
		/* A umask of the service must not hide it from the executor. */
		error_errno(why, "control group %s/%s", g->path, name);
	else if (set_limits(g, fd, name, l, why) == 0) {
		if (owner != (uid_t)-1 &&
		    fchownat(fd, "cgroup.procs", owner, group,
			AT_SYMLINK_NOFOLLOW) == -1)
			error_errno(
			    why, "control group %s/%s: owner", g->path, name);
		else
			r = 0;
	}
	if (fd != -1)
		g->groups[g->n++] = fd;
	free(name);
	return r;
}

/* Into "daemon", since only a group without processes can be divided. */
static int
move_self(struct cgroups *g, char **why)
{
	int fd, r;

	if (g->host->make(g->fd, DAEMON) == -1)
		return error_errno(why, "control group %s/" DAEMON, g->path);
	fd = openat(g->fd, DAEMON, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		return error_errno(why, "control group %s/" DAEMON, g->path);
	if ((r = g->host->write(fd, "cgroup.procs", "0")) == -1)
		error_errno(
		    why, "control group %s/" DAEMON ": cgroup.procs", g->path);
	else
		g->moved = 1;
	close(fd);
	return r;
}

int
cgroup_start(struct cgroups *g, const struct cgroup_host *h,
    const struct cgroup_limits *l, size_t n, uid_t owner, gid_t group,
    char **why)
{
	int r;

	r = open_group(g, h, why);
	if (r == 0)
		r = check_group(g, why);
	if (r == -1) {
		close_group(g);
		return -1;
	}
	g->groups = xcalloc(n + 1, sizeof(*g->groups));
	if (remove_stale(g, why) == -1 || move_self(g, why) == -1)
		goto fail;
	if (h->write(g->fd, "cgroup.subtree_control", "+memory +pids") == -1) {
		error_errno(why, "control group %s: controllers", g->path);
		goto fail;
	}
	/* Where it is missing there is no share to give. */
	(void)h->write(g->fd, "cgroup.subtree_control", "+cpu");
	while (g->n < n)
		if (make_workspace(g, l, owner, group, why) == -1)
			goto fail;
	if (owner != (uid_t)-1 &&
	    fchownat(g->fd, "cgroup.procs", owner, group,
		AT_SYMLINK_NOFOLLOW) == -1) {
		error_errno(why, "control group %s: owner", g->path);
		goto fail;
	}
	return 0;
fail:
	cgroup_stop(g);
	return -1;
}

void
cgroup_stop(struct cgroups *g)
{
	char *name;
	size_t i;

	if (g->path == NULL)
		return;
	for (i = 0; i < g->n; i++) {
		name = xasprintf("%s%zu", WORKSPACE, i);
		(void)end_group(g, name, 1);
		free(name);
	}
	(void)g->host->write(g->fd, "cgroup.subtree_control", "-cpu");
	(void)g->host->write(g->fd, "cgroup.subtree_control", "-memory -pids");
	if (!g->moved || g->host->write(g->fd, "cgroup.procs", "0") == 0)
		(void)end_group(g, DAEMON, 0);
	close_group(g);
}
