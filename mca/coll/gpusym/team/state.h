/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks of a communicator share. Set-up has two steps, both collective and polled, since a nonblocking call
 * must not wait for its peers. Bootstrap, at the first collective: the ranks' addresses, the lines of the call
 * agreement. Join, at the first call in which all ranks have device buffers: the heap, the slots.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_STATE_H
#define MCA_COLL_GPUSYM_TEAM_STATE_H

#include "mca/coll/gpusym/conf/settings.h"
#include "mca/coll/gpusym/fallback/fallback.h"
#include "mca/coll/gpusym/team/peers.h"
#include "mca/common/gpusym/agree/notices.h"
#include "mca/common/gpusym/agree/agreement.h"
#include "mca/common/gpusym/memory/heap.h"
#include "mca/common/gpusym/rules/rules.h"

/* Where set-up is; an exchange is in flight in all but NEW, BOOTSTRAPPED, MC_RUN and DONE. Peers read it: see
 * gpusym_line_step. */
enum {
    COLL_GPUSYM_STEP_NEW = 0,
    COLL_GPUSYM_STEP_ADDRESSES,
    COLL_GPUSYM_STEP_LINES_VOTE,
    COLL_GPUSYM_STEP_NET_VOTE, /* of several islands */
    COLL_GPUSYM_STEP_BOOTSTRAPPED,
    COLL_GPUSYM_STEP_GPU,
    COLL_GPUSYM_STEP_GPU_LINKS,
    COLL_GPUSYM_STEP_MC,
    COLL_GPUSYM_STEP_MC_ADDED,
    COLL_GPUSYM_STEP_MC_BOUND,
    COLL_GPUSYM_STEP_MC_RUN, /* a multicast kernel is tried */
    COLL_GPUSYM_STEP_MC_RAN,
    COLL_GPUSYM_STEP_MC_FAILED, /* the same of a rank that could not launch it, for which kernels do not wait */
    COLL_GPUSYM_STEP_DONE,
};

/* Most ranks of a communicator whose ranks share GPUs. */
#define COLL_GPUSYM_LED_MAX GPUSYM_TEAM_MAX

/* Set-up in progress. */
typedef struct {
    int step;
    struct ompi_request_t *exchange; /* an allgather of the fallback in flight; NULL: none */
    gpusym_notices_t notices;        /* of an island among others: takes the place of the fallback's allgathers */
    void *into;                      /* where the records in flight go, not owned; and the bytes of each */
    uint32_t bytes;
    void *mine, *all;                   /* buffers of an exchange; owned */
    uint8_t my_vote, *votes;            /* [ranks that exchange]; owned */
    bool mc_tried;                      /* the multicast kernels are tried before they are used */
    uint32_t launched;                  /* so many of them have been launched here; peers read it */
    struct coll_gpusym_mc_trial *trial; /* of the multicast kernels; owned */
    uint8_t my_link[GPUSYM_TEAM_MAX];   /* classes of this rank's links; see coll_gpusym_host_team_t.link */
} coll_gpusym_bootstrap_t;

typedef struct coll_gpusym_tuner coll_gpusym_tuner_t;

/* The ranks of one island: their call agreement, and what their kernels use. Ranks in here are members of the island,
 * by their numbers there: see coll_gpusym_team_member. */
