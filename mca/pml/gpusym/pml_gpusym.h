/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The face to MPI's point-to-point messages. It is no component of its own: the coll component, which every program
 * opens, opens it too. It replaces functions in Open MPI's table of the selected PML (mca_pml). Messages whose buffer
 * is device memory are served here; all others go to the PML, which still matches all messages.
 *
 * Served is the PML ob1, alone or under monitoring. Over any other PML nothing is replaced: it may know device memory
 * by itself.
 */
#ifndef MCA_PML_GPUSYM_H
#define MCA_PML_GPUSYM_H

#include "mca/common/ompi/ompi_compat.h"

/* Registers parameters and counters (MPI_T), as those of a component. Returns an Open MPI error code. */
int pml_gpusym_register(const mca_base_component_t *component);
/* Publishes to the processes of this host that this one is served. Call it from the component's open function, before
 * Open MPI's fence. No effect without a device, or if coll_gpusym_p2p is off. */
void pml_gpusym_publish(void);
/* Replaces the functions in mca_pml. Call it when the PML has been selected. May be called again. */
void pml_gpusym_install(void);
/* Meets the other processes, if that was too early in pml_gpusym_install. Call it for each new communicator. */
void pml_gpusym_meet(void);
/* Returns whether messages of device memory are served. */
bool pml_gpusym_serves(void);
/* Frees everything. No message may be in flight. What is published again begins afresh. */
void pml_gpusym_close(void);

#endif
