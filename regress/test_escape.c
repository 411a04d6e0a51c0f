#include "config.h"

#include <sys/types.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
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
#include "harness.h"
#include "log.h"
#include "private.h"
#include "proc.h"
#include "procs.h"

/*
 * What a command must not see or reach, attacked by its second names: bind
 * mounts, mounts below the root, links, FIFOs, and the kernel's files. The
 * host that is looked at is made here: /mnt in a mount namespace of our own.
 */
#define DISK   "/mnt/disk" /* a file system of its own */
#define SECRET "the-secret-of-this-test"

static struct harness H;
static char no_mounts[256]; /* why there is no such namespace, or "" */

static void
need_mounts(void)
{
	if (no_mounts[0] == '\0')
		return;
	print_message("%s\n", no_mounts);
	skip();
}

static void
make_place(const char *path)
{
	if (mkdir(path, 0755) == -1 || chown(path, H.uid, H.gid) == -1)
		fail_msg("%s: %s", path, strerror(errno));
}

static void
put_secret(const char *dir)
{
	make_place(dir);
	put_file(&H, dir, "secret", SECRET "\n", sizeof(SECRET), 0644);
}

static void
show(const char *from, const char *to)
{
	make_place(to);
	if (mount(from, to, NULL, MS_BIND, NULL) == -1)
		fail_msg("%s on %s: %s", from, to, strerror(errno));
}

static void
show_file(const char *from, const char *dir, const char *name)
{
	char *to = xasprintf("%s/%s", dir, name);

	put_file(&H, dir, name, "", 0, 0644);
	if (mount(from, to, NULL, MS_BIND, NULL) == -1)
		fail_msg("%s on %s: %s", from, to, strerror(errno));
	free(to);
}

static void
new_disk(const char *path)
{
	make_place(path);
	if (mount("disk", path, "tmpfs", 0, "mode=0755,size=4m") == -1)
		fail_msg("%s: %s", path, strerror(errno));
}

/* ---- the host ---- */

static void
add_hidden(const char *path)
{
	H.hidden[H.nhidden++] = xstrdup(path);
}

/* The directories that are hidden, and each by further names. */
static void
make_host(void)
{
	char *path;

	if (mount("playground", "/mnt", "tmpfs", 0, "mode=0755,size=8m") == -1)
		fail_msg("/mnt: %s", strerror(errno));
	new_disk(DISK);
	put_secret(DISK "/state");
	put_secret(DISK "/state/deep");
	put_secret(DISK "/homes");
	put_secret(DISK "/homes/alice");
	make_place(DISK "/open");
	put_file(&H, DISK "/open", "public", "public\n", 7, 0644);
	new_disk(DISK "/homes/own");
	put_secret(DISK "/homes/own/inner");
	if (symlink("disk", "/mnt/link") == -1)
		fail_msg("/mnt/link");
	add_hidden(DISK "/state");
	add_hidden("/mnt/link/homes");

	show(DISK, "/mnt/whole");
	show(DISK "/state", "/mnt/itself");
	show(DISK "/state/deep", "/mnt/part");
	show_file(DISK "/state/secret", "/mnt", "file");
	show(DISK "/homes/alice", "/mnt/alice");
	show(DISK "/homes/own", "/mnt/own");
	show(DISK "/open", "/mnt/open");
	show("/tmp", "/mnt/tmp2");
	put_file(&H, H.dir, "secret", SECRET "\n", sizeof(SECRET), 0644);
	put_secret("/mnt/other-root");
	free(H.roots[1]);
	H.roots[1] = xstrdup("/mnt/other-root");
	show("/mnt/other-root", "/mnt/other-name");

	path = xasprintf("%s/state", H.roots[0]);
	show(DISK "/state", path);
	free(path);
	path = xasprintf("%s/disk", H.roots[0]);
	show(DISK, path);
	free(path);
	path = xasprintf("%s/useful", H.roots[0]);
	show(DISK "/open", path);
	free(path);
	if (mkfifo("/mnt/fifo", 0666) == -1 || chmod("/mnt/fifo", 0666) == -1)
		fail_msg("/mnt/fifo");
}

