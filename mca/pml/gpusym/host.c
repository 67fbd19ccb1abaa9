/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which memory a message has.
 */
#include "mca/pml/gpusym/host.h"

#include "mca/common/gpusym/device/plain.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/ompi/layout.h"

mca_pml_base_module_t pml_gpusym_host;
pml_gpusym_range_t pml_gpusym_range;

/* Whether an address is host memory for sure. Remembers how far the heap reaches: it rarely shrinks, and what it has
 * given back is not used for device memory, since it lies below what may be mapped. */
static bool is_plain(uintptr_t p)
{
    if (!gpusym_plain((const void *) p)) {
        return false;
    }
    const uintptr_t heap = gpusym_plain_ranges.heap;
    if (0 != heap && p >= heap && p - heap >= pml_gpusym_range.size && p < (uintptr_t) sbrk(0)) {
        pml_gpusym_range.heap = heap;
        __atomic_store_n(&pml_gpusym_range.size, (uintptr_t) sbrk(0) - heap, __ATOMIC_RELEASE);
    }
    return true;
}

/* Of a type with absolute addresses (MPI_BOTTOM): the first run that is device memory. */
static int find_device_run(void *arg, ptrdiff_t off, size_t bytes)
{
    gpusym_mem_t *mem = arg;
    (void) bytes;
    gpusym_current.dev->query((const void *) off, mem);
    return GPUSYM_MEM_DEVICE == mem->kind ? 1 : 0;
}

bool pml_gpusym_ask_device(const void *buf, size_t count, struct ompi_datatype_t *dtype, gpusym_mem_t *mem)
{
    const uintptr_t first = (uintptr_t) buf + (uintptr_t) dtype->super.true_lb;
    if (is_plain(first) || 0 == count || 0 == dtype->super.size) {
        return false;
    }
    if (NULL == buf && !ompi_datatype_is_predefined(dtype)) {
        gpusym_layout_t l;
        gpusym_layout_find(count, dtype, &l);
        return 1 == gpusym_layout_runs(&l, 0, find_device_run, mem);
    }
    gpusym_current.dev->query((const void *) first, mem);
    return GPUSYM_MEM_DEVICE == mem->kind;
}
