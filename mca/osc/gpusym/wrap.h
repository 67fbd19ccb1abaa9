/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows of Open MPI's components, whose memory is the host's: their one-sided calls get origins, results and
 * comparands in GPU memory as bounce buffers, which live until a call closes the operation.
 */
#ifndef OSC_GPUSYM_WRAP_H
#define OSC_GPUSYM_WRAP_H

#include "mca/osc/gpusym/window.h"

/*
 * Puts functions in front of those of a window that another component has just made, until MPI_Win_free. The
 * component's module stays win->w_osc_module; its table of functions, which every component has for each window apart,
 * is changed. Local. MPI error code; MPI_ERR_NO_MEM: the window is as it was.
 *
 * MPI_Rput, MPI_Rget, MPI_Raccumulate and MPI_Rget_accumulate of GPU memory end before they return.
 */
int osc_gpusym_wrap(struct ompi_win_t *win);

/* Frees what is kept for further windows. No window is left. */
void osc_gpusym_wraps_close(void);

#endif
