#include "config.h"

#include <sys/types.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "log.h"
#include "tree.h"

char *
tree_path(struct harness *h, size_t root, const char *name)
{
	return xasprintf("%s/%s", h->roots[root], name);
}

static void
own(struct harness *h, const char *path)
{
	if (lchown(path, h->uid, h->gid) == -1)
		fatal("chown %s", path);
}

/* Makes the directories before the last slash. */
static void
make_parents(struct harness *h, char *path)
{
	char *p = path + strlen(h->dir) + 1;

	while ((p = strchr(p, '/')) != NULL) {
		*p = '\0';
		if (mkdir(path, 0755) == 0)
			own(h, path);
		else if (errno != EEXIST)
			fatal("mkdir %s", path);
		*p++ = '/';
	}
}

void
tree_file(struct harness *h, size_t root, const char *name, const void *data,
    size_t len)
{
	char *path = tree_path(h, root, name);

	make_parents(h, path);
	put_file(h, h->roots[root], name, data, len, 0644);
	free(path);
}

void
tree_text(struct harness *h, size_t root, const char *name, const char *text)
{
	tree_file(h, root, name, text, strlen(text));
}

void
tree_dir(struct harness *h, size_t root, const char *name)
{
	char *path = xasprintf("%s/%s/", h->roots[root], name);

	make_parents(h, path);
	free(path);
}

void
tree_link(struct harness *h, size_t root, const char *target, const char *name)
{
	char *path = tree_path(h, root, name);

	make_parents(h, path);
	if (symlink(target, path) == -1)
		fatal("symlink %s", path);
	own(h, path);
	free(path);
}

void
tree_fifo(struct harness *h, size_t root, const char *name)
{
	char *path = tree_path(h, root, name);

	make_parents(h, path);
	if (mkfifo(path, 0666) == -1)
		fatal("mkfifo %s", path);
	own(h, path);
	free(path);
}

void
tree_many(struct harness *h, size_t root, const char *prefix, int width,
    int from, int to)
{
	char *name;
	int dir, fd, i;

	name = xasprintf("%s%0*d", prefix, width, from);
	tree_file(h, root, name, "", 0);
	free(name);
	dir = open(h->roots[root], O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (i = from; i < to; i++) {
		name = xasprintf("%s%0*d", prefix, width, i);
		fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd == -1 || write(fd, "x\n", 2) != 2)
			fatal("%s", name);
		close(fd);
		free(name);
	}
	close(dir);
}

char *
tree_outside(struct harness *h)
{
	static const char *const replaced[] = { "/tmp/", "/var/tmp/", "/home/",
		"/root/", "/run/", "/dev/", "/proc/" };
	char cwd[1024], *path, *slash, *part;
	size_t len;
	struct stat st;
	size_t i;

	if (geteuid() == 0)
		return visible_scratch(h);
	if (getcwd(cwd, sizeof(cwd) - 1) == NULL)
		return NULL;
	len = strlen(cwd);
	cwd[len] = '/';
	cwd[len + 1] = '\0';
	for (i = 0; i < sizeof(replaced) / sizeof(replaced[0]); i++)
		if (strncmp(cwd, replaced[i], strlen(replaced[i])) == 0)
			return NULL;
	cwd[len] = '\0';
	/* The account must be able to get there. */
	for (part = xstrdup(cwd); (slash = strrchr(part, '/')) != NULL;
	     *slash = '\0') {
		if (stat(part, &st) == -1 ||
		    (st.st_uid != h->uid && (st.st_mode & 0005) != 0005)) {
			free(part);
			return NULL;
		}
		if (slash == part)
			break;
	}
	free(part);
	path = xasprintf("%s/tree.XXXXXX", cwd);
	if (mkdtemp(path) == NULL || chmod(path, 0755) == -1) {
		free(path);
		return NULL;
	}
	own(h, path);
	return path;
}

/* Name and parent of a process, proc(5); 0 if it is gone. */
static int
process(pid_t pid, char *comm, size_t size, pid_t *parent)
{
	char path[64], line[512], *open_paren, *close_paren;
	ssize_t n;
	int fd, ppid;

	xsnprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		return 0;
	n = read(fd, line, sizeof(line) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	line[n] = '\0';
	open_paren = strchr(line, '(');
	close_paren = strrchr(line, ')');
	if (open_paren == NULL || close_paren == NULL ||
	    sscanf(close_paren + 1, " %*c %d", &ppid) != 1)
		return 0;
	*close_paren = '\0';
	xsnprintf(comm, size, "%s", open_paren + 1);
	*parent = ppid;
	return 1;
}

size_t
tree_file_processes(struct harness *h, pid_t *pids, size_t max)
{
	char comm[64], other[64];
	struct dirent *de;
	pid_t pid, up;
	size_t n = 0;
	DIR *d;

	if ((d = opendir("/proc")) == NULL)
		return 0;
	while (n < max && (de = readdir(d)) != NULL) {
		pid = (pid_t)atoi(de->d_name);
		if (pid <= 0 || !process(pid, comm, sizeof(comm), &up) ||
		    strcmp(comm, "files") != 0)
			continue;
		while (up > 1 && up != h->pid)
			if (!process(up, other, sizeof(other), &up))
				break;
		if (up == h->pid)
			pids[n++] = pid;
	}
	closedir(d);
	return n;
}

static int
write_text(const char *path, const char *text)
{
	int fd, r;

	if ((fd = open(path, O_WRONLY | O_CLOEXEC)) == -1)
		return -1;
	r = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
	close(fd);
	return r;
}

int
tree_hide_rg(void)
{
	static const char *const places[] = { "/usr/local/bin/rg",
		"/usr/bin/rg", "/bin/rg" };
	char map[64];
	unsigned int uid = getuid(), gid = getgid();
	size_t i;

	if (uid == 0) {
		if (unshare(CLONE_NEWNS) == -1)
			return 0;
	} else {
		if (unshare(CLONE_NEWNS | CLONE_NEWUSER) == -1 ||
		    write_text("/proc/self/setgroups", "deny") == -1)
			return 0;
		xsnprintf(map, sizeof(map), "%u %u 1", uid, uid);
		if (write_text("/proc/self/uid_map", map) == -1)
			return 0;
		xsnprintf(map, sizeof(map), "%u %u 1", gid, gid);
		if (write_text("/proc/self/gid_map", map) == -1)
			return 0;
	}
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1)
		return 0;
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (access(places[i], F_OK) == 0 &&
		    mount("/dev/null", places[i], NULL, MS_BIND, NULL) == -1)
			return 0;
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (access(places[i], X_OK) == 0)
			return 0;
	return 1;
}
