/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The module, one a communicator: whether we serve it, what we save of the modules before us, and
 * what we put in their place.  Nothing is decided here by what only one rank knows (whether it has
 * a GPU, say): the ranks of a communicator must all take the module or all leave it.
 */
#include "mca/coll/gpusym/coll_gpusym.h"

#include <string.h>

#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/sanitizers.h"

static void module_construct(mca_coll_gpusym_module_t *m)
{
    memset(&m->engine, 0, sizeof(m->engine));
}

static void module_destruct(mca_coll_gpusym_module_t *m)
{
    GPUSYM_ACQUIRE(m); /* all calls are over, whichever threads they were in */
    coll_gpusym_engine_end(&m->engine);
}

OBJ_CLASS_INSTANCE(mca_coll_gpusym_module_t, coll_gpusym_fallback_t, module_construct, module_destruct);

/* What has no fallback is not ours either: there would be nothing to forward host buffers to. */
static void forgo_missing(mca_coll_base_module_t *module, const coll_gpusym_saved_t *saved)
{
#define ONE_FUNCTION(fn)          \
    if (NULL == saved->fn) {      \
        module->coll_##fn = NULL; \
    }
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...) COLL_GPUSYM_ALL_FORMS(name)
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS, ...) ONE_FUNCTION(name)
#include "mca/coll/gpusym/args/coll_gpusym.def"
#undef ONE_FUNCTION
}

/* For Open MPIs in which that is the module's business; see ompi_compat.h. */
static void install_functions(mca_coll_base_module_t *module, struct ompi_communicator_t *comm)
{
    (void) module;
    (void) comm;
#define ONE_FUNCTION(fn)                       \
    if (NULL != module->coll_##fn) {           \
        GPUSYM_COLL_INSTALL(comm, module, fn); \
    }
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...) COLL_GPUSYM_ALL_FORMS(name)
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS, ...) ONE_FUNCTION(name)
#include "mca/coll/gpusym/args/coll_gpusym.def"
#undef ONE_FUNCTION
}

static int module_enable(mca_coll_base_module_t *module, struct ompi_communicator_t *comm)
{
    mca_coll_gpusym_module_t *m = (mca_coll_gpusym_module_t *) module;
    char name[GPUSYM_COMM_LABEL_MAX];
    const char *lack;

    coll_gpusym_fallback_save(&m->super, comm);
    lack = coll_gpusym_fallback_missing(&m->super);
    if (NULL != lack) {
        GPUSYM_LOG(2, "%s: disqualified: no component of lower priority serves %s",
                   gpusym_comm_label(comm, name, sizeof(name)), lack);
        return OMPI_ERR_NOT_FOUND; /* the framework releases us, and we what was saved */
    }
    coll_gpusym_engine_init(&m->engine, &m->super);
    coll_gpusym_forward_local_group(comm);
    forgo_missing(module, &m->super.saved);
    install_functions(module, comm);
    GPUSYM_RELEASE(module); /* the communicator's first call may come in another thread */
    return OMPI_SUCCESS;
}

/* Called once, or once for every function of ours. */
static int module_disable(mca_coll_base_module_t *module, struct ompi_communicator_t *comm)
{
    mca_coll_gpusym_module_t *m = (mca_coll_gpusym_module_t *) module;

    (void) m;
    (void) comm;
#define ONE_FUNCTION(fn) GPUSYM_COLL_RESTORE(comm, module, fn, m->super.saved.fn, m->super.saved.fn##_module);
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...) COLL_GPUSYM_ALL_FORMS(name)
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS, ...) ONE_FUNCTION(name)
#include "mca/coll/gpusym/args/coll_gpusym.def"
#undef ONE_FUNCTION
    return OMPI_SUCCESS;
}

/* Why we do not serve a communicator; NULL if we do.  Any size, and intercommunicators too: a GPU
 * pointer must reach no module that would touch it with the CPU. */
static const char *find_disqualification(void)
{
    if (coll_gpusym_params.priority < 0) {
        return "coll_gpusym_priority is negative";
    }
    if (GPUSYM_DEVICE_NONE == gpusym_params.device) {
        return "coll_gpusym_device is none";
    }
    return NULL;
}

mca_coll_base_module_t *coll_gpusym_comm_query(struct ompi_communicator_t *comm, int *priority)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    const char *why = find_disqualification();
    mca_coll_gpusym_module_t *m;

    gpusym_comm_label(comm, name, sizeof(name));
    if (NULL != why) {
        GPUSYM_LOG(2, "%s: disqualified: %s", name, why);
        return NULL;
    }
    m = OBJ_NEW(mca_coll_gpusym_module_t);
    if (NULL == m) {
        GPUSYM_LOG(2, "%s: disqualified: out of memory", name);
        return NULL;
    }
    m->super.super.coll_module_enable = module_enable;
    m->super.super.coll_module_disable = module_disable;
#define ONE_FUNCTION(fn) m->super.super.coll_##fn = coll_gpusym_##fn;
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...) COLL_GPUSYM_ALL_FORMS(name)
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS, ...) ONE_FUNCTION(name)
#include "mca/coll/gpusym/args/coll_gpusym.def"
#undef ONE_FUNCTION
    m->super.super.coll_iallreduce = coll_gpusym_iallreduce_entry;
    *priority = coll_gpusym_params.priority;
    GPUSYM_LOG(5, "%s: %d ranks%s, priority %d", name, ompi_comm_size(comm),
               OMPI_COMM_IS_INTER(comm) ? ", an intercommunicator" : "", *priority);
    return &m->super.super;
}
