/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test and measurement: datatypes of GPU memory, of the shapes that programs have. One rank packs and unpacks
 * them; two or more exchange them. Every byte is compared with what Open MPI does on host memory. The table is of use
 * on a GPU; --mib makes the messages long enough.
 *
 *     packing: CASE | pack us, ratio | unpack us, ratio | first call us | copies
 *
 * ratio: the rate in terms of a kernel's that copies as many bytes from run to run. first call: with reading the
 * datatype and copying its nodes to the GPU. copies: us by 2-D copies, or "-" where it takes more than a few.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mca/common/gpusym/exec/pack.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/ompi/layout.h"
#include "test/mpi/check.h"

#define USAGE "[--mib MIB] [--repeat N]"
#define PLANES 128
#define LINE 128 /* sticks side by side in a plane */
#define STRUCTS_MAX 500000

static const gpusym_device_t *dev;
static gpusym_gpu_t *gpu;
static gpusym_stream_t *stream;
static size_t bytes; /* of a message */
static int repeat;

static void *need(void *p)
{
    if (NULL == p) {
        fprintf(stderr, "packing: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
        exit(99);
    }
    return p;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec * 1e6 + (double) t.tv_nsec * 1e-3;
}

/* ---- datatypes of `bytes` bytes ---- */

static MPI_Datatype element(size_t size)
{
    MPI_Datatype made;
    MPI_Type_contiguous((int) (size / 4), MPI_FLOAT, &made);
    return made;
}

static MPI_Datatype freed(MPI_Datatype old, MPI_Datatype made)
{
    MPI_Type_free(&old);
    return made;
}

static MPI_Datatype rows(size_t width, size_t pitch)
{
    MPI_Datatype made;
    MPI_Type_create_hvector((int) (bytes / width), (int) (width / 4), (MPI_Aint) pitch, MPI_FLOAT, &made);
    return made;
}

/* Rows of half a line, in planes of which the last line is left out: no rows of one pitch. */
static MPI_Datatype planes(size_t width)
{
    const int lines = (int) (bytes / width / PLANES);
    MPI_Datatype made, one = element(4);
    MPI_Type_create_subarray(3, (int[]){PLANES, lines + 1, (int) (width / 2)},
                             (int[]){PLANES, lines, (int) (width / 4)}, (int[]){0, 0, (int) (width / 8)}, MPI_ORDER_C,
                             one, &made);
    return freed(one, made);
}

enum order { RISING, SHUFFLED };

/* Sticks of one element in each plane; `side` of them side by side, then `gap` elements that are left out. */
static MPI_Datatype sticks(size_t size, int side, int gap, enum order order)
{
    const int n = (int) (bytes / size / PLANES);
    const size_t plane = size * ((size_t) n / (size_t) side * (size_t) (side + gap));
    MPI_Datatype made, stick, one = element(size);
    MPI_Aint *at = need(malloc((size_t) n * sizeof *at));
    int *ones = need(malloc((size_t) n * sizeof *ones));
    for (int i = 0; i < n; i++) {
        ones[i] = 1;
        at[i] = (MPI_Aint) size * (i / side * (side + gap) + i % side);
    }
    for (int i = n - 1; SHUFFLED == order && i > 0; i--) {
        const int j = (int) (ref_mix((uint64_t) i) % (uint64_t) (i + 1));
        const MPI_Aint swap = at[i];
        at[i] = at[j];
        at[j] = swap;
    }
    MPI_Type_create_hvector(PLANES, 1, (MPI_Aint) plane, one, &stick);
    MPI_Type_create_hindexed(n, ones, at, stick, &made);
    free(at);
    free(ones);
    MPI_Type_free(&stick);
    return freed(one, made);
}

/* The transposition of a square matrix: as many columns, each an element further. */
static MPI_Datatype columns(size_t size)
{
    int n = 1;
    while ((size_t) (2 * n) * (size_t) (2 * n) * size <= bytes) {
        n *= 2;
    }
    MPI_Datatype column, resized, made, one = element(size);
    MPI_Type_create_hvector(n, 1, (MPI_Aint) ((size_t) n * size), one, &column);
    MPI_Type_create_resized(column, 0, (MPI_Aint) size, &resized);
    MPI_Type_contiguous(n, resized, &made);
    MPI_Type_free(&column);
    MPI_Type_free(&resized);
    return freed(one, made);
}

/* A struct with gaps, many times, but with less than GPUSYM_NODES_MAX nodes. */
static MPI_Datatype structs(void)
{
    MPI_Datatype made, larger, many;
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 12}, (MPI_Datatype[]){MPI_DOUBLE, MPI_INT}, &made);
    MPI_Type_create_resized(made, 0, 24, &larger);
    MPI_Type_contiguous((int) (bytes / 12 < STRUCTS_MAX ? bytes / 12 : STRUCTS_MAX), larger, &many);
    MPI_Type_free(&made);
    return freed(larger, many);
}

