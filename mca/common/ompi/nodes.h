/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The nodes of a datatype (kernels/work.h), by which a kernel packs and unpacks its elements: read from its description
 * once, and kept as an attribute of the datatype for as long as it lives.
 */
#ifndef GPUSYM_OMPI_NODES_H
#define GPUSYM_OMPI_NODES_H

#include "ompi_config.h" /* always first */

#include "mca/common/gpusym/exec/pack.h"
#include "ompi/datatype/ompi_datatype.h"

/* Returns the nodes of a committed datatype of more than one run, valid as long as it lives; NULL: it has too many, or
 * there is no memory, or MPI_Finalize has begun. 0.03 us, but for the first call for a datatype, which reads it: 1 ms
 * for 32,768 nodes. Thread-safe. */
gpusym_nodes_t *gpusym_nodes_of(struct ompi_datatype_t *dtype);

#endif
