#ifndef BRIDGE_OFFER_H
#define BRIDGE_OFFER_H

#include <stddef.h>
#include <stdint.h>

#include "msg.h"

struct json;
struct jwriter;

/*
 * What a registration offers as workspaceTools, and the negotiation over it
 * (protocol 5.3, 5.4). Operations are masks of OP_BIT; the lists of modes and
 * features are masks of the bits below, in the order of the wire names. 0
 * means that the member is not sent.
 */
#define WRITE_REPLACE      1
#define WRITE_CREATE       2
#define EDIT_SINGLE        1
#define EDIT_BATCH         2
#define EDIT_EXPECTED_BASE 1
#define LIST_AFTER_PATH    1

struct offer_root {
	uint32_t root; /* number in the configuration */
	uint32_t operations; /* 0: all of the offer, member not sent */
};

struct offer {
	uint32_t operations; /* 0: no workspaceTools at all */
	struct offer_root roots[ROOTS_MAX];
	size_t nroots;
	uint32_t write_modes;
	uint32_t edit_modes;
	uint32_t edit_features;
	uint32_t list_features;
};

/* What a server says that it supports. */
struct support {
	int present; /* operations were listed at all */
	uint32_t operations;
	int has_write_modes;
	uint32_t write_modes;
	int has_edit_modes;
	uint32_t edit_modes;
	uint32_t edit_features;
	uint32_t list_features;
};

/* Everything that the configuration allows. */
void offer_wanted(struct offer *, const struct bridge_config *);

/* What every server takes. */
void offer_compatible(struct offer *, const struct offer *wanted);

/* Best offer for that server: 1 and *o, or 0 if there is no promotion. */
int offer_promote(
    struct offer *o, const struct offer *wanted, const struct support *);

int offer_equal(const struct offer *, const struct offer *);

/* Reads the supported... members of a registration answer. */
void support_read(struct support *, const struct json *);

/* Writes the member workspaceTools, or nothing if there are none. */
void offer_write(
    struct jwriter *, const struct offer *, const struct workspace *);

/*
 * Operations offered for a root number: 0 if the root is not offered
 * (protocol 8.3).
 */
uint32_t offer_operations(const struct offer *, uint32_t root);

#endif
