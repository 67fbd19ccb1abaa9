/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The functions of our modules, all made from the list: MPI's parameters become one struct, and the engine decides.
 */
#include "mca/coll/gpusym/coll_gpusym.h"
#include "mca/coll/gpusym/call/entry.h"
#include "mca/coll/gpusym/call/internal.h"
#include "mca/coll/gpusym/coll_gpusym_host.h"

#include "ompi/communicator/communicator.h"

#include "mca/common/gpusym/sanitizers.h"

/* A communicator's calls come one after the other, though not from one thread: Open MPI, as it makes a
 * communicator, calls from whichever thread makes progress.  That they are in order is said to ThreadSanitizer here. */
static inline void begin_call(mca_coll_gpusym_module_t *m)
{
    GPUSYM_ACQUIRE(m);
}
static inline int end_call(mca_coll_gpusym_module_t *m, int rv)
{
    GPUSYM_RELEASE(m);
    return rv;
}

/* Sets the arguments that a collective has no parameters for; see coll_gpusym_args_t. */
static inline void complete_args(coll_gpusym_args_t *a)
{
    if (NULL == a->sdtype && NULL == a->sdtypes) {
        a->sdtype = a->rdtype;
        a->scount = a->rcount;
    }
    if (COLL_GPUSYM_RANKS_OTHERS == coll_gpusym_facts[a->coll].to) {
        a->sbuf = a->rbuf;
    }
}

#define FIELD_ITSELF(type, field) field,
/* The blocking form. It and the nonblocking one have a short path, see coll_gpusym_host.h. The full path is a function
 * of its own, so that its struct of arguments costs the short path nothing. COMM: the parameter for the communicator
 * and the comma behind it, if there is one; FALLBACK: the call of the fallback. */
