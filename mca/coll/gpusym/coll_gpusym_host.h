/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The short way of a blocking or nonblocking call whose buffers are host memory: what coll_gpusym_blocking() and
 * coll_gpusym_nonblocking() would come to, of which nothing is left but a question to the device a buffer, one store for
 * the peers, a counter and the call of the fallback. Everything is inline: with the collective a constant, little
 * remains. test/hostpath.sh counts the instructions.
 *
 * It takes only what is simple, and leaves the rest, untouched, to those two. What is asked of the device is an address
 * that the call reads or writes. A rank that lately had GPU memory is not asked, so that its calls are not asked twice.
 */
#ifndef MCA_COLL_GPUSYM_HOST_H
#define MCA_COLL_GPUSYM_HOST_H

#include "mca/coll/gpusym/coll_gpusym.h"
#include "mca/coll/gpusym/conf/counters.h"
#include "mca/common/gpusym/gpusym.h"
#include "ompi/communicator/communicator.h"

#define COLL_GPUSYM_INLINE static inline __attribute__((always_inline))

/* Whether elements of the type begin at the buffer's address, and there are some. */
COLL_GPUSYM_INLINE bool coll_gpusym_plain(const struct ompi_datatype_t *dtype, size_t count)
{
    return 0 != count && 0 != dtype->super.size && 0 == dtype->super.true_lb;
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

/* The same of n blocks: of the first that is not empty. */
COLL_GPUSYM_INLINE bool coll_gpusym_blocks_are_host(const gpusym_device_t *dev, const void *buf,
                                                    const struct ompi_datatype_t *dtype, gpusym_counts_t counts,
                                                    gpusym_displs_t displs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t count = gpusym_count_at(counts, i);
        if (0 != count) {
            const ptrdiff_t extent = dtype->super.ub - dtype->super.lb;
            return MPI_BOTTOM != buf &&
                   coll_gpusym_one_is_host(dev, (const char *)buf + gpusym_displ_at(displs, i) * extent, dtype, count);
        }
    }
    return false;
}

/* Of what one block is sent of: in place there is nothing. */
COLL_GPUSYM_INLINE bool coll_gpusym_sent_is_host(const gpusym_device_t *dev, const coll_gpusym_args_t *a)
{
    return MPI_IN_PLACE == a->sbuf || coll_gpusym_one_is_host(dev, a->sbuf, a->sdtype, a->scount);
}

/* Whether all that the call touches on this rank is host memory, and that is something. False: it is not, or that is not
 * so simple to say. */
