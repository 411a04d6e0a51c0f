#include "config.h"

#include <sys/types.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <linux/fs.h>

#include <cmocka.h>

#include "buf.h"
#include "filetool.h"
#include "log.h"

/*
 * write_file. The numbers are rows of workspace-tools 8.4; rows 11, 13, 18
 * and the second half of 12 are validation and belong to the bridge, rows 29
 * to 35 need a fault (test_faults).
 */
static struct harness H;
static int mounts; /* this process may mount */

/* ---- what succeeds ---- */

static const struct write_row {
	const char *name;
	const char *path;
	int old_mode; /* of the file that is there; -1: none */
	const char *data;
	size_t n;
	int create;
	mode_t mode; /* afterwards */
} write_rows[] = {
	/* The umask is honoured instead of 0600 (field report FT-3). */
	{ "1 new file", "w1", -1, S("hello world"), 0, 0644 },
	{ "2 existing file", "w2", 0600, S("newer"), 0, 0600 },
	{ "3 mode 0664 stays", "w3", 0664, S("newer"), 0, 0664 },
	{ "4 set-user-id bit is lost", "w4", 04755, S("newer"), 0, 0755 },
	{ "4 set-group-id bit is lost", "w4g", 02755, S("newer"), 0, 0755 },
	{ "5 mode 0444", "w5", 0444, S("newer"), 0, 0444 },
	{ "FT-3 a script stays executable", "wx", 0755, S("#!/bin/sh\n"), 0,
	    0755 },
	{ "8 nothing", "w8", -1, S(""), 0, 0644 },
	{ "8 nothing over something", "w8o", 0644, S(""), 0, 0644 },
	{ "9 NUL", "w9", -1, S("a\0b"), 0, 0644 },
	{ "10 mark", "w10", -1, S("\xef\xbb\xbfx"), 0, 0644 },
	{ "CRLF is written as it is", "wcr", 0644, S("a\r\nb\n\r"), 0, 0644 },
	{ "14 create", "w14", -1, S("x"), 1, 0644 },
	{ "24 trailing slash", "new.txt/", -1, S("x"), 0, 0644 },
	{ "normal form", "./sub//n.txt/.", -1, S("x"), 0, 0644 },
	{ "leading space", " x", -1, S("x"), 0, 0644 },
	{ "line feed in the name", "a\nb", -1, S("x"), 0, 0644 },
	{ "name of 255 bytes",
	    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
	    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
	    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
	    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
	    -1, S("x"), 0, 0644 },
};

static void
write_ok(const char *path, const void *data, size_t n, int create, int created)
{
	struct answer a;

	ask_write(&H, path, data, n, create, &a);
	if (!a.ok)
		fail_msg("%s: %s", path, a.error.text);
	assert_int_equal(a.result.created, created);
	assert_int_equal(a.result.bytes_written, n);
	assert_int_equal(H.outcome, COMMITTED);
	answer_free(&a);
	assert_int_equal(count_staging(&H, "."), 0);
}

static ino_t
inode_of(const char *name)
{
	char *p = in_root(&H, name);
	struct stat st;

	assert_int_equal(lstat(p, &st), 0);
	free(p);
	return st.st_ino;
}

static void
run_write_row(void **state)
{
	const struct write_row *r = *state;
	char *name = xstrdup(r->path);
	ino_t old = 0;

	/* The kernel refuses what the normal form drops at the end. */
	while (strchr("/.", name[strlen(name) - 1]) != NULL)
		name[strlen(name) - 1] = '\0';
	if (r->old_mode != -1) {
		put_file(&H, H.roots[0], name, "old", 3, (mode_t)r->old_mode);
		old = inode_of(name);
	}
	write_ok(r->path, r->data, r->n, r->create, r->old_mode == -1);
	if (r->old_mode != -1)
		assert_int_not_equal(inode_of(name), old);
	expect_mode(&H, name, r->mode);
	expect_content(&H, name, r->data, r->n);
	free(name);
}

