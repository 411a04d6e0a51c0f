#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
#include "cgroup.h"

/*
 * The division of a delegated control group, on a tree of plain files that
 * stands for the kernel's: each change is recorded, and each can fail.
 */
#define OTHER 65534 /* an account that is not ours */

static char *base; /* scratch directory */
static char *own; /* the delegated group */
static char *membership;
static struct buf record; /* changes, one a line */
static int changes, fail_at; /* the number of the one that fails, or 0 */
static int immortal; /* processes that no kill ends */
static const char *const *files; /* of a new group */
static struct cgroup_host host;

static const char *const all_files[] = { "cgroup.procs", "cgroup.events",
	"cgroup.kill", "memory.max", "memory.swap.max", "memory.oom.group",
	"pids.max", "cpu.weight", NULL };

static void
put(int dir, const char *name, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd != -1);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* Records a change; 1 if it is the one to fail. */
static int
change(int dir, const char *what, const char *name, const char *value)
{
	char path[PATH_MAX], link[64];
	const char *group;
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
	n = readlink(link, path, sizeof(path) - 1);
	assert_true(n > 0);
	path[n] = '\0';
	group = strrchr(path, '/') + 1;
	if (strcmp(group, "own") == 0)
		group = "";
	buf_addf(&record, "%s %s%s%s%s%s\n", what, group,
	    *group == '\0' ? "" : "/", name, *value == '\0' ? "" : "=", value);
	if (++changes != fail_at)
		return 0;
	errno = EIO;
	return 1;
}

static int
fake_make(int dir, const char *name)
{
	size_t i;
	int fd;

	if (change(dir, "make", name, ""))
		return -1;
	if (mkdirat(dir, name, 0755) == -1)
		return -1;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY);
	assert_true(fd != -1);
	for (i = 0; files[i] != NULL; i++)
		put(fd, files[i],
		    strcmp(files[i], "cgroup.events") == 0
			? "populated 0\nfrozen 0\n"
			: "");
	close(fd);
	return 0;
}

static int
fake_remove(int dir, const char *name)
{
	size_t i;
	int fd;

	if (change(dir, "remove", name, ""))
		return -1;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY);
	assert_true(fd != -1);
	for (i = 0; all_files[i] != NULL; i++)
		(void)unlinkat(fd, all_files[i], 0);
	close(fd);
	return cgroup_here.remove(dir, name);
}

static int
fake_write(int dir, const char *name, const char *text)
{
	char pid[32];

	if (change(dir, "write", name, text))
		return -1;
	if (strcmp(name, "cgroup.kill") == 0 && !immortal)
		put(dir, "cgroup.events", "populated 0\nfrozen 0\n");
	if (strcmp(name, "cgroup.procs") == 0) {
		/* The kernel takes 0 for the writer. */
		(void)snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
		text = pid;
	}
	return cgroup_here.write(dir, name, text);
}

static void
put_own(const char *name, const char *text)
{
	char *path = xasprintf("%s/%s", own, name);

	put(AT_FDCWD, path, text);
	free(path);
}

static int
set_up(void **state)
{
	char template[] = "/tmp/lc-cgroup-XXXXXX", pid[32];

	(void)state;
	assert_non_null(mkdtemp(template));
	base = xstrdup(template);
	assert_int_equal(chmod(base, 0755), 0);
	own = xasprintf("%s/own", base);
	assert_int_equal(mkdir(own, 0755), 0);
	membership = xasprintf("%s/membership", base);
	put(AT_FDCWD, membership, "4:memory:/x\n0::/own\n");
	(void)snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
	put_own("cgroup.procs", pid);
	put_own("cgroup.controllers", "cpuset cpu io memory pids\n");
	put_own("cgroup.subtree_control", "");
	buf_init(&record);
	changes = fail_at = immortal = 0;
	files = all_files;
	host.membership = membership;
	host.top = base;
	host.make = fake_make;
	host.remove = fake_remove;
	host.write = fake_write;
	return 0;
}

