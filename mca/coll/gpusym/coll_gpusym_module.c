/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The module, one a communicator: whether we serve it, what we save of the modules before us, and
 * what we put in their place.  Nothing is decided here by what only one rank knows (whether it has
 * a GPU, say): the ranks of a communicator must all take the module or all leave it.
 */
#include "mca/coll/gpusym/coll_gpusym.h"

#include <string.h>

#include "mca/coll/gpusym/call/list.h"
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

/* ---- info keys ---- */

/* Ours, of a communicator that may not have it yet. */
static mca_coll_gpusym_module_t *find_module(const struct ompi_communicator_t *comm)
{
    mca_coll_base_module_t *module = NULL != comm->c_coll ? comm->c_coll->coll_allreduce_module : NULL;
    return NULL != module && OBJ_CLASS(mca_coll_gpusym_module_t) == ((opal_object_t *) module)->obj_class
               ? (mca_coll_gpusym_module_t *) module
               : NULL;
}

/* A program sets a key, for calls from now on; or, text being empty, it is subscribed to. A bad value sets nothing: the
 * parameter holds then. */
static gpusym_info_text_t set_key(opal_infosubscriber_t *object, gpusym_info_text_t key_name, gpusym_info_text_t text)
{
    struct ompi_communicator_t *comm = (struct ompi_communicator_t *) object;
    mca_coll_gpusym_module_t *m = find_module(comm);
    char name[GPUSYM_COMM_LABEL_MAX], allowed[1024];
    int value = COLL_GPUSYM_UNSET;

    if ('\0' == *text) {
        return NULL;
    }
    const unsigned key = coll_gpusym_key_find(key_name);
    if (COLL_GPUSYM_KEY_NAME == key) {
        return text;
    }
    const bool good = coll_gpusym_key_parse(key, text, &value, allowed, sizeof allowed);
    if (!good) {
        coll_gpusym_help("bad-setting", ompi_comm_rank(comm), gpusym_comm_label(comm, name, sizeof name), key_name,
                         text, allowed);
        value = COLL_GPUSYM_UNSET;
    }
    if (NULL != m && (NULL != m->engine.wish || good)) {
        coll_gpusym_list_set(&m->engine, key, value);
    }
    return good ? text : NULL;
}

/* What the communicator is made with is valid behind this, for a bad value is taken away. Takes 36 us in 4.1. Not of
 * one rank, nor between two groups: no kernel serves their calls, and Open MPI ignores the keys. */
static void subscribe_keys(mca_coll_gpusym_module_t *m, struct ompi_communicator_t *comm)
{
    char name[64], text[128], allowed[1024];
    int value;

    for (unsigned key = 0; key < COLL_GPUSYM_KEYS_ALL && !m->engine.apart; key++) {
        gpusym_comm_subscribe(comm, coll_gpusym_key_name(key, name, sizeof name), set_key);
        if (key < COLL_GPUSYM_KEYS && gpusym_info_get(comm->super.s_info, name, text, sizeof text) &&
            coll_gpusym_key_parse(key, text, &value, allowed, sizeof allowed)) {
            coll_gpusym_list_set(&m->engine, key, value);
        }
    }
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
    subscribe_keys(m, comm);
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