static void
write_12_the_largest_file(void **state)
{
	struct answer a;
	uint8_t *big;

	(void)state;
	big = xmalloc(MIB + 1);
	memset(big, 'b', MIB + 1); /* one huge line */
	write_ok("w12", big, MIB, 0, 1);
	expect_content(&H, "w12", big, MIB);
	/* More never comes from the bridge. */
	ask_write(&H, "w12", big, MIB + 1, 0, &a);
	expect_failure(&H, "12", &a, EC_WRITE_LIMIT_EXCEEDED, NOT_COMMITTED);
	expect_content(&H, "w12", big, MIB);
	free(big);
}

/* ---- what is refused ---- */

static const struct refusal {
	const char *name;
	const char *path;
	int create;
	enum error_code code;
} refusals[] = {
	{ "15 create over a file", "kept", 1, EC_EDIT_CONFLICT },
	{ "16 create over a link", "link-in", 1, EC_INVALID_PATH },
	{ "16 create over a directory", "dir", 1, EC_INVALID_PATH },
	{ "19 link inside", "link-in", 0, EC_INVALID_PATH },
	{ "19 link outside", "link-out", 0, EC_INVALID_PATH },
	{ "19 dangling link", "link-none", 0, EC_INVALID_PATH },
	{ "19 loop", "loop", 0, EC_INVALID_PATH },
	{ "20 no parent", "nowhere/x", 0, EC_INVALID_PATH },
	{ "21 parent is a link inside", "dir-in/x", 0, EC_INVALID_PATH },
	{ "21 parent is a link outside", "dir-out/x", 0, EC_INVALID_PATH },
	{ "21 parent is a link to /proc", "proc/x", 0, EC_INVALID_PATH },
	{ "22 parent is a file", "kept/x", 0, EC_INVALID_PATH },
	{ "23 the root", ".", 0, EC_INVALID_PATH },
	{ "23 a directory", "dir", 0, EC_INVALID_PATH },
	{ "25 parent of mode 0000", "sealed/x", 0, EC_WRITE_UNAVAILABLE },
	{ "26 parent of mode 0555", "readonly/x", 0, EC_WRITE_UNAVAILABLE },
	{ "26 file in a directory of mode 0555", "readonly/f", 0,
	    EC_WRITE_UNAVAILABLE },
	{ "27 name of 256 bytes", NULL, 0, EC_WRITE_UNAVAILABLE },
	{ "FT-4 file with two names", "one", 0, EC_INVALID_PATH },
	{ "FT-7 FIFO", "fifo", 0, EC_INVALID_PATH },
	{ "file of mode 0000", "closed", 0, EC_WRITE_UNAVAILABLE },
	{ "dot dot", "dir/..", 0, EC_INVALID_PATH },
	{ "dot dot first", "../x", 0, EC_INVALID_PATH },
};

static void
make_link(const char *target, const char *name)
{
	char *p = in_root(&H, name);

	assert_int_equal(symlink(target, p), 0);
	free(p);
}

static void
make_directory(const char *name, mode_t mode)
{
	char *p = in_root(&H, name);

	assert_int_equal(mkdir(p, 0755), 0);
	assert_int_equal(chown(p, H.uid, H.gid), 0);
	assert_int_equal(chmod(p, mode), 0);
	free(p);
}

static void
make_fixture(void)
{
	char *p, *q;

	make_directory("sub", 0755);
	make_directory("dir", 0755);
	put_file(&H, H.roots[0], "kept", "kept", 4, 0644);
	make_link("kept", "link-in");
	make_link("/etc/passwd", "link-out");
	make_link("nothing", "link-none");
	make_link("loop", "loop");
	make_link("dir", "dir-in");
	make_link("/etc", "dir-out");
	make_link("/proc/self", "proc");
	make_directory("sealed", 0);
	make_directory("readonly", 0755);
	put_file(&H, H.roots[0], "readonly/f", "old", 3, 0644);
	p = in_root(&H, "readonly");
	assert_int_equal(chmod(p, 0555), 0);
	free(p);
	put_file(&H, H.roots[0], "one", "both", 4, 0644);
	p = in_root(&H, "one");
	q = in_root(&H, "two");
	assert_int_equal(link(p, q), 0);
	free(p);
	free(q);
	p = in_root(&H, "fifo");
	assert_int_equal(mkfifo(p, 0666), 0);
	assert_int_equal(chown(p, H.uid, H.gid), 0);
	free(p);
	put_file(&H, H.roots[0], "closed", "x", 1, 0);
}

