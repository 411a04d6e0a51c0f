#ifndef CODEAPI_REGISTRATION_H
#define CODEAPI_REGISTRATION_H

struct req;
struct server;
struct worker;

/* Routes of chapters 5.6, 6, 7 and 16. */
void registration_register(struct server *, struct req *);
void registration_ready(struct server *, struct req *);
void registration_status(struct server *, struct req *);
void registration_reset(struct server *, struct req *);

/*
 * Makes an incarnation the current one and fences the one before (6.3).
 * capabilities are copied; binding and identity may be NULL.
 */
void registration_replace(struct worker *, const char *incarnation,
    const struct json *capabilities, const struct json *binding,
    const char *identity);

/* Field rules that several routes share; 1 if they hold. */
int field_version(const struct req *);
const char *field_incarnation(const struct req *);

#endif
