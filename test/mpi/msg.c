/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages for the tests of point to point, see msg.h.
 */
#include "test/mpi/msg.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/mem.h"
#include "test/mpi/ref.h"

#define ALIGN 64
#define SHIFTS 8191 /* messages of as many seeds begin at different places of the data */

#define CANARIES 4096

/* Constant after msg_init. */
static unsigned char *data, canary[CANARIES + 251];

static void *need(void *old, size_t size)
{
    void *p = realloc(old, size + 1);

    if (NULL == p) {
        fprintf(stderr, "msg: no memory for %zu bytes\n", size);
        exit(EXIT_FAILURE);
    }
    return p;
}

const char *msg_shape_name(int shape)
{
    static const char *const names[] = {
#define MSG_SHAPE(id, name) #name,
        MSG_SHAPE_LIST
#undef MSG_SHAPE
    };

    return names[shape];
}

const char *msg_finish_name(int how)
{
    static const char *const names[] = {
#define MSG_FINISH(id, name) #name,
        MSG_FINISH_LIST
#undef MSG_FINISH
    };

    return names[how];
}

/* ---- layouts ---- */

/* A source of small numbers. */
static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = ref_mix(*seed + 1);
    return (*seed >> 20) % below;
}

/* The largest divisor of n that is at most `most`, which is at least 1. */
static size_t divisor(size_t n, size_t most)
{
    size_t d = n < most ? n : most;

    while (d > 1 && 0 != n % d) {
        d--;
    }
    return 0 == d ? 1 : d;
}

static MPI_Datatype basic_type(size_t unit)
{
    switch (unit) {
    case 2:
        return MPI_SHORT;
    case 4:
        return MPI_INT;
    case 8:
        return MPI_DOUBLE;
    default:
        return MPI_BYTE;
    }
}

/* Data that stands where the last piece ends belongs to it. */
static void add_piece(msg_layout_t *l, size_t at, size_t basics)
{
    msg_piece_t piece = {(ptrdiff_t) (at * l->unit), basics * l->unit};
    msg_piece_t *last = 0 == l->npieces ? NULL : &l->pieces[l->npieces - 1];

    if (0 == basics) {
        return;
    }
    if (NULL != last && last->at + (ptrdiff_t) last->bytes == piece.at) {
        last->bytes += piece.bytes;
        return;
    }
    if (0 == (l->npieces & (l->npieces + 1))) { /* it is full at 1, 3, 7, ...; at 0 there is none */
        l->pieces = need(l->pieces, (2 * l->npieces + 2) * sizeof(*l->pieces));
    }
    l->pieces[l->npieces++] = piece;
}

/* Each of these makes l->type and the pieces of one element of n basics. */

static void make_contiguous(msg_layout_t *l, size_t n, uint64_t seed)
{
    (void) seed;
    MPI_Type_contiguous((int) n, l->basic, &l->type);
    add_piece(l, 0, n);
}

static void make_vector(msg_layout_t *l, size_t n, uint64_t seed)
{
    const size_t most[] = {1, 7, 64, 4096};
    size_t block = divisor(n, n > 65536 ? 4096 : most[draw(&seed, 4)]);
    size_t stride = block + 1 + draw(&seed, block + 3);

    MPI_Type_vector((int) (n / block), (int) block, (int) stride, l->basic, &l->type);
    for (size_t i = 0; i < n / block; i++) {
        add_piece(l, i * stride, block);
    }
}

static void make_subarray(msg_layout_t *l, size_t n, uint64_t seed)
{
    size_t columns = divisor(n, n > 65536 ? 4096 : 1 + draw(&seed, 512)), rows = n / columns;
    size_t planes = draw(&seed, 2) ? divisor(rows, 3) : 1;
    size_t gap = draw(&seed, 3), sizes[3] = {planes + 1, rows / planes + 2, columns + gap};
    int all[3], part[3] = {(int) planes, (int) (rows / planes), (int) columns}, start[3] = {1, 1, (int) gap / 2};
    int first = 1 == planes; /* of one plane: two dimensions */

    for (int i = 0; i < 3; i++) {
        all[i] = (int) sizes[i];
    }
    MPI_Type_create_subarray(3 - first, all + first, part + first, start + first, MPI_ORDER_C, l->basic, &l->type);
    for (size_t p = 0; p < planes; p++) {
        for (size_t r = 0; r < rows / planes; r++) {
            size_t plane = first ? 0 : p + 1;
            add_piece(l, (plane * sizes[1] + r + 1) * sizes[2] + gap / 2, columns);
        }
    }
}

