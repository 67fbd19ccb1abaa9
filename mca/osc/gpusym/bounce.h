/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Bounce buffers: host memory that stands for the GPU memory of an origin, a result or a comparand, in one-sided calls
 * of Open MPI's components.
 */
#ifndef OSC_GPUSYM_BOUNCE_H
#define OSC_GPUSYM_BOUNCE_H

#include "mca/common/gpusym/device/plain.h"
#include "mca/common/ompi/layout.h"
#include "mca/osc/gpusym/window.h"

/* A buffer as a call describes it. */
typedef struct {
    void *p;
    size_t count;
    struct ompi_datatype_t *type;
} osc_gpusym_buffer_t;

/* What a call does with a buffer. */
typedef enum {
    OSC_GPUSYM_READS,
    OSC_GPUSYM_IGNORES, /* nothing: its contents need not be valid */
    OSC_GPUSYM_WRITES,
} osc_gpusym_use_t;

/* Host memory that a call uses, in a list. */
typedef struct osc_gpusym_bounce {
    struct osc_gpusym_bounce *next;
    int target; /* of the call; this and the next for the list's owner */
    uint64_t number;
    char *p;              /* elements of one basic type, or bytes */
    size_t bytes;         /* of the elements, packed */
    bool pinned;          /* p is of memory/pinned.h, else of malloc */
    gpusym_layout_t host; /* of the elements at p */
    /* The elements in GPU memory. */
    gpusym_gpu_t *gpu;
    gpusym_layout_t layout;
    bool writes;  /* they are copied back: */
    void *result; /* to this buffer; the layout's datatype is retained */
} osc_gpusym_bounce_t;

/* osc_gpusym_bounce of memory that is not known without asking, or has gaps. */
int osc_gpusym_bounce_gpu(osc_gpusym_buffer_t *b, osc_gpusym_use_t use, size_t most, bool typed,
                          osc_gpusym_bounce_t **list);
/* If a buffer has GPU memory, replaces it by a bounce buffer, which is added to the list; a buffer that is read is
 * copied there. `most`: bytes of the buffer, packed, that the call uses at most. `typed`: the call must see the basic
 * type of the elements; else they may be bytes. A call on host memory that is known without asking the device takes
 * some 10 ns more by all this. MPI error code: MPI_ERR_NO_MEM; MPI_ERR_OTHER: a copy failed; MPI_ERR_TYPE: typed, and
 * there are several basic types; MPI_ERR_COUNT: more elements than a count can say. The list is then as it was. */
static inline int osc_gpusym_bounce(osc_gpusym_buffer_t *b, osc_gpusym_use_t use, size_t most, bool typed,
                                    osc_gpusym_bounce_t **list)
{
    const opal_datatype_t *d = &b->type->super;
    const bool host = 0 != (d->flags & OPAL_DATATYPE_FLAG_NO_GAPS) && gpusym_plain((const char *) b->p + d->true_lb);
    return host ? OMPI_SUCCESS : osc_gpusym_bounce_gpu(b, use, most, typed, list);
}

/* Its call has ended: copies what that wrote to GPU memory. MPI error code. */
int osc_gpusym_bounce_back(const osc_gpusym_bounce_t *bounce);
void osc_gpusym_bounce_free(osc_gpusym_bounce_t *bounce);
/* Frees a list; `done`: the call has ended, what it wrote is copied to GPU memory first. MPI error code of the copies,
 * all of which are tried. NULL: nothing happens. */
int osc_gpusym_bounces_end(osc_gpusym_bounce_t *list, bool done);

/* The basic type of all elements of a datatype; NULL: they have several. */
struct ompi_datatype_t *osc_gpusym_basic_type(struct ompi_datatype_t *type);

#endif
