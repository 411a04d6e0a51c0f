#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "msg.h"
#include "msg_internal.h"

void
bridge_config_build(struct buf *b, const struct bridge_config *c)
{
	size_t i;

	m_add_u8(b, c->role);
	m_add_u8(b, c->auth);
	m_add_u8(b, c->verbose);
	m_add_str(b, c->base_url);
	m_add_str(b, c->worker_id);
	m_add_str(b, c->incarnation);
	m_add_str(b, c->credential);
	m_add_i64(b, c->expires);
	m_add_str(b, c->code);
	m_add_str(b, c->public_key);
	m_add_str(b, c->session);
	m_add_str(b, c->sandbox_profile);
	msg_add_list(b, c->runtimes, c->nruntimes);
	m_add_str(b, c->policy_digest);
	m_add_u8(b, c->lease_slots);
	m_add_u32(b, (uint32_t)c->nworkspaces);
	for (i = 0; i < c->nworkspaces; i++) {
		m_add_str(b, c->workspaces[i].id);
		m_add_str(b, c->workspaces[i].name);
		m_add_u32(b, c->workspaces[i].operations);
		m_add_u8(b, c->workspaces[i].quarantined);
	}
	m_add_str(b, c->ca_file);
	m_add_str(b, c->https_proxy);
	m_add_str(b, c->http_proxy);
	m_add_str(b, c->all_proxy);
	m_add_str(b, c->no_proxy);
}

int
bridge_config_parse(const struct imsg *im, struct bridge_config *c)
{
	struct mreader r;
	uint32_t i, n;

	memset(c, 0, sizeof(*c));
	m_begin(&r, im);
	c->role = msg_get_below(&r, ROLE_MAX);
	c->auth = msg_get_below(&r, AUTH_MAX);
	c->verbose = m_get_u8(&r);
	c->base_url = msg_get_required(&r);
	c->worker_id = msg_get_required(&r);
	c->incarnation = m_get_str(&r);
	c->credential = m_get_str(&r);
	c->expires = m_get_i64(&r);
	c->code = m_get_str(&r);
	c->public_key = m_get_str(&r);
	c->session = m_get_str(&r);
	c->sandbox_profile = m_get_str(&r);
	msg_get_list(&r, &c->runtimes, &c->nruntimes, 32);
	c->policy_digest = m_get_str(&r);
	c->lease_slots = m_get_u8(&r);
	n = m_get_u32(&r);
	if (n > ROOTS_MAX)
		r.bad = 1;
	else if (n > 0)
		c->workspaces = xcalloc(n, sizeof(*c->workspaces));
	for (i = 0; !r.bad && i < n; i++) {
		c->nworkspaces++;
		c->workspaces[i].id = msg_get_required(&r);
		c->workspaces[i].name = m_get_str(&r);
		c->workspaces[i].operations = m_get_u32(&r);
		c->workspaces[i].quarantined = msg_get_below(&r, 2);
	}
	c->ca_file = m_get_str(&r);
	c->https_proxy = m_get_str(&r);
	c->http_proxy = m_get_str(&r);
	c->all_proxy = m_get_str(&r);
	c->no_proxy = m_get_str(&r);
	if (m_end(&r) == -1) {
		bridge_config_free(c);
		return -1;
	}
	return 0;
}

void
bridge_config_free(struct bridge_config *c)
{
	size_t i;

	msg_free_str(&c->base_url);
	msg_free_str(&c->worker_id);
	msg_free_str(&c->incarnation);
	msg_wipe_str(&c->credential);
	msg_wipe_str(&c->code);
	msg_free_str(&c->public_key);
	msg_free_str(&c->session);
	msg_free_str(&c->sandbox_profile);
	msg_free_list(&c->runtimes, &c->nruntimes);
	msg_free_str(&c->policy_digest);
	for (i = 0; i < c->nworkspaces; i++) {
		msg_free_str(&c->workspaces[i].id);
		msg_free_str(&c->workspaces[i].name);
	}
	free(c->workspaces);
	msg_free_str(&c->ca_file);
	msg_wipe_str(&c->https_proxy);
	msg_wipe_str(&c->http_proxy);
	msg_wipe_str(&c->all_proxy);
	msg_free_str(&c->no_proxy);
	memset(c, 0, sizeof(*c));
}

