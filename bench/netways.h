/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The two ways of gpusym_netperf between two processes: gpusym's streams, and UCX's active messages as they are.
 *
 * A way is open between this process and one other at a time.  What fails, or takes a minute, ends the job.
 */
#ifndef BENCH_NETWAYS_H
#define BENCH_NETWAYS_H

#include <stdbool.h>
#include <stddef.h>

/* The longest message. */
#define NETWAY_BYTES_MAX ((size_t) 64 << 20)
/* The longest address of a process. */
#define NETWAY_ADDRESS_MAX 4096

typedef struct {
    const char *name;
    /* Opens this process's side. devices: as coll_gpusym_net_devices; NULL: all. */
    void (*open)(const char *devices);
    void (*close)(void);
    const void *(*address)(size_t *bytes);
    /* Connects with a process, which does the same; inside: both are on one host. lower: one of the two says true. */
    void (*connect)(const void *address, size_t bytes, bool inside, bool lower);
    /* Moves what was begun on, without waiting: the other process may wait for an answer while this one is in MPI. */
    void (*progress)(void);
    void (*disconnect)(void);
    /* Sends a message, which must stay until flush(), as all before it. May wait for those. */
    void (*send)(const unsigned char *data, size_t bytes);
    void (*flush)(void);
    /* Waits for the next message, of so many bytes. check: returns whether every byte is that of netway_fill(salt);
     * otherwise true. */
    bool (*receive)(size_t bytes, bool check, unsigned salt);
    /* Sends a message as send() does, and receives one of as many bytes meanwhile, as receive() does. */
    bool (*exchange)(const unsigned char *data, size_t bytes, bool check, unsigned salt);
    /* Describes the way to the other process. */
    void (*describe)(char *text, size_t size);
} netway_t;

extern const netway_t netway_gpusym, netway_ucx;

/* Fills a message; whether `bytes` bytes of one, from offset on, are as filled. */
void netway_fill(unsigned char *data, size_t bytes, unsigned salt);
bool netway_right(const unsigned char *data, size_t offset, size_t bytes, unsigned salt);

/* While something is waited for: call it when nothing has happened. `since` is 0 at first, and after anything has
 * happened. Lets other processes run now and then, and ends the job after a minute. */
void netway_idle(double *since);

#endif
