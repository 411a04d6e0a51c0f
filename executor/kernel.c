#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "devices.h"
#include "kernel.h"
#include "mount.h"
#include "sys.h"

enum cover { READ_ONLY, FILE_GONE, DIRECTORY_GONE };

static const struct {
	const char *path;
	enum cover cover;
} proc_covers[] = {
	{ "/proc/sys", READ_ONLY },
	{ "/proc/irq", READ_ONLY },
	{ "/proc/bus", READ_ONLY },
	{ "/proc/fs", READ_ONLY },
	{ "/proc/pressure", READ_ONLY },
	{ "/proc/sysrq-trigger", FILE_GONE },
	{ "/proc/keys", FILE_GONE }, /* not per user namespace */
	{ "/proc/key-users", FILE_GONE },
	{ "/proc/kcore", FILE_GONE },
	{ "/proc/kmsg", FILE_GONE },
	{ "/proc/kpagecount", FILE_GONE },
	{ "/proc/kpageflags", FILE_GONE },
	{ "/proc/kpagecgroup", FILE_GONE },
	{ "/proc/latency_stats", FILE_GONE },
	{ "/proc/sched_debug", FILE_GONE },
	{ "/proc/timer_list", FILE_GONE },
	{ "/proc/timer_stats", FILE_GONE },
	{ "/proc/vmcore", FILE_GONE },
	{ "/proc/acpi", DIRECTORY_GONE },
	{ "/proc/scsi", DIRECTORY_GONE },
};

static const char *const sys_gone[] = { "/sys/firmware", "/sys/fs/bpf",
	"/sys/fs/pstore", "/sys/kernel/debug", "/sys/kernel/security",
	"/sys/kernel/tracing", "/sys/devices/virtual/powercap" };

/* Commands have no capability, so what is root's alone needs no cover. */
static int
is_closed(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    (st.st_mode & 077) == 0 && st.st_uid != geteuid();
}

/* What lies at the path is covered; nothing there is no error. */
static int
cover(const char *path, enum cover c)
{
	const char *from = path;
	int to, mnt, r = -1;

	if ((to = open(path, O_PATH | O_CLOEXEC)) == -1)
		return errno == ENOENT ? 0 : -1;
	if (is_closed(to)) {
		close(to);
		return 0;
	}
	if (c == FILE_GONE)
		from = EMPTY_FILE;
	else if (c == DIRECTORY_GONE)
		from = EMPTY_DIRECTORY;
	mnt = sys_open_tree_clone(AT_FDCWD, from, c == READ_ONLY);
	if (mnt != -1) {
		if (c != READ_ONLY ||
		    sys_mount_setattr(mnt, 1, SYS_MOUNT_RDONLY, 0) == 0)
			r = sys_move_mount_to(mnt, to);
		close(mnt);
	}
	close(to);
	return r;
}

int
kernel_proc(void)
{
	static const char *const no_options[] = { NULL };
	size_t i;
	int mnt, r;

	mnt = sys_mount_new("proc", no_options,
	    SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV | SYS_MOUNT_NOEXEC);
	if (mnt == -1)
		return -1;
	r = sys_move_mount(mnt, AT_FDCWD, "/proc");
	close(mnt);
	for (i = 0; r == 0 && i < sizeof(proc_covers) / sizeof(proc_covers[0]);
	     i++)
		r = cover(proc_covers[i].path, proc_covers[i].cover);
	return r;
}

int
kernel_sys(struct step_error *se)
{
	size_t i;

	for (i = 0; i < sizeof(sys_gone) / sizeof(sys_gone[0]); i++)
		if (cover(sys_gone[i], DIRECTORY_GONE) == -1)
			return step_failed(se, "mount %s: empty", sys_gone[i]);
	return 0;
}
