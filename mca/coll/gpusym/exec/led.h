/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What leaders and rails do alike: each rank brings its input to where another rank loads it, waits until those that do
 * the call have ended, and takes its output from where they store it.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_LED_H
#define MCA_COLL_GPUSYM_EXEC_LED_H

#include "mca/coll/gpusym/exec/way.h"
#include "mca/coll/gpusym/plan/zero_copy.h"

/* Whether this rank does calls for others. */
static inline bool coll_gpusym_led_leads(const coll_gpusym_run_t *run)
{
    const coll_gpusym_team_t *t = run->engine->team;
    return t->host.leader_index < t->host.nleaders;
}

/* Of `agree`: finds out by a vote whether all that lead reach all buffers. DONE; WAITS, FAILED; REFUSED: they do not,
 * for run->reason is `otherwise`. */
coll_gpusym_turn_t coll_gpusym_led_map(coll_gpusym_run_t *run, int otherwise);
/* Of `poll`, from its first one on: all ranks are in the call, and reach all buffers. This rank's input is brought to
 * where it is loaded; one that leads then waits for the others' inputs, and DONE: it is to do its part, with all
 * buffers in *all. Its step is LEAD then; other ranks' OTHERS. */
coll_gpusym_turn_t coll_gpusym_led_begin(coll_gpusym_run_t *run, coll_gpusym_led_buffers_t *all);
/* This rank has done its part. */
coll_gpusym_turn_t coll_gpusym_led_done(coll_gpusym_run_t *run);
/* Steps OTHERS and DRAIN: until all that lead have done their part, and the output is where the user wants it. limited:
 * that may take coll_gpusym_timeout; else missing ranks are told from time to time. */
coll_gpusym_turn_t coll_gpusym_led_end(coll_gpusym_run_t *run, bool limited);
/* As coll_gpusym_way_t.check in all steps but LEAD. limited: as of coll_gpusym_led_end. */
coll_gpusym_turn_t coll_gpusym_led_check(coll_gpusym_run_t *run, uint64_t now_ns, bool limited);
/* Whether this rank's copies run, to where leaders load its input or from where they store its output. */
bool coll_gpusym_led_copies(const coll_gpusym_run_t *run);
/* As coll_gpusym_way_t.end. */
void coll_gpusym_led_lose(coll_gpusym_run_t *run);

#endif
