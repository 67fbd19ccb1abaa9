/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * NVTX ranges: see ranges.h. The only user of NVTX's headers.
 */
#include "mca/coll/gpusym/trace/ranges.h"

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/params.h"

#include "config.h"

bool coll_gpusym_ranges_on;

#if GPUSYM_HAVE_NVTX

/* They are not ours to correct. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wextra"
#include <nvtx3/nvToolsExt.h>
#pragma GCC diagnostic pop

static nvtxDomainHandle_t domain;
static nvtxStringHandle_t names[COLL_GPUSYM_COLLS];

/* Without a profiler the functions of NVTX return NULL, and look for one once. */
void coll_gpusym_ranges_start(void)
{
    if (NULL != domain) {
        return;
    }
    domain = nvtxDomainCreateA("gpusym");
    for (unsigned coll = 0; NULL != domain && coll < COLL_GPUSYM_COLLS; coll++) {
        names[coll] = nvtxDomainRegisterStringA(domain, coll_gpusym_mpi_name(coll));
    }
    coll_gpusym_ranges_on = NULL != domain;
    coll_gpusym_params.notes = coll_gpusym_params.notes || coll_gpusym_ranges_on;
}

void coll_gpusym_range_push(unsigned coll)
{
    const nvtxEventAttributes_t range = {.version = NVTX_VERSION,
                                         .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                         .messageType = NVTX_MESSAGE_TYPE_REGISTERED,
                                         .message = {.registered = names[coll]}};
    (void) nvtxDomainRangePushEx(domain, &range);
}

void coll_gpusym_range_pop(void)
{
    (void) nvtxDomainRangePop(domain);
}

#else

void coll_gpusym_ranges_start(void)
{
}

void coll_gpusym_range_push(unsigned coll)
{
    (void) coll;
}

void coll_gpusym_range_pop(void)
{
}

#endif
