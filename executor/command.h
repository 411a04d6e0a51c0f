#ifndef EXECUTOR_COMMAND_H
#define EXECUTOR_COMMAND_H

#include "memory.h"
#include "msg.h"

struct event_base;
struct command;

/*
 * One execute_command in a sandbox, from the hand-over to its keeper until
 * every process of it is dead, which the kernel guarantees when process 1 of
 * its pid namespace has ended (pid_namespaces(7)).
 */
enum command_end {
	COMMAND_RESULT, /* result is filled: also after a time-out */
	COMMAND_ABORTED, /* cancelled; every process is dead */
	COMMAND_NOT_STARTED, /* the shell never ran; nothing changed */
	COMMAND_BAD_CWD, /* likewise: cwd is no directory in the root */
	COMMAND_LOST /* the keeper is gone: uncertain */
};

/*
 * Starts it. control is the packet socket to the keeper, used until done is
 * called; only one command at a time may use it. memory is the control group
 * that it runs in, kept by reference. done gets the command (to
 * be freed with command_free by then or later), how it ended, and a result
 * that it may take over, or text: a fixed phrase.
 */
struct command *command_start(struct event_base *, int control,
    const struct memory *, const struct request *,
    void (*done)(struct command *, enum command_end, struct result *,
	const char *text, void *),
    void *arg);

/* The keeper's answer is there to be read on control. */
void command_answered(struct command *);

/* Kills every process; done follows with COMMAND_ABORTED. */
void command_cancel(struct command *);

/*
 * The keeper died: done follows at once with COMMAND_LOST, or with
 * COMMAND_NOT_STARTED if the command was never handed over.
 */
void command_lost(struct command *);

void command_free(struct command *);

#endif
