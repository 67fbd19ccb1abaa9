/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The worker: this process's end of the network between hosts.  A process has one, which all of its communicators
 * share: the streams, the memory of their rings and of what is sent, the peers, and a helper thread, which moves all of
 * that on while MPI's threads do something else.
 *
 * MPI's threads and the helper thread use it in turns, by its lock.  Whoever uses streams, rails or anything else that
 * wants the lock to be held holds it.  All communicators would wait for a thread that keeps it, so nobody waits for
 * anything with it.
 */
#ifndef GPUSYM_COMMON_RAIL_WORKER_H
#define GPUSYM_COMMON_RAIL_WORKER_H

#include "mca/common/gpusym/device/device.h"
#include "mca/common/gpusym/net/stream.h"

typedef struct gpusym_worker gpusym_worker_t;
/* A process that messages go to.  Owned by its worker; valid until gpusym_worker_close. */
typedef struct gpusym_worker_peer gpusym_worker_peer_t;

typedef struct {
    const gpusym_transport_t *transport;
    gpusym_net_devices_t devices;
    uint64_t bytes; /* of memory for rings and send buffers, in all; rounded up to whole pages */
} gpusym_worker_params_t;

/* The longest piece of a worker with so much memory is a part of it, and a power of two between these. */
#define GPUSYM_WORKER_PARTS 256u
#define GPUSYM_WORKER_PIECE_MIN (16u << 10)
#define GPUSYM_WORKER_PIECE_MAX (512u << 10)
/* Less memory than this is not worth pinning. */
#define GPUSYM_WORKER_PINNED_MIN (1u << 20)

/* Opens a worker without a thread.  Its memory is only reserved: pages take memory once they are touched, all of them
 * once the memory is mapped for a GPU.  20 to 100 ms.  On failure *why is a text that stays valid until the next open:
 * GPUSYM_ERR_NO_MEMORY; GPUSYM_ERR_BAD_PARAM: bytes is 0; an error of the transport.  The caller closes the worker. */
int gpusym_worker_open(const gpusym_worker_params_t *params, gpusym_worker_t **worker, const char **why);
/* Ends the helper thread, which may take as long as a task's poll, then closes all streams and peers and unmaps the
 * memory.  Rails are closed before, or freed after it (gpusym_rail_free); tasks are forgotten.  The lock is not held,
 * and no other thread uses the worker.  NULL is accepted. */
void gpusym_worker_close(gpusym_worker_t *worker);

/* Returns the bytes of the longest piece, which depend on the bytes of the memory alone.  Any thread, without the lock,
 * as for the address. */
uint32_t gpusym_worker_piece_bytes(const gpusym_worker_t *worker);
/* Returns the address of this process, for gpusym_worker_peer_get of its peers: up to about 1 KiB, valid until
 * close. */
const void *gpusym_worker_address(const gpusym_worker_t *worker, size_t *bytes);

/* ---- the lock ---- */

/* Takes the lock, if nobody has it, and moves the streams on.  False: another thread is at it: come back later.  For
 * 1 ms the helper thread stays away then, unless a task waits, or was polled 10 ms ago. */
bool gpusym_worker_enter(gpusym_worker_t *worker);
/* The same, but waits for the lock: for as long as another thread polls its calls. */
void gpusym_worker_enter_wait(gpusym_worker_t *worker);
void gpusym_worker_leave(gpusym_worker_t *worker);

/* ---- with the lock held ---- */

/* Returns the streams.  The worker opens and closes them, and notes are dropped. */
gpusym_net_streams_t *gpusym_worker_streams(gpusym_worker_t *worker);

/* Gets the peer of an address, which is copied: the same one for the same address, opened at the first get.  inside: as
 * the transport's peer_open.  It may be lost already.  Errors as peer_open; one that could not be reached is not tried
 * again, which may take minutes.  The caller puts it as often as it got it. */
int gpusym_worker_peer_get(gpusym_worker_t *worker, const void *address, size_t bytes, bool inside,
                           gpusym_worker_peer_t **peer);
/* Tells that the caller needs the peer no longer.  It stays open until gpusym_worker_close: a stream may still have
 * messages under way to it.  The end of a process that nobody needs is no loss, and is not logged. */
void gpusym_worker_peer_put(gpusym_worker_peer_t *peer);
/* Returns the transport's peer, for gpusym_rail_peer_t. */
gpusym_net_peer_t *gpusym_worker_peer_net(gpusym_worker_peer_t *peer);
/* Returns why a peer is lost, a text that stays valid until gpusym_worker_close.  NULL: it is there, as far as is
 * known.  Any thread, without the lock. */
const char *gpusym_worker_peer_lost(const gpusym_worker_peer_t *peer);

/* Pins the memory for a GPU, at the first call: *host for the CPU, *device for the GPU, as gpusym_rail_params_t wants
 * them.  About 1 ms for 10 MiB.  Where not all of it can be pinned, or that would take more than half of what the
 * process's cgroup has left, as much of its beginning as can, halving it down to GPUSYM_WORKER_PINNED_MIN; the rest is
 * not used from then on.  GPUSYM_ERR_UNREACHABLE: the memory is another GPU's; else an error of host_register. */
int gpusym_worker_map(gpusym_worker_t *worker, const gpusym_device_t *dev, gpusym_gpu_t *gpu, char **host,
                      char **device);

/* Returns the bytes of the memory that are used at most: those that are pinned. */
uint64_t gpusym_worker_bytes(const gpusym_worker_t *worker);

/* Allocates a send buffer at *p, page-aligned, undefined, from the memory that the rings are in.  GPUSYM_ERR_NO_MEMORY:
 * no range of that size is free; GPUSYM_ERR_BAD_PARAM: bytes is 0. */
int gpusym_worker_alloc(gpusym_worker_t *worker, uint64_t bytes, char **p);
/* Frees it, with the same bytes.  No message from it is under way. */
void gpusym_worker_free(gpusym_worker_t *worker, char *p, uint64_t bytes);
/* Returns the bytes of the memory that neither rings nor send buffers have, not always in one range. */
uint64_t gpusym_worker_room(const gpusym_worker_t *worker);

/* ---- tasks ---- */

/* What the helper thread does besides moving the streams on.  The caller owns it, and sets all but next. */
typedef struct gpusym_worker_task {
    /* Called by the helper thread with the lock held, after the streams have moved on.  Returns whether it waits for
     * something that only another look finds out, a kernel's end say.  May remove its own task, and add others. */
    bool (*poll)(void *arg);
    void *arg;
    struct gpusym_worker_task *next;
} gpusym_worker_task_t;

/* Adds a task; with the lock held, as for the rest.  The first one starts the helper thread, which looks every 100 us
 * while a task waits, or something has come or gone in the last 50 ms, and every 10 ms otherwise.
 * GPUSYM_ERR_NOT_AVAILABLE: no thread can be started, which is logged, and the task has not been added: only MPI's
 * threads move the streams on. */
int gpusym_worker_add_task(gpusym_worker_t *worker, gpusym_worker_task_t *task);
/* Removes a task, which was added; it is not polled any more. */
void gpusym_worker_remove_task(gpusym_worker_t *worker, gpusym_worker_task_t *task);

#endif
