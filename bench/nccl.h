/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * NCCL, found by dlopen: its functions as nccl.h declares them, in our words. Communicators and windows are opaque
 * pointers, streams too; a result of 0 is success.
 */
#ifndef BENCH_NCCL_H
#define BENCH_NCCL_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    char internal[128];
} bench_nccl_id_t;

/* BENCH_NCCL(name, parameters): without these, no NCCL column. */
#define BENCH_NCCL_LIST                                                                                                \
    BENCH_NCCL(ncclGetVersion, (int *version))                                                                         \
    BENCH_NCCL(ncclGetUniqueId, (bench_nccl_id_t * id))                                                                \
    BENCH_NCCL(ncclCommInitRank, (void **comm, int ranks, bench_nccl_id_t id, int number))                             \
    BENCH_NCCL(ncclCommDestroy, (void *comm))                                                                          \
    BENCH_NCCL(ncclGroupStart, (void) )                                                                                \
    BENCH_NCCL(ncclGroupEnd, (void) )                                                                                  \
    BENCH_NCCL(ncclSend, (const void *in, size_t count, int type, int to, void *comm, void *stream))                   \
    BENCH_NCCL(ncclRecv, (void *out, size_t count, int type, int from, void *comm, void *stream))                      \
    BENCH_NCCL(ncclAllReduce, (const void *in, void *out, size_t count, int type, int op, void *comm, void *stream))   \
    BENCH_NCCL(ncclAllGather, (const void *in, void *out, size_t count, int type, void *comm, void *stream))           \
    BENCH_NCCL(ncclReduceScatter,                                                                                      \
               (const void *in, void *out, size_t count, int type, int op, void *comm, void *stream))                  \
    BENCH_NCCL(ncclBroadcast, (const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)) \
    BENCH_NCCL(ncclReduce,                                                                                             \
               (const void *in, void *out, size_t count, int type, int op, int root, void *comm, void *stream))
/* Since NCCL 2.27; without them, no column of symmetric windows. */
#define BENCH_NCCL_WINDOW_LIST                                                                    \
    BENCH_NCCL(ncclMemAlloc, (void **p, size_t size))                                             \
    BENCH_NCCL(ncclMemFree, (void *p))                                                            \
    BENCH_NCCL(ncclCommWindowRegister, (void *comm, void *p, size_t size, void **win, int flags)) \
    BENCH_NCCL(ncclCommWindowDeregister, (void *comm, void *win))
/* Since NCCL 2.28; NULL in older ones. */
#define BENCH_NCCL_NEW_LIST \
    BENCH_NCCL(ncclAlltoAll, (const void *in, void *out, size_t count, int type, void *comm, void *stream))

enum { BENCH_NCCL_UINT8 = 1, BENCH_NCCL_FLOAT32 = 7, BENCH_NCCL_FLOAT64 = 8, BENCH_NCCL_SUM = 0 };

typedef struct {
#define BENCH_NCCL(name, parameters) int(*name) parameters;
    BENCH_NCCL_LIST
    BENCH_NCCL_WINDOW_LIST
    BENCH_NCCL_NEW_LIST
#undef BENCH_NCCL
    bool there, windows; /* alike on every rank */
    void *comm;
    void *in, *out; /* buffers in symmetric windows, where `windows` */
} bench_nccl_t;

/* Filled by bench_nccl_open(). */
extern bench_nccl_t bench_nccl;

/* A communicator of all ranks, its first call (two floats from in to out), and two buffers of `size` bytes in symmetric
 * windows (0: none). Collective. Where something is not there it says so in a comment line, and leaves `there` or
 * `windows` false. */
void bench_nccl_open(const void *in, void *out, size_t size, bool wanted);
void bench_nccl_close(void);

/* Ends the job unless result is 0. */
void bench_nccl_check(const char *call, int result);

#endif
