/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The multicast object of a team, at the end of its second step: made by rank 0, opened by the others, joined by all,
 * bound to the slots of all, and tried.  All ranks agree behind each of these: where one cannot, none has it.  That of
 * all processes of a host is bound to whole slabs of their heaps, which keep it for other teams of the same ranks.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_MULTICAST_H
#define MCA_COLL_GPUSYM_TEAM_MULTICAST_H

#include "mca/coll/gpusym/team/state.h"

/* What a rank offers, and what all do. */
enum coll_gpusym_mc {
    COLL_GPUSYM_MC_NOT,   /* it may not, or cannot */
    COLL_GPUSYM_MC_USED,  /* as the tuning table says, without a trial */
    COLL_GPUSYM_MC_TRIED, /* as the user says: where each kernel gives the right bits */
};

/* Trials of this process that all of their ranks have passed: their random numbers, 0 where there is none. */
enum { COLL_GPUSYM_MC_TRIALS = 4 };
typedef struct {
    uint64_t id[COLL_GPUSYM_MC_TRIALS];
} coll_gpusym_mc_passed_t;

/* What this rank offers. has: its GPU and driver have multicast objects. Makes nothing. */
uint32_t coll_gpusym_mc_offer(const coll_gpusym_team_t *t, bool has);
/* Gets the last trials that this process has passed. Thread-safe. */
void coll_gpusym_mc_passed(coll_gpusym_mc_passed_t *passed);
/* Returns whether n ranks, whose trials are `stride` bytes apart, have all passed one and the same: it need not be
 * repeated. */
bool coll_gpusym_mc_passed_one(const coll_gpusym_mc_passed_t *first, size_t stride, uint32_t n);
/* Takes the object that this rank's slab has, where all ranks have told its id, which is not 0. False, on all of them:
 * it has other ranks than these. */
bool coll_gpusym_mc_take(coll_gpusym_team_t *t, bool requested, uint64_t id);
/* Begins, where all ranks have agreed to. requested: by the user; tried: the kernels are tried before they are used.
 * Returns the next step of set-up, or a negative error. */
int coll_gpusym_mc_start(coll_gpusym_team_t *t, bool requested, bool tried);
/* The exchange of a step has ended, or, in STEP_MC_RUN, coll_gpusym_mc_poll() has returned 1. Returns the next step, or
 * a negative error. */
int coll_gpusym_mc_step(coll_gpusym_team_t *t);
/* In STEP_MC_RUN: 1: the kernel has ended here, or failed; 0: not yet; negative: set-up has failed. Never waits. */
int coll_gpusym_mc_poll(coll_gpusym_team_t *t);
/* The end of set-up, well or not. A kernel that still runs is told to end; the team runs_on then. */
void coll_gpusym_mc_end(coll_gpusym_team_t *t);
/* The end of the team, after its line has been retired. Peers' kernels may still use the object: the heap frees it. */
void coll_gpusym_mc_leave(coll_gpusym_team_t *t);

#endif
