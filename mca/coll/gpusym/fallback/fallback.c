/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The modules before ours: saved, and called with a call's arguments as MPI's parameters again.
 */
#include "mca/coll/gpusym/fallback/fallback.h"

#include <string.h>

static void fallback_construct(coll_gpusym_fallback_t *f)
{
    memset((char *) f + sizeof(f->super), 0, sizeof(*f) - sizeof(f->super));
}

static void fallback_destruct(coll_gpusym_fallback_t *f)
{
#define ONE_FUNCTION(fn)                   \
    if (NULL != f->saved.fn##_module) {    \
        OBJ_RELEASE(f->saved.fn##_module); \
        f->saved.fn##_module = NULL;       \
    }
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...) COLL_GPUSYM_ALL_FORMS(name)
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS, ...) ONE_FUNCTION(name)
#include "mca/coll/gpusym/args/coll_gpusym.def"
#undef ONE_FUNCTION
}

OBJ_CLASS_INSTANCE(coll_gpusym_fallback_t, mca_coll_base_module_t, fallback_construct, fallback_destruct);

/* Retains each module: it must outlive ours even where ours hides all that it does. A collective that the communicator
 * lacks (scan on an intercommunicator) is NULL. */
void coll_gpusym_fallback_save(coll_gpusym_fallback_t *f, struct ompi_communicator_t *comm)
{
    const mca_coll_base_comm_coll_t *coll = comm->c_coll;
    f->comm = comm;
#define ONE_FUNCTION(fn)                                               \
    if (NULL != coll->coll_##fn && NULL != coll->coll_##fn##_module) { \
        f->saved.fn = coll->coll_##fn;                                 \
        f->saved.fn##_module = coll->coll_##fn##_module;               \
        OBJ_RETAIN(f->saved.fn##_module);                              \
    }
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...) COLL_GPUSYM_ALL_FORMS(name)
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS, ...) ONE_FUNCTION(name)
#include "mca/coll/gpusym/args/coll_gpusym.def"
#undef ONE_FUNCTION
}

/* Teams are made by them. */
const char *coll_gpusym_fallback_missing(const coll_gpusym_fallback_t *f)
{
    if (NULL == f->saved.allreduce) {
        return "allreduce";
    }
    if (NULL == f->saved.allgather) {
        return "allgather";
    }
    if (NULL == f->saved.iallgather) {
        return "iallgather";
    }
    return NULL == f->saved.barrier ? "barrier" : NULL;
}

/* Whether a module is one of ours, by its class. */
static bool is_ours(const mca_coll_base_module_t *module)
{
    const opal_class_t *class = NULL != module ? ((const opal_object_t *) module)->obj_class : NULL;
    while (NULL != class && OBJ_CLASS(coll_gpusym_fallback_t) != class) {
        class = class->cls_parent;
    }
    return NULL != class;
}

void coll_gpusym_forward_local_group(struct ompi_communicator_t *comm)
{
    const bool has_local = OMPI_COMM_IS_INTER(comm) && NULL != comm->c_local_comm;
    const mca_coll_base_comm_coll_t *coll = has_local ? comm->c_local_comm->c_coll : NULL;
    if (NULL != coll && is_ours(coll->coll_allreduce_module)) {
        coll_gpusym_forward_all((coll_gpusym_fallback_t *) coll->coll_allreduce_module);
    }
}

static int forward_blocking(coll_gpusym_fallback_t *f, const coll_gpusym_args_t *a)
{
    const coll_gpusym_saved_t *s = &f->saved;
    switch (a->coll) {
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...) \
    case COLL_GPUSYM_##ID:                       \
        return s->name(FIELDS(COLL_GPUSYM_ARG) f->comm, s->name##_module);
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS, ...) \
    case COLL_GPUSYM_##ID:                             \
        return s->name(FIELDS(COLL_GPUSYM_ARG) s->name##_module);
#include "mca/coll/gpusym/args/coll_gpusym.def"
    default:
        return OMPI_ERR_NOT_SUPPORTED;
    }
}

int coll_gpusym_forward(coll_gpusym_fallback_t *f, const coll_gpusym_args_t *a)
{
    const bool outer = f->forwarding;
    if (COLL_GPUSYM_REDUCE_LOCAL == a->coll) { /* any thread may be in that, at any time */
        return forward_blocking(f, a);
    }
    f->forwarding = true;
    const int rv = forward_blocking(f, a);
    f->forwarding = outer;
    return rv;
}

int coll_gpusym_forward_nonblocking(coll_gpusym_fallback_t *f, const coll_gpusym_args_t *a, struct ompi_request_t **req)
{
    const coll_gpusym_saved_t *s = &f->saved;
    switch (a->coll) {
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...) \
    case COLL_GPUSYM_##ID:                       \
        return s->i##name(FIELDS(COLL_GPUSYM_ARG) f->comm, req, s->i##name##_module);
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS, ...)
#include "mca/coll/gpusym/args/coll_gpusym.def"
    default:
        return OMPI_ERR_NOT_SUPPORTED;
    }
}

int coll_gpusym_forward_persistent(coll_gpusym_fallback_t *f, const coll_gpusym_args_t *a, struct ompi_info_t *info,
                                   struct ompi_request_t **req)
{
    const coll_gpusym_saved_t *s = &f->saved;
    switch (a->coll) {
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...) \
    case COLL_GPUSYM_##ID:                       \
        return s->name##_init(FIELDS(COLL_GPUSYM_ARG) f->comm, info, req, s->name##_init_module);
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS, ...)
#include "mca/coll/gpusym/args/coll_gpusym.def"
    default:
        return OMPI_ERR_NOT_SUPPORTED;
    }
}
