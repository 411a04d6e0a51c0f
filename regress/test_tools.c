#include "config.h"

#include <sys/stat.h>

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

/*
 * Ordinary tools work in the sandbox with no extra arguments: the real
 * programs, each doing what it is used for. One that is not installed is
 * skipped, unless the variable TOOLS is "require" (./check --tools installs
 * them).
 */
static struct harness H;

struct tool_row {
	const char *name;
	const char *program; /* must be in PATH, or an absolute path */
	const char *command;
	const char *ends; /* standard output ends with it */
};

#define PG "export PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -1):$PATH; "

static const struct tool_row rows[] = {
	{ "mongod-like server with its defaults", "./mongodlike",
	    "d=$(mktemp -d); ./mongodlike $d 27017 >log & for i in {1..500}; "
	    "do grep -q waiting log && break; sleep 0.01; done; "
	    "stat -c %a /tmp/mongodb-27017.sock; "
	    "socat -u UNIX:/tmp/mongodb-27017.sock -; "
	    "socat -u TCP:localhost:27017 -; wait; rm log",
	    "700\nover the socket file\nover loopback\n" },
	{ "PostgreSQL: initdb, socket in /tmp, psql, stop", "psql",
	    PG "initdb -D /tmp/pg >/dev/null 2>&1 && pg_ctl -D /tmp/pg -o "
	       "'-k /tmp' -l /tmp/pg.log -w start >/dev/null && "
	       "psql -h /tmp -d postgres -Atc 'select 40+2' && "
	       "psql -h 127.0.0.1 -d postgres -Atc 'select 1' && "
	       "pg_ctl -D /tmp/pg -m fast stop | tail -1",
	    "42\n1\nserver stopped\n" },
	{ "redis with a Unix socket and on its port", "redis-server",
	    "redis-server --unixsocket /tmp/r.sock --daemonize yes --dir /tmp "
	    ">/dev/null; for i in {1..200}; do redis-cli -s /tmp/r.sock ping "
	    ">/dev/null 2>&1 && break; sleep 0.01; done; redis-cli -s "
	    "/tmp/r.sock set a b; redis-cli get a",
	    "OK\nb\n" },
	{ "tmux", "tmux",
	    "tmux new-session -d 'tty >/tmp/t; echo done >/tmp/d'; for i in "
	    "{1..300}; do [ -s /tmp/d ] && break; sleep 0.01; done; "
	    "grep -c pts /tmp/t; cat /tmp/d",
	    "1\ndone\n" },
	{ "Xvfb and an X client's connection", "Xvfb",
	    "Xvfb :7 -screen 0 64x64x24 -nolisten tcp >/dev/null 2>&1 & "
	    "for i in {1..500}; do [ -S /tmp/.X11-unix/X7 ] && break; "
	    "sleep 0.01; done; socat -u OPEN:/dev/null "
	    "UNIX:/tmp/.X11-unix/X7 && echo up",
	    "up\n" },
	{ "ssh-agent and ssh-add", "ssh-agent",
	    "eval $(ssh-agent) >/dev/null; ssh-keygen -q -t ed25519 -N '' -f "
	    "/tmp/k && ssh-add -q /tmp/k && ssh-add -l | grep -c ED25519; "
	    "ssh-agent -k >/dev/null",
	    "1\n" },
	{ "gpg with its agent", "gpg",
	    "gpg --batch --passphrase '' --quick-gen-key a@b.example "
	    "2>/dev/null; echo text | gpg -q --batch --clearsign | gpg -q "
	    "--verify 2>&1 | grep -c 'Good signature'",
	    "1\n" },
	{ "node --test with workers", "node",
	    "cat >w.test.mjs <<'E'\n"
	    "import test from 'node:test';\n"
	    "import { Worker } from 'node:worker_threads';\n"
	    "test('worker', (t, done) => { new Worker(\n"
	    "  \"require('worker_threads').parentPort.postMessage(1)\",\n"
	    "  { eval: true }).on('message', () => done()); });\n"
	    "E\nnode --test w.test.mjs | grep -c '^# pass 1\\|pass 1$'; "
	    "rm w.test.mjs",
	    "1\n" },
	{ "node: a server on a socket in /tmp", "node",
	    "node -e \"const n=require('net'),s=n.createServer(c=>c.end("
	    "'k')).listen('/tmp/q.sock',()=>n.connect('/tmp/q.sock').on("
	    "'data',d=>{console.log(''+d);s.close()}))\"",
	    "k\n" },
	{ "npm ci from a local directory", "npm",
	    "mkdir -p app dep && cd dep && echo '{\"name\":\"dep\","
	    "\"version\":\"1.0.0\",\"main\":\"i.js\"}' >package.json && echo "
	    "'module.exports=5' >i.js && npm pack -s >/dev/null && cd ../app "
	    "&& echo '{\"name\":\"app\",\"version\":\"1.0.0\","
	    "\"dependencies\":{\"dep\":\"file:../dep/dep-1.0.0.tgz\"}}' "
	    ">package.json && npm install -s --offline >/dev/null && "
	    "rm -rf node_modules && npm ci -s --offline >/dev/null && node -p "
	    "'require(\"dep\")'; cd ..; rm -rf app dep",
	    "5\n" },
	{ "python: processes, semaphores, venv", "python3",
	    "python3 -c \"from concurrent.futures import ProcessPoolExecutor "
	    "as P;print(list(P(2).map(abs,[-1,2])))\" && python3 -c \"import "
	    "multiprocessing as m;s=m.Semaphore(2);s.acquire();print('sem')\" "
	    "&& python3 -m venv --without-pip /tmp/v && /tmp/v/bin/python -c "
	    "'print(6)'",
	    "[1, 2]\nsem\n6\n" },
	{ "java: compile and run", "javac",
	    "echo 'public class A{public static void main(String[] a){System."
	    "out.println(42);}}' >A.java && javac A.java && java A; rm A.*",
	    "42\n" },
	{ "gcc and make -j", "make",
	    "for i in 1 2 3 4; do echo \"int f$i(void){return $i;}\" >f$i.c; "
	    "done; echo 'int f1(void);int f4(void);int main(void){return f1()"
	    "+f4();}' >m.c; printf 'p: m.o f1.o f2.o f3.o f4.o\\n\\tcc -o $@ "
	    "$^\\n' >Makefile; make -s -j4; ./p; echo $?; rm -f *.o *.c p "
	    "Makefile",
	    "5\n" },
	{ "cmake with ninja", "cmake",
	    "echo 'int main(void){return 0;}' >m.c; printf 'cmake_minimum_"
	    "required(VERSION 3.10)\\nproject(p C)\\nadd_executable(p m.c)\\n"
	    "enable_testing()\\nadd_test(NAME t COMMAND p)\\n' "
	    ">CMakeLists.txt; cmake -G Ninja -B b . >/dev/null && ninja -C b "
	    ">/dev/null && ctest --test-dir b 2>&1 | grep -c '100% tests "
	    "passed'; rm -rf b m.c CMakeLists.txt",
	    "1\n" },
	{ "cargo build and test", "cargo",
	    "export CARGO_NET_OFFLINE=true; cargo new -q --vcs none c 2>/dev/"
	    "null && cd c && cargo run -q 2>&1 | tail -1; cd ..; rm -rf c",
	    "Hello, world!\n" },
	{ "go build and test", "go",
	    "mkdir g && cd g && export GOFLAGS=-mod=mod GOPROXY=off && go mod "
	    "init x.example/g >/dev/null 2>&1 && printf 'package main\\nimport"
	    " \"fmt\"\\nfunc main(){fmt.Println(9)}\\n' >m.go && go run .; cd "
	    "..; rm -rf g",
	    "9\n" },
	{ "git: linked worktrees and submodules", "git",
	    "git init -q r && cd r && git config user.email a@b.example && git "
	    "config user.name n && git commit -q --allow-empty -m 1 && git "
	    "worktree add -q ../wt -b w && cd ../wt && touch f && git add f && "
	    "git commit -qm 2 && git log --format=%s | head -1 && cd .. && git "
	    "init -q s && cd s && git config user.email a@b.example && git "
	    "config user.name n && git commit -q --allow-empty -m s && cd "
	    "../r && git -c protocol.file.allow=always submodule --quiet add "
	    "../s sub && git commit -qm 3 && ls sub/.git; cd ..; rm -rf r wt s",
	    "2\nsub/.git\n" },
	{ "Chromium headless", "chromium",
	    "echo '<title>t</title><script>document.title=1+1</script>' >p."
	    "html; chromium --headless --no-sandbox --disable-gpu --dump-dom "
	    "file://$PWD/p.html 2>/dev/null | grep -c '<title>2</title>'; rm "
	    "p.html",
	    "1\n" },
	{ "strace of an own child", "strace",
	    "strace -f -e trace=execve true 2>&1 | grep -c 'exited with 0'",
	    "1\n" },
	{ "locale, time zone and user name", "locale",
	    "LC_ALL=C.UTF-8 locale charmap; TZ=UTC date -d @0 +%Y; whoami",
	    "UTF-8\n1970\ntester\n" },
	{ "script and stty", "script",
	    "script -qec 'stty size >/dev/null && echo pty' /dev/null | tr -d "
	    "'\\r'",
	    "pty\n" },
};

