#include "config.h"

#include <sys/types.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

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
#include "private.h"

static void
put_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd == -1 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		fatal("%s", path);
	close(fd);
}

static int
map_self(uid_t uid, gid_t gid)
{
	char map[64];

	put_text("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "%lu %lu 1", (unsigned long)uid,
	    (unsigned long)uid);
	put_text("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "%lu %lu 1", (unsigned long)gid,
	    (unsigned long)gid);
	put_text("/proc/self/gid_map", map);
	return 0;
}

/* An entry of "/" in the new root: a link, or a directory bound to it. */
static int
take_over(const char *name)
{
	char from[300], to[300], target[256];
	struct stat st;
	ssize_t n;

	snprintf(from, sizeof(from), "/%s", name);
	snprintf(to, sizeof(to), "/tmp/%s", name);
	if (lstat(from, &st) == -1)
		return 0;
	if (S_ISLNK(st.st_mode)) {
		n = readlink(from, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		return symlink(target, to);
	}
	if (!S_ISDIR(st.st_mode) || strcmp(name, "tmp") == 0)
		return 0;
	if (mkdir(to, 0755) == -1)
		return -1;
	if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) == -1)
		(void)rmdir(to);
	return 0;
}

static int
build_root(void)
{
	struct dirent *de;
	DIR *d;

	if (mount("tmpfs", "/tmp", "tmpfs", 0, "mode=0755") == -1 ||
	    (d = opendir("/")) == NULL)
		return -1;
	while ((de = readdir(d)) != NULL)
		if (strcmp(de->d_name, ".") != 0 &&
		    strcmp(de->d_name, "..") != 0 &&
		    take_over(de->d_name) == -1)
			return -1;
	closedir(d);
	if (mkdir("/tmp/tmp", 0755) == -1 || chdir("/tmp") == -1 ||
	    syscall(SYS_pivot_root, ".", ".") == -1 ||
	    umount2(".", MNT_DETACH) == -1)
		return -1;
	return chdir("/");
}

/* The installed programs must belong to the account, too. */
static int
copy_programs(void)
{
	const char *program = getenv("PROGRAM");
	char *from, *to, *slash;
	pid_t pid;
	int status;

	/* STAGE/usr/local/bin/librechat-code: three levels up */
	from = xstrdup(program);
	if ((slash = strstr(from, BINDIR "/librechat-code")) == NULL)
		return -1;
	to = xasprintf("/tmp/stage%s", slash);
	*slash = '\0';
	if ((pid = fork()) == 0) {
		(void)execlp("cp", "cp", "-R", from, "/tmp/stage", NULL);
		_exit(1);
	}
	(void)waitpid(pid, &status, 0);
	if (status != 0 || setenv("PROGRAM", to, 1) == -1)
		return -1;
	free(from);
	free(to);
	return 0;
}

void
private_mounts(char *why, size_t size)
{
	uid_t uid = getuid();
	gid_t gid = getgid();

	why[0] = '\0';
	if (unshare(CLONE_NEWNS | (uid == 0 ? 0 : CLONE_NEWUSER)) == -1) {
		snprintf(why, size, "no mount namespace: %s", strerror(errno));
		return;
	}
	if (uid != 0)
		map_self(uid, gid);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1 ||
	    (uid != 0 && (build_root() == -1 || copy_programs() == -1)))
		snprintf(why, size, "no root directory of its own: %s",
		    strerror(errno));
}

void
private_again(char *why, size_t size)
{
	why[0] = '\0';
	if (unshare(CLONE_NEWNS) == -1 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1)
		snprintf(why, size, "no further mount namespace: %s",
		    strerror(errno));
}
