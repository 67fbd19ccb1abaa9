/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages between two ranks: see exchange.h.
 */
#include <mpi.h>

#include "bench/content.h"
#include "bench/exchange.h"
#include "bench/memory.h"
#include "bench/nccl.h"
#include "bench/ranks.h"
#include "bench/timing.h"

#define TAG 2
#define WORD sizeof(uint32_t)    /* what is compared at once */
#define SMALL ((size_t) 1 << 20) /* bytes of an exchange, for the next two */
#define SMALL_REPEATS 32         /* exchanges of a call on the stream, before it waits */
#define LARGE_REPEATS 4

/* ---- by MPI ------------------------------------------------------------------------------------------------------ */

static int find_peer(const bench_exchange_t *e)
{
    return bench_rank == e->from ? e->to : e->from;
}

static void send_by_mpi(const bench_exchange_t *e)
{
    MPI_Send(e->out, (int) e->bytes, MPI_BYTE, find_peer(e), TAG, MPI_COMM_WORLD);
}

static void receive_by_mpi(const bench_exchange_t *e)
{
    MPI_Recv(e->in, (int) e->bytes, MPI_BYTE, find_peer(e), TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void pingpong_by_mpi(const bench_exchange_t *e)
{
    if (bench_rank == e->from) {
        send_by_mpi(e);
        receive_by_mpi(e);
    } else {
        receive_by_mpi(e);
        send_by_mpi(e);
    }
}

static void oneway_by_mpi(const bench_exchange_t *e)
{
    (bench_rank == e->from ? send_by_mpi : receive_by_mpi)(e);
}

static void window_by_mpi(const bench_exchange_t *e)
{
    MPI_Request requests[BENCH_WINDOW];

    for (size_t k = 0; k < BENCH_WINDOW; k++) {
        if (bench_rank == e->from) {
            MPI_Isend(e->out + k * e->bytes, (int) e->bytes, MPI_BYTE, e->to, TAG, MPI_COMM_WORLD, &requests[k]);
        } else {
            MPI_Irecv(e->in + k * e->bytes, (int) e->bytes, MPI_BYTE, e->from, TAG, MPI_COMM_WORLD, &requests[k]);
        }
    }
    MPI_Waitall(BENCH_WINDOW, requests, MPI_STATUSES_IGNORE);
}

static void both_by_mpi(const bench_exchange_t *e)
{
    MPI_Request requests[2];

    MPI_Irecv(e->in, (int) e->bytes, MPI_BYTE, find_peer(e), TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(e->out, (int) e->bytes, MPI_BYTE, find_peer(e), TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

/* ---- by NCCL ----------------------------------------------------------------------------------------------------- */

static void wait_for_stream(void)
{
    BENCH_CU(cuStreamSynchronize, bench_cu.stream);
}

/* What a program does before it touches the data of a message. */
static void settle(const bench_exchange_t *e)
{
    if (BENCH_BY_NCCL == e->by) {
        wait_for_stream();
    }
}

static void send_by_nccl(const bench_exchange_t *e, size_t k)
{
    bench_nccl_check("ncclSend", bench_nccl.ncclSend(e->out + k * e->bytes, e->bytes, BENCH_NCCL_UINT8, find_peer(e),
                                                     bench_nccl.comm, bench_cu.stream));
}

static void receive_by_nccl(const bench_exchange_t *e, size_t k)
{
    bench_nccl_check("ncclRecv", bench_nccl.ncclRecv(e->in + k * e->bytes, e->bytes, BENCH_NCCL_UINT8, find_peer(e),
                                                     bench_nccl.comm, bench_cu.stream));
}

static void pingpong_by_nccl(const bench_exchange_t *e)
{
    (bench_rank == e->from ? send_by_nccl : receive_by_nccl)(e, 0);
    settle(e);
    (bench_rank == e->from ? receive_by_nccl : send_by_nccl)(e, 0);
    settle(e);
}

static void oneway_by_nccl(const bench_exchange_t *e)
{
    (bench_rank == e->from ? send_by_nccl : receive_by_nccl)(e, 0);
    settle(e);
}

static void window_by_nccl(const bench_exchange_t *e)
{
    bench_nccl_check("ncclGroupStart", bench_nccl.ncclGroupStart());
    for (size_t k = 0; k < BENCH_WINDOW; k++) {
        (bench_rank == e->from ? send_by_nccl : receive_by_nccl)(e, k);
    }
    bench_nccl_check("ncclGroupEnd", bench_nccl.ncclGroupEnd());
    settle(e);
}

static void both_by_nccl(const bench_exchange_t *e)
{
    bench_nccl_check("ncclGroupStart", bench_nccl.ncclGroupStart());
    send_by_nccl(e, 0);
    receive_by_nccl(e, 0);
    bench_nccl_check("ncclGroupEnd", bench_nccl.ncclGroupEnd());
    settle(e);
}

/* ---- forms ------------------------------------------------------------------------------------------------------- */

static const struct {
    void (*by_mpi)(const bench_exchange_t *e), (*by_nccl)(const bench_exchange_t *e);
    int behind; /* messages one behind the other, for the time of one */
    int all;    /* messages of any direction, for the bandwidth */
    int window; /* messages that a rank has in its buffers */
    bool back;  /* `from` receives too */
} forms[BENCH_FORMS] = {
    [BENCH_PINGPONG] = {pingpong_by_mpi, pingpong_by_nccl, 2, 2, 1, true},
    [BENCH_ONEWAY] = {oneway_by_mpi, oneway_by_nccl, 1, 1, 1, false},
    [BENCH_WINDOW_OF] = {window_by_mpi, window_by_nccl, BENCH_WINDOW, BENCH_WINDOW, BENCH_WINDOW, false},
    [BENCH_BOTH] = {both_by_mpi, both_by_nccl, 1, 2, 1, true},
};

size_t bench_exchange_size(bench_form_t form, size_t bytes)
{
    return (size_t) forms[form].window * bytes;
}

static bool takes_part(const bench_exchange_t *e)
{
    return bench_rank == e->from || bench_rank == e->to;
}

static bool receives(const bench_exchange_t *e)
{
    return bench_rank == e->to || (bench_rank == e->from && forms[e->form].back);
}

/* Exchanges of one call. */
static int find_repeats(const bench_exchange_t *e)
{
    return BENCH_BY_STREAM != e->by                         ? 1
           : bench_exchange_size(e->form, e->bytes) > SMALL ? LARGE_REPEATS
                                                            : SMALL_REPEATS;
}

static void run_call(void *arg)
{
    const bench_exchange_t *e = arg;
    const int repeats = find_repeats(e);

    if (!takes_part(e)) {
        return;
    }
    for (int i = 0; i < repeats; i++) {
        (BENCH_BY_MPI == e->by ? forms[e->form].by_mpi : forms[e->form].by_nccl)(e);
    }
    if (BENCH_BY_STREAM == e->by) {
        wait_for_stream();
    }
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

void bench_exchange_fill(char *out, size_t size)
{
    bench_set_type("uint32");
    bench_content_write(out, size / WORD, bench_value_of);
}

static void poison_input(void *arg)
{
    const bench_exchange_t *e = arg;

    if (receives(e)) {
        bench_content_poison(e->in, bench_exchange_size(e->form, e->bytes));
    }
}

static int64_t get_expected(size_t i, const void *arg)
{
    return bench_value_of(i, find_peer(arg));
}

/* Bytes of the wrong words that this rank has received. */
static unsigned long long count_wrong(const bench_exchange_t *e)
{
    const size_t words = bench_exchange_size(e->form, e->bytes) / WORD;

    return receives(e) ? WORD * bench_content_wrong(e->in, words, get_expected, e) : 0;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static bool can_measure(const bench_exchange_t *e)
{
    return BENCH_BY_MPI == e->by || bench_nccl.there;
}

/* wrong: of this rank. */
static bench_speed_t make_speed(const bench_exchange_t *e, double us, unsigned long long wrong)
{
    const double one = us / find_repeats(e);

    return (bench_speed_t){.us = one / forms[e->form].behind,
                           .gbs = (double) e->bytes * forms[e->form].all / one / 1e3,
                           .wrong = (unsigned long long) bench_sum((double) wrong)};
}

/* One call; adds the wrong bytes of this rank. Returns the seconds of the slower rank. */
static double run_checked(bench_exchange_t *e, unsigned long long *wrong)
{
    double seconds;

    poison_input(e);
    MPI_Barrier(bench_world);
    seconds = MPI_Wtime();
    run_call(e);
    seconds = bench_max(MPI_Wtime() - seconds);
    *wrong += count_wrong(e);
    return seconds;
}

bench_speed_t bench_exchange_once(bench_exchange_t *e)
{
    unsigned long long wrong = 0;
    double seconds;

    if (!can_measure(e)) {
        return (bench_speed_t){-1, -1, 0};
    }
    seconds = run_checked(e, &wrong);
    return make_speed(e, seconds * 1e6, wrong);
}

bench_speed_t bench_exchange_measure(bench_exchange_t *e, int batches)
{
    unsigned long long wrong = 0;
    bench_time_t time;

    if (!can_measure(e)) {
        return (bench_speed_t){-1, -1, 0};
    }
    run_checked(e, &wrong);
    time = bench_time(&(bench_timed_t){run_call, poison_input, e, NULL}, batches);
    wrong += count_wrong(e);
    return make_speed(e, time.us, wrong);
}

void bench_exchange_warm_up(bench_exchange_t *e)
{
    if (can_measure(e)) {
        bench_warm_up(&(bench_timed_t){.call = run_call, .arg = e});
    }
}

void bench_exchange_repeat(bench_exchange_t *e, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        run_call(e);
    }
}
