/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Access to memory that cannot be mapped. Host memory the kernel copies, if it permits that; else, and GPU memory, its
 * owner: an origin writes a request to the owner's mailbox in the page, and the owner's progress function carries it
 * out: it must be in a call of MPI. One request at a time, in the order in which origins come.
 */
#ifndef OSC_GPUSYM_ASK_H
#define OSC_GPUSYM_ASK_H

#include "mca/common/ompi/layout.h"
#include "mca/osc/gpusym/window.h"

/* From now on progress carries out what others request of this rank, in a window that `asks` or has messages; and no
 * more. */
int osc_gpusym_ask_open(osc_gpusym_window_t *w);
void osc_gpusym_ask_close(osc_gpusym_window_t *w);

/* Copies the elements of a layout, from their target on this host to packed host memory, or back. `at`: where the
 * layout's buffer is, in bytes from the target's part on; in a dynamic window its address there. Complete on return.
 * MPI error code:
 * MPI_ERR_RMA_RANGE: they do not lie in the target's memory; MPI_ERR_OTHER: a rank has died, or a copy failed. */
int osc_gpusym_ask(osc_gpusym_window_t *w, int target, const gpusym_layout_t *l, uint64_t at, void *packed, bool write);

#endif
