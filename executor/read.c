#include "config.h"

#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "decode.h"
#include "files.h"
#include "keeper.h"

#define BAD_PATH "invalid workspace path"

int
open_regular(int root, const struct place *pl, struct stat *st)
{
	int dir, fd;

	if (pl->leaf == NULL) {
		errno = EISDIR;
		return -1;
	}
	dir = root;
	if (pl->parent != NULL) {
		dir = beneath_open(root, pl->parent, O_PATH | O_DIRECTORY);
		if (dir == -1)
			return -1;
	}
	fd = -1;
	if (fstatat(dir, pl->leaf, st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISREG(st->st_mode))
			fd = openat(dir, pl->leaf,
			    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY |
				O_CLOEXEC);
		else if (S_ISDIR(st->st_mode))
			errno = EISDIR;
		else if (S_ISLNK(st->st_mode))
			errno = ELOOP;
		else
			errno = S_ISSOCK(st->st_mode) ? ENXIO : EINVAL;
	}
	if (dir != root)
		close(dir);
	if (fd != -1 && (fstat(fd, st) == -1 || !S_ISREG(st->st_mode))) {
		close(fd);
		errno = EINVAL;
		return -1;
	}
	return fd;
}

int
tool_read_file(struct tool *t, const struct request *q, struct result *res,
    struct failure *f)
{
	struct place pl;
	struct stat st;
	struct buf raw, *text = &t->text;
	int fd, r = -1;

	if (tool_cancelled(t))
		return tool_aborted(f);
	buf_init(&raw);
	place_split(&pl, &q->path);
	fd = open_regular(t->root, &pl, &st);
	place_free(&pl);
	if (fd == -1)
		return failure(f, EC_INVALID_PATH, NOT_COMMITTED, BAD_PATH);
	if (st.st_size > FILE_MAX) {
		(void)failure(f, EC_READ_LIMIT_EXCEEDED, NOT_COMMITTED,
		    "file exceeds read limit");
		goto done;
	}
	if (read_whole(fd, &raw) == -1) {
		(void)failure(f, EC_INVALID_PATH, NOT_COMMITTED, BAD_PATH);
		goto done;
	}
	if (tool_cancelled(t)) {
		(void)tool_aborted(f);
		goto done;
	}
	if (raw.len <= FILE_MAX)
		decode_whole(text, &raw);
	if (raw.len > FILE_MAX || text->len > FILE_MAX) {
		(void)failure(f, EC_READ_LIMIT_EXCEEDED, NOT_COMMITTED,
		    "file exceeds read limit");
		goto done;
	}
	line_window(text->data, text->len, q->start_line, q->max, res);
	r = 0;
done:
	close(fd);
	buf_free(&raw);
	return r;
}
