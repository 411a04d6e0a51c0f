#include "config.h"

#include <sys/types.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "harness.h"
#include "log.h"

/*
 * The promises of the sandbox, each attacked by a real command. One executor
 * with two roots serves all of them, except where a test needs its own.
 */
static struct harness H;
static char *host_file; /* in the host's /tmp */
static char *secret_dir; /* hidden directory, as the state would be */

static int
contains(const struct text *t, const char *needle)
{
	return memmem(t->data, t->len, needle, strlen(needle)) != NULL;
}

/* ---- one command, one expectation ---- */

struct row {
	const char *name;
	const char *command;
	int exit_code;
	const char *out; /* whole standard output, or NULL */
	const char *has; /* part of either stream, or NULL */
};

static const struct row rows[] = {
	/* shell */
	{ "true ends with 0 and no output", "true", 0, "", NULL },
	{ "the shell is bash, not login, not interactive",
	    "echo $- $0; shopt -q login_shell && echo login", 1,
	    "hBc /bin/bash\n", NULL },
	{ "exit status is kept", "exit 3", 3, "", NULL },
	{ "exit status is modulo 256", "exit 300", 44, "", NULL },
	{ "shell killed by SIGTERM gives 143", "kill -TERM $$", 143, "", NULL },
	{ "shell killed by SIGKILL gives 137", "kill -KILL $$", 137, "", NULL },
	{ "shell killed by SIGSEGV gives 139", "kill -SEGV $$", 139, "", NULL },
	{ "missing command gives 127", "no-such-command-here", 127, "",
	    "command not found" },
	{ "standard input is empty", "cat; wc -c", 0, "0\n", NULL },
	{ "no descriptor but 0, 1 and 2 is inherited", "ls /proc/self/fd", 0,
	    "0\n1\n2\n3\n", NULL },
	{ "signals have default dispositions and none is blocked",
	    "yes | head -1; echo ${PIPESTATUS[0]}; "
	    "grep -c 'SigBlk:.0000000000000000' /proc/self/status",
	    0, "y\n141\n1\n", NULL },
	{ "umask is 022", "umask", 0, "0022\n", NULL },
	{ "no controlling terminal", ": </dev/tty", 1, "",
	    "No such device or address" },
	{ "no core file", "ulimit -c", 0, "0\n", NULL },
	{ "working directory is the root",
	    "[ \"$PWD\" = \"$(pwd -P)\" ] && "
	    "touch in-root && ls in-root && rm in-root",
	    0, "in-root\n", NULL },

	/* what can be written */
	{ "the host is read-only",
	    "for d in / /usr /etc /var /opt /boot /sys "
	    "/run /home /root /dev /proc; do touch $d/x 2>/dev/null && "
	    "echo $d; done; true",
	    0, "", NULL },
	{ "root, home, /tmp, /var/tmp, /dev/shm can be written",
	    "for d in . ~ /tmp /var/tmp /dev/shm $TMPDIR; do touch $d/w && "
	    "rm $d/w || echo no $d; done",
	    0, "", NULL },
	{ "writing through a link out of the root fails",
	    "ln -s /etc link; touch link/x; r=$?; rm link; exit $r", 1, "",
	    "Read-only file system" },
	{ "kernel settings cannot be changed",
	    "for f in /proc/sys/kernel/hostname /proc/sys/vm/swappiness "
	    "/proc/sys/net/ipv4/ip_forward /proc/sysrq-trigger; do "
	    "{ echo 1 >$f; } 2>/dev/null && echo $f; done; true",
	    0, "", NULL },
	{ "rename, link and move across directories of the root work",
	    "mkdir -p a b; echo 1 >a/f; mv a/f b/f && ln b/f a/g && "
	    "mkdir c && mv b/f c/f && echo ok; rm -r a b c",
	    0, "ok\n", NULL },
	{ "paths from the working directory and from / are on one mount",
	    "echo 1 >a; perl -e 'rename(\"$ENV{PWD}/a\", \"b\") && "
	    "link(\"b\", \"$ENV{PWD}/c\") or die; readlink("
	    "\"/proc/self/cwd\") eq $ENV{PWD} or die' && rm b c && echo ok",
	    0, "ok\n", NULL },
	{ "device nodes of the root are not devices", "mknod d c 1 3", 1, "",
	    NULL },

	{ "kernel interfaces in /proc are mounted read-only",
	    "awk '$5 == \"/proc/sys\" {print $5, "
	    "substr($6, 1, 2)}' /proc/self/mountinfo | sort -u",
	    0, "/proc/sys ro\n", NULL },

	/* /tmp */
	{ "/tmp has mode 1777", "stat -c %a /tmp /var/tmp /dev/shm", 0,
	    "1777\n1777\n1777\n", NULL },
	{ "TMPDIR is /tmp", "echo $TMPDIR", 0, "/tmp\n", NULL },
	{ "/tmp/claude cannot be made or written",
	    "mkdir -p /tmp/claude/x || touch /tmp/claude/f || "
	    "mv /tmp/claude /tmp/c || rmdir /tmp/claude || echo closed",
	    0, "closed\n", NULL },
	{ "/tmp is limited in size",
	    "head -c 100M /dev/zero >/tmp/fill; "
	    "r=$?; rm /tmp/fill; exit $r",
	    1, "", "No space left" },
	{ "the home is limited in size",
	    "head -c 100M /dev/zero >~/fill; "
	    "r=$?; rm ~/fill; exit $r",
	    1, "", "No space left" },

	/* what can be seen */
	{ "/home, /root and /run are empty or lead to the root only",
	    "ls -A /root /run", 0, "/root:\n\n/run:\n", NULL },
	{ "the private home is empty", "ls -A ~", 0, "", NULL },
	{ "only own processes are visible", "set -- /proc/[0-9]*; echo $#", 0,
	    "2\n", NULL },
	{ "process 1 shows nothing",
	    "cat /proc/1/environ /proc/1/maps /proc/1/mem; readlink "
	    "/proc/1/exe /proc/1/root /proc/1/cwd; ls /proc/1/fd",
	    2, "", "Permission denied" },
	{ "process 1 cannot be killed",
	    "kill -KILL 1; kill -STOP 1; echo alive", 0, "alive\n", NULL },
	{ "no cgroup of the host can be changed",
	    "find /sys/fs/cgroup -writable -type f 2>/dev/null | head -1", 0,
	    "", NULL },
	{ "the host's environment does not arrive",
	    "env | grep -c "
	    "-e LIBRECHAT -e TEST_SECRET -e LD_PRELOAD -e BASH_ENV",
	    1, "0\n", NULL },
	{ "shell start-up files are not read",
	    "echo 'echo startup' >~/.bashrc; cp ~/.bashrc ~/.profile; "
	    "bash -c true; echo ${RC-unset}; rm ~/.bashrc ~/.profile",
	    0, "unset\n", NULL },

	/* privileges */
	{ "all capability sets are empty",
	    "grep -c '^Cap...:.0000000000000000$' /proc/self/status", 0, "5\n",
	    NULL },
	{ "nor has process 1 of the command any",
	    "grep -c '^Cap...:.0000000000000000$' /proc/1/status", 0, "5\n",
	    NULL },
	{ "no_new_privs is on and a filter is installed",
	    "grep -E 'NoNewPrivs|^Seccomp:' /proc/self/status | tr -d "
	    "'\\t\\n'",
	    0, "NoNewPrivs:1Seccomp:2", NULL },
	{ "set-id programs gain nothing", "su -c true </dev/null; mount", 0,
	    NULL, NULL },
	{ "no user namespace", "unshare -U true", 1, "",
	    "Operation not permitted" },
	{ "no mount namespace", "unshare -m true", 1, "",
	    "Operation not permitted" },
	{ "no mount", "mount -t tmpfs none /tmp", 32, "", NULL },
	{ "no kernel log", "dmesg", 1, "", "not permitted" },

	/* network */
	{ "loopback is the only interface", "ls /sys/class/net", 0, "lo\n",
	    NULL },
	{ "the network is unreachable at once", "exec 3<>/dev/tcp/192.0.2.1/80",
	    1, "", "Network is unreachable" },
	{ "names of the outside do not resolve", "getent hosts name.example", 2,
	    "", NULL },

	/* devices and terminals */
	{ "/dev has the usual nodes", "ls /dev | tr '\\n' ' '", 0,
	    "fd full null ptmx pts random shm "
	    "stderr stdin stdout tty urandom zero ",
	    NULL },
	{ "pseudo-terminals work", "script -qec tty /dev/null | tr -d '\\r'", 0,
	    "/dev/pts/0\n", NULL },
	{ "process substitution and here-documents work",
	    "cat <(echo a) <<EOF\nb\nEOF\ncat <<EOF\nc\nEOF", 0, "a\nc\n",
	    NULL },
	{ "flock and mkfifo work",
	    "mkfifo /tmp/p && flock /tmp/l echo ok; "
	    "rm /tmp/p /tmp/l",
	    0, "ok\n", NULL },
	{ "an account that the host's files do not know has a name and home",
	    "[ $(whoami) = tester ] && [ $(id -gn) = tester ] && "
	    "getent passwd $(id -u) | cut -d: -f1,6 | grep -q "
	    "\"^tester:$HOME$\" && [ ~tester = $HOME ] && echo ok",
	    0, "ok\n", NULL },
	{ "the host's accounts are known and their files cannot be changed",
	    "getent passwd root daemon | cut -d: -f1,3; "
	    "touch /etc/passwd /etc/group 2>/dev/null || echo sealed",
	    0, "root:0\ndaemon:1\nsealed\n", NULL },
	{ "USER, LOGNAME, SHELL and HOME are set",
	    "echo $USER $LOGNAME $SHELL; [ -d $HOME ] && echo home", 0,
	    "tester tester /bin/bash\nhome\n", NULL },

	/* ordinary tools */
	{ "git init, commit and log work",
	    "git init -q r && cd r && git config user.email a@b.example && "
	    "git config user.name n && echo 1 >f && git add f && git commit "
	    "-qm x && git log --format=%s; cd .. && rm -rf r",
	    0, "x\n", NULL },
	{ "the compiler works",
	    "printf 'int main(void){return 7;}' >m.c && "
	    "cc m.c -o m && ./m; r=$?; rm -f m m.c; exit $r",
	    7, "", NULL },
	{ "make with jobs works",
	    "printf 'all: a b\\na b:\\n\\t@echo $@\\n' "
	    ">Mk; make -s -j2 -f Mk | sort; rm Mk",
	    0, "a\nb\n", NULL },
};

