/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The functions of our modules, all made from the list: MPI's parameters become one struct, and the engine decides.
 */
#include "coll_gpusym.h"

#include "ompi/communicator/communicator.h"

/* What several shapes of parameters leave unsaid; see coll_gpusym_args_t. */
static inline void complete(coll_gpusym_args_t *a)
{
    if (NULL == a->sdtype && NULL == a->sdtypes) {
        a->sdtype = a->rdtype;
        a->scount = a->rcount;
    }
    if (COLL_GPUSYM_BCAST == a->coll) {
        a->sbuf = a->rbuf;
    }
}

#define GPUSYM_COLL(ID, name, Name, FIELDS)                                                                      \
    int coll_gpusym_##name(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm,                          \
                           mca_coll_base_module_t *module)                                                       \
    {                                                                                                            \
        coll_gpusym_args_t a = {.coll = COLL_GPUSYM_##ID, FIELDS(COLL_GPUSYM_INIT)};                             \
        (void)comm;                                                                                              \
        complete(&a);                                                                                            \
        return coll_gpusym_blocking((mca_coll_gpusym_module_t *)module, &a);                                     \
    }                                                                                                            \
    int coll_gpusym_i##name(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm,                         \
                            struct ompi_request_t **req, mca_coll_base_module_t *module)                         \
    {                                                                                                            \
        coll_gpusym_args_t a = {.coll = COLL_GPUSYM_##ID, FIELDS(COLL_GPUSYM_INIT)};                             \
        (void)comm;                                                                                              \
        complete(&a);                                                                                            \
        return coll_gpusym_nonblocking((mca_coll_gpusym_module_t *)module, &a, req);                             \
    }                                                                                                            \
    int coll_gpusym_##name##_init(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm,                   \
                                  struct ompi_info_t *info, struct ompi_request_t **req,                         \
                                  mca_coll_base_module_t *module)                                                \
    {                                                                                                            \
        coll_gpusym_args_t a = {.coll = COLL_GPUSYM_##ID, FIELDS(COLL_GPUSYM_INIT)};                             \
        (void)comm;                                                                                              \
        complete(&a);                                                                                            \
        return coll_gpusym_persistent((mca_coll_gpusym_module_t *)module, &a, info, req);                        \
    }
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS)                                                                \
    int coll_gpusym_##name(FIELDS(COLL_GPUSYM_PARAM) mca_coll_base_module_t *module)                            \
    {                                                                                                            \
        coll_gpusym_args_t a = {.coll = COLL_GPUSYM_##ID, FIELDS(COLL_GPUSYM_INIT)};                             \
        complete(&a);                                                                                            \
        return coll_gpusym_blocking((mca_coll_gpusym_module_t *)module, &a);                                       \
    }
#include "coll_gpusym.def"
