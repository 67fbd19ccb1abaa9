/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Launch tokens: the order of launches where several threads of a process are in calls of different communicators.
 *
 * Their kernels must not be in flight together: a kernel waits for its peers' kernels, a driver call of another thread
 * (cudaFree, say) may wait for that kernel and keep yet another from being launched, and two processes doing so wait for ever.
 * So every process has one launch token, and a call needs the tokens of all its ranks. Rank 0 takes them, in an order that is
 * the same everywhere, so that takers cannot block each other in a circle, and says go.
 */
#ifndef GPUSYM_COMMON_AGREE_TOKENS_H
#define GPUSYM_COMMON_AGREE_TOKENS_H

#include "mca/common/gpusym/agree/rollcall.h"

/* Makes a roll-call whose peers are set take tokens, in an order kept in order[nranks]. line_off: of rank 0's line.
 * All ranks compute the same. */
void gpusym_tokens_init(gpusym_rollcall_t *rc, uint32_t *order, uint64_t line_off);
/* One try for the call `seq`. 1: it may launch; 0: not yet. Never waits. */
int gpusym_tokens_take(gpusym_rollcall_t *rc, uint64_t seq);
/* A call has ended on this rank: gives our process's token back; rank 0 of a failed call gives all back. */
void gpusym_tokens_give(gpusym_rollcall_t *rc, bool failed);
/* Rank 0, while it waits: if the token in its way is held by a process that has died, frees it. The rank in whose token
 * stands what nobody writes there; -1: none. */
int gpusym_tokens_rescue(gpusym_rollcall_t *rc);

#endif
