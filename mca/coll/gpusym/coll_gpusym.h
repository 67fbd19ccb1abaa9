/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * coll/gpusym: the face to MPI's collectives.  The component, the module (one per communicator), and the functions that
 * a module shows to Open MPI.
 */
#ifndef MCA_COLL_GPUSYM_H
#define MCA_COLL_GPUSYM_H

#include "ompi_config.h" /* always first */

#include "mpi.h"
#include "ompi/communicator/communicator.h"
#include "ompi/mca/coll/base/base.h"
#include "ompi/mca/coll/coll.h"

#include "mca/coll/gpusym/args/args.h"
#include "mca/coll/gpusym/exec/engine.h"
#include "mca/coll/gpusym/fallback/fallback.h"
#include "mca/common/ompi/ompi_compat.h"

typedef struct {
    gpusym_coll_component_t super; /* ompi_compat.h: this Open MPI's component struct */
} mca_coll_gpusym_component_t;
GPUSYM_COMPONENT_EXPORT extern mca_coll_gpusym_component_t mca_coll_gpusym_component;

typedef struct {
    coll_gpusym_fallback_t super;
    coll_gpusym_engine_t engine;
} mca_coll_gpusym_module_t;
OBJ_CLASS_DECLARATION(mca_coll_gpusym_module_t);

/* coll_gpusym_module.c: returns a new module for a communicator and its priority; NULL: the component does not serve
 * it. */
mca_coll_base_module_t *coll_gpusym_comm_query(struct ompi_communicator_t *comm, int *priority);

/* coll_gpusym_coll.c: the functions that a module shows to Open MPI, coll_gpusym_<name>, _i<name> and _<name>_init.
 * They make a coll_gpusym_args_t, and call the fallback or one of call/entry.h. */
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...)                                                                     \
    int coll_gpusym_##name(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm,                               \
                           mca_coll_base_module_t *module);                                                          \
    int coll_gpusym_i##name(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm, struct ompi_request_t **req, \
                            mca_coll_base_module_t *module);                                                         \
    int coll_gpusym_##name##_init(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm,                        \
                                  struct ompi_info_t *info, struct ompi_request_t **req,                             \
                                  mca_coll_base_module_t *module);
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS, ...) \
    int coll_gpusym_##name(FIELDS(COLL_GPUSYM_PARAM) mca_coll_base_module_t *module);
#include "mca/coll/gpusym/args/coll_gpusym.def"

/* The module's function for MPI_Iallreduce. It tells the program's calls from Open MPI's own, which costs the program's
 * a few instructions. */
int coll_gpusym_iallreduce_entry(COLL_GPUSYM_F_REDUCTION(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm,
                                 struct ompi_request_t **req, mca_coll_base_module_t *module);

#endif
