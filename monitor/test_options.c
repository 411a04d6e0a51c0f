#include "config.h"

#include <sys/types.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>

#include "buf.h"
#include "msg.h"
#include "options.h"
#include "roots.h"
#include "settings.h"

/* Command line and environment: cli-and-storage chapters 3, 8 and 9. */

#define ARGS_MAX 10

static char *base;

static const char *const variables[] = { "WORKER_ID", "IDENTITY_FILE", "URL",
	"WORKER_TOKEN", "POLICY", "WORKER_DIR", "DEFAULT_WORKSPACE",
	"WORKSPACE_ID", "WORKSPACE_NAME", "ALLOW_WORKSPACE_WRITES",
	"ALLOW_WORKSPACE_COMMANDS", "COMMAND_SANDBOX", "WORKSPACE_LEASE_SLOTS",
	"WORKSPACE_QUARANTINE_FILE", "RUNTIME_SUPERVISOR", "STATEFUL_WORKSPACE",
	"SANDBOX_PROFILE", "RUNTIMES", "CA_FILE", "USER", "TMP_SIZE",
	"MEMORY_LIMIT", "PROCESS_LIMIT", "PROTECTED_PATHS",
	"COMMAND_ALLOWED_DOMAINS", "GITHUB_APP_ID", "DOCKER_NETWORK",
	"FILE_RELAY_UPSTREAM", "SANDBOX_ENDPOINT" };

/* The token is taken out of the environment whenever it is read. */
static const char *token;