static void make_indexed(msg_layout_t *l, size_t n, uint64_t seed)
{
    size_t longest = n / 128 + 3, room = 0, at = draw(&seed, 5);
    int blocks = 0, *lengths = NULL, *displs = NULL;
    bool falling = draw(&seed, 2);

    for (size_t left = n; left > 0; blocks++) {
        size_t length = 1 + draw(&seed, longest);
        length = length < left ? length : left;
        if ((size_t) blocks == room) {
            room = 2 * room + 16;
            lengths = need(lengths, room * sizeof(*lengths));
            displs = need(displs, room * sizeof(*displs));
        }
        lengths[blocks] = (int) length;
        displs[blocks] = (int) at;
        at += length + draw(&seed, 4); /* blocks may touch */
        left -= length;
    }
    for (int i = 0; falling && i < blocks / 2; i++) {
        int j = blocks - 1 - i, length = lengths[i], displ = displs[i];
        lengths[i] = lengths[j];
        displs[i] = displs[j];
        lengths[j] = length;
        displs[j] = displ;
    }
    MPI_Type_indexed(blocks, lengths, displs, l->basic, &l->type);
    for (int i = 0; i < blocks; i++) {
        add_piece(l, (size_t) displs[i], (size_t) lengths[i]);
    }
    free(lengths);
    free(displs);
}

/* A run, a vector and a run, with gaps between them and behind. */
static void make_struct(msg_layout_t *l, size_t n, uint64_t seed)
{
    size_t rows = n >= 6 ? 3 : 0, block = rows ? n / 3 / rows : 0, first = n / 3, rest = n - first - rows * block;
    size_t at[3] = {0, first + 1, 0}, stride = block + 2, end;
    MPI_Datatype types[3] = {l->basic, MPI_DATATYPE_NULL, l->basic}, bare;
    int lengths[3] = {(int) first, 1, (int) rest};
    MPI_Aint displs[3];

    at[2] = at[1] + rows * stride + draw(&seed, 9);
    end = at[2] + rest + draw(&seed, 5);
    for (int i = 0; i < 3; i++) {
        displs[i] = (MPI_Aint) (at[i] * l->unit);
    }
    MPI_Type_vector((int) rows, (int) block, (int) stride, l->basic, &types[1]);
    MPI_Type_create_struct(3, lengths, displs, types, &bare);
    MPI_Type_create_resized(bare, 0, (MPI_Aint) (end * l->unit), &l->type);
    MPI_Type_free(&types[1]);
    MPI_Type_free(&bare);
    add_piece(l, 0, first);
    for (size_t i = 0; i < rows; i++) {
        add_piece(l, at[1] + i * stride, block);
    }
    add_piece(l, at[2], rest);
}

/* Where all of it lies; what MPI says of it must agree. */
static void measure(msg_layout_t *l)
{
    MPI_Aint lb, extent, true_lb, true_extent;
    ptrdiff_t low = 0, high = 0;

    MPI_Type_get_extent(l->type, &lb, &extent);
    MPI_Type_get_true_extent(l->type, &true_lb, &true_extent);
    l->extent = extent;
    for (size_t i = 0; i < l->npieces; i++) {
        ptrdiff_t end = l->pieces[i].at + (ptrdiff_t) l->pieces[i].bytes;
        low = 0 == i || l->pieces[i].at < low ? l->pieces[i].at : low;
        high = 0 == i || end > high ? end : high;
    }
    if (l->npieces > 0 && (low != true_lb || high - low != true_extent)) {
        fprintf(stderr, "msg: a type was made from %td to %td, MPI says from %td, %td bytes\n", low, high,
                (ptrdiff_t) true_lb, (ptrdiff_t) true_extent);
        exit(EXIT_FAILURE);
    }
    l->low = low;
    l->span = 0 == l->count ? 0 : (size_t) (high - low + (l->count - 1) * l->extent);
}

size_t msg_bytes(enum msg_shape shape, size_t bytes)
{
    bool rows = MSG_VECTOR == shape || MSG_SUBARRAY == shape;

    return rows && bytes > MSG_EXACT ? bytes / 4096 * 4096 : bytes;
}

void msg_layout(msg_layout_t *l, enum msg_shape shape, size_t bytes, size_t unit, uint64_t seed)
{
    static void (*const make[])(msg_layout_t *, size_t, uint64_t) = {
        [MSG_CONTIGUOUS] = make_contiguous, [MSG_VECTOR] = make_vector, [MSG_SUBARRAY] = make_subarray,
        [MSG_INDEXED] = make_indexed,       [MSG_STRUCT] = make_struct,
    };
    size_t n = bytes / unit, elements = divisor(n, 1 + draw(&seed, 8));

    *l = (msg_layout_t){.basic = basic_type(unit), .unit = unit, .bytes = bytes, .count = (int) elements};
    if (0 == n) {
        l->count = 0;
        n = 4;
        elements = 1;
    }
    l->element = n / elements * unit;
    if (MSG_CONTIGUOUS == shape && draw(&seed, 2)) { /* the basic itself */
        l->count *= (int) (n / elements);
        l->element = unit;
        n = elements = 1;
    }
    make[shape](l, n / elements, seed);
    MPI_Type_commit(&l->type);
    measure(l);
}