static void
run_refusal(void **state)
{
	const struct refusal *r = *state;
	struct answer a;
	char longname[300];

	memset(longname, 'n', sizeof(longname));
	longname[256] = '\0';
	ask_write(
	    &H, r->path == NULL ? longname : r->path, "new", 3, r->create, &a);
	assert_true(a.ms < 1000);
	expect_failure(&H, r->name, &a, r->code, NOT_COMMITTED);
	assert_int_equal(count_staging(&H, "."), 0);
	assert_int_equal(count_staging(&H, "dir"), 0);
	assert_int_equal(count_staging(&H, "readonly"), 0);
	expect_content(&H, "kept", "kept", 4);
	expect_content(&H, "one", "both", 4);
	expect_content(&H, "two", "both", 4);
	expect_content(&H, "readonly/f", "old", 3);
}

static void
write_6_unconfirmed_is_uncertain(void **state)
{
	struct answer a;

	(void)state;
	put_file(&H, H.roots[0], "blind", "old", 3, 0200);
	ask_write(&H, "blind", "new", 3, 0, &a);
	expect_failure(&H, "6", &a, EC_WRITE_UNAVAILABLE, UNCERTAIN);
	expect_mode(&H, "blind", 0200);
	expect_content(&H, "blind", "new", 3);
}

static void
write_7_file_of_another_account(void **state)
{
	static const struct {
		uid_t uid;
		gid_t gid;
	} t[] = { { 4242, 4242 }, { 4242, (gid_t)-1 }, { (uid_t)-1, 4242 },
		{ 65534, 65534 } };
	struct answer a;
	char *p;
	size_t i;

	(void)state;
	if (getuid() != 0)
		skip_because("needs root");
	p = in_root(&H, "foreign");
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		put_file(&H, H.roots[0], "foreign", "old", 3, 0666);
		assert_int_equal(chown(p, t[i].uid, t[i].gid), 0);
		ask_write(&H, "foreign", "new", 3, 0, &a);
		expect_failure(
		    &H, "7", &a, EC_WRITE_UNAVAILABLE, NOT_COMMITTED);
		expect_content(&H, "foreign", "old", 3);
		assert_int_equal(unlink(p), 0);
	}
	free(p);
}

static void
write_17_two_creators_one_wins(void **state)
{
	struct harness other;
	struct answer a, b;
	struct request q;
	uint32_t ia, ib;
	char name[32];
	int i;

	(void)state;
	harness_init(&other, 1);
	free(other.roots[0]);
	other.roots[0] = xstrdup(H.roots[0]);
	if (harness_start(&other) == -1)
		fail_msg("%s", other.failed);
	for (i = 0; i < 100; i++) {
		memset(&q, 0, sizeof(q));
		q.operation = OP_WRITE_FILE;
		(void)xsnprintf(name, sizeof(name), "sub/race%d", i);
		text_set(&q.path, name, strlen(name));
		text_set(&q.content, "x", 1);
		q.create_only = 1;
		ia = harness_send(&H, &q);
		ib = harness_send(&other, &q);
		assert_int_equal(harness_wait(&H, ia, &a), 0);
		assert_int_equal(harness_wait(&other, ib, &b), 0);
		request_free(&q);
		assert_int_equal(a.ok + b.ok, 1);
		if (a.ok)
			expect_failure(
			    &other, "17", &b, EC_EDIT_CONFLICT, NOT_COMMITTED);
		else
			expect_failure(
			    &H, "17", &a, EC_EDIT_CONFLICT, NOT_COMMITTED);
		answer_free(a.ok ? &a : &b);
	}
	assert_int_equal(count_staging(&H, "sub"), 0);
	harness_stop(&other);
}

static void
write_36_read_only_workspace(void **state)
{
	struct request q;
	struct answer a;
	char *p;

	(void)state;
	memset(&q, 0, sizeof(q));
	q.operation = OP_WRITE_FILE;
	q.root = 1;
	text_set(&q.path, "x", 1);
	assert_int_equal(harness_request(&H, &q, &a), 0);
	request_free(&q);
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_WRITE_DISABLED);
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	answer_free(&a);
	p = xasprintf("%s/x", H.roots[1]);
	assert_int_equal(access(p, F_OK), -1);
	free(p);
}

/* ---- other file systems ---- */

