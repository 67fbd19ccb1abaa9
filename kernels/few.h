/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Descriptors with room for GPUSYM_FEW_RANKS ranks, for the kernels of kernels_few.cu: the same fields as in
 * gpusym_work_t, at other places.
 */
#ifndef GPUSYM_KERNELS_FEW_H
#define GPUSYM_KERNELS_FEW_H

#include <stddef.h>

#include "kernels/work.h"

/* Where a descriptor has the arrays for the ranks, and what stands between them, in bytes. */
typedef struct gpusym_work_layout {
    size_t in, peer_in, peer_out, send, recv, remote_off, end;
} gpusym_work_layout_t;
/* That of gpusym_work_t, as GPUSYM_WORK_RANKS has made it. */
#define GPUSYM_WORK_LAYOUT                                                                                     \
    {                                                                                                          \
        offsetof(gpusym_work_t, in), offsetof(gpusym_work_t, peer_in), offsetof(gpusym_work_t, peer_out),      \
            offsetof(gpusym_work_t, send), offsetof(gpusym_work_t, recv), offsetof(gpusym_work_t, remote_off), \
            offsetof(gpusym_work_t, ll128_room)                                                                \
    }
extern const gpusym_work_layout_t gpusym_few_layout;

/* Room for such a descriptor: gpusym_few_layout.end bytes are used, those that kernels of exchanges take. */
typedef struct gpusym_few {
    uint64_t words[128];
} gpusym_few_t;

/* Makes the descriptor for few ranks of w, which has that layout. */
void gpusym_few_make(const void *w, const gpusym_work_layout_t *layout, gpusym_few_t *few);

/* The same of an exchange of at most GPUSYM_FEW_RANKS ranks. */
static inline void gpusym_work_few(const gpusym_work_t *w, gpusym_few_t *few)
{
    static const gpusym_work_layout_t layout = GPUSYM_WORK_LAYOUT;
    gpusym_few_make(w, &layout, few);
}

#endif
