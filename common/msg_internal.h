#ifndef COMMON_MSG_INTERNAL_H
#define COMMON_MSG_INTERNAL_H

#include "msg.h"

/* Members that several messages have; for msg*.c only. */

/* Frees a string and forgets it; wipe for one that may be secret. */
void msg_free_str(char **);
void msg_wipe_str(char **);

void msg_add_list(struct buf *, char *const *, size_t n);
/* At most max strings, none of them absent. */
void msg_get_list(struct mreader *, char ***, size_t *n, size_t max);
void msg_free_list(char ***, size_t *n);

void msg_add_text(struct buf *, const struct text *);
void msg_get_text(struct mreader *, struct text *);

/* A boolean or small enumeration; a value out of range is an error. */
uint8_t msg_get_below(struct mreader *, uint8_t limit);

/* A string that must be there. */
char *msg_get_required(struct mreader *);

#endif
