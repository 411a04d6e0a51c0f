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

/* Installed by ./check --tools into a directory that start() copies. */
#define NODE_TOOL(name) "./node_modules/.bin/" name
#define LOCAL_DEPENDENCY                                                    \
	"mkdir app dep && echo '{\"name\":\"dep\",\"version\":\"1.0.0\"}' " \
	">dep/package.json && echo 'module.exports=5' >dep/index.js && cd " \
	"app && echo '{\"name\":\"app\",\"version\":\"1.0.0\","             \
	"\"dependencies\":{\"dep\":\"file:../dep\"}}' >package.json && "

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
	{ "git: diff, stash, rebase", "git",
	    "git init -q r && cd r && git config user.email a@b.example && git "
	    "config user.name n && echo 1 >f && git add f && git commit -qm 1 "
	    "&& git checkout -qb b && echo 2 >g && git add g && git commit -qm "
	    "2 && git checkout -q - && echo 3 >f && git diff --stat | tail -1 "
	    "&& git stash -q && git commit -q --allow-empty -m 3 && git "
	    "checkout -q b && git rebase -q - && git stash pop -q && git log "
	    "--format=%s | tr '\\n' ' ' && cat f; cd ..; rm -rf r",
	    "1 deletion(-)\n2 3 1 3\n" },
	{ "pip: a wheel into a venv", "python3",
	    "python3 -m venv /tmp/v2 && python3 - <<'E' && /tmp/v2/bin/pip -q "
	    "--disable-pip-version-check install --no-index /tmp/"
	    "dep-1.0-py3-none-any.whl && /tmp/v2/bin/python -c "
	    "'import dep; print(dep.x)'\n"
	    "import zipfile\n"
	    "z = zipfile.ZipFile('/tmp/dep-1.0-py3-none-any.whl', 'w')\n"
	    "d = 'dep-1.0.dist-info/'\n"
	    "z.writestr('dep.py', 'x = 11')\n"
	    "z.writestr(d + 'METADATA', 'Metadata-Version: 2.1\\nName: dep"
	    "\\nVersion: 1.0\\n')\n"
	    "z.writestr(d + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\n"
	    "Root-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
	    "z.writestr(d + 'RECORD', 'dep.py,,\\n' + d + 'METADATA,,\\n' "
	    "+ d + 'WHEEL,,\\n' + d + 'RECORD,,\\n')\n"
	    "z.close()\nE\n",
	    "11\n" },
	{ "pnpm install of a directory", NODE_TOOL("pnpm"),
	    LOCAL_DEPENDENCY
	    "../node_modules/.bin/pnpm install --offline --silent >log 2>&1 || "
	    "cat log; node -p 'require(\"dep\")'; cd ..; rm -rf app dep",
	    "5\n" },
	{ "yarn install of a directory", NODE_TOOL("yarn"),
	    LOCAL_DEPENDENCY
	    "../node_modules/.bin/yarn install --offline --silent >log 2>&1 || "
	    "cat log; node -p 'require(\"dep\")'; cd ..; rm -rf app dep",
	    "5\n" },
	{ "jest with two workers", NODE_TOOL("jest"),
	    "mkdir app && cd app && echo '{\"name\":\"app\"}' "
	    ">package.json && for i in 1 2 3; do echo 'test(\"t\", () => "
	    "expect(2).toBe(2))' >$i.test.js; done; "
	    "../node_modules/.bin/jest --maxWorkers=2 2>&1 | grep -o "
	    "'Tests: *3 passed' | tr -s ' '; cd ..; rm -rf app",
	    "Tests: 3 passed\n" },
	{ "vitest", NODE_TOOL("vitest"),
	    "mkdir app && cd app && echo '{\"name\":\"app\"}' "
	    ">package.json && for i in 1 2; do echo 'import { test, expect } "
	    "from \"vitest\"; test(\"t\", () => expect(2).toBe(2))' "
	    ">$i.test.ts; done; NO_COLOR=1 ../node_modules/.bin/vitest run "
	    "2>&1 | grep -o 'Tests  *2 passed' | tr -s ' '; cd ..; rm -rf app",
	    "Tests 2 passed\n" },
	{ "maven, offline", "mvn",
	    "mkdir m && cd m && echo '<project><modelVersion>4.0.0"
	    "</modelVersion><groupId>x</groupId><artifactId>a</artifactId>"
	    "<version>1</version><packaging>pom</packaging></project>' "
	    ">pom.xml && mvn -o -B validate | grep -o 'BUILD SUCCESS'; cd ..; "
	    "rm -rf m",
	    "BUILD SUCCESS\n" },
	{ "expect", "expect",
	    "expect -c 'log_user 0; spawn cat; send \"hello\\r\"; expect "
	    "hello { puts got }'",
	    "got\n" },
	{ "gdb runs a program", "gdb",
	    "printf 'int main(void){int *p=0;return *p;}' >m.c && cc -g -O0 m.c"
	    " -o m && gdb -batch -ex run -ex bt ./m 2>&1 | grep -c -e SIGSEGV "
	    "-e '^#0 .*main'; rm -f m m.c",
	    "2\n" },
	{ "inotifywait", "inotifywait",
	    "mkdir d; inotifywait -e create --format %f d >/tmp/o 2>/tmp/e & "
	    "until grep -q established /tmp/e; do sleep 0.01; done; "
	    "touch d/new; wait; cat /tmp/o; rm -r d",
	    "new\n" },
	{ "rsync", "rsync",
	    "mkdir -p a/b && echo x >a/b/c && ln -s c a/b/l && rsync -a a/ z/ "
	    "&& diff -r a z && readlink z/b/l; rm -r a z",
	    "c\n" },
	{ "sqlite3 with a write-ahead log", "sqlite3",
	    "sqlite3 t.db 'pragma journal_mode=wal; create table t(a); insert "
	    "into t values(7); select a from t'; rm -f t.db*",
	    "wal\n7\n" },
	{ "perl", "perl",
	    "perl -MPOSIX -e 'printf \"%d\\n\", POSIX::floor(42.5)'", "42\n" },
	{ "sort with temporary files", "sort",
	    "seq 400000 -1 1 | sort -S 1M -n | head -1", "1\n" },
	{ "ps sees the command's processes", "ps",
	    "sleep 60 & ps -e -o comm= | grep -c -e bash -e sleep; kill $!",
	    "2\n" },
	{ "hostname", "hostname", "test -n \"$(hostname)\" && echo named",
	    "named\n" },
	{ "ip and ss", "ss",
	    "ip -o addr show lo | grep -c 127.0.0.1; ss -tln | grep -c State",
	    "1\n1\n" },
	/* these fail, at once and in so many words */
	{ "sudo", "sudo", "sudo -n true 2>&1; echo $?", "\n1\n" },
	{ "su", "su", "su -c true 2>&1; echo $?", "\n1\n" },
	{ "ping", "ping", "ping -c 1 -W 30 127.0.0.1 >/dev/null; echo $?",
	    "2\n" },
	{ "docker's socket", "curl",
	    "curl -s --unix-socket /run/docker.sock http://localhost/; echo $?",
	    "7\n" },
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

	if (*program == '.') {
		path = xasprintf("%s/%s", H.roots[0], program);
		found = access(path, F_OK) == 0;
		free(path);
		return found;
	}
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
	const char *node = getenv("NODE_TOOLS");
	char *copy;

	(void)state;
	harness_init(&H, 1);
	H.tmp_bytes = H.home_bytes = 1U << 30;
	copy_program(&H, "MONGODLIKE", H.roots[0], "mongodlike");
	if (node != NULL) {
		copy = xasprintf(
		    "test ! -d '%s/node_modules' || cp -r '%s/node_modules' '%s'",
		    node, node, H.roots[0]);
		if (system(copy) != 0)
			fatalx("%s: cannot be copied", node);
		free(copy);
	}
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
