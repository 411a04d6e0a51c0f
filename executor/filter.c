#include "config.h"

#include <sys/types.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <seccomp.h>

#include "buf.h"
#include "filter.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#ifndef TIOCLINUX
#define TIOCLINUX 0x541C
#endif
#ifndef IPPROTO_L2TP
#define IPPROTO_L2TP 115
#endif
#ifndef IPPROTO_SMC
#define IPPROTO_SMC 256
#endif

#define ALWAYS           \
	0, { -1, 0, 0 }, \
	{                \
		-1, 0, 0 \
	}
#define IF_BIT(arg, bit)          \
	0, { arg, (bit), (bit) }, \
	{                         \
		-1, 0, 0          \
	}
#define IF_EQUAL(arg, v)                \
	0, { arg, 0xffffffffULL, (v) }, \
	{                               \
		-1, 0, 0                \
	}

#define IF_FROM(arg, v)     \
	0, { arg, 0, (v) }, \
	{                   \
		-1, 0, 0    \
	}

#define SOCKET_TYPE(family, type)          \
	0, { 0, 0xffffffffULL, (family) }, \
	{                                  \
		1, 0xf, (type)             \
	}
#define FAMILIES(mask, value)                      \
	0, { 0, 0xffffffffULL & (mask), (value) }, \
	{                                          \
		-1, 0, 0                           \
	}
#define NETLINK_FROM(protocol)               \
	0, { 0, 0xffffffffULL, AF_NETLINK }, \
	{                                    \
		2, 0, (protocol)             \
	}

#define IF_EQUAL_AND_GIVEN(arg, v, pointer) \
	0, { arg, 0xffffffffULL, (v) },     \
	{                                   \
		pointer, 0, 0               \
	}

/* In id-mapped roots. */
#define MAPPED           \
	1, { -1, 0, 0 }, \
	{                \
		-1, 0, 0 \
	}
#define MAPPED_BIT(arg, bit)      \
	1, { arg, (bit), (bit) }, \
	{                         \
		-1, 0, 0          \
	}
#define MAPPED_CREATE(flags, create, arg, bit) \
	1, { flags, (create), (create) },      \
	{                                      \
		arg, (bit), (bit)              \
	}
#define SETUID  04000
#define SETGID  02000
#define TMPFILE 020000000 /* O_TMPFILE without O_DIRECTORY */

/*
 * ENOSYS where a program falls back to an older call, EPERM where it expects
 * to be refused.
 */
