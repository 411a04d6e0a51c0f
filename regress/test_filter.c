#include "config.h"

#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <seccomp.h>

#include "buf.h"
#include "filter.h"
#include "harness.h"
#include "log.h"

/*
 * The filter of commands, call by call: this table says what each call must
 * get, written down apart from the filter's own. The compiled program is
 * interpreted for this machine's architecture and for the other supported
 * one; then a command makes the calls that are refused whatever their
 * arguments.
 */
#define ALLOWED 0
#define MAPPED  1 /* only in id-mapped roots */
#define IGNORED (-1) /* succeeds without effect */

struct call {
	const char *name;
	int number; /* where the C library's table may be too old for it */
	int error; /* or ALLOWED */
	int mapped;
	uint64_t arg[4];
};

static const struct call always[] = {
	{ "clone3", 435, ENOSYS, 0, { 0 } },
	{ "setns", 0, EPERM, 0, { 0 } },
	{ "mount", 0, EPERM, 0, { 0 } },
	{ "umount2", 0, EPERM, 0, { 0 } },
	{ "pivot_root", 0, EPERM, 0, { 0 } },
	{ "chroot", 0, EPERM, 0, { 0 } },
	{ "open_tree", 428, ENOSYS, 0, { 0 } },
	{ "move_mount", 429, ENOSYS, 0, { 0 } },
	{ "fsopen", 430, ENOSYS, 0, { 0 } },
	{ "fsconfig", 431, ENOSYS, 0, { 0 } },
	{ "fsmount", 432, ENOSYS, 0, { 0 } },
	{ "fspick", 433, ENOSYS, 0, { 0 } },
	{ "mount_setattr", 442, ENOSYS, 0, { 0 } },
	{ "statmount", 457, ENOSYS, 0, { 0 } },
	{ "listmount", 458, ENOSYS, 0, { 0 } },
	{ "open_tree_attr", 467, ENOSYS, 0, { 0 } },
	{ "open_by_handle_at", 0, EPERM, 0, { 0 } },
	{ "name_to_handle_at", 0, EPERM, 0, { 0 } },
	{ "bpf", 0, EPERM, 0, { 0 } },
	{ "perf_event_open", 0, EPERM, 0, { 0 } },
	{ "userfaultfd", 0, EPERM, 0, { 0 } },
	{ "io_uring_setup", 425, ENOSYS, 0, { 0 } },
	{ "io_uring_enter", 426, ENOSYS, 0, { 0 } },
	{ "io_uring_register", 427, ENOSYS, 0, { 0 } },
	{ "keyctl", 0, EPERM, 0, { 0 } },
	{ "add_key", 0, EPERM, 0, { 0 } },
	{ "request_key", 0, EPERM, 0, { 0 } },
	{ "init_module", 0, EPERM, 0, { 0 } },
	{ "finit_module", 0, EPERM, 0, { 0 } },
	{ "delete_module", 0, EPERM, 0, { 0 } },
	{ "kexec_load", 0, EPERM, 0, { 0 } },
	{ "kexec_file_load", 0, EPERM, 0, { 0 } },
	{ "reboot", 0, EPERM, 0, { 0 } },
	{ "swapon", 0, EPERM, 0, { 0 } },
	{ "swapoff", 0, EPERM, 0, { 0 } },
	{ "acct", 0, EPERM, 0, { 0 } },
	{ "syslog", 0, EPERM, 0, { 0 } },
	{ "quotactl", 0, EPERM, 0, { 0 } },
	{ "quotactl_fd", 443, ENOSYS, 0, { 0 } },
	{ "settimeofday", 0, EPERM, 0, { 0 } },
	{ "clock_settime", 0, EPERM, 0, { 0 } },
	{ "adjtimex", 0, EPERM, 0, { 0 } },
	{ "clock_adjtime", 0, EPERM, 0, { 0 } },
	{ "lookup_dcookie", 0, EPERM, 0, { 0 } },
	{ "vhangup", 0, EPERM, 0, { 0 } },
	{ "fanotify_init", 0, EPERM, 0, { 0 } },
	{ "lsm_set_self_attr", 460, ENOSYS, 0, { 0 } },
	{ "process_madvise", 440, EPERM, 0, { 0 } },
	{ "migrate_pages", 0, EPERM, 0, { 0 } },
	{ "move_pages", 0, EPERM, 0, { 0 } },
	{ "kcmp", 0, EPERM, 0, { 0 } },
	{ "memfd_secret", 447, ENOSYS, 0, { 0 } },
	{ "listns", 470, ENOSYS, 0, { 0 } },
#ifdef __x86_64__
	{ "uselib", 0, ENOSYS, 0, { 0 } },
	{ "iopl", 0, EPERM, 0, { 0 } },
	{ "ioperm", 0, EPERM, 0, { 0 } },
#endif
};

