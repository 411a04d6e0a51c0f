#ifndef CODEAPI_SETTLE_H
#define CODEAPI_SETTLE_H

struct req;
struct server;

/* Routes of chapters 11 and 15.4. */
void settle(struct server *, struct req *);
void settle_cleanup(struct server *, struct req *);
void settle_quarantine(struct server *, struct req *);

#endif
