/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The simulated GPU: its table, its parameters, and functions that only the simulator has.
 */
#ifndef GPUSYM_COMMON_DEVICE_SIM_H
#define GPUSYM_COMMON_DEVICE_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mca/common/gpusym/device/device.h"

extern const gpusym_device_t gpusym_device_sim;

/* Parameters of the simulator.  Set them before it is opened. */
typedef struct {
    bool host;      /* treat any pointer that is not the simulator's own as device memory too */
    int gpus;       /* simulated GPUs of this host, assigned to processes by local rank; 0: one each */
    bool mps;       /* an MPS daemon has them */
    int local_rank; /* of this process on its host */
    int world_rank; /* of this process, for @rank */
    int delay;      /* microseconds that kernels and copies of streams take at least; atomic, may change */
    /* Faults to inject: "[die:|stay:]what:n[+][@rank][,...]": the n-th (from 1) alloc, import, export, bind, launch,
     * cluster (launch of a resident kernel of several blocks), graph, hostalloc, copy, stream (its making) or open (of
     * a GPU) fails, or the n-th launch never writes its word ("hang"), or never ends, nor does what is behind it
     * ("freeze"), or the n-th command to a resident kernel comes too late, and it retires ("doorbell"), or the n-th
     * kernel that was launched early leaves when it has sent its entry ("entry"); on every rank or one. With "+" all
     * later ones fail too; with "die:" the process is killed instead as it comes to that; with "stay:" that call does
     * not return. */
    const char *fail;
    void (*dies)(void);  /* is called in place of that death; if it returns, nothing fails. NULL: SIGKILL */
    void (*stays)(void); /* is called by what does not return; if it returns, so does that, and nothing fails */
    /* "A-B:CLASS[!][,...]": the class (topo/links.h) of the link between GPUs A and B, which are numbered as the
     * local ranks they are handed to; 0: neither maps the other's memory. With "!" each copy across it changes a byte.
     * Of all others: one NVLink. */
    const char *links;
} gpusym_sim_params_t;
extern gpusym_sim_params_t gpusym_sim_params;

/* Managed memory, which program and kernels both reach at *p. GPUSYM_ERR_NO_MEMORY, GPUSYM_ERR_BAD_PARAM (size 0). The
 * simulator must be open; close() frees what gpusym_sim_managed_free has not. */
int gpusym_sim_managed_alloc(size_t size, void **p);
int gpusym_sim_managed_free(void *p);
/* Device memory that peers map by a descriptor, as memory of cuMemCreate is, and for which query() reports no id.
 * Errors and lifetime as above. */
int gpusym_sim_vmm_alloc(size_t size, void **p);
int gpusym_sim_vmm_free(void *p);
/* Device memory that no peer can map, as memory of cudaMallocAsync is, and for which query() reports no id. Errors and
 * lifetime as above. */
int gpusym_sim_pool_alloc(size_t size, void **p);
int gpusym_sim_pool_free(void *p);
/* Faults neither hit nor count what the calling thread does until it says false: a test's own memory. */
void gpusym_sim_faults_hold(bool hold);
/* From now on all that this process asks of the device fails, as it does on a GPU once a kernel of the program has
 * accessed an illegal address. */
void gpusym_sim_break(void);
/* Bytes of device memory that this process has allocated, now and at most since open(). Either may be NULL. */
void gpusym_sim_bytes(uint64_t *now, uint64_t *peak);

/*
 * Streams of a program, as CUDA's runtime has them: they take the place of cudaStream_t and its like for programs on
 * the simulator, and are what stream_wrap() takes. Work of a stream runs in its order, beside that of others. While a
 * stream is captured, what is queued on it, also by launches of the device table, goes to a graph, which runs whenever
 * it is launched. Errors: GPUSYM_ERR_NO_MEMORY, GPUSYM_ERR_BAD_PARAM. Thread-safe.
 */
typedef struct gpusym_sim_graph gpusym_sim_graph_t;
typedef struct gpusym_sim_event gpusym_sim_event_t;
int gpusym_sim_stream_create(gpusym_stream_t **stream);
/* Waits for its work. */
int gpusym_sim_stream_destroy(gpusym_stream_t *stream);
int gpusym_sim_stream_synchronize(gpusym_stream_t *stream);
/* Waits for what all streams of the process have now, or get meanwhile; as cudaDeviceSynchronize does. */
int gpusym_sim_synchronize(void);
/* 1: all is done; 0: not yet. */
int gpusym_sim_stream_query(gpusym_stream_t *stream);
int gpusym_sim_stream_copy(gpusym_stream_t *stream, void *dst, const void *src, size_t size);
/* Queues a call of the program's function: its kernel. */
int gpusym_sim_stream_call(gpusym_stream_t *stream, void (*function)(void *), void *argument);
int gpusym_sim_stream_capture(gpusym_stream_t *stream);
int gpusym_sim_stream_capture_end(gpusym_stream_t *stream, gpusym_sim_graph_t **graph);
int gpusym_sim_graph_launch(gpusym_sim_graph_t *graph, gpusym_stream_t *stream);
/* Its launches go on. */
void gpusym_sim_graph_destroy(gpusym_sim_graph_t *graph);
int gpusym_sim_event_create(gpusym_sim_event_t **event);
void gpusym_sim_event_destroy(gpusym_sim_event_t *event);
/* The event is reached once all work is done that the stream has now. */
int gpusym_sim_event_record(gpusym_sim_event_t *event, gpusym_stream_t *stream);
/* 1: it is reached, or was never recorded; 0: not yet. */
int gpusym_sim_event_query(gpusym_sim_event_t *event);
/* Work that the stream gets from now on waits for the event. */
int gpusym_sim_stream_wait(gpusym_stream_t *stream, gpusym_sim_event_t *event);

/*
 * For the kernels' multicast primitives: if mp lies in a multicast pointer of mc_bind, stores in alias[0..members-1]
 * the CPU's addresses of that same offset in each member's memory, in the order of the members, and returns the number
 * of members. 0: mp is not a multicast pointer. Never waits: GPUSYM_ERR_NOT_AVAILABLE until every member has
 * bound its memory (the object's users agree on that before they launch); GPUSYM_ERR_UNREACHABLE where a member's
 * memory cannot be mapped; GPUSYM_ERR_BAD_PARAM where max is too small.
 * The aliases hold until mc_free, or the end of the launch that was given mp.
 */
int gpusym_sim_mc_members(const void *mp, void **alias, unsigned max);

#endif