/* ---- one command ---- */

static void
run(uint32_t root, const char *command, struct answer *a)
{
	assert_int_equal(harness_run(&H, root, command, a), 0);
	if (!a->ok)
		fail_msg("%s: %s", command, a->error.text);
}

static void
expect(uint32_t root, const char *command, const char *out)
{
	struct answer a;

	run(root, command, &a);
	if (a.result.out.len != strlen(out) ||
	    memcmp(a.result.out.data, out, strlen(out)) != 0)
		fail_msg("%s: <%.*s> <%.*s>", command, (int)a.result.out.len,
		    (char *)a.result.out.data, (int)a.result.err.len,
		    (char *)a.result.err.data);
	answer_free(&a);
}

/* ---- names of hidden directories ---- */

static void
no_name_shows_a_hidden_directory(void **state)
{
	static const char *const names[] = { DISK "/state/secret",
		DISK "/state/deep/secret", DISK "/homes/secret",
		DISK "/homes/alice/secret", DISK "/homes/own/inner/secret",
		"/mnt/link/state/secret", "/mnt/link/homes/secret",
		"/mnt/whole/state/secret", "/mnt/whole/state/deep/secret",
		"/mnt/whole/homes/alice/secret", "/mnt/itself/secret",
		"/mnt/itself/deep/secret", "/mnt/part/secret", "/mnt/file",
		"/mnt/alice/secret", "/mnt/own/inner/secret",
		"/mnt/other-root/secret", "/mnt/other-name/secret",
		"state/secret", "state/deep/secret", "disk/state/secret",
		"disk/homes/alice/secret" };
	char *command;
	size_t i;

	(void)state;
	need_mounts();
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		command = xasprintf("cat %s 2>/dev/null", names[i]);
		expect(0, command, "");
		free(command);
	}
}

static void
nothing_that_can_be_found_has_the_secret(void **state)
{
	(void)state;
	need_mounts();
	expect(0,
	    "grep -rlsD skip " SECRET " /mnt . /tmp /run /home ~ /var/tmp "
	    "</dev/null",
	    "");
	/* The search finds what is there. */
	expect(0, "grep -rlD skip public /mnt . | sort",
	    "./disk/open/public\n./useful/public\n" DISK "/open/public\n"
	    "/mnt/open/public\n/mnt/whole/open/public\n");
}

static void
the_host_s_tmp_has_no_second_name(void **state)
{
	char *command;

	(void)state;
	need_mounts();
	command = xasprintf("cat %s/secret /mnt/tmp2/*/secret /mnt/tmp2/secret "
			    "2>/dev/null; ls -A /mnt/tmp2",
	    H.dir);
	expect(0, command, "");
	free(command);
}

static void
covers_cannot_be_written_or_removed(void **state)
{
	(void)state;
	need_mounts();
	expect(0,
	    "for d in " DISK "/state " DISK "/homes /mnt/whole/state "
	    "/mnt/itself /mnt/part /mnt/own state disk/state; do "
	    "{ touch $d/x || mkdir $d/y || rmdir $d || mv $d $d.moved || "
	    "umount $d; } 2>/dev/null && echo $d; done; echo tried",
	    "tried\n");
}

static void
the_file_tools_see_no_more(void **state)
{
	static const char *const names[] = { "state/secret",
		"disk/state/secret", "disk/homes/alice/secret" };
	struct request q;
	struct answer a;
	size_t i;

	(void)state;
	need_mounts();
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		memset(&q, 0, sizeof(q));
		q.operation = OP_READ_FILE;
		text_set(&q.path, names[i], strlen(names[i]));
		assert_int_equal(harness_request(&H, &q, &a), 0);
		if (a.ok)
			fail_msg("%s", names[i]);
		answer_free(&a);
		request_free(&q);
	}
}

static void
the_other_root_sees_its_own(void **state)
{
	(void)state;
	need_mounts();
	expect(1, "cat secret", SECRET "\n");
	/* By another name it is the host's, which is read-only. */
	expect(1, "touch /mnt/other-name/x 2>/dev/null || echo closed",
	    "closed\n");
}

