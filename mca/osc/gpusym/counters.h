/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Counters of one-sided calls on windows of GPU memory: how accumulates to ranks of this host were done. Variables of
 * MPI_T: osc_gpusym_<name>.
 */
#ifndef MCA_OSC_GPUSYM_COUNTERS_H
#define MCA_OSC_GPUSYM_COUNTERS_H

#include "mca/common/ompi/face.h"

#define OSC_GPUSYM_COUNTERS(each)                                                                     \
    each(BY_COMMAND, combined_by_command, "done by a command to the resident kernel of small copies") \
        each(BY_LAUNCH, combined_by_launch, "combined by a kernel that was launched for them")        \
            each(BY_CPU, combined_by_cpu, "combined by the CPU, in a copy of the target's elements")

enum osc_gpusym_counter {
#define OSC_GPUSYM_ID(ID, name, doc) OSC_GPUSYM_##ID,
    OSC_GPUSYM_COUNTERS(OSC_GPUSYM_ID) OSC_GPUSYM_COUNTERS_COUNT
#undef OSC_GPUSYM_ID
};

/* Any thread. */
void osc_gpusym_count(enum osc_gpusym_counter counter);
/* Registers them, of the component. Open MPI error code. */
int osc_gpusym_counters_register(const mca_base_component_t *component);

#endif
