/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One start of a call, for plans and launches: what this rank has, and what all ranks have agreed on.
 */
#ifndef MCA_COLL_GPUSYM_PLAN_TASK_H
#define MCA_COLL_GPUSYM_PLAN_TASK_H

#include "mca/coll/gpusym/plan/segments.h"
#include "mca/common/gpusym/memory/reg.h"

/* Zero copy of one start. */
typedef struct {
    bool agreed;              /* that it may be */
    bool used;                /* and it was */
    uint32_t in_key, out_key; /* pinned; 0: none */
    /* For leaders: a buffer that none can map goes through a range of our staging buffer. */
    bool in_staging, out_staging, fills; /* fills: leaders wait until we tell that our input is where they load it */
    uint64_t in_off, out_off;            /* of the ranges; owned */
    bool led;                            /* leaders may do the call: what they need is posted */
} coll_gpusym_zero_copy_t;

/* What a communicator knows of its peers' buffers, from one call to the next. Zeroed before its first use. */
typedef struct {
    bool refused; /* a rank could not map a peer's buffer: agreed by all, no zero copy from then on */
    uint64_t longest[COLL_GPUSYM_NATIVES]; /* agreed bytes of each collective's last call; 0: there was none */
    uint32_t changes;                      /* of the settings (team/settings.h): plans of before do not hold */
    bool told_unavailable;                 /* it has been reported that a requested algorithm is not available */
    /* By rank, for its input and its output: the last key, and where that allocation is mapped: which holds as long as
     * the rank posts that key. Saves a lookup under a lock for each. */
    struct {
        uint32_t key;
        void *base;
        uint64_t size; /* bytes */
    } mapped[COLL_GPUSYM_LED_MAX][2];
    bool staging_mapped;                 /* all leaders have mapped our staging buffer */
    uint32_t key_mapped[GPUSYM_REG_MAX]; /* by index: the last key of ours that all ranks have mapped */
} coll_gpusym_plan_cache_t;

/* How far a call goes in each rank's buffers, from where they begin, in bytes. */
typedef struct {
    uint64_t in[GPUSYM_TEAM_MAX], out[GPUSYM_TEAM_MAX];
} coll_gpusym_reach_t;

/* A launch that is made again and again: all but its epoch. Zeroed before its first use. */
typedef struct {
    uint32_t valid;            /* made when the cache had so many changes, plus one; 0: not made */
    coll_gpusym_reach_t reach; /* zero copy */
    bool zero_copy;
    bool copies, reduces;  /* copy engines send the data (copies.h); and kernels reduce it */
    uint8_t resident;      /* blocks of the resident kernel that it is short enough for; 0: none */
    bool own_threads;      /* which has as many threads as the plan says, not as usual */
    bool offered;          /* zero copy was agreed to be possible, used or not */
    bool overwrites;       /* as gpusym_tuning_call_t.overwrites */
    gpusym_graph_t *graph; /* owned; NULL: not made yet */
    int algorithm;
    unsigned kernel;
    uint64_t epochs;
    gpusym_work_t work;
} coll_gpusym_plan_t;

typedef struct {
    coll_gpusym_segments_t *segments; /* not owned, nor are the next two: they outlive the start */
    coll_gpusym_plan_cache_t *cache;  /* the communicator's */
    coll_gpusym_plan_t *plan;         /* persistent: what the first start found out; NULL: not kept */
    bool blocking;
    bool alone;                   /* this process has no other call in flight */
    bool overlaps;                /* not blocking: the program did something else after it had started the call */
    uint32_t hash;                /* of what is alike on all ranks: the call, and the user's tuning */
    gpusym_agreement_read_t read; /* what the ranks have posted */
    const coll_gpusym_pair_sizes_t *sizes; /* NULL: all that is sent is taken */
    coll_gpusym_zero_copy_t zero_copy;
    bool chosen;                   /* `choice` is made */
    gpusym_tuning_choice_t choice; /* algorithm and launch geometry, the same on all ranks */
} coll_gpusym_task_t;

static inline coll_gpusym_team_t *coll_gpusym_task_team(const coll_gpusym_task_t *task)
{
    return task->segments->team;
}

/* How long its kernels wait for a peer at most, in ns; 0: no limit, for a peer may compute before it comes back. */
static inline uint64_t coll_gpusym_task_limit_ns(const coll_gpusym_task_t *task)
{
    return task->blocking ? coll_gpusym_task_team(task)->host.work.limit_ns : 0;
}

static inline unsigned coll_gpusym_task_coll(const coll_gpusym_task_t *task)
{
    return task->segments->args->coll;
}

#endif