/* ---- writing out ---- */

static void
a_fifo_of_the_host_cannot_be_written(void **state)
{
	char text[16];
	int fd;

	(void)state;
	need_mounts();
	fd = open("/mnt/fifo", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	assert_int_not_equal(fd, -1);
	expect(0,
	    "echo out >/mnt/fifo; echo out >>/mnt/fifo; echo out 1<>/mnt/fifo; "
	    "ln -s /mnt/fifo l; echo out >l; rm l; "
	    "exec 3</mnt/fifo; echo out >/proc/self/fd/3; echo tried",
	    "tried\n");
	assert_int_equal(read(fd, text, sizeof(text)), -1);
	assert_int_equal(errno, EAGAIN);
	close(fd);
}

static void
a_fifo_of_the_root_is_shared(void **state)
{
	char text[16], *path = xasprintf("%s/fifo", H.roots[0]);
	int fd;

	(void)state;
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(chown(path, H.uid, H.gid), 0);
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	assert_int_not_equal(fd, -1);
	expect(0, "echo in >fifo", "");
	assert_int_equal(read(fd, text, sizeof(text)), 3);
	close(fd);
	assert_int_equal(unlink(path), 0);
	free(path);
}

static void
ordinary_writing_goes_on(void **state)
{
	(void)state;
	expect(0,
	    "for f in w ~/w /tmp/w /var/tmp/w /dev/shm/w /dev/null "
	    "/dev/stdout /proc/self/comm /dev/fd/1; do echo x >>$f || echo $f;"
	    "done; mkdir -p a b; mv w a/w; mv a/w b/w; ln b/w a/v; "
	    "mkfifo p; (cat p &) ; echo y >p; rm -r a b p; sleep 0.1",
	    "x\nx\ny\n");
}

static void
a_crash_starts_nothing_on_the_host(void **state)
{
	static const char limits[] = "Max core file size 1 1 bytes\n";

	(void)state;
	expect(0, "grep core /proc/self/limits | xargs", limits);
	expect(0,
	    "ulimit -S -c 0 && ulimit -H -c 0 && bash -c 'ulimit -c 0; "
	    "exec grep core /proc/self/limits' | xargs",
	    limits);
	expect(0, "bash -c 'kill -SEGV $$'; ls -A | grep -c core", "0\n");
}

/* ---- the kernel's files ---- */

static void
kernel_files_are_not_there(void **state)
{
	(void)state;
	expect(0,
	    "for f in /proc/keys /proc/key-users /proc/kcore /proc/kmsg "
	    "/proc/sysrq-trigger /proc/timer_list /proc/kpagecount "
	    "/proc/kpageflags /proc/kpagecgroup /proc/sched_debug; do "
	    "[ -e $f ] || continue; "
	    "[ -s $f -o -r $f ] && echo $f is there; "
	    "{ cat $f; echo 1 >$f; chmod 666 $f; rm $f; } 2>/dev/null && "
	    "echo $f; done; "
	    "for d in /proc/acpi /proc/scsi /sys/firmware /sys/kernel/debug "
	    "/sys/kernel/tracing /sys/kernel/security /sys/fs/bpf "
	    "/sys/fs/pstore /sys/devices/virtual/powercap; do "
	    "[ -r $d ] && echo $d is there; ls -A $d 2>/dev/null; done; "
	    "echo looked",
	    "looked\n");
}

static void
nothing_in_proc_or_sys_can_be_written(void **state)
{
	(void)state;
	/* Of processes only one's own files; of the kernel none. */
	expect(0,
	    "find /proc /sys -path '/proc/[0-9]*' -prune -o "
	    "-path /proc/self -prune -o -path /proc/thread-self -prune -o "
	    "-type f -writable -print 2>/dev/null",
	    "");
	expect(0,
	    "for f in /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches "
	    "/proc/sys/fs/binfmt_misc/register /sys/kernel/uevent_helper "
	    "/sys/power/state /proc/irq/default_smp_affinity; do "
	    "{ echo 1 >$f; } 2>/dev/null && echo $f; done; echo tried",
	    "tried\n");
}

static void
what_programs_read_in_proc_is_there(void **state)
{
	(void)state;
	expect(0,
	    "for f in cpuinfo meminfo stat loadavg uptime version mounts "
	    "filesystems sys/kernel/osrelease sys/vm/overcommit_memory "
	    "self/status self/maps net/tcp; do "
	    "[ -n \"$(head -c 1 /proc/$f)\" ] || echo $f; done; "
	    "[ -d /sys/devices/system/cpu ] || echo cpu",
	    "");
}

static void
no_object_of_system_v_is_seen(void **state)
{
	int shm, sem, msg;

	(void)state;
	shm = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0666);
	sem = semget(IPC_PRIVATE, 1, IPC_CREAT | 0666);
	msg = msgget(IPC_PRIVATE, IPC_CREAT | 0666);
	assert_true(shm != -1 && sem != -1 && msg != -1);
	expect(0,
	    "cat /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg | "
	    "grep -vc key; ipcs | grep -c 0x",
	    "0\n0\n");
	assert_int_equal(shmctl(shm, IPC_RMID, NULL), 0);
	assert_int_equal(semctl(sem, 0, IPC_RMID), 0);
	assert_int_equal(msgctl(msg, IPC_RMID, NULL), 0);
}

