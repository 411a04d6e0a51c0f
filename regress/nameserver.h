#ifndef REGRESS_NAMESERVER_H
#define REGRESS_NAMESERVER_H

#include <sys/types.h>

#include <stdint.h>

/*
 * A scripted name server (RFC 1035) on UDP port 53 of loopback addresses, in
 * the network namespace of the caller. Every name has the same addresses; it
 * has no other records. The script may be changed while it runs.
 */
enum ns_mode {
	NS_ANSWER,
	NS_NO_NAME, /* NXDOMAIN */
	NS_FAILURE, /* SERVFAIL */
	NS_SILENT
};

#define NS_ADDRESSES 4
#define NS_SERVERS   2

struct ns_script {
	int mode; /* enum ns_mode */
	int delay_ms; /* of each answer */
	int queries; /* seen so far */
	int naddresses;
	uint32_t addresses[NS_ADDRESSES]; /* network byte order */
};

struct nameserver {
	pid_t pid;
	struct ns_script *scripts; /* shared, one for each address */
};

/* Listens on each of the n addresses (text); ends with the caller. */
void nameserver_start(struct nameserver *, const char *const *addresses, int n);
void nameserver_stop(struct nameserver *);

/* Sets the addresses that a server gives: dotted text, NULL-terminated. */
void nameserver_gives(struct ns_script *, ...);

#endif
