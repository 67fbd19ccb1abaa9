/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The arrays of a nonblocking or persistent call's arguments, kept for as long as the call lasts.
 */
#ifndef MCA_COLL_GPUSYM_ARGS_KEEP_H
#define MCA_COLL_GPUSYM_ARGS_KEEP_H

#include "mca/coll/gpusym/args/args.h"

/* Copies the arrays that a points to, and makes a point to the copies. *kept owns them: the caller frees it with free()
 * when the call has completed (NULL: a has no arrays). False: no memory. */
bool coll_gpusym_args_keep(struct ompi_communicator_t *comm, coll_gpusym_args_t *a, void **kept);

#endif