static void
start_on(struct harness *h)
{
	if (harness_start(h) == -1)
		fail_msg("%s", h->failed);
}

static void
write_28_full_storage(void **state)
{
	struct harness h;
	struct answer a;
	uint8_t *big;
	char *options;

	(void)state;
	if (!mounts)
		skip_because("no mount namespace");
	harness_init(&h, 1);
	options = xasprintf("size=64k,mode=0755,uid=%u,gid=%u", h.uid, h.gid);
	assert_int_equal(mount_tmpfs(h.roots[0], options), 0);
	free(options);
	start_on(&h);
	ask_write(&h, "f", "old", 3, 0, &a);
	assert_true(a.ok);
	answer_free(&a);
	big = xmalloc(MIB);
	memset(big, 'x', MIB);
	ask_write(&h, "f", big, MIB, 0, &a);
	expect_failure(&h, "28", &a, EC_WRITE_UNAVAILABLE, NOT_COMMITTED);
	expect_content(&h, "f", "old", 3);
	ask_write(&h, "new", big, MIB, 1, &a);
	expect_failure(&h, "28", &a, EC_WRITE_UNAVAILABLE, NOT_COMMITTED);
	assert_int_equal(count_staging(&h, "."), 0);
	free(big);
	/* There is room again. */
	ask_write(&h, "new", "new", 3, 1, &a);
	assert_true(a.ok);
	answer_free(&a);
	harness_kill(&h);
	assert_int_equal(umount2(h.roots[0], MNT_DETACH), 0);
	harness_remove(&h);
}

static void
write_ft10_mount_point(void **state)
{
	struct harness h;
	struct answer a;
	char *from, *to;

	(void)state;
	if (!mounts)
		skip_because("no mount namespace");
	harness_init(&h, 1);
	put_file(&h, h.roots[0], "f1", "below", 5, 0644);
	put_file(&h, h.home, "f2", "above", 5, 0644);
	from = xasprintf("%s/f2", h.home);
	to = in_root(&h, "f1");
	assert_int_equal(mount_bind(from, to), 0);
	start_on(&h);
	ask_write(&h, "f1", "new", 3, 0, &a);
	assert_non_null(strstr(a.error.text, "mount point"));
	expect_failure(&h, "FT-10", &a, EC_WRITE_UNAVAILABLE, NOT_COMMITTED);
	expect_content(&h, "f1", "above", 5);
	assert_int_equal(count_staging(&h, "."), 0);
	harness_kill(&h);
	assert_int_equal(umount2(to, MNT_DETACH), 0);
	expect_content(&h, "f1", "below", 5);
	free(from);
	free(to);
	harness_remove(&h);
}

static void
write_37_case_insensitive_names(void **state)
{
	struct harness h;
	struct answer a;
	char *options, *p;
	int fd, flags = 0;

	(void)state;
	if (!mounts)
		skip_because("no mount namespace");
	harness_init(&h, 1);
	options = xasprintf("casefold,mode=0755,uid=%u,gid=%u", h.uid, h.gid);
	if (mount_tmpfs(h.roots[0], options) == -1) {
		free(options);
		harness_remove(&h);
		skip_because("the kernel has no case-folding tmpfs");
	}
	free(options);
	p = in_root(&h, "Dir");
	assert_int_equal(mkdir(p, 0755), 0);
	assert_int_equal(chown(p, h.uid, h.gid), 0);
	fd = open(p, O_RDONLY | O_DIRECTORY);
	flags = 0x40000000; /* FS_CASEFOLD_FL */
	assert_int_equal(ioctl(fd, FS_IOC_SETFLAGS, &flags), 0);
	close(fd);
	free(p);
	put_file(&h, h.roots[0], "Dir/File", "old", 3, 0644);
	start_on(&h);
	ask_write(&h, "Dir/fILE", "new", 3, 0, &a);
	assert_true(a.ok);
	assert_int_equal(a.result.created, 0);
	answer_free(&a);
	expect_content(&h, "Dir/File", "new", 3);
	harness_kill(&h);
	assert_int_equal(umount2(h.roots[0], MNT_DETACH), 0);
	harness_remove(&h);
}

/* ---- attributes of a replaced file (field report FT-3) ---- */