static void
run_row(void **state)
{
	const struct row *r = *state;
	struct answer a;

	assert_int_equal(harness_run(&H, 0, r->command, &a), 0);
	if (!a.ok)
		fail_msg("%s: %s", error_code_name(a.error.code), a.error.text);
	if (r->out != NULL &&
	    (a.result.out.len != strlen(r->out) ||
		memcmp(a.result.out.data, r->out, a.result.out.len) != 0))
		fail_msg("output is <%.*s>, errors <%.*s>",
		    (int)a.result.out.len, (char *)a.result.out.data,
		    (int)a.result.err.len, (char *)a.result.err.data);
	if (r->has != NULL && !contains(&a.result.out, r->has) &&
	    !contains(&a.result.err, r->has))
		fail_msg("errors are <%.*s>", (int)a.result.err.len,
		    (char *)a.result.err.data);
	assert_int_equal(a.result.exit_code, r->exit_code);
	assert_false(a.result.timed_out);
	assert_null(a.result.signal);
	answer_free(&a);
}

/* ---- promises that need more than one command ---- */

static void
expect(uint32_t root, const char *command, const char *out)
{
	struct answer a;

	assert_int_equal(harness_run(&H, root, command, &a), 0);
	assert_true(a.ok);
	if (a.result.out.len != strlen(out) ||
	    memcmp(a.result.out.data, out, strlen(out)) != 0)
		fail_msg("%s: output is <%.*s>, errors <%.*s>", command,
		    (int)a.result.out.len, (char *)a.result.out.data,
		    (int)a.result.err.len, (char *)a.result.err.data);
	answer_free(&a);
}

