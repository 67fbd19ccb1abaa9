/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Attributes of MPI's objects, by which a component hears of their end. By Open MPI's own functions: from 6.0 on,
 * components are not linked with MPI's.
 */
#ifndef GPUSYM_OMPI_ATTRIBUTES_H
#define GPUSYM_OMPI_ATTRIBUTES_H

#include <stdbool.h>

#include "mca/common/ompi/ompi_compat.h"

#include "ompi/attribute/attribute.h"

/* Makes a key for attributes that are not copied with their object; delete is called as MPI says. A key that is not
 * MPI_KEYVAL_INVALID has been made before, and stays. False: it could not be made. */
bool gpusym_attribute_key(ompi_attribute_type_t what, ompi_attribute_fn_ptr_union_t delete, int *key);

/* Has a function called at the beginning of MPI_Finalize, while MPI still works and before communicators and datatypes
 * end: by an attribute of MPI_COMM_SELF. *key as for gpusym_attribute_key(). What is asked for last is called first.
 * False: it will not be called. */
bool gpusym_attribute_at_finalize(int (*call)(MPI_Comm, int, void *, void *), int *key);

#endif
