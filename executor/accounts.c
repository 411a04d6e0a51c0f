#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accounts.h"
#include "attach.h"
#include "buf.h"
#include "sys.h"

#define COVER_TRIES 20

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
cover_once(const char *path, const struct buf *content, struct step_error *se)
{
	static const char made[] = "/dev/.account";
	struct stat st;
	int fd, mnt, r, save;

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
	r = attach(mnt, path, "private copy", se);
	save = errno;
	/* It lives on as what is mounted. */
	if (unlink(made) == -1)
		return step_failed(se, "%s: private copy", path);
	errno = save;
	return r;
}

/*
 * The tools of the host that change accounts replace the file; what was
 * looked up a moment ago may be the one that is gone.
 */
static int
cover_file(const char *path, const struct buf *content, struct step_error *se)
{
	int tries, r;

	for (tries = 1;; tries++) {
		r = cover_once(path, content, se);
		if (r == 0 || errno != ENOENT || tries == COVER_TRIES)
			return r;
		memset(se, 0, sizeof(*se));
	}
}

int
accounts_build(const struct mount_plan *mp, struct step_error *se)
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