void msg_layout_free(msg_layout_t *l)
{
    MPI_Type_free(&l->type);
    free(l->pieces);
    l->pieces = NULL;
}

int msg_count(const msg_layout_t *l, size_t bytes)
{
    return 0 == bytes % l->element ? (int) (bytes / l->element) : MPI_UNDEFINED;
}

/* ---- buffers ---- */

void msg_init(size_t most)
{
    uint64_t x = 1;

    data = need(NULL, most + SHIFTS + sizeof(x));
    for (size_t i = 0; i < most + SHIFTS; i += sizeof(x)) {
        x = ref_mix(x);
        memcpy(data + i, &x, sizeof(x));
    }
    for (size_t i = 0; i < sizeof(canary); i++) {
        canary[i] = (unsigned char) (0xc5 + 37 * i);
    }
}

void msg_fini(void)
{
    free(data);
}

void msg_work_free(msg_work_t *w)
{
    free(w->image[0]);
    free(w->image[1]);
    *w = (msg_work_t){.room = 0};
}

const unsigned char *msg_data(uint64_t seed)
{
    return data + ref_mix(seed) % SHIFTS;
}

static void room(msg_work_t *w, size_t size)
{
    for (int i = 0; i < 2 && w->room < size; i++) {
        w->image[i] = need(w->image[i], size + size / 4);
    }
    w->room = w->room < size ? size + size / 4 : w->room;
}

void msg_place(msg_buffer_t *b, int kind, const msg_layout_t *layout, size_t offset)
{
    size_t size = MSG_GUARD + layout->span + MSG_GUARD + 2 * ALIGN + offset;
    uintptr_t first;

    if (NULL != b->base && (b->kind != kind || b->size < size)) {
        msg_release(b);
    }
    if (NULL == b->base) {
        b->kind = kind;
        b->size = size + size / 4;
        b->base = mem_alloc(kind, b->size);
        if (NULL == b->base) {
            fprintf(stderr, "msg: no %s memory, %zu bytes\n", mem_name(kind), b->size);
            exit(EXIT_FAILURE);
        }
    }
    /* The boundary is at or behind what the guard and data before the address take. */
    first = ((uintptr_t) b->base + MSG_GUARD + ALIGN - 1) / ALIGN * ALIGN + offset;
    b->layout = layout;
    b->low = (unsigned char *) first - MSG_GUARD;
    b->address = (unsigned char *) first - layout->low;
}

void msg_release(msg_buffer_t *b)
{
    if (NULL != b->base) {
        mem_free(b->kind, b->base);
    }
    *b = (msg_buffer_t){.base = NULL};
}

/* All canaries, then the first `bytes` of the message. */
static size_t draw_image(unsigned char *image, const msg_layout_t *l, uint64_t seed, size_t bytes)
{
    const unsigned char *from = msg_data(seed);
    size_t size = l->span + 2 * MSG_GUARD;

    for (size_t at = 0; at < size; at += CANARIES) {
        memcpy(image + at, canary + at / CANARIES % 251, size - at < CANARIES ? size - at : CANARIES);
    }
    image += MSG_GUARD - l->low;
    for (int i = 0; bytes > 0; i++) {
        for (size_t p = 0; p < l->npieces && bytes > 0; p++) {
            size_t part = l->pieces[p].bytes < bytes ? l->pieces[p].bytes : bytes;
            memcpy(image + i * l->extent + l->pieces[p].at, from, part);
            from += part;
            bytes -= part;
        }
    }
    return size;
}

static void write_image(msg_work_t *w, const msg_buffer_t *b, uint64_t seed, size_t bytes)
{
    room(w, b->layout->span + 2 * MSG_GUARD);
    mem_write(b->low, w->image[0], draw_image(w->image[0], b->layout, seed, bytes));
}

void msg_fill(msg_work_t *w, const msg_buffer_t *b, uint64_t seed)
{
    write_image(w, b, seed, b->layout->bytes);
}

void msg_blank(msg_work_t *w, const msg_buffer_t *b)
{
    write_image(w, b, 0, 0);
}

