/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The collectives and their calls: see collectives.h.
 */
#include <string.h>

#include "bench/collectives.h"
#include "bench/memory.h"
#include "bench/nccl.h"
#include "bench/ranks.h"
#include "kernels/kernels.h"
#include "test/mpi/mem.h"
#include "test/mpi/persistent.h"

struct bench_coll {
    enum coll_id id;
    const char *name;
    unsigned what; /* COLL_IS_* */
};

/* All of MPI's; and which of them are measured. */
static const bench_coll_t all[] = {
#define COLL(id, Name, name, what, ...) {COLL_##id, #name, what},
#define COLL_LOCAL COLL
#include "test/mpi/colls.def"
};
static const enum coll_id measured[] = {
#define GPUSYM_COLLECTIVE(id, ...) COLL_##id,
#include "kernels/kernels.def"
};

/* The others, at the end of that list, take a datatype for each rank, or a topology. */
#define COLLS ((int) GPUSYM_COLL_ALLTOALLW)

static int root;

void bench_set_root(int rank)
{
    root = rank;
}

int bench_root(void)
{
    return root;
}

const bench_coll_t *bench_coll(int number)
{
    return number < COLLS ? &all[measured[number]] : NULL;
}

const bench_coll_t *bench_coll_find(const char *name)
{
    for (int i = 0; i < COLLS; i++) {
        if (0 == strcmp(name, bench_coll(i)->name)) {
            return bench_coll(i);
        }
    }
    return NULL;
}

const char *bench_coll_name(const bench_coll_t *c)
{
    return c->name;
}

bool bench_coll_reduces(const bench_coll_t *c)
{
    return c->what & COLL_IS_REDUCTION;
}

bool bench_coll_has_root(const bench_coll_t *c)
{
    return c->what & (COLL_IS_FROM_ROOT | COLL_IS_TO_ROOT);
}

bool bench_coll_only_in_place(const bench_coll_t *c)
{
    return c->what & COLL_IS_ONE_BUFFER;
}

bool bench_coll_in_nccl(const bench_coll_t *c)
{
    return !(c->what & COLL_IS_PREFIX);
}

/* ---- who gives and gets what ---------------------------------------------------------------------------------------
 */

static bool has_input(const bench_coll_t *c, int rank)
{
    return !(c->what & COLL_IS_FROM_ROOT) || root == rank;
}

static bool has_output(const bench_coll_t *c, int rank)
{
    if (c->what & COLL_IS_EXCLUSIVE && 0 == rank) {
        return false;
    }
    return !(c->what & COLL_IS_TO_ROOT) || root == rank;
}

static size_t count_in_blocks(const bench_coll_t *c)
{
    return c->what & (COLL_IS_SEND_EACH | COLL_IS_SCATTERED) ? (size_t) bench_ranks : 1;
}

static size_t count_out_blocks(const bench_coll_t *c)
{
    return c->what & COLL_IS_RECV_EACH ? (size_t) bench_ranks : 1;
}

static size_t count_blocks(const bench_coll_t *c)
{
    return count_in_blocks(c) > count_out_blocks(c) ? count_in_blocks(c) : count_out_blocks(c);
}

size_t bench_coll_count(const bench_coll_t *c, size_t bytes)
{
    const size_t e = bench_type()->bytes;
    size_t block = bytes / count_blocks(c);

    block = block >= 16 ? block / 16 * 16 : block;
    return block < e ? 1 : block / e;
}

size_t bench_coll_bytes(const bench_coll_t *c, size_t count)
{
    return count * bench_type()->bytes * count_blocks(c);
}

size_t bench_coll_in_bytes(const bench_coll_t *c, size_t count)
{
    return count * bench_type()->bytes * count_in_blocks(c);
}

size_t bench_coll_out_bytes(const bench_coll_t *c, size_t count)
{
    return count * bench_type()->bytes * count_out_blocks(c);
}

double bench_coll_bus_bandwidth(const bench_coll_t *c, size_t bytes, double us)
{
    const double but_own = (double) (bench_ranks - 1) / bench_ranks;
    double factor = 1;

    if (count_blocks(c) > 1) {
        factor = but_own;
    } else if (COLL_ALLREDUCE == c->id) {
        factor = 2 * but_own;
    }
    return (double) bytes * factor / us / 1e3;
}

/* ---- MPI's calls ---------------------------------------------------------------------------------------------------
 */

/* Of MPI_IN_PLACE in place of the send buffer: where in out our contribution stands, in bytes. */
static size_t find_place(const bench_what_t *w)
{
    const unsigned what = w->coll->what;

    return what & COLL_IS_RECV_EACH && !(what & COLL_IS_SEND_EACH)
               ? (size_t) bench_rank * w->count * bench_type()->bytes
               : 0;
}

