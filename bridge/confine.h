#ifndef BRIDGE_CONFINE_H
#define BRIDGE_CONFINE_H

/*
 * Gives up everything that this process does not need: it can then read the
 * few files of name resolution and TLS, connect out, and make threads (the
 * resolver's); it cannot write a file, execute a program, make a process or
 * listen. Each layer is tried out afterwards. ca_file may be NULL. Returns 0,
 * or -1 with one line in *error that names the layer that does not hold.
 */
int confine(const char *ca_file, char **error);

/*
 * 1 if /etc/resolv.conf was replaced by another file since the start, which
 * the restriction does not cover: only a restart helps.
 */
int confine_resolver_lost(void);

#endif