typedef struct {
    uint32_t nranks, rank;

    /* From the bootstrap. */
    gpusym_agreement_t rc;      /* valid while the team's reason < 0 or became so after the second step */
    coll_gpusym_peer_t **peers; /* [nranks] the ranks' processes; the array is owned */
    uint64_t key;               /* of our line: identifies the communicator to its processes; not 0 */
    bool has_line;
    bool joined;       /* all ranks have mapped all lines: peers read ours */
    bool threads;      /* some rank may be in several calls at once: calls take launch tokens */
    uint64_t line_off; /* of our line in our pages */

    /* Of the GPUs. */
    gpusym_gpu_t *gpu;
    char gpu_text[112]; /* "NVIDIA H200, 0000:1b:00.0", for messages */
    int mem_gpu;        /* ordinal and context of memory known to be gpu's */
    void *mem_context;
    bool has_slot;
    int slot_class; /* size class */
    uint64_t slot_slab, slot_off, slot_size;
    uint32_t max_blocks; /* a launch may use */
    /* Of calls on streams: a slot of their own; and the first epoch that they have not used. */
    bool has_stream_slot;
    uint64_t stream_slot_off; /* in the same slab */
    uint32_t stream_epoch;
    uint32_t sm_count; /* of the smallest GPU */
    bool clusters;     /* resident kernels may be such: all GPUs have them (gpusym_gpu_info_t), and room for them */
    /* A call begins with the epoch epoch_base + the number of its call agreement: so an epoch belongs to one call
     * alone, also if that is not made by kernels then. Modulo 2^64; the sum is at least 1. */
    uint64_t epoch_base;
    uint32_t barrier;   /* while the slots are cleared: the barrier that is under way, from 1; 0: none */
    gpusym_work_t work; /* peers and layout filled in */
    /* Agreed: the link class (topo/links.h) between ranks a and b, the lower of both directions. */
    uint8_t link[GPUSYM_TEAM_MAX][GPUSYM_TEAM_MAX];
    bool all_reach;    /* else only along the rings, and work.peer[r] is NULL for a rank that this one does not reach */
    bool no_zero_copy; /* not all GPUs reach each other: agreed by all */
    gpusym_rules_t *rules;      /* settled, and the same on all ranks; owned. NULL: none */
    coll_gpusym_tuner_t *tuner; /* the same on all ranks (tuner.h); owned. NULL: none */
    bool ll128;                 /* every link keeps stores of 128 bytes whole */
    uint32_t nrings;
    uint8_t ring[GPUSYM_PATHS_MAX][GPUSYM_TEAM_MAX]; /* orders of the ranks */
    /* A rank's GPU has other processes, of this team or not, agreed by all: the lowest rank of each GPU, its leader,
     * does the calls of the ranks there. Then a leader has a slot, of which it uses the ticket, and the rest of what
     * is above is not used. */
    uint64_t look_at; /* the call from which on we look again who uses our GPU */
    bool leads_next;  /* led from the next call on: agreed by all */
    bool led, mps; /* mps: all processes share their GPUs by one MPS daemon, where kernels that wait run side by side */
    /* Ranks of the team share GPUs, by MPS: they have all that is above, and leaders too, which do what is not short
     * (exec/ways.c). */
    bool beside;
    uint32_t per_gpu;                     /* ranks of the GPU that has most of them */
    void *ticket;                         /* this rank's slot, as it is mapped here; NULL: none */
    uint16_t leader[COLL_GPUSYM_LED_MAX]; /* each rank's */
    uint32_t nleaders;                    /* as many as GPUs */
    uint32_t leader_index;                /* of this rank among them; nleaders: it is none */
    gpusym_mc_t *mc;   /* this team's own object; NULL: none. Multicast is used if work.mc is set, on all ranks */
    bool mc_requested; /* agreed: a rank's user asks for multicast */
} coll_gpusym_host_team_t;

/* A communicator's team: all of its ranks; or the ranks of one island, where it has several. */
typedef struct coll_gpusym_team {
    coll_gpusym_fallback_t *fallback; /* not owned: the communicator, and its messages */
    gpusym_islands_t islands;         /* no table: there is one island, whose members are the communicator's ranks */
    uint32_t island;                  /* this rank's */
    coll_gpusym_peer_t **all;         /* of several islands: [ranks of the communicator]; owned */
    struct coll_gpusym_hosts *hosts;  /* of several islands, bootstrapped: hosts.h; owned */
    bool last_native;                 /* of several islands: the last call that was agreed on was native */
    bool wanted;       /* of several islands: one had data on GPUs while this or another was not set up */
    unsigned rails;    /* which rails all of its members have: as coll_gpusym_hosts_reserve() */
    int reason;        /* enum coll_gpusym_reason for which every call is staged, agreed by all ranks; -1: none */
    bool none;         /* no rank has a device: every call is forwarded, once those in flight are over */
    bool broken;       /* a call failed: flags and epochs differ between ranks, and every further call is refused */
    int error;         /* then: with this MPI error class */
    bool runs_on;      /* a kernel of such a call may still run: what it writes to is not used again */
    bool has_settings; /* `settings` hold */
    uint16_t settled;  /* this rank's wish that has been compared last (settings.h); 0: none */
    coll_gpusym_settings_t settings; /* agreed by all ranks, of one island */
    bool open; /* for calls on host buffers: bootstrapped (host.joined, or reason is set), and not broken */
    coll_gpusym_host_team_t host;
    coll_gpusym_bootstrap_t boot;
} coll_gpusym_team_t;

/* Whether the communicator has other islands. */
static inline bool coll_gpusym_team_is_part(const coll_gpusym_team_t *t)
{
    return NULL != t->islands.table;
}
/* This rank of the communicator, in messages to the user. */
static inline uint32_t coll_gpusym_team_rank(const coll_gpusym_team_t *t)
{
    return (uint32_t) ompi_comm_rank(t->fallback->comm);
}
/* Returns the communicator's rank of a member of the team. */
static inline uint32_t coll_gpusym_team_member(const coll_gpusym_team_t *t, uint32_t member)
{
    return coll_gpusym_team_is_part(t) ? gpusym_island_member(&t->islands, t->island, member) : member;
}

/* The first epoch of the call that has been posted last, until its launch takes more than one. */
static inline uint64_t coll_gpusym_team_epoch(const coll_gpusym_team_t *t)
{
    return t->host.epoch_base + t->host.rc.seq;
}
/* The first epoch that no call has used yet. */
static inline uint32_t coll_gpusym_team_next_epoch(const coll_gpusym_team_t *t)
{
    const uint64_t epoch = coll_gpusym_team_epoch(t) + 1;
    return epoch < GPUSYM_EPOCH_MAX ? (uint32_t) epoch : GPUSYM_EPOCH_MAX;
}

#endif
