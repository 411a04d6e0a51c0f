#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bounds.h"
#include "buf.h"

#define DESCRIPTORS 65536
#define OOM_SCORE   "500" /* of 1000, see proc_pid_oom_score_adj(5) */

/* A number of the kernel, or 0. */
static unsigned long
read_number(const char *path)
{
	char text[32];
	ssize_t n;
	int fd;

	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	return strtoul(text, NULL, 10);
}

static void
write_text(const char *path, const char *text)
{
	int fd;

	if ((fd = open(path, O_WRONLY | O_CLOEXEC)) == -1)
		return;
	(void)!write(fd, text, strlen(text));
	close(fd);
}

static void
halve(const char *host, const char *here)
{
	unsigned long n = read_number(host);
	char text[32];

	if (n < 2)
		return;
	(void)xsnprintf(text, sizeof(text), "%lu", n / 2);
	write_text(here, text);
}

static void
limit_processes(uint32_t n)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NPROC, &rl) == -1)
		return;
	if (rl.rlim_max == RLIM_INFINITY || rl.rlim_max > n)
		rl.rlim_max = n;
	rl.rlim_cur = rl.rlim_max;
	(void)setrlimit(RLIMIT_NPROC, &rl);
}

void
bounds_sandbox(void)
{
	halve("/proc/sys/fs/inotify/max_user_instances",
	    "/proc/sys/user/max_inotify_instances");
	halve("/proc/sys/fs/inotify/max_user_watches",
	    "/proc/sys/user/max_inotify_watches");
}

void
bounds_command(uint32_t processes)
{
	struct rlimit rl;

	if (processes != 0)
		limit_processes(processes);
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 &&
	    (rl.rlim_cur == RLIM_INFINITY || rl.rlim_cur > DESCRIPTORS)) {
		rl.rlim_cur = DESCRIPTORS;
		(void)setrlimit(RLIMIT_NOFILE, &rl);
	}
	/* The file belongs to root while the process is not dumpable. */
	if (prctl(PR_SET_DUMPABLE, 1) == 0)
		write_text("/proc/self/oom_score_adj", OOM_SCORE);
}
