/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The collectives that are measured: their calls by MPI and by NCCL, their sizes, what their results must be.
 *
 * Sizes are counted as NCCL's tests count them. `bytes` of a collective is its whole message: of allgather what
 * a rank receives, of reduce_scatter and alltoall what a rank gives. `count` is what a rank passes to the call:
 * elements of the message, or of one rank's block of it.
 */
#ifndef BENCH_COLLECTIVES_H
#define BENCH_COLLECTIVES_H

#include <stdbool.h>
#include <stddef.h>

#define BENCH_ROOT 0 /* of bcast and reduce */

typedef struct bench_coll bench_coll_t;

/* The type of all elements, float unless this is called; and its size in bytes. */
void bench_elements(bool are_double);
size_t bench_element_bytes(void);

/* The collectives are numbered from 0; NULL past the end. bench_coll_find(): by name, NULL if there is none. */
const bench_coll_t *bench_coll(int number);
const bench_coll_t *bench_coll_find(const char *name);
/* "allgather"; and as gpusym's parameters and variables call it ("reduce_scatter_block" for reduce_scatter). */
const char *bench_coll_name(const bench_coll_t *c);
const char *bench_coll_gpusym_name(const bench_coll_t *c);

/* The count of a message of about so many bytes: never less than one element, blocks of 16 bytes and more are multiples
 * of 16 bytes. And the bytes of a count: at most `bytes`, unless that was too little for a block of one element. */
size_t bench_coll_count(const bench_coll_t *c, size_t bytes);
size_t bench_coll_bytes(const bench_coll_t *c, size_t count);
/* Bytes that a message of this size takes in a rank's buffers. */
size_t bench_coll_in_bytes(const bench_coll_t *c, size_t count);
size_t bench_coll_out_bytes(const bench_coll_t *c, size_t count);
/* GB/s that the busiest GPU must move at least, as NCCL's tests count. */
double bench_coll_bus_bandwidth(const bench_coll_t *c, size_t bytes, double us);

/* The blocking call, in MPI_COMM_WORLD, of any buffers. bcast works in place, on out. */
void bench_coll_by_mpi(const bench_coll_t *c, const void *in, void *out, size_t count);
/* NCCL's, and a wait for its stream. */
void bench_coll_by_nccl(const bench_coll_t *c, const void *in, void *out, size_t count);
/* MPI's on host memory, with the copies a user would write: host_in and host_out are as large as in and out. */
void bench_coll_by_host(const bench_coll_t *c, const void *in, void *out, size_t count, void *host_in, void *host_out);

/* ---- contents: whole numbers, drawn anew for every seed; those that are summed so small that every order is exact
 * ---- */

/* Opens and closes the host memory that the three below work in. */
void bench_content_open(void);
void bench_content_close(void);
/* This rank's input, for a seed that the two below then use. */
void bench_fill(const bench_coll_t *c, void *in, size_t count, unsigned seed);
/* NaNs in the output: what is not written cannot look right. Of bcast's root: the input, which is in place. */
void bench_poison(const bench_coll_t *c, const void *in, void *out, size_t count);
/* Elements of this rank's output that are not what they must be. */
unsigned long long bench_wrong(const bench_coll_t *c, const void *out, size_t count);

#endif
