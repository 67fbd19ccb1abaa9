/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What stands in the buffers: a pure function of (seed, element, rank, type, operation), whole numbers. Terms of sums,
 * minima and maxima are from -8 to 7 (unsigned: 0 to 15), those of products 1, -1 and 2: every order gives the same
 * result exactly, and what overflows an integer wraps. Values that are only moved have 24 bits, so that one in the
 * wrong place is seen.
 */
#ifndef BENCH_CONTENT_H
#define BENCH_CONTENT_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* BENCH_TYPE(name, C's type, MPI's, NCCL's number); BENCH_OP(name, MPI's, NCCL's number): as nccl-tests names them.
 * user: a sum, as a user-defined operation. */
#define BENCH_TYPE_LIST                           \
    BENCH_TYPE(int8, int8_t, MPI_INT8_T, 0)       \
    BENCH_TYPE(uint8, uint8_t, MPI_UINT8_T, 1)    \
    BENCH_TYPE(int32, int32_t, MPI_INT32_T, 2)    \
    BENCH_TYPE(uint32, uint32_t, MPI_UINT32_T, 3) \
    BENCH_TYPE(int64, int64_t, MPI_INT64_T, 4)    \
    BENCH_TYPE(uint64, uint64_t, MPI_UINT64_T, 5) \
    BENCH_TYPE(float, float, MPI_FLOAT, 7)        \
    BENCH_TYPE(double, double, MPI_DOUBLE, 8)
#define BENCH_OP_LIST           \
    BENCH_OP(sum, MPI_SUM, 0)   \
    BENCH_OP(prod, MPI_PROD, 1) \
    BENCH_OP(max, MPI_MAX, 2)   \
    BENCH_OP(min, MPI_MIN, 3)   \
    BENCH_OP(user, bench_user_sum(), 0)

enum {
#define BENCH_TYPE(name, c_type, mpi, nccl) BENCH_TYPE_##name,
    BENCH_TYPE_LIST
#undef BENCH_TYPE
        BENCH_TYPES
};
enum {
#define BENCH_OP(name, mpi, nccl) BENCH_OP_##name,
    BENCH_OP_LIST
#undef BENCH_OP
        BENCH_OPS
};

typedef struct {
    const char *name;
    size_t bytes;
    MPI_Datatype mpi;
    int nccl;
} bench_type_t;

typedef struct {
    const char *name;
    MPI_Op mpi;
    int nccl;
} bench_op_t;

/* Of all that is measured: float and sum unless these are called, with a name; false: there is no such name. */
bool bench_set_type(const char *name);
bool bench_set_op(const char *name);
MPI_Op bench_user_sum(void);
const bench_type_t *bench_type(void);
const bench_op_t *bench_op(void);
/* All names, separated by |, for a usage line. */
extern const char bench_type_names[], bench_op_names[];

/* Opens and closes the host memory that the last functions here work in. */
void bench_content_open(void);
void bench_content_close(void);

/* Of all that follows. */
void bench_content_seed(unsigned seed);
/* Element i of rank r's input, of a reduction and of what is only moved; element i reduced over ranks [first, end). */
int64_t bench_term_of(size_t i, int r);
int64_t bench_value_of(size_t i, int r);
int64_t bench_reduced_of(size_t i, int first, int end);

/* Memory of any kind: our rank's input of n elements; a poison; the elements that are not as expected(i, arg)
 * says. */
void bench_content_write(void *p, size_t n, int64_t (*content)(size_t i, int r));
void bench_content_poison(void *p, size_t bytes);
unsigned long long bench_content_wrong(const void *p, size_t n, int64_t (*expected)(size_t i, const void *arg),
                                       const void *arg);

#endif
