/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The status of a line: what a call that has waited for 10 ms or more waits for. Its owner writes it while it waits;
 * nobody needs it but a program that is asked why a job stands still.
 */
#ifndef GPUSYM_COMMON_AGREE_STATUS_H
#define GPUSYM_COMMON_AGREE_STATUS_H

#include "mca/common/gpusym/agree/line.h"

/* How far the call is. */
typedef enum {
    GPUSYM_STATUS_NEW,      /* not posted */
    GPUSYM_STATUS_POSTED,   /* its ranks have not all posted it */
    GPUSYM_STATUS_AGREES,   /* all ranks have; they agree on how it is done */
    GPUSYM_STATUS_RUNS,     /* its way carries it out */
    GPUSYM_STATUS_STOPS,    /* it has failed, or goes another way: what runs is ended */
    GPUSYM_STATUS_FALLBACK, /* left to the modules before this one, here or on the way there */
    GPUSYM_STATUS_STATES
} gpusym_status_state_t;

/* For whom it waits. */
typedef enum {
    GPUSYM_STATUS_NOBODY,  /* for no rank: the GPU works, or kernels wait for each other */
    GPUSYM_STATUS_POST,    /* set-up's first step, or a peer that is too far behind */
    GPUSYM_STATUS_ENTRIES, /* ranks that have not posted it */
    GPUSYM_STATUS_SIZES,   /* their tables of sizes */
    GPUSYM_STATUS_SETUP,   /* set-up's second step */
    GPUSYM_STATUS_VOTE,    /* votes */
    GPUSYM_STATUS_READY,   /* a leader: ranks that bring their input */
    GPUSYM_STATUS_LED,     /* leaders */
    GPUSYM_STATUS_ISLANDS, /* ranks of other islands, which are named */
    GPUSYM_STATUS_LAUNCH,  /* ranks that have not launched the kernel of a nonblocking call */
    GPUSYM_STATUS_STAGED,  /* ranks that have not copied their data to host memory */
    GPUSYM_STATUS_AWAITS
} gpusym_status_awaits_t;

/* Owner: publishes the status of the line's call; one thread at a time, as for all calls of a communicator. since_ns:
 * kept from what was published of the same call. polled_ns: set by the caller. Some relaxed stores. */
void gpusym_status_tell(gpusym_line_t *line, const gpusym_status_t *status);

/* Another program: copies the i-th line of a process, which does not stop for that. False: it cannot be read, is not in
 * use, or holds values that no process writes. Texts end with a 0. */
bool gpusym_status_look(const gpusym_look_t *look, uint64_t i, gpusym_line_t *line);
/* Low 16 bits of the number of the last call posted in a line, and its entry. False: none has been. */
bool gpusym_status_last(const gpusym_line_t *line, uint16_t *seq, const gpusym_entry_t **entry);

#endif
