#ifndef MONITOR_IDENTITY_H
#define MONITOR_IDENTITY_H

#include <sys/types.h>
#include <stdint.h>

#include "sign.h"
#include "storage.h"

/*
 * The identity file (cli-and-storage chapter 4): what pairing received, and
 * the key pair. The file's text is kept as it is, so that a rotation changes
 * nothing but two values in it.
 */
struct identity {
	char *path; /* as configured */
	char *worker;
	char *url; /* base URL at the time of pairing */
	char *public_key; /* PEM, bytes as in the file */
	char *expires_text;
	int64_t expires; /* ms since 1970 */
	struct secret credential;
	struct key key;
	struct secret text; /* the whole file */
};

#define IDENTITY_MAX 65536

/*
 * Loads and checks the file (4.9). Returns STORAGE_MISSING (with *error set)
 * if there is none.
 */
enum storage_result identity_load(
    const char *path, struct identity *, char **error);

/* Parses the content of a file; takes over nothing. 0 or -1 with *error. */
int identity_parse(struct identity *, const char *path, const char *text,
    size_t len, char **error);
void identity_free(struct identity *);

/* The text of a fresh identity, with the member order of 4.4. */
void identity_format(struct secret *out, const char *worker,
    const char *credential, const char *expires, const char *url,
    const struct key *);

/* The old text with the values of credential and expiresAt replaced. */
int identity_splice(const struct secret *old, const char *credential,
    const char *expires, struct secret *out, char **error);

/* 1 if a received credential may be kept: 32 to 4096 printable ASCII
 * characters without blanks (3.2). */
int credential_valid(const char *);

/*
 * Writes the text durably in place of path (4.6), the file and then the
 * directory synced. mountinfo is from mountinfo_open. 0 or -1 with *error;
 * on error the old file is untouched.
 */
int identity_save(
    const char *path, const struct secret *text, int mountinfo, char **error);

/*
 * Rotation: saves the spliced text and only then adopts it in memory.
 */
int identity_rotate(struct identity *, const char *credential,
    const char *expires, int64_t expires_ms, int mountinfo, char **error);

/* What identity_reserve made, for identity_release. */
struct reservation {
	struct place place;
	int created;
	dev_t dev;
	ino_t ino;
};

/*
 * Makes sure, before a one-time code is spent, that the identity can be
 * published at path (4.5 step 2): the file exists empty and is ours, or may
 * be replaced, and a rename in its directory really works.
 */
int identity_reserve(
    const char *path, int mountinfo, struct reservation *, char **error);

/* Removes the reserved file if it is still the one made and still empty. */
void identity_release(struct reservation *);

/* Forgets the reservation after a successful save. */
void identity_reservation_done(struct reservation *);

#endif
