/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which memory a message has.
 */
#include "mca/pml/gpusym/host.h"

#include "mca/common/gpusym/device/plain.h"
#include "mca/common/gpusym/gpusym.h"

mca_pml_base_module_t pml_gpusym_host;
pml_gpusym_range_t pml_gpusym_range;

/* Whether the bytes from first to last are host memory for sure. Remembers how far the heap reaches: it rarely shrinks,
 * and what it has given back is not used for device memory, since it lies below what may be mapped. */
static bool is_plain(uintptr_t first, uintptr_t last)
{
    const gpusym_plain_t place = gpusym_plain_place((const void *) first);
    if (GPUSYM_PLAIN_HEAP == place && first - gpusym_plain_ranges.heap >= pml_gpusym_range.size) {
        pml_gpusym_range.heap = gpusym_plain_ranges.heap;
        __atomic_store_n(&pml_gpusym_range.size, (uintptr_t) sbrk(0) - gpusym_plain_ranges.heap, __ATOMIC_RELEASE);
    }
    return GPUSYM_PLAIN_NO != place && (first == last || place == gpusym_plain_place((const void *) last));
}

bool pml_gpusym_ask_device(const void *buf, size_t count, struct ompi_datatype_t *dtype, pml_gpusym_memory_t *memory)
{
    const bool gaps = 0 == (dtype->super.flags & OPAL_DATATYPE_FLAG_NO_GAPS);
    ptrdiff_t lo = dtype->super.true_lb, hi = lo + 1;
    if (0 == count || 0 == dtype->super.size) {
        return false;
    }
    if (gaps) {
        gpusym_layout_range(count, dtype, &lo, &hi);
    }
    if (is_plain((uintptr_t) buf + (uintptr_t) lo, (uintptr_t) buf + (uintptr_t) hi - 1)) {
        return false;
    }
    gpusym_layout_find(count, dtype, &memory->layout);
    gpusym_layout_where(gpusym_current.dev, &memory->layout, buf, &memory->mem);
    return GPUSYM_MEM_DEVICE == memory->mem.kind;
}
