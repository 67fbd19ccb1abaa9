/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Counters of one-sided calls: see counters.h.
 */
#include "mca/osc/gpusym/counters.h"

#include "opal/mca/base/mca_base_pvar.h"

static unsigned long long counters[OSC_GPUSYM_COUNTERS_COUNT]; /* atomics */

static const struct {
    const char *name, *doc;
} texts[] = {
#define OSC_GPUSYM_TEXT(ID, name, doc) {#name, "Accumulates of this process: " doc},
    OSC_GPUSYM_COUNTERS(OSC_GPUSYM_TEXT)
#undef OSC_GPUSYM_TEXT
};

void osc_gpusym_count(enum osc_gpusym_counter counter)
{
    __atomic_fetch_add(&counters[counter], 1, __ATOMIC_RELAXED);
}

int osc_gpusym_counters_register(const mca_base_component_t *component)
{
    for (unsigned i = 0; i < OSC_GPUSYM_COUNTERS_COUNT; i++) {
        const int rc = mca_base_component_pvar_register(
            component, texts[i].name, texts[i].doc, OPAL_INFO_LVL_9, MCA_BASE_PVAR_CLASS_COUNTER,
            MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
            MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, NULL, NULL, NULL, &counters[i]);
        if (rc < 0) {
            return rc;
        }
    }
    return OMPI_SUCCESS;
}
