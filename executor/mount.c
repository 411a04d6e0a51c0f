#include "config.h"

#include <sys/types.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "mount.h"
#include "protect.h"
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
	return -1;
}

/* Devices that are bound one by one into the private /dev. */
static const char *const devices[] = { "null", "zero", "full", "random",
	"urandom", "tty" };
#define NDEVICES (sizeof(devices) / sizeof(devices[0]))

/* Detached mounts that must be taken before the host's tree is left. */
struct pieces {
	int tree; /* the host, recursively */
	int root; /* the registered root */
	int proc;
	int sys; /* or -1: the host's stays, read-only */
	int device[NDEVICES];
};

static int
new_tmpfs(uint64_t bytes, const char *mode, uint64_t attr)
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

/* Attaches a detached mount, closing its descriptor in any case. */
static int
attach(int mnt, const char *path, const char *what, struct step_error *se)
{
	int r;

	if (mnt == -1)
		return step_failed(se, "mount %s: %s", path, what);
	if ((r = sys_move_mount(mnt, AT_FDCWD, path)) == -1)
		(void)step_failed(se, "mount %s: attach %s", path, what);
	close(mnt);
	return r;
}

static int
attach_tmpfs(
    const char *path, uint64_t bytes, const char *mode, struct step_error *se)
{
	return attach(new_tmpfs(bytes, mode, 0), path, "tmpfs", se);
}

/* An empty directory that nobody can fill. */
static int
attach_nothing(const char *path, struct step_error *se)
{
	return attach(
	    new_tmpfs(4096, "0555", SYS_MOUNT_RDONLY), path, "empty tmpfs", se);
}

static int
take_root(const struct mount_plan *mp, struct step_error *se)
{
	struct stat want, got;
	int fd;

	/*
	 * The descriptor names a mount of the namespace that was left behind
	 * and cannot be cloned, but the current directory, set before the
	 * clone, was carried over.
	 */
	if (fstat(mp->root_fd, &want) == -1 || stat(".", &got) == -1 ||
	    want.st_dev != got.st_dev || want.st_ino != got.st_ino) {
		errno = ESTALE;
		return step_failed(se, "root %s", mp->root_path);
	}
	if ((fd = sys_open_tree_clone(AT_FDCWD, ".", 1)) == -1)
		return step_failed(se, "root %s: open_tree", mp->root_path);
	return fd;
}

static int
take_pieces(
    const struct mount_plan *mp, struct pieces *pc, struct step_error *se)
{
	static const char *const no_options[] = { NULL };
	char path[32];
	size_t i;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1)
		return step_failed(se, "mount /: make private");
	if ((pc->root = take_root(mp, se)) == -1)
		return -1;
	if (sys_mount_setattr(
		pc->root, 1, SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV, 0) == -1)
		return step_failed(se, "root %s: mount_setattr", mp->root_path);
	for (i = 0; i < NDEVICES; i++) {
		(void)xsnprintf(path, sizeof(path), "/dev/%s", devices[i]);
		pc->device[i] = sys_open_tree_clone(AT_FDCWD, path, 0);
		if (pc->device[i] == -1)
			return step_failed(se, "mount %s: open_tree", path);
	}
	pc->proc = sys_mount_new("proc", no_options,
	    SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV | SYS_MOUNT_NOEXEC);
	if (pc->proc == -1)
		return step_failed(se,
		    "mount /proc (in a container it must "
		    "not be masked)");
	/* A sysfs of the own network namespace, if the host's is complete. */
	pc->sys = sys_mount_new("sysfs", no_options,
	    SYS_MOUNT_RDONLY | SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV |
		SYS_MOUNT_NOEXEC);
	if ((pc->tree = sys_open_tree_clone(AT_FDCWD, "/", 1)) == -1)
		return step_failed(se, "mount /: open_tree");
	if (sys_mount_setattr(pc->tree, 1,
		SYS_MOUNT_RDONLY | SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV, 0) == -1)
		return step_failed(se,
		    "mount /: mount_setattr read-only (Linux "
		    "5.12 or newer is needed)");
	return 0;
}

/* Leaves the host's tree; the detached one becomes "/". */
static int
enter_tree(int tree, struct step_error *se)
{
	int old;

	/* Any directory will do as the place where it is attached. */
	if (attach(tree, "/proc", "tree", se) == -1)
		return -1;
	if ((old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)) == -1)
		return step_failed(se, "open old /");
	if (chdir("/proc") == -1)
		return step_failed(se, "chdir to the new /");
	if (sys_pivot_root(".", ".") == -1)
		return step_failed(se, "pivot_root");
	if (fchdir(old) == -1)
		return step_failed(se, "chdir to the old /");
	close(old);
	if (umount2(".", MNT_DETACH) == -1)
		return step_failed(se, "unmount the old /");
	if (chdir("/") == -1)
		return step_failed(se, "chdir /");
	return 0;
}

/* 1 if path is dir or below it, by components. */
static int
below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	while (n > 0 && dir[n - 1] == '/')
		n--;
	return strncmp(path, dir, n) == 0 &&
	    (path[n] == '/' || path[n] == '\0');
}

