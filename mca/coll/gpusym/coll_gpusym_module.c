/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The module, one a communicator: whether we serve it, what we save of the modules before us, and
 * what we put in their place.  Nothing is decided here by what only one rank knows (whether it has
 * a GPU, say): the ranks of a communicator must all take the module or all leave it.
 */
#include "mca/coll/gpusym/coll_gpusym.h"

#include <string.h>

#include "mca/common/gpusym/sanitizers.h"

static void module_construct(mca_coll_gpusym_module_t *m)
{
    memset((char *) m + sizeof(m->super), 0, sizeof(*m) - sizeof(m->super));
}

/* The functions of a collective's three forms, for the list: ONE_FUNCTION(name) is to be defined. */
#define ALL_FORMS(name)  \
    ONE_FUNCTION(name)   \
    ONE_FUNCTION(i##name) \
    ONE_FUNCTION(name##_init)

static void release_saved(coll_gpusym_saved_t *saved)
{
#define ONE_FUNCTION(fn)                 \
    if (NULL != saved->fn##_module) {    \
        OBJ_RELEASE(saved->fn##_module); \
        saved->fn##_module = NULL;       \
    }
#define GPUSYM_COLL(ID, name, Name, FIELDS) ALL_FORMS(name)
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS) ONE_FUNCTION(name)
#include "mca/coll/gpusym/args/coll_gpusym.def"
#undef ONE_FUNCTION
}

static void module_destruct(mca_coll_gpusym_module_t *m)
{
    GPUSYM_ACQUIRE(m); /* all calls are over, whichever threads they were in */
    coll_gpusym_team_free(m->team);
    m->team = NULL;
    release_saved(&m->saved);
    if (MPI_COMM_WORLD == m->comm) {
        coll_gpusym_counters_print(); /* we are in MPI_Finalize */
    }
}

OBJ_CLASS_INSTANCE(mca_coll_gpusym_module_t, mca_coll_base_module_t, module_construct, module_destruct);

const char *coll_gpusym_comm_name(struct ompi_communicator_t *comm, char *buf, size_t size)
{
    return gpusym_comm_label(comm, buf, size);
}

/* Takes a reference to each previous module: it must outlive us even where we hide all that it
 * does.  A collective that a communicator has not (scan on an intercommunicator) stays NULL. */
static void save_previous(coll_gpusym_saved_t *saved, const mca_coll_base_comm_coll_t *coll)
{
#define ONE_FUNCTION(fn)                                               \
    if (NULL != coll->coll_##fn && NULL != coll->coll_##fn##_module) { \
        saved->fn = coll->coll_##fn;                                   \
        saved->fn##_module = coll->coll_##fn##_module;                 \
        OBJ_RETAIN(saved->fn##_module);                                \
    }
#define GPUSYM_COLL(ID, name, Name, FIELDS) ALL_FORMS(name)
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS) ONE_FUNCTION(name)
#include "mca/coll/gpusym/args/coll_gpusym.def"
#undef ONE_FUNCTION
}

/* What has no previous function is not ours either: there would be nothing to hand host buffers on to. */
static void forgo_missing(mca_coll_base_module_t *module, const coll_gpusym_saved_t *saved)
{
#define ONE_FUNCTION(fn)            \
    if (NULL == saved->fn) {        \
        module->coll_##fn = NULL;   \
    }
#define GPUSYM_COLL(ID, name, Name, FIELDS) ALL_FORMS(name)
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS) ONE_FUNCTION(name)
#include "mca/coll/gpusym/args/coll_gpusym.def"
#undef ONE_FUNCTION
}

/* For Open MPIs in which that is the module's business; see ompi_compat.h. */
static void install(mca_coll_base_module_t *module, struct ompi_communicator_t *comm)
{
    (void) module;
    (void) comm;
#define ONE_FUNCTION(fn)                       \
    if (NULL != module->coll_##fn) {           \
        GPUSYM_COLL_INSTALL(comm, module, fn); \
    }
#define GPUSYM_COLL(ID, name, Name, FIELDS) ALL_FORMS(name)
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS) ONE_FUNCTION(name)
#include "mca/coll/gpusym/args/coll_gpusym.def"
#undef ONE_FUNCTION
}

/* The first of those that we cannot do without (teams are made by them) and that nobody serves; NULL if all are there. */
static const char *missing(const coll_gpusym_saved_t *saved)
{
    if (NULL == saved->allreduce) {
        return "allreduce";
    }
    if (NULL == saved->allgather) {
        return "allgather";
    }
    if (NULL == saved->iallgather) {
        return "iallgather";
    }
    return NULL == saved->barrier ? "barrier" : NULL;
}

