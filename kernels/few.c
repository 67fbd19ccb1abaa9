/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Descriptors for few ranks: see few.h. gpusym_work_t is one here.
 */
#define GPUSYM_WORK_RANKS GPUSYM_FEW_RANKS

#include <string.h>

#include "kernels/few.h"

_Static_assert(offsetof(gpusym_work_t, ll128_room) <= sizeof(gpusym_few_t), "it has room");

const gpusym_work_layout_t gpusym_few_layout = GPUSYM_WORK_LAYOUT;

void gpusym_few_make(const void *w, const gpusym_work_layout_t *layout, gpusym_few_t *few)
{
    gpusym_work_t *const to = (gpusym_work_t *) (void *) few;
    const char *const from = w;
    memcpy(to->peer, from, sizeof to->peer);
    memcpy(&to->in, from + layout->in, layout->peer_in - layout->in);
    memcpy(to->peer_in, from + layout->peer_in, sizeof to->peer_in);
    memcpy(to->peer_out, from + layout->peer_out, sizeof to->peer_out);
    memcpy(to->send, from + layout->send, sizeof to->send);
    memcpy(to->recv, from + layout->recv, sizeof to->recv);
    memcpy(to->remote_off, from + layout->remote_off, sizeof to->remote_off);
}