static void
tmp_is_private_and_kept(void **state)
{
	(void)state;
	expect(
	    0, "echo one >/tmp/shared-name; echo x >/dev/shm/shared-name", "");
	expect(0, "cat /tmp/shared-name", "one\n");
	expect(1, "ls /tmp/shared-name /dev/shm/shared-name 2>/dev/null", "");
	assert_int_equal(access("/tmp/shared-name", F_OK), -1);
	assert_int_equal(access("/dev/shm/shared-name", F_OK), -1);
}

static void
host_tmp_is_hidden(void **state)
{
	struct answer a;
	char *cmd;

	(void)state;
	cmd = xasprintf("ls %s", host_file);
	assert_int_equal(harness_run(&H, 0, cmd, &a), 0);
	assert_int_equal(a.result.exit_code, 2);
	answer_free(&a);
	free(cmd);
}

static void
hidden_directory_is_empty(void **state)
{
	char *cmd;

	(void)state;
	cmd = xasprintf("ls -A %s 2>/dev/null; cat %s/key 2>/dev/null; true",
	    secret_dir, secret_dir);
	expect(0, cmd, "");
	free(cmd);
}

static void
other_root_is_hidden(void **state)
{
	char *cmd;

	(void)state;
	put_file(&H, H.roots[1], "other", "secret\n", 7, 0644);
	cmd = xasprintf("cat %s/other 2>/dev/null; true", H.roots[1]);
	expect(0, cmd, "");
	expect(1, "cat other", "secret\n");
	free(cmd);
}