/* ---- two roots at once ---- */

/* The same names in both: each finds its own, and nobody the other's. */
static void
two_roots_never_meet(void **state)
{
	/* A server under every kind of name, until the host says enough. */
	static const char server[] =
	    "./attack serve /tmp/meet.sock @meet >/tmp/up & "
	    "until [ -s /tmp/up ]; do sleep 0.01; done; "
	    "echo $W >/tmp/meet; echo $W >/dev/shm/meet; touch up; "
	    "until [ -e enough ]; do sleep 0.01; done; "
	    "./attack connect /tmp/meet.sock; ./attack connect @meet; "
	    "cat /tmp/meet /dev/shm/meet";
	static const char *const want[] = {
		"connected own\nconnected own\na\na\n",
		"connected own\nconnected own\nb\nb\n"
	};
	struct harness h;
	struct request q;
	struct answer a;
	char *command, *path;
	uint32_t ids[2], i;

	(void)state;
	harness_init(&h, 3);
	for (i = 0; i < 3; i++)
		copy_program(&h, "ATTACK", h.roots[i], "attack");
	if (harness_start(&h) == -1)
		fail_msg("%s", h.failed);
	for (i = 0; i < 2; i++) {
		memset(&q, 0, sizeof(q));
		command = xasprintf("W=%s; %s", i == 0 ? "a" : "b", server);
		q.operation = OP_EXECUTE_COMMAND;
		q.root = i;
		text_set(&q.command, command, strlen(command));
		q.timeout_ms = 120000;
		q.max_output = 1000;
		ids[i] = harness_send(&h, &q);
		request_free(&q);
		free(command);
	}
	for (i = 0; i < 2; i++) {
		path = xasprintf("%s/up", h.roots[i]);
		while (access(path, F_OK) == -1)
			usleep(2000);
		free(path);
	}
	/* A third one finds neither. */
	assert_int_equal(harness_run(&h, 2,
			     "./attack connect /tmp/meet.sock; "
			     "./attack connect @meet; cat /tmp/meet "
			     "/dev/shm/meet 2>/dev/null",
			     &a),
	    0);
	assert_true(a.ok);
	if (a.result.out.len != 20 ||
	    memcmp(a.result.out.data, "ENOENT\nECONNREFUSED\n", 20) != 0)
		fail_msg(
		    "<%.*s>", (int)a.result.out.len, (char *)a.result.out.data);
	answer_free(&a);
	for (i = 0; i < 2; i++)
		put_file(&h, h.roots[i], "enough", "", 0, 0644);
	for (i = 0; i < 2; i++) {
		assert_int_equal(harness_wait(&h, ids[i], &a), 0);
		assert_true(a.ok);
		if (a.result.out.len != strlen(want[i]) ||
		    memcmp(a.result.out.data, want[i], a.result.out.len) != 0)
			fail_msg("root %u: <%.*s>", i, (int)a.result.out.len,
			    (char *)a.result.out.data);
		answer_free(&a);
	}
	harness_stop(&h);
}