/* The buffer is as the image drawn last; else `why` says where not. */
static bool compare(msg_work_t *w, const msg_buffer_t *b, char why[128])
{
    size_t size = b->layout->span + 2 * MSG_GUARD, at = 0, wrong = 0;
    const unsigned char *want = w->image[0], *got = w->image[1];

    mem_read(w->image[1], b->low, size);
    if (0 == memcmp(want, got, size)) {
        return true;
    }
    for (size_t i = size; i-- > 0;) {
        at = want[i] != got[i] ? i : at;
        wrong += want[i] != got[i];
    }
    snprintf(why, 128, "%zu bytes are wrong, the first %td behind the lowest of %zu: 0x%02x, not 0x%02x", wrong,
             (ptrdiff_t) at - MSG_GUARD, b->layout->span, got[at], want[at]);
    return false;
}

bool msg_right(msg_work_t *w, const msg_buffer_t *b, uint64_t seed, size_t bytes, char why[128])
{
    room(w, b->layout->span + 2 * MSG_GUARD);
    draw_image(w->image[0], b->layout, seed, bytes);
    return compare(w, b, why);
}

bool msg_untouched_beside(msg_work_t *w, const msg_buffer_t *b, char why[128])
{
    const msg_layout_t *l = b->layout;

    room(w, l->span + 2 * MSG_GUARD);
    draw_image(w->image[0], l, 0, 0);
    mem_read(w->image[1], b->low, l->span + 2 * MSG_GUARD);
    for (int i = 0; i < l->count; i++) {
        for (size_t p = 0; p < l->npieces; p++) {
            ptrdiff_t at = MSG_GUARD - l->low + i * l->extent + l->pieces[p].at;
            memcpy(w->image[0] + at, w->image[1] + at, l->pieces[p].bytes);
        }
    }
    return compare(w, b, why);
}

/* ---- completion ---- */

/* Some of them at a time, and again, until all are complete. */
static void finish_some(enum msg_finish how, int n, MPI_Request *requests, MPI_Status *statuses)
{
    int *indices = need(NULL, (size_t) n * sizeof(*indices));
    MPI_Status *some = need(NULL, (size_t) n * sizeof(*some));
    int count = 0;

    while (MPI_UNDEFINED != count) { /* which says that none is active any more */
        if (MSG_WAITSOME == how) {
            MPI_Waitsome(n, requests, &count, indices, some);
        } else {
            MPI_Testsome(n, requests, &count, indices, some);
        }
        for (int i = 0; i < count; i++) {
            statuses[indices[i]] = some[i];
        }
        if (0 == count) {
            sched_yield();
        }
    }
    free(indices);
    free(some);
}

static void finish_any(enum msg_finish how, int n, MPI_Request *requests, MPI_Status *statuses)
{
    int index = 0, flag = 1;

    while (!flag || MPI_UNDEFINED != index) { /* else none is active any more */
        MPI_Status status;

        if (MSG_WAITANY == how) {
            MPI_Waitany(n, requests, &index, &status);
        } else {
            MPI_Testany(n, requests, &index, &flag, &status);
        }
        if (flag && MPI_UNDEFINED != index) {
            statuses[index] = status;
        } else if (!flag) {
            sched_yield();
        }
    }
}

static void finish_one(enum msg_finish how, MPI_Request *request, MPI_Status *status)
{
    int flag = 0;

    if (MSG_WAIT == how) {
        MPI_Wait(request, status);
        return;
    }
    while (MPI_Test(request, &flag, status), !flag) {
        sched_yield();
    }
}

static void finish_all(int n, MPI_Request *requests, MPI_Status *statuses)
{
    int flag = 0;

    while (MPI_Testall(n, requests, &flag, statuses), !flag) {
        sched_yield();
    }
}

void msg_finish(enum msg_finish how, int n, MPI_Request *requests, MPI_Status *statuses)
{
    MPI_Status *own = NULL == statuses ? need(NULL, (size_t) n * sizeof(*own)) : NULL;
    MPI_Status *to = NULL == statuses ? own : statuses;

    switch (how) {
    case MSG_WAITALL:
        MPI_Waitall(n, requests, NULL == statuses ? MPI_STATUSES_IGNORE : statuses);
        break;
    case MSG_TESTALL:
        finish_all(n, requests, to);
        break;
    case MSG_WAITSOME:
    case MSG_TESTSOME:
        finish_some(how, n, requests, to);
        break;
    case MSG_WAITANY:
    case MSG_TESTANY:
        finish_any(how, n, requests, to);
        break;
    default:
        for (int i = 0; i < n; i++) {
            finish_one(how, &requests[i], &to[i]);
        }
    }
    free(own);
}
