/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the unit tests of the kernels share beyond rig.h: a script of calls is made into parts, run by all ranks, and
 * checked.  A test includes this after it has said what a call is:
 *
 *     call_t                               one call
 *     call_parts(rig, call, part, epoch)   fills the parts of all ranks, from epoch on; returns how many epochs it
 *                                          takes
 *     call_right(rig, call, part)          whether it came out right on every rank; says what did not
 *     describe(rig, call, part, number)    prints the call
 */
#ifndef TEST_UNIT_SCRIPT_H
#define TEST_UNIT_SCRIPT_H

#include "test/unit/rig.h"

/* Fills the parts of a script, rank by rank of call by call, and gives each call its epochs. */
static part_t *parts_new(rig_t *rig, const call_t *calls, size_t ncalls)
{
    part_t *parts = rig_memory(ncalls * rig->nranks * sizeof *parts);
    uint64_t epochs = 0;
    for (size_t c = 0; c < ncalls; c++, rig->seq++) {
        epochs += call_parts(rig, &calls[c], &parts[c * rig->nranks], (uint32_t) epochs);
    }
    parts_epochs(rig, parts, ncalls * rig->nranks, epochs);
    return parts;
}

static void parts_free(const rig_t *rig, part_t *parts, size_t ncalls)
{
    for (size_t i = 0; i < ncalls * rig->nranks; i++) {
        part_free(&parts[i]);
    }
    rig_free_memory(parts);
}

/* Runs a script and checks every call. The caller frees the parts. */
static part_t *rig_run_kept(rig_t *rig, const call_t *calls, size_t ncalls)
{
    part_t *parts = parts_new(rig, calls, ncalls);
    parts_run(rig, parts, ncalls, RANKS_MAX);
    for (size_t c = 0; c < ncalls; c++) {
        const part_t *part = &parts[c * rig->nranks];
        if (!call_right(rig, &calls[c], part)) {
            describe(rig, &calls[c], part, c);
            fail();
        }
    }
    return parts;
}

static void rig_run(rig_t *rig, const call_t *calls, size_t ncalls)
{
    parts_free(rig, rig_run_kept(rig, calls, ncalls), ncalls);
}

#endif
