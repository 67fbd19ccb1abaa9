/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Names of what stands in the component's lists.
 */
#include "mca/coll/gpusym/args/names.h"

#include <string.h>

#include "kernels/kernels.h"
#include "mca/coll/gpusym/args/args.h"

/* "allreduce", "MPI_Allreduce", "ALLREDUCE" */
static const struct {
    const char *name, *mpi, *id;
} colls[] = {
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...) {#name, "MPI_" #Name, #ID},
#include "mca/coll/gpusym/args/coll_gpusym.def"
};

static const struct {
    const char *name, *doc, *hint;
} reasons[] = {
#define GPUSYM_REASON(ID, name, doc, hint) {#name, doc, hint},
#include "mca/coll/gpusym/args/coll_gpusym.def"
};

/* The collective of each algorithm, "ALLREDUCE". */
static const char *const algorithm_coll[] = {
#define GPUSYM_ALGORITHM(id, name, coll, family, schedule, doc) #coll,
#include "kernels/kernels.def"
};

const char *coll_gpusym_name(unsigned coll)
{
    return coll < COLL_GPUSYM_COLLS ? colls[coll].name : "unknown";
}

const char *coll_gpusym_mpi_name(unsigned coll)
{
    return coll < COLL_GPUSYM_COLLS ? colls[coll].mpi : "unknown";
}

const char *coll_gpusym_reason_name(unsigned reason)
{
    return reason < COLL_GPUSYM_REASONS ? reasons[reason].name : "unknown";
}

const char *coll_gpusym_reason_doc(unsigned reason)
{
    return reason < COLL_GPUSYM_REASONS ? reasons[reason].doc : "unknown";
}

const char *coll_gpusym_reason_hint(unsigned reason)
{
    return reason < COLL_GPUSYM_REASONS ? reasons[reason].hint : "unknown";
}

bool coll_gpusym_algorithm_is_of(unsigned alg, unsigned coll)
{
    return alg < GPUSYM_ALG_COUNT && coll < COLL_GPUSYM_COLLS && 0 == strcmp(algorithm_coll[alg], colls[coll].id);
}
