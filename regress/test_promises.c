#include "config.h"

#include <sys/types.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <netinet/in.h>

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
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "harness.h"
#include "log.h"
#include "observe.h"
#include "world.h"

/*
 * The promises of native-sandbox chapter 2, by number, through everything:
 * a caller, the Code API, the worker with two roots, a command. The primary
 * root lies below the worker's home, as usual. Promises about starts (1, 3,
 * 11) are in test_start.c, about the end of processes (8) in
 * test_teardown.c, about loss (13) in test_crash.c, about secrets in
 * arguments (12) in test_secrets.c.
 */

static struct world W;
static char *second; /* the other root */
static char *identity; /* file */

/* Runs it in a root; the answer must be a result. */
static struct json *
result_of(const char *root, const char *command, const char *more)
{
	struct json *j = NULL;
	struct jwriter jw;
	struct buf b, q;
	long status;

	buf_init(&q);
	jw_init(&jw, &q);
	jw_str(&jw, command);
	buf_init(&b);
	buf_addf(&b,
	    "{\"protocolVersion\":1,\"operation\":\"execute_command\","
	    "\"workspaceId\":\"%s\",\"command\":%s%s}",
	    root, buf_cstr(&q), more);
	status = world_call(&W, buf_cstr(&b), &j);
	if (status != 200 || j == NULL || json_get_str(j, "stdout") == NULL)
		fail_msg("%s: status %ld %s", command, status,
		    j != NULL && json_get_str(j, "error") != NULL
			? json_get_str(j, "error")
			: "");
	buf_free(&b);
	buf_free(&q);
	return j;
}

static void
expect_in(const char *root, const char *command, const char *out)
{
	struct json *j = result_of(root, command, "");

	if (strcmp(json_get_str(j, "stdout"), out) != 0)
		fail_msg("%s: <%s> <%s>", command, json_get_str(j, "stdout"),
		    json_get_str(j, "stderr"));
	json_free(j);
}

static void
expect(const char *command, const char *out)
{
	expect_in("primary", command, out);
}

/* The same with a format for paths of the world. */
static void __attribute__((__format__(__printf__, 2, 3)))
expectf(const char *out, const char *fmt, ...)
{
	char command[4096];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	assert_true(n > 0 && (size_t)n < sizeof(command));
	expect(command, out);
}

static void
p2_writes_only_in_the_root_and_the_scratch(void **state)
{
	struct stat before, after;

	(void)state;
	expectf("",
	    "for d in / /usr /usr/local /etc /opt /var /var/lib /srv /mnt /sys "
	    "/proc /dev /run /home /root %s %s/.config; do touch $d/x "
	    "2>/dev/null && echo $d; done; true",
	    second, W.home);
	expect("for d in . ~ /tmp /var/tmp /dev/shm $TMPDIR; do echo x >$d/x "
	       "&& rm $d/x || echo $d; done",
	    "");
	/* The system's files stay as they are, by any way of writing. */
	assert_int_equal(stat("/etc/passwd", &before), 0);
	expect("for f in /etc/passwd /etc/hosts; do { echo x >$f; rm $f; mv $f "
	       "$f.old; chmod 777 $f; ln $f ./l; touch -d @1 $f; "
	       "truncate -s 0 $f; } 2>/dev/null && echo $f; done; ls l",
	    "");
	assert_int_equal(stat("/etc/passwd", &after), 0);
	assert_memory_equal(
	    &before.st_mtim, &after.st_mtim, sizeof(after.st_mtim));
	assert_int_equal(before.st_size, after.st_size);
	assert_int_equal(before.st_mode, after.st_mode);
	assert_int_equal(before.st_ino, after.st_ino);
}

static void
p3_the_home_is_not_there_but_for_the_root(void **state)
{
	char *name = strrchr(W.project, '/') + 1;

	(void)state;
	expectf("", "cat %s/secret %s/.ssh/id 2>/dev/null", W.home, W.home);
	/* Only the chain that leads to the root. */
	if (getuid() != 0) {
		expectf("", "ls -A %s | grep -vx %s", W.home, name);
		return;
	}
	/* Started as root the account has a home of its own. */
	expectf("", "ls -A %s | grep -vx %s; ls -A ~", W.home, name);
}

static void
p4_identity_and_markers_are_not_there(void **state)
{
	(void)state;
	/* While it runs there is a marker; its place is empty. */
	expectf("",
	    "cat %s 2>/dev/null; find %s/.config %s/.local / -xdev -name "
	    "'test-worker*' -o -xdev -name 'quarantines*' 2>/dev/null",
	    identity, W.home, W.home);
	assert_int_equal(access(identity, F_OK), 0);
	expectf("",
	    "grep -rlsD skip --exclude-dir=proc --exclude-dir=sys -e "
	    "'BEGIN PRIVATE KEY' %s /tmp /var/tmp /run /home /root </dev/null",
	    W.dir);
}

