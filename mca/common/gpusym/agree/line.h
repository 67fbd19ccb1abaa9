/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A line: what a rank tells its peers in one communicator. Every communicator has one line in the pages of each of
 * its ranks (shm/pages.h). A rank writes its own line only, but for one word. Call agreement (agreement.h) and launch
 * tokens (tokens.h) use the first part; the rest records the last activity of the process, for messages about missing
 * ranks.
 */
#ifndef GPUSYM_COMMON_AGREE_LINE_H
#define GPUSYM_COMMON_AGREE_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "mca/common/gpusym/shm/gauges.h"
#include "mca/common/gpusym/shm/pages.h"

/* Calls that a line holds. A rank may run ahead of a reader by half as many. */
#define GPUSYM_AGREEMENT_HISTORY 32u

/* A rank's entry of one call: one cache line. Ranks with host buffers write `word` only. */
typedef struct {
    uint64_t word; /* sequence << 48 | kind << 40 | what << 32 | hash; written last */
    uint64_t bytes;
    uint32_t flags, layout;   /* GPUSYM_POST_... */
    uint32_t in_key, out_key; /* keys of the buffers' allocations (memory/reg.h); 0: none */
    uint64_t in_off, out_off; /* offsets of the buffers in these allocations, in bytes */
    uint64_t check;           /* of keys and offsets, if there are any: see gpusym_entry_intact */
    uint64_t balance;         /* see gpusym_post_t */
} gpusym_entry_t;

/* A board (what a rank sends through its staging buffer, coll/gpusym/exec/staged_copies.h) lies at a multiple of the
 * unit, in bytes. */
#define GPUSYM_BOARD_BITS 16u
#define GPUSYM_BOARD_UNIT 4096u

/* Bytes of a communicator's name in its line, with the final 0. */
#define GPUSYM_LABEL_MAX 88u

/* The mark of a rank that gave up: this, or GPUSYM_LINE_FROM and the 16 low bits of the first call without it. */
#define GPUSYM_LINE_NEVER 1u
#define GPUSYM_LINE_FROM 0x10000u

/* Above all steps of a set-up. */
#define GPUSYM_LINE_STEPS 256u

/* Ranks that a status names. */
#define GPUSYM_STATUS_AWAITED 13

/* What a call of the owner waits for, for whoever asks (gpusym_info --job; status.h). Whole words. */
typedef struct {
    uint64_t seq;                 /* number of the call; 0: none has waited for 10 ms yet */
    uint64_t since_ns, polled_ns; /* CLOCK_MONOTONIC: when it was first polled, about, and last */
    uint64_t bytes;               /* gpusym_post_t.bytes; once all have posted, the largest of all ranks */
    uint8_t what;                 /* gpusym_post_t.what */
    uint8_t state, awaits;        /* gpusym_status_state_t, gpusym_status_awaits_t */
    uint8_t nawaited;             /* ranks of the communicator in other islands that it waits for, or as many as fit */
    uint32_t awaited[GPUSYM_STATUS_AWAITED];
    char way[16]; /* the way that carries it out, cut, with a final 0; "": not known yet */
} gpusym_status_t;
_Static_assert(0 == sizeof(gpusym_status_t) % 8, "a status is copied by words");

/* Resident kernels of a communicator: one for all-reduce, one for another collective, whose number is its `what`. */
#define GPUSYM_LINE_KERNELS 2

