/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: what one process takes of a GPU's memory, by default and at most, over every algorithm of collectives
 * of each kind, short and long messages on one communicator; then with many, whose heap has --slabs slabs.  It is
 * counted by the simulator; on GPUs the measuring programs ask the driver.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/device/sim/sim.h"
#include "test/mpi/check.h"
#include "test/mpi/mpit.h"

#define USAGE "[--slabs N]"
#define MIB (1024.0 * 1024.0)
/* All of gpusym on a GPU; and room in it for the kernels' code, which the simulator does not load. */
#define LIMIT (64 * MIB)
#define CODE (8 * MIB)
#define SLAB (56 * MIB)
#define LONGEST ((size_t) 8 << 20)
#define COMMS 50

typedef struct {
    int rank, n;
    float *in, *out; /* device memory, LONGEST bytes */
} foot_t;

/* A call of a message of `bytes` in all, the same on all ranks. False: not one of those tried here. */
static bool call(const foot_t *f, enum gpusym_collective coll, MPI_Comm comm, size_t bytes)
{
    const int all = (int) (bytes / sizeof(float)), each = all / f->n;

    switch (coll) {
    case GPUSYM_COLL_ALLREDUCE:
        MPI_Allreduce(f->in, f->out, all, MPI_FLOAT, MPI_SUM, comm);
        return true;
    case GPUSYM_COLL_ALLGATHER:
        MPI_Allgather(f->in, each, MPI_FLOAT, f->out, each, MPI_FLOAT, comm);
        return true;
    case GPUSYM_COLL_REDUCE_SCATTER_BLOCK:
        MPI_Reduce_scatter_block(f->in, f->out, each, MPI_FLOAT, MPI_SUM, comm);
        return true;
    case GPUSYM_COLL_BCAST:
        MPI_Bcast(f->in, all, MPI_FLOAT, 0, comm);
        return true;
    case GPUSYM_COLL_REDUCE:
        MPI_Reduce(f->in, f->out, all, MPI_FLOAT, MPI_SUM, 0, comm);
        return true;
    case GPUSYM_COLL_ALLTOALL:
        MPI_Alltoall(f->in, each, MPI_FLOAT, f->out, each, MPI_FLOAT, comm);
        return true;
    case GPUSYM_COLL_SCAN:
        MPI_Scan(f->in, f->out, each, MPI_FLOAT, MPI_SUM, comm);
        return true;
    default: /* the same kernels */
        return false;
    }
}

/* As the component's variables call it. */
static const char *name_of(enum gpusym_collective coll)
{
    static const char *const names[] = {[GPUSYM_COLL_ALLREDUCE] = "allreduce",
                                        [GPUSYM_COLL_ALLGATHER] = "allgather",
                                        [GPUSYM_COLL_REDUCE_SCATTER_BLOCK] = "reduce_scatter_block",
                                        [GPUSYM_COLL_BCAST] = "bcast",
                                        [GPUSYM_COLL_REDUCE] = "reduce",
                                        [GPUSYM_COLL_ALLTOALL] = "alltoall",
                                        [GPUSYM_COLL_SCAN] = "scan"};

    return names[coll];
}

static void use_all(const foot_t *f, MPI_Comm comm)
{
    for (size_t a = 0; a < GPUSYM_ALG_COUNT; a++) {
        if (!call(f, mpit_algorithms[a].coll, comm, 1024)) {
            continue;
        }
        mpit_algorithm(name_of(mpit_algorithms[a].coll), mpit_algorithms[a].name);
        for (size_t bytes = 1024; bytes <= LONGEST; bytes *= 8) {
            call(f, mpit_algorithms[a].coll, comm, bytes);
        }
        mpit_algorithm(name_of(mpit_algorithms[a].coll), "auto");
    }
}

/* Many communicators at once: all have slots of the heap, or are staged. */
static void use_many(const foot_t *f)
{
    MPI_Comm comms[COMMS];

    for (int i = 0; i < COMMS; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        call(f, GPUSYM_COLL_ALLREDUCE, comms[i], (size_t) 1024 << i % 8);
    }
    for (int i = 0; i < COMMS; i++) {
        MPI_Comm_free(&comms[i]);
    }
}

int main(int argc, char **argv)
{
    foot_t f;
    check_t t;
    uint64_t before, one, all;
    double slabs;
    long failed;

    check_init(&argc, &argv, "footprint", MPI_THREAD_SINGLE);
    slabs = (double) check_number("--slabs", 4);
    check_arguments_end(USAGE);
    if (NULL == gpusym_device() || !gpusym_device()->simulated) {
        printf("only the simulator counts\n");
        MPI_Finalize();
        return CHECK_SKIPPED;
    }
    check_start(&t, "footprint", MPI_COMM_WORLD);
    f.rank = t.rank;
    f.n = t.nranks;
    f.in = mem_alloc(MEM_DEVICE, LONGEST);
    f.out = mem_alloc(MEM_DEVICE, LONGEST);
    if (NULL == f.in || NULL == f.out) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    gpusym_sim_bytes(&before, &one);
    check_result(&t, before == one && before >= 2 * LONGEST); /* nothing that went again would hide what is to come */
    const unsigned long long rings = mpit_count("allreduce", "native_ring_simple");
    const unsigned long long others = mpit_count("allreduce", "native_rsxld_agxst");
    use_all(&f, MPI_COMM_WORLD);
    gpusym_sim_bytes(NULL, &one);
    use_many(&f);
    gpusym_sim_bytes(NULL, &all);
    check_result(&t, mpit_count("allreduce", "native_ring_simple") > rings); /* the heap was used */
    check_result(&t, mpit_count("allreduce", "native_rsxld_agxst") > others);
    check_result(&t, (double) (one - before) + CODE <= LIMIT);
    check_result(&t, (double) (all - before) + CODE <= LIMIT + (slabs - 1) * SLAB);
    printf("footprint: rank %d: %.1f MiB of GPU memory, with many communicators %.1f, and up to %.0f MiB of kernels\n",
           f.rank, (double) (one - before) / MIB, (double) (all - before) / MIB, CODE / MIB);
    mem_free(MEM_DEVICE, f.in);
    mem_free(MEM_DEVICE, f.out);
    failed = check_end(&t);
    check_print("footprint", t.passed, t.failed);
    return check_fini(failed);
}
