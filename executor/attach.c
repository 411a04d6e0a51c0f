#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attach.h"
#include "buf.h"
#include "sys.h"

#define INODES_PER_TMPFS 200000

int
step_failed(struct step_error *se, const char *fmt, ...)
{
	va_list ap;
	int save = errno, n;
	size_t len;

	va_start(ap, fmt);
	n = vsnprintf(se->text, sizeof(se->text), fmt, ap);
	va_end(ap);
	len = n < 0 ? 0 : (size_t)n;
	if (len >= sizeof(se->text))
		len = sizeof(se->text) - 1;
	(void)xsnprintf(
	    se->text + len, sizeof(se->text) - len, ": %s", strerror(save));
	errno = save;
	return -1;
}

int
tmpfs_new(uint64_t bytes, const char *mode, uint64_t attr)
{
	char size[48], inodes[48], m[32];
	const char *options[] = { size, inodes, m, NULL };

	(void)xsnprintf(
	    size, sizeof(size), "size=%llu", (unsigned long long)bytes);
	(void)xsnprintf(
	    inodes, sizeof(inodes), "nr_inodes=%d", INODES_PER_TMPFS);
	(void)xsnprintf(m, sizeof(m), "mode=%s", mode);
	return sys_mount_new(
	    "tmpfs", options, attr | SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV);
}

int
attach(int mnt, const char *path, const char *what, struct step_error *se)
{
	int fd, save, r = -1;

	if (mnt == -1)
		return step_failed(se, "mount %s: %s", path, what);
	/* Some systems have links at the top, for example /home. */
	if ((fd = open(path, O_PATH | O_CLOEXEC)) != -1) {
		r = sys_move_mount_to(mnt, fd);
		close(fd);
	}
	if (r == -1)
		(void)step_failed(se, "mount %s: attach %s", path, what);
	save = errno;
	close(mnt);
	errno = save;
	return r;
}

int
attach_tmpfs(
    const char *path, uint64_t bytes, const char *mode, struct step_error *se)
{
	return attach(tmpfs_new(bytes, mode, 0), path, "tmpfs", se);
}

int
make_directories(const char *path, mode_t mode, struct step_error *se)
{
	char part[PATH_MAX];
	const char *p = path;
	size_t n;

	while (*p != '\0') {
		while (*p == '/')
			p++;
		p += strcspn(p, "/");
		n = (size_t)(p - path);
		if (n >= sizeof(part)) {
			errno = ENAMETOOLONG;
			return step_failed(se, "mkdir %s", path);
		}
		memcpy(part, path, n);
		part[n] = '\0';
		if (n > 0 && mkdir(part, mode) == -1 && errno != EEXIST &&
		    !(errno == EROFS && access(part, F_OK) == 0))
			return step_failed(se, "mkdir %s", part);
	}
	return 0;
}

int
is_directory(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int
path_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	while (n > 0 && dir[n - 1] == '/')
		n--;
	return strncmp(path, dir, n) == 0 &&
	    (path[n] == '/' || path[n] == '\0');
}
