/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The counters of messages.
 */
#include "mca/pml/gpusym/counters.h"

#include <stdio.h>
#include <string.h>

#include "mca/common/gpusym/common.h"
#include "opal/mca/base/mca_base_pvar.h"

unsigned long long pml_gpusym_counters[PML_GPUSYM_COUNTERS];

static const struct {
    const char *name, *doc;
    bool reason;
} counters[] = {
#define PML_GPUSYM_COUNTER(ID, name, doc) {#name, doc, false},
#define PML_GPUSYM_REASON(ID, name, doc) {#name, doc, true},
#include "mca/pml/gpusym/counters.def"
};

int pml_gpusym_counters_register(const mca_base_component_t *component)
{
    char name[64], text[160];

    for (unsigned i = 0; i < PML_GPUSYM_COUNTERS; i++) {
        snprintf(name, sizeof name, "p2p_%s", counters[i].name);
        snprintf(text, sizeof text, "Messages of this process: %s", counters[i].doc);
        const int rv = mca_base_component_pvar_register(
            component, name, text, OPAL_INFO_LVL_9, MCA_BASE_PVAR_CLASS_COUNTER, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG,
            NULL, MCA_BASE_VAR_BIND_NO_OBJECT, MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, NULL, NULL,
            NULL, &pml_gpusym_counters[i]);
        if (rv < 0) {
            return rv;
        }
    }
    return OMPI_SUCCESS;
}

void pml_gpusym_counters_print(const unsigned long long *sum)
{
    char text[2048];
    size_t used = (size_t) snprintf(text, sizeof text, "gpusym: p2p:");
    unsigned long long all = 0;

    for (unsigned i = 0; i < PML_GPUSYM_COUNTERS; i++) {
        if (!counters[i].reason) {
            used += (size_t) snprintf(text + used, sizeof text - used, "%s %s %llu", 0 == i ? "" : ",",
                                      counters[i].name, sum[i]);
        } else if (0 != sum[i]) {
            used +=
                (size_t) snprintf(text + used, sizeof text - used, "\ngpusym: p2p: %llu %s", sum[i], counters[i].doc);
        }
        all += sum[i];
    }
    if (all > 0) {
        text[used++] = '\n';
        fflush(stderr);
        (void) gpusym_write_all(fileno(stderr), text, used);
    }
}

void pml_gpusym_counters_clear(void)
{
    memset(pml_gpusym_counters, 0, sizeof pml_gpusym_counters);
}