static const char *const names[] = {"rows of 2 KiB",
                                    "rows of 64 bytes",
                                    "planes of rows of 2 KiB",
                                    "planes of rows of 64 bytes",
                                    "sticks of 16 bytes",
                                    "sticks of 16 bytes, shuffled",
                                    "sticks of 16 bytes, 8 side by side",
                                    "8 side by side, shuffled",
                                    "sticks of 16 bytes, alone",
                                    "sticks of 8 bytes",
                                    "columns of 8 bytes",
                                    "structs of 8 + 4 bytes"};

enum { CASES = sizeof names / sizeof *names, ROWS_2K = 0, STICKS = 4 };

static MPI_Datatype make(int i)
{
    MPI_Datatype made;
    switch (i) {
    case 0:
        made = rows(2048, 4096);
        break;
    case 1:
        made = rows(64, 128);
        break;
    case 2:
        made = planes(2048);
        break;
    case 3:
        made = planes(64);
        break;
    case 4:
    case 5:
        made = sticks(16, LINE, LINE, 4 == i ? RISING : SHUFFLED);
        break;
    case 6:
    case 7:
        made = sticks(16, 8, 8, 6 == i ? RISING : SHUFFLED);
        break;
    case 8:
        made = sticks(16, 1, 3, SHUFFLED);
        break;
    case 9:
        made = sticks(8, LINE, LINE, RISING);
        break;
    case 10:
        made = columns(8);
        break;
    default:
        made = structs();
        break;
    }
    MPI_Type_commit(&made);
    return made;
}

/* ---- one rank: packing ---- */

/* Memory of the elements and packed memory, on the GPU and what is right on the host. */
typedef struct {
    MPI_Datatype type;
    gpusym_layout_t layout;
    size_t span;
    char *user, *packed; /* of the GPU */
    unsigned char *users, *packs, *got;
} case_t;

static void fill(void *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i += sizeof seed) {
        const uint64_t word = ref_mix(seed + i);
        memcpy((char *) p + i, &word, n - i < sizeof word ? n - i : sizeof word);
    }
}

static void case_start(case_t *c, int i)
{
    c->type = make(i);
    gpusym_layout_find(1, c->type, &c->layout);
    c->span = c->layout.span;
    c->user = need(mem_alloc(MEM_DEVICE, c->span));
    c->packed = need(mem_alloc(MEM_DEVICE, c->layout.bytes));
    c->users = need(malloc(c->span));
    c->packs = need(malloc(c->layout.bytes));
    c->got = need(malloc(c->span));
    fill(c->users, c->span, 1);
    mem_write(c->user, c->users, c->span);
}

static void case_end(case_t *c)
{
    mem_free(MEM_DEVICE, c->user);
    mem_free(MEM_DEVICE, c->packed);
    free(c->users);
    free(c->packs);
    free(c->got);
    MPI_Type_free(&c->type);
}

static int drain(void)
{
    int idle;
    do {
        idle = dev->stream_poll(stream);
    } while (0 == idle);
    return idle < 0 ? idle : GPUSYM_SUCCESS;
}

static int queue(const case_t *c, bool unpack)
{
    const gpusym_layout_t *l = &c->layout;
    char *user = c->user - l->lo;
    return unpack ? gpusym_layout_unpack_async(dev, gpu, stream, l, user, c->packed, l->bytes)
                  : gpusym_layout_pack_async(dev, gpu, stream, l, c->packed, user, l->bytes);
}

