#include "config.h"

#include <sys/types.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
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
#include "filetool.h"

char *
in_root(const struct harness *h, const char *name)
{
	return xasprintf("%s/%s", h->roots[0], name);
}

void
ask_read(struct harness *h, const char *path, struct answer *a)
{
	struct request q;

	memset(&q, 0, sizeof(q));
	q.operation = OP_READ_FILE;
	text_set(&q.path, path, strlen(path));
	q.start_line = 1;
	q.max = 200;
	assert_int_equal(harness_request(h, &q, a), 0);
	request_free(&q);
}

void
ask_write(struct harness *h, const char *path, const void *data, size_t len,
    int create, struct answer *a)
{
	struct request q;

	memset(&q, 0, sizeof(q));
	q.operation = OP_WRITE_FILE;
	text_set(&q.path, path, strlen(path));
	text_set(&q.content, data, len);
	q.create_only = (uint8_t)create;
	assert_int_equal(harness_request(h, &q, a), 0);
	request_free(&q);
}

void
edit_request(struct request *q, enum operation op, const char *path,
    const struct pair *pairs, size_t n, const char *sha)
{
	size_t i;

	memset(q, 0, sizeof(*q));
	q->operation = (uint8_t)op;
	text_set(&q->path, path, strlen(path));
	q->edits = xcalloc(n, sizeof(*q->edits));
	q->nedits = n;
	for (i = 0; i < n; i++) {
		text_set(&q->edits[i].old, pairs[i].old, pairs[i].old_n);
		text_set(&q->edits[i].new, pairs[i].new, pairs[i].new_n);
	}
	if (sha != NULL)
		q->base_sha256 = xstrdup(sha);
}

void
ask_edit(struct harness *h, enum operation op, const char *path,
    const struct pair *pairs, size_t n, const char *sha, struct answer *a)
{
	struct request q;

	edit_request(&q, op, path, pairs, n, sha);
	assert_int_equal(harness_request(h, &q, a), 0);
	request_free(&q);
}

void
expect_failure(struct harness *h, const char *what, struct answer *a,
    enum error_code code, enum certainty certainty)
{
	if (a->ok)
		fail_msg("%s: fulfilled", what);
	if (a->error.code != code || a->error.certainty != certainty)
		fail_msg("%s: %s, certainty %d: %s", what,
		    error_code_name(a->error.code), a->error.certainty,
		    a->error.text);
	assert_int_equal(h->outcome, certainty);
	/* No host path in a message. */
	assert_null(strchr(a->error.text, '/'));
	answer_free(a);
}

void
expect_content(
    const struct harness *h, const char *name, const void *data, size_t len)
{
	char *p = in_root(h, name), *got;
	struct stat st;
	int fd;

	if (lstat(p, &st) == -1 || !S_ISREG(st.st_mode))
		fail_msg("%s: no regular file", name);
	if ((st.st_mode & 0400) == 0)
		assert_int_equal(chmod(p, st.st_mode | 0400), 0);
	if ((fd = open(p, O_RDONLY)) == -1)
		fail_msg("%s: %s", name, strerror(errno));
	assert_int_equal(chmod(p, st.st_mode & 07777), 0);
	got = xmalloc(len + 1);
	assert_int_equal(st.st_size, len);
	assert_int_equal(read(fd, got, len + 1), len);
	if (len > 0 && memcmp(got, data, len) != 0)
		fail_msg("%s: other content", name);
	close(fd);
	free(got);
	free(p);
}

void
expect_mode(const struct harness *h, const char *name, mode_t mode)
{
	char *p = in_root(h, name);
	struct stat st;

	assert_int_equal(lstat(p, &st), 0);
	if ((st.st_mode & 07777) != mode)
		fail_msg("%s: mode %04o instead of %04o", name,
		    (unsigned int)st.st_mode & 07777, (unsigned int)mode);
	assert_int_equal(st.st_uid, h->uid);
	free(p);
}

size_t
count_staging(const struct harness *h, const char *dir)
{
	char *p = in_root(h, dir);
	struct dirent *de;
	size_t n = 0;
	DIR *d;

	if ((d = opendir(p)) == NULL)
		fail_msg("%s: %s", p, strerror(errno));
	while ((de = readdir(d)) != NULL)
		n += strncmp(de->d_name, ".librechat-code-", 16) == 0;
	closedir(d);
	free(p);
	return n;
}

static int
write_text(const char *path, const char *text)
{
	ssize_t n;
	int fd;

	if ((fd = open(path, O_WRONLY | O_CLOEXEC)) == -1)
		return -1;
	n = write(fd, text, strlen(text));
	close(fd);
	return n == (ssize_t)strlen(text) ? 0 : -1;
}

int
private_mounts(void)
{
	uid_t uid = getuid();
	gid_t gid = getgid();
	char map[64];

	if (unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) == -1)
		return -1;
	if (uid != 0) {
		if (write_text("/proc/self/setgroups", "deny") == -1)
			return -1;
		(void)xsnprintf(map, sizeof(map), "%u %u 1", uid, uid);
		if (write_text("/proc/self/uid_map", map) == -1)
			return -1;
		(void)xsnprintf(map, sizeof(map), "%u %u 1", gid, gid);
		if (write_text("/proc/self/gid_map", map) == -1)
			return -1;
	}
	return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

int
mount_tmpfs(const char *path, const char *options)
{
	return mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options);
}

int
mount_bind(const char *from, const char *to)
{
	return mount(from, to, NULL, MS_BIND, NULL);
}

void
skip_because(const char *reason)
{
	print_message("%s\n", reason);
	skip();
}
