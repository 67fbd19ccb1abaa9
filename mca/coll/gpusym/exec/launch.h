/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The launch of a planned call: a lane, scratch memory, packing, kernels and copy engines.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_LAUNCH_H
#define MCA_COLL_GPUSYM_EXEC_LAUNCH_H

#include "mca/coll/gpusym/plan/lead.h"
#include "mca/common/gpusym/exec/lane.h"

/* How a call comes to its kernel. */
enum coll_gpusym_how {
    COLL_GPUSYM_LAUNCHED,  /* once all ranks have posted it; or not yet */
    COLL_GPUSYM_COMMANDED, /* nothing is launched: a resident kernel was there */
    COLL_GPUSYM_EARLY,     /* launched when it was posted, as if it were commanded */
    COLL_GPUSYM_ENTERS,    /* launched when it was posted: see early.h */
    COLL_GPUSYM_LATE,      /* launched, for one of these three had retired with nothing of it done */
};

/* What one start of a call holds on the GPU. Zeroed before its first use, but for `algorithm`. */
typedef struct {
    gpusym_lane_t *lane; /* while a kernel of ours is queued, or has been sent a command; NULL: none is */
    struct gpusym_copies_streams *streams; /* and of copy engines, what they do for us; NULL: nothing */
    char *scratch;                         /* GPU memory, while the call lasts; NULL: none */
    char *list, *list_from;                /* the same, for a leader's list of jobs; the host's copy of it, owned */
    gpusym_gpu_t *scratch_gpu;             /* of both */
    int algorithm;                         /* that runs; -1: none yet */
    bool unpacks;                          /* what unpacks the output is queued behind the kernel */
    uint8_t words;                         /* so many parts of the lane's operation tell its end; 0: the stream does */
    /* A resident kernel's part: see resident.h. */
    struct {
        uint8_t how;   /* enum coll_gpusym_how */
        bool remains;  /* the kernel remains on the GPU afterwards: the lane is not given back */
        bool recalled; /* it has the call, and then all ranks agreed that the fallback does it */
    } resident;
} coll_gpusym_launch_t;

/* Whether a kernel has the call, and may yet retire with nothing of it done; and whether that has retired. */
static inline bool coll_gpusym_launch_has_begun(const coll_gpusym_launch_t *l)
{
    return COLL_GPUSYM_LAUNCHED != l->resident.how && COLL_GPUSYM_LATE != l->resident.how;
}
static inline bool coll_gpusym_launch_retired(const coll_gpusym_launch_t *l)
{
    return coll_gpusym_launch_has_begun(l) && gpusym_lane_retired(l->lane);
}

/* Gets the scratch memory that the call needs, if it has none yet, and has its buffers there. False: there is none. */
bool coll_gpusym_scratch_get(coll_gpusym_launch_t *l, coll_gpusym_segments_t *k);
void coll_gpusym_scratch_put(coll_gpusym_launch_t *l);
/* Instead: leaders may still access the call's scratch memory, which is not used again. */
void coll_gpusym_scratch_lose(coll_gpusym_launch_t *l);

/* Queues the planned launch, with what packs its input and unpacks its output (or does not: l->unpacks), on a lane; the
 * epoch of p->work is set. False: that failed, and
 * nothing is queued, or the lane and streams that may wait for ever are given up. */
bool coll_gpusym_launch_plan(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task, coll_gpusym_plan_t *p);
/* Whether resident kernels can have several blocks, as far as it is known. */
bool coll_gpusym_launch_clusters(void);
/* Queues one kernel on l->lane; a resident one with one block, where it cannot have several. False: that failed, and
 * nothing is queued. */
bool coll_gpusym_launch_kernel(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task, unsigned kernel,
                               gpusym_work_t *w);
/* Where ranks share GPUs. Each queues on a lane of its own, l->lane, or leaves that NULL and returns false. */
/* Queues what brings this rank's input to where leaders load it, and output that they keep to where they store it. */
bool coll_gpusym_launch_fill(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task);
/* Queues a leader's kernel, which has something to do. */
bool coll_gpusym_launch_lead(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task, coll_gpusym_lead_plan_t *p);
/* Queues what brings the output from where a leader has stored it to the user. */
bool coll_gpusym_launch_drain(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task);
/* Whether there is anything to bring there. */
bool coll_gpusym_launch_drains(const coll_gpusym_task_t *task);

/* Queues what brings the kernel's output from scratch memory to the user, behind the kernel. False: that failed. */
bool coll_gpusym_launch_unpack(coll_gpusym_launch_t *l, const coll_gpusym_segments_t *k);
/* Gives back the streams of copy engines: what they do has ended. */
void coll_gpusym_launch_put_streams(coll_gpusym_launch_t *l);
/* The same of the lane. */
void coll_gpusym_launch_put_lane(coll_gpusym_launch_t *l);
/* Gives up lane and streams for good: they may wait for ever, and are not used again. */
void coll_gpusym_launch_abandon(coll_gpusym_launch_t *l);

#endif