#define BLOCKING(ID, name, FIELDS, COMM, FALLBACK)                                                                \
    static __attribute__((noinline)) int name##_in_full(FIELDS(COLL_GPUSYM_PARAM) mca_coll_base_module_t *module) \
    {                                                                                                             \
        coll_gpusym_args_t a = {.coll = COLL_GPUSYM_##ID, FIELDS(COLL_GPUSYM_INIT)};                              \
        complete_args(&a);                                                                                        \
        return coll_gpusym_blocking(&((mca_coll_gpusym_module_t *) module)->engine, &a);                          \
    }                                                                                                             \
    int coll_gpusym_##name(FIELDS(COLL_GPUSYM_PARAM) COMM mca_coll_base_module_t *module)                         \
    {                                                                                                             \
        mca_coll_gpusym_module_t *m = (mca_coll_gpusym_module_t *) module;                                        \
        coll_gpusym_args_t a = {.coll = COLL_GPUSYM_##ID, FIELDS(COLL_GPUSYM_INIT)};                              \
        complete_args(&a);                                                                                        \
        const bool local = COLL_GPUSYM_P_LOCAL == coll_gpusym_facts[a.coll].pattern;                              \
        begin_call(m);                                                                                            \
        if (m->super.forwarding && !local) {                                                                      \
            return FALLBACK;                                                                                      \
        }                                                                                                         \
        if (!coll_gpusym_forwards(m, &a)) {                                                                       \
            return end_call(m, name##_in_full(FIELDS(FIELD_ITSELF) module));                                      \
        }                                                                                                         \
        if (local) {                                                                                              \
            return FALLBACK;                                                                                      \
        }                                                                                                         \
        m->super.forwarding = true;                                                                               \
        const int rv = FALLBACK;                                                                                  \
        m->super.forwarding = false;                                                                              \
        return end_call(m, rv);                                                                                   \
    }
#define COMM_PARAM struct ompi_communicator_t *comm,
#define NO_COMM

#define GPUSYM_COLL(ID, name, Name, FIELDS, ...)                                                                     \
    BLOCKING(ID, name, FIELDS, COMM_PARAM,                                                                           \
             m->super.saved.name(FIELDS(FIELD_ITSELF) comm, m->super.saved.name##_module))                           \
    static __attribute__((noinline)) int i##name##_in_full(FIELDS(COLL_GPUSYM_PARAM) struct ompi_request_t **req,    \
                                                           mca_coll_base_module_t *module)                           \
    {                                                                                                                \
        coll_gpusym_args_t a = {.coll = COLL_GPUSYM_##ID, FIELDS(COLL_GPUSYM_INIT)};                                 \
        complete_args(&a);                                                                                           \
        return coll_gpusym_nonblocking(&((mca_coll_gpusym_module_t *) module)->engine, &a, req);                     \
    }                                                                                                                \
    int coll_gpusym_i##name(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm, struct ompi_request_t **req, \
                            mca_coll_base_module_t *module)                                                          \
    {                                                                                                                \
        mca_coll_gpusym_module_t *m = (mca_coll_gpusym_module_t *) module;                                           \
        coll_gpusym_args_t a = {.coll = COLL_GPUSYM_##ID, FIELDS(COLL_GPUSYM_INIT)};                                 \
        complete_args(&a);                                                                                           \
        begin_call(m);                                                                                               \
        return end_call(m, coll_gpusym_forwards(m, &a) ? m->super.saved.i##name(FIELDS(FIELD_ITSELF) comm, req,      \
                                                                                m->super.saved.i##name##_module)     \
                                                       : i##name##_in_full(FIELDS(FIELD_ITSELF) req, module));       \
    }                                                                                                                \
    int coll_gpusym_##name##_init(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm,                        \
                                  struct ompi_info_t *info, struct ompi_request_t **req,                             \
                                  mca_coll_base_module_t *module)                                                    \
    {                                                                                                                \
        coll_gpusym_args_t a = {.coll = COLL_GPUSYM_##ID, FIELDS(COLL_GPUSYM_INIT)};                                 \
        (void) comm;                                                                                                 \
        complete_args(&a);                                                                                           \
        begin_call((mca_coll_gpusym_module_t *) module);                                                             \
        return end_call((mca_coll_gpusym_module_t *) module,                                                         \
                        coll_gpusym_persistent(&((mca_coll_gpusym_module_t *) module)->engine, &a, info, req));      \
    }
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS, ...) \
    BLOCKING(ID, name, FIELDS, NO_COMM, m->super.saved.name(FIELDS(FIELD_ITSELF) m->super.saved.name##_module))
#include "mca/coll/gpusym/args/coll_gpusym.def"

/* A caller that is not known to be MPI_Iallreduce. A function by itself, so that the entry keeps nothing over a
 * call. */
static __attribute__((noinline)) int
iallreduce_from(const void *caller, COLL_GPUSYM_F_REDUCTION(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm,
                struct ompi_request_t **req, mca_coll_base_module_t *module)
{
    begin_call((mca_coll_gpusym_module_t *) module);
    return coll_gpusym_is_internal(sbuf, rbuf, rcount, rdtype, op, comm, caller)
               ? coll_gpusym_internal_iallreduce(&((mca_coll_gpusym_module_t *) module)->engine, sbuf, rbuf, rcount, op,
                                                 req)
               : coll_gpusym_iallreduce(sbuf, rbuf, rcount, rdtype, op, comm, req, module);
}

int coll_gpusym_iallreduce_entry(COLL_GPUSYM_F_REDUCTION(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm,
                                 struct ompi_request_t **req, mca_coll_base_module_t *module)
{
    const void *caller = __builtin_return_address(0);
    return __builtin_expect(caller == __atomic_load_n(&coll_gpusym_iallreduce_caller, __ATOMIC_RELAXED), 1)
               ? coll_gpusym_iallreduce(sbuf, rbuf, rcount, rdtype, op, comm, req, module)
               : iallreduce_from(caller, sbuf, rbuf, rcount, rdtype, op, comm, req, module);
}
