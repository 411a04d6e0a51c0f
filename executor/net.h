#ifndef EXECUTOR_NET_H
#define EXECUTOR_NET_H

/* Brings the loopback interface of an own network namespace up. */
int net_loopback_up(void);

#endif
