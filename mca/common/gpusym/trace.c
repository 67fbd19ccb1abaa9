/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The tracer's hook: see trace.h.
 */
#include "mca/common/gpusym/trace.h"

gpusym_trace_hook_t *gpusym_trace_hook;

const char *gpusym_trace_name(gpusym_trace_event_t event)
{
    static const char *const names[] = {
#define GPUSYM_TRACE_NAME(ID, name, doc) name,
        GPUSYM_TRACE_EVENTS(GPUSYM_TRACE_NAME)
#undef GPUSYM_TRACE_NAME
    };

    return (unsigned) event < GPUSYM_TRACE_COUNT ? names[event] : "unknown";
}