static void
write_keeps_extended_attributes(void **state)
{
	char *p, value[64];

	(void)state;
	put_file(&H, H.roots[0], "tagged", "old", 3, 0640);
	p = in_root(&H, "tagged");
	if (setxattr(p, "user.origin", "here", 4, 0) == -1) {
		free(p);
		skip_because("no extended attributes in /tmp");
	}
	assert_int_equal(setxattr(p, "user.empty", "", 0, 0), 0);
	write_ok("tagged", "new", 3, 0, 0);
	expect_mode(&H, "tagged", 0640);
	assert_int_equal(getxattr(p, "user.origin", value, sizeof(value)), 4);
	assert_memory_equal(value, "here", 4);
	assert_int_equal(getxattr(p, "user.empty", value, sizeof(value)), 0);
	free(p);
}

#define ACL_ACCESS  "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"

struct acl_entry {
	uint16_t tag;
	uint16_t perm;
	uint32_t id;
};

/* user::rw-, user:ID:PERM (or none), group::---, mask::rw-, other::--- */
static size_t
make_acl(uint8_t *to, uint32_t id, uint16_t perm)
{
	struct acl_entry e[5] = { { 0x01, 6, UINT32_MAX }, { 0x02, perm, id },
		{ 0x04, 0, UINT32_MAX }, { 0x10, 6, UINT32_MAX },
		{ 0x20, 0, UINT32_MAX } };
	uint32_t version = 2;

	memcpy(to, &version, sizeof(version));
	memcpy(to + sizeof(version), e, sizeof(e));
	return sizeof(version) + sizeof(e);
}

static void
expect_acl(const char *path, const uint8_t *acl, size_t n)
{
	uint8_t got[128];

	assert_int_equal(getxattr(path, ACL_ACCESS, got, sizeof(got)), n);
	assert_memory_equal(got, acl, n);
}

static void
write_keeps_an_access_list(void **state)
{
	uint8_t acl[128], got[128];
	struct answer a;
	char *p, *dir;
	size_t n;

	(void)state;
	make_directory("acl", 0755);
	put_file(&H, H.roots[0], "acl/f", "old", 3, 0600);
	dir = in_root(&H, "acl");
	p = in_root(&H, "acl/f");
	n = make_acl(acl, H.uid, 4);
	if (setxattr(p, ACL_ACCESS, acl, n, 0) == -1)
		skip_because("no access lists in /tmp");
	write_ok("acl/f", "new", 3, 0, 0);
	expect_acl(p, acl, n);

	/* A file without one gets none from its directory. */
	assert_int_equal(setxattr(dir, ACL_DEFAULT, acl, n, 0), 0);
	assert_int_equal(removexattr(p, ACL_ACCESS), 0);
	assert_int_equal(chmod(p, 0640), 0);
	write_ok("acl/f", "new2", 4, 0, 0);
	assert_int_equal(getxattr(p, ACL_ACCESS, got, sizeof(got)), -1);
	expect_mode(&H, "acl/f", 0640);

	if (getuid() == 0) {
		/* Somebody else in it, as the directory hands it out. */
		n = make_acl(acl, 4242, 6);
		assert_int_equal(setxattr(dir, ACL_DEFAULT, acl, n, 0), 0);
		assert_int_equal(setxattr(p, ACL_ACCESS, acl, n, 0), 0);
		write_ok("acl/f", "new3", 4, 0, 0);
		expect_acl(p, acl, n);
		/* It cannot be made, and without it the group could read. */
		assert_int_equal(removexattr(dir, ACL_DEFAULT), 0);
		ask_write(&H, "acl/f", "lost", 4, 0, &a);
		expect_failure(
		    &H, "ACL", &a, EC_WRITE_UNAVAILABLE, NOT_COMMITTED);
		expect_acl(p, acl, n);
		expect_content(&H, "acl/f", "new3", 4);
	}
	assert_int_equal(count_staging(&H, "acl"), 0);
	free(p);
	free(dir);
}

