#ifndef REGRESS_FRONT_H
#define REGRESS_FRONT_H

#include <sys/types.h>

#include <stddef.h>

/*
 * A reverse proxy (nghttpx) with TLS in front of the embedded Code API, on a
 * loopback port that stays reserved while no proxy listens on it. Several may
 * follow each other on the port.
 */
struct front {
	int port;
	int reserve; /* bound to the port, never listening */
	int server; /* port of the Code API */
	char *dir; /* has key.pem, ca.pem and the logs */
};

/* NULL, or which program is missing. */
const char *front_missing(void);

/* Makes a key, its own authority's certificate, and reserves a port. */
void front_init(struct front *, const char *dir, int server_port);
void front_free(struct front *);

/*
 * Starts a proxy that offers these protocols of ALPN (RFC 7301), with one
 * more option or NULL; returns when it accepts connections. It leads a
 * process group.
 */
pid_t front_start(const struct front *, const char *alpn, const char *option);

/* Ends it at once; the end of one that was signalled before is waited for. */
void front_kill(pid_t);

/*
 * Starts a relay (socat) to the proxy, a process for each connection; port
 * and the descriptor that reserves it are set. Its connections can be stopped
 * for good, which their peers cannot tell from slow ones; new ones work.
 */
pid_t front_relay(const struct front *, int *port, int *reserve);
size_t front_relay_freeze(pid_t relay); /* number of connections */
void front_relay_kill(pid_t relay);

/* Number of answers through it so far over this protocol ("h2"). */
int front_answers(const struct front *, const char *protocol);

#endif