/* ---- set-up of a command ---- */

/* As the account itself: root may lack the capability for others. */
static void
set_descriptors(struct harness *h, pid_t pid, rlim_t soft)
{
	struct rlimit rl;
	pid_t child;
	int st;

	if ((child = fork()) == 0) {
		if (getuid() == 0 && proc_become(h->uid, h->gid) == -1)
			_exit(1);
		if (prlimit(pid, RLIMIT_NOFILE, NULL, &rl) == -1)
			_exit(2);
		rl.rlim_cur = soft;
		_exit(prlimit(pid, RLIMIT_NOFILE, &rl, NULL) == -1 ? 3 : 0);
	}
	assert_int_equal(waitpid(child, &st, 0), child);
	assert_int_equal(st, 0);
}

static void
a_set_up_that_fails_is_clean(void **state)
{
	struct harness h;
	struct answer a;
	pid_t keeper;

	(void)state;
	harness_init(&h, 1);
	if (harness_start(&h) == -1)
		fail_msg("%s", h.failed);
	keeper = process_below(h.pid, "sandbox");
	assert_int_not_equal(keeper, 0);
	set_descriptors(&h, keeper, 16); /* init.c puts them above */
	assert_int_equal(harness_run(&h, 0, "touch made", &a), 0);
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_COMMAND_UNAVAILABLE);
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	assert_int_equal(h.outcome, NOT_COMMITTED);
	if (strstr(a.error.text, "set-up failed: descriptors") == NULL)
		fail_msg("%s", a.error.text);
	answer_free(&a);
	set_descriptors(&h, keeper, 256);
	assert_int_equal(harness_run(&h, 0, "ls; echo fine", &a), 0);
	assert_true(a.ok);
	assert_int_equal(a.result.out.len, 5);
	answer_free(&a);
	harness_stop(&h);
}

static int
start(void **state)
{
	(void)state;
	harness_init(&H, 2);
	if (no_mounts[0] == '\0')
		make_host();
	if (harness_start(&H) == -1) {
		fprintf(stderr, "%s\n", H.failed);
		return -1;
	}
	return 0;
}

static int
stop(void **state)
{
	char *path;
	size_t i;
	static const char *const below[] = { "state", "disk", "useful" };

	(void)state;
	/* Nothing may be removed through a mount. */
	for (i = 0; no_mounts[0] == '\0' && i < 3; i++) {
		path = xasprintf("%s/%s", H.roots[0], below[i]);
		if (umount2(path, MNT_DETACH) == -1)
			return -1;
		free(path);
	}
	harness_stop(&H);
	return 0;
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_name_shows_a_hidden_directory),
		cmocka_unit_test(nothing_that_can_be_found_has_the_secret),
		cmocka_unit_test(the_host_s_tmp_has_no_second_name),
		cmocka_unit_test(covers_cannot_be_written_or_removed),
		cmocka_unit_test(the_file_tools_see_no_more),
		cmocka_unit_test(the_other_root_sees_its_own),
		cmocka_unit_test(a_fifo_of_the_host_cannot_be_written),
		cmocka_unit_test(a_fifo_of_the_root_is_shared),
		cmocka_unit_test(ordinary_writing_goes_on),
		cmocka_unit_test(a_crash_starts_nothing_on_the_host),
		cmocka_unit_test(kernel_files_are_not_there),
		cmocka_unit_test(nothing_in_proc_or_sys_can_be_written),
		cmocka_unit_test(what_programs_read_in_proc_is_there),
		cmocka_unit_test(no_object_of_system_v_is_seen),
		cmocka_unit_test(two_roots_never_meet),
		cmocka_unit_test(a_set_up_that_fails_is_clean),
	};

	log_init("test", 0);
	private_mounts(no_mounts, sizeof(no_mounts));
	return cmocka_run_group_tests_name("escape", tests, start, stop);
}
