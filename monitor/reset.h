#ifndef MONITOR_RESET_H
#define MONITOR_RESET_H

struct monitor;

/*
 * Lifts the server's fence of one registered root (protocol 12.5), prints the
 * line of the manual, and returns the exit status. Needs settings and roots
 * of run, and the lock.
 */
int reset_root(struct monitor *, const char *id);

#endif