/* Beneath an intercommunicator's collectives are some of its own group's hidden communicator, on host buffers, begun by ranks
 * at different times: they are none of ours. */
void coll_gpusym_pass_local(struct ompi_communicator_t *comm)
{
    const bool has_local = OMPI_COMM_IS_INTER(comm) && NULL != comm->c_local_comm;
    const mca_coll_base_comm_coll_t *coll = has_local ? comm->c_local_comm->c_coll : NULL;
    if (NULL != coll && coll_gpusym_allreduce == coll->coll_allreduce) {
        coll_gpusym_pass((mca_coll_gpusym_module_t *) coll->coll_allreduce_module);
    }
}

static int module_enable(mca_coll_base_module_t *module, struct ompi_communicator_t *comm)
{
    mca_coll_gpusym_module_t *m = (mca_coll_gpusym_module_t *) module;
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    const char *lack;

    save_previous(&m->saved, comm->c_coll);
    lack = missing(&m->saved);
    if (NULL != lack) {
        COLL_GPUSYM_VERBOSE(1, "%s: disqualified: no component of lower priority serves %s",
                            coll_gpusym_comm_name(comm, name, sizeof(name)), lack);
        return OMPI_ERR_NOT_FOUND; /* the framework releases us, and we what was saved */
    }
    m->comm = comm;
    m->alone = !OMPI_COMM_IS_INTER(comm) && 1 == ompi_comm_size(comm);
    m->apart = m->alone || OMPI_COMM_IS_INTER(comm); /* others: seen at the first call, by coll_gpusym_team_create() */
    m->reason_apart = m->alone ? COLL_GPUSYM_R_NO_NATIVE : COLL_GPUSYM_R_INTER;
    coll_gpusym_pass_local(comm);
    forgo_missing(module, &m->saved);
    install(module, comm);
    GPUSYM_RELEASE(module); /* the communicator's first call may come in another thread */
    __atomic_store_n(&mca_coll_gpusym_component.used, true, __ATOMIC_RELAXED); /* several threads may be here */
    return OMPI_SUCCESS;
}

/* Called once, or once for every function of ours. */
static int module_disable(mca_coll_base_module_t *module, struct ompi_communicator_t *comm)
{
    mca_coll_gpusym_module_t *m = (mca_coll_gpusym_module_t *) module;

    (void) m;
    (void) comm;
#define ONE_FUNCTION(fn) GPUSYM_COLL_RESTORE(comm, module, fn, m->saved.fn, m->saved.fn##_module);
#define GPUSYM_COLL(ID, name, Name, FIELDS) ALL_FORMS(name)
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS) ONE_FUNCTION(name)
#include "mca/coll/gpusym/args/coll_gpusym.def"
#undef ONE_FUNCTION
    return OMPI_SUCCESS;
}

/* Why we do not serve a communicator; NULL if we do.  Any size, and intercommunicators too: a GPU
 * pointer must reach no module that would touch it with the CPU. */
static const char *disqualified(void)
{
    if (mca_coll_gpusym_component.priority < 0) {
        return "coll_gpusym_priority is negative";
    }
    if (GPUSYM_DEVICE_NONE == gpusym_params.device) {
        return "coll_gpusym_device is none";
    }
    return NULL;
}

mca_coll_base_module_t *coll_gpusym_comm_query(struct ompi_communicator_t *comm, int *priority)
{
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    const char *why = disqualified();
    mca_coll_gpusym_module_t *m;

    coll_gpusym_comm_name(comm, name, sizeof(name));
    if (NULL != why) {
        COLL_GPUSYM_VERBOSE(1, "%s: disqualified: %s", name, why);
        return NULL;
    }
    m = OBJ_NEW(mca_coll_gpusym_module_t);
    if (NULL == m) {
        COLL_GPUSYM_VERBOSE(1, "%s: disqualified: out of memory", name);
        return NULL;
    }
    m->super.coll_module_enable = module_enable;
    m->super.coll_module_disable = module_disable;
#define ONE_FUNCTION(fn) m->super.coll_##fn = coll_gpusym_##fn;
#define GPUSYM_COLL(ID, name, Name, FIELDS) ALL_FORMS(name)
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS) ONE_FUNCTION(name)
#include "mca/coll/gpusym/args/coll_gpusym.def"
#undef ONE_FUNCTION
    m->super.coll_iallreduce = coll_gpusym_iallreduce_entry;
    *priority = mca_coll_gpusym_component.priority;
    COLL_GPUSYM_VERBOSE(5, "%s: %d ranks%s, priority %d", name, ompi_comm_size(comm),
                        OMPI_COMM_IS_INTER(comm) ? ", an intercommunicator" : "", *priority);
    return &m->super;
}
