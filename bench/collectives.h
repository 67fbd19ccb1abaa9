/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The collectives that are measured, all that kernels.def has algorithms of: their calls by MPI (made of the
 * tests' list, colls.def) and by NCCL, their sizes, what their results must be.
 *
 * Sizes are counted as NCCL's tests count them. `bytes` of a collective is its whole message: the longer of what a rank
 * gives and what it receives. `count` is what a rank passes to the call: elements of the message, or of one rank's
 * block of it; those with a count for each rank are given equal ones.
 */
#ifndef BENCH_COLLECTIVES_H
#define BENCH_COLLECTIVES_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/content.h"
#include "test/mpi/coll_layout.h"

typedef struct bench_coll bench_coll_t;

/* The root of those that have one; rank 0 unless this is called. */
void bench_set_root(int rank);
int bench_root(void);

/* The collectives are numbered from 0; NULL past the end. bench_coll_find(): by MPI's name in small letters, which is
 * also gpusym's in its parameters and variables; NULL if there is none. */
const bench_coll_t *bench_coll(int number);
const bench_coll_t *bench_coll_find(const char *name);
const char *bench_coll_name(const bench_coll_t *c);
bool bench_coll_reduces(const bench_coll_t *c);
bool bench_coll_has_root(const bench_coll_t *c);
/* Has one buffer only, so that it is always in place (bcast). */
bool bench_coll_only_in_place(const bench_coll_t *c);
/* Whether it can be made of NCCL's calls (no scans). */
bool bench_coll_in_nccl(const bench_coll_t *c);

/* The count of a message of about so many bytes: never less than one element, blocks of 16 bytes and more are multiples
 * of 16 bytes. And the bytes of a count: at most `bytes`, unless that was too little for a block of one element. */
size_t bench_coll_count(const bench_coll_t *c, size_t bytes);
size_t bench_coll_bytes(const bench_coll_t *c, size_t count);
/* Bytes of a rank's input and output: neither is more than bench_coll_bytes(). */
size_t bench_coll_in_bytes(const bench_coll_t *c, size_t count);
size_t bench_coll_out_bytes(const bench_coll_t *c, size_t count);
/* GB/s that the busiest GPU must move at least, as NCCL's tests count. */
double bench_coll_bus_bandwidth(const bench_coll_t *c, size_t bytes, double us);

/* ---- one call, of all ranks of MPI_COMM_WORLD, again and again ---- */

typedef struct {
    const bench_coll_t *coll;
    enum coll_mode mode;
    bool in_place; /* MPI_IN_PLACE where MPI has it, at the root of rooted ones */
    size_t count;
} bench_what_t;

typedef struct {
    bench_what_t what;
    void *in, *out; /* in place: what MPI finds in out is written there by bench_prepare(), out of in */
    void *host_in, *host_out;
    coll_args_t args, host_args;
    MPI_Request request; /* persistent */
    double starting;     /* seconds that starting calls took, added up (not of blocking ones) */
} bench_call_t;

/* Fills the call, which must not be moved; buffers of bench_coll_bytes(), and host memory of as much for
 * bench_call_by_host(), or NULL. Collective for the persistent mode. What is made is dropped. */
void bench_call_make(bench_call_t *c, const bench_what_t *what, void *in, void *out, void *host_in, void *host_out);
void bench_call_drop(bench_call_t *c);

/* MPI on the buffers, by the call's mode; done when it returns. */
void bench_call_by_mpi(bench_call_t *c);
/* NCCL's, and a wait for its stream; whatever the mode, not in place (bcast: on out). */
void bench_call_by_nccl(bench_call_t *c);
/* Blocking MPI on the host memory, with the copies a user would write; whatever the mode, not in place. */
void bench_call_by_host(bench_call_t *c);

/* This rank's input, for a seed that the two below then use. */
void bench_fill(const bench_coll_t *c, void *in, size_t count, unsigned seed);
/* Poison in out: what is not written cannot look right. In place: and the input, where it belongs. */
void bench_prepare(bench_call_t *c);
/* Elements of this rank's output that are not what they must be after one call (out of place: after any number). */
unsigned long long bench_wrong(const bench_call_t *c);

#endif