static void
root_is_shared_with_the_host(void **state)
{
	struct stat st;
	char *path;

	(void)state;
	expect(0, "echo hello >from-inside; rm -f gone", "");
	path = xasprintf("%s/from-inside", H.roots[0]);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, H.uid);
	assert_int_equal(st.st_size, 6);
	assert_int_equal(unlink(path), 0);
	free(path);
}

static void
nothing_is_left_in_the_root(void **state)
{
	struct dirent *de;
	DIR *d;

	(void)state;
	expect(0, "true", "");
	d = opendir(H.roots[0]);
	assert_non_null(d);
	while ((de = readdir(d)) != NULL)
		if (strcmp(de->d_name, ".") != 0 &&
		    strcmp(de->d_name, "..") != 0)
			fail_msg("%s", de->d_name);
	closedir(d);
}

/* Whatever a command leaves behind is dead when its answer is there. */
static void
dead_after(const char *command)
{
	struct answer a;
	const char *mark = new_mark();
	char *cmd = with_mark(mark, command);

	assert_int_equal(harness_run_with(&H, 0, cmd, "", 60000, 65536, &a), 0);
	assert_true(a.ok);
	assert_false(a.result.timed_out);
	assert_false(process_exists(mark));
	answer_free(&a);
	free(cmd);
}

static void
background_process_is_killed(void **state)
{
	(void)state;
	dead_after("sleep $M & echo started");
}

static void
daemon_is_killed(void **state)
{
	(void)state;
	dead_after("(setsid sleep $M >/dev/null 2>&1 </dev/null &) ; exit 0");
}

static void
ignoring_signals_does_not_help(void **state)
{
	(void)state;
	dead_after("(trap '' TERM INT HUP QUIT; setsid bash -c \"trap '' TERM "
		   "HUP; sleep $M; true\" & ) >/dev/null 2>&1; exit 0");
}

static void
stopped_process_is_killed(void **state)
{
	(void)state;
	dead_after("sleep $M >/dev/null 2>&1 & kill -STOP $!; exit 0");
}

static void
many_orphans_are_reaped_and_killed(void **state)
{
	(void)state;
	dead_after("for i in {1..300}; do (sleep $M >/dev/null 2>&1 &); done");
}

static void
orphans_leave_no_zombies(void **state)
{
	(void)state;
	expect(0,
	    "for i in {1..200}; do (true &); done; sleep 0.1; "
	    "grep -l 'State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l",
	    "0\n");
}

static void
time_out_kills_everything(void **state)
{
	const char *mark = new_mark();
	char *cmd = with_mark(
	    mark, "trap '' TERM; echo a; (setsid sleep $M &); sleep $M");
	struct answer a;

	(void)state;
	assert_int_equal(harness_run_with(&H, 0, cmd, "", 300, 65536, &a), 0);
	free(cmd);
	assert_true(a.ok);
	assert_true(a.result.timed_out);
	assert_int_equal(a.result.exit_code, -1);
	assert_string_equal(a.result.signal, "SIGKILL");
	assert_int_equal(a.result.out.len, 2);
	assert_memory_equal(a.result.out.data, "a\n", 2);
	if (a.ms < 290)
		fail_msg("after %.3f ms", a.ms);
	assert_false(process_exists(mark));
	answer_free(&a);
}

static void
cancel_kills_everything_and_is_clean(void **state)
{
	const char *mark = new_mark();
	struct request q;
	struct answer a;
	char *path, *cmd;
	uint32_t id;

	(void)state;
	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	cmd = with_mark(mark, "touch begun; sleep $M");
	text_set(&q.command, cmd, strlen(cmd));
	free(cmd);
	q.timeout_ms = 30000;
	q.max_output = 1024;
	id = harness_send(&H, &q);
	path = xasprintf("%s/begun", H.roots[0]);
	while (access(path, F_OK) == -1)
		usleep(1000);
	harness_cancel(&H, id);
	assert_int_equal(harness_wait(&H, id, &a), 0);
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_EXECUTION_ABORTED);
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	assert_int_equal(H.outcome, NOT_COMMITTED);
	assert_false(process_exists(mark));
	assert_int_equal(unlink(path), 0);
	answer_free(&a);
	request_free(&q);
	free(path);
}

