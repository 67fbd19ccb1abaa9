/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The engine of a communicator: its fallback, its team, its resident kernels, and the list of its calls.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_ENGINE_H
#define MCA_COLL_GPUSYM_EXEC_ENGINE_H

#include "mca/coll/gpusym/exec/on_stream.h"
#include "mca/coll/gpusym/exec/resident.h"
#include "mca/coll/gpusym/exec/staged_copies.h"
#include "mca/coll/gpusym/fallback/fallback.h"
#include "mca/coll/gpusym/plan/task.h"
#include "mca/coll/gpusym/team/settings.h"
#include "mca/coll/gpusym/team/team.h"

struct coll_gpusym_call;

typedef struct coll_gpusym_engine {
    coll_gpusym_fallback_t *fallback; /* not owned */
    /* The next three are made at the first collective that wants a team; NULL: not yet, or there is none. Owned. */
    coll_gpusym_team_t *team;
    coll_gpusym_residents_t *residents;
    coll_gpusym_plan_cache_t *cache;
    coll_gpusym_staging_buffers_t staging_buffers; /* of the team's ranks */
    coll_gpusym_on_stream_t *on_stream; /* for calls on streams of the program; NULL: none has been prepared. Owned */
    /* A call on host buffers depends on no other rank, and the last call was one: the next is expected to be. The team
     * is open and no call is in flight, or the communicator is apart. Written by the thread that makes a call: set once
     * one is forwarded, reset where one enters the list. Reset by any thread where a staged call fails. */
    bool host_only;
    bool alone; /* an intracommunicator of one rank */
    /* No team: there is nothing to agree on, or not all ranks have the same gpusym. Each rank stages its own buffers,
     * and calls the fallback once for each call, as a rank without gpusym does. */
    bool apart;
    int reason_apart; /* enum coll_gpusym_reason, for what is staged then */
    /* Where calls are recorded: when MPI was called last, in ticks (trace/ticks.h), and how; the communicator in the
     * trace, plus one, and calls of it that no call agreement numbers. Written by the thread that makes a call; the
     * last three where a call is polled, or ends. */
    struct {
        uint64_t entered;
        uint8_t form; /* enum coll_gpusym_form */
        struct {      /* the same of the call that has not taken its record yet: see exec/traced.h */
            uint64_t entered, posted, there; /* in ticks; the last two 0: it has not waited */
            uint32_t last;                   /* the rank of the team that it has waited for last */
            uint8_t form;
        } later;
        uint32_t comm, nth;
        uint64_t calls;
    } trace;
    bool noted;               /* a nonblocking call has been (coll_gpusym_params.notes), and is being started */
    coll_gpusym_wish_t *wish; /* the settings that the program wants, newest first; NULL: none. Owned */
    int internal;             /* internal.c's: how Open MPI's own all-reduces go, if that is known */
    /* Calls that are not over, in the order in which they were made: nonblocking ones, and blocking ones behind them.
     * See list.h. */
    struct coll_gpusym_call *first, **last;
    /* In the list of engines that progress polls; link NULL: not in it. */
    struct coll_gpusym_engine *active_next, **active_link;
} coll_gpusym_engine_t;

/* Sets up a zeroed engine for the communicator of the fallback. */
void coll_gpusym_engine_init(coll_gpusym_engine_t *e, coll_gpusym_fallback_t *fallback);
/* Creates the team, or sets e->apart if there is none. Local. Returns an MPI error code. */
int coll_gpusym_engine_find_team(coll_gpusym_engine_t *e);
/* Whether no call on a stream is under way, as far as the host knows: others wait for that. */
static inline bool coll_gpusym_engine_streams_ended(const coll_gpusym_engine_t *e)
{
    return NULL == e->on_stream || coll_gpusym_on_stream_ended(e->on_stream);
}
/* After the communicator's last collective: ends resident kernels, frees the team. */
void coll_gpusym_engine_end(coll_gpusym_engine_t *e);

#endif
