/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls on streams of the program: no rank waits for another on the host, the kernels agree by themselves
 * (kernels/prim/stream.h).  A communicator has a slot of its own for them, so that neither flags nor epochs are shared
 * with its other calls.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_ON_STREAM_H
#define MCA_COLL_GPUSYM_EXEC_ON_STREAM_H

#include "mca/coll/gpusym/exec/regions.h"
#include "mca/coll/gpusym/plan/segments.h"
#include "mca/common/gpusym/exec/lane.h"

/* In place of a rank that has failed: the communicator has been revoked. */
#define COLL_GPUSYM_ON_STREAM_REVOKED (-2)

/* A communicator's. */
typedef struct coll_gpusym_on_stream {
    coll_gpusym_team_t *team;         /* not owned; NULL: the communicator has one rank, whose calls are copies */
    struct ompi_communicator_t *comm; /* with the team; not owned */
    gpusym_work_t work;               /* the slots of calls on streams, and their layout */
    uint32_t max_blocks;              /* of a launch, for which the slot has room */
    uint32_t threads;                 /* of a launch, for which the GPUs have room: agreed */
    bool ready;                       /* all ranks are: there may be calls */
    /* Its pinned memory, with the words of all calls: `done`, of those that tell the host; doorbell[0]: `failed` of
     * gpusym_work_t; `abort`. Its stream has no work, and tells of the GPU's errors. NULL: there is none yet. */
    gpusym_lane_t *lane;
    uint32_t queued;         /* number of the last call that no graph has; never 0 once there was one */
    bool captured;           /* some graph has a call: it may be launched at any time */
    void *handle;            /* of the stream of the last call, */
    gpusym_stream_t *stream; /* which this is, */
    gpusym_gpu_t *gpu;       /* of this GPU; NULL: there was none. The stream is owned */
    uint32_t ahead[2]; /* threads of the last call's kernel, if the next one's may come beside it; of those in graphs */
    bool several;      /* there have been calls on several streams: each tells the host, for the next one */
    uint32_t telling;  /* number of the last call that tells the host */
    /* Atomic: requests on streams (call/request.h) are polled by any thread. */
    uint32_t ended;      /* number of the last call that is known to have ended, by the GPU's memory */
    uint64_t checked_ns; /* when ranks and GPU were looked at last */
    uint32_t lost;       /* status, of ranks that have died or a GPU that reports an error; 0: none has */
    int lost_rank;       /* -1: the GPU; COLL_GPUSYM_ON_STREAM_REVOKED */

    coll_gpusym_regions_t regions; /* registered memory: calls on buffers in it may go straight between them */
} coll_gpusym_on_stream_t;

/* What a rank has for its peers' kernels, exchanged by all ranks as they prepare the communicator. */
typedef struct {
    gpusym_slot_offer_t slots;
    uint64_t slot_off; /* of the slot that the communicator has already */
    uint32_t threads;  /* that a launch on a stream may have */
    int32_t reason;    /* enum coll_gpusym_reason: why this rank cannot; -1: it can */
} coll_gpusym_on_stream_offer_t;

/* Preparing, in three steps between which all ranks tell each other what they have; all decide alike. Returns NULL
 * without memory. */
coll_gpusym_on_stream_t *coll_gpusym_on_stream_create(coll_gpusym_team_t *t, struct ompi_communicator_t *comm);
void coll_gpusym_on_stream_offer(coll_gpusym_on_stream_t *s, coll_gpusym_on_stream_offer_t *mine);
/* all: [ranks]. Whether this rank is ready: the others may not be, and no kernel runs before all are. */
bool coll_gpusym_on_stream_settle(coll_gpusym_on_stream_t *s, const coll_gpusym_on_stream_offer_t *all);
/* The same for a communicator of one rank, in one step. NULL without memory. */
coll_gpusym_on_stream_t *coll_gpusym_on_stream_create_alone(gpusym_gpu_t *gpu);
/* After the communicator's last call; waits for what is queued. NULL is fine. */
void coll_gpusym_on_stream_end(coll_gpusym_on_stream_t *s);

/* Ends a region once the queued calls on it have ended. */
void coll_gpusym_on_stream_deregister(coll_gpusym_on_stream_t *s, coll_gpusym_region_t *region);
/* Sets what the stream of a handle is, which then waits for calls on another one; if it is captured, this waits. False:
 * it is no stream of that GPU, which is the team's if there is one. */
bool coll_gpusym_on_stream_take(coll_gpusym_on_stream_t *s, gpusym_gpu_t *gpu, void *handle);
/* Whether there are kernels on streams for its collective. */
bool coll_gpusym_on_stream_serves(const coll_gpusym_segments_t *k);
/* Queues a call on that stream: k is described, and asks for no scratch memory. tells: coll_gpusym_on_stream_told will
 * be asked for it; then it ends 1 us later. A device's error. */
int coll_gpusym_on_stream_queue(coll_gpusym_on_stream_t *s, const coll_gpusym_segments_t *k, bool captured, bool tells);
/* Queues a call of one rank. */
int coll_gpusym_on_stream_copy(coll_gpusym_on_stream_t *s, unsigned coll, const coll_gpusym_copy_t *copy,
                               bool captured);
/* What a stream, which is not captured, gets from now on waits for the call of that number: `queued`, when it was the
 * last one. By itself; this waits where the device cannot. */
void coll_gpusym_on_stream_follow(coll_gpusym_on_stream_t *s, gpusym_stream_t *stream, uint32_t number);

/* Whether all calls have ended, but those of graphs, or one has failed. While it is not known, that takes 20 us. */
bool coll_gpusym_on_stream_ended(coll_gpusym_on_stream_t *s);
/* Whether a call that tells the host has ended, and all before it, or one has failed. Any thread. */
bool coll_gpusym_on_stream_told(coll_gpusym_on_stream_t *s, uint32_t number);
/* The status (kernels/work.h) with which one has failed; 0: none has. *rank: the cause, -1: unknown, or
 * COLL_GPUSYM_ON_STREAM_REVOKED. */
uint32_t coll_gpusym_on_stream_failed(coll_gpusym_on_stream_t *s, int *rank);
/* Makes progress, for a program that makes no call of MPI: word of a revoked communicator comes so. */
void coll_gpusym_on_stream_listen(void);
/* The MPI error code for both. Open MPI is told of a rank that has died. */
int coll_gpusym_on_stream_code(const coll_gpusym_on_stream_t *s, uint32_t status, int rank);

#endif
