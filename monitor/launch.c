#include "config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "buf.h"
#include "error.h"
#include "launch.h"
#include "leftover.h"
#include "log.h"
#include "monitor.h"
#include "mountinfo.h"
#include "msg.h"
#include "size.h"

extern char **environ;

static void
add_dir(struct monitor *m, const char *dir)
{
	size_t i;

	for (i = 0; i < m->ndirs; i++)
		if (strcmp(m->dirs[i], dir) == 0)
			return;
	m->dirs = xreallocarray(m->dirs, m->ndirs + 1, sizeof(*m->dirs));
	m->dirs[m->ndirs++] = xstrdup(dir);
}

/* The directories that the monitor keeps using. */
static int
collect_dirs(struct monitor *m, char **error)
{
	struct place p;
	size_t i;

	for (i = 0; i < m->roots->n; i++)
		if (m->roots->list[i].marker.place.dir != NULL)
			add_dir(m, m->roots->list[i].marker.place.dir);
	if (!m->settings->paired)
		return 0;
	if (place_open(m->settings->identity_path, 0, &p, error) != STORAGE_OK)
		return -1;
	add_dir(m, p.dir);
	place_close(&p);
	return 0;
}

/* In the directories that are written to; the lock is held. */
static void
remove_leftovers(struct monitor *m)
{
	struct place p;
	char *why = NULL;
	size_t i;

	for (i = 0; i < m->roots->n; i++)
		if (m->roots->list[i].marker.place.fd != -1)
			(void)leftovers_remove(&m->roots->list[i].marker.place);
	if (!m->settings->paired)
		return;
	if (place_open(m->settings->identity_path, 0, &p, &why) == STORAGE_OK) {
		(void)leftovers_remove(&p);
		place_close(&p);
	}
	free(why);
}