static bool sends_in_place(const bench_what_t *w)
{
    return w->in_place && !(w->coll->what & COLL_IS_FROM_ROOT) &&
           (!(w->coll->what & COLL_IS_TO_ROOT) || root == bench_rank);
}

static bool receives_in_place(const bench_what_t *w)
{
    return w->in_place && w->coll->what & COLL_IS_FROM_ROOT && !(w->coll->what & COLL_IS_ONE_BUFFER) &&
           root == bench_rank;
}

/* Equal counts, one block behind the other. Points into args. */
static void set_arguments(coll_args_t *args, const bench_what_t *w, bool in_place, const void *in, void *out)
{
    memset(args, 0, sizeof(*args));
    args->comm = MPI_COMM_WORLD;
    args->sbuf = in_place && sends_in_place(w) ? MPI_IN_PLACE : in;
    args->rbuf = in_place && receives_in_place(w) ? MPI_IN_PLACE : out;
    args->scount = args->rcount = (int) w->count;
    args->stype = args->rtype = bench_type()->mpi;
    args->op = bench_op()->mpi;
    args->root = root;
    for (int side = 0; side < 2; side++) {
        for (int r = 0; r < bench_ranks; r++) {
            args->array[side].counts[r] = (int) w->count;
            args->array[side].displs[r] = (int) ((size_t) r * w->count); /* of one block: not looked at, may not fit */
        }
    }
    args->scounts = args->array[0].counts;
    args->sdispls = args->array[0].displs;
    args->rcounts = args->array[1].counts;
    args->rdispls = args->array[1].displs;
}

static void blocking(enum coll_id id, const coll_args_t *a)
{
    switch (id) {
#define COLL(id, Name, name, what, ...) \
    case COLL_##id:                     \
        MPI_##Name(__VA_ARGS__);        \
        break;
#include "test/mpi/colls.def"
    default:
        bench_die("no such collective");
    }
}

static void start_request(enum coll_id id, const coll_args_t *a, MPI_Request *request)
{
    switch (id) {
#define COLL(id, Name, name, what, ...)    \
    case COLL_##id:                        \
        MPI_I##name(__VA_ARGS__, request); \
        break;
#include "test/mpi/colls.def"
    default:
        bench_die("no such collective");
    }
}

static void init_request(enum coll_id id, const coll_args_t *a, MPI_Request *request)
{
    switch (id) {
#define COLL(id, Name, name, what, ...)                             \
    case COLL_##id:                                                 \
        PERSISTENT_INIT(Name)(__VA_ARGS__, MPI_INFO_NULL, request); \
        break;
#include "test/mpi/colls.def"
    default:
        bench_die("no such collective");
    }
}

void bench_call_make(bench_call_t *c, const bench_what_t *what, void *in, void *out, void *host_in, void *host_out)
{
    c->what = *what;
    c->in = in;
    c->out = out;
    c->host_in = host_in;
    c->host_out = host_out;
    c->request = MPI_REQUEST_NULL;
    c->starting = 0;
    set_arguments(&c->args, what, true, in, out);
    set_arguments(&c->host_args, what, false, host_in, host_out);
    if (COLL_PERSISTENT == what->mode) {
        init_request(what->coll->id, &c->args, &c->request);
    }
}

void bench_call_drop(bench_call_t *c)
{
    if (COLL_PERSISTENT == c->what.mode) {
        MPI_Request_free(&c->request);
    }
}

void bench_call_by_mpi(bench_call_t *c)
{
    double begun;

    if (COLL_BLOCKING == c->what.mode) {
        blocking(c->what.coll->id, &c->args);
        return;
    }
    begun = MPI_Wtime();
    if (COLL_PERSISTENT == c->what.mode) {
        MPI_Start(&c->request);
    } else {
        start_request(c->what.coll->id, &c->args, &c->request);
    }
    c->starting += MPI_Wtime() - begun;
    MPI_Wait(&c->request, MPI_STATUS_IGNORE);
}

void bench_call_by_host(bench_call_t *c)
{
    const bench_coll_t *coll = c->what.coll;

    if (coll->what & COLL_IS_ONE_BUFFER) {
        if (has_input(coll, bench_rank)) {
            bench_to_host(c->host_out, c->out, bench_coll_out_bytes(coll, c->what.count));
        }
    } else if (has_input(coll, bench_rank)) {
        bench_to_host(c->host_in, c->in, bench_coll_in_bytes(coll, c->what.count));
    }
    blocking(coll->id, &c->host_args);
    if (has_output(coll, bench_rank) && !(coll->what & COLL_IS_ONE_BUFFER && has_input(coll, bench_rank))) {
        bench_from_host(c->out, c->host_out, bench_coll_out_bytes(coll, c->what.count));
    }
}

