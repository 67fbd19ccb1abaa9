/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What becomes of a call, in its record of the trace (trace/record.h). Each function is one branch where there is none.
 *
 * A short call waits for its GPU, from when this has its command until it has done it. What the trace does before
 * delays the GPU, what it does behind delays the program, what it does meanwhile nobody. So a clock is read before, one
 * is read behind, and all else stands between. A call takes its record where the GPU has its command, or where it has
 * waited for ranks for a while; if nothing can change any more but that it fails, its record is complete then, but for
 * the times of its end.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_TRACED_H
#define MCA_COLL_GPUSYM_EXEC_TRACED_H

#include "mca/coll/gpusym/exec/way.h"
#include "mca/coll/gpusym/trace/record.h"
#include "mca/common/gpusym/sanitizers.h"

#define COLL_GPUSYM_TRACED(run) (__builtin_expect(0 != (run)->trace, 0))

void coll_gpusym_traced_note_enter(coll_gpusym_engine_t *e, enum coll_gpusym_form form);
/* Takes a record for a call; or has it take one as above. */
void coll_gpusym_traced_take(coll_gpusym_run_t *run);
void coll_gpusym_traced_take_later(coll_gpusym_run_t *run);
/* The rest of what follows, for a call that has a record. */
void coll_gpusym_traced_note_posted(coll_gpusym_run_t *run, bool posted);
void coll_gpusym_traced_note_awaits(coll_gpusym_run_t *run);
void coll_gpusym_traced_note_there(coll_gpusym_run_t *run, bool late);
void coll_gpusym_traced_note_launched(coll_gpusym_run_t *run, uint32_t blocks);
void coll_gpusym_traced_note_runs(coll_gpusym_run_t *run, const coll_gpusym_way_t *way, uint32_t blocks);
void coll_gpusym_traced_note_ran(const coll_gpusym_run_t *run);
void coll_gpusym_traced_note_end(coll_gpusym_run_t *run, const coll_gpusym_way_t *way);

/* MPI was called so. A collective of the fallback's, inside the program's, is not recorded. */
static inline void coll_gpusym_traced_enter(coll_gpusym_engine_t *e, enum coll_gpusym_form form)
{
    if (__builtin_expect(GPUSYM_FLAG(coll_gpusym_trace_on), 0)) {
        coll_gpusym_traced_note_enter(e, form);
    }
}
/* A call that has entered begins. */
static inline void coll_gpusym_traced_begin(coll_gpusym_run_t *run)
{
    if (__builtin_expect(GPUSYM_FLAG(coll_gpusym_trace_on), 0)) {
        coll_gpusym_traced_take(run);
    }
}
/* The same of a call with a team, which is to be posted. */
static inline void coll_gpusym_traced_begin_posting(coll_gpusym_run_t *run)
{
    if (__builtin_expect(GPUSYM_FLAG(coll_gpusym_trace_on), 0)) {
        coll_gpusym_traced_take_later(run);
    }
}
/* The call has been polled while it was new. posted: the peers see that this rank is in it, and what can be launched as
 * soon as that has been. */
static inline void coll_gpusym_traced_posted(coll_gpusym_run_t *run, bool posted)
{
    if (COLL_GPUSYM_TRACED(run)) {
        coll_gpusym_traced_note_posted(run, posted);
    }
}
/* A rank is not there yet: the first that is not, of the team. */
static inline void coll_gpusym_traced_awaits(coll_gpusym_run_t *run)
{
    if (COLL_GPUSYM_TRACED(run)) {
        coll_gpusym_traced_note_awaits(run);
    }
}
/* All ranks of the team are. */
static inline void coll_gpusym_traced_there(coll_gpusym_run_t *run)
{
    if (COLL_GPUSYM_TRACED(run)) {
        coll_gpusym_traced_note_there(run, false);
    }
}
/* All ranks have agreed, of several islands: which of them came last is not known. */
static inline void coll_gpusym_traced_agreed(coll_gpusym_run_t *run)
{
    if (COLL_GPUSYM_TRACED(run) && coll_gpusym_team_is_part(run->engine->team)) {
        coll_gpusym_traced_note_there(run, true);
    }
}
/* The way has begun; its kernel, if there is one, has so many blocks, 0: not known. */
static inline void coll_gpusym_traced_launched(coll_gpusym_run_t *run, uint32_t blocks)
{
    if (COLL_GPUSYM_TRACED(run)) {
        coll_gpusym_traced_note_launched(run, blocks);
    }
}
/* The same of a way whose calls, from now on, end by it. */
static inline void coll_gpusym_traced_runs(coll_gpusym_run_t *run, const coll_gpusym_way_t *way, uint32_t blocks)
{
    if (COLL_GPUSYM_TRACED(run)) {
        coll_gpusym_traced_note_runs(run, way, blocks);
    }
}
/* The kernel has written its completion word; run->launch has its lane yet. */
static inline void coll_gpusym_traced_ran(const coll_gpusym_run_t *run)
{
    if (COLL_GPUSYM_TRACED(run)) {
        coll_gpusym_traced_note_ran(run);
    }
}
/* The call is complete, with run->error; one that was forwarded is not recorded. way: that has done it, NULL: none. */
static inline void coll_gpusym_traced_end(coll_gpusym_run_t *run, const coll_gpusym_way_t *way)
{
    if (COLL_GPUSYM_TRACED(run)) {
        coll_gpusym_traced_note_end(run, way);
    }
}
/* A call that the only rank of a communicator has done by copying, with that MPI error code. */
void coll_gpusym_traced_alone(coll_gpusym_engine_t *e, coll_gpusym_buffers_t *b, int error);

#endif
