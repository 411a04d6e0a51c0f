#ifndef EXECUTOR_REPOSITORY_H
#define EXECUTOR_REPOSITORY_H

#include <stddef.h>

/*
 * What Git itself would read to find its way, as far as the protection of
 * hooks needs it: gitrepository-layout(5) and git-config(1). The files come
 * from the workspace, so any content is possible.
 */

/* 1 if the directory has what makes Git take it for a repository's own. */
int repository_here(int dir);

/*
 * The path in a .git file, "gitdir: PATH" (submodules, linked worktrees), or
 * NULL. The caller frees it.
 */
char *repository_pointer(const char *text, size_t len);

enum repository_value {
	REPOSITORY_HOOKS_PATH, /* core.hooksPath */
	REPOSITORY_INCLUDE /* include.path, includeIf.*.path */
};

/* Calls fn with every such value of a configuration file, unquoted. */
void repository_values(const char *text, size_t len,
    void (*fn)(void *arg, enum repository_value, const char *path), void *arg);

#endif