static void
last_bytes_are_never_lost(void **state)
{
	struct answer a;
	int i;

	(void)state;
	for (i = 0; i < 40; i++) {
		assert_int_equal(harness_run_with(&H, 0, "seq 1 9000; echo END",
				     "", 10000, 262144, &a),
		    0);
		assert_true(a.ok);
		assert_false(a.result.truncated);
		assert_int_equal(a.result.out.len, 43893 + 4);
		assert_memory_equal(a.result.out.data + 43893, "END\n", 4);
		answer_free(&a);
	}
}

static void
late_writer_of_a_substitution_is_heard(void **state)
{
	(void)state;
	expect(0, "echo a > >(sleep 0.03; cat)", "a\n");
}

static void
output_is_bounded_with_a_mark(void **state)
{
	struct answer a;

	(void)state;
	assert_int_equal(harness_run_with(&H, 0,
			     "head -c 10000000 /dev/zero | tr '\\0' a; "
			     "echo LAST; echo problem >&2",
			     "", 10000, 1000, &a),
	    0);
	assert_true(a.ok);
	assert_int_equal(a.result.exit_code, 0);
	assert_true(a.result.truncated);
	assert_true(a.result.out.len + a.result.err.len <= 1000);
	assert_true(contains(&a.result.out, " bytes omitted ...]\n"));
	assert_memory_equal(
	    a.result.out.data + a.result.out.len - 5, "LAST\n", 5);
	assert_int_equal(a.result.err.len, 8);
	answer_free(&a);
}

static void
malformed_output_becomes_text(void **state)
{
	struct answer a;

	(void)state;
	assert_int_equal(harness_run_with(&H, 0,
			     "printf '\\377\\0\\033[1mx\\360\\237\\230\\200'",
			     "", 10000, 64, &a),
	    0);
	assert_int_equal(a.result.out.len, 3 + 1 + 4 + 1 + 4);
	assert_memory_equal(
	    a.result.out.data, "\xef\xbf\xbd\0\033[1mx\xf0\x9f\x98\x80", 13);
	answer_free(&a);
}

static void
working_directory_is_confined(void **state)
{
	static const struct {
		const char *cwd;
		int ok;
	} t[] = { { "sub", 1 }, { "sub/.", 1 }, { "rel", 1 }, { "abs", 1 },
		{ "out", 0 }, { "file", 0 }, { "missing", 0 },
		{ "up/../..", 0 }, { "escape", 0 } };
	struct answer a;
	char *cmd;
	size_t i;

	(void)state;
	cmd = xasprintf("mkdir sub; ln -s sub rel; ln -s %s/sub abs; "
			"ln -s /etc out; touch file; ln -s ../../.. escape",
	    H.roots[0]);
	expect(0, cmd, "");
	free(cmd);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_int_equal(harness_run_with(&H, 0, "pwd -P", t[i].cwd,
				     10000, 4096, &a),
		    0);
		if (a.ok != t[i].ok)
			fail_msg("%s", t[i].cwd);
		if (!a.ok) {
			assert_int_equal(a.error.code, EC_INVALID_PATH);
			assert_int_equal(a.error.certainty, NOT_COMMITTED);
		} else
			assert_true(contains(&a.result.out, "/sub\n"));
		answer_free(&a);
	}
	expect(0, "rm -r sub rel abs out file escape", "");
}

static void
every_kind_of_namespace_is_its_own(void **state)
{
	static const char *const kinds[] = { "user", "mnt", "pid", "net", "ipc",
		"uts", "cgroup" };
	char path[64], host[64], *cmd;
	struct answer a;
	ssize_t n;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i]);
		n = readlink(path, host, sizeof(host) - 1);
		assert_true(n > 0);
		host[n] = '\0';
		cmd = xasprintf("readlink %s", path);
		assert_int_equal(harness_run(&H, 0, cmd, &a), 0);
		assert_true(a.ok && a.result.out.len > 4);
		if (strncmp((char *)a.result.out.data, host, (size_t)n) == 0)
			fail_msg("%s", host);
		answer_free(&a);
		free(cmd);
	}
}

