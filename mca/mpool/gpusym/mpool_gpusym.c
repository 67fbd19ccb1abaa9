/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * GPU memory by MPI_Alloc_mem: a memory pool of Open MPI. The info key "mpool_hints" with the value "mpool=gpusym"
 * requests it, the only key whose value Open MPI (4.1 to 6.0) forwards to its pools: a pool never sees the info object.
 * pmpi/kinds.c translates the key mpi_memory_alloc_kinds into this one. osc/gpusym serves MPI_Win_allocate, which uses
 * no pool.
 *
 * The memory is that of the GPU that is current in the calling thread, and of a kind that peers can map, for zero
 * copy. If there is none (no GPU, no free memory, coll/gpusym not in use) Open MPI gives host memory instead, as it
 * does for every pool; a line at mpool_base_verbose 1 tells why.
 */
#include "mca/common/ompi/face.h"

#include <stdint.h>

#include "opal/mca/mpool/base/base.h"
#include "opal/mca/mpool/mpool.h"
#include "opal/util/output.h"

#include "config.h"
#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/memory/pool.h"

#define VERBOSE(...) opal_output_verbose(1, opal_mpool_base_framework.framework_output, "mpool:gpusym: " __VA_ARGS__)

static int component_open(void);
static int component_close(void);
static int component_query(const char *hints, int *priority, mca_mpool_base_module_t **module);

GPUSYM_COMPONENT_EXPORT mca_mpool_base_component_t mca_mpool_gpusym_component = {
    .mpool_version =
        {
            GPUSYM_MPOOL_BASE_VERSION,
            .mca_component_name = "gpusym",
            MCA_BASE_MAKE_VERSION(component, GPUSYM_VERSION_MAJOR, GPUSYM_VERSION_MINOR, GPUSYM_VERSION_RELEASE),
            .mca_open_component = component_open,
            .mca_close_component = component_close,
            .mca_register_component_params = gpusym_face_register,
        },
    .mpool_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE},
    .mpool_query = component_query,
};

static int component_open(void)
{
    return gpusym_face_open(opal_mpool_base_framework.framework_verbose);
}

static int component_close(void)
{
    gpusym_close();
    return OPAL_SUCCESS;
}

static void *pool_alloc(mca_mpool_base_module_t *pool, size_t size, size_t align, uint32_t flags)
{
    const char *why;
    void *p = NULL;

    (void) pool;
    (void) flags;
    if (GPUSYM_SUCCESS != gpusym_pool_alloc(gpusym_device_for_memory(), size, &p, &why)) {
        VERBOSE("no GPU memory: %s", why);
        return NULL;
    }
    if (align > 1 && 0 != (uintptr_t) p % align) {
        VERBOSE("no GPU memory: its addresses are not multiples of %zu", align);
        (void) gpusym_pool_free(gpusym_device(), p, &why);
        return NULL;
    }
    return p;
}

/* MPI_Free_mem of what pool_alloc gave, which is of the device that is still open. */
static void pool_free(mca_mpool_base_module_t *pool, void *p)
{
    const char *why;

    (void) pool;
    if (GPUSYM_SUCCESS != gpusym_pool_free(gpusym_device(), p, &why)) {
        VERBOSE("%p is not freed: %s", p, why);
    }
}

static char pool_name[] = "gpusym"; /* the module's field is not const */
static mca_mpool_base_module_t the_pool = {
    .mpool_component = &mca_mpool_gpusym_component,
    .mpool_alloc = pool_alloc,
    .mpool_free = pool_free,
    .mpool_allocation_unit = 1,
    .mpool_name = pool_name,
};

/* Above pools that were not requested: Open MPI's own have 50 at most, or 100 if requested. */
static int component_query(const char *hints, int *priority, mca_mpool_base_module_t **module)
{
    if (!gpusym_pool_requested(hints)) {
        return OPAL_ERR_NOT_FOUND;
    }
    *priority = 100;
    *module = &the_pool;
    return OPAL_SUCCESS;
}
