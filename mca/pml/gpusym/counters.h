/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The counters of messages: MPI_T performance variables coll_gpusym_p2p_<name>, and lines at the end.
 */
#ifndef MCA_PML_GPUSYM_COUNTERS_H
#define MCA_PML_GPUSYM_COUNTERS_H

#include "mca/common/ompi/ompi_compat.h"

enum pml_gpusym_counter {
#define PML_GPUSYM_COUNTER(ID, name, doc) PML_GPUSYM_##ID,
#include "mca/pml/gpusym/counters.def"
    PML_GPUSYM_COUNTERS
};

extern unsigned long long pml_gpusym_counters[PML_GPUSYM_COUNTERS];

/* Counts one message. Any thread. */
static inline void pml_gpusym_count(enum pml_gpusym_counter counter)
{
    __atomic_fetch_add(&pml_gpusym_counters[counter], 1, __ATOMIC_RELAXED);
}

/* Registers the counters as those of a component. Returns an Open MPI error code. */
int pml_gpusym_counters_register(const mca_base_component_t *component);
/* Prints sums over the ranks, [PML_GPUSYM_COUNTERS], to stderr, unless all are 0: a line of the ways, and one for each
 * reason why messages did not go directly. */
void pml_gpusym_counters_print(const unsigned long long *sum);
/* Sets all to 0. */
void pml_gpusym_counters_clear(void);

#endif
