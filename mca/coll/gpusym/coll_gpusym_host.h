/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The short path of a blocking or nonblocking call on host memory: one query of the device per buffer, one store for
 * the peers, a counter and the call of the fallback. The result is that of coll_gpusym_blocking() and
 * coll_gpusym_nonblocking(). Everything is inline, and folds where the collective is a constant. test/hostpath.sh
 * counts the instructions.
 *
 * The path serves simple cases, and leaves all others untouched to those two functions. It queries an address that the
 * call reads or writes. After a call on GPU memory the path is off, so that no buffer is queried twice.
 */
#ifndef MCA_COLL_GPUSYM_HOST_H
#define MCA_COLL_GPUSYM_HOST_H

#include "mca/coll/gpusym/args/facts.h"
#include "mca/coll/gpusym/coll_gpusym.h"
#include "mca/coll/gpusym/conf/counters.h"
#include "mca/common/gpusym/gpusym.h"
#include "ompi/communicator/communicator.h"

#define COLL_GPUSYM_INLINE static inline __attribute__((always_inline))

/* Whether elements of the type begin at the buffer's address, there are some, and they have no gaps, beyond which other
 * memory may lie. Those of predefined types have none that matter. */
COLL_GPUSYM_INLINE bool coll_gpusym_plain(const struct ompi_datatype_t *dtype, size_t count)
{
    const opal_datatype_t *d = &dtype->super;
    return 0 != count && (OPAL_LIKELY(0 != (d->flags & OPAL_DATATYPE_FLAG_PREDEFINED)) ||
                          (0 != d->size && 0 == d->true_lb && 0 != (d->flags & OPAL_DATATYPE_FLAG_NO_GAPS)));
}

COLL_GPUSYM_INLINE bool coll_gpusym_is_host(const gpusym_device_t *dev, const void *p)
{
    gpusym_mem_t mem;
    dev->query(p, &mem);
    return !coll_gpusym_on_gpu(&mem);
}

COLL_GPUSYM_INLINE bool coll_gpusym_one_is_host(const gpusym_device_t *dev, const void *buf,
                                                const struct ompi_datatype_t *dtype, size_t count)
{
    return coll_gpusym_plain(dtype, count) && coll_gpusym_is_host(dev, buf);
}

/* The same for n blocks: queries the first that is not empty. */
COLL_GPUSYM_INLINE bool coll_gpusym_blocks_are_host(const gpusym_device_t *dev, const void *buf,
                                                    const struct ompi_datatype_t *dtype, gpusym_counts_t counts,
                                                    gpusym_displs_t displs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t count = gpusym_count_at(counts, i);
        if (0 != count) {
            const ptrdiff_t extent = dtype->super.ub - dtype->super.lb;
            return MPI_BOTTOM != buf &&
                   coll_gpusym_one_is_host(dev, (const char *) buf + gpusym_displ_at(displs, i) * extent, dtype, count);
        }
    }
    return false;
}

/* Whether the buffer of `ranks` (COLL_GPUSYM_RANKS_) is this rank's too: all but the root's alone is. */
COLL_GPUSYM_INLINE bool coll_gpusym_has_buffer(const mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a,
                                               unsigned ranks)
{
    return COLL_GPUSYM_RANKS_ROOT != ranks || ompi_comm_rank(m->super.comm) == a->root;
}

/* A reduction: both buffers have one datatype, and a count of their own or this rank's of the array. */
COLL_GPUSYM_INLINE bool coll_gpusym_reduction_is_host(const mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a,
                                                      const gpusym_device_t *dev)
{
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[a->coll];
    const size_t count = COLL_GPUSYM_L_PART == f->written
                             ? gpusym_count_at(a->rcounts, (size_t) ompi_comm_rank(m->super.comm))
                             : a->rcount;
    return coll_gpusym_plain(a->rdtype, count) && (MPI_IN_PLACE == a->sbuf || coll_gpusym_is_host(dev, a->sbuf)) &&
           (!coll_gpusym_has_buffer(m, a, f->to) || coll_gpusym_is_host(dev, a->rbuf));
}

