/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The previous modules' functions, called with a call's arguments as MPI's parameters again.
 */
#include "mca/coll/gpusym/coll_gpusym.h"

static int call(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a)
{
    const coll_gpusym_saved_t *s = &m->saved;
    switch (a->coll) {
#define GPUSYM_COLL(ID, name, Name, FIELDS) \
    case COLL_GPUSYM_##ID:                  \
        return s->name(FIELDS(COLL_GPUSYM_ARG) m->comm, s->name##_module);
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS) \
    case COLL_GPUSYM_##ID:                        \
        return s->name(FIELDS(COLL_GPUSYM_ARG) s->name##_module);
#include "mca/coll/gpusym/args/coll_gpusym.def"
    default:
        return OMPI_ERR_NOT_SUPPORTED;
    }
}

int coll_gpusym_previous(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a)
{
    const bool outer = m->inside;
    if (COLL_GPUSYM_REDUCE_LOCAL == a->coll) { /* any thread may be in that, at any time */
        return call(m, a);
    }
    m->inside = true;
    const int rv = call(m, a);
    m->inside = outer;
    return rv;
}

int coll_gpusym_previous_i(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, struct ompi_request_t **req)
{
    const coll_gpusym_saved_t *s = &m->saved;
    switch (a->coll) {
#define GPUSYM_COLL(ID, name, Name, FIELDS) \
    case COLL_GPUSYM_##ID:                  \
        return s->i##name(FIELDS(COLL_GPUSYM_ARG) m->comm, req, s->i##name##_module);
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS)
#include "mca/coll/gpusym/args/coll_gpusym.def"
    default:
        return OMPI_ERR_NOT_SUPPORTED;
    }
}

int coll_gpusym_previous_init(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, struct ompi_info_t *info,
                              struct ompi_request_t **req)
{
    const coll_gpusym_saved_t *s = &m->saved;
    switch (a->coll) {
#define GPUSYM_COLL(ID, name, Name, FIELDS) \
    case COLL_GPUSYM_##ID:                  \
        return s->name##_init(FIELDS(COLL_GPUSYM_ARG) m->comm, info, req, s->name##_init_module);
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS)
#include "mca/coll/gpusym/args/coll_gpusym.def"
    default:
        return OMPI_ERR_NOT_SUPPORTED;
    }
}