#define ENV_MAX    64
#define HIDDEN_MAX 256

void
executor_config_build(struct buf *b, const struct executor_config *c)
{
	m_add_u8(b, c->verbose);
	m_add_u32(b, c->uid);
	m_add_u32(b, c->gid);
	m_add_str(b, c->user);
	m_add_str(b, c->home);
	msg_add_list(b, c->env, c->nenv);
	msg_add_list(b, c->hidden, c->nhidden);
	m_add_u64(b, c->tmp_bytes);
	m_add_u64(b, c->home_bytes);
	m_add_u8(b, c->protection);
	m_add_u32(b, c->processes);
	m_add_u64(b, c->memory_bytes);
	m_add_u8(b, c->slots);
	m_add_u32(b, c->nroots);
	m_add_u8(b, c->groups);
}

int
executor_config_parse(const struct imsg *im, struct executor_config *c)
{
	struct mreader r;

	memset(c, 0, sizeof(*c));
	m_begin(&r, im);
	c->verbose = m_get_u8(&r);
	c->uid = m_get_u32(&r);
	c->gid = m_get_u32(&r);
	c->user = msg_get_required(&r);
	c->home = msg_get_required(&r);
	msg_get_list(&r, &c->env, &c->nenv, ENV_MAX);
	msg_get_list(&r, &c->hidden, &c->nhidden, HIDDEN_MAX);
	c->tmp_bytes = m_get_u64(&r);
	c->home_bytes = m_get_u64(&r);
	c->protection = msg_get_below(&r, PROTECT_MAX);
	c->processes = m_get_u32(&r);
	c->memory_bytes = m_get_u64(&r);
	c->slots = m_get_u8(&r);
	c->nroots = m_get_u32(&r);
	c->groups = msg_get_below(&r, 2);
	if (c->nroots > ROOTS_MAX || c->processes > 1U << 22 || c->slots < 1 ||
	    c->slots > SLOTS_MAX)
		r.bad = 1;
	if (m_end(&r) == -1) {
		executor_config_free(c);
		return -1;
	}
	return 0;
}

void
executor_config_free(struct executor_config *c)
{
	msg_free_str(&c->user);
	msg_free_str(&c->home);
	msg_free_list(&c->env, &c->nenv);
	msg_free_list(&c->hidden, &c->nhidden);
	memset(c, 0, sizeof(*c));
}

void
root_config_build(struct buf *b, const struct root_config *c)
{
	m_add_u32(b, c->index);
	m_add_str(b, c->id);
	m_add_str(b, c->path);
	m_add_u32(b, c->operations);
	m_add_u8(b, c->mount);
}

int
root_config_parse(const struct imsg *im, struct root_config *c)
{
	struct mreader r;

	memset(c, 0, sizeof(*c));
	m_begin(&r, im);
	c->index = m_get_u32(&r);
	c->id = msg_get_required(&r);
	c->path = msg_get_required(&r);
	c->operations = m_get_u32(&r);
	c->mount = msg_get_below(&r, ROOT_MOUNT_MAX);
	if (c->index >= ROOTS_MAX || (c->path != NULL && c->path[0] != '/'))
		r.bad = 1;
	if (m_end(&r) == -1) {
		root_config_free(c);
		return -1;
	}
	return 0;
}

void
root_config_free(struct root_config *c)
{
	msg_free_str(&c->id);
	msg_free_str(&c->path);
}

void
cgroup_config_build(struct buf *b, const struct cgroup_config *c)
{
	m_add_u32(b, c->index);
}

int
cgroup_config_parse(const struct imsg *im, struct cgroup_config *c)
{
	struct mreader r;

	memset(c, 0, sizeof(*c));
	m_begin(&r, im);
	c->index = m_get_u32(&r);
	if (c->index >= ROOTS_MAX)
		r.bad = 1;
	return m_end(&r);
}