#define UID 04755
#define GID 02755

static const struct call with_arguments[] = {
	{ "clone", 0, EPERM, 0, { CLONE_NEWUSER | SIGCHLD } },
	{ "clone", 0, EPERM, 0, { CLONE_NEWNS | SIGCHLD } },
	{ "clone", 0, EPERM, 0, { CLONE_NEWPID } },
	{ "clone", 0, EPERM, 0, { CLONE_NEWNET } },
	{ "clone", 0, EPERM, 0, { CLONE_NEWIPC } },
	{ "clone", 0, EPERM, 0, { CLONE_NEWUTS } },
	{ "clone", 0, EPERM, 0, { CLONE_NEWCGROUP } },
	{ "clone", 0, EPERM, 0, { CLONE_NEWUSER | 0xffffffff00000000 } },
	{ "clone", 0, ALLOWED, 0, { SIGCHLD } },
	{ "clone", 0, ALLOWED, 0,
	    { CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
		CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
		CLONE_CHILD_CLEARTID | CLONE_DETACHED } },
	{ "unshare", 0, EPERM, 0, { CLONE_NEWUSER } },
	{ "unshare", 0, EPERM, 0, { CLONE_NEWNS | CLONE_FS } },
	{ "unshare", 0, EPERM, 0, { CLONE_NEWPID } },
	{ "unshare", 0, EPERM, 0, { CLONE_NEWNET } },
	{ "unshare", 0, EPERM, 0, { CLONE_NEWIPC } },
	{ "unshare", 0, EPERM, 0, { CLONE_NEWUTS } },
	{ "unshare", 0, EPERM, 0, { CLONE_NEWCGROUP } },
	{ "unshare", 0, EPERM, 0, { 0x80 } },
	{ "unshare", 0, ALLOWED, 0, { CLONE_FS | CLONE_FILES } },
	{ "ioctl", 0, EPERM, 0, { 0, TIOCSTI } },
	{ "ioctl", 0, EPERM, 0, { 0, TIOCSTI | 0x100000000 } },
	{ "ioctl", 0, EPERM, 0, { 0, 0x541C } },
	{ "ioctl", 0, EPERM, 0, { 0, TIOCSETD } },
	{ "ioctl", 0, ALLOWED, 0, { 0, TIOCGETD } },
	{ "ioctl", 0, ALLOWED, 0, { 0, TIOCGWINSZ } },
	{ "ioctl", 0, ALLOWED, 0, { 0, FIONREAD } },
	{ "socket", 0, EPERM, 0, { AF_UNIX, SOCK_DGRAM } },
	{ "socket", 0, EPERM, 0, { AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC } },
	{ "socket", 0, EPERM, 0, { AF_UNIX, SOCK_RAW | SOCK_NONBLOCK } },
	{ "socket", 0, EPERM, 0, { AF_UNIX | 0x100000000, SOCK_DGRAM } },
	{ "socket", 0, ALLOWED, 0, { AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC } },
	{ "socket", 0, ALLOWED, 0, { AF_UNIX, SOCK_SEQPACKET } },
	{ "socket", 0, ALLOWED, 0, { AF_INET, SOCK_STREAM } },
	{ "socket", 0, ALLOWED, 0, { AF_INET, SOCK_DGRAM } },
	{ "socket", 0, ALLOWED, 0, { AF_INET6, SOCK_STREAM } },
	{ "socket", 0, ALLOWED, 0, { AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC } },
	{ "socket", 0, ALLOWED, 0, { AF_INET | 0x1100000000, SOCK_STREAM } },
	{ "socket", 0, ALLOWED, 0, { AF_INET, SOCK_DGRAM, 1 /* ICMP */ } },
	{ "socket", 0, ALLOWED, 0, { AF_INET, SOCK_STREAM, 262 /* MPTCP */ } },
	{ "socket", 0, EPERM, 0, { AF_INET, SOCK_RAW, 255 } },
	{ "socket", 0, EPERM, 0, { AF_INET, SOCK_RAW | SOCK_CLOEXEC, 1 } },
	{ "socket", 0, EPERM, 0, { AF_INET, 10 /* SOCK_PACKET */, 0x300 } },
	{ "socket", 0, EPERM, 0, { AF_INET6, SOCK_RAW | SOCK_NONBLOCK, 58 } },
	{ "socket", 0, EPROTONOSUPPORT, 0, { AF_INET, SOCK_STREAM, 132 } },
	{ "socket", 0, EPROTONOSUPPORT, 0, { AF_INET6, SOCK_SEQPACKET, 132 } },
	{ "socket", 0, EPROTONOSUPPORT, 0, { AF_INET, 6 /* DCCP */, 33 } },
	{ "socket", 0, EPROTONOSUPPORT, 0, { AF_INET, SOCK_DGRAM, 115 } },
	{ "socket", 0, EPROTONOSUPPORT, 0, { AF_INET, SOCK_STREAM, 256 } },
	{ "socket", 0, ALLOWED, 0, { AF_NETLINK, SOCK_RAW } },
	{ "socket", 0, ALLOWED, 0, { AF_NETLINK, SOCK_DGRAM, 0x100000000 } },
	{ "socket", 0, EPROTONOSUPPORT, 0, { AF_NETLINK, SOCK_RAW, 4 } },
	{ "socket", 0, EPROTONOSUPPORT, 0, { AF_NETLINK, SOCK_DGRAM, 16 } },
	{ "socket", 0, EPROTONOSUPPORT, 0,
	    { AF_NETLINK, SOCK_RAW, 0xffffffff } },
	{ "socketpair", 0, ALLOWED, 0, { AF_UNIX, SOCK_STREAM } },
	{ "socketpair", 0, EOPNOTSUPP, 0, { AF_TIPC, SOCK_STREAM } },
	{ "socketpair", 0, EOPNOTSUPP, 0, { AF_INET, SOCK_STREAM } },
	{ "socket", 0, EAFNOSUPPORT, 0, { AF_PACKET, SOCK_RAW } },
	{ "socket", 0, EAFNOSUPPORT, 0, { 40, SOCK_STREAM } },
	{ "socket", 0, EAFNOSUPPORT, 0, { AF_KEY, SOCK_RAW } },
	{ "socket", 0, EAFNOSUPPORT, 0, { AF_BLUETOOTH, SOCK_RAW } },
	{ "socket", 0, EAFNOSUPPORT, 0, { AF_CAN, SOCK_RAW } },
	{ "socket", 0, EAFNOSUPPORT, 0, { AF_TIPC, SOCK_STREAM } },
	{ "socket", 0, EAFNOSUPPORT, 0, { AF_ALG, SOCK_SEQPACKET } },
	{ "socket", 0, EAFNOSUPPORT, 0, { AF_RDS, SOCK_SEQPACKET } },
	{ "socket", 0, EAFNOSUPPORT, 0, { AF_NFC, SOCK_STREAM } },
	/* set-id bits */
	{ "fchmod", 0, EPERM, MAPPED, { 3, UID } },
	{ "fchmod", 0, EPERM, MAPPED, { 3, GID } },
	{ "fchmod", 0, ALLOWED, 0, { 3, 01777 } },
	{ "fchmodat", 0, EPERM, MAPPED, { 3, 0, UID } },
	{ "fchmodat", 0, EPERM, MAPPED, { 3, 0, GID } },
	{ "fchmodat", 0, ALLOWED, 0, { 3, 0, 0755 } },
	{ "fchmodat2", 452, EPERM, MAPPED, { 3, 0, UID } },
	{ "fchmodat2", 452, EPERM, MAPPED, { 3, 0, GID } },
	{ "mknodat", 0, EPERM, MAPPED, { 3, 0, UID } },
	{ "mknodat", 0, EPERM, MAPPED, { 3, 0, GID } },
	{ "openat", 0, EPERM, MAPPED, { 3, 0, O_CREAT | O_WRONLY, UID } },
	{ "openat", 0, EPERM, MAPPED, { 3, 0, O_CREAT | O_WRONLY, GID } },
	{ "openat", 0, EPERM, MAPPED, { 3, 0, O_TMPFILE | O_RDWR, UID } },
	{ "openat", 0, ALLOWED, 0, { 3, 0, O_CREAT | O_WRONLY, 0755 } },
	{ "openat", 0, ALLOWED, 0, { 3, 0, O_WRONLY, UID } },
	{ "openat2", 437, ENOSYS, MAPPED, { 0 } },
	{ "setxattrat", 463, ENOSYS, MAPPED, { 0 } },
#ifdef __x86_64__
	{ "chmod", 0, EPERM, MAPPED, { 0, UID } },
	{ "chmod", 0, EPERM, MAPPED, { 0, GID } },
	{ "creat", 0, EPERM, MAPPED, { 0, UID } },
	{ "creat", 0, EPERM, MAPPED, { 0, GID } },
	{ "mknod", 0, EPERM, MAPPED, { 0, UID } },
	{ "mknod", 0, EPERM, MAPPED, { 0, GID } },
	{ "open", 0, EPERM, MAPPED, { 0, O_CREAT, UID } },
	{ "open", 0, EPERM, MAPPED, { 0, O_CREAT, GID } },
	{ "open", 0, EPERM, MAPPED, { 0, O_TMPFILE, GID } },
	{ "open", 0, ALLOWED, 0, { 0, O_CREAT, 0700 } },
#endif
	/* what ordinary tools need */
	{ "setrlimit", 0, IGNORED, 0, { RLIMIT_CORE, 1 } },
	{ "setrlimit", 0, IGNORED, 0, { RLIMIT_CORE | 0x100000000, 0 } },
	{ "setrlimit", 0, ALLOWED, 0, { RLIMIT_NOFILE, 1 } },
	{ "prlimit64", 0, IGNORED, 0, { 0, RLIMIT_CORE, 1 } },
	{ "prlimit64", 0, IGNORED, 0, { 0, RLIMIT_CORE, 0x100000000 } },
	{ "prlimit64", 0, ALLOWED, 0, { 0, RLIMIT_CORE, 0, 1 } },
	{ "prlimit64", 0, ALLOWED, 0, { 0, RLIMIT_NOFILE, 1 } },
	{ "ptrace", 0, ALLOWED, 0, { 0 } },
	{ "execve", 0, ALLOWED, 0, { 0 } },
	{ "connect", 0, ALLOWED, 0, { 0 } },
	{ "personality", 0, ALLOWED, 0, { 0x40000 } },
	{ "memfd_create", 0, ALLOWED, 0, { 0 } },
	{ "pidfd_open", 434, ALLOWED, 0, { 0 } },
	{ "inotify_init1", 0, ALLOWED, 0, { 0 } },
	{ "fsync", 0, ALLOWED, 0, { 0 } },
	{ "setpriority", 0, ALLOWED, 0, { 0 } },
	{ "landlock_create_ruleset", 444, ALLOWED, 0, { 0 } },
	{ "landlock_restrict_self", 446, ALLOWED, 0, { 0 } },
	/* new ones that ordinary programs use, and ones of debuggers: the
	 * kernel checks them as it checks ptrace */
	{ "mseal", 462, ALLOWED, 0, { 0 } },
	{ "cachestat", 451, ALLOWED, 0, { 0 } },
	{ "futex_waitv", 449, ALLOWED, 0, { 0 } },
	{ "close_range", 436, ALLOWED, 0, { 0 } },
	{ "faccessat2", 439, ALLOWED, 0, { 0 } },
	{ "epoll_pwait2", 441, ALLOWED, 0, { 0 } },
	{ "statx", 332, ALLOWED, 0, { 0 } },
	{ "rseq", 334, ALLOWED, 0, { 0 } },
	{ "process_vm_readv", 0, ALLOWED, 0, { 0 } },
	{ "process_vm_writev", 0, ALLOWED, 0, { 0 } },
	{ "pidfd_getfd", 438, ALLOWED, 0, { 0 } },
	{ "pidfd_send_signal", 424, ALLOWED, 0, { 0 } },
	{ "seccomp", 0, ALLOWED, 0, { 0 } },
};

