/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Accumulates of a few bytes: what they need comes to the host, and its answers go to the target and to the result, by
 * one command of the origin's copier (common/gpusym/exec/exchange.h), which costs no launch.
 */
#ifndef MCA_OSC_GPUSYM_SWAP_H
#define MCA_OSC_GPUSYM_SWAP_H

#include "mca/osc/gpusym/move.h"

/* Elements that come to the host beside the target's, at most: of the origin, and to compare with. */
#define OSC_GPUSYM_SWAP_GIVEN 2u
/* Bytes of elements at most. */
#define OSC_GPUSYM_SWAP_MAX 256u

/* What a call makes of these: sets next, `bytes` bytes as all of them, for the target. */
typedef void osc_gpusym_swap_fn_t(const void *arg, const char *target, char *const *given, char *next, uint32_t bytes);

typedef struct {
    const osc_gpusym_elements_t *target, *given[OSC_GPUSYM_SWAP_GIVEN], *result; /* result NULL: none is wanted */
    uint32_t ngiven;
    osc_gpusym_swap_fn_t *fn;
    const void *arg;
} osc_gpusym_swap_t;

/* Sets the target's elements, and the result to what they were before. The caller has the target's lock for
 * accumulates. False: nothing has been done, since there is no copier, or it is not for such elements. *rc: MPI error
 * code. */
bool osc_gpusym_swap(osc_gpusym_window_t *w, const osc_gpusym_swap_t *swap, int *rc);

#endif