static void
host_shared_memory_is_invisible(void **state)
{
	int id;

	(void)state;
	id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0666);
	assert_int_not_equal(id, -1);
	expect(0, "tail -n +2 /proc/sysvipc/shm | wc -l", "0\n");
	assert_int_equal(shmctl(id, IPC_RMID, NULL), 0);
}

static void
sandboxes_do_not_meet(void **state)
{
	static const char *const server =
	    "exec 2>&1; socat -u TCP-LISTEN:18181,reuseaddr - & "
	    "socat -u ABSTRACT-LISTEN:meet,fork - & sleep 0.5; "
	    "echo tcp-$N | socat -u - TCP:127.0.0.1:18181; "
	    "wait %1; kill %2; true";
	struct request q;
	struct answer a;
	char *cmd;
	uint32_t ids[2], i;

	(void)state;
	if (access("/usr/bin/socat", X_OK) == -1)
		fail_msg("socat is missing");
	for (i = 0; i < 2; i++) {
		cmd = xasprintf("N=%s; %s", i == 0 ? "a" : "b", server);
		memset(&q, 0, sizeof(q));
		q.operation = OP_EXECUTE_COMMAND;
		q.root = i;
		text_set(&q.command, cmd, strlen(cmd));
		q.timeout_ms = 10000;
		q.max_output = 1024;
		ids[i] = harness_send(&H, &q);
		request_free(&q);
		free(cmd);
	}
	for (i = 0; i < 2; i++) {
		struct answer got;

		memset(&got, 0, sizeof(got));
		assert_int_equal(harness_wait(&H, ids[i], &got), 0);
		assert_true(got.ok);
		a = got;
		if (!contains(&a.result.out, i == 0 ? "tcp-a\n" : "tcp-b\n"))
			fail_msg("root %u: <%.*s>", i, (int)a.result.out.len,
			    (char *)a.result.out.data);
		answer_free(&a);
	}
}

static void
unix_sockets_work_inside(void **state)
{
	(void)state;
	if (access("/usr/bin/socat", X_OK) == -1)
		fail_msg("socat is missing");
	expect(0,
	    "rm -f /tmp/mongodb-27017.sock; socat -u "
	    "UNIX-LISTEN:/tmp/mongodb-27017.sock - & while [ ! -S "
	    "/tmp/mongodb-27017.sock ]; do sleep 0.01; done; "
	    "chmod 700 /tmp/mongodb-27017.sock; echo hi | socat -u - "
	    "UNIX:/tmp/mongodb-27017.sock; wait",
	    "hi\n");
}

static void
mutation_needs_the_monitor(void **state)
{
	struct request q;
	struct answer a;
	struct buf b;
	uint32_t id = ++H.next_id;

	(void)state;
	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	q.assignment = xstrdup("not-allowed");
	text_set(&q.command, "touch forbidden", 15);
	q.timeout_ms = 1000;
	q.max_output = 100;
	buf_init(&b);
	request_build(&b, &q);
	imsg_compose(&H.bridge, MSG_REQUEST, id, -1, b.data, b.len);
	buf_free(&b);
	assert_int_equal(imsg_flush_blocking(&H.bridge), 0);
	assert_int_equal(harness_wait(&H, id, &a), 0);
	assert_false(a.ok);
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	answer_free(&a);
	request_free(&q);
	expect(0, "ls forbidden 2>/dev/null", "");
}

static void
permission_is_used_up(void **state)
{
	struct request q;
	struct answer a;
	struct buf b;
	uint32_t id;

	(void)state;
	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	q.assignment = xstrdup("once");
	text_set(&q.command, "echo x >>times", 14);
	q.timeout_ms = 1000;
	q.max_output = 100;
	assert_int_equal(harness_request(&H, &q, &a), 0);
	assert_true(a.ok);
	answer_free(&a);
	id = ++H.next_id;
	buf_init(&b);
	request_build(&b, &q);
	imsg_compose(&H.bridge, MSG_REQUEST, id, -1, b.data, b.len);
	buf_free(&b);
	assert_int_equal(imsg_flush_blocking(&H.bridge), 0);
	assert_int_equal(harness_wait(&H, id, &a), 0);
	assert_false(a.ok);
	answer_free(&a);
	request_free(&q);
	expect(0, "cat times; rm times", "x\n");
}