COLL_GPUSYM_INLINE bool coll_gpusym_all_host(const mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a,
                                             const gpusym_device_t *dev)
{
    switch (a->coll) {
    case COLL_GPUSYM_ALLREDUCE:
    case COLL_GPUSYM_SCAN:
    case COLL_GPUSYM_EXSCAN:
    case COLL_GPUSYM_REDUCE_SCATTER_BLOCK:
    case COLL_GPUSYM_REDUCE_LOCAL:
        return coll_gpusym_plain(a->rdtype, a->rcount) &&
               (MPI_IN_PLACE == a->sbuf || coll_gpusym_is_host(dev, a->sbuf)) && coll_gpusym_is_host(dev, a->rbuf);
    case COLL_GPUSYM_REDUCE:
        return coll_gpusym_plain(a->rdtype, a->rcount) &&
               (MPI_IN_PLACE == a->sbuf || coll_gpusym_is_host(dev, a->sbuf)) &&
               (ompi_comm_rank(m->super.comm) != a->root || coll_gpusym_is_host(dev, a->rbuf));
    case COLL_GPUSYM_REDUCE_SCATTER:
        return coll_gpusym_plain(a->rdtype, gpusym_count_at(a->rcounts, (size_t)ompi_comm_rank(m->super.comm))) &&
               (MPI_IN_PLACE == a->sbuf || coll_gpusym_is_host(dev, a->sbuf)) && coll_gpusym_is_host(dev, a->rbuf);
    case COLL_GPUSYM_BCAST:
        return coll_gpusym_one_is_host(dev, a->rbuf, a->rdtype, a->rcount);
    case COLL_GPUSYM_ALLGATHER:
    case COLL_GPUSYM_ALLTOALL:
        return coll_gpusym_sent_is_host(dev, a) && coll_gpusym_one_is_host(dev, a->rbuf, a->rdtype, a->rcount);
    case COLL_GPUSYM_GATHER:
        return coll_gpusym_sent_is_host(dev, a) &&
               (ompi_comm_rank(m->super.comm) != a->root || coll_gpusym_one_is_host(dev, a->rbuf, a->rdtype, a->rcount));
    case COLL_GPUSYM_SCATTER:
        return (MPI_IN_PLACE == a->rbuf || coll_gpusym_one_is_host(dev, a->rbuf, a->rdtype, a->rcount)) &&
               (ompi_comm_rank(m->super.comm) != a->root || coll_gpusym_one_is_host(dev, a->sbuf, a->sdtype, a->scount));
    case COLL_GPUSYM_GATHERV:
        return coll_gpusym_sent_is_host(dev, a) &&
               (ompi_comm_rank(m->super.comm) != a->root ||
                coll_gpusym_blocks_are_host(dev, a->rbuf, a->rdtype, a->rcounts, a->rdispls,
                                            (size_t)ompi_comm_size(m->super.comm)));
    case COLL_GPUSYM_SCATTERV:
        return (MPI_IN_PLACE == a->rbuf || coll_gpusym_one_is_host(dev, a->rbuf, a->rdtype, a->rcount)) &&
               (ompi_comm_rank(m->super.comm) != a->root ||
                coll_gpusym_blocks_are_host(dev, a->sbuf, a->sdtype, a->scounts, a->sdispls,
                                            (size_t)ompi_comm_size(m->super.comm)));
    case COLL_GPUSYM_ALLGATHERV:
        return coll_gpusym_sent_is_host(dev, a) &&
               coll_gpusym_blocks_are_host(dev, a->rbuf, a->rdtype, a->rcounts, a->rdispls,
                                           (size_t)ompi_comm_size(m->super.comm));
    case COLL_GPUSYM_ALLTOALLV:
        return (MPI_IN_PLACE == a->sbuf ||
                coll_gpusym_blocks_are_host(dev, a->sbuf, a->sdtype, a->scounts, a->sdispls,
                                            (size_t)ompi_comm_size(m->super.comm))) &&
               coll_gpusym_blocks_are_host(dev, a->rbuf, a->rdtype, a->rcounts, a->rdispls,
                                           (size_t)ompi_comm_size(m->super.comm));
    case COLL_GPUSYM_BARRIER:
        return true;
    default:
        return false;
    }
}

/* Whether it may, and depends on nothing but this rank's own buffers: the team has been met, nothing has
 * failed, and no other call of the communicator is in flight. */
COLL_GPUSYM_INLINE bool coll_gpusym_ready(const mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a,
                                          const gpusym_device_t *dev)
{
    const coll_gpusym_team_t *t = m->engine.team;
    if (COLL_GPUSYM_REDUCE_LOCAL == a->coll) {
        return NULL != dev || __atomic_load_n(&gpusym_current.none, __ATOMIC_RELAXED);
    }
    if (!m->engine.host_lately || NULL == t) {
        return m->engine.host_lately && m->engine.apart && NULL != dev;
    }
    /* The list first: whichever thread ended its last call wrote `open` before. */
    return NULL == __atomic_load_n(&m->engine.first, __ATOMIC_ACQUIRE) && t->open;
}

/* Whether the fallback is to be called at once. Then the peers know, and the call is counted. */
COLL_GPUSYM_INLINE bool coll_gpusym_forwards(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a)
{
    const gpusym_device_t *dev = __atomic_load_n(&gpusym_current.dev, __ATOMIC_ACQUIRE);
    const bool native = (unsigned)a->coll < COLL_GPUSYM_NATIVES;
    if (!coll_gpusym_forwards_all(&m->super)) {
        coll_gpusym_team_t *t = m->engine.team;
        /* A rank that has no device has host memory only. */
        if (!coll_gpusym_ready(m, a, dev) || (NULL != dev && !coll_gpusym_all_host(m, a, dev))) {
            return false;
        }
        /* Where every call is staged, for a reason agreed on, nothing is posted. */
        if (native && NULL != t && t->reason < 0 && !gpusym_rollcall_post_host(&t->host.rc, (uint8_t)a->coll)) {
            return false;
        }
    }
    coll_gpusym_count(&coll_gpusym_counters[a->coll].forwarded);
    return true;
}

#endif