const struct filter_row filter_rows[] = {
	/* namespaces: each would give capabilities over kernel interfaces */
	{ "clone3", ENOSYS, ALWAYS, "flags are in memory; libc uses clone" },
	{ "clone", EPERM, IF_BIT(0, CLONE_NEWUSER), "user namespace" },
	{ "clone", EPERM, IF_BIT(0, CLONE_NEWNS), "mount namespace" },
	{ "clone", EPERM, IF_BIT(0, CLONE_NEWPID), "pid namespace" },
	{ "clone", EPERM, IF_BIT(0, CLONE_NEWNET), "network namespace" },
	{ "clone", EPERM, IF_BIT(0, CLONE_NEWIPC), "ipc namespace" },
	{ "clone", EPERM, IF_BIT(0, CLONE_NEWUTS), "uts namespace" },
	{ "clone", EPERM, IF_BIT(0, CLONE_NEWCGROUP), "cgroup namespace" },
	{ "unshare", EPERM, IF_BIT(0, CLONE_NEWUSER), "user namespace" },
	{ "unshare", EPERM, IF_BIT(0, CLONE_NEWNS), "mount namespace" },
	{ "unshare", EPERM, IF_BIT(0, CLONE_NEWPID), "pid namespace" },
	{ "unshare", EPERM, IF_BIT(0, CLONE_NEWNET), "network namespace" },
	{ "unshare", EPERM, IF_BIT(0, CLONE_NEWIPC), "ipc namespace" },
	{ "unshare", EPERM, IF_BIT(0, CLONE_NEWUTS), "uts namespace" },
	{ "unshare", EPERM, IF_BIT(0, CLONE_NEWCGROUP), "cgroup namespace" },
	{ "unshare", EPERM, IF_BIT(0, CLONE_NEWTIME), "time namespace" },
	{ "setns", EPERM, ALWAYS, "entering namespaces" },
	/* mounts */
	{ "mount", EPERM, ALWAYS, "mount table" },
	{ "umount2", EPERM, ALWAYS, "mount table" },
	{ "umount", EPERM, ALWAYS, "mount table" },
	{ "pivot_root", EPERM, ALWAYS, "mount table" },
	{ "chroot", EPERM, ALWAYS, "root directory" },
	{ "open_tree", ENOSYS, ALWAYS, "mount table" },
	{ "move_mount", ENOSYS, ALWAYS, "mount table" },
	{ "fsopen", ENOSYS, ALWAYS, "mount table" },
	{ "fsconfig", ENOSYS, ALWAYS, "mount table" },
	{ "fsmount", ENOSYS, ALWAYS, "mount table" },
	{ "fspick", ENOSYS, ALWAYS, "mount table" },
	{ "mount_setattr", ENOSYS, ALWAYS, "mount table" },
	{ "open_tree_attr", ENOSYS, ALWAYS, "mount table" },
	{ "statmount", ENOSYS, ALWAYS, "mount table" },
	{ "listmount", ENOSYS, ALWAYS, "mount table" },
	{ "open_by_handle_at", EPERM, ALWAYS, "steps round the mount table" },
	{ "name_to_handle_at", EPERM, ALWAYS, "serves open_by_handle_at" },
	/* kernel interfaces with a long record of holes */
	{ "bpf", EPERM, ALWAYS, "kernel programs" },
	{ "perf_event_open", EPERM, ALWAYS, "performance counters" },
	{ "userfaultfd", EPERM, ALWAYS, "page fault races" },
	{ "io_uring_setup", ENOSYS, ALWAYS, "system calls past this filter" },
	{ "io_uring_enter", ENOSYS, ALWAYS, "as io_uring_setup" },
	{ "io_uring_register", ENOSYS, ALWAYS, "as io_uring_setup" },
	{ "keyctl", EPERM, ALWAYS, "key rings are shared with the host" },
	{ "add_key", EPERM, ALWAYS, "as keyctl" },
	{ "request_key", EPERM, ALWAYS, "as keyctl" },
	{ "init_module", EPERM, ALWAYS, "kernel modules" },
	{ "finit_module", EPERM, ALWAYS, "kernel modules" },
	{ "delete_module", EPERM, ALWAYS, "kernel modules" },
	{ "kexec_load", EPERM, ALWAYS, "another kernel" },
	{ "kexec_file_load", EPERM, ALWAYS, "another kernel" },
	{ "reboot", EPERM, ALWAYS, "the machine" },
	{ "swapon", EPERM, ALWAYS, "the machine" },
	{ "swapoff", EPERM, ALWAYS, "the machine" },
	{ "acct", EPERM, ALWAYS, "the machine" },
	{ "syslog", EPERM, ALWAYS, "kernel log of the host" },
	{ "quotactl", EPERM, ALWAYS, "the machine" },
	{ "quotactl_fd", ENOSYS, ALWAYS, "the machine" },
	{ "settimeofday", EPERM, ALWAYS, "the machine's clock" },
	{ "clock_settime", EPERM, ALWAYS, "the machine's clock" },
	{ "adjtimex", EPERM, ALWAYS, "the machine's clock" },
	{ "clock_adjtime", EPERM, ALWAYS, "the machine's clock" },
	{ "iopl", EPERM, ALWAYS, "hardware ports" },
	{ "ioperm", EPERM, ALWAYS, "hardware ports" },
	{ "lookup_dcookie", EPERM, ALWAYS, "profiling of the host" },
	{ "nfsservctl", ENOSYS, ALWAYS, "removed interface" },
	{ "vhangup", EPERM, ALWAYS, "terminals" },
	{ "fanotify_init", EPERM, ALWAYS, "watches whole mounts" },
	{ "lsm_set_self_attr", ENOSYS, ALWAYS, "security labels" },
	{ "process_madvise", EPERM, ALWAYS, "memory of other processes" },
	{ "migrate_pages", EPERM, ALWAYS, "memory of other processes" },
	{ "move_pages", EPERM, ALWAYS, "memory of other processes" },
	{ "listns", ENOSYS, ALWAYS, "namespaces of the host" },
	{ "uselib", ENOSYS, ALWAYS, "removed interface" },
	{ "kcmp", EPERM, ALWAYS, "kernel addresses" },
	{ "memfd_secret", ENOSYS, ALWAYS, "hidden from out-of-memory" },
	/*
	 * A crash must not start a program of the host (init.c). Programs that
	 * guard their secrets insist on success, and get what they ask for.
	 */
	{ "setrlimit", 0, IF_EQUAL(0, RLIMIT_CORE), "core limit" },
	{ "prlimit64", 0, IF_EQUAL_AND_GIVEN(1, RLIMIT_CORE, 2), "core limit" },
	/* set-id bits on files that are root's on the host's disk */
	{ "chmod", EPERM, MAPPED_BIT(1, SETUID), "set-id bits" },
	{ "chmod", EPERM, MAPPED_BIT(1, SETGID), "set-id bits" },
	{ "fchmod", EPERM, MAPPED_BIT(1, SETUID), "set-id bits" },
	{ "fchmod", EPERM, MAPPED_BIT(1, SETGID), "set-id bits" },
	{ "fchmodat", EPERM, MAPPED_BIT(2, SETUID), "set-id bits" },
	{ "fchmodat", EPERM, MAPPED_BIT(2, SETGID), "set-id bits" },
	{ "fchmodat2", EPERM, MAPPED_BIT(2, SETUID), "set-id bits" },
	{ "fchmodat2", EPERM, MAPPED_BIT(2, SETGID), "set-id bits" },
	{ "creat", EPERM, MAPPED_BIT(1, SETUID), "set-id bits" },
	{ "creat", EPERM, MAPPED_BIT(1, SETGID), "set-id bits" },
	{ "mknod", EPERM, MAPPED_BIT(1, SETUID), "set-id bits" },
	{ "mknod", EPERM, MAPPED_BIT(1, SETGID), "set-id bits" },
	{ "mknodat", EPERM, MAPPED_BIT(2, SETUID), "set-id bits" },
	{ "mknodat", EPERM, MAPPED_BIT(2, SETGID), "set-id bits" },
	{ "open", EPERM, MAPPED_CREATE(1, O_CREAT, 2, SETUID), "set-id bits" },
	{ "open", EPERM, MAPPED_CREATE(1, O_CREAT, 2, SETGID), "set-id bits" },
	{ "open", EPERM, MAPPED_CREATE(1, TMPFILE, 2, SETUID), "set-id bits" },
	{ "open", EPERM, MAPPED_CREATE(1, TMPFILE, 2, SETGID), "set-id bits" },
	{ "openat", EPERM, MAPPED_CREATE(2, O_CREAT, 3, SETUID),
	    "set-id bits" },
	{ "openat", EPERM, MAPPED_CREATE(2, O_CREAT, 3, SETGID),
	    "set-id bits" },
	{ "openat", EPERM, MAPPED_CREATE(2, TMPFILE, 3, SETUID),
	    "set-id bits" },
	{ "openat", EPERM, MAPPED_CREATE(2, TMPFILE, 3, SETGID),
	    "set-id bits" },
	{ "openat2", ENOSYS, MAPPED, "its mode is in memory" },
	{ "setxattrat", ENOSYS, MAPPED, "its arguments are in memory" },
	/* terminals: typing for somebody else */
	{ "ioctl", EPERM, IF_EQUAL(1, TIOCSTI), "fakes terminal input" },
	{ "ioctl", EPERM, IF_EQUAL(1, TIOCLINUX), "pastes into consoles" },
	{ "ioctl", EPERM, IF_EQUAL(1, TIOCSETD), "loads line disciplines" },
	/*
	 * Every send on a Unix datagram socket may carry an address, which
	 * nobody can check without a race; streams cannot (supervisor.h).
	 */
	{ "socket", EPERM, SOCKET_TYPE(AF_UNIX, SOCK_DGRAM),
	    "unchecked addresses" },
	{ "socket", EPERM, SOCKET_TYPE(AF_UNIX, SOCK_RAW),
	    "the same by another name" },
	/*
	 * Families that are no way to a process of the same sandbox, whose
	 * modules the kernel would load: what is left is Unix (1), Internet
	 * (2, 10) and netlink (16).
	 */
	{ "socket", EAFNOSUPPORT, FAMILIES(~0U, 3), "amateur radio" },
	{ "socket", EAFNOSUPPORT, FAMILIES(~3U, 4), "IPX to bridge" },
	{ "socket", EAFNOSUPPORT, FAMILIES(~1U, 8), "ATM, X.25" },
	{ "socket", EAFNOSUPPORT, FAMILIES(~0U, 11), "amateur radio" },
	{ "socket", EAFNOSUPPORT, FAMILIES(~3U, 12), "DECnet to IPsec keys" },
	{ "socket", EAFNOSUPPORT, IF_FROM(0, 17),
	    "frames, hypervisor, radio, field bus, kernel crypto and more" },
	{ "socketpair", EOPNOTSUPP, IF_FROM(0, 2), "as socket" },
	/* addresses and routes, as getaddrinfo(3) asks for them; no more */
	{ "socket", EPROTONOSUPPORT, NETLINK_FROM(1),
	    "audit, firewall, generic netlink, device events" },
	{ "socket", EPERM, SOCKET_TYPE(AF_INET, SOCK_RAW), "raw packets" },
	{ "socket", EPERM, SOCKET_TYPE(AF_INET, SOCK_PACKET), "raw frames" },
	{ "socket", EPERM, SOCKET_TYPE(AF_INET6, SOCK_RAW), "raw packets" },
	{ "socket", EPROTONOSUPPORT, IF_EQUAL(2, IPPROTO_DCCP),
	    "kernel holes" },
	{ "socket", EPROTONOSUPPORT, IF_EQUAL(2, IPPROTO_L2TP), "tunnels" },
	{ "socket", EPROTONOSUPPORT, IF_EQUAL(2, IPPROTO_SCTP),
	    "kernel holes" },
	{ "socket", EPROTONOSUPPORT, IF_EQUAL(2, IPPROTO_SMC),
	    "shared memory between machines" },
};
const size_t filter_nrows = sizeof(filter_rows) / sizeof(filter_rows[0]);

