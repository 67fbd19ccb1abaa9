/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Put and get, and what all calls that access a target share: its memory, and copies between it and the origin's.
 */
#ifndef OSC_GPUSYM_MOVE_H
#define OSC_GPUSYM_MOVE_H

#include "mca/osc/gpusym/elements.h"

/* The functions of ompi_osc_base_module_t. */
int osc_gpusym_put(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
                   ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_win_t *win);
int osc_gpusym_get(void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
                   ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_win_t *win);
int osc_gpusym_rput(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
                    ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_win_t *win,
                    struct ompi_request_t **request);
int osc_gpusym_rget(void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
                    ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_win_t *win,
                    struct ompi_request_t **request);

/* Finds the elements of a target, for `call`. MPI error codes: MPI_ERR_RMA_SYNC: no epoch permits access;
 * MPI_ERR_RMA_RANGE: they do not lie in its part, or in memory that it has attached;
 * MPI_ERR_UNSUPPORTED_OPERATION, with a message: the window is not served. */
int osc_gpusym_target(osc_gpusym_window_t *w, const char *call, int target, ptrdiff_t disp, size_t count,
                      struct ompi_datatype_t *type, osc_gpusym_elements_t *e);
/* Copies elements to elements, of which `origin` are the ones that are not the target's. Ends, at the latest, by
 * osc_gpusym_end_copies. Where there is room for more, the rest stays as it is. MPI error code; MPI_ERR_TRUNCATE:
 * there is not room for all. */
int osc_gpusym_move(osc_gpusym_window_t *w, int target, const osc_gpusym_elements_t *to,
                    const osc_gpusym_elements_t *from, const osc_gpusym_elements_t *origin);

/* Waits until the copies to and from a target have ended; target -1: all. MPI error code, also of copies that have
 * ended before. */
int osc_gpusym_end_copies(osc_gpusym_window_t *w, int target);
/* Why a window is not served. */
#define OSC_GPUSYM_NOT_SERVED "a rank has no GPU driver, or cannot share memory with those of its host"
/* Says that a call is not done, once a process. MPI_ERR_UNSUPPORTED_OPERATION. */
int osc_gpusym_refuse(const char *call, const char *why);

#endif