/* Microseconds of one of `repeat` in a row; negative: an error. */
static double time_of(int (*one)(const case_t *c, bool unpack), const case_t *c, bool unpack)
{
    int rc = one(c, unpack);
    rc = GPUSYM_SUCCESS == rc ? drain() : rc;
    const double start = now_us();
    for (int i = 0; GPUSYM_SUCCESS == rc && i < repeat; i++) {
        rc = one(c, unpack);
    }
    rc = GPUSYM_SUCCESS == rc ? drain() : rc;
    return GPUSYM_SUCCESS == rc ? (now_us() - start) / repeat : -1;
}

static int queue_copy(const case_t *c, bool unpack)
{
    const gpusym_pack_call_t call = {
        .rows = {.stride = 65536, .count = (uint32_t) (c->layout.bytes / 65536), .bytes = 65536},
        .to = c->layout.bytes / 65536 * 65536,
        .user = c->user,
        .packed = c->packed};
    (void) unpack;
    return gpusym_pack_queue(dev, gpu, stream, NULL, &call);
}

static int queue_copy2d(const case_t *c, bool unpack)
{
    const gpusym_layout_t *l = &c->layout;
    return unpack ? dev->copy2d_async(stream, c->user, l->pitch, c->packed, l->width, l->width, l->rows)
                  : dev->copy2d_async(stream, c->packed, l->width, c->user, l->pitch, l->width, l->rows);
}

static bool packs_right(case_t *c)
{
    int at = 0;
    MPI_Pack(c->users - c->layout.lo, 1, c->type, c->packs, (int) c->layout.bytes, &at, MPI_COMM_SELF);
    mem_read(c->got, c->packed, c->layout.bytes);
    return 0 == memcmp(c->got, c->packs, c->layout.bytes);
}

static bool unpacks_right(case_t *c)
{
    int at = 0;
    fill(c->packs, c->layout.bytes, 99);
    mem_write(c->packed, c->packs, c->layout.bytes);
    const double us = time_of(queue, c, true);
    MPI_Unpack(c->packs, (int) c->layout.bytes, &at, c->users - c->layout.lo, 1, c->type, MPI_COMM_SELF);
    mem_read(c->got, c->user, c->span);
    return us >= 0 && 0 == memcmp(c->got, c->users, c->span);
}

static bool pack_right(int i)
{
    case_t c;
    char copies[2][32] = {"-", "-"};
    case_start(&c, i);
    const double first = now_us();
    const bool by_gpu = gpusym_layout_by_gpu(dev, gpu, &c.layout, c.user - c.layout.lo);
    const double ready = now_us() - first, copy = time_of(queue_copy, &c, false);
    if (GPUSYM_LAYOUT_ROWS == c.layout.kind) {
        for (int unpack = 0; unpack < 2; unpack++) {
            snprintf(copies[unpack], sizeof copies[unpack], "%.1f", time_of(queue_copy2d, &c, unpack));
        }
    }
    const double pack = time_of(queue, &c, false);
    bool right = by_gpu && copy >= 0 && pack >= 0 && packs_right(&c);
    right = unpacks_right(&c) && right;
    const double unpack = time_of(queue, &c, true);
    printf("packing: %-35s | pack %8.1f us %.2f | unpack %8.1f us %.2f | ready in %6.0f us | copies %s, %s | %s\n",
           names[i], pack, copy / pack, unpack, copy / unpack, ready, copies[0], copies[1], right ? "right" : "WRONG");
    case_end(&c);
    return right;
}

/* ---- several ranks: exchanges ---- */

/* Each rank sends one type and receives another one, from host memory and from GPU memory. */
typedef struct {
    MPI_Datatype sent, taken;
    size_t out_span, in_span;
    char *out, *in, *host_out, *host_in, *got;
    int rank, n;
} exchange_t;