#define COUNT(t) (sizeof(t) / sizeof((t)[0]))

/* ---- classic BPF, as far as a seccomp filter uses it ---- */

static uint32_t
interpret(const struct sock_fprog *prog, const struct seccomp_data *data)
{
	uint32_t a = 0, v;
	size_t pc = 0;

	for (;;) {
		const struct sock_filter *f;
		int taken;

		assert_true(pc < prog->len);
		f = &prog->filter[pc++];
		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			assert_true(f->k <= sizeof(*data) - sizeof(v));
			memcpy(&v, (const char *)data + f->k, sizeof(v));
			a = v;
			continue;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= f->k;
			continue;
		case BPF_JMP | BPF_JA:
			pc += f->k;
			continue;
		case BPF_RET | BPF_K:
			return f->k;
		case BPF_JMP | BPF_JEQ | BPF_K:
			taken = a == f->k;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			taken = a > f->k;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			taken = a >= f->k;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			taken = (a & f->k) != 0;
			break;
		default:
			fail_msg("instruction %#x", f->code);
			return 0;
		}
		pc += taken ? f->jt : f->jf;
	}
}

static uint32_t
audit_arch(uint32_t arch)
{
	return arch == SCMP_ARCH_AARCH64 ? AUDIT_ARCH_AARCH64
					 : AUDIT_ARCH_X86_64;
}

