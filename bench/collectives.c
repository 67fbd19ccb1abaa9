/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The list of collectives: see collectives.h.
 */
#include <mpi.h>
#include <string.h>

#include "bench/collectives.h"
#include "bench/content.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "bench/nccl.h"

static bool is_double;

struct bench_coll {
    const char *name, *gpusym_name;
    bool in_blocks, out_blocks; /* in, or out, is a block a rank */
    bool rooted;                /* only the root's in is read (in place), or only its out is written */
    bool in_place;
    double (*factor)(int n); /* bus bandwidth over bytes by time, n ranks */
    int (*mpi)(const void *in, void *out, int count, MPI_Datatype type);
    int (*nccl)(const void *in, void *out, size_t count, int type);
    double (*content)(size_t i, int r);         /* element i of rank r's in */
    double (*expected)(size_t i, size_t count); /* element i of our out */
};

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static int mpi_allreduce(const void *in, void *out, int count, MPI_Datatype type)
{
    return MPI_Allreduce(in, out, count, type, MPI_SUM, MPI_COMM_WORLD);
}

static int mpi_allgather(const void *in, void *out, int count, MPI_Datatype type)
{
    return MPI_Allgather(in, count, type, out, count, type, MPI_COMM_WORLD);
}

static int mpi_reduce_scatter(const void *in, void *out, int count, MPI_Datatype type)
{
    return MPI_Reduce_scatter_block(in, out, count, type, MPI_SUM, MPI_COMM_WORLD);
}

static int mpi_bcast(const void *in, void *out, int count, MPI_Datatype type)
{
    (void) in;
    return MPI_Bcast(out, count, type, BENCH_ROOT, MPI_COMM_WORLD);
}

static int mpi_reduce(const void *in, void *out, int count, MPI_Datatype type)
{
    return MPI_Reduce(in, out, count, type, MPI_SUM, BENCH_ROOT, MPI_COMM_WORLD);
}

static int mpi_alltoall(const void *in, void *out, int count, MPI_Datatype type)
{
    return MPI_Alltoall(in, count, type, out, count, type, MPI_COMM_WORLD);
}

static int nccl_allreduce(const void *in, void *out, size_t count, int type)
{
    return bench_nccl.ncclAllReduce(in, out, count, type, BENCH_NCCL_SUM, bench_nccl.comm, bench_cu.stream);
}

static int nccl_allgather(const void *in, void *out, size_t count, int type)
{
    return bench_nccl.ncclAllGather(in, out, count, type, bench_nccl.comm, bench_cu.stream);
}

static int nccl_reduce_scatter(const void *in, void *out, size_t count, int type)
{
    return bench_nccl.ncclReduceScatter(in, out, count, type, BENCH_NCCL_SUM, bench_nccl.comm, bench_cu.stream);
}

static int nccl_bcast(const void *in, void *out, size_t count, int type)
{
    (void) in;
    return bench_nccl.ncclBroadcast(out, out, count, type, BENCH_ROOT, bench_nccl.comm, bench_cu.stream);
}

static int nccl_reduce(const void *in, void *out, size_t count, int type)
{
    return bench_nccl.ncclReduce(in, out, count, type, BENCH_NCCL_SUM, BENCH_ROOT, bench_nccl.comm, bench_cu.stream);
}

/* What NCCL's users wrote before 2.28. */
static int nccl_sends_and_receives(const char *in, char *out, size_t count, int type)
{
    const size_t block = count * bench_element_bytes();
    int rc = bench_nccl.ncclGroupStart(), end;

    for (int r = 0; r < bench_ranks && 0 == rc; r++) {
        rc = bench_nccl.ncclSend(in + (size_t) r * block, count, type, r, bench_nccl.comm, bench_cu.stream);
        if (0 == rc) {
            rc = bench_nccl.ncclRecv(out + (size_t) r * block, count, type, r, bench_nccl.comm, bench_cu.stream);
        }
    }
    end = bench_nccl.ncclGroupEnd();
    return 0 == rc ? end : rc;
}

static int nccl_alltoall(const void *in, void *out, size_t count, int type)
{
    if (NULL != bench_nccl.ncclAlltoAll) {
        return bench_nccl.ncclAlltoAll(in, out, count, type, bench_nccl.comm, bench_cu.stream);
    }
    return nccl_sends_and_receives(in, out, count, type);
}

/* ---- bus bandwidth ----------------------------------------------------------------------------------------------- */

static double whole(int n)
{
    (void) n;
    return 1;
}

static double but_own(int n)
{
    return (double) (n - 1) / n;
}

static double twice_but_own(int n)
{
    return 2 * but_own(n);
}

/* ---- what results must be ---------------------------------------------------------------------------------------- */

static double expect_sum(size_t i, size_t count)
{
    (void) count;
    return bench_sum_of(i);
}

static double expect_sum_of_block(size_t i, size_t count)
{
    return bench_sum_of((size_t) bench_rank * count + i);
}

static double expect_gathered(size_t i, size_t count)
{
    return bench_value_of(i % count, (int) (i / count));
}

static double expect_root(size_t i, size_t count)
{
    (void) count;
    return bench_value_of(i, BENCH_ROOT);
}