/*
 * Calls that are younger than the library may be. Since Linux 5.1 a new call
 * has the same number on every architecture.
 */
static const struct {
	const char *name;
	int number;
} young_calls[] = { { "process_madvise", 440 }, { "mount_setattr", 442 },
	{ "quotactl_fd", 443 }, { "memfd_secret", 447 }, { "fchmodat2", 452 },
	{ "statmount", 457 }, { "listmount", 458 },
	{ "lsm_set_self_attr", 460 }, { "setxattrat", 463 },
	{ "open_tree_attr", 467 }, { "listns", 470 } };

static int
call_number(const char *name)
{
	size_t i;
	int nr;

	if ((nr = seccomp_syscall_resolve_name(name)) != __NR_SCMP_ERROR)
		return nr;
	for (i = 0; i < sizeof(young_calls) / sizeof(young_calls[0]); i++)
		if (strcmp(young_calls[i].name, name) == 0)
			return young_calls[i].number;
	return nr;
}

static size_t
add_condition(struct scmp_arg_cmp *cmp, const struct filter_condition *c)
{
	if (c->argument == -1)
		return 0;
	memset(cmp, 0, sizeof(*cmp));
	cmp->arg = (unsigned int)c->argument;
	if (c->mask == 0) {
		cmp->op = SCMP_CMP_NE; /* 0; otherwise add_from does it */
	} else {
		cmp->op = SCMP_CMP_MASKED_EQ;
		cmp->datum_a = c->mask;
		cmp->datum_b = c->value;
	}
	return 1;
}

