#ifndef MONITOR_ACL_H
#define MONITOR_ACL_H

/*
 * macOS access control lists on open descriptors (cli-and-storage 6.5). On
 * Linux the mode shows the ACL mask, so that the mode tests of storage.h are
 * enough (6.4) and these functions do nothing. 0, or -1 with *error set.
 */

/* A file or application-owned directory: no entry that allows anything. */
int acl_owner_only(int fd, const char *path, char **error);

/* An ancestor: allow entries only for listing, searching and reading meta. */
int acl_ancestor(int fd, const char *path, char **error);

/* Removes every entry from an object that this program created. */
int acl_remove(int fd, const char *path, char **error);

#endif
