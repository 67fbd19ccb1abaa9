/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Runs the step lists of kernels/schedule.h for all ranks of a path, without data, GPU or time: what a rank sends is
 * one number a chunk.  Finds out whether all ranks end, whether every buffer is written only when it was read and read
 * only when it was written, and whether every result is complete, with every contribution in it once.
 *
 * In which order ranks run makes no difference: a rank's next step is fixed, and once it can be taken nothing that
 * others do takes that away.  So a run that ends shows that all runs end, and that they compute the same.
 */
#ifndef TEST_SCHEDULE_MACHINE_H
#define TEST_SCHEDULE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/schedule.h"

/* Faults that are made on purpose, to see that they are found. */
enum fault {
    FAULT_NONE,
    FAULT_CHUNK,    /* a step has the chunk after its own */
    FAULT_LOOP,     /* a step has the loop after its own */
    FAULT_LAG,      /* tree all-reduce, all ranks: GS_TREE_LAG is fault_step */
    FAULT_CREDIT,   /* a rank does not wait for buffers to be free */
    FAULT_DATA,     /* a rank does not wait for buffers to be written */
    FAULT_TWICE,    /* a step adds the rank's own input again */
    FAULT_NO_INPUT, /* a step leaves it out */
    FAULT_NO_SEND,  /* a step does not send */
    FAULT_NO_COPY,  /* a step does not store */
    FAULT_FINAL,    /* a step is wrong about whether it sends the result */
    FAULT_LANDED,   /* a step is wrong about whether it receives the result */
    FAULT_STEP,     /* a rank skips a step */
    FAULT_LINK,     /* a step sends to whom it has no link */
    FAULTS
};

typedef struct {
    uint32_t kind; /* enum gs_schedule_kind */
    uint32_t n;    /* ranks, at least 2 */
    uint32_t loops;
    uint32_t root;         /* where there is one */
    unsigned which;        /* tree 0 or 1 */
    const uint32_t *order; /* of a ring or chain, NULL: identity; the caller's */
    /* As LL and LL128 do: a rank says what it has taken only when its next step begins, which is when that may send;
     * else, as Simple does, at once. */
    bool late;
    bool shuffled; /* ranks run in a random order, few steps at a time; else one runs as far as it can, then another */
    enum fault fault;
    uint32_t fault_rank, fault_step; /* where it is */
} schedule_case_t;

typedef struct machine machine_t;

/* For up to max_n ranks, of one thread; ends the program where there is no memory. To be freed by machine_free. */
machine_t *machine_new(uint32_t max_n, uint64_t seed);
void machine_free(machine_t *m);

/*
 * Runs a case to its end.  NULL: all is right; else what is wrong, valid until the next call.  Adds to *steps how many
 * steps were taken.  A result that is not the sum it should be passes for it with a probability of less than 2^-50.
 */
const char *machine_run(machine_t *m, const schedule_case_t *c, uint64_t *steps);

/* How many chunks rank r sent in the last run. */
uint32_t machine_sends(const machine_t *m, uint32_t r);

#endif