/* Names below a directory, but for "." and ".."; counts those of groups. */
static size_t
groups_left(const char *except)
{
	struct dirent *de;
	DIR *dir = opendir(own);
	size_t n = 0;

	assert_non_null(dir);
	while ((de = readdir(dir)) != NULL)
		if (de->d_type == DT_DIR && de->d_name[0] != '.' &&
		    (except == NULL || strcmp(de->d_name, except) != 0))
			n++;
	closedir(dir);
	return n;
}

static int
tear_down(void **state)
{
	char *command = xasprintf("rm -rf %s", base);

	(void)state;
	assert_int_equal(system(command), 0);
	free(command);
	free(base);
	free(own);
	free(membership);
	buf_free(&record);
	return 0;
}

static const struct cgroup_limits limits = { 512ULL << 20, 300 };

static int
start(struct cgroups *g, size_t n, char **why)
{
	*why = NULL;
	return cgroup_start(g, &host, &limits, n, (uid_t)-1, (gid_t)-1, why);
}

#define START                                          \
	"make daemon\n"                                \
	"write daemon/cgroup.procs=0\n"                \
	"write cgroup.subtree_control=+memory +pids\n" \
	"write cgroup.subtree_control=+cpu\n"
#define WORKSPACE(n, memory, swap, pids)                   \
	"make workspace-" n "\n"                           \
	"write workspace-" n "/memory.max=" memory "\n"    \
	"write workspace-" n "/memory.swap.max=" swap "\n" \
	"write workspace-" n "/memory.oom.group=1\n"       \
	"write workspace-" n "/pids.max=" pids "\n"        \
	"write workspace-" n "/cpu.weight=50\n"
#define END(n)                                  \
	"write workspace-" n "/cgroup.kill=1\n" \
	"remove workspace-" n "\n"
#define STOP                                           \
	"write cgroup.subtree_control=-cpu\n"          \
	"write cgroup.subtree_control=-memory -pids\n" \
	"write cgroup.procs=0\n"                       \
	"remove daemon\n"

