/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of btl/gpunvl share.
 *
 * Calls go one way: the component calls all others; peers.c calls send.c; both call report.c; all use module.c.
 */
#ifndef BTL_GPUNVL_H
#define BTL_GPUNVL_H

#include "mca/common/ompi/ompi_compat.h"

#include <pthread.h>

#include "opal/datatype/opal_convertor.h"

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/p2p/ring.h"
#include "mca/common/gpusym/shm/pages.h"

/* Bytes of a message of ob1 that this transport takes: to begin with, and in the middle.  As many as btl/sm's. */
#define BTL_GPUNVL_EAGER 4096u
#define BTL_GPUNVL_MOST 32768u

typedef struct btl_gpunvl_message btl_gpunvl_message_t;

/* A process of this job on this host, to which this process sends. */
typedef struct mca_btl_base_endpoint_t {
    opal_proc_t *proc;
    gpusym_peer_t *pages; /* whose table of buffers it reads */
    void *inboxes;        /* that process's, mapped; `bytes` of them */
    uint64_t bytes;
    uint32_t slot;        /* of that process: its rank among those of this host */
    uint32_t queued;      /* messages in the queue; atomic */
    uint32_t exports;     /* of GPU memory that the process may be reading; atomic */
    bool gets;            /* ob1 has been told that GPU memory goes there by get */
    bool dead;            /* the process has ended, or has overwritten its ring; atomic */
    pthread_mutex_t lock; /* covers the rest */
    gpusym_ring_writer_t writer;
    btl_gpunvl_message_t *first, *last; /* the queue: of messages for which the ring has no room; first NULL: none */
} btl_gpunvl_endpoint_t;

/* What this transport has done, for its line at MPI_Finalize. Atomic. */
typedef struct {
    uint64_t gets, bytes; /* of GPU memory, from peers */
    uint64_t failed;      /* gets that ob1 repeated in pieces */
    uint64_t exports;     /* buffers that peers could get */
    uint64_t sent;        /* messages of ob1: control, pieces */
    uint64_t queued;      /* of those, that found the ring full */
} btl_gpunvl_counters_t;

/* The one module. */
typedef struct {
    mca_btl_base_module_t super;
    mca_btl_base_module_error_cb_fn_t tell; /* ob1's: of errors, and of what a transport can do; NULL: none yet */
    unsigned long ring_size;                /* the parameter: room of a ring, in bytes */
    uint32_t slot, slots;                   /* of this process; of all of this host */
    btl_gpunvl_endpoint_t **endpoints;      /* by slot; NULL: none yet. Entries are read with acquire order */
    btl_gpunvl_counters_t counters;
} btl_gpunvl_t;
extern btl_gpunvl_t btl_gpunvl;

#define BTL_GPUNVL_COUNT(what, by) __atomic_fetch_add(&btl_gpunvl.counters.what, (by), __ATOMIC_RELAXED)

/* ---- peers.c ---- */

/* Makes the memory that peers write to, and publishes it. False: that cannot be, with a verbose line. */
bool btl_gpunvl_publish(void);
int btl_gpunvl_add_procs(mca_btl_base_module_t *btl, size_t n, opal_proc_t **procs,
                         struct mca_btl_base_endpoint_t **endpoints, opal_bitmap_t *reachable);
int btl_gpunvl_del_procs(mca_btl_base_module_t *btl, size_t n, opal_proc_t **procs,
                         struct mca_btl_base_endpoint_t **endpoints);
/* Tells ob1 of each process that has attached this one that GPU memory goes there by get; and of processes that have
 * ended while something was under way with them.  Called by progress: a few ns. */
void btl_gpunvl_watch(void);
/* Gives back the memory. All endpoints are deleted. */
void btl_gpunvl_withdraw(void);

/* ---- send.c ---- */

mca_btl_base_descriptor_t *btl_gpunvl_alloc(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                            uint8_t order, size_t size, uint32_t flags);
int btl_gpunvl_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor);
mca_btl_base_descriptor_t *btl_gpunvl_prepare_src(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                                  struct opal_convertor_t *convertor, uint8_t order, size_t reserve,
                                                  size_t *size, uint32_t flags);
int btl_gpunvl_send(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                    mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag);

/* Opens the rings in `memory`, from which this process reads: btl_gpunvl.slots of btl_gpunvl_ring_bytes() each. False:
 * no memory. */
bool btl_gpunvl_open_inboxes(void *memory);
uint64_t btl_gpunvl_ring_bytes(void);
/* Whether the process of that slot has attached this one. */
bool btl_gpunvl_is_attached(uint32_t slot);
/* Deliver what has come in, and send what was queued. Return how many messages. One thread at a time. */
int btl_gpunvl_receive(void);
int btl_gpunvl_send_queued(void);
/* Ends the messages in the queue of an endpoint with an error. */
void btl_gpunvl_drop_queued(btl_gpunvl_endpoint_t *endpoint, int status);
void btl_gpunvl_close_sends(void);

/* ---- get.c ---- */

mca_btl_base_registration_handle_t *btl_gpunvl_register(mca_btl_base_module_t *btl,
                                                        struct mca_btl_base_endpoint_t *endpoint, void *base,
                                                        size_t size, uint32_t flags);
int btl_gpunvl_deregister(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle);
int btl_gpunvl_get(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local, uint64_t remote,
                   mca_btl_base_registration_handle_t *local_handle, mca_btl_base_registration_handle_t *remote_handle,
                   size_t size, int flags, int order, mca_btl_base_rdma_completion_fn_t done, void *context,
                   void *data);
/* Bytes of a handle that ob1 sends to the peer. */
size_t btl_gpunvl_handle_size(void);
/* Ends the gets whose copies have ended. Returns how many. One thread at a time. */
int btl_gpunvl_end_gets(void);
/* Waits for the copies under way, which wait for nobody. */
void btl_gpunvl_close_gets(void);

/* ---- report.c ---- */

/* Tell the user, and ob1, which ends the job, or the messages of that process where Open MPI tolerates failures. Once
 * for each endpoint. */
void btl_gpunvl_report_dead(btl_gpunvl_endpoint_t *endpoint);
void btl_gpunvl_report_corrupt(btl_gpunvl_endpoint_t *endpoint);

#endif
