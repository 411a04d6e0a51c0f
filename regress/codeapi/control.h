#ifndef CODEAPI_CONTROL_H
#define CODEAPI_CONTROL_H

struct req;
struct server;

/*
 * Routes below /control, for tests. They ask for no authentication: the
 * server listens on loopback and is nobody's production service.
 */
void control_pair(struct server *, struct req *);
void control_faults(struct server *, struct req *);
void control_sandbox(struct server *, struct req *);
void control_execute(struct server *, struct req *);
void control_state(struct server *, struct req *);
void control_requests(struct server *, struct req *);
void control_clock(struct server *, struct req *);
void control_restart(struct server *, struct req *);
void control_revoke(struct server *, struct req *);
void control_expire_credentials(struct server *, struct req *);
void control_fence(struct server *, struct req *);
void control_ceiling(struct server *, struct req *);
void control_budgets(struct server *, struct req *);
void control_wait(struct server *, struct req *);

/* Answers the waits whose event holds; to be called after any change. */
void waits_check(struct server *);

/* Forgets all waits without answering. */
void waits_forget(struct server *);

#endif
