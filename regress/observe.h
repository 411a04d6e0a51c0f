#ifndef REGRESS_OBSERVE_H
#define REGRESS_OBSERVE_H

#include "world.h"

/* What tests of a whole world (world.h) look at and set; failures assert. */

/* Replaces the server's fault rules by these, separated by commas. */
void set_faults(struct world *, const char *rules);

/* Requests of a route that the server got; those with a 200 if answered. */
int count_requests(struct world *, const char *route, int answered);

/* The first 64 KiB of a file, "" if there is none; allocated. */
char *file_text(const char *path);

/* What the last commands (world_command) printed; that log is emptied. */
char *command_printed(struct world *);

/* They printed this text; the log is emptied. */
void command_said(struct world *, const char *text);

#endif