/* Creates the missing directories of an absolute path. */
static int
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

static int
is_directory(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/*
 * Covers the hidden directories. An outer one covers those below it, so
 * only what is still there is covered; they stay writable for us until the
 * root and the home have their mount points.
 */
static int
hide_directories(const struct mount_plan *mp, struct step_error *se)
{
	size_t i;

	for (i = 0; i < mp->nhidden; i++) {
		if (!is_directory(mp->hidden[i]))
			continue;
		if (attach_tmpfs(mp->hidden[i], 1U << 20, "0755", se) == -1)
			return -1;
	}
	for (i = 0; i < mp->nothers; i++) {
		if (below(mp->root_path, mp->others[i]) ||
		    !is_directory(mp->others[i]))
			continue;
		if (attach_nothing(mp->others[i], se) == -1)
			return -1;
	}
	return 0;
}

static int
seal_hidden(const struct mount_plan *mp, struct step_error *se)
{
	size_t i;
	int fd;

	for (i = 0; i < mp->nhidden; i++) {
		if (!is_directory(mp->hidden[i]))
			continue;
		/* The home may be one of them; it has its own mount. */
		if (strcmp(mp->hidden[i], mp->home) == 0)
			continue;
		fd = open(mp->hidden[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd == -1)
			return step_failed(se, "open %s", mp->hidden[i]);
		/* Fails for a plain directory below another hidden one. */
		if (sys_mount_setattr(fd, 0, SYS_MOUNT_RDONLY, 0) == -1 &&
		    errno != EINVAL) {
			close(fd);
			return step_failed(
			    se, "mount %s: read-only", mp->hidden[i]);
		}
		close(fd);
	}
	return 0;
}

static int
build_dev(const struct pieces *pc, uint64_t shm_bytes, struct step_error *se)
{
	static const char *const pts_options[] = { "newinstance",
		"ptmxmode=0666", "mode=0620", NULL };
	static const char *const links[][2] = {
		{ "/proc/self/fd", "/dev/fd" },
		{ "/proc/self/fd/0", "/dev/stdin" },
		{ "/proc/self/fd/1", "/dev/stdout" },
		{ "/proc/self/fd/2", "/dev/stderr" },
		{ "pts/ptmx", "/dev/ptmx" },
	};
	char path[32];
	size_t i;
	int fd;

	if (attach_tmpfs("/dev", 1U << 20, "0755", se) == -1)
		return -1;
	for (i = 0; i < NDEVICES; i++) {
		(void)xsnprintf(path, sizeof(path), "/dev/%s", devices[i]);
		fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
		if (fd == -1)
			return step_failed(se, "create %s", path);
		close(fd);
		if (attach(pc->device[i], path, "device", se) == -1)
			return -1;
	}
	for (i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (symlink(links[i][0], links[i][1]) == -1)
			return step_failed(se, "symlink %s", links[i][1]);
	if (mkdir("/dev/pts", 0755) == -1 || mkdir("/dev/shm", 0755) == -1)
		return step_failed(se, "mkdir in /dev");
	if (attach(sys_mount_new("devpts", pts_options,
		       SYS_MOUNT_NOSUID | SYS_MOUNT_NOEXEC),
		"/dev/pts", "devpts", se) == -1)
		return -1;
	if (attach_tmpfs("/dev/shm", shm_bytes, "1777", se) == -1)
		return -1;
	return 0;
}

static int
seal_dev(struct step_error *se)
{
	int fd;

	fd = open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1 || sys_mount_setattr(fd, 0, SYS_MOUNT_RDONLY, 0) == -1)
		return step_failed(se, "mount /dev: read-only");
	close(fd);
	return 0;
}

/*
 * The account as programs shall see it, in front of the host's file without
 * its own line for that number: an account that only a directory service
 * knows has a name, and the home is the one inside.
 */
static int
make_account_file(
    const char *host, unsigned long id, const char *line, struct buf *to)
{
	char text[4096], *number;
	FILE *f;

	buf_adds(to, line);
	if ((f = fopen(host, "re")) == NULL)
		return errno == ENOENT ? 0 : -1;
	while (fgets(text, sizeof(text), f) != NULL) {
		/* name:password:number:... in both files */
		if ((number = strchr(text, ':')) != NULL)
			number = strchr(number + 1, ':');
		if (number != NULL && strtoul(number + 1, NULL, 10) == id)
			continue;
		buf_adds(to, text);
		if (to->len > (256U << 10))
			break;
	}
	fclose(f);
	return 0;
}

/* Puts a file of our own, made in the still writable /dev, over another. */
static int
cover_file(const char *path, const struct buf *content, struct step_error *se)
{
	static const char made[] = "/dev/.account";
	struct stat st;
	int fd, mnt;

	if (lstat(path, &st) == -1 || !S_ISREG(st.st_mode))
		return 0;
	fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd == -1 ||
	    write(fd, content->data, content->len) != (ssize_t)content->len) {
		if (fd != -1)
			close(fd);
		return step_failed(se, "%s: private copy", path);
	}
	(void)fchmod(fd, 0644);
	close(fd);
	mnt = sys_open_tree_clone(AT_FDCWD, made, 0);
	if (mnt == -1 || sys_mount_setattr(mnt, 0, SYS_MOUNT_RDONLY, 0) == -1)
		return step_failed(se, "%s: private copy", path);
	if (attach(mnt, path, "private copy", se) == -1)
		return -1;
	/* It lives on as what is mounted. */
	if (unlink(made) == -1)
		return step_failed(se, "%s: private copy", path);
	return 0;
}

static int
build_accounts(const struct mount_plan *mp, struct step_error *se)
{
	struct buf b;
	char *line;
	int r;

	buf_init(&b);
	line = xasprintf("%s:x:%lu:%lu::%s:/bin/bash\n", mp->user,
	    (unsigned long)mp->uid, (unsigned long)mp->gid, mp->home);
	r = make_account_file("/etc/passwd", mp->uid, line, &b);
	free(line);
	if (r == -1)
		(void)step_failed(se, "/etc/passwd");
	else
		r = cover_file("/etc/passwd", &b, se);
	buf_reset(&b);
	if (r == 0) {
		line = xasprintf(
		    "%s:x:%lu:\n", mp->user, (unsigned long)mp->gid);
		r = make_account_file("/etc/group", mp->gid, line, &b);
		free(line);
		if (r == -1)
			(void)step_failed(se, "/etc/group");
		else
			r = cover_file("/etc/group", &b, se);
	}
	buf_free(&b);
	return r;
}

/* /tmp and /var/tmp; /tmp/claude stays closed (native-sandbox 5.2). */
static int
build_tmp(const struct mount_plan *mp, struct step_error *se)
{
	if (attach_tmpfs("/tmp", mp->tmp_bytes, "1777", se) == -1)
		return -1;
	if (is_directory("/var/tmp") &&
	    attach_tmpfs("/var/tmp", mp->tmp_bytes, "1777", se) == -1)
		return -1;
	if (mkdir("/tmp/claude", 0555) == -1)
		return step_failed(se, "mkdir /tmp/claude");
	return attach(new_tmpfs(4096, "0000", SYS_MOUNT_RDONLY), "/tmp/claude",
	    "empty tmpfs", se);
}

int
mount_build(const struct mount_plan *mp, struct step_error *se)
{
	struct pieces pc;
	int fd;

	memset(&pc, 0xff, sizeof(pc)); /* every descriptor is -1 */
	if (take_pieces(mp, &pc, se) == -1)
		return -1;
	if (enter_tree(pc.tree, se) == -1)
		return -1;
	if (attach(pc.proc, "/proc", "proc", se) == -1)
		return -1;
	if (pc.sys != -1 && attach(pc.sys, "/sys", "sysfs", se) == -1)
		return -1;
	if (build_dev(&pc, mp->tmp_bytes, se) == -1 ||
	    build_accounts(mp, se) == -1 || seal_dev(se) == -1)
		return -1;
	if (build_tmp(mp, se) == -1)
		return -1;
	if (hide_directories(mp, se) == -1)
		return -1;

	if (make_directories(mp->home, 0755, se) == -1)
		return -1;
	if (attach_tmpfs(mp->home, mp->home_bytes, "0700", se) == -1)
		return -1;
	if (make_directories(mp->root_path, 0755, se) == -1)
		return -1;
	if (attach(pc.root, mp->root_path, "root", se) == -1)
		return -1;
	if (seal_hidden(mp, se) == -1)
		return -1;
	fd = open(mp->root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		return step_failed(se, "root %s: open", mp->root_path);
	if (protect(&fd, mp->root_path, mp->protection) == -1) {
		(void)step_failed(
		    se, "root %s: protected paths", mp->root_path);
		close(fd);
		return -1;
	}
	return fd;
}

/* What a process could change or trigger through /proc. */
static const char *const proc_read_only[] = { "/proc/sys",
	"/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs" };

int
mount_proc(void)
{
	static const char *const no_options[] = { NULL };
	size_t i;
	int mnt, fd;

	mnt = sys_mount_new("proc", no_options,
	    SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV | SYS_MOUNT_NOEXEC);
	if (mnt == -1)
		return -1;
	if (sys_move_mount(mnt, AT_FDCWD, "/proc") == -1) {
		close(mnt);
		return -1;
	}
	close(mnt);
	for (i = 0; i < sizeof(proc_read_only) / sizeof(proc_read_only[0]);
	     i++) {
		fd = sys_open_tree_clone(AT_FDCWD, proc_read_only[i], 1);
		if (fd == -1) {
			if (errno == ENOENT)
				continue;
			return -1;
		}
		if (sys_mount_setattr(fd, 1, SYS_MOUNT_RDONLY, 0) == -1 ||
		    sys_move_mount(fd, AT_FDCWD, proc_read_only[i]) == -1) {
			close(fd);
			return -1;
		}
		close(fd);
	}
	return 0;
}