static int
number_of(uint32_t arch, const struct call *c)
{
	int nr = seccomp_syscall_resolve_name_arch(arch, c->name);

	if (nr < 0 && arch == seccomp_arch_native() && c->number > 0)
		return c->number;
	return nr;
}

static void
expect(const struct sock_fprog *prog, uint32_t arch, int mapped,
    const struct call *c)
{
	struct seccomp_data data;
	uint32_t want, got;
	int nr;

	/* chmod, open and others exist on x86-64 only */
	if ((nr = number_of(arch, c)) < 0)
		return;
	memset(&data, 0, sizeof(data));
	data.nr = nr;
	data.arch = audit_arch(arch);
	memcpy(data.args, c->arg, sizeof(c->arg));
	got = interpret(prog, &data);
	if (c->error == ALLOWED || (c->mapped && !mapped))
		want = SECCOMP_RET_ALLOW;
	else
		want = SECCOMP_RET_ERRNO |
		    (uint32_t)(c->error == IGNORED ? 0 : c->error);
	if (got != want)
		fail_msg("%s(%#llx, %#llx, %#llx, %#llx): %#x, not %#x",
		    c->name, (unsigned long long)c->arg[0],
		    (unsigned long long)c->arg[1],
		    (unsigned long long)c->arg[2],
		    (unsigned long long)c->arg[3], got, want);
}

