#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness.h"
#include "log.h"

/* LIBRECHAT_CODE_PROTECTED_PATHS, each level attacked by real commands. */
struct row {
	const char *name;
	const char *command;
	int works;
};

/*
 * What somebody outside would run cannot be changed, nor by a way round;
 * ordinary work with Git goes on; nothing is left behind for it.
 */
static void
protected_paths(enum protection level, const struct row *rows, size_t n)
{
	struct harness h;
	struct answer a;
	size_t i;

	harness_init(&h, 1);
	assert_int_equal(harness_start(&h), 0);
	assert_int_equal(harness_run(&h, 0,
			     "git init -q . && git init -q sub/deep && "
			     "git config user.email a@b.example && "
			     "git config user.name n && touch .bashrc f && "
			     "mkdir -p .vscode .claude/commands && "
			     "echo {} >.vscode/tasks.json && ln -s x .profile "
			     "&& git add f && git commit -qm one",
			     &a),
	    0);
	assert_int_equal(a.result.exit_code, 0);
	answer_free(&a);
	harness_kill(&h);
	h.protection = level;
	if (harness_start(&h) == -1)
		fail_msg("%s", h.failed);
	for (i = 0; i < n; i++) {
		assert_int_equal(harness_run(&h, 0, rows[i].command, &a), 0);
		assert_true(a.ok);
		if ((a.result.exit_code == 0) != rows[i].works)
			fail_msg("%s: exit %d, %.*s", rows[i].name,
			    a.result.exit_code, (int)a.result.err.len,
			    (char *)a.result.err.data);
		answer_free(&a);
	}
	harness_stop(&h);
}

static void
protected_paths_cannot_be_changed(void **state)
{
	static const struct row t[] = {
		{ "hook", "echo x >.git/hooks/pre-commit", 0 },
		{ "nested hook", "echo x >sub/deep/.git/hooks/pre-commit", 0 },
		{ "hook by rename of the parent",
		    "mv .git .g2 && cp -r .g2 .git", 0 },
		{ "hooks moved", "mv .git/hooks .git/h2", 0 },
		{ "hooks removed", "rm -rf .git/hooks", 0 },
		{ "start-up file", "echo x >>.bashrc", 0 },
		{ "start-up file replaced", "echo x >n; mv n .bashrc", 0 },
		{ "start-up file removed", "rm -f .bashrc", 0 },
		{ "start-up file by hard link",
		    "ln .bashrc other && echo x >other", 0 },
		{ "start-up file by link", "ln -s .bashrc l; echo x >l", 0 },
		{ "editor", "echo x >.vscode/tasks.json", 0 },
		{ "editor, new file", "touch .vscode/launch.json", 0 },
		{ "agent", "touch .claude/commands/x", 0 },
		{ "agent by rename", "mv .claude .c2", 0 },
		{ "commit", "echo 2 >>f && git commit -qam two", 1 },
		{ "branch", "git branch b && git checkout -q b", 1 },
		{ "remote", "git remote add o https://a.example/r", 1 },
		{ "config", "git config core.editor true", 1 },
		{ "stash", "echo 3 >>f && git stash -q && git stash pop -q",
		    1 },
		{ "init", "git init -q fresh && touch fresh/.git/hooks/x", 1 },
		{ "clone", "git clone -q . copy && cd copy && git log", 1 },
		{ "other settings", "touch .claude/settings.json", 1 },
		{ "nothing made",
		    "test ! -e .zshrc -a ! -e .idea -a ! -e .mcp.json", 1 },
		{ "hooks outlive the repository",
		    "rm -rf .git; test -d .git/hooks", 1 },
	};

	(void)state;
	protected_paths(PROTECT_STANDARD, t, sizeof(t) / sizeof(t[0]));
}

static void
strict_protects_the_git_configuration(void **state)
{
	static const struct row t[] = {
		{ "config", "git config core.fsmonitor x", 0 },
		{ "config by hand", "echo x >>.git/config", 0 },
		{ "hook", "echo x >.git/hooks/pre-commit", 0 },
		{ "commit", "echo 2 >>f && git commit -qam two", 1 },
	};

	(void)state;
	protected_paths(PROTECT_STRICT, t, sizeof(t) / sizeof(t[0]));
}

static void
none_protects_nothing(void **state)
{
	static const struct row t[] = {
		{ "hook", "echo x >.git/hooks/pre-commit", 1 },
		{ "start-up file", "echo x >>.bashrc", 1 },
		{ "rename", "mv .git .g2 && mv .g2 .git", 1 },
	};

	(void)state;
	protected_paths(PROTECT_NONE, t, sizeof(t) / sizeof(t[0]));
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(protected_paths_cannot_be_changed),
		cmocka_unit_test(strict_protects_the_git_configuration),
		cmocka_unit_test(none_protects_nothing),
	};

	log_init("test", 0);
	return cmocka_run_group_tests_name("protect", tests, NULL, NULL);
}