/* ---- NCCL's --------------------------------------------------------------------------------------------------------
 */

/* What NCCL's users write for what it has no call for, or had none before 2.28. */
static int call_by_messages(const bench_call_t *c)
{
    const bench_coll_t *coll = c->what.coll;
    const size_t n = c->what.count, block = n * bench_type()->bytes;
    const size_t to = coll->what & COLL_IS_SEND_EACH ? block : 0, from = coll->what & COLL_IS_RECV_EACH ? block : 0;
    const int type = bench_type()->nccl;
    int rc = bench_nccl.ncclGroupStart(), end;

    for (int r = 0; r < bench_ranks && 0 == rc; r++) {
        if (has_input(coll, bench_rank) && has_output(coll, r)) {
            rc = bench_nccl.ncclSend((char *) c->in + (size_t) r * to, n, type, r, bench_nccl.comm, bench_cu.stream);
        }
        if (0 == rc && has_output(coll, bench_rank) && has_input(coll, r)) {
            rc = bench_nccl.ncclRecv((char *) c->out + (size_t) r * from, n, type, r, bench_nccl.comm, bench_cu.stream);
        }
    }
    end = bench_nccl.ncclGroupEnd();
    return 0 == rc ? end : rc;
}

static int nccl_call(const bench_call_t *c)
{
    const size_t n = c->what.count;
    const int type = bench_type()->nccl, op = bench_op()->nccl;
    void *comm = bench_nccl.comm, *stream = bench_cu.stream;

    switch (c->what.coll->id) {
    case COLL_ALLREDUCE:
        return bench_nccl.ncclAllReduce(c->in, c->out, n, type, op, comm, stream);
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV:
        return bench_nccl.ncclAllGather(c->in, c->out, n, type, comm, stream);
    case COLL_REDUCE_SCATTER:
    case COLL_REDUCE_SCATTER_BLOCK:
        return bench_nccl.ncclReduceScatter(c->in, c->out, n, type, op, comm, stream);
    case COLL_BCAST:
        return bench_nccl.ncclBroadcast(c->out, c->out, n, type, root, comm, stream);
    case COLL_REDUCE:
        return bench_nccl.ncclReduce(c->in, c->out, n, type, op, root, comm, stream);
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:
        if (NULL != bench_nccl.ncclAlltoAll) {
            return bench_nccl.ncclAlltoAll(c->in, c->out, n, type, comm, stream);
        }
        return call_by_messages(c);
    default:
        return call_by_messages(c);
    }
}

void bench_call_by_nccl(bench_call_t *c)
{
    bench_nccl_check(c->what.coll->name, nccl_call(c));
    BENCH_CU(cuStreamSynchronize, bench_cu.stream);
}

/* ---- contents ------------------------------------------------------------------------------------------------------
 */

void bench_fill(const bench_coll_t *c, void *in, size_t count, unsigned seed)
{
    bench_content_seed(seed);
    bench_content_write(in, count * count_in_blocks(c), bench_coll_reduces(c) ? bench_term_of : bench_value_of);
}

void bench_prepare(bench_call_t *c)
{
    const bench_what_t *w = &c->what;
    const bool one = w->coll->what & COLL_IS_ONE_BUFFER && root == bench_rank;

    bench_content_poison(c->out, bench_coll_bytes(w->coll, w->count));
    if (one || sends_in_place(w)) {
        mem_write((char *) c->out + (one ? 0 : find_place(w)), c->in, bench_coll_in_bytes(w->coll, w->count));
    }
}

/* Element i of our output. */
static int64_t expect_element(size_t i, const void *arg)
{
    const bench_what_t *w = arg;
    const unsigned what = w->coll->what;
    const size_t in_block = i % w->count;
    const size_t element =
        what & (COLL_IS_SEND_EACH | COLL_IS_SCATTERED) ? (size_t) bench_rank * w->count + in_block : in_block;

    if (what & COLL_IS_REDUCTION) {
        return bench_reduced_of(element, 0,
                                !(what & COLL_IS_PREFIX)   ? bench_ranks
                                : what & COLL_IS_EXCLUSIVE ? bench_rank
                                                           : bench_rank + 1);
    }
    return bench_value_of(element, what & COLL_IS_RECV_EACH ? (int) (i / w->count) : root);
}

unsigned long long bench_wrong(const bench_call_t *c)
{
    const bench_what_t *w = &c->what;

    if (!has_output(w->coll, bench_rank) || receives_in_place(w)) {
        return 0;
    }
    return bench_content_wrong(c->out, w->count * count_out_blocks(w->coll), expect_element, w);
}