static void
write_keeps_the_group_of_a_shared_directory(void **state)
{
	struct stat st;
	char *dir, *p;

	(void)state;
	if (getuid() != 0)
		skip_because("needs root");
	make_directory("shared", 0775);
	dir = in_root(&H, "shared");
	assert_int_equal(chown(dir, H.uid, 4242), 0);
	assert_int_equal(chmod(dir, 02775), 0);
	put_file(&H, H.roots[0], "shared/f", "old", 3, 0664);
	p = in_root(&H, "shared/f");
	assert_int_equal(chown(p, H.uid, 4242), 0);
	write_ok("shared/f", "new", 3, 0, 0);
	assert_int_equal(stat(p, &st), 0);
	assert_int_equal(st.st_gid, 4242);
	expect_mode(&H, "shared/f", 0664);
	free(p);
	free(dir);
}

/* ---- leftovers of a crash (field report FT-6) ---- */

#define DIGITS "0123456789abcdef0123456789abcdef"
#define STRAY  ".librechat-code-" DIGITS "0123.tmp"
#define HELD   ".librechat-code-" DIGITS "4567.tmp"
#define LATE   ".librechat-code-" DIGITS "89ab.tmp"
#define THEIRS ".librechat-code-" DIGITS "cdef.tmp"

static int
exists(const struct harness *h, const char *name)
{
	char *p = in_root(h, name);
	struct stat st;
	int r = lstat(p, &st);

	free(p);
	return r == 0;
}

static void
make_directory_in(struct harness *h, const char *name)
{
	char *p = in_root(h, name);

	assert_int_equal(mkdir(p, 0755), 0);
	assert_int_equal(chown(p, h->uid, h->gid), 0);
	free(p);
}

/* A file whose coarse time stamp is later than now. */
static void
put_newer_file(struct harness *h, const char *name)
{
	struct timespec now;
	struct stat st;
	char *p = in_root(h, name);

	assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
	do {
		put_file(h, h->roots[0], name, "late", 4, 0600);
		assert_int_equal(stat(p, &st), 0);
	} while (st.st_ctim.tv_sec < now.tv_sec ||
	    (st.st_ctim.tv_sec == now.tv_sec &&
		st.st_ctim.tv_nsec < now.tv_nsec));
	free(p);
}