static void
set(const char *name, const char *value)
{
	char *v = xasprintf("LIBRECHAT_CODE_%s", name);

	if (strcmp(name, "WORKER_TOKEN") == 0)
		token = value;

	if (value == NULL)
		unsetenv(v);
	else
		setenv(v, value, 1);
	free(v);
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

static void
make(const char *name)
{
	char *p = xasprintf("%s/%s", base, name);

	assert_int_equal(mkdir(p, 0755), 0);
	free(p);
}

static int
set_up(void **state)
{
	char dir[] = "/tmp/librechat-code-test.XXXXXX", *home;
	size_t i;

	(void)state;
	umask(022);
	if (mkdtemp(dir) == NULL || (base = realpath(dir, NULL)) == NULL)
		return -1;
	make("home");
	make("a");
	make("a/sub");
	make("b");
	make("a2");
	for (i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		set(variables[i], NULL);
	unsetenv("SSL_CERT_FILE");
	set("WORKER_ID", "my-vm");
	set("WORKER_TOKEN", "abc");
	set("URL", "https://code.example.com/v1/");
	home = xasprintf("%s/home", base);
	setenv("HOME", home, 1);
	free(home);
	return chdir(base);
}

static int
tear_down(void **state)
{
	(void)state;
	if (chdir("/") == -1)
		return -1;
	(void)nftw(base, remove_one, 16, FTW_PHYS | FTW_DEPTH);
	free(base);
	base = NULL;
	return 0;
}

/* Splits a line at blanks into an argument vector. */
static int
split(const char *line, char **argv, char **copy)
{
	char *p, *word;
	int argc = 0;

	*copy = p = xstrdup(line);
	argv[argc++] = p + strlen(p);
	while ((word = strsep(&p, " ")) != NULL)
		if (*word != '\0' && argc < ARGS_MAX)
			argv[argc++] = word;
	argv[argc] = NULL;
	return argc;
}

/* Everything that run checks before it starts something. */
static int
evaluate(const char *line, struct settings *s, struct roots *rs, char **error)
{
	struct options o;
	char *argv[ARGS_MAX + 1], *copy;
	int argc, r;

	*error = NULL;
	memset(s, 0, sizeof(*s));
	memset(rs, 0, sizeof(*rs));
	set("WORKER_TOKEN", token);
	argc = split(line, argv, &copy);
	r = options_parse(&o, argc, argv, error);
	if (r == 0) {
		if (settings_common(s, &o, error) == -1 ||
		    settings_run(s, &o, error) == -1 ||
		    roots_make(rs, s, &o, error) == -1)
			r = -1;
		options_free(&o);
	}
	free(copy);
	return r;
}

static void
refused(const char *line, const char *text)
{
	struct settings s;
	struct roots rs;
	char *error;

	if (evaluate(line, &s, &rs, &error) != -1)
		fail_msg("accepted: %s", line);
	if (strstr(error, text) == NULL)
		fail_msg("%s: %s", line, error);
	free(error);
	roots_free(&rs);
	settings_free(&s);
}

static void
accepted(const char *line, struct settings *s, struct roots *rs)
{
	char *error;

	if (evaluate(line, s, rs, &error) == -1)
		fail_msg("%s: %s", line, error);
}

static void
accepts(const char *line)
{
	struct settings s;
	struct roots rs;

	accepted(line, &s, &rs);
	roots_free(&rs);
	settings_free(&s);
}

static void
test_syntax(void **state)
{
	static const char *const rows[][2] = {
		{ "frobnicate", "Unknown command: frobnicate" },
		{ "--worker-dir a", "Unknown command: --worker-dir" },
		{ "relay", "not available in this version" },
		{ "reset-workspace a b", "Usage: librechat-code reset" },
		{ "reset-workspace --worker-dir a s", "unknown option" },
		{ "exec --allow-workspace-writes -- a", "unknown option" },
		{ "selftest x", "unexpected argument" },
		{ "run --reset-workspace-quarantine", "needs a value" },
		{ "run --worker-dir", "--worker-dir needs a value" },
		{ "run --worker-dir=", "--worker-dir needs a value" },
		{ "run --worker-dir --default-workspace", "needs a value" },
		{ "run --worker-dir a --worker-dir=a", "given twice" },
		{ "run --default-workspace --default-workspace",
		    "given twice" },
		{ "run --allow-workspace-writes=true", "takes no value" },
		{ "run --allow-workspace-comands", "unknown option" },
		{ "run --identity x", "unknown option --identity" },
		{ "run --worker-id x", "unknown option --worker-id" },
		{ "run a", "unexpected argument: a" },
		{ "run -x", "unknown option -x" },
		{ "run --workspace", "--workspace requires id=path" },
		{ "run --workspace --default-workspace",
		    "--workspace requires id=path" },
		{ "run --workspace=", "--workspace requires id=path" },
		{ "run --workspace b", "require a primary workspace" },
		{ "run --workspace =b", "require a primary workspace" },
		{ "run --workspace b=", "require a primary workspace" },
		{ "pair u c x", "pair takes a URL and a code only" },
		{ "pair u c --worker-dir x", "unknown option --worker-dir" },
		{ "clear-workspace-quarantine --workspace b=/b",
		    "unknown option --workspace" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		refused(rows[i][0], rows[i][1]);
}

static void
test_spellings(void **state)
{
	struct options o;
	char *argv[ARGS_MAX + 1], *copy, *error = NULL;
	int argc;

	(void)state;
	argc = split("pair --worker-id=x https://h/v1 -vv --identity /i -v - ",
	    argv, &copy);
	assert_int_equal(options_parse(&o, argc, argv, &error), 0);
	assert_int_equal(o.command, CMD_PAIR);
	assert_string_equal(o.worker_id, "x");
	assert_string_equal(o.identity, "/i");
	assert_string_equal(o.url, "https://h/v1");
	assert_string_equal(o.code, "-");
	assert_int_equal(o.verbose, 3);
	options_free(&o);
	free(copy);
	argc = split("", argv, &copy);
	assert_int_equal(options_parse(&o, argc, argv, &error), 0);
	assert_int_equal(o.command, CMD_RUN);
	free(copy);
	argc = split("run --workspace b=/srv/x=y", argv, &copy);
	assert_int_equal(options_parse(&o, argc, argv, &error), 0);
	assert_int_equal(o.nroots, 1);
	assert_string_equal(o.roots[0].id, "b");
	assert_string_equal(o.roots[0].path, "/srv/x=y");
	options_free(&o);
	free(copy);
	argc = split("run --help --nonsense", argv, &copy);
	assert_int_equal(options_parse(&o, argc, argv, &error), 0);
	assert_int_equal(o.command, CMD_HELP);
	free(copy);
}

static void
test_identity_and_mode(void **state)
{
	(void)state;
	accepts("run --worker-dir a");
	set("URL", NULL);
	refused("run --worker-dir a", "LIBRECHAT_CODE_URL is required");
	set("URL", "  ");
	refused("run --worker-dir a", "LIBRECHAT_CODE_URL is required");
	set("URL", "code.example.com/v1");
	refused("run --worker-dir a", "Invalid URL");
	set("URL", "https://code.example.com/v1");
	set("WORKER_ID", " my-vm ");
	accepts("run --worker-dir a");
	set("WORKER_ID", "  ");
	refused("run --worker-dir a", "LIBRECHAT_CODE_WORKER_ID is required");
	set("WORKER_ID", NULL);
	refused("run --worker-dir a", "LIBRECHAT_CODE_WORKER_ID is required");
	set("WORKER_ID", "-x");
	refused("run --worker-dir a", "worker ID format");
	set("WORKER_ID", "my-vm");
	set("WORKER_TOKEN", " ");
	refused("run --worker-dir a", "there is no identity");
	set("IDENTITY_FILE", "");
	refused("run --worker-dir a", "WORKER_TOKEN is required");
	set("WORKER_TOKEN", "abc");
	accepts("run --worker-dir a");
	set("IDENTITY_FILE", "/nowhere/id.json");
	refused("run --worker-dir a", "WORKER_TOKEN is set although");
	set("IDENTITY_FILE", NULL);
	setenv("HOME", "rel/dir", 1);
	refused("run --worker-dir a", "HOME must be an absolute path");
	setenv("HOME", "", 1);
	refused("run --worker-dir a", "HOME must be an absolute path");
}

static void
test_roots(void **state)
{
	struct settings s;
	struct roots rs;
	char *p;

	(void)state;
	accepted("run --worker-dir a/../a --workspace b=b --workspace c=a2 "
		 "--allow-workspace-writes",
	    &s, &rs);
	assert_int_equal(rs.n, 3);
	p = xasprintf("%s/a", base);
	assert_string_equal(rs.list[0].path, p);
	free(p);
	assert_string_equal(rs.list[0].id, "primary");
	assert_string_equal(rs.list[0].name, "a");
	assert_null(rs.list[1].name);
	assert_int_equal(rs.list[1].operations,
	    OP_BIT(OP_READ_FILE) | OP_BIT(OP_SEARCH_TEXT) |
		OP_BIT(OP_LIST_FILES) | OP_BIT(OP_WRITE_FILE) |
		OP_BIT(OP_PREVIEW_EDIT) | OP_BIT(OP_EDIT_FILE));
	roots_free(&rs);
	settings_free(&s);

	assert_int_equal(symlink("a", "link"), 0);
	refused("run", "this version serves workspaces only");
	refused("run --allow-workspace-commands",
	    "Workspace commands require a registered directory");
	refused("run --worker-dir none", "Invalid workspace registration");
	refused("run --worker-dir a --default-workspace",
	    "cannot be used together");
	refused("run --workspace b=b", "require a primary workspace");
	refused("run --worker-dir a --workspace primary=b",
	    "Invalid workspace registration");
	refused("run --worker-dir a --workspace .x=b",
	    "Invalid workspace registration");
	refused("run --worker-dir a --workspace b=a/sub",
	    "must not overlap or alias one another");
	refused("run --worker-dir a/sub --workspace b=a",
	    "must not overlap or alias one another");
	refused("run --worker-dir a --workspace b=link",
	    "must not overlap or alias one another");
	refused("run --worker-dir home", "worker home directory");
	refused("run --worker-dir .", "worker home directory");
	refused("run --worker-dir /tmp", "cannot contain");
	refused("run --worker-dir /", "cannot contain");
	refused("run --worker-dir /proc/self", "belongs to the kernel");
	refused("run --worker-dir a --workspace-id -b",
	    "Invalid workspace registration");
	refused("run --worker-dir a --workspace-name \t", "workspace name");
	set("WORKSPACE_ID", "");
	refused("run --worker-dir a", "Invalid workspace registration");
	set("WORKSPACE_ID", NULL);
	set("WORKER_DIR", " a ");
	accepts("run");
	set("WORKER_DIR", " ");
	refused("run", "this version serves workspaces only");
	set("WORKER_DIR", NULL);
	set("WORKSPACE_QUARANTINE_FILE", "m/q.json");
	accepts("run --worker-dir a");
	refused("run --worker-dir a --workspace b=b", "single-root override");
	set("WORKSPACE_QUARANTINE_FILE", "a/q.json");
	refused("run --worker-dir a", "worker control files");
}

static void
test_default_workspace(void **state)
{
	struct settings s;
	struct roots rs;
	struct stat st;
	char *path;

	(void)state;
	set("DEFAULT_WORKSPACE", "true");
	accepted("run --workspace-id notes", &s, &rs);
	assert_string_equal(rs.list[0].name, "notes");
	assert_int_equal(stat(rs.list[0].path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	/* A widened mode is set back at the next start. */
	path = xstrdup(rs.list[0].path);
	assert_int_equal(chmod(path, 0755), 0);
	roots_free(&rs);
	settings_free(&s);
	accepts("run --workspace-id notes");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	free(path);
	set("DEFAULT_WORKSPACE", "1");
	refused("run", "this version serves workspaces only");
}

static void
test_capabilities(void **state)
{
	static const char *const refusals[][3] = {
		{ "COMMAND_SANDBOX", "runtime", "not supported by this build" },
		{ "COMMAND_SANDBOX", "x", "must be native-srt or runtime" },
		{ "COMMAND_SANDBOX", "", "must be native-srt or runtime" },
		{ "WORKSPACE_LEASE_SLOTS", "0", "positive integer" },
		{ "WORKSPACE_LEASE_SLOTS", "-1", "positive integer" },
		{ "WORKSPACE_LEASE_SLOTS", "1.5", "positive integer" },
		{ "WORKSPACE_LEASE_SLOTS", "3_0", "positive integer" },
		{ "WORKSPACE_LEASE_SLOTS", "9", "cannot exceed 8" },
		{ "WORKSPACE_LEASE_SLOTS", "2", "require native-srt commands" },
		{ "RUNTIME_SUPERVISOR", "docker", "not supported" },
		{ "RUNTIME_SUPERVISOR", "", "must be endpoint, docker" },
		{ "STATEFUL_WORKSPACE", " TRUE", "not supported" },
		{ "COMMAND_ALLOWED_DOMAINS", "a.example", "no egress proxy" },
		{ "GITHUB_APP_ID", "7", "GitHub credentials" },
		{ "DOCKER_NETWORK", "x", "Docker is not supported" },
		{ "FILE_RELAY_UPSTREAM", "x", "file relay" },
		{ "SANDBOX_ENDPOINT", "http://h/", "sandbox endpoints" },
		{ "SANDBOX_PROFILE", " ", "is invalid" },
		{ "TMP_SIZE", "1K", "--tmp-size must be" },
		{ "MEMORY_LIMIT", "15M", "--memory-limit must be" },
		{ "MEMORY_LIMIT", "lots", "--memory-limit must be" },
		{ "MEMORY_LIMIT", "-1", "--memory-limit must be" },
		{ "PROCESS_LIMIT", "15", "--process-limit must be" },
		{ "PROCESS_LIMIT", "4194305", "--process-limit must be" },
		{ "PROCESS_LIMIT", "99999999999", "--process-limit must be" },
		{ "PROCESS_LIMIT", "100x", "--process-limit must be" },
		{ "PROCESS_LIMIT", "-100", "--process-limit must be" },
		{ "PROTECTED_PATHS", "", "PROTECTED_PATHS must be" },
		{ "PROTECTED_PATHS", "Strict", "PROTECTED_PATHS must be" },
		{ "TMP_SIZE", "2T", "--tmp-size must be" },
		{ "TMP_SIZE", "99999999999G", "--tmp-size must be" },
		{ "CA_FILE", "/nowhere/ca.pem", "LIBRECHAT_CODE_CA_FILE" },
	};
	struct settings s;
	struct roots rs;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		set(refusals[i][0], refusals[i][1]);
		refused("run --worker-dir a", refusals[i][2]);
		set(refusals[i][0], NULL);
	}
	refused("run --worker-dir a --allow-workspace-commands "
		"--workspace-lease-slots 9",
	    "cannot exceed 8");
	refused("run --worker-dir a --command-sandbox NATIVE-SRT",
	    "must be native-srt or runtime");
	if (geteuid() != 0)
		refused("run --worker-dir a --user x", "start as root");

	set("COMMAND_ALLOWED_DOMAINS", "  ");
	set("WORKSPACE_LEASE_SLOTS", " 8 ");
	set("COMMAND_SANDBOX", " Native-SRT ");
	set("RUNTIMES", " python , ,node,");
	accepted("run --worker-dir a --allow-workspace-commands", &s, &rs);
	assert_int_equal(s.lease_slots, 8);
	set("WORKSPACE_LEASE_SLOTS", " 1 ");
	/* a quarter of the memory, at most 4 GiB */
	assert_true(s.tmp_bytes >= 64 << 20 && s.tmp_bytes <= 4ULL << 30);
	roots_free(&rs);
	settings_free(&s);
	set("TMP_SIZE", "64M");
	accepted("run --worker-dir a --allow-workspace-commands", &s, &rs);
	assert_int_equal(s.nruntimes, 2);
	assert_string_equal(s.runtimes[0], "python");
	assert_string_equal(s.runtimes[1], "node");
	assert_string_equal(s.profile, "anthropic-srt");
	assert_string_equal(s.digest,
	    "00fb1577cfbda5a3385c76f547d13e89ecb87eba55768f2725208c4a0f06aaae");
	assert_int_equal(s.tmp_bytes, 64 << 20);
	assert_string_equal(s.url.base, "https://code.example.com/v1");
	roots_free(&rs);
	settings_free(&s);
	set("POLICY", "");
	accepted("run --worker-dir a", &s, &rs);
	assert_string_equal(s.profile, "nsjail");
	assert_string_equal(s.digest,
	    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	roots_free(&rs);
	settings_free(&s);
}

/* The limits for an option line and variables, as numbers. */
static void
limits(const char *line, uint64_t tmp, uint64_t memory, uint32_t processes)
{
	struct settings s;
	struct roots rs;

	accepted(line, &s, &rs);
	if (tmp != 0)
		assert_true(s.tmp_bytes == tmp);
	assert_true(s.memory_bytes == memory);
	assert_int_equal(s.processes, processes);
	roots_free(&rs);
	settings_free(&s);
}

static void
test_limits(void **state)
{
	uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) *
	    (uint64_t)sysconf(_SC_PAGESIZE);
	struct rlimit was, most, few;
	uint32_t usual = 4096;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NPROC, &was), 0);
	few = most = was;
	few.rlim_cur = 600;
	most.rlim_cur = most.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NPROC, &most), 0);
	if (most.rlim_max != RLIM_INFINITY && most.rlim_max / 2 < usual)
		usual = (uint32_t)(most.rlim_max / 2);
	limits("run --worker-dir a", 0, machine / 4 * 3, usual);
	limits("run --worker-dir a --memory-limit 900M --process-limit=100",
	    300 << 20, 900 << 20, 100);
	limits("run --worker-dir a --memory-limit none --process-limit none", 0,
	    0, 0);
	limits(
	    "run --worker-dir a --memory-limit 0 --process-limit 0", 0, 0, 0);
	set("MEMORY_LIMIT", " 1g ");
	set("PROCESS_LIMIT", " 200 ");
	limits("run --worker-dir a", (1 << 30) / 3, 1 << 30, 200);
	limits("run --worker-dir a --memory-limit 2G --process-limit 16 "
	       "--tmp-size 1G",
	    1 << 30, 2ULL << 30, 16);
	set("MEMORY_LIMIT", "none");
	set("PROCESS_LIMIT", " ");
	limits("run --worker-dir a", 0, 0, usual);
	/* Half of what the account may have is the most. */
	assert_int_equal(setrlimit(RLIMIT_NPROC, &few), 0);
	limits("run --worker-dir a", 0, 0, 300);
	limits("run --worker-dir a --process-limit 200", 0, 0, 200);
	assert_int_equal(setrlimit(RLIMIT_NPROC, &was), 0);
	refused("run --worker-dir a --memory-limit 1M", "--memory-limit must");
	refused("run --worker-dir a --process-limit x", "--process-limit must");
}

static void
test_containment(void **state)
{
	(void)state;
	assert_true(path_contains("/srv/app", "/srv/app"));
	assert_true(path_contains("/srv/app", "/srv/app/sub"));
	assert_true(path_contains("/", "/srv"));
	assert_true(path_contains("/srv", "/srv/..x"));
	assert_false(path_contains("/srv/app", "/srv/app2"));
	assert_false(path_contains("/srv/app/sub", "/srv/app"));
}

static void
test_sizes(void **state)
{
	uint64_t v;

	(void)state;
	assert_int_equal(parse_size("1048576", &v), 0);
	assert_int_equal(v, 1048576);
	assert_int_equal(parse_size(" 2g", &v), 0);
	assert_true(v == 2ULL << 30);
	assert_int_equal(parse_size("1024G", &v), 0);
	assert_int_equal(parse_size("1025G", &v), -1);
	assert_int_equal(parse_size("1048575", &v), -1);
	assert_int_equal(parse_size("-1M", &v), -1);
	assert_int_equal(parse_size("1MB", &v), -1);
	assert_int_equal(parse_size("", &v), -1);
	assert_int_equal(parse_size("18446744073709551615G", &v), -1);
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_syntax),
		T(test_spellings),
		T(test_identity_and_mode),
		T(test_roots),
		T(test_default_workspace),
		T(test_capabilities),
		T(test_limits),
		cmocka_unit_test(test_containment),
		cmocka_unit_test(test_sizes),
	};

	if (sodium_init() == -1)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
