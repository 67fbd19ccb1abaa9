/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The PML under this one, which serves messages of host memory and matches all; and the test which memory a message
 * has.
 */
#ifndef MCA_PML_GPUSYM_HOST_H
#define MCA_PML_GPUSYM_HOST_H

#include "mca/common/ompi/ompi_compat.h"

#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/pml/pml.h"

#include "mca/common/gpusym/device/device.h"
#include "mca/common/ompi/layout.h"

/* The functions that were in mca_pml before. */
extern mca_pml_base_module_t pml_gpusym_host __attribute__((visibility("hidden")));

/* The heap of brk(2), as far as it is known to reach: host memory without a question. size 0: ask. */
typedef struct {
    uintptr_t heap, size;
} pml_gpusym_range_t;
extern pml_gpusym_range_t pml_gpusym_range __attribute__((visibility("hidden")));

/* The memory of a message. */
typedef struct {
    gpusym_mem_t mem; /* what the device says of it */
    gpusym_layout_t layout;
} pml_gpusym_memory_t;

/* Whether the elements at buf, or some of them, are in device memory; memory is then set. About 0.1 us, or less in an
 * allocation that is in use; with gaps, see gpusym_layout_where(). */
bool pml_gpusym_ask_device(const void *buf, size_t count, struct ompi_datatype_t *dtype, pml_gpusym_memory_t *memory);

/*
 * A program may not free the buffer of a request under way, so that what lies in the same allocation needs no question.
 * One allocation is remembered, of which a third request is under way, or a further one.
 *
 * pml_gpusym_memory_use: a request of GPU memory begins. mem: what the device says of it, or has said before. Returns
 * whether all from its buffer's first byte to its last lies in that allocation, whose id mem->id then still is; it
 * stays so until pml_gpusym_memory_unuse, which each such request calls once, with what this one returned. Any thread.
 */
bool pml_gpusym_memory_use(const gpusym_mem_t *mem, const gpusym_layout_t *layout, const void *buf);
void pml_gpusym_memory_unuse(bool known);

/* Whether a message is certainly of host memory: true for elements without gaps in the heap, at the cost of a few
 * instructions; false where pml_gpusym_ask_device must tell. */
static inline bool pml_gpusym_is_heap(const void *buf, const struct ompi_datatype_t *dtype)
{
    const uintptr_t first = (uintptr_t) buf + (uintptr_t) dtype->super.true_lb;
    return OPAL_LIKELY(first - pml_gpusym_range.heap < pml_gpusym_range.size &&
                       0 != (dtype->super.flags & OPAL_DATATYPE_FLAG_NO_GAPS));
}

#endif