static void
leftovers_are_removed_after_the_start(void **state)
{
	static const char *const gone[] = { STRAY, "a/" STRAY, "a/b/c/" STRAY,
		"x\xe9y/" STRAY };
	static const char *const kept[] = {
		/* not exactly such a name */
		".librechat-code-" DIGITS "012.tmp",
		".librechat-code-" DIGITS "01234.tmp",
		".librechat-code-" DIGITS "012F.tmp",
		".librechat-code-" DIGITS "0123.tmp~",
		"x.librechat-code-" DIGITS "0123.tmp",
		/* a link, and what is behind a link to a directory */
		"a/" LATE,
		"outside",
		"a/b/" STRAY "/inner",
	};
	struct harness h;
	struct answer a;
	time_t end;
	char *p;
	size_t i, left;
	int fd;

	(void)state;
	harness_init(&h, 1);
	make_directory_in(&h, "a");
	make_directory_in(&h, "a/b");
	make_directory_in(&h, "a/b/c");
	make_directory_in(&h, "x\xe9y");
	make_directory_in(&h, "a/b/" STRAY);
	for (i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		put_file(&h, h.roots[0], gone[i], "half", 4,
		    i % 2 == 0 ? 0600 : 0444);
	for (i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (strcmp(kept[i], "a/" LATE) != 0)
			put_file(&h, h.roots[0], kept[i], "kept", 4, 0600);
	p = in_root(&h, "a/" LATE);
	assert_int_equal(symlink("../outside", p), 0);
	free(p);
	put_file(&h, h.home, STRAY, "elsewhere", 9, 0600);
	p = in_root(&h, "link");
	assert_int_equal(symlink(h.home, p), 0);
	free(p);
	put_file(&h, h.roots[0], HELD, "held", 4, 0600);
	p = in_root(&h, HELD);
	assert_int_not_equal(fd = open(p, O_RDONLY | O_CLOEXEC), -1);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	free(p);
	if (getuid() == 0) {
		put_file(&h, h.roots[0], THEIRS, "theirs", 6, 0666);
		p = in_root(&h, THEIRS);
		assert_int_equal(chown(p, 4242, 4242), 0);
		free(p);
	}
	start_on(&h);
	end = time(NULL) + 20;
	do {
		ask_read(&h, "outside", &a);
		answer_free(&a);
		left = 0;
		for (i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
			left += (size_t)exists(&h, gone[i]);
	} while (left > 0 && time(NULL) < end);
	assert_int_equal(left, 0);
	for (i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (!exists(&h, kept[i]))
			fail_msg("%s is gone", kept[i]);
	assert_true(exists(&h, HELD));
	if (getuid() == 0)
		assert_true(exists(&h, THEIRS));
	p = xasprintf("%s/%s", h.home, STRAY);
	assert_int_equal(access(p, F_OK), 0);
	free(p);

	/* What is newer than the process may be in use. */
	put_newer_file(&h, LATE);
	ask_write(&h, "f", "x", 1, 0, &a);
	assert_true(a.ok);
	answer_free(&a);
	assert_true(exists(&h, LATE));
	assert_true(exists(&h, HELD));

	/* Once it is let go a write in the same directory finds it. */
	close(fd);
	ask_write(&h, "f", "y", 1, 0, &a);
	assert_true(a.ok);
	answer_free(&a);
	assert_false(exists(&h, HELD));
	assert_true(exists(&h, LATE));
	harness_stop(&h);
}

/* Hooks for tests are not in a program that is for use. */
static void
normal_builds_have_no_fault_points(void **state)
{
	static const char *const marks[] = { ".fault-control", "write.rename" };
	struct stat st;
	uint8_t *p;
	size_t i;
	int fd, found;

	(void)state;
	fd = open(getenv("EXECUTOR"), O_RDONLY | O_CLOEXEC);
	assert_int_not_equal(fd, -1);
	assert_int_equal(fstat(fd, &st), 0);
	p = xmalloc((size_t)st.st_size);
	assert_int_equal(read(fd, p, (size_t)st.st_size), st.st_size);
	close(fd);
	for (i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		found = memmem(p, (size_t)st.st_size, marks[i],
			    strlen(marks[i])) != NULL;
#ifdef FAULT_INJECTION
		assert_true(found);
#else
		assert_false(found);
#endif
	}
	free(p);
}

/* ---- */

static int
start(void **state)
{
	(void)state;
	harness_init(&H, 2);
	H.without[1] = OPS_MUTATION | OP_BIT(OP_PREVIEW_EDIT);
	make_fixture();
	if (harness_start(&H) == -1) {
		fprintf(stderr, "%s\n", H.failed);
		return -1;
	}
	return 0;
}

static int
stop(void **state)
{
	(void)state;
	harness_stop(&H);
	return 0;
}

#define N(a) (sizeof(a) / sizeof((a)[0]))

int
main(void)
{
	static const struct CMUnitTest more[] = {
		cmocka_unit_test(write_12_the_largest_file),
		cmocka_unit_test(write_6_unconfirmed_is_uncertain),
		cmocka_unit_test(write_7_file_of_another_account),
		cmocka_unit_test(write_17_two_creators_one_wins),
		cmocka_unit_test(write_36_read_only_workspace),
		cmocka_unit_test(write_28_full_storage),
		cmocka_unit_test(write_ft10_mount_point),
		cmocka_unit_test(write_37_case_insensitive_names),
		cmocka_unit_test(write_keeps_extended_attributes),
		cmocka_unit_test(write_keeps_an_access_list),
		cmocka_unit_test(write_keeps_the_group_of_a_shared_directory),
		cmocka_unit_test(leftovers_are_removed_after_the_start),
		cmocka_unit_test(normal_builds_have_no_fault_points),
	};
	struct CMUnitTest tests[N(write_rows) + N(refusals) + N(more)];
	size_t i, n = 0;

	log_init("test", 0);
	mounts = private_mounts() == 0;
	memset(tests, 0, sizeof(tests));
	for (i = 0; i < N(write_rows); i++, n++) {
		tests[n].name = write_rows[i].name;
		tests[n].test_func = run_write_row;
		tests[n].initial_state = (void *)(uintptr_t)&write_rows[i];
	}
	for (i = 0; i < N(refusals); i++, n++) {
		tests[n].name = refusals[i].name;
		tests[n].test_func = run_refusal;
		tests[n].initial_state = (void *)(uintptr_t)&refusals[i];
	}
	memcpy(tests + n, more, sizeof(more));
	return cmocka_run_group_tests_name("write_file", tests, start, stop);
}
