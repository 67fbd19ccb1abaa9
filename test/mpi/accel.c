/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: what of MPI touches memory without a message of its own accepts GPU memory: MPI_Pack and its like,
 * MPI_Sendrecv_replace, files, partitioned messages; and MPIX_Query_cuda_support() says so. On Open MPI 5 and 6 this is
 * the accelerator component's work. On 4.1, with libgpusym_mpi preloaded (--preloaded), the first two are right, and so
 * are external32, and packed GPU memory of elements in host memory.
 *
 * Each call is made on memory of every kind, and on host memory for comparison; every byte is compared, those of gaps
 * too. A window on GPU memory is refused; nothing crashes. --absent: gpusym is left out, and promises nothing.
 */
#include <mpi.h>
#if OMPI_MAJOR_VERSION >= 5
#include <mpi-ext.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/mpi/check.h"

#define USAGE "[--preloaded | --absent] [--kinds LIST]"
#define LEAD 3 /* bytes of a packing buffer before what is packed */

/* A datatype, and counts of it to try. */
typedef struct {
    const char *name;
    MPI_Datatype type;
    int counts[3];
} layout_t;

static check_t t;
static bool preloaded;
static layout_t layouts[5];
#define LAYOUTS (int) (sizeof(layouts) / sizeof(layouts[0]))

static void layouts_make(void)
{
    const int lengths[3] = {3, 1, 2}, places[3] = {9, 0, 5};
    MPI_Datatype shape;

    layouts[0] = (layout_t){"int", MPI_INT, {0, 5, 60000}};
    MPI_Type_vector(7, 3, 5, MPI_SHORT, &shape);
    layouts[1] = (layout_t){"vector", shape, {1, 4, 900}};
    MPI_Type_indexed(3, lengths, places, MPI_INT, &shape);
    layouts[2] = (layout_t){"indexed", shape, {1, 3, 40}};
    layouts[3] = (layout_t){"double_int", MPI_DOUBLE_INT, {1, 3, 30}};
    MPI_Type_create_resized(MPI_INT, 0, 12, &shape);
    layouts[4] = (layout_t){"resized", shape, {1, 6, 700}};
    for (int i = 0; i < LAYOUTS; i++) {
        if (MPI_INT != layouts[i].type && MPI_DOUBLE_INT != layouts[i].type) {
            MPI_Type_commit(&layouts[i].type);
        }
    }
}

static void layouts_free(void)
{
    for (int i = 0; i < LAYOUTS; i++) {
        if (MPI_INT != layouts[i].type && MPI_DOUBLE_INT != layouts[i].type) {
            MPI_Type_free(&layouts[i].type);
        }
    }
}

/* ---- buffers: of some kind, and what they should contain, in host memory ---- */

typedef struct {
    int kind;
    size_t size;
    char *p;     /* of that kind */
    char *want;  /* the same call's, on host memory */
    char *image; /* a host copy of p */
} buffer_t;

static size_t bytes_of(const layout_t *l, int count)
{
    MPI_Aint lb, extent, true_lb, true_extent;

    MPI_Type_get_extent(l->type, &lb, &extent);
    MPI_Type_get_true_extent(l->type, &true_lb, &true_extent);
    return (size_t) (extent * count + true_extent) + 16;
}

/* Different bytes for each seed. */
static buffer_t buffer_make(int kind, size_t size, uint64_t seed)
{
    buffer_t b = {kind, size, mem_alloc(kind, size), malloc(size), malloc(size)};

    if (NULL == b.p || NULL == b.want || NULL == b.image) {
        exit(1);
    }
    for (size_t i = 0; i < size; i++) {
        b.want[i] = (char) ref_mix(seed * 1000003 + i);
    }
    mem_write(b.p, b.want, size);
    return b;
}

/* Compares, and frees. */
static void buffer_check(buffer_t *b, const char *what, const char *layout, int count)
{
    size_t at = 0;

    mem_read(b->image, b->p, b->size);
    while (at < b->size && b->image[at] == b->want[at]) {
        at++;
    }
    if (at < b->size) {
        fprintf(stderr, "accel: FAIL on rank %d: %s, %s memory, %d of %s: byte %zu of %zu is %02x, not %02x\n", t.rank,
                what, mem_name(b->kind), count, layout, at, b->size, (unsigned char) b->image[at],
                (unsigned char) b->want[at]);
    }
    check_result(&t, at == b->size);
    mem_free(b->kind, b->p);
    free(b->want);
    free(b->image);
}

static void expect(bool right, const char *what)
{
    if (!right) {
        fprintf(stderr, "accel: FAIL on rank %d: %s\n", t.rank, what);
    }
    check_result(&t, right);
}