static void
p5_the_environment_is_reduced(void **state)
{
	(void)state;
	expect(
	    "env | grep -e LIBRECHAT -e PLANTED -e NOTIFY_ -e LD_ -e must", "");
	expect("env | cut -d= -f1 | grep -vx -e COLORTERM -e DEBIAN_FRONTEND "
	       "-e 'GIT_[A-Z_0-9]*' -e HOME -e LANG -e 'LC_[A-Z]*' -e LOGNAME "
	       "-e NO_COLOR -e PAGER -e PATH -e PWD -e SANDBOX_RUNTIME -e "
	       "SHELL -e SHLVL -e TERM -e TMPDIR -e USER -e _",
	    "");
}

static void
p6_the_network_is_closed(void **state)
{
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	memset(&sin, 0, sizeof(sin));
	sin.sin_family = AF_INET;
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&sin, len), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
	/* Neither this listener nor the Code API nor anything outside. */
	expectf("",
	    "(exec 3<>/dev/tcp/127.0.0.1/%u) 2>/dev/null && echo host; "
	    "(exec 3<>/dev/tcp/192.0.2.1/80 || exec 3<>/dev/udp/192.0.2.1/53) "
	    "2>/dev/null && echo out; true",
	    (unsigned int)ntohs(sin.sin_port));
	expectf("",
	    "u=%s; u=${u#*//}; u=${u%%%%/*}; (exec 3<>/dev/tcp/${u%%:*}/${u#*:}) "
	    "2>/dev/null && echo $u; true",
	    W.url);
	close(fd);
}

static void
p6_a_socket_of_the_host_is_refused(void **state)
{
	struct sockaddr_un sun;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	memset(&sun, 0, sizeof(sun));
	sun.sun_family = AF_UNIX;
	assert_true((size_t)snprintf(sun.sun_path, sizeof(sun.sun_path),
			"%s/h.sock", W.project) < sizeof(sun.sun_path));
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(chmod(sun.sun_path, 0777), 0);
	expect("./attack connect h.sock; ./attack connect $PWD/h.sock",
	    "ECONNREFUSED\nECONNREFUSED\n");
	assert_int_equal(unlink(sun.sun_path), 0);
	close(fd);
}

static void
p7_time_and_output_are_bounded(void **state)
{
	const struct json *m;
	struct json *j;
	size_t n;

	(void)state;
	j = result_of(
	    "primary", "echo begun; sleep 600", ",\"timeoutMs\":1500");
	m = json_get_type(j, "timedOut", JSON_BOOL);
	assert_true(m != NULL && m->boolean);
	assert_string_equal(json_get_str(j, "signal"), "SIGKILL");
	json_free(j);
	/* The sum of both. */
	j = result_of("primary",
	    "head -c 10M /dev/zero | tr '\\0' o; head -c 10M /dev/zero | tr "
	    "'\\0' e >&2",
	    ",\"maxOutputBytes\":1000");
	n = strlen(json_get_str(j, "stdout")) +
	    strlen(json_get_str(j, "stderr"));
	assert_true(n <= 1000 && n > 500);
	m = json_get_type(j, "truncated", JSON_BOOL);
	assert_true(m != NULL && m->boolean);
	json_free(j);
}

static void
p8_nothing_survives_a_command(void **state)
{
	const char *mark = new_mark();

	(void)state;
	expectf("started\n",
	    "(setsid sleep %s >/dev/null 2>&1 &); sleep %s & echo started",
	    mark, mark);
	assert_false(process_exists(mark));
}

static void
p11_the_shared_scratch_is_closed(void **state)
{
	(void)state;
	expect("{ ls /tmp/claude || mkdir -p /tmp/claude/x || echo x "
	       ">/tmp/claude/f || rm -rf /tmp/claude || mv /tmp/claude "
	       "/tmp/c; } 2>/dev/null || echo closed",
	    "closed\n");
}

static void
p14_roots_are_independent(void **state)
{
	struct json *j = NULL;
	struct pending p;
	char *body, *begun;

	(void)state;
	/* One is busy: the other is not. */
	body = world_command_body("touch begun; while [ -e begun ]; do sleep "
				  "0.02; done; echo first",
	    0);
	world_call_start(&W, body, &p);
	free(body);
	begun = xasprintf("%s/begun", W.project);
	assert_true(world_file_wait(begun, 60000));
	expect_in("second", "cat mine; echo x >new", "second\n");
	assert_int_equal(unlink(begun), 0);
	free(begun);
	assert_int_equal(world_call_end(&p, &j), 200);
	assert_string_equal(json_get_str(j, "stdout"), "first\n");
	json_free(j);

	expectf("primary\n", "cat mine; cat %s/mine %s/new 2>/dev/null", second,
	    second);
	expect_in("second", "cat new; rm new", "x\n");
}

