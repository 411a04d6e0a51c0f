#ifndef MONITOR_ELSEWHERE_H
#define MONITOR_ELSEWHERE_H

/*
 * Markers of a workspace that the name of 7.2 does not find: armed for
 * another deployment or worker id on the same directory, or by an old version
 * that named them by workspace id (cli-and-storage 7.2 "scoping gaps", "older
 * place"). Searches the state directories beside this one. Returns 0 if there
 * is none, or -1 with *error naming the file.
 */
int elsewhere_check(
    const char *state_dir, const char *root, const char *id, char **error);

#endif
