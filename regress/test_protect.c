#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "harness.h"
#include "log.h"
#include "repository.h"

/* LIBRECHAT_CODE_PROTECTED_PATHS, each level attacked by real commands. */
struct row {
	const char *name;
	const char *command;
	int works;
};

/*
 * A workspace with everything that is looked for: nested repositories, a
 * submodule, linked worktrees, a bare repository, a repository whose .git is
 * a link, one in other letters, and one that takes its hooks from elsewhere.
 */
static const char workspace[] =
    "set -e; exec 2>&1; git config --global user.email a@b.example; "
    "git config --global user.name n; "
    "git config --global protocol.file.allow always; "
    "git init -q .; touch .bashrc f; git add f; git commit -qm one; "
    "git init -q sub/deep; git init -q src/part; "
    "(cd src/part; git commit -q --allow-empty -m p); "
    "git submodule --quiet add ./src/part mod; "
    "mkdir -p .git/modules/mod/hooks; "
    "git submodule --quiet add --name a/b ./src/part gone; "
    "git submodule --quiet deinit -f gone; mkdir -p .git/modules/a/b/hooks; "
    "git worktree add -q wt; git worktree add -q /tmp/away; "
    "git clone -q --bare . bare.git; "
    "git init -q other; mv other/.git store; ln -s ../store other/.git; "
    "git init -q letters; mv letters/.git letters/.GIT; "
    "mv letters/.GIT/hooks letters/.GIT/Hooks; "
    "mkdir -p .vscode .claude/commands tool/.vscode husky sub/deep/husky; "
    "echo {} >.vscode/tasks.json; echo {} >tool/.vscode/tasks.json; "
    "ln -s settings .mcp.json; echo {} >settings; "
    "echo '[Core] HooksPath = \"husky\" # ours' >included; "
    "git config include.path ../included; "
    "git -C sub/deep config core.hooksPath husky; "
    "git config extensions.worktreeConfig true; "
    "git -C wt config --worktree core.editor true; "
    "git commit -qm two";

static void
start_workspace(struct harness *h, enum protection level)
{
	struct answer a;

	harness_init(h, 1);
	copy_program(h, "ATTACK", h->roots[0], "attack");
	assert_int_equal(harness_start(h), 0);
	assert_int_equal(harness_run(h, 0, workspace, &a), 0);
	assert_true(a.ok);
	if (a.result.exit_code != 0)
		fail_msg("exit %d, %.*s", a.result.exit_code,
		    (int)a.result.out.len, (char *)a.result.out.data);
	answer_free(&a);
	harness_kill(h);
	h->protection = level;
	if (harness_start(h) == -1)
		fail_msg("%s", h->failed);
}

/*
 * What somebody outside would run cannot be changed, nor by a way round;
 * ordinary work with Git goes on; nothing is left behind for it.
 */