static double expect_exchanged(size_t i, size_t count)
{
    return bench_value_of((size_t) bench_rank * count + i % count, (int) (i / count));
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static const bench_coll_t colls[] = {
    {"allreduce", "allreduce", false, false, false, false, twice_but_own, mpi_allreduce, nccl_allreduce, bench_term_of,
     expect_sum},
    {"allgather", "allgather", false, true, false, false, but_own, mpi_allgather, nccl_allgather, bench_value_of,
     expect_gathered},
    {"reduce_scatter", "reduce_scatter_block", true, false, false, false, but_own, mpi_reduce_scatter,
     nccl_reduce_scatter, bench_term_of, expect_sum_of_block},
    {"bcast", "bcast", false, false, true, true, whole, mpi_bcast, nccl_bcast, bench_value_of, expect_root},
    {"reduce", "reduce", false, false, true, false, whole, mpi_reduce, nccl_reduce, bench_term_of, expect_sum},
    {"alltoall", "alltoall", true, true, false, false, but_own, mpi_alltoall, nccl_alltoall, bench_value_of,
     expect_exchanged},
};

#define COLLS ((int) (sizeof(colls) / sizeof(colls[0])))

void bench_elements(bool are_double)
{
    is_double = are_double;
}

size_t bench_element_bytes(void)
{
    return is_double ? sizeof(double) : sizeof(float);
}

const bench_coll_t *bench_coll(int number)
{
    return number < COLLS ? &colls[number] : NULL;
}

const bench_coll_t *bench_coll_find(const char *name)
{
    for (int i = 0; i < COLLS; i++) {
        if (0 == strcmp(name, colls[i].name)) {
            return &colls[i];
        }
    }
    return NULL;
}

const char *bench_coll_name(const bench_coll_t *c)
{
    return c->name;
}

const char *bench_coll_gpusym_name(const bench_coll_t *c)
{
    return c->gpusym_name;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static size_t blocks(const bench_coll_t *c)
{
    return c->in_blocks || c->out_blocks ? (size_t) bench_ranks : 1;
}

size_t bench_coll_count(const bench_coll_t *c, size_t bytes)
{
    size_t block = bytes / blocks(c);

    block = block >= 16 ? block / 16 * 16 : block;
    return block < bench_element_bytes() ? 1 : block / bench_element_bytes();
}

size_t bench_coll_bytes(const bench_coll_t *c, size_t count)
{
    return count * bench_element_bytes() * blocks(c);
}

size_t bench_coll_in_bytes(const bench_coll_t *c, size_t count)
{
    return count * bench_element_bytes() * (c->in_blocks ? (size_t) bench_ranks : 1);
}

size_t bench_coll_out_bytes(const bench_coll_t *c, size_t count)
{
    return count * bench_element_bytes() * (c->out_blocks ? (size_t) bench_ranks : 1);
}

double bench_coll_bus_bandwidth(const bench_coll_t *c, size_t bytes, double us)
{
    return (double) bytes * c->factor(bench_ranks) / us / 1e3;
}

/* ---- the ways ---------------------------------------------------------------------------------------------------- */

void bench_coll_by_mpi(const bench_coll_t *c, const void *in, void *out, size_t count)
{
    c->mpi(in, out, (int) count, is_double ? MPI_DOUBLE : MPI_FLOAT);
}

void bench_coll_by_nccl(const bench_coll_t *c, const void *in, void *out, size_t count)
{
    bench_nccl_check(c->name, c->nccl(in, out, count, is_double ? BENCH_NCCL_FLOAT64 : BENCH_NCCL_FLOAT32));
    BENCH_CU(cuStreamSynchronize, bench_cu.stream);
}

/* Whether this rank's out is written by the call. */
static bool gets_a_result(const bench_coll_t *c)
{
    return !c->rooted || c->in_place == (BENCH_ROOT != bench_rank);
}

void bench_coll_by_host(const bench_coll_t *c, const void *in, void *out, size_t count, void *host_in, void *host_out)
{
    if (!c->in_place) {
        bench_to_host(host_in, in, bench_coll_in_bytes(c, count));
    } else if (BENCH_ROOT == bench_rank) {
        bench_to_host(host_out, out, bench_coll_out_bytes(c, count));
    }
    bench_coll_by_mpi(c, host_in, host_out, count);
    if (gets_a_result(c)) {
        bench_from_host(out, host_out, bench_coll_out_bytes(c, count));
    }
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

void bench_fill(const bench_coll_t *c, void *in, size_t count, unsigned seed)
{
    bench_content_seed(seed);
    bench_content_write(in, bench_coll_in_bytes(c, count) / bench_element_bytes(), is_double, c->content);
}

void bench_poison(const bench_coll_t *c, const void *in, void *out, size_t count)
{
    if (c->in_place && BENCH_ROOT == bench_rank) {
        bench_content_copy(out, in, bench_coll_out_bytes(c, count));
    } else {
        bench_content_poison(out, bench_coll_out_bytes(c, count));
    }
}

unsigned long long bench_wrong(const bench_coll_t *c, const void *out, size_t count)
{
    if (!c->in_place && !gets_a_result(c)) {
        return 0;
    }
    return bench_content_wrong(out, bench_coll_out_bytes(c, count) / bench_element_bytes(), is_double, c->expected,
                               count);
}
