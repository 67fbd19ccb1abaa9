/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A line: what a rank tells its peers in one communicator. Every communicator has a line in the pages of each of its ranks
 * (shm/pages.h). A rank writes its own line only. Roll-call (rollcall.h) and launch tokens (tokens.h) use the first part; the
 * rest tells where the process was last, for messages about ranks that do not come.
 */
#ifndef GPUSYM_COMMON_AGREE_LINE_H
#define GPUSYM_COMMON_AGREE_LINE_H

#include <stddef.h>

#include "mca/common/gpusym/shm/pages.h"

/* Calls that a line remembers: a rank may run ahead of a reader by half of that. */
#define GPUSYM_ROLLCALL_HISTORY 32u

/* What a rank says of one call, a cache line. Ranks with host buffers write `word` only. */
typedef struct {
    uint64_t word;              /* sequence << 48 | kind << 40 | what << 32 | hash; written last */
    uint64_t bytes;
    uint32_t flags, layout;     /* GPUSYM_POST_... */
    uint32_t in_key, out_key;   /* of reg.h: the buffers, for peers that map them */
    uint64_t in_off, out_off;   /* where in these allocations they begin */
    uint64_t check;             /* of keys and offsets, where there are keys: see gpusym_entry_intact */
    uint64_t balance;           /* see gpusym_post_t */
} gpusym_entry_t;

/* Bytes of a communicator's name in its line, with the final 0. */
#define GPUSYM_LABEL_MAX 96u

/* A line: written by its owner, read by its peers. */
typedef struct {
    gpusym_entry_t entry[GPUSYM_ROLLCALL_HISTORY]; /* by sequence % HISTORY */
    uint64_t vote[GPUSYM_ROLLCALL_HISTORY];        /* the same: sequence << 1 | yes, see gpusym_rollcall_vote */
    uint64_t go;       /* of rank 0: the last call for which it has taken all launch tokens */
    uint64_t launched; /* the last call whose kernel the owner has launched */
    uint32_t abort;    /* not 0: the owner gave up; see gpusym_line_abort */
    uint32_t step;     /* how far the owner's set-up is; only rises */
    uint64_t stamp;    /* when the owner was last seen here, see gpusym_seen_t. Nanoseconds of CLOCK_MONOTONIC */
    uint64_t said;     /* what the owner has told the user last of a wait here, see gpusym_line_say; only rises */
    char label[GPUSYM_LABEL_MAX]; /* the communicator's name, for messages; stays when the owner has retired the line */
    uint32_t pad[10];
    gpusym_line_end_t end; /* its key: which communicator it is, see gpusym_line_name */
} gpusym_line_t;
_Static_assert(64 == sizeof(gpusym_entry_t), "entries are cache lines");
_Static_assert(GPUSYM_PAGES_LINE == sizeof(gpusym_line_t), "shm/pages.h has the size of a line");

/* Of our own line: which communicator it is. key: the same on all of its ranks, not 0; label: cut to GPUSYM_LABEL_MAX.
 */
void gpusym_line_name(gpusym_line_t *line, uint64_t key, const char *label);
/* How far our set-up of that communicator is. */
void gpusym_line_step(gpusym_line_t *line, uint32_t step);
/* Tells the peers that we gave up in this communicator. */
void gpusym_line_abort(gpusym_line_t *line);
/* Tells them that we have told the user of a wait: so that one rank does. mark: rises with calls and messages. */
void gpusym_line_say(gpusym_line_t *line, uint64_t mark);
/* Of our own line: that we were here now, to some milliseconds; a few nanoseconds. */
void gpusym_line_stamp(gpusym_line_t *line);

/* What a peer's slab tells of it, while the peer goes on. */
typedef struct {
    bool begun;                   /* it has a line of the communicator asked for */
    uint32_t step;                /* of that: see gpusym_line_step */
    uint64_t said;                /* of that: see gpusym_line_say */
    char label[GPUSYM_LABEL_MAX]; /* the communicator in which it was seen last; "": in none */
    int what;        /* gpusym_post_t.what of its last call there; -1: none yet, it set the communicator up */
    uint64_t age_ns; /* since then. Of host buffers every 64th call is seen: such a call is at most that old */
} gpusym_seen_t;
/* key: of the communicator asked for. Reads all lines that the peer has ever had: for messages. */
void gpusym_peer_seen(gpusym_peer_t *peer, uint64_t key, gpusym_seen_t *seen);
#endif