/* A line. Its owner writes it, its peers read it. */
typedef struct {
    gpusym_entry_t entry[GPUSYM_AGREEMENT_HISTORY]; /* by sequence % HISTORY */
    uint64_t vote[GPUSYM_AGREEMENT_HISTORY]; /* by sequence % HISTORY: sequence << 1 | yes, see gpusym_agreement_vote */
    uint64_t go;                             /* rank 0: the last call for which it has taken all launch tokens */
    uint64_t launched;                       /* the last call whose kernel the owner has launched */
    uint32_t abort;                          /* not 0: the owner gave up; see gpusym_line_abort */
    uint32_t step;                           /* the owner's progress in its set-up, see gpusym_line_step */
    uint64_t stamp;   /* time of the owner's last activity here, see gpusym_seen_t. Nanoseconds of CLOCK_MONOTONIC */
    uint64_t said;    /* mark of the owner's last message about a wait here, see gpusym_line_say; only rises */
    uint64_t ready;   /* the last call whose input the owner has brought to where a leader loads it, or the host */
    uint64_t done;    /* a leader: the last call that it has done for the ranks of its GPU */
    uint64_t verdict; /* member 0 of one of several islands: on which call these have agreed last, and what */
    uint64_t decided; /* rank 0: call << 1 | yes, see gpusym_agreement_decide. The one word that all ranks write */
    char label[GPUSYM_LABEL_MAX]; /* the communicator's name, for messages; remains after the line is retired */
    uint64_t table;               /* its table's offset in the slab (table.h); 0: it has none yet */
    uint64_t board;       /* its board of the last staged copies: call << BOARD_BITS | place in its staging buffer */
    uint64_t notices;     /* its board's offset in the slab while it is set up (notices.h); 0: it has none */
    uint32_t rank, size;  /* of the owner in the communicator, and that one's; from gpusym_line_name */
    uint64_t status_turn; /* odd while the status changes */
    gpusym_status_t status;
    gpusym_kernel_status_t kernel[GPUSYM_LINE_KERNELS]; /* for whoever asks, as the status */
    gpusym_line_end_t end;                              /* its key names the communicator, see gpusym_line_name */
} gpusym_line_t;
_Static_assert(64 == sizeof(gpusym_entry_t), "entries are cache lines");
_Static_assert(GPUSYM_PAGES_LINE == sizeof(gpusym_line_t), "shm/pages.h has the size of a line");

/* The functions below write a line of this process; any thread that owns the line may call them. */

/* Names the communicator of a line. key: alike on all of its ranks, not 0. label: copied, cut to GPUSYM_LABEL_MAX.
 * rank, size: the owner's rank in the communicator, of `size` ranks on all hosts. */
void gpusym_line_name(gpusym_line_t *line, uint64_t key, const char *label, uint32_t rank, uint32_t size);
/* Publishes this rank's progress in the set-up of the communicator: a step, of less than 256, and how many kernels it
 * has launched to try them. */
void gpusym_line_step(gpusym_line_t *line, uint32_t step, uint32_t tried);
/* Returns what the owner of a line has published. */
static inline uint32_t gpusym_line_at_step(const gpusym_line_t *line)
{
    return __atomic_load_n(&line->step, __ATOMIC_ACQUIRE) % GPUSYM_LINE_STEPS;
}
static inline uint32_t gpusym_line_tried(const gpusym_line_t *line)
{
    return __atomic_load_n(&line->step, __ATOMIC_ACQUIRE) / GPUSYM_LINE_STEPS;
}
/* Tells the peers that this rank gave up in this communicator: it takes part in the calls before `first`, and in no
 * other; 0: in none. What was told of an earlier call stays. */
void gpusym_line_abort(gpusym_line_t *line, uint64_t first);
/* Returns whether the owner of a line with that mark takes part in call seq, which is less than 32768 calls from the
 * one that the mark is of. */
static inline bool gpusym_line_serves(uint32_t mark, uint64_t seq)
{
    return 0 == mark || (GPUSYM_LINE_NEVER != mark && (int16_t) (uint16_t) (seq - mark) < 0);
}
/* Tells the peers that this rank has reported a wait to the user, so that one rank does. mark: rises with calls and
 * messages. */
void gpusym_line_say(gpusym_line_t *line, uint64_t mark);
/* Records activity now, to a few milliseconds. Takes a few nanoseconds. */
void gpusym_line_stamp(gpusym_line_t *line);

/* What the slab of a peer says about it. The peer may change it at any time. */
typedef struct {
    bool begun;                   /* the peer has a line of the requested communicator */
    uint32_t step;                /* of that line: see gpusym_line_step */
    uint64_t said;                /* of that line: see gpusym_line_say */
    char label[GPUSYM_LABEL_MAX]; /* the communicator of the peer's last activity; "": none */
    int what;        /* gpusym_post_t.what of its last call there; -1: no call yet, it set the communicator up */
    uint64_t age_ns; /* time since then. Host buffers record every 64th call: such a call is at most that old */
} gpusym_seen_t;
/* Reads all lines that a peer has ever had, for messages. key: of the requested communicator; 0: none. */
void gpusym_peer_seen(gpusym_peer_t *peer, uint64_t key, gpusym_seen_t *seen);
#endif
