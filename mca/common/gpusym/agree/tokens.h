/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Launch tokens: the order of launches where several threads of a process are in calls of different communicators.
 *
 * Kernels of such calls must not be in flight together: a kernel waits for its peers' kernels; a driver call of another
 * thread (cudaFree, say) may wait for that kernel and block the launch of a third; two such processes deadlock. Every
 * process therefore has one launch token, and a call needs the tokens of all its ranks. Rank 0 takes them, in an order
 * that all communicators share, so that no circle of waiting ranks forms, and then gives the go.
 */
#ifndef GPUSYM_COMMON_AGREE_TOKENS_H
#define GPUSYM_COMMON_AGREE_TOKENS_H

#include "mca/common/gpusym/agree/agreement.h"

/* Prepares a call agreement, whose peers are set, to take tokens. order[nranks]: filled; owned by the caller, in use as
 * long as rc. line_off: of rank 0's line. All ranks compute the same order. */
void gpusym_tokens_init(gpusym_agreement_t *rc, uint32_t *order, uint64_t line_off);
/* Tries to take the tokens for call seq. 1: the call may launch; 0: not yet. Never waits. */
int gpusym_tokens_take(gpusym_agreement_t *rc, uint64_t seq);
/* Returns the token of this process after a call; rank 0 of a failed call returns all tokens. */
void gpusym_tokens_give(gpusym_agreement_t *rc, bool failed);
/* Rank 0, while it waits: frees the next token if a dead process holds it. Returns the rank whose token holds a value
 * that no rank writes, or -1. */
int gpusym_tokens_rescue(gpusym_agreement_t *rc);

#endif
