/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages for the tests of point to point: what a datatype covers, in bytes; buffers that hold a message between
 * canaries; and the ways to complete a request. Uses nothing but MPI, ref.h and mem.h. /
 */
#ifndef TEST_MPI_MSG_H
#define TEST_MPI_MSG_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MSG_GUARD 256 /* bytes before and behind a message's span that must stay as they are */

/* MSG_SHAPE(ID, name) */
#define MSG_SHAPE_LIST                                                                      \
    MSG_SHAPE(CONTIGUOUS, contiguous)                                                       \
    MSG_SHAPE(VECTOR, vector)                                                               \
    MSG_SHAPE(SUBARRAY, subarray) /* of two or three dimensions */                          \
    MSG_SHAPE(INDEXED, indexed)   /* blocks of many sizes, in rising or in falling order */ \
    MSG_SHAPE(STRUCT, struct)     /* a vector among its fields, a gap at its end */

enum msg_shape {
#define MSG_SHAPE(id, name) MSG_##id,
    MSG_SHAPE_LIST
#undef MSG_SHAPE
        MSG_SHAPES
};

/* "contiguous", "vector", ... */
const char *msg_shape_name(int shape);

/* MSG_FINISH(ID, name): the ways to complete requests. */
#define MSG_FINISH_LIST            \
    MSG_FINISH(WAIT, wait)         \
    MSG_FINISH(TEST, test)         \
    MSG_FINISH(WAITALL, waitall)   \
    MSG_FINISH(WAITANY, waitany)   \
    MSG_FINISH(WAITSOME, waitsome) \
    MSG_FINISH(TESTALL, testall)   \
    MSG_FINISH(TESTANY, testany)   \
    MSG_FINISH(TESTSOME, testsome)

enum msg_finish {
#define MSG_FINISH(id, name) MSG_##id,
    MSG_FINISH_LIST
#undef MSG_FINISH
        MSG_FINISHES
};

const char *msg_finish_name(int how);

typedef struct {
    ptrdiff_t at; /* bytes from the element's address */
    size_t bytes;
} msg_piece_t;

/* How a message lies in memory: count elements of type at the buffer's address. Owned by msg_layout and
 * msg_layout_free. */
typedef struct {
    MPI_Datatype type, basic; /* committed; basic: what it is made of */
    int count;
    size_t unit;    /* bytes of one basic */
    size_t element; /* bytes of data in one of type */
    size_t bytes;   /* of data in all */
    ptrdiff_t extent;
    size_t npieces; /* of one element, in the order of its data */
    msg_piece_t *pieces;
    ptrdiff_t low; /* the lowest byte of all, from the buffer's address; at most 0 if there is data before it */
    size_t span;   /* bytes from there to behind the highest */
} msg_layout_t;

/* One message of `bytes` in basics of `unit` bytes (1, 2, 4 or 8, a divisor). seed chooses among the types of the
 * shape. A vector and a subarray of more than MSG_EXACT bytes are rounded down so that their rows are not single
 * basics: ask with msg_bytes() before, so that both sides do. */
#define MSG_EXACT ((size_t) 2 << 20)
void msg_layout(msg_layout_t *l, enum msg_shape shape, size_t bytes, size_t unit, uint64_t seed);
void msg_layout_free(msg_layout_t *l);
/* Bytes that a message of about `bytes` has in this shape. */
size_t msg_bytes(enum msg_shape shape, size_t bytes);
/* What MPI_Get_count says of a message of that many bytes received by this type. */
int msg_count(const msg_layout_t *l, size_t bytes);

/* A place in memory of some kind; may serve one layout after the other. Zeroed at first. */
typedef struct {
    int kind;
    unsigned char *base; /* of mem_alloc */
    size_t size;
    const msg_layout_t *layout;
    unsigned char *low; /* the first byte of the first guard */
    void *address;      /* what MPI is given */
} msg_buffer_t;

/* Host memory that checks need, and the data. One for each thread. Zeroed at first. */
typedef struct {
    unsigned char *image[2];
    size_t room;
} msg_work_t;

/* Prepares the data of all messages, for up to `most` bytes each. Once, after check_init, before threads. */
void msg_init(size_t most);
void msg_fini(void);
void msg_work_free(msg_work_t *w);

/* Memory for the layout; what the buffer has is kept where it is of the kind and large enough. The buffer's address is
 * `offset` bytes behind a boundary of 64. */
void msg_place(msg_buffer_t *b, int kind, const msg_layout_t *layout, size_t offset);
void msg_release(msg_buffer_t *b);
/* Canaries everywhere, and message `seed` among them; or none. */
void msg_fill(msg_work_t *w, const msg_buffer_t *b, uint64_t seed);
void msg_blank(msg_work_t *w, const msg_buffer_t *b);
/* Whether the first `bytes` of data are message `seed`, and all else canaries; else `why` says what is not. */
bool msg_right(msg_work_t *w, const msg_buffer_t *b, uint64_t seed, size_t bytes, char why[128]);
/* The same, whatever the data: for a message that was truncated. */
bool msg_untouched_beside(msg_work_t *w, const msg_buffer_t *b, char why[128]);
/* Byte i of message `seed` is data[i]. */
const unsigned char *msg_data(uint64_t seed);

/* Completes all n requests; statuses: NULL or n of them. */
void msg_finish(enum msg_finish how, int n, MPI_Request *requests, MPI_Status *statuses);

#endif
