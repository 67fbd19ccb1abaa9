/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Elements of an origin, a result or a target: where they are, and their way to and from packed memory.
 */
#ifndef OSC_GPUSYM_ELEMENTS_H
#define OSC_GPUSYM_ELEMENTS_H

#include "mca/common/ompi/layout.h"
#include "mca/osc/gpusym/window.h"

/* Elements in memory of this process, or mapped here; or that only their owner reaches. */
typedef struct {
    gpusym_layout_t layout;
    char *buf; /* which the offsets of the layout are from */
    bool gpu;  /* the CPU must not touch it */
    bool own;  /* of an origin: it is host memory, or of the GPU by which the window copies */
    bool far;  /* the owner is asked (ask.h; on another host: remote.h): there is no buf */
    int owner;
    uint64_t at; /* of buf, as of osc_gpusym_ask */
} osc_gpusym_elements_t;

/* The elements of an origin, or a result. */
void osc_gpusym_origin(const osc_gpusym_window_t *w, const void *buf, size_t count, struct ompi_datatype_t *type,
                       osc_gpusym_elements_t *e);
/* Leaves the first bytes of the elements, fewer than they have. These may end within an element, or a row of it: then
 * layout.bytes tells where, and rows and span are those of whole elements. */
void osc_gpusym_cut(osc_gpusym_elements_t *e, size_t bytes);
/* Copy elements, not of another host, to packed host memory, and back. Complete on return. MPI error code. */
int osc_gpusym_gather(osc_gpusym_window_t *w, const osc_gpusym_elements_t *e, void *packed);
int osc_gpusym_scatter(osc_gpusym_window_t *w, const osc_gpusym_elements_t *e, const void *packed);
/* The same of packed memory of any kind, where the elements or it are GPU memory, and not far. */
int osc_gpusym_pack(const osc_gpusym_window_t *w, const osc_gpusym_elements_t *e, void *packed);
int osc_gpusym_unpack(const osc_gpusym_window_t *w, const osc_gpusym_elements_t *e, const void *packed);

#endif
