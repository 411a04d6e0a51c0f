#include "config.h"

#include <sys/types.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "dead.h"
#include "log.h"
#include "mtab.h"
#include "sys.h"
#include "times.h"

#define ANSWER_MS 1000
#define AT_ONCE   64

/* Types whose server is somewhere else; fuse.* besides. */
static const char *const remote_types[] = { "9p", "afs", "beegfs", "ceph",
	"cifs", "coda", "fuse", "fuseblk", "glusterfs", "gpfs", "lustre",
	"ncpfs", "nfs", "nfs4", "orangefs", "smb3", "smbfs" };

static int
is_remote(const char *type)
{
	size_t i;

	if (strncmp(type, "fuse.", 5) == 0)
		return 1;
	for (i = 0; i < sizeof(remote_types) / sizeof(remote_types[0]); i++)
		if (strcmp(type, remote_types[i]) == 0)
			return 1;
	return 0;
}

struct question {
	const char *point;
	pid_t pid;
	int fd; /* end of file when the process has ended */
};

static void __attribute__((__noreturn__)) look(const char *point)
{
	struct statfs fs;
	int fd;

	if ((fd = open(point, O_RDONLY | O_NONBLOCK | O_CLOEXEC)) != -1)
		(void)fstatfs(fd, &fs);
	_exit(0);
}

static int
ask(struct question *q, const char *point)
{
	int fds[2];

	q->point = point;
	if (pipe2(fds, O_CLOEXEC) == -1)
		return -1;
	if ((q->pid = fork()) == -1) {
		close(fds[0]);
		close(fds[1]);
		return -1;
	}
	if (q->pid == 0) {
		close(fds[0]);
		look(point);
	}
	close(fds[1]);
	q->fd = fds[0];
	return 0;
}

/* Waits until all have ended or the time is over; those have fd -1. */
static void
wait_answers(struct question *q, size_t n)
{
	int64_t end = time_mono_ms() + ANSWER_MS, left;
	struct pollfd pfd[AT_ONCE];
	size_t i, open;

	for (;;) {
		for (i = open = 0; i < n; i++) {
			pfd[i].fd = q[i].fd;
			pfd[i].events = POLLIN;
			pfd[i].revents = 0;
			open += q[i].fd != -1;
		}
		left = end - time_mono_ms();
		if (open == 0 || left <= 0)
			return;
		if (poll(pfd, n, (int)left) == -1 && errno != EINTR)
			return;
		for (i = 0; i < n; i++)
			if (pfd[i].fd != -1 && pfd[i].revents != 0) {
				close(q[i].fd);
				q[i].fd = -1;
				(void)waitpid(q[i].pid, NULL, 0);
			}
	}
}

static void
ask_some(struct question *q, size_t n, char ***points, size_t *found)
{
	size_t i;

	wait_answers(q, n);
	for (i = 0; i < n; i++) {
		if (q[i].fd == -1)
			continue;
		close(q[i].fd);
		(void)kill(q[i].pid, SIGKILL);
		/* It may never end; then it is left to process 1. */
		(void)waitpid(q[i].pid, NULL, WNOHANG);
		log_warnx("%s: the file system mounted there does not answer; "
			  "commands see an empty directory",
		    q[i].point);
		*points = xreallocarray(*points, *found + 1, sizeof(**points));
		(*points)[(*found)++] = xstrdup(q[i].point);
	}
}

void
dead_find(char ***points, size_t *n)
{
	struct question q[AT_ONCE];
	struct mtab t;
	size_t i, asked = 0;

	*points = NULL;
	*n = 0;
	if (mtab_read(&t) == -1)
		return;
	for (i = 0; i < t.n; i++) {
		if (!is_remote(t.list[i].type) ||
		    ask(&q[asked], t.list[i].point) == -1)
			continue;
		if (++asked == AT_ONCE) {
			ask_some(q, asked, points, n);
			asked = 0;
		}
	}
	ask_some(q, asked, points, n);
	mtab_free(&t);
}

static void __attribute__((__noreturn__)) cover(const char *point)
{
	struct step_error se;

	_exit(attach(tmpfs_new(4096, "0555", SYS_MOUNT_RDONLY), point,
		  "empty tmpfs", &se) == -1);
}

void
dead_cover(char *const *points, size_t n)
{
	struct pollfd pfd;
	pid_t pid;
	size_t i;

	for (i = 0; i < n; i++) {
		if ((pid = fork()) == -1)
			continue;
		if (pid == 0)
			cover(points[i]);
		pfd.fd = sys_pidfd_open(pid);
		pfd.events = POLLIN;
		while (poll(&pfd, 1, ANSWER_MS) == -1 && errno == EINTR)
			;
		if (pfd.fd != -1)
			close(pfd.fd);
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, WNOHANG);
	}
}