/* The default socket in /tmp of a server, and TCP, in one root and another. */
static void
p16_a_server_with_its_defaults_works(void **state)
{
	static const char server[] =
	    "d=$(mktemp -d); ./mongodlike $d 27017 >log & for i in {1..3000}; "
	    "do [ -S /tmp/mongodb-27017.sock ] && [ -s log ] && break; "
	    "sleep 0.01; done; [ -S /tmp/mongodb-27017.sock ] && echo up; "
	    "kill %1; cp mine /tmp/shared-name";

	(void)state;
	expect_in("primary", server, "up\n");
	expect_in("second", server, "up\n");
	expect_in("primary", "cat /tmp/shared-name", "primary\n");
	expect_in("second", "cat /tmp/shared-name", "second\n");
	assert_int_equal(access("/tmp/shared-name", F_OK), -1);
	assert_int_equal(access("/tmp/mongodb-27017.sock", F_OK), -1);
}

/* Chapter 20, row 40. */
static void
a_bad_working_directory_is_clean(void **state)
{
	static const char *const bad[] = { "missing", "file", "out", "loop" };
	struct json *j;
	char *body;
	size_t i;

	(void)state;
	expect("touch file; ln -s /etc out; ln -s loop loop", "");
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		j = NULL;
		body = xasprintf(
		    "{\"protocolVersion\":1,\"operation\":\"execute_command\","
		    "\"workspaceId\":\"primary\",\"command\":\"touch ran\","
		    "\"cwd\":\"%s\"}",
		    bad[i]);
		assert_int_not_equal(world_call(&W, body, &j), 200);
		assert_string_equal(json_get_str(j, "code"), "INVALID_PATH");
		json_free(j);
		free(body);
	}
	assert_true(world_wait(&W, "idle", 20000));
	/* The marker goes when the settlement is accepted. */
	for (i = 0; i < 10000 && world_markers(&W) != 0; i++)
		usleep(2000);
	assert_int_equal(world_markers(&W), 0);
	expect("ls ran 2>/dev/null; rm file out loop; echo open", "open\n");
}

/* Row 18: nothing of the sandbox's own is in the project. */
static void
the_project_stays_clean(void **state)
{
	int i;

	(void)state;
	expect("rm -rf log; git init -q . && git config user.email a@b.example "
	       "&& git config user.name n && git add -A && git commit -qm all",
	    "");
	for (i = 0; i < 100; i++)
		expect("true", "");
	expect("git status --porcelain --ignored", "");
}

static int
start(void **state)
{
	struct harness as = { .uid = 0 };
	char *path, *option;

	(void)state;
	world_init(&W, 61234);
	as.uid = getuid() == 0 ? 61234 : getuid();
	as.gid = getuid() == 0 ? 61234 : getgid();
	free(W.project);
	W.project = xasprintf("%s/project", W.home);
	second = xasprintf("%s/second", W.dir);
	if (mkdir(W.project, 0755) == -1 || mkdir(second, 0755) == -1 ||
	    chown(W.project, as.uid, as.gid) == -1 ||
	    chown(second, as.uid, as.gid) == -1)
		return -1;
	put_file(&as, W.project, "mine", "primary\n", 8, 0644);
	put_file(&as, second, "mine", "second\n", 7, 0644);
	put_file(&as, W.home, "secret", "SECRET", 6, 0644);
	path = xasprintf("%s/.ssh", W.home);
	if (mkdir(path, 0755) == -1)
		return -1;
	put_file(&as, path, "id", "SECRET", 6, 0644);
	free(path);
	copy_program(&as, "MONGODLIKE", W.project, "mongodlike");
	copy_program(&as, "MONGODLIKE", second, "mongodlike");
	copy_program(&as, "ATTACK", W.project, "attack");
	identity = xasprintf(
	    "%s/.config/librechat/code/test-worker.json", W.home);
	option = xasprintf("second=%s", second);
	world_server(&W, "--slots", "2", NULL);
	world_pair(&W);
	/* A slot for each, so that none gives way to the other. */
	world_worker(&W, "--workspace", option, "--workspace-lease-slots", "2",
	    "--allow-workspace-writes", "--allow-workspace-commands", NULL);
	free(option);
	return world_wait(&W, "leasing", 60000) ? 0 : -1;
}

static int
stop(void **state)
{
	(void)state;
	world_signal(&W, SIGTERM);
	if (world_worker_end(&W, 60000) != 0)
		return -1;
	world_free(&W);
	free(second);
	free(identity);
	return 0;
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(p2_writes_only_in_the_root_and_the_scratch),
		cmocka_unit_test(p3_the_home_is_not_there_but_for_the_root),
		cmocka_unit_test(p4_identity_and_markers_are_not_there),
		cmocka_unit_test(p5_the_environment_is_reduced),
		cmocka_unit_test(p6_the_network_is_closed),
		cmocka_unit_test(p6_a_socket_of_the_host_is_refused),
		cmocka_unit_test(p7_time_and_output_are_bounded),
		cmocka_unit_test(p8_nothing_survives_a_command),
		cmocka_unit_test(p11_the_shared_scratch_is_closed),
		cmocka_unit_test(p14_roots_are_independent),
		cmocka_unit_test(p16_a_server_with_its_defaults_works),
		cmocka_unit_test(a_bad_working_directory_is_clean),
		cmocka_unit_test(the_project_stays_clean),
	};

	log_init("test", 0);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests_name("promises", tests, start, stop);
}