static void
second_request_on_a_busy_root_is_refused(void **state)
{
	static const char command[] = "touch begun; sleep 0.5; rm begun; "
				      "echo first";
	struct request q;
	struct answer a;
	uint32_t first;
	char *path;

	(void)state;
	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	text_set(&q.command, command, strlen(command));
	q.timeout_ms = 5000;
	q.max_output = 100;
	first = harness_send(&H, &q);
	path = xasprintf("%s/begun", H.roots[0]);
	while (access(path, F_OK) == -1)
		usleep(1000);
	free(path);
	assert_int_equal(harness_run(&H, 0, "echo second", &a), 0);
	assert_false(a.ok);
	assert_int_equal(a.error.code, EC_COMMAND_UNAVAILABLE);
	assert_int_equal(a.error.certainty, NOT_COMMITTED);
	answer_free(&a);
	assert_int_equal(harness_wait(&H, first, &a), 0);
	assert_true(a.ok);
	assert_memory_equal(a.result.out.data, "first\n", 6);
	answer_free(&a);
	request_free(&q);
}

static void
fork_bomb_is_ended_by_the_time_out(void **state)
{
	const char *mark = new_mark();
	char *cmd = with_mark(mark,
	    "ulimit -u 200 2>/dev/null; b() { b | b & }; b 2>/dev/null; "
	    "sleep $M");
	struct answer a;

	(void)state;
	assert_int_equal(harness_run_with(&H, 0, cmd, "", 500, 1000, &a), 0);
	assert_true(a.ok);
	assert_false(process_exists(mark));
	answer_free(&a);
	free(cmd);
	expect(0, "echo fine", "fine\n");
}

/* ---- own executors ---- */

static void
tmp_is_wiped_with_the_sandbox(void **state)
{
	struct harness h;
	struct answer a;
	int i;

	(void)state;
	harness_init(&h, 1);
	for (i = 0; i < 2; i++) {
		assert_int_equal(harness_start(&h), 0);
		assert_int_equal(harness_run(&h, 0,
				     "ls -A /tmp ~ /var/tmp | "
				     "grep -c mark; "
				     "touch /tmp/mark ~/mark "
				     "/var/tmp/mark",
				     &a),
		    0);
		assert_memory_equal(a.result.out.data, "0\n", 2);
		answer_free(&a);
		harness_kill(&h);
	}
	harness_remove(&h);
}

static void
executor_death_kills_the_command(void **state)
{
	struct harness h;
	struct request q;
	const char *mark = new_mark();
	char *path, *cmd;
	int i;

	(void)state;
	harness_init(&h, 1);
	assert_int_equal(harness_start(&h), 0);
	memset(&q, 0, sizeof(q));
	q.operation = OP_EXECUTE_COMMAND;
	cmd = with_mark(mark, "touch begun; (setsid sleep $M &); sleep $M");
	text_set(&q.command, cmd, strlen(cmd));
	free(cmd);
	q.timeout_ms = 30000;
	q.max_output = 1024;
	(void)harness_send(&h, &q);
	path = xasprintf("%s/begun", h.roots[0]);
	while (access(path, F_OK) == -1)
		usleep(1000);
	harness_kill(&h);
	for (i = 0; i < 1000 && process_exists(mark); i++)
		usleep(1000);
	assert_false(process_exists(mark));
	request_free(&q);
	free(path);
	harness_remove(&h);
}

static char *
visible_directory(struct harness *h, const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);

	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(chown(path, h->uid, h->gid), 0);
	put_file(h, path, "secret", "secret\n", 7, 0644);
	return path;
}

static void
home_and_other_roots_are_hidden_wherever_they_are(void **state)
{
	struct harness h;
	struct answer a;
	char *dir, *cmd, *file;
	size_t i;

	(void)state;
	harness_init(&h, 2);
	dir = visible_scratch(&h);
	free(h.home);
	h.home = visible_directory(&h, dir, "home");
	for (i = 0; i < 2; i++) {
		free(h.roots[i]);
		h.roots[i] = visible_directory(&h, dir, i ? "b" : "a");
	}
	/* Only what is tested hides anything here. */
	while (h.nhidden > 0)
		free(h.hidden[--h.nhidden]);
	if (harness_start(&h) == -1)
		fail_msg("%s", h.failed);
	cmd = xasprintf("cat %s/b/secret %s/home/secret ~/secret; ls -A ~ "
			"%s/b; touch ~/made; cat secret",
	    dir, dir, dir);
	assert_int_equal(harness_run(&h, 0, cmd, &a), 0);
	assert_true(a.ok);
	assert_null(memmem(a.result.out.data,
	    a.result.out.len > 7 ? a.result.out.len - 7 : 0, "secret", 6));
	assert_memory_equal(
	    a.result.out.data + a.result.out.len - 7, "secret\n", 7);
	file = xasprintf("%s/made", h.home);
	assert_int_equal(access(file, F_OK), -1);
	answer_free(&a);
	free(file);
	free(cmd);
	harness_stop(&h);
	remove_tree(dir);
	free(dir);
}