/* ---- MPI_Pack and its like ---- */

typedef struct {
    bool external;
    const layout_t *l;
    int count;
} packing_t;

static MPI_Aint pack(const packing_t *p, const void *in, void *out, size_t size)
{
    MPI_Aint far = LEAD;
    int at = LEAD;

    if (p->external) {
        MPI_Pack_external("external32", in, p->count, p->l->type, out, (MPI_Aint) size, &far);
        return far;
    }
    MPI_Pack(in, p->count, p->l->type, out, (int) size, &at, MPI_COMM_WORLD);
    return at;
}

static MPI_Aint unpack(const packing_t *p, const void *in, size_t size, void *out)
{
    MPI_Aint far = LEAD;
    int at = LEAD;

    if (p->external) {
        MPI_Unpack_external("external32", in, (MPI_Aint) size, &far, out, p->count, p->l->type);
        return far;
    }
    MPI_Unpack(in, (int) size, &at, out, p->count, p->l->type, MPI_COMM_WORLD);
    return at;
}

/* From elements of one kind to packed memory of another, and back. */
static void pack_one(const packing_t *p, int kind, int packed_kind)
{
    const char *what = p->external ? "MPI_Pack_external" : "MPI_Pack";
    MPI_Aint room;
    int size;

    if (p->external) {
        MPI_Pack_external_size("external32", p->count, p->l->type, &room);
    } else {
        MPI_Pack_size(p->count, p->l->type, MPI_COMM_WORLD, &size);
        room = size;
    }
    buffer_t in = buffer_make(kind, bytes_of(p->l, p->count), 1);
    buffer_t packed = buffer_make(packed_kind, (size_t) room + LEAD + 16, 2);
    buffer_t out = buffer_make(kind, bytes_of(p->l, p->count), 3);
    const MPI_Aint want = pack(p, in.want, packed.want, packed.size);
    expect(want == pack(p, in.p, packed.p, packed.size), "the position after packing");
    expect(want == unpack(p, packed.want, packed.size, out.want), "the position after unpacking on the host");
    expect(want == unpack(p, packed.p, packed.size, out.p), "the position after unpacking");
    buffer_check(&in, what, p->l->name, p->count);
    buffer_check(&packed, what, p->l->name, p->count);
    buffer_check(&out, p->external ? "MPI_Unpack_external" : "MPI_Unpack", p->l->name, p->count);
}

static void pack_all(int kind)
{
    for (int i = 0; i < LAYOUTS; i++) {
        for (int c = 0; c < 3; c++) {
            for (int external = 0; external <= (preloaded ? 1 : 0); external++) {
                const packing_t p = {0 != external, &layouts[i], layouts[i].counts[c]};
                pack_one(&p, kind, MEM_HOST);
                pack_one(&p, kind, kind);
                if (preloaded) {
                    pack_one(&p, MEM_HOST, kind);
                }
            }
        }
    }
}

/* ---- MPI_Sendrecv_replace ---- */