static void exchange_start(exchange_t *x, int sent, int taken)
{
    gpusym_layout_t l;
    MPI_Comm_rank(MPI_COMM_WORLD, &x->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &x->n);
    x->sent = make(sent);
    x->taken = make(taken);
    gpusym_layout_find((size_t) x->n, x->sent, &l);
    x->out_span = (size_t) l.lo + l.span;
    gpusym_layout_find((size_t) x->n, x->taken, &l);
    x->in_span = (size_t) l.lo + l.span;
    x->out = need(mem_alloc(MEM_DEVICE, x->out_span));
    x->in = need(mem_alloc(MEM_DEVICE, x->in_span));
    x->host_out = need(malloc(x->out_span));
    x->host_in = need(malloc(x->in_span));
    x->got = need(malloc(x->in_span));
    fill(x->host_out, x->out_span, (uint64_t) x->rank << 40);
    memset(x->host_in, 0x5a, x->in_span);
    mem_write(x->out, x->host_out, x->out_span);
    mem_write(x->in, x->host_in, x->in_span);
}

static void exchange_end(exchange_t *x)
{
    mem_free(MEM_DEVICE, x->out);
    mem_free(MEM_DEVICE, x->in);
    free(x->host_out);
    free(x->host_in);
    free(x->got);
    MPI_Type_free(&x->sent);
    MPI_Type_free(&x->taken);
}

static void send_to_next(exchange_t *x, char *out, char *in)
{
    const int to = (x->rank + 1) % x->n, from = (x->rank + x->n - 1) % x->n;
    MPI_Sendrecv(out, 1, x->sent, to, 7, in, 1, x->taken, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void send_to_all(exchange_t *x, char *out, char *in)
{
    MPI_Alltoall(out, 1, x->sent, in, 1, x->taken, MPI_COMM_WORLD);
}

static void gather_all(exchange_t *x, char *out, char *in)
{
    MPI_Allgather(out, 1, x->sent, in, 1, x->taken, MPI_COMM_WORLD);
}

static void broadcast(exchange_t *x, char *out, char *in)
{
    MPI_Bcast(0 == x->rank ? out : in, 1, 0 == x->rank ? x->sent : x->taken, 0, MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    void (*call)(exchange_t *x, char *out, char *in);
} calls[] = {{"MPI_Sendrecv", send_to_next},
             {"MPI_Alltoall", send_to_all},
             {"MPI_Allgather", gather_all},
             {"MPI_Bcast", broadcast}};

static bool exchange_right(int call, int sent, int taken)
{
    exchange_t x;
    exchange_start(&x, sent, taken);
    calls[call].call(&x, x.host_out, x.host_in);
    calls[call].call(&x, x.out, x.in);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now_us();
    for (int i = 0; i < repeat; i++) {
        calls[call].call(&x, x.out, x.in);
    }
    double us = (now_us() - start) / repeat, slowest = 0;
    MPI_Reduce(&us, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    mem_read(x.got, x.in, x.in_span);
    const bool right = 0 == memcmp(x.got, x.host_in, x.in_span);
    if (0 == x.rank) {
        printf("packing: %-14s %-28s -> %-28s | %8.1f us | rank 0: %s\n", calls[call].name, names[sent], names[taken],
               slowest, right ? "right" : "WRONG");
    }
    exchange_end(&x);
    return right;
}

int main(int argc, char **argv)
{
    check_t t;
    check_init(&argc, &argv, "packing", MPI_THREAD_SINGLE);
    bytes = check_number("--mib", 1) << 20;
    repeat = (int) check_number("--repeat", 2);
    check_arguments_end(USAGE);
    dev = gpusym_device_need();
    if (NULL == dev || GPUSYM_SUCCESS != dev->gpu_open(NULL, &gpu) ||
        GPUSYM_SUCCESS != dev->stream_create(gpu, &stream)) {
        fprintf(stderr, "packing: there is no GPU\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    check_start(&t, "packing", MPI_COMM_WORLD);
    if (1 == t.nranks) {
        for (int i = 0; i < CASES; i++) {
            check_result(&t, pack_right(i));
        }
    } else {
        for (int call = 0; call < (int) (sizeof calls / sizeof *calls); call++) {
            check_result(&t, exchange_right(call, ROWS_2K, ROWS_2K));
            check_result(&t, exchange_right(call, STICKS, ROWS_2K + 2));
            check_result(&t, exchange_right(call, STICKS + 3, STICKS));
        }
    }
    dev->stream_destroy(stream);
    const long failed = check_end(&t);
    check_print("packing", t.passed, t.failed);
    return check_fini(failed);
}