static int
installed(const char *program)
{
	char *path, *dirs, *dir, *save = NULL;
	int found = 0;

	if (*program == '.')
		return 1;
	dirs = xstrdup("/usr/local/bin:/usr/bin:/bin");
	for (dir = strtok_r(dirs, ":", &save); dir != NULL;
	     dir = strtok_r(NULL, ":", &save)) {
		path = xasprintf("%s/%s", dir, program);
		found |= access(path, X_OK) == 0;
		free(path);
	}
	free(dirs);
	return found;
}

static void
run_row(void **state)
{
	const struct tool_row *r = *state;
	const char *require = getenv("TOOLS");
	struct answer a;
	size_t n = strlen(r->ends);

	if (!installed(r->program)) {
		if (require != NULL && strcmp(require, "require") == 0)
			fail_msg("%s is not installed", r->program);
		print_message("%s is not installed\n", r->program);
		skip();
	}
	assert_int_equal(
	    harness_run_with(&H, 0, r->command, "", 60000, 65536, &a), 0);
	if (!a.ok)
		fail_msg("%s", a.error.text);
	if (a.result.out.len < n ||
	    memcmp(a.result.out.data + a.result.out.len - n, r->ends, n) != 0)
		fail_msg("output <%.*s>, errors <%.*s>, exit %d%s",
		    (int)a.result.out.len, (char *)a.result.out.data,
		    (int)a.result.err.len, (char *)a.result.err.data,
		    a.result.exit_code,
		    a.result.timed_out ? ", timed out" : "");
	answer_free(&a);
}

static int
start(void **state)
{
	(void)state;
	harness_init(&H, 1);
	H.tmp_bytes = H.home_bytes = 1U << 30;
	copy_program(&H, "MONGODLIKE", H.roots[0], "mongodlike");
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

#define NROWS (sizeof(rows) / sizeof(rows[0]))

int
main(void)
{
	struct CMUnitTest tests[NROWS];
	size_t i;

	log_init("test", 0);
	memset(tests, 0, sizeof(tests));
	for (i = 0; i < NROWS; i++) {
		tests[i].name = rows[i].name;
		tests[i].test_func = run_row;
		tests[i].initial_state = (void *)(uintptr_t)&rows[i];
	}
	return cmocka_run_group_tests_name("tools", tests, start, stop);
}