static void
missing_root_is_a_start_error(void **state)
{
	struct harness h;

	(void)state;
	harness_init(&h, 1);
	assert_int_equal(chmod(h.roots[0], 0), 0);
	if (getuid() == 0 || h.uid == getuid()) {
		assert_int_equal(harness_start(&h), -1);
		assert_non_null(h.failed);
		assert_non_null(strstr(h.failed, "root"));
	}
	harness_kill(&h);
	(void)chmod(h.roots[0], 0700);
	harness_remove(&h);
}

static int
start(void **state)
{
	(void)state;
	/* What must not reach a command. */
	setenv("LIBRECHAT_CODE_WORKER_TOKEN", "TEST_SECRET", 1);
	setenv("TEST_SECRET", "x", 1);
	harness_init(&H, 2);
	host_file = xasprintf("%s/host-file", H.dir);
	put_file(&H, H.dir, "host-file", "x", 1, 0644);
	secret_dir = xasprintf("%s/state", H.dir);
	if (mkdir(secret_dir, 0755) == -1)
		return -1;
	put_file(&H, secret_dir, "key", "secret", 6, 0644);
	H.hidden[H.nhidden++] = xstrdup(secret_dir);
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
	free(host_file);
	free(secret_dir);
	return 0;
}

#define NROWS (sizeof(rows) / sizeof(rows[0]))

int
main(void)
{
	static const struct CMUnitTest more[] = {
		cmocka_unit_test(tmp_is_private_and_kept),
		cmocka_unit_test(host_tmp_is_hidden),
		cmocka_unit_test(hidden_directory_is_empty),
		cmocka_unit_test(other_root_is_hidden),
		cmocka_unit_test(root_is_shared_with_the_host),
		cmocka_unit_test(background_process_is_killed),
		cmocka_unit_test(daemon_is_killed),
		cmocka_unit_test(ignoring_signals_does_not_help),
		cmocka_unit_test(stopped_process_is_killed),
		cmocka_unit_test(many_orphans_are_reaped_and_killed),
		cmocka_unit_test(orphans_leave_no_zombies),
		cmocka_unit_test(time_out_kills_everything),
		cmocka_unit_test(cancel_kills_everything_and_is_clean),
		cmocka_unit_test(last_bytes_are_never_lost),
		cmocka_unit_test(late_writer_of_a_substitution_is_heard),
		cmocka_unit_test(output_is_bounded_with_a_mark),
		cmocka_unit_test(malformed_output_becomes_text),
		cmocka_unit_test(working_directory_is_confined),
		cmocka_unit_test(every_kind_of_namespace_is_its_own),
		cmocka_unit_test(host_shared_memory_is_invisible),
		cmocka_unit_test(sandboxes_do_not_meet),
		cmocka_unit_test(unix_sockets_work_inside),
		cmocka_unit_test(mutation_needs_the_monitor),
		cmocka_unit_test(permission_is_used_up),
		cmocka_unit_test(second_request_on_a_busy_root_is_refused),
		cmocka_unit_test(fork_bomb_is_ended_by_the_time_out),
		cmocka_unit_test(nothing_is_left_in_the_root),
		cmocka_unit_test(tmp_is_wiped_with_the_sandbox),
		cmocka_unit_test(executor_death_kills_the_command),
		cmocka_unit_test(
		    home_and_other_roots_are_hidden_wherever_they_are),
		cmocka_unit_test(missing_root_is_a_start_error),
	};
	struct CMUnitTest tests[NROWS + sizeof(more) / sizeof(more[0])];
	size_t i;

	log_init("test", 0);
	memset(tests, 0, sizeof(tests));
	for (i = 0; i < NROWS; i++) {
		tests[i].name = rows[i].name;
		tests[i].test_func = run_row;
		tests[i].initial_state = (void *)(uintptr_t)&rows[i];
	}
	memcpy(tests + NROWS, more, sizeof(more));
	return cmocka_run_group_tests_name("sandbox", tests, start, stop);
}
