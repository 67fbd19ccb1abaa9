/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory that is attached to a dynamic window. Each rank lists its own in a table of the page, which the others read
 * with every access; MPI has the program see to it that they know the address before, and need it no more when it is
 * detached.
 */
#ifndef OSC_GPUSYM_ATTACH_H
#define OSC_GPUSYM_ATTACH_H

#include "mca/osc/gpusym/window.h"

/* The functions of ompi_osc_base_module_t. Memory of any kind, of any GPU. MPI error codes: MPI_ERR_RMA_FLAVOR: the
 * window is not dynamic; MPI_ERR_RMA_ATTACH: the memory overlaps what is attached, or OSC_GPUSYM_ATTACHED_MAX pieces
 * are; MPI_ERR_BASE: no attached memory begins there. */
int osc_gpusym_attach(struct ompi_win_t *win, void *base, size_t bytes);
int osc_gpusym_detach(struct ompi_win_t *win, const void *base);
/* Detaches all. Peers may no longer use it. */
void osc_gpusym_detach_all(osc_gpusym_window_t *w);

/* Whether [address, address + bytes) of a rank's address space is attached, at *at in this process; NULL: it is not
 * reached from here, or lies in several pieces. *gpu: the CPU must not touch it. */
bool osc_gpusym_attached(osc_gpusym_window_t *w, int target, uint64_t address, uint64_t bytes, char **at, bool *gpu);

#endif
