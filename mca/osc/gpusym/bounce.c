/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Bounce buffers: see bounce.h.
 */
#include "mca/osc/gpusym/bounce.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

#include "ompi/datatype/ompi_datatype.h"

#include "mca/common/gpusym/memory/pinned.h"
#include "mca/osc/gpusym/report.h"

/* From this size on, in bytes, pinned memory is copied faster; there is little of it. */
#define PINNED_MIN 16384u

struct ompi_datatype_t *osc_gpusym_basic_type(struct ompi_datatype_t *type)
{
    return ompi_datatype_is_predefined(type) ? type : ompi_datatype_get_single_predefined_type_from_args(type);
}

/* The type of a bounce buffer's elements; NULL: there is no single one. */
static struct ompi_datatype_t *type_of(struct ompi_datatype_t *type, size_t bytes, bool typed)
{
    struct ompi_datatype_t *basic = osc_gpusym_basic_type(type);
    const bool even = NULL != basic && 0 == bytes % basic->super.size &&
                      (typed || 0 != (basic->super.flags & OPAL_DATATYPE_FLAG_NO_GAPS));
    return even ? basic : typed ? NULL : &ompi_mpi_byte.dt;
}

/* Whether all that a buffer with gaps has is host memory for sure. */
static bool is_plain(const osc_gpusym_buffer_t *b)
{
    ptrdiff_t lo, hi;

    if (0 != (b->type->super.flags & OPAL_DATATYPE_FLAG_NO_GAPS)) {
        return false;
    }
    gpusym_layout_range(b->count, b->type, &lo, &hi);
    const gpusym_plain_t first = gpusym_plain_place((const char *) b->p + lo);
    return GPUSYM_PLAIN_NO != first && first == gpusym_plain_place((const char *) b->p + hi - 1);
}

/* ---- one bounce buffer ---- */

/* Its elements, and the memory for them. */
static bool get_memory(const gpusym_device_t *dev, osc_gpusym_bounce_t *n, struct ompi_datatype_t *basic)
{
    gpusym_layout_find(n->bytes / basic->super.size, basic, &n->host);
    n->p = n->host.span >= PINNED_MIN ? gpusym_pinned_get(dev, n->gpu, n->host.span) : NULL;
    n->pinned = NULL != n->p;
    n->p = n->pinned ? n->p : calloc(1, n->host.span);
    return NULL != n->p;
}

void osc_gpusym_bounce_free(osc_gpusym_bounce_t *n)
{
    if (n->writes && !ompi_datatype_is_predefined(n->layout.dtype)) {
        OBJ_RELEASE(n->layout.dtype);
    }
    if (n->pinned) {
        gpusym_pinned_put(n->p);
    } else {
        free(n->p);
    }
    free(n);
}

/* Copies the elements from GPU memory, or to it. Basic types with gaps, pairs for MPI_MINLOC, are not as packed. */
static int copy(const gpusym_device_t *dev, const osc_gpusym_bounce_t *n, void *gpu, bool back)
{
    const bool packed = GPUSYM_LAYOUT_RUN == n->host.kind;
    char *p = packed ? n->p : malloc(n->bytes);
    int rc = GPUSYM_ERR_NO_MEMORY;

    if (NULL != p && back) {
        if (!packed) {
            (void) gpusym_layout_gather(&n->host, n->p, p, n->bytes);
        }
        rc = gpusym_layout_unpack(dev, n->gpu, &n->layout, gpu, p, n->bytes);
    } else if (NULL != p) {
        rc = gpusym_layout_pack(dev, n->gpu, &n->layout, p, gpu, n->bytes);
        if (!packed && GPUSYM_SUCCESS == rc) {
            (void) gpusym_layout_scatter(&n->host, n->p, p, n->bytes);
        }
    }
    if (!packed) {
        free(p);
    }
    return osc_gpusym_class(NULL, dev, rc);
}

/* ---- buffers ---- */

int osc_gpusym_bounce_gpu(osc_gpusym_buffer_t *b, osc_gpusym_use_t use, size_t most, bool typed,
                          osc_gpusym_bounce_t **list)
{
    gpusym_layout_t layout;
    gpusym_mem_t mem;

    if (0 == b->count || 0 == b->type->super.size || 0 == most || is_plain(b)) {
        return OMPI_SUCCESS;
    }
    const gpusym_device_t *dev = gpusym_device_for_memory();
    if (NULL == dev) {
        return OMPI_SUCCESS;
    }
    gpusym_layout_find(b->count, b->type, &layout);
    gpusym_layout_where(dev, &layout, b->p, &mem);
    if (GPUSYM_MEM_DEVICE != mem.kind) {
        return OMPI_SUCCESS;
    }
    const size_t bytes = layout.bytes < most ? layout.bytes : most;
    struct ompi_datatype_t *basic = type_of(b->type, bytes, typed);
    if (NULL == basic || bytes / basic->super.size > GPUSYM_COUNT_MAX) {
        return NULL == basic ? MPI_ERR_TYPE : MPI_ERR_COUNT;
    }
    osc_gpusym_bounce_t *n = calloc(1, sizeof *n);
    if (NULL == n) {
        return MPI_ERR_NO_MEM;
    }
    n->layout = layout;
    n->bytes = bytes;
    int rc = osc_gpusym_class(NULL, dev, dev->gpu_open(&mem, &n->gpu));
    rc = OMPI_SUCCESS != rc || get_memory(dev, n, basic) ? rc : MPI_ERR_NO_MEM;
    rc = OMPI_SUCCESS == rc && OSC_GPUSYM_READS == use ? copy(dev, n, b->p, false) : rc;
    if (OMPI_SUCCESS != rc) {
        osc_gpusym_bounce_free(n);
        return rc;
    }
    if (OSC_GPUSYM_WRITES == use) {
        n->writes = true;
        n->result = b->p;
        if (!ompi_datatype_is_predefined(b->type)) {
            OBJ_RETAIN(b->type); /* the program may free it before the call has ended */
        }
    }
    *b = (osc_gpusym_buffer_t){n->p, n->host.count, basic};
    n->next = *list;
    *list = n;
    return OMPI_SUCCESS;
}

int osc_gpusym_bounce_back(const osc_gpusym_bounce_t *n)
{
    return n->writes ? copy(gpusym_device_for_memory(), n, n->result, true) : OMPI_SUCCESS;
}

int osc_gpusym_bounces_end(osc_gpusym_bounce_t *list, bool done)
{
    int rc = OMPI_SUCCESS;

    while (NULL != list) {
        osc_gpusym_bounce_t *n = list;
        list = n->next;
        const int copied = done ? osc_gpusym_bounce_back(n) : OMPI_SUCCESS;
        rc = OMPI_SUCCESS == rc ? copied : rc;
        osc_gpusym_bounce_free(n);
    }
    return rc;
}