/* Every number that is not a family in use is refused as one. */
static void
every_family(const struct sock_fprog *prog, uint32_t arch)
{
	static const uint32_t far[] = { 255, 256, 4096, 0x7fffffff, 0x80000000,
		0xffffffff };
	struct call c = { "socket", 0, 0, 0, { 0, SOCK_STREAM } };
	uint32_t i;

	for (i = 1; i < 64 + COUNT(far); i++) {
		c.arg[0] = i < 64 ? i : far[i - 64];
		c.error = i == AF_UNIX || i == AF_INET || i == AF_INET6 ||
			i == AF_NETLINK
		    ? ALLOWED
		    : EAFNOSUPPORT;
		expect(prog, arch, 0, &c);
	}
}

static void
every_call(uint32_t arch, int mapped)
{
	struct sock_fprog prog;
	struct call c;
	char *error = NULL;
	size_t i, k;

	if (filter_compile(&prog, arch, mapped, &error) == -1)
		fail_msg("%s", error);
	for (i = 0; i < COUNT(always); i++) {
		c = always[i];
		expect(&prog, arch, mapped, &c);
		for (k = 0; k < COUNT(c.arg); k++)
			c.arg[k] = 0xffffffffffffffff;
		expect(&prog, arch, mapped, &c);
	}
	for (i = 0; i < COUNT(with_arguments); i++)
		expect(&prog, arch, mapped, &with_arguments[i]);
	every_family(&prog, arch);
	free(prog.filter);
}