static void
protected_paths(enum protection level, const struct row *rows, size_t n)
{
	struct harness h;
	struct answer a;
	char *command;
	size_t i;

	start_workspace(&h, level);
	for (i = 0; i < n; i++) {
		command = xasprintf("git config --global user.email a@b.example"
				    " && git config --global user.name n && "
				    "git config --global protocol.file.allow "
				    "always && { %s; }",
		    rows[i].command);
		assert_int_equal(harness_run(&h, 0, command, &a), 0);
		free(command);
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
		{ "start-up file exchanged",
		    "echo x >n; ./attack exchange n "
		    ".bashrc | grep ^0",
		    0 },
		/* nested repositories */
		{ "nested, by its directory", "mv sub/deep sub/d2", 0 },
		{ "nested, by a parent", "mv sub s2", 0 },
		{ "nested, by exchange",
		    "mkdir new; ./attack exchange new sub | grep ^0", 0 },
		{ "nested, repository moved", "mv sub/deep/.git x", 0 },
		{ "nested, hooks moved", "mv sub/deep/.git/hooks x", 0 },
		{ "nested, removed", "rm -rf src; test ! -e src/part/.git", 0 },
		{ "letters, hook", "echo x >letters/.GIT/Hooks/pre-commit", 0 },
		{ "letters, moved", "mv letters/.GIT letters/.git", 0 },
		/* submodules */
		{ "submodule hook", "echo x >.git/modules/mod/hooks/h", 0 },
		{ "submodule hooks moved",
		    "mv .git/modules/mod/hooks .git/modules/mod/h2", 0 },
		{ "hook of a submodule that is not checked out",
		    "echo x >.git/modules/a/b/hooks/h", 0 },
		{ "submodule repository moved", "mv .git/modules/mod m", 0 },
		{ "submodule, by a parent", "mv .git/modules m", 0 },
		{ "submodule pointer", "echo gitdir: ../x >mod/.git", 0 },
		{ "submodule pointer replaced", "echo x >n; mv n mod/.git", 0 },
		{ "submodule pointer removed", "rm -f mod/.git", 0 },
		{ "submodule moved", "mv mod mod2", 0 },
		/* linked worktrees */
		{ "worktree pointer", "echo gitdir: ../x >wt/.git", 0 },
		{ "worktree moved", "mv wt wt2", 0 },
		/* bare repositories, links */
		{ "bare, hook", "echo x >bare.git/hooks/post-update", 0 },
		{ "bare, moved", "mv bare.git b", 0 },
		{ "linked, hook", "echo x >store/hooks/h", 0 },
		{ "linked, by the link", "echo x >other/.git/hooks/h", 0 },
		{ "linked, moved", "mv store s", 0 },
		{ "link replaced", "ln -sfn ../elsewhere other/.git", 0 },
		{ "link removed", "rm other/.git", 0 },
		{ "linked settings", "echo x >.mcp.json", 0 },
		{ "linked settings' target", "echo x >settings", 0 },
		{ "linked settings' link", "rm .mcp.json", 0 },
		{ "the other mount of the root",
		    "cd / && cd - && cd .. && cd - && echo x >.git/hooks/h",
		    0 },
		/* what goes on working */
		{ "rename and hard link out of pinned directories",
		    "touch sub/deep/a .git/b && ln sub/deep/a l1 && "
		    "ln .git/b sub/l2 && perl -e 'rename(\"sub/deep/a\", "
		    "\"a1\") && rename(\"a1\", \".git/a2\") or die'",
		    1 },
		{ "commit", "echo 2 >>f && git commit -qam two", 1 },
		{ "nested commit",
		    "cd sub/deep && touch g && git add g && git commit -qm g",
		    1 },
		{ "submodule commit",
		    "cd mod && touch g && git add g && git commit -qm g", 1 },
		{ "worktree commit",
		    "cd wt && touch g && git add g && git commit -qm g", 1 },
		{ "worktree add and remove",
		    "git worktree add -q w2 && git worktree remove w2", 1 },
		{ "submodule add",
		    "git submodule --quiet add ./sub/deep m2 && "
		    "git commit -qm m2",
		    1 },
		{ "submodule update", "git submodule --quiet update --init",
		    1 },
		{ "gc", "git gc -q", 1 },
		{ "rebase",
		    "git checkout -qb r HEAD~1 && git commit -q "
		    "--allow-empty -m r && git rebase -q master",
		    1 },
		{ "hooks elsewhere", "touch husky/h included", 1 },
		{ "branch", "git branch b && git checkout -q b", 1 },
		{ "remote", "git remote add o https://a.example/r", 1 },
		{ "config", "git config core.editor true", 1 },
		{ "stash", "echo 3 >>f && git stash -q && git stash pop -q",
		    1 },
		{ "init", "git init -q fresh && touch fresh/.git/hooks/x", 1 },
		{ "clone", "git clone -q . copy && cd copy && git log", 1 },
		{ "other settings", "touch .claude/settings.json", 1 },
		{ "nothing made",
		    "test ! -e .zshrc -a ! -e .idea -a ! -e .zprofile", 1 },
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
		{ "config replaced", "echo x >n && mv n .git/config", 0 },
		{ "nested config", "echo x >>sub/deep/.git/config", 0 },
		{ "bare config", "echo x >>bare.git/config", 0 },
		{ "submodule config", "git -C mod config a.b c", 0 },
		{ "included config", "echo x >>included", 0 },
		{ "included config replaced", "echo x >n; mv n included", 0 },
		{ "hooks elsewhere", "echo x >husky/pre-commit", 0 },
		{ "hooks elsewhere, moved", "mv husky h", 0 },
		{ "nested hooks elsewhere", "touch sub/deep/husky/h", 0 },
		{ "worktree's config", "git -C wt config --worktree a.b c", 0 },
		{ "worktree's common directory",
		    "echo ../../../x >.git/worktrees/wt/commondir", 0 },
		{ "another worktree's common directory",
		    "echo ../../../x >.git/worktrees/away/commondir", 0 },
		{ "worktree's own directory moved",
		    "mv .git/worktrees/wt .git/w", 0 },
		{ "modules", "echo x >>.gitmodules", 0 },
		{ "submodule add", "git submodule --quiet add ./sub/deep m2",
		    0 },
		{ "settings further down", "echo x >tool/.vscode/tasks.json",
		    0 },
		{ "hook", "echo x >.git/hooks/pre-commit", 0 },
		{ "commit", "echo 2 >>f && git commit -qam two", 1 },
		{ "branch", "git checkout -qb b", 1 },
		{ "stash", "echo 3 >>f && git stash -q && git stash pop -q",
		    1 },
		{ "new repository",
		    "git init -q fresh && cd fresh && "
		    "git config a.b c",
		    1 },
		{ "worktree add", "git worktree add -q w2", 1 },
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

/* Names, kinds, sizes, modes and numbers of all that is in the workspace. */
static char *
listing(const struct harness *h)
{
	char *command;
	struct buf b;
	size_t n;
	FILE *f;

	command = xasprintf(
	    "cd '%s' && find . -printf '%%p %%y %%s %%m %%i %%n\\n' | sort",
	    h->roots[0]);
	f = popen(command, "r");
	free(command);
	assert_non_null(f);
	buf_init(&b);
	while ((n = fread(buf_reserve(&b, 4096), 1, 4096, f)) > 0)
		b.len += n;
	assert_int_equal(pclose(f), 0);
	assert_true(b.len > 1000);
	return buf_steal(&b);
}

/* Protection leaves no trace, not even when the worker is killed. */
static void
nothing_is_made_in_the_workspace(void **state)
{
	static const enum protection levels[] = { PROTECT_STANDARD,
		PROTECT_STRICT };
	struct harness h;
	struct answer a;
	char *before, *after;
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		start_workspace(&h, PROTECT_NONE);
		before = listing(&h);
		harness_kill(&h);
		h.protection = levels[i];
		assert_int_equal(harness_start(&h), 0);
		assert_int_equal(harness_run(&h, 0, "true", &a), 0);
		assert_true(a.ok && a.result.exit_code == 0);
		answer_free(&a);
		after = listing(&h);
		assert_string_equal(before, after);
		free(after);
		harness_kill(&h);
		after = listing(&h);
		assert_string_equal(before, after);
		free(after);
		free(before);
		harness_remove(&h);
	}
}

/* The file tools are refused as commands are, and say that nothing changed. */
static void
file_tools_are_refused(void **state)
{
	static const char *const paths[] = { ".bashrc", ".git/hooks/new",
		"sub/deep/.git/hooks/new", "mod/.git", ".vscode/tasks.json",
		"settings", ".mcp.json", "wt/.git" };
	struct harness h;
	struct request q;
	struct answer a;
	size_t i;

	(void)state;
	start_workspace(&h, PROTECT_STANDARD);
	for (i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		memset(&q, 0, sizeof(q));
		q.operation = OP_WRITE_FILE;
		text_set(&q.path, paths[i], strlen(paths[i]));
		text_set(&q.content, "x", 1);
		assert_int_equal(harness_request(&h, &q, &a), 0);
		request_free(&q);
		if (a.ok || a.error.certainty != NOT_COMMITTED)
			fail_msg("%s: %s", paths[i],
			    a.ok ? "written" : a.error.text);
		answer_free(&a);
	}
	assert_int_equal(harness_run(&h, 0, "git status --porcelain", &a), 0);
	assert_true(a.ok);
	assert_int_equal(a.result.exit_code, 0);
	if (memmem(a.result.out.data, a.result.out.len, "settings", 8) ==
		NULL ||
	    memmem(a.result.out.data, a.result.out.len, " M ", 3) != NULL)
		fail_msg(
		    "%.*s", (int)a.result.out.len, (char *)a.result.out.data);
	answer_free(&a);
	harness_stop(&h);
}

/* A rule that cannot be applied leaves commands and the other rules alone. */
static void
odd_names_disable_nothing(void **state)
{
	static const char make[] =
	    "set -e; ln -s missing/dir/env .env; ln -s . .idea; "
	    "ln -s .. .vscode; ln -s .profile .profile; "
	    "ln -s /etc/profile .zshrc; mkfifo .bash_profile; "
	    "echo 'gitdir: /nowhere' >.git; mkdir -p a/.git b/.git/HEAD c/.git "
	    "d/.git locked/.git .claude/commands .mcp.json; "
	    "ln -s ../.. b/.git/objects; touch b/.git/refs b/.git/hooks; "
	    "ln -s . c/.git/hooks; mkdir c/.git/{HEAD,objects,refs}; "
	    "printf '[core]\\nhooksPath = .\\n[include]\\npath = config\\n"
	    "[include]path=config\\n[core' >c/.git/config; "
	    "ln -s ../e d/.git/HEAD; mkdir e; echo gitdir: ../e >e/.git; "
	    "echo gitdir: >f; mkdir g; ln -s ../f g/.git; "
	    "touch .zshenv HEAD objects refs; chmod 0 locked";
	static const enum protection levels[] = { PROTECT_STANDARD,
		PROTECT_STRICT };
	static const char works[] =
	    "echo ok >new && mkdir dir && mv new dir/new && rm -r dir && "
	    "touch c/x c/.git/x && echo x >.bash_login && rm .bash_login && echo ok";
	struct harness h;
	struct answer a;
	size_t i;

	(void)state;
	harness_init(&h, 1);
	assert_int_equal(harness_start(&h), 0);
	assert_int_equal(harness_run(&h, 0, make, &a), 0);
	assert_true(a.ok);
	assert_int_equal(a.result.exit_code, 0);
	answer_free(&a);
	for (i = 0; i < 2; i++) {
		harness_kill(&h);
		h.protection = levels[i];
		if (harness_start(&h) == -1)
			fail_msg("%s", h.failed);
		assert_int_equal(harness_run(&h, 0, works, &a), 0);
		assert_true(a.ok);
		if (a.result.exit_code != 0)
			fail_msg("%.*s", (int)a.result.err.len,
			    (char *)a.result.err.data);
		answer_free(&a);
		assert_int_equal(harness_run(&h, 0,
				     "touch .claude/commands/x && exit 1; "
				     "echo x >.zshenv && exit 2; "
				     "rm -rf .mcp.json && exit 3; exit 0",
				     &a),
		    0);
		assert_true(a.ok);
		assert_int_equal(a.result.exit_code, 0);
		answer_free(&a);
	}
	assert_int_equal(harness_run(&h, 0, "chmod 755 locked", &a), 0);
	answer_free(&a);
	harness_stop(&h);
}

static void
note_value(void *arg, enum repository_value what, const char *path)
{
	buf_addf(arg, "%s<%s>",
	    what == REPOSITORY_HOOKS_PATH ? "hooks" : "include", path);
}

/* What git-config(1) would find, and nothing but an end in what is broken. */
static void
configurations_are_read_as_git_does(void **state)
{
	static const struct {
		const char *text;
		const char *values;
	} t[] = {
		{ "", "" },
		{ "[core]\n\thooksPath = a/b\n", "hooks<a/b>" },
		{ "[CORE]HOOKSPATH=x", "hooks<x>" },
		{ "[core]\n\thooksPath = \" a b \" # c\n", "hooks< a b >" },
		{ "[core]\nhooksPath = a;b\n", "hooks<a>" },
		{ "[core]\nhooksPath = a \\\n b  \n", "hooks<a  b>" },
		{ "[core]\nhooksPath = \"a\\\"\\\\b\"c\n", "hooks<a\"\\bc>" },
		{ "# [core]\n; [core]\nhooksPath = a\n", "" },
		{ "[other]\nhooksPath = a\n[core]\neditor = b\nhooksPath\n",
		    "" },
		{ "[core]\r\nhooksPath = a\r\n", "hooks<a>" },
		{ "[include]\npath = a\npath = b\n[includeIf "
		  "\"gitdir:~/\\\"]/\"] path = c\n",
		    "include<a>include<b>include<c>" },
		{ "[core", "" },
		{ "[core \"", "" },
		{ "[core]hooksPath", "" },
		{ "[core]hooksPath=", "hooks<>" },
		{ "[core]hooksPath=\"a", "hooks<a>" },
		{ "[core]hooksPath=\\", "hooks<>" },
	};
	static const char *const pointers[][2] = {
		{ "gitdir: ../a b\n", "../a b" },
		{ "gitdir: a\r\n\n", "a" },
		{ "gitdir: a", "a" },
		{ "gitdir: \n", NULL },
		{ "gitdir: ", NULL },
		{ "gitdir:", NULL },
		{ " gitdir: a", NULL },
		{ "", NULL },
	};
	struct buf b;
	size_t i, n;
	char *copy, *p;

	(void)state;
	buf_init(&b);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		/* Exactly as long as it is: reading on would be noticed. */
		n = strlen(t[i].text);
		copy = xmalloc(n + 1);
		memcpy(copy, t[i].text, n);
		copy[n] = 'x';
		buf_reset(&b);
		repository_values(copy, n, note_value, &b);
		assert_string_equal(buf_cstr(&b), t[i].values);
		free(copy);
	}
	buf_free(&b);
	for (i = 0; i < sizeof(pointers) / sizeof(pointers[0]); i++) {
		p = repository_pointer(pointers[i][0], strlen(pointers[i][0]));
		if (pointers[i][1] == NULL)
			assert_null(p);
		else
			assert_string_equal(p, pointers[i][1]);
		free(p);
	}
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(protected_paths_cannot_be_changed),
		cmocka_unit_test(strict_protects_the_git_configuration),
		cmocka_unit_test(none_protects_nothing),
		cmocka_unit_test(nothing_is_made_in_the_workspace),
		cmocka_unit_test(file_tools_are_refused),
		cmocka_unit_test(odd_names_disable_nothing),
		cmocka_unit_test(configurations_are_read_as_git_does),
	};

	log_init("test", 0);
	return cmocka_run_group_tests_name("protect", tests, NULL, NULL);
}
