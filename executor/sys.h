#ifndef EXECUTOR_SYS_H
#define EXECUTOR_SYS_H

#include <sys/types.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Linux system calls that the C libraries of the oldest supported systems do
 * not wrap. Each behaves as in its manual page, section 2, and returns -1
 * with errno (ENOSYS: the kernel is older than 5.12).
 */
#define SYS_MOUNT_RDONLY 0x00000001ULL /* MOUNT_ATTR_RDONLY */
#define SYS_MOUNT_NOSUID 0x00000002ULL
#define SYS_MOUNT_NODEV  0x00000004ULL
#define SYS_MOUNT_NOEXEC 0x00000008ULL

/* Detached clone of a mount, with everything mounted below it. */
int sys_open_tree_clone(int dirfd, const char *path, int recursive);
/* Attaches a detached mount at an absolute or relative path. */
int sys_move_mount(int mountfd, int dirfd, const char *path);
/* Attaches it on the object that a descriptor names. */
int sys_move_mount_to(int mountfd, int fd);
int sys_mount_setattr(int fd, int recursive, uint64_t set, uint64_t clear);

/*
 * New detached mount of a file system type: fsopen, fsconfig for each
 * "name=value" or "flag" of the NULL-terminated options, fsmount with attr.
 */
int sys_mount_new(const char *type, const char *const *options, uint64_t attr);

int sys_pivot_root(const char *, const char *);

/* openat2(2) with O_CLOEXEC. */
#define SYS_RESOLVE_NO_XDEV       0x01ULL
#define SYS_RESOLVE_NO_MAGICLINKS 0x02ULL
#define SYS_RESOLVE_NO_SYMLINKS   0x04ULL
#define SYS_RESOLVE_BENEATH       0x08ULL
#define SYS_RESOLVE_IN_ROOT       0x10ULL
int sys_openat2(
    int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve);

/* renameat2(2) with RENAME_NOREPLACE, within one directory. */
int sys_rename_noreplace(int dirfd, const char *from, const char *to);

/*
 * fork with clone(2) flags; the pid and, with pidfd not NULL, a descriptor.
 * cgroup is the directory of the control group that the child begins in, or
 * -1 for the caller's.
 */
pid_t sys_clone(uint64_t flags, int *pidfd, int cgroup);

/* Empties the permitted, effective and inheritable sets and the ambient one. */
int sys_drop_capabilities(void);

int sys_pidfd_open(pid_t);
int sys_pidfd_kill(int pidfd, int sig);

#endif