/*
 * "At least", on 32 bits whatever is in the others, as libseccomp cannot say
 * it: a number is greater than m if it has a bit that m lacks and the same
 * bits above that one.
 */
static int
add_from(scmp_filter_ctx ctx, uint32_t action, int nr,
    const struct scmp_arg_cmp *other, unsigned int nother,
    const struct filter_condition *c)
{
	struct scmp_arg_cmp cmp[2];
	uint32_t m = (uint32_t)c->value - 1, bit, above;
	int r = 0;

	if (nother > 0)
		cmp[1] = *other;
	for (bit = 1; bit != 0 && r >= 0; bit <<= 1) {
		if (m & bit)
			continue;
		above = ~(bit | (bit - 1));
		memset(&cmp[0], 0, sizeof(cmp[0]));
		cmp[0].arg = (unsigned int)c->argument;
		cmp[0].op = SCMP_CMP_MASKED_EQ;
		cmp[0].datum_a = above | bit;
		cmp[0].datum_b = (m & above) | bit;
		r = seccomp_rule_add_array(ctx, action, nr, 1 + nother, cmp);
	}
	return r;
}

static int
add_row(scmp_filter_ctx ctx, const struct filter_row *row)
{
	uint32_t action = SCMP_ACT_ERRNO((unsigned int)row->error);
	struct scmp_arg_cmp cmp[2];
	size_t n;
	int nr;

	nr = call_number(row->name);
	if (nr < 0) /* not on this architecture */
		return 0;
	n = add_condition(&cmp[0], &row->if1);
	n += add_condition(&cmp[n], &row->if2);
	if (n > 0 && row->if1.mask == 0 && row->if1.value != 0)
		return add_from(ctx, action, nr, NULL, 0, &row->if1);
	if (n > 1 && row->if2.mask == 0 && row->if2.value != 0)
		return add_from(ctx, action, nr, &cmp[0], 1, &row->if2);
	return seccomp_rule_add_array(ctx, action, nr, (unsigned int)n, cmp);
}

