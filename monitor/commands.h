#ifndef MONITOR_COMMANDS_H
#define MONITOR_COMMANDS_H

#include "options.h"

/*
 * One function a command of librechat-code(1): does it, prints what the
 * manual says, and returns the exit status (error.h).
 */
int command_run(const struct options *);
int command_pair(const struct options *);
int command_clear(const struct options *);
int command_reset(const struct options *); /* reset-workspace */
int command_exec(const struct options *);
int command_selftest(const struct options *);

#endif
