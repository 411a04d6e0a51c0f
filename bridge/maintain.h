#ifndef BRIDGE_MAINTAIN_H
#define BRIDGE_MAINTAIN_H

struct bridge;

/*
 * The reset role (protocol 12.4, 12.5): refreshes the credential if it is
 * due, registers a fresh incarnation that is never confirmed as ready, asks
 * for the reset of config.session, and ends the process. A server that is
 * busy with this worker (503, code-api-server 16) is asked again for a while.
 */
void reset_start(struct bridge *);

/*
 * The reach role: one request without any authentication, which a Code API
 * refuses without looking further; ends the process with END_CLEAN and what
 * was seen, or with END_GENERAL and what is in the way.
 */
void reach_start(struct bridge *);

#endif