static void
every_call_gets_its_answer(void **state)
{
	(void)state;
	every_call(SCMP_ARCH_X86_64, 0);
	every_call(SCMP_ARCH_X86_64, 1);
}

static void
every_call_gets_its_answer_on_aarch64(void **state)
{
	(void)state;
	every_call(SCMP_ARCH_AARCH64, 0);
	every_call(SCMP_ARCH_AARCH64, 1);
}

/* Every row of the filter is in this file's tables. */
static void
no_rule_is_untested(void **state)
{
	size_t i, k, found;

	(void)state;
	for (i = 0; i < filter_nrows; i++) {
		const char *name = filter_rows[i].name;

		found = strcmp(name, "umount") == 0 || /* old 32-bit call */
		    strcmp(name, "nfsservctl") == 0; /* likewise */
		for (k = 0; k < COUNT(always); k++)
			found += strcmp(name, always[k].name) == 0;
		for (k = 0; k < COUNT(with_arguments); k++)
			found += strcmp(name, with_arguments[k].name) == 0;
#ifndef __x86_64__
		if (number_of(seccomp_arch_native(),
			&(struct call){ name, 0, 0, 0, { 0 } }) < 0)
			continue;
#endif
		if (found == 0)
			fail_msg("%s", name);
	}
}

/* No other architecture's entry point leads past the filter. */
static void
other_architectures_are_refused(void **state)
{
	static const struct {
		uint32_t arch;
		int number;
	} t[] = {
		{ AUDIT_ARCH_I386, 21 /* mount */ },
		{ AUDIT_ARCH_I386, 20 /* getpid */ },
		{ AUDIT_ARCH_ARM, 21 },
		{ AUDIT_ARCH_AARCH64, 40 },
		{ AUDIT_ARCH_X86_64, 0x40000000 | 39 /* x32 getpid */ },
		{ AUDIT_ARCH_X86_64, 0x40000000 | 165 /* x32 mount */ },
	};
	struct sock_fprog prog;
	struct seccomp_data data;
	char *error = NULL;
	size_t i;

	(void)state;
	if (filter_compile(&prog, SCMP_ARCH_X86_64, 0, &error) == -1)
		fail_msg("%s", error);
	for (i = 0; i < COUNT(t); i++) {
		memset(&data, 0, sizeof(data));
		data.arch = t[i].arch;
		data.nr = t[i].number;
		if (interpret(&prog, &data) != (SECCOMP_RET_ERRNO | ENOSYS))
			fail_msg("row %zu", i);
	}
	free(prog.filter);
}

/* And a command that makes the calls gets the same answers. */
static void
commands_are_refused_each_call(void **state)
{
	uint32_t arch = seccomp_arch_native();
	struct harness h;
	struct answer a;
	struct buf cmd, want;
	size_t i;
	int nr;

	(void)state;
	harness_init(&h, 1);
	copy_program(&h, "ATTACK", h.roots[0], "attack");
	if (harness_start(&h) == -1)
		fail_msg("%s", h.failed);
	buf_init(&cmd);
	buf_init(&want);
	buf_adds(&cmd, "./attack calls");
	for (i = 0; i < COUNT(always); i++) {
		if ((nr = number_of(arch, &always[i])) < 0)
			continue;
		buf_addf(&cmd, " %d", nr);
		buf_addf(&want, "%d %s\n", nr,
		    always[i].error == EPERM ? "EPERM" : "ENOSYS");
	}
	assert_int_equal(harness_run(&h, 0, buf_cstr(&cmd), &a), 0);
	assert_true(a.ok);
	assert_int_equal(a.result.exit_code, 0);
	assert_int_equal(a.result.out.len, want.len);
	assert_memory_equal(a.result.out.data, want.data, want.len);
	answer_free(&a);
	buf_free(&cmd);
	buf_free(&want);
	harness_stop(&h);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_gets_its_answer),
		cmocka_unit_test(every_call_gets_its_answer_on_aarch64),
		cmocka_unit_test(no_rule_is_untested),
		cmocka_unit_test(other_architectures_are_refused),
		cmocka_unit_test(commands_are_refused_each_call),
	};

	log_init("test", 0);
	return cmocka_run_group_tests_name("filter", tests, NULL, NULL);
}