static void
each_workspace_gets_its_limits(void **state)
{
	struct cgroups g;
	struct stat a, b;
	char *why, *path;

	(void)state;
	assert_int_equal(start(&g, 2, &why), 0);
	assert_string_equal(buf_cstr(&record),
	    START WORKSPACE("0", "536870912", "0", "300")
		WORKSPACE("1", "536870912", "0", "300"));
	assert_int_equal(g.n, 2);
	path = xasprintf("%s/workspace-1", own);
	assert_int_equal(fstat(g.groups[1], &a), 0);
	assert_int_equal(stat(path, &b), 0);
	assert_true(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
	assert_int_equal(fcntl(g.groups[1], F_GETFD), FD_CLOEXEC);
	free(path);
	buf_reset(&record);
	cgroup_stop(&g);
	assert_string_equal(buf_cstr(&record), END("0") END("1") STOP);
	assert_int_equal(groups_left(NULL), 0);
	assert_null(g.path);
	buf_reset(&record);
	cgroup_stop(&g); /* nothing is left to do */
	assert_int_equal(record.len, 0);
}

static void
no_limit_is_max(void **state)
{
	const struct cgroup_limits none = { 0, 0 };
	struct cgroups g;
	char *why = NULL;

	(void)state;
	assert_int_equal(
	    cgroup_start(&g, &host, &none, 1, (uid_t)-1, (gid_t)-1, &why), 0);
	assert_string_equal(
	    buf_cstr(&record), START WORKSPACE("0", "max", "max", "max"));
	cgroup_stop(&g);
}

/* Without swap, on an older kernel, without the controller cpu. */
static void
files_that_need_not_exist(void **state)
{
	static const char *const few[] = { "cgroup.procs", "cgroup.events",
		"memory.max", "pids.max", NULL };
	struct cgroups g;
	char *why;

	(void)state;
	files = few;
	assert_int_equal(start(&g, 1, &why), 0);
	cgroup_stop(&g);
	assert_int_equal(groups_left(NULL), 0);
}

/*
 * Whatever change fails, the start says so and leaves nothing, but for the
 * share of the processor, which is not a limit.
 */
static void
every_failure_undoes_the_rest(void **state)
{
	struct cgroups g;
	char *why;
	int i, n, r;

	(void)state;
	assert_int_equal(start(&g, 2, &why), 0);
	n = changes;
	cgroup_stop(&g);
	assert_int_equal(n, 16);
	for (i = 1; i <= n; i++) {
		changes = 0;
		fail_at = i;
		buf_reset(&record);
		r = start(&g, 2, &why);
		if (i == 4) {
			assert_int_equal(r, 0);
			cgroup_stop(&g);
		} else {
			if (r != -1)
				fail_msg("change %d may fail", i);
			assert_non_null(why);
			assert_non_null(strstr(why, own));
			assert_non_null(strstr(why, strerror(EIO)));
			assert_null(g.path);
			/* Once moved it is moved back. */
			if (i > 2)
				assert_non_null(strstr(buf_cstr(&record),
				    "\nwrite cgroup.procs=0\n"));
		}
		assert_int_equal(groups_left(NULL), 0);
		free(why);
	}
}

/* A change that fails at the end does not keep the others from being made. */
static void
every_failure_at_the_end_is_survived(void **state)
{
	struct cgroups g;
	char *why, *command;
	int i;

	(void)state;
	for (i = 1; i <= 6; i++) {
		fail_at = 0;
		assert_int_equal(start(&g, 1, &why), 0);
		changes = 0;
		fail_at = i;
		cgroup_stop(&g);
		assert_true(groups_left(NULL) <= 1);
		fail_at = 0;
		command = xasprintf(
		    "rm -rf %s/daemon %s/workspace-0", own, own);
		assert_int_equal(system(command), 0);
		free(command);
	}
}

static void
make_stale(const char *name, int alive)
{
	int top = open(own, O_RDONLY | O_DIRECTORY), fd;

	assert_int_equal(fake_make(top, name), 0);
	fd = openat(top, name, O_RDONLY | O_DIRECTORY);
	if (alive)
		put(fd, "cgroup.events", "populated 1\nfrozen 0\n");
	close(fd);
	close(top);
}

static void
groups_of_an_earlier_start_are_ended(void **state)
{
	struct cgroups g;
	char *why;

	(void)state;
	make_stale("daemon", 0);
	make_stale("workspace-0", 1);
	make_stale("workspace-17", 1);
	make_stale("workspace-", 0);
	make_stale("workspace-1x", 0);
	make_stale("other", 1);
	buf_reset(&record);
	assert_int_equal(start(&g, 1, &why), 0);
	assert_non_null(
	    strstr(buf_cstr(&record), "write workspace-0/cgroup.kill=1\n"));
	assert_non_null(
	    strstr(buf_cstr(&record), "write workspace-17/cgroup.kill=1\n"));
	assert_null(strstr(buf_cstr(&record), "other"));
	assert_null(strstr(buf_cstr(&record), "workspace-1x"));
	cgroup_stop(&g);
	assert_int_equal(groups_left(NULL), 3);
}

static void
processes_that_do_not_end_prevent_it(void **state)
{
	struct cgroups g;
	char *why;

	(void)state;
	make_stale("workspace-3", 1);
	immortal = 1;
	buf_reset(&record);
	assert_int_equal(start(&g, 1, &why), -1);
	assert_non_null(strstr(why, "workspace-3 of an earlier start"));
	assert_int_equal(groups_left("workspace-3"), 0);
	assert_null(strstr(buf_cstr(&record), "make"));
	free(why);
}

/* ---- when it is not done at all ---- */

static void
refused(const char *text)
{
	struct cgroups g;
	char *why = NULL;

	assert_int_equal(cgroup_check(&host, &why), -1);
	if (strstr(why, text) == NULL)
		fail_msg("\"%s\" instead of \"%s\"", why, text);
	free(why);
	assert_int_equal(start(&g, 1, &why), -1);
	assert_non_null(strstr(why, text));
	free(why);
	assert_null(g.path);
	assert_int_equal(record.len, 0);
}

static void
nothing_is_changed_unless_it_is_ours_alone(void **state)
{
	char text[64], *why = NULL;

	(void)state;
	assert_int_equal(cgroup_check(&host, &why), 0);
	assert_null(why);
	assert_int_equal(record.len, 0);

	(void)snprintf(text, sizeof(text), "1\n%ld\n", (long)getpid());
	put_own("cgroup.procs", text);
	refused("has other processes");
	(void)snprintf(text, sizeof(text), "%ld\n0\n", (long)getpid());
	put_own("cgroup.procs", text);
	refused("has other processes");
	(void)snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	put_own("cgroup.procs", text);

	put_own("cgroup.controllers", "cpuset cpu io memory\n");
	refused("lacks the controllers");
	put_own("cgroup.controllers", "pids xmemory memoryx\n");
	refused("lacks the controllers");
	put_own("cgroup.controllers", "");
	refused("lacks the controllers");
	put_own("cgroup.controllers", "memory pids\n");

	put(AT_FDCWD, membership, "4:memory:/own\n1:name=systemd:/own\n");
	refused("no unified hierarchy");
	put(AT_FDCWD, membership, "0::/../own\n");
	refused("no unified hierarchy");
	put(AT_FDCWD, membership, "0::/elsewhere\n");
	refused("/elsewhere: ");
	put(AT_FDCWD, membership, "0::/own\n");
	assert_int_equal(cgroup_check(&host, &why), 0);
	assert_int_equal(unlink(membership), 0);
	refused("no unified hierarchy");
}

static void
a_group_that_is_not_delegated(void **state)
{
	uid_t me = geteuid();

	(void)state;
	if (me == 0)
		assert_int_equal(seteuid(OTHER), 0);
	else
		assert_int_equal(chmod(own, 0555), 0);
	refused("is not delegated");
	if (me == 0)
		assert_int_equal(seteuid(0), 0);
	else
		assert_int_equal(chmod(own, 0755), 0);
}

/* The account that runs commands may put them there, and nothing more. */
static void
the_executor_may_use_the_groups(void **state)
{
	struct cgroups g;
	struct stat st;
	char *why = NULL, *path;
	mode_t mask;

	(void)state;
	if (geteuid() != 0) {
		print_message("needs root to give files away\n");
		skip();
	}
	mask = umask(077);
	assert_int_equal(
	    cgroup_start(&g, &host, &limits, 1, OTHER, OTHER, &why), 0);
	(void)umask(mask);
	assert_int_equal(fstatat(g.groups[0], "cgroup.procs", &st, 0), 0);
	assert_int_equal(st.st_uid, OTHER);
	assert_int_equal(fstatat(g.groups[0], "memory.max", &st, 0), 0);
	assert_int_equal(st.st_uid, 0);
	assert_int_equal(fstat(g.groups[0], &st), 0);
	assert_int_equal(st.st_uid, 0);
	assert_int_equal(st.st_mode & 0777, 0755);
	path = xasprintf("%s/cgroup.procs", own);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, OTHER);
	free(path);
	path = xasprintf("%s/cgroup.subtree_control", own);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 0);
	free(path);
	cgroup_stop(&g);
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(each_workspace_gets_its_limits),
		T(no_limit_is_max),
		T(files_that_need_not_exist),
		T(every_failure_undoes_the_rest),
		T(every_failure_at_the_end_is_survived),
		T(groups_of_an_earlier_start_are_ended),
		T(processes_that_do_not_end_prevent_it),
		T(nothing_is_changed_unless_it_is_ours_alone),
		T(a_group_that_is_not_delegated),
		T(the_executor_may_use_the_groups),
	};

	return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
