#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <fcntl.h>
#include <unistd.h>

#include "attach.h"
#include "buf.h"
#include "devices.h"
#include "sys.h"

/* Devices that are bound one by one into the private /dev. */
static const char *const devices[NDEVICES] = { "null", "zero", "full", "random",
	"urandom", "tty" };

int
devices_take(int fds[NDEVICES], struct step_error *se)
{
	char path[32];
	size_t i;

	for (i = 0; i < NDEVICES; i++) {
		(void)xsnprintf(path, sizeof(path), "/dev/%s", devices[i]);
		fds[i] = sys_open_tree_clone(AT_FDCWD, path, 0);
		if (fds[i] == -1)
			return step_failed(se, "mount %s: open_tree", path);
	}
	return 0;
}

int
devices_build(
    const int fds[NDEVICES], uint64_t shm_bytes, struct step_error *se)
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
		if (attach(fds[i], path, "device", se) == -1)
			return -1;
	}
	for (i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (symlink(links[i][0], links[i][1]) == -1)
			return step_failed(se, "symlink %s", links[i][1]);
	fd = open(EMPTY_FILE, O_CREAT | O_EXCL | O_RDONLY | O_CLOEXEC, 0);
	if (fd == -1)
		return step_failed(se, "create %s", EMPTY_FILE);
	close(fd);
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

int
devices_seal(struct step_error *se)
{
	int fd;

	fd = open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1 || sys_mount_setattr(fd, 0, SYS_MOUNT_RDONLY, 0) == -1)
		return step_failed(se, "mount /dev: read-only");
	close(fd);
	return 0;
}
