/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The bytes of a buffer that MPI describes by a count and a datatype, and their way to and from packed memory.
 *
 * Packed memory has the bytes in the order of the typemap, without gaps: the form of MPI_Pack, and of a message. The
 * order of the typemap may differ from that of addresses.
 */
#ifndef GPUSYM_OMPI_LAYOUT_H
#define GPUSYM_OMPI_LAYOUT_H

#include "ompi_config.h" /* always first */

#include <stddef.h>

#include "mca/common/gpusym/exec/lane.h"
#include "ompi/datatype/ompi_datatype.h"

typedef enum {
    GPUSYM_LAYOUT_RUN,  /* all bytes lie in one piece, in packed order */
    GPUSYM_LAYOUT_ROWS, /* rows of one width at one distance: vectors, 2-D subarrays, elements with gaps around them */
    GPUSYM_LAYOUT_RUNS, /* anything else */
} gpusym_layout_kind_t;

/* Plain data. Valid as long as the datatype. Offsets and sizes are in bytes. */
typedef struct {
    gpusym_layout_kind_t kind;
    size_t bytes;              /* packed; 0: there is nothing */
    ptrdiff_t lo;              /* first byte in memory, from the buffer's address */
    size_t span;               /* from there to the last byte, gaps included */
    size_t rows, width, pitch; /* ROWS: from lo on, in packed order; pitch > width. RUN: 1, bytes, bytes. RUNS: 0 */
    size_t count;              /* elements */
    struct ompi_datatype_t *dtype;
} gpusym_layout_t;

/* Finds what lies from a buffer's first byte to its last: lo and hi, the byte behind it, from the buffer's address. The
 * count and the size of the datatype are not 0. */
static inline void gpusym_layout_range(size_t count, const struct ompi_datatype_t *dtype, ptrdiff_t *lo, ptrdiff_t *hi)
{
    const opal_datatype_t *d = &dtype->super;
    const ptrdiff_t last = (ptrdiff_t) (count - 1) * (d->ub - d->lb); /* element; an extent may be negative */
    *lo = d->true_lb + (last < 0 ? last : 0);
    *hi = d->true_ub + (last > 0 ? last : 0);
}

/* Finds the rest of a layout of which bytes, count and dtype are set; for gpusym_layout_find. */
void gpusym_layout_find_gaps(gpusym_layout_t *l);

/* Finds the layout of count elements of a committed datatype. Allocates nothing. Takes 2 ns for a datatype without
 * gaps, some 60 ns for others, however long their descriptions are. */
static inline void gpusym_layout_find(size_t count, struct ompi_datatype_t *dtype, gpusym_layout_t *l)
{
    l->count = count;
    l->dtype = dtype;
    l->bytes = count * dtype->super.size;
    if ((dtype->super.flags & OPAL_DATATYPE_FLAG_NO_GAPS) || 0 == l->bytes) {
        l->kind = GPUSYM_LAYOUT_RUN;
        l->lo = 0 == l->bytes ? 0 : dtype->super.true_lb;
        l->rows = 1;
        l->span = l->width = l->pitch = l->bytes;
    } else {
        gpusym_layout_find_gaps(l);
    }
}

/* Calls run(arg, off, bytes) for each contiguous run of the elements, in packed order, off from the buffer's address
 * plus `at`; successive runs that touch are one. Returns 0, or the first other value of run(), which ends the calls. */
int gpusym_layout_runs(const gpusym_layout_t *l, ptrdiff_t at, int (*run)(void *arg, ptrdiff_t off, size_t bytes),
                       void *arg);

/*
 * Finds the memory of the elements at buf: a GPU's, if any of them is (of device memory the lowest, or the first that
 * is found, else of managed memory), else that of the first byte. Elements without gaps lie in one memory: one query.
 * Of others the ends are asked, and what lies between where it may be other memory: each run, but once for a page, of
 * one element, since further ones lie in an array with it. Not asked is what lies between the ends of rows in one
 * buffer (buf is not MPI_BOTTOM).
 */
void gpusym_layout_where(const gpusym_device_t *dev, const gpusym_layout_t *l, const void *buf, gpusym_mem_t *mem);

/* Whether all from the first byte to the last of the elements at buf is of one allocation that the device knows: only
 * then may a kernel, or one copy, go from one run to another. Gaps between allocations may be nothing, or not the
 * program's. 0.2 us. */
bool gpusym_layout_together(const gpusym_device_t *dev, const gpusym_layout_t *l, const void *buf);
/* The same of the bytes from an address on. */
bool gpusym_memory_together(const gpusym_device_t *dev, uintptr_t at, size_t bytes);