/* libseccomp writes the program to a descriptor only. */
int
filter_export(scmp_filter_ctx ctx, struct sock_fprog *prog)
{
	off_t size;
	ssize_t n;
	void *p;
	int fd;

	if ((fd = (int)syscall(SYS_memfd_create, "filter", 1U)) == -1)
		return -1;
	if (seccomp_export_bpf(ctx, fd) < 0 ||
	    (size = lseek(fd, 0, SEEK_END)) <= 0 ||
	    size % (off_t)sizeof(struct sock_filter) != 0 ||
	    size / (off_t)sizeof(struct sock_filter) > 4096) {
		close(fd);
		return -1;
	}
	p = xmalloc((size_t)size);
	n = pread(fd, p, (size_t)size, 0);
	close(fd);
	if (n != size) {
		free(p);
		return -1;
	}
	prog->filter = p;
	prog->len = (unsigned short)(size / (off_t)sizeof(struct sock_filter));
	return 0;
}

int
filter_compile(struct sock_fprog *prog, uint32_t arch, int mapped, char **error)
{
	scmp_filter_ctx ctx;
	size_t i;
	int foreign, r = 0;

	if ((ctx = seccomp_init(SCMP_ACT_ALLOW)) == NULL) {
		*error = xstrdup("seccomp: cannot make a filter");
		return -1;
	}
	foreign = arch != 0 && arch != seccomp_arch_native();
	if (foreign &&
	    ((r = seccomp_arch_add(ctx, arch)) < 0 ||
		(r = seccomp_arch_remove(ctx, SCMP_ARCH_NATIVE)) < 0)) {
		*error = xasprintf("seccomp: architecture: %s", strerror(-r));
		seccomp_release(ctx);
		return -1;
	}
	/* 32-bit and x32 entry points are refused, not killed. */
	(void)seccomp_attr_set(
	    ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	(void)seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	for (i = 0; i < filter_nrows; i++) {
		if (filter_rows[i].mapped && !mapped)
			continue;
		/* The library cannot translate numbers that it does not know.
		 */
		if ((r = add_row(ctx, &filter_rows[i])) == -EFAULT && foreign)
			r = 0;
		if (r < 0) {
			*error = xasprintf("seccomp: rule for %s: %s",
			    filter_rows[i].name, strerror(-r));
			break;
		}
	}
	if (r >= 0 && (r = filter_export(ctx, prog)) == -1)
		*error = xstrdup("seccomp: cannot export the filter");
	seccomp_release(ctx);
	return r < 0 ? -1 : 0;
}

/*
 * No part of a sandbox makes one of these, and commands get the same error
 * from their own filter.
 */
static const char *const never[] = { "acct", "add_key", "adjtimex", "bpf",
	"clock_adjtime", "clock_settime", "delete_module", "fanotify_init",
	"finit_module", "init_module", "ioperm", "iopl", "kexec_file_load",
	"kexec_load", "keyctl", "lookup_dcookie", "migrate_pages", "move_pages",
	"open_by_handle_at", "perf_event_open", "quotactl", "reboot",
	"request_key", "settimeofday", "swapoff", "swapon", "syslog",
	"userfaultfd", "vhangup" };

static int
is_never(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		if (strcmp(never[i], name) == 0)
			return 1;
	return 0;
}

int
filter_compile_spawner(struct sock_fprog *prog, char **error)
{
	scmp_filter_ctx ctx;
	size_t i;
	int r = 0;

	if ((ctx = seccomp_init(SCMP_ACT_ALLOW)) == NULL) {
		*error = xstrdup("seccomp: cannot make a filter");
		return -1;
	}
	(void)seccomp_attr_set(
	    ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	(void)seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	for (i = 0; r >= 0 && i < filter_nrows; i++)
		if (is_never(filter_rows[i].name))
			r = add_row(ctx, &filter_rows[i]);
	if (r < 0 || (r = filter_export(ctx, prog)) == -1)
		*error = xstrdup("seccomp: cannot make the spawner's filter");
	seccomp_release(ctx);
	return r < 0 ? -1 : 0;
}

int
filter_install(const struct sock_fprog *prog)
{
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, prog);
}
