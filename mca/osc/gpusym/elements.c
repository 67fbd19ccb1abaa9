/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Elements: see elements.h.
 */
#include "mca/osc/gpusym/elements.h"

#include "mca/osc/gpusym/ask.h"
#include "mca/osc/gpusym/report.h"

void osc_gpusym_origin(const osc_gpusym_window_t *w, const void *buf, size_t count, struct ompi_datatype_t *type,
                       osc_gpusym_elements_t *e)
{
    gpusym_mem_t mem = {.kind = GPUSYM_MEM_HOST};
    gpusym_gpu_t *gpu;

    gpusym_layout_find(count, type, &e->layout);
    e->buf = (char *) (uintptr_t) buf;
    e->far = false;
    if (0 != e->layout.bytes) {
        gpusym_layout_where(w->dev, &e->layout, buf, &mem);
    }
    e->gpu = GPUSYM_MEM_DEVICE == mem.kind;
    e->own = !e->gpu || (GPUSYM_SUCCESS == w->dev->gpu_open(&mem, &gpu) && gpu == w->gpu);
}

void osc_gpusym_cut(osc_gpusym_elements_t *e, size_t bytes)
{
    gpusym_layout_t *l = &e->layout;
    const size_t size = l->dtype->super.size;

    gpusym_layout_find((bytes + size - 1) / size, l->dtype, l);
    l->bytes = bytes;
    if (GPUSYM_LAYOUT_RUN == l->kind) {
        l->span = l->width = l->pitch = bytes;
    }
}

int osc_gpusym_pack(const osc_gpusym_window_t *w, const osc_gpusym_elements_t *e, void *packed)
{
    const gpusym_layout_t *l = &e->layout;
    return osc_gpusym_class(w->comm, w->dev, gpusym_layout_pack(w->dev, w->gpu, l, packed, e->buf, l->bytes));
}

int osc_gpusym_gather(osc_gpusym_window_t *w, const osc_gpusym_elements_t *e, void *packed)
{
    if (e->far) {
        return osc_gpusym_ask(w, e->owner, &e->layout, e->at, packed, false);
    }
    return e->gpu
               ? osc_gpusym_pack(w, e, packed)
               : osc_gpusym_class(w->comm, w->dev, gpusym_layout_gather(&e->layout, e->buf, packed, e->layout.bytes));
}

int osc_gpusym_unpack(const osc_gpusym_window_t *w, const osc_gpusym_elements_t *e, const void *packed)
{
    const gpusym_layout_t *l = &e->layout;
    return osc_gpusym_class(w->comm, w->dev, gpusym_layout_unpack(w->dev, w->gpu, l, e->buf, packed, l->bytes));
}

int osc_gpusym_scatter(osc_gpusym_window_t *w, const osc_gpusym_elements_t *e, const void *packed)
{
    if (e->far) {
        return osc_gpusym_ask(w, e->owner, &e->layout, e->at, (void *) (uintptr_t) packed, true);
    }
    return e->gpu
               ? osc_gpusym_unpack(w, e, packed)
               : osc_gpusym_class(w->comm, w->dev, gpusym_layout_scatter(&e->layout, e->buf, packed, e->layout.bytes));
}