static void replace_one(const layout_t *l, int count, int kind, bool nonblocking)
{
    const int to = (t.rank + 1) % t.nranks, from = (t.rank + t.nranks - 1) % t.nranks;
    buffer_t b = buffer_make(kind, bytes_of(l, count), (uint64_t) t.rank);
    MPI_Status status;
    int got = -1;

    MPI_Sendrecv_replace(b.want, count, l->type, to, 7, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#if MPI_VERSION >= 4
    if (nonblocking) {
        MPI_Request request;
        MPI_Isendrecv_replace(b.p, count, l->type, to, 8, from, 8, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, &status);
    }
#endif
    if (!nonblocking) {
        MPI_Sendrecv_replace(b.p, count, l->type, to, 8, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, l->type, &got);
        expect(from == status.MPI_SOURCE && 8 == status.MPI_TAG && count == got, "the status of MPI_Sendrecv_replace");
    }
    buffer_check(&b, nonblocking ? "MPI_Isendrecv_replace" : "MPI_Sendrecv_replace", l->name, count);
}

static void replace_null(int kind)
{
    buffer_t b = buffer_make(kind, 64, 4);

    MPI_Sendrecv_replace(b.p, 16, MPI_INT, MPI_PROC_NULL, 1, MPI_PROC_NULL, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    buffer_check(&b, "MPI_Sendrecv_replace with no one", "int", 16);
}

static void replace_all(int kind)
{
    replace_null(kind);
    for (int i = 0; i < LAYOUTS; i++) {
        for (int c = 0; c < 3; c++) {
            replace_one(&layouts[i], layouts[i].counts[c], kind, false);
            if (MPI_VERSION >= 4) {
                replace_one(&layouts[i], layouts[i].counts[c], kind, true);
            }
        }
    }
}

#if OMPI_MAJOR_VERSION >= 5

/* ---- messages: without a hook before it, Open MPI copies by the component ---- */

static void message_one(const layout_t *l, int count, int skind, int rkind)
{
    const int to = (t.rank + 1) % t.nranks, from = (t.rank + t.nranks - 1) % t.nranks;
    buffer_t out = buffer_make(skind, bytes_of(l, count), (uint64_t) t.rank);
    buffer_t in = buffer_make(rkind, bytes_of(l, count), 100);
    MPI_Request request[2];

    MPI_Sendrecv(out.want, count, l->type, to, 1, in.want, count, l->type, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Irecv(in.p, count, l->type, from, 2, MPI_COMM_WORLD, &request[0]);
    MPI_Isend(out.p, count, l->type, to, 2, MPI_COMM_WORLD, &request[1]);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    buffer_check(&out, "a message sent", l->name, count);
    buffer_check(&in, "a message received", l->name, count);
}

static void message_all(int kind)
{
    static const layout_t large = {"int", MPI_INT, {1000000}};

    for (int i = 0; i < LAYOUTS; i++) {
        for (int c = 0; c < 3; c++) {
            message_one(&layouts[i], layouts[i].counts[c], kind, kind);
            message_one(&layouts[i], layouts[i].counts[c], MEM_HOST, kind);
            message_one(&layouts[i], layouts[i].counts[c], kind, MEM_HOST);
        }
    }
    message_one(&large, large.counts[0], kind, kind);
}

/* ---- partitioned messages ---- */

#define PARTS 4

static void partitioned_one(int kind, int count)
{
    const int to = (t.rank + 1) % t.nranks, from = (t.rank + t.nranks - 1) % t.nranks;
    const size_t size = (size_t) count * PARTS * sizeof(int);
    buffer_t out = buffer_make(kind, size, (uint64_t) t.rank), in = buffer_make(kind, size, 100);
    MPI_Request request[2];

    MPI_Psend_init(out.p, PARTS, count, MPI_INT, to, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request[0]);
    MPI_Precv_init(in.p, PARTS, count, MPI_INT, from, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request[1]);
    MPI_Startall(2, request);
    for (int i = 0; i < PARTS; i++) {
        MPI_Pready((i + 2) % PARTS, request[0]);
    }
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    MPI_Request_free(&request[0]);
    MPI_Request_free(&request[1]);
    MPI_Sendrecv(out.want, count * PARTS, MPI_INT, to, 1, in.want, count * PARTS, MPI_INT, from, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    buffer_check(&out, "a partitioned message sent", "int", count * PARTS);
    buffer_check(&in, "a partitioned message received", "int", count * PARTS);
}

static void partitioned_all(int kind)
{
    partitioned_one(kind, 1);
    partitioned_one(kind, 500);
    partitioned_one(kind, 60000);
}

/* ---- files ---- */

/* One file of all ranks, in the folder of temporary files; it is gone when it is closed. */
static MPI_File file_open(void)
{
    const char *folder = getenv("TMPDIR");
    char name[4096];
    MPI_File file;

    snprintf(name, sizeof(name), "%s/gpusym-accel-%d", NULL != folder ? folder : P_tmpdir, (int) getpid());
    MPI_Bcast(name, sizeof(name), MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                  &file);
    return file;
}

enum way { ALONE, TOGETHER, NONBLOCKING, WAYS };
static const char *const ways[WAYS] = {"MPI_File_write_at", "MPI_File_write_at_all", "MPI_File_iwrite_at"};

static void file_write(MPI_File file, enum way way, MPI_Offset at, const void *p, int count, MPI_Datatype type)
{
    MPI_Request request;

    switch (way) {
    case ALONE:
        MPI_File_write_at(file, at, p, count, type, MPI_STATUS_IGNORE);
        break;
    case TOGETHER:
        MPI_File_write_at_all(file, at, p, count, type, MPI_STATUS_IGNORE);
        break;
    default:
        MPI_File_iwrite_at(file, at, p, count, type, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    }
}

static void file_read(MPI_File file, enum way way, MPI_Offset at, void *p, int count, MPI_Datatype type)
{
    MPI_Request request;

    switch (way) {
    case ALONE:
        MPI_File_read_at(file, at, p, count, type, MPI_STATUS_IGNORE);
        break;
    case TOGETHER:
        MPI_File_read_at_all(file, at, p, count, type, MPI_STATUS_IGNORE);
        break;
    default:
        MPI_File_iread_at(file, at, p, count, type, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    }
}

/* The file's own view: every rank has each nranks-th block of 8 bytes. */
static void file_view(MPI_File file, bool shuffled)
{
    MPI_Datatype block;

    if (!shuffled) {
        MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
        return;
    }
    MPI_Type_contiguous(8, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, 8 * t.nranks, &block);
    MPI_Type_commit(&block);
    MPI_File_set_view(file, 8 * t.rank, MPI_BYTE, block, "native", MPI_INFO_NULL);
    MPI_Type_free(&block);
}

static void file_one(MPI_File file, enum way way, bool shuffled, const layout_t *l, int count, int kind)
{
    const size_t size = bytes_of(l, count);
    const MPI_Offset at = shuffled ? 0 : (MPI_Offset) size * t.rank;
    buffer_t out = buffer_make(kind, size, (uint64_t) t.rank), in = buffer_make(kind, size, 100);
    int packed;

    MPI_Type_size(l->type, &packed);
    file_view(file, shuffled);
    file_write(file, way, at, out.p, count, l->type);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    file_read(file, ALONE, at, in.want, count, l->type);
    file_read(file, way, at, in.p, count, l->type);
    buffer_check(&in, ways[way], l->name, count);
    /* What the file contains is what was sent. */
    char *from_file = malloc((size_t) packed * (size_t) count + 1),
         *sent = malloc((size_t) packed * (size_t) count + 1);
    int end = 0;
    file_read(file, ALONE, at, from_file, packed * count, MPI_BYTE);
    MPI_Pack(out.want, count, l->type, sent, packed * count, &end, MPI_COMM_WORLD);
    expect(0 == memcmp(from_file, sent, (size_t) end), "a file has other bytes than were written");
    free(from_file);
    free(sent);
    buffer_check(&out, ways[way], l->name, count);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void file_all(int kind)
{
    MPI_File file = file_open();

    for (int way = 0; way < WAYS; way++) {
        for (int i = 0; i < LAYOUTS; i++) {
            for (int c = 0; c < 3; c++) {
                file_one(file, (enum way) way, false, &layouts[i], layouts[i].counts[c], kind);
            }
        }
        file_one(file, (enum way) way, true, &layouts[0], 6000, kind);
        file_one(file, (enum way) way, true, &layouts[1], 40, kind);
    }
    MPI_File_close(&file);
}

/* ---- windows ---- */

/* Host memory is Open MPI's; GPU memory is refused, or served (osc/gpusym). In no case does it crash. */
static void window_all(int kind)
{
    void *p = mem_alloc(kind, 4096);
    MPI_Win win = MPI_WIN_NULL;
    int value = 42, got = 0;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const int rc = MPI_Win_create(p, 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    if (MPI_SUCCESS == rc) {
        int rank;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Win_fence(0, win);
        MPI_Put(&value, 1, MPI_INT, rank, 0, 1, MPI_INT, win);
        MPI_Win_fence(0, win);
        mem_read(&got, p, sizeof got);
        expect(value == got, "a window does not hold what was put");
        MPI_Win_free(&win);
    }
    mem_free(kind, p);
}

static void more_all(int kind)
{
    message_all(kind);
    partitioned_all(kind);
    file_all(kind);
    window_all(kind);
}

/* Whether this Open MPI can be tested; else the reason is printed. */
static bool can_run(void)
{
    if (preloaded) {
        printf("accel: the preloaded library is for Open MPI 4.1\n");
    }
    return !preloaded;
}

static int support(void)
{
    return MPIX_Query_cuda_support();
}

#else

static void more_all(int kind)
{
    (void) kind;
}

static bool can_run(void)
{
    if (!preloaded) {
        printf("accel: this Open MPI has no accelerator components\n");
    }
    return preloaded;
}

/* Of a preloaded library MPIX_Query_cuda_support() knows nothing. */
static int support(void)
{
    return 1;
}

#endif

int main(int argc, char **argv)
{
    int kinds[CHECK_KINDS], n;
    bool absent;
    long failed;

    check_init(&argc, &argv, "accel", MPI_THREAD_SINGLE);
    preloaded = check_flag("--preloaded");
    absent = check_flag("--absent");
    n = check_kinds(kinds);
    check_arguments_end(USAGE);
    if (!can_run()) {
        return check_fini(0), CHECK_SKIPPED;
    }
    check_start(&t, "accel", MPI_COMM_WORLD);
    layouts_make();
    expect((absent ? 0 : 1) == support(), "the answer of MPIX_Query_cuda_support()");
    for (int i = 0; !absent && i < n; i++) {
        pack_all(kinds[i]);
        replace_all(kinds[i]);
        more_all(kinds[i]);
        check_collect(&t);
    }
    layouts_free();
    failed = check_end(&t);
    check_print("accel", t.passed, t.failed);
    return check_fini(failed);
}
