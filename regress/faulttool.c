#include "config.h"

#include <sys/types.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "fault.h"
#include "faulttool.h"

const struct fault_point fault_points[FAULT_POINTS] = {
	{ "write.open", OLD_FILE, OLD_FILE },
	{ "write.opened", OLD_FILE, OLD_FILE },
	{ "write.attributes", OLD_FILE, NEW_FILE },
	{ "write.write", OLD_FILE, OLD_FILE },
	{ "write.fsync", OLD_FILE, OLD_FILE },
	{ "write.staged", OLD_FILE, OLD_FILE },
	{ "write.commit", OLD_FILE, OLD_FILE },
	{ "write.noreplace", NEW_FILE, OLD_FILE },
	{ "write.rename", OLD_FILE, NEW_FILE },
	{ "write.renamed", NEW_FILE, NEW_FILE },
	{ "write.committed", NEW_FILE, NEW_FILE },
	{ "write.dirsync", NEW_FILE, NEW_FILE },
	{ "write.confirm", NEW_FILE, NEW_FILE },
	{ "write.confirmed", NEW_FILE, NEW_FILE },
};

void
set_fault(struct fault_harness *fh, const char *lines)
{
	put_file(
	    &fh->h, fh->h.roots[0], FAULT_CONTROL, lines, strlen(lines), 0644);
}

void
clear_fault(struct fault_harness *fh)
{
	char *p = in_root(&fh->h, FAULT_CONTROL);

	if (unlink(p) == -1)
		assert_int_equal(errno, ENOENT);
	free(p);
}

void
await_point(struct fault_harness *fh)
{
	struct pollfd pfd = { fh->reached, POLLIN, 0 };
	char c;

	if (poll(&pfd, 1, 30000) != 1 || read(fh->reached, &c, 1) != 1)
		fail_msg("the step was not reached");
	clear_fault(fh);
}

void
let_go(struct fault_harness *fh)
{
	assert_int_equal(write(fh->go, "!", 1), 1);
}

/*
 * This process inherits what the executor made. The first process of a
 * sandbox ends last, so when it is reaped no writer is left.
 */
static void
kill_all(struct fault_harness *fh)
{
	harness_kill(&fh->h);
	while (waitpid(-1, NULL, 0) > 0)
		continue;
	assert_int_equal(fh->h.nstash, 0);
}

void
start_again(struct fault_harness *fh)
{
	kill_all(fh);
	if (harness_start(&fh->h) == -1)
		fail_msg("%s", fh->h.failed);
}

static int
make_fifo(struct fault_harness *fh, const char *name)
{
	char *p = in_root(&fh->h, name);
	int fd;

	assert_int_equal(mkfifo(p, 0600), 0);
	assert_int_equal(chown(p, fh->h.uid, fh->h.gid), 0);
	fd = open(p, O_RDWR | O_CLOEXEC);
	assert_int_not_equal(fd, -1);
	free(p);
	return fd;
}

int
fault_start(struct fault_harness *fh)
{
	struct harness *h = &fh->h;
	char *options;

	if (prctl(PR_SET_CHILD_SUBREAPER, 1) == -1)
		return -1;
	fh->mounted = 0;
	harness_init(h, 1);
	if (private_mounts() == 0) {
		options = xasprintf(
		    "size=64m,mode=0755,uid=%u,gid=%u", h->uid, h->gid);
		fh->mounted = mount_tmpfs(h->roots[0], options) == 0;
		free(options);
	}
	fh->reached = make_fifo(fh, FAULT_REACHED);
	fh->go = make_fifo(fh, FAULT_GO);
	if (harness_start(h) == -1) {
		fprintf(stderr, "%s\n", h->failed);
		return -1;
	}
	return 0;
}

void
fault_stop(struct fault_harness *fh)
{
	close(fh->reached);
	close(fh->go);
	kill_all(fh);
	if (fh->mounted)
		(void)umount2(fh->h.roots[0], MNT_DETACH);
	harness_remove(&fh->h);
}
