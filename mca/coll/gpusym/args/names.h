/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Names of what stands in the component's lists.
 */
#ifndef MCA_COLL_GPUSYM_ARGS_NAMES_H
#define MCA_COLL_GPUSYM_ARGS_NAMES_H

#include <stdbool.h>

/* A collective's name in parameters and counters, "allreduce"; enum coll_gpusym_coll. */
const char *coll_gpusym_name(unsigned coll);
/* A collective's name in messages, "MPI_Allreduce"; enum coll_gpusym_coll. */
const char *coll_gpusym_mpi_name(unsigned coll);
/* A reason's name in counters, "user_op", in words, and what the user can do about it; enum coll_gpusym_reason. */
const char *coll_gpusym_reason_name(unsigned reason);
const char *coll_gpusym_reason_doc(unsigned reason);
const char *coll_gpusym_reason_hint(unsigned reason);
/* Whether kernels.def has the algorithm (enum gpusym_algorithm) for the collective (enum coll_gpusym_coll). */
bool coll_gpusym_algorithm_is_of(unsigned alg, unsigned coll);

#endif
