/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The fallback: the modules that served a communicator before ours. They take every call that kernels do not serve,
 * with the arguments that MPI gave or with bounce buffers (bounce.h).
 */
#ifndef MCA_COLL_GPUSYM_FALLBACK_H
#define MCA_COLL_GPUSYM_FALLBACK_H

#include "ompi_config.h" /* always first */

#include "ompi/communicator/communicator.h"
#include "ompi/mca/coll/coll.h"

#include "mca/coll/gpusym/args/args.h"

/* A communicator's functions before ours, each with its (retained) module; NULL: the communicator lacks it. */
typedef struct {
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...)                                                               \
    int (*name)(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t * comm, mca_coll_base_module_t * module); \
    mca_coll_base_module_t *name##_module;                                                                     \
    int (*i##name)(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t * comm, struct ompi_request_t * *req,  \
                   mca_coll_base_module_t * module);                                                           \
    mca_coll_base_module_t *i##name##_module;                                                                  \
    int (*name##_init)(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t * comm, struct ompi_info_t * info, \
                       struct ompi_request_t * *req, mca_coll_base_module_t * module);                         \
    mca_coll_base_module_t *name##_init_module;
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS, ...)                      \
    int (*name)(FIELDS(COLL_GPUSYM_PARAM) mca_coll_base_module_t * module); \
    mca_coll_base_module_t *name##_module;
#include "mca/coll/gpusym/args/coll_gpusym.def"
} coll_gpusym_saved_t;

/* The forms of a collective, for the list; ONE_FUNCTION(name) is to be defined. */
#define COLL_GPUSYM_ALL_FORMS(name) \
    ONE_FUNCTION(name)              \
    ONE_FUNCTION(i##name)           \
    ONE_FUNCTION(name##_init)

/* The base of our modules: a module that can forward its communicator's calls. */
typedef struct {
    mca_coll_base_module_t super;
    struct ompi_communicator_t *comm; /* not retained: the communicator owns the module */
    coll_gpusym_saved_t saved;
    bool forwards_all; /* no rank has a device: every call is forwarded */
    bool forwarding;   /* a blocking call of the fallback is in progress: see coll_gpusym_forward */
} coll_gpusym_fallback_t;
OBJ_CLASS_DECLARATION(coll_gpusym_fallback_t);

/* Saves and retains the functions that the communicator has now. */
void coll_gpusym_fallback_save(coll_gpusym_fallback_t *f, struct ompi_communicator_t *comm);
/* Returns the first required function that no module serves; NULL: none is missing. */
const char *coll_gpusym_fallback_missing(const coll_gpusym_fallback_t *f);

/* Sets, and tells, that all calls of the communicator are forwarded. Any thread. */
static inline void coll_gpusym_forward_all(coll_gpusym_fallback_t *f)
{
    __atomic_store_n(&f->forwards_all, true, __ATOMIC_RELAXED);
}
static inline bool coll_gpusym_forwards_all(const coll_gpusym_fallback_t *f)
{
    return __atomic_load_n(&f->forwards_all, __ATOMIC_RELAXED);
}
/* comm: any. Of an intercommunicator, our module of its local group's communicator forwards all calls from now on: the
 * collectives beneath an intercommunicator's use that one, on host buffers, at different times on every rank. */
void coll_gpusym_forward_local_group(struct ompi_communicator_t *comm);

/* The fallback's functions with a call's arguments. MPI error code.
 *
 * While a blocking call is forwarded f->forwarding is set. A blocking call of the communicator is then the fallback's
 * own, which does one collective by another, and can be forwarded at once, for every rank is in there. It cannot be the
 * program's: MPI orders a communicator's blocking calls. MPI_Reduce_local belongs to no communicator and is exempt.
 * (Nonblocking calls too: Open MPI starts these from progress as well, for MPI_Comm_idup, while one rank is in there
 * and another is not.) */
int coll_gpusym_forward(coll_gpusym_fallback_t *f, const coll_gpusym_args_t *a);
/* *req is the fallback's request; the caller owns it. reduce_local has no such forms. */
int coll_gpusym_forward_nonblocking(coll_gpusym_fallback_t *f, const coll_gpusym_args_t *a,
                                    struct ompi_request_t **req);
int coll_gpusym_forward_persistent(coll_gpusym_fallback_t *f, const coll_gpusym_args_t *a, struct ompi_info_t *info,
                                   struct ompi_request_t **req);

#endif
