/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The owner's side of messages (message.h): what ranks of other hosts request, done in the progress function. Locks and
 * accumulates for them take the words of the page, as those of ranks of this host do.
 */
#ifndef OSC_GPUSYM_SERVE_H
#define OSC_GPUSYM_SERVE_H

#include "mca/osc/gpusym/message.h"

/* Begins to receive requests, in a window whose ranks are on several hosts. MPI error code: there is no memory. */
int osc_gpusym_serve_open(osc_gpusym_window_t *w);
/* Receives no more. No request may be under way, and no osc_gpusym_serve. `failed`: some may be, since a rank has died;
 * then memory that messages use stays. NULL in w->serve: nothing happens. */
void osc_gpusym_serve_close(osc_gpusym_window_t *w, bool failed);

/* Carries out requests that have come. Waits for no other process; one thread at a time. Returns how many. */
int osc_gpusym_serve(osc_gpusym_window_t *w);

/* Copy rows of this rank's memory to packed host memory, or back (write). Complete on return. `pinned`: packed may be
 * reached by the window's GPU. MPI error code: MPI_ERR_RMA_RANGE: they do not lie in this rank's memory. */
int osc_gpusym_own_copy(osc_gpusym_window_t *w, const osc_gpusym_rows_t *rows, uint32_t n, char *packed, bool pinned,
                        bool write);

#endif