/* Whether the elements are one run that copies and keys may take as one. Arrays that follow each other without a gap
 * are a RUN too, of one datatype, though of two allocations: no predefined type describes them. */
static inline bool gpusym_layout_is_one(const gpusym_device_t *dev, const gpusym_layout_t *l, const void *buf)
{
    return GPUSYM_LAYOUT_RUN == l->kind &&
           (ompi_datatype_is_predefined(l->dtype) || gpusym_layout_together(dev, l, buf));
}

/*
 * Copy the first `bytes` packed bytes (at most l->bytes count) of the elements at buf to packed memory of any kind; and
 * back. The elements may lie in several allocations, of several GPUs, and in host memory too; gpu is one that has some
 * of them. Complete on return. Unpack writes no byte of a gap, nor one that
 * is packed beyond the first `bytes`; the elements must not overlap, as MPI demands. buf is NULL for MPI_BOTTOM.
 *
 * One copy for RUN (divided, if the device refuses it) and one launch or copy for ROWS. RUNS: one launch, where the
 * elements lie in one allocation and their datatype has nodes (nodes.h). Otherwise a copy for each group of rows that
 * follow each other with one width at one distance (a 3-D subarray: for each plane), or for each run of an element,
 * whatever the count: the fewer. What lies in several allocations takes a copy for each, at least, ROWS too. About 2.5
 * us each on a GPU. To pack very many, the bytes from first to last are copied to the host, if they lie in one
 * allocation, and packed there; to unpack there is no such way, since it would write the gaps.
 *
 * GPUSYM_SUCCESS, or an error of the device; packed memory (or the elements) is then undefined.
 */
int gpusym_layout_pack(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_layout_t *l, void *packed,
                       const void *buf, size_t bytes);
int gpusym_layout_unpack(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_layout_t *l, void *buf,
                         const void *packed, size_t bytes);

/* The same, queued on a stream of the GPU. Packed memory must be such that the GPU reaches, unless the layout is RUN.
 * After an error some of the copies may be queued. */
int gpusym_layout_pack_async(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_stream_t *stream,
                             const gpusym_layout_t *l, void *packed, const void *buf, size_t bytes);
int gpusym_layout_unpack_async(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_stream_t *stream,
                               const gpusym_layout_t *l, void *buf, const void *packed, size_t bytes);

/* Layouts that are packed one by one to GPU memory, or (back) unpacked: short ones that have a box share launches. The
 * user sets lane and back; all else is zeroed but part and box. */
typedef struct {
    gpusym_lane_t *lane; /* what is queued is a part of its operation begun last */
    bool back;
    uint32_t n;           /* that wait for a launch */
    uint32_t queued;      /* launches and copies */
    uint32_t words;       /* once ended: so many words of the lane tell when all is done; 0: only its stream does */
    gpusym_range_t known; /* the allocation of the last one */
    struct {
        gpusym_layout_t layout;
        void *buf, *packed;
    } part[GPUSYM_BOXES_MAX];
    gpusym_box_run_t box[GPUSYM_BOXES_MAX];
} gpusym_layout_queue_t;
/* Queues all elements of a layout (of a RUN bytes and lo are read), or lets it wait for more. Errors as of
 * gpusym_layout_pack_async. */
int gpusym_layout_queue_add(gpusym_layout_queue_t *q, const gpusym_layout_t *l, void *buf, void *packed);
/* Queues what waits. */
int gpusym_layout_queue_end(gpusym_layout_queue_t *q);

/* Whether one launch or copy packs or unpacks the elements at buf, from or to GPU memory: those of a RUN, of one
 * memory, or in one allocation. Prepares that: the first time for a datatype it reads its description, and copies what
 * a kernel needs of it to the GPU. */
bool gpusym_layout_by_gpu(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_layout_t *l, const void *buf);

/* Gets the box of the elements (kernels/work.h), from their byte at `lo` on, if they have one: they are less than 4
 * GiB, at rising distances, and do not overlap. Where they lie in one allocation, kernels copy from box to box without
 * packing. */
bool gpusym_layout_box(const gpusym_layout_t *l, gpusym_box_t *box);

/* The same where both are host memory: gather packs, scatter unpacks. Not by Open MPI's convertor, which packs no part
 * of a basic type, and in 5.0 reads the wrong bytes where a stride is no multiple of the basic type's size. Always
 * GPUSYM_SUCCESS. */
int gpusym_layout_gather(const gpusym_layout_t *l, const void *buf, void *packed, size_t bytes);
int gpusym_layout_scatter(const gpusym_layout_t *l, void *buf, const void *packed, size_t bytes);

#endif