static void
make_incarnation(struct monitor *m)
{
	unsigned char raw[18];

	randombytes_buf(raw, sizeof(raw));
	sodium_bin2base64(m->incarnation, sizeof(m->incarnation), raw,
	    sizeof(raw), sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

static void
make_guards(struct monitor *m)
{
	size_t i;

	m->guards = xcalloc(m->roots->n + 1, sizeof(*m->guards));
	for (i = 0; i < m->roots->n; i++)
		m->guards[i].root = &m->roots->list[i];
}

int
launch_prepare(struct monitor *m, char **error)
{
	if (collect_dirs(m, error) == -1)
		return -1;
	remove_leftovers(m);
	m->mountinfo = mountinfo_open();
	make_incarnation(m);
	make_guards(m);
	return 0;
}

void
launch_free(struct monitor *m)
{
	size_t i;

	for (i = 0; m->guards != NULL && i < m->roots->n; i++)
		guard_free(&m->guards[i]);
	free(m->guards);
	for (i = 0; i < m->ndirs; i++)
		free(m->dirs[i]);
	free(m->dirs);
	account_free(&m->account);
	if (m->mountinfo != -1)
		close(m->mountinfo);
	cgroup_stop(&m->cgroups);
}

static char *
processes_text(const struct settings *s)
{
	return s->processes == 0
	    ? xstrdup("any number of processes")
	    : xasprintf("%lu processes", (unsigned long)s->processes);
}

void
launch_limits(struct monitor *m, int debug)
{
	const struct settings *s = m->settings;
	struct cgroup_limits l = { s->memory_bytes, s->processes };
	int root = geteuid() == 0;
	char *why = NULL, *memory, *processes;

	if (!s->allow_commands)
		return;
	processes = processes_text(s);
	if (cgroup_start(&m->cgroups, &cgroup_here, &l, m->roots->n,
		root ? m->account.uid : (uid_t)-1,
		root ? m->account.gid : (gid_t)-1, &why) == -1)
		memory = xasprintf("memory without a limit (%s)", why);
	else if (s->memory_bytes == 0)
		memory = xstrdup("memory without a limit");
	else {
		why = size_text(s->memory_bytes);
		memory = xasprintf("%s of memory", why);
	}
	(debug ? log_debug : log_info)(
	    "commands of a workspace may use %s, %s", processes, memory);
	free(why);
	free(memory);
	free(processes);
}

static void
bridge_config(
    struct monitor *m, unsigned int role, const char *session, struct buf *b)
{
	struct settings *s = m->settings;
	struct bridge_config c;
	struct root *r;
	size_t i;

	memset(&c, 0, sizeof(c));
	c.role = (uint8_t)role;
	c.session = (char *)(uintptr_t)session;
	c.auth = s->paired ? AUTH_PAIRED : AUTH_STATIC;
	c.verbose = (uint8_t)(s->verbose > 255 ? 255 : s->verbose);
	c.base_url = s->url.base;
	c.worker_id = s->worker;
	c.incarnation = m->incarnation;
	c.credential = s->paired ? s->identity.credential.data : s->token.data;
	c.expires = s->paired ? s->identity.expires : 0;
	c.sandbox_profile = s->profile;
	c.runtimes = s->runtimes;
	c.nruntimes = s->nruntimes;
	c.policy_digest = s->digest;
	c.lease_slots = (uint8_t)s->lease_slots;
	c.nworkspaces = m->roots->n;
	c.workspaces = xcalloc(c.nworkspaces, sizeof(*c.workspaces));
	for (i = 0; i < c.nworkspaces; i++) {
		r = &m->roots->list[i];
		c.workspaces[i].id = r->id;
		c.workspaces[i].name = r->name;
		c.workspaces[i].operations = r->operations;
		c.workspaces[i].quarantined = (uint8_t)r->quarantined;
	}
	c.ca_file = s->ca_file;
	c.https_proxy = s->https_proxy;
	c.http_proxy = s->http_proxy;
	c.all_proxy = s->all_proxy;
	c.no_proxy = s->no_proxy;
	bridge_config_build(b, &c);
	free(c.workspaces);
}

/* Names of variables that commands get from the monitor (native-sandbox 7). */
static int
passed_on(const char *entry)
{
	static const char *const names[] = { "COLORTERM", "LANG", "NO_COLOR",
		"PATH", "TERM" };
	const char *eq = strchr(entry, '=');
	size_t i, n;

	if (eq == NULL || eq[1] == '\0')
		return 0;
	n = (size_t)(eq - entry);
	if (n > 3 && strncmp(entry, "LC_", 3) == 0)
		return strspn(entry, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == n;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == n && strncmp(entry, names[i], n) == 0)
			return 1;
	return 0;
}

#define ENV_LIMIT 60

static char **
command_environment(const struct account *a, size_t *n)
{
	char **list, **e;
	int path = 0;

	list = xcalloc(ENV_LIMIT, sizeof(*list));
	*n = 0;
	list[(*n)++] = xasprintf("HOME=%s", a->home);
	list[(*n)++] = xasprintf("USER=%s", a->name);
	list[(*n)++] = xasprintf("LOGNAME=%s", a->name);
	list[(*n)++] = xstrdup("SHELL=/bin/bash");
	for (e = environ; e != NULL && *e != NULL; e++) {
		if (!passed_on(*e) || *n == ENV_LIMIT - 1)
			continue;
		path |= strncmp(*e, "PATH=", 5) == 0;
		list[(*n)++] = xstrdup(*e);
	}
	if (!path)
		list[(*n)++] = xstrdup("PATH=/usr/local/bin:/usr/bin:/bin");
	return list;
}

static int
executor_config(struct monitor *m, struct buf *b, char **error)
{
	struct executor_config c;

	memset(&c, 0, sizeof(c));
	if (roots_hidden(m->roots, m->settings, &m->account, &c.hidden,
		&c.nhidden, error) == -1)
		return -1;
	c.verbose = (uint8_t)(m->settings->verbose > 255
		? 255
		: m->settings->verbose);
	c.uid = m->account.uid;
	c.gid = m->account.gid;
	c.user = xstrdup(m->account.name);
	c.home = xstrdup(m->account.home);
	c.env = command_environment(&m->account, &c.nenv);
	c.tmp_bytes = m->settings->tmp_bytes;
	c.home_bytes = m->settings->tmp_bytes;
	c.protection = (uint8_t)m->settings->protection;
	c.processes = m->settings->processes;
	c.memory_bytes = m->settings->memory_bytes;
	/* exec has one directory and no such setting. */
	c.slots = m->settings->lease_slots == 0
	    ? 1
	    : (uint8_t)m->settings->lease_slots;
	c.nroots = (uint32_t)m->roots->n;
	c.groups = m->cgroups.path != NULL;
	executor_config_build(b, &c);
	executor_config_free(&c);
	return 0;
}

static void
compose(struct helper *h, uint32_t type, int fd, struct buf *b)
{
	imsg_compose(&h->proc.ib, type, 0, fd, b->data, b->len);
	buf_wipe(b);
}

static void
compose_roots(struct monitor *m)
{
	struct root_config c;
	struct root *r;
	struct buf b;
	size_t i;

	buf_init(&b);
	for (i = 0; i < m->roots->n; i++) {
		r = &m->roots->list[i];
		memset(&c, 0, sizeof(c));
		c.index = (uint32_t)i;
		c.id = r->id;
		c.path = r->path;
		c.operations = r->operations;
		c.mount = (uint8_t)r->mount;
		root_config_build(&b, &c);
		compose(&m->executor, MSG_ROOT, r->fd, &b);
		r->fd = -1;
	}
}

/* The executor has them as long as it lives, this process to remove them. */
static int
compose_groups(struct monitor *m, char **error)
{
	struct cgroup_config c;
	struct buf b;
	size_t i;
	int fd;

	buf_init(&b);
	for (i = 0; i < m->cgroups.n; i++) {
		c.index = (uint32_t)i;
		fd = fcntl(m->cgroups.groups[i], F_DUPFD_CLOEXEC, 0);
		if (fd == -1)
			return error_errno(error, "control groups");
		cgroup_config_build(&b, &c);
		compose(&m->executor, MSG_CGROUP, fd, &b);
	}
	return 0;
}

static int
start_helper(struct helper *h, const char *name, const char *program,
    const struct account *as, char **error)
{
	h->name = name;
	if (proc_start(&h->proc, program, as, error) == -1)
		return -1;
	h->started = 1;
	return 0;
}

int
launch_executor(struct monitor *m, int channel, char **error)
{
	struct buf b;

	buf_init(&b);
	if (executor_config(m, &b, error) == -1) {
		close(channel);
		return STATUS_CONFIG;
	}
	if (start_helper(&m->executor, "executor", "librechat-code-executor",
		geteuid() == 0 ? &m->account : NULL, error) == -1) {
		close(channel);
		buf_wipe(&b);
		return STATUS_ERROR;
	}
	compose(&m->executor, MSG_CONFIG, channel, &b);
	compose_roots(m);
	if (compose_groups(m, error) == -1)
		return STATUS_ERROR;
	return STATUS_OK;
}

int
launch_bridge(struct monitor *m, unsigned int role, int channel,
    const char *session, char **error)
{
	struct account a;
	struct buf b;
	int r, root = geteuid() == 0;

	memset(&a, 0, sizeof(a));
	if (root && account_privsep(&a, error) == -1) {
		if (channel != -1)
			close(channel);
		return STATUS_CONFIG;
	}
	r = start_helper(&m->bridge, "bridge", "librechat-code-bridge",
	    root ? &a : NULL, error);
	account_free(&a);
	if (r == -1) {
		if (channel != -1)
			close(channel);
		return STATUS_ERROR;
	}
	buf_init(&b);
	bridge_config(m, role, session, &b);
	compose(&m->bridge, MSG_CONFIG, channel, &b);
	/* The bridge has the token now; a proof is made with the identity. */
	secret_free(&m->settings->token);
	return STATUS_OK;
}