COLL_GPUSYM_INLINE bool coll_gpusym_send_is_host(const mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a,
                                                 const gpusym_device_t *dev)
{
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[a->coll];
    const bool rooted = COLL_GPUSYM_RANKS_ROOT == f->from;
    if (!coll_gpusym_has_buffer(m, a, f->from) || (!rooted && MPI_IN_PLACE == a->sbuf)) {
        return true;
    }
    return COLL_GPUSYM_L_BLOCKS_V == f->sent
               ? coll_gpusym_blocks_are_host(dev, a->sbuf, a->sdtype, a->scounts, a->sdispls,
                                             (size_t) ompi_comm_size(m->super.comm))
               : coll_gpusym_one_is_host(dev, a->sbuf, a->sdtype, a->scount);
}

/* In place, a root that sends receives nothing. */
COLL_GPUSYM_INLINE bool coll_gpusym_recv_is_host(const mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a,
                                                 const gpusym_device_t *dev)
{
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[a->coll];
    const bool rooted = COLL_GPUSYM_RANKS_ROOT == f->from;
    if (!coll_gpusym_has_buffer(m, a, f->to) || (rooted && MPI_IN_PLACE == a->rbuf)) {
        return true;
    }
    return COLL_GPUSYM_L_BLOCKS_V == f->written
               ? coll_gpusym_blocks_are_host(dev, a->rbuf, a->rdtype, a->rcounts, a->rdispls,
                                             (size_t) ompi_comm_size(m->super.comm))
               : coll_gpusym_one_is_host(dev, a->rbuf, a->rdtype, a->rcount);
}

/* Whether the call touches memory on this rank, and all of it is host memory. False also where that is not simple to
 * say. */
COLL_GPUSYM_INLINE bool coll_gpusym_all_host(const mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a,
                                             const gpusym_device_t *dev)
{
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[a->coll];
    if (f->reduces) {
        return coll_gpusym_reduction_is_host(m, a, dev);
    }
    if (COLL_GPUSYM_P_BARRIER == f->pattern) {
        return true;
    }
    if (COLL_GPUSYM_P_NEIGHBORS == f->pattern || COLL_GPUSYM_L_BLOCKS_W == f->sent) {
        return false;
    }
    if (COLL_GPUSYM_RANKS_OTHERS == f->to) { /* both buffers are one */
        return coll_gpusym_one_is_host(dev, a->rbuf, a->rdtype, a->rcount);
    }
    return coll_gpusym_send_is_host(m, a, dev) && coll_gpusym_recv_is_host(m, a, dev);
}

/* Whether the call depends on nothing but this rank's own buffers. */
COLL_GPUSYM_INLINE bool coll_gpusym_ready(const mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a,
                                          const gpusym_device_t *dev)
{
    if (COLL_GPUSYM_P_LOCAL == coll_gpusym_facts[a->coll].pattern) {
        return NULL != dev || __atomic_load_n(&gpusym_current.none, __ATOMIC_RELAXED);
    }
    return m->engine.host_only;
}

/* Whether the caller is to call the fallback at once. If so, the call is posted to the peers, and counted. */
COLL_GPUSYM_INLINE bool coll_gpusym_forwards(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a)
{
    if (!coll_gpusym_forwards_all(&m->super)) {
        const gpusym_device_t *dev = __atomic_load_n(&gpusym_current.dev, __ATOMIC_ACQUIRE);
        coll_gpusym_team_t *t = m->engine.team;
        /* A rank that has no device has host memory only. */
        if (!coll_gpusym_ready(m, a, dev) || (NULL != dev && !coll_gpusym_all_host(m, a, dev))) {
            return false;
        }
        if (NULL != t && !coll_gpusym_team_post_host(t, a->coll)) {
            return false;
        }
    }
    coll_gpusym_count(&coll_gpusym_counters[a->coll].forwarded);
    return true;
}

#endif
