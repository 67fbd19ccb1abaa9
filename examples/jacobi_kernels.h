/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The work of examples/jacobi, written once, an element at a time: jacobi_kernels.cu runs it on the GPU,
 * jacobi_device.c on the CPU where "device" memory is the simulator's.
 *
 * The problem: Laplace's equation on a grid of points, by the 5-point stencil; the points on the grid's edge are given.
 * The grid is cut into blocks of n rows of n columns, one per rank, one below the other. A rank's field has one more
 * point on each side: the grid's edge, or rows of its neighbours. A sweep reads one of two fields and writes the other.
 *
 * The residual's squared norm is kept in a history of GPU memory. Where its next item goes is counted there, too, so
 * that a launch has the same arguments in every iteration of its kind, and can be replayed.
 */
#ifndef EXAMPLES_JACOBI_KERNELS_H
#define EXAMPLES_JACOBI_KERNELS_H

#include <stddef.h>

#ifdef __CUDACC__
#define JACOBI_FN static __device__ inline
#else
#define JACOBI_FN static inline
#endif

#define JACOBI_BLOCKS 1024u   /* of a launch on the GPU at most */
#define JACOBI_THREADS 256u   /* of a block; a power of two */
#define JACOBI_UNSET (-1e300) /* a point that has no value yet; it is seen in every result that it gets into */

/* JACOBI_KERNEL(id, name, elements): */
#define JACOBI_KERNELS                                                                                      \
    JACOBI_KERNEL(START, start, jacobi_array)  /* fields[0]: initial values; an item before the first: 0 */ \
    JACOBI_KERNEL(SWEEP, sweep, jacobi_points) /* the other field, from the present one */                  \
    JACOBI_KERNEL(KEEP, keep, jacobi_one)      /* `total` to the history */

enum {
#define JACOBI_KERNEL(id, name, elements) JACOBI_##id,
    JACOBI_KERNELS
#undef JACOBI_KERNEL
        JACOBI_KERNEL_COUNT
};

/* Of a launch of SWEEP. */
enum {
    JACOBI_SECOND = 1, /* the present field is the second */
    JACOBI_SUM = 2,    /* `own`: the sum of this rank's squared residuals, of the present field */
    JACOBI_KEEPS = 4,  /* does KEEP's work, too */
    JACOBI_FLAGS = 8
};

/* A launch. All that a rank has lies in one piece of memory, in doubles: the two fields, the three numbers below, the
 * history, and scratch of the kernels. */
typedef struct {
    double *base;
    unsigned n;     /* rows, and columns, of a block; (n + 2)^2 < 2^31 */
    unsigned first; /* the row of the whole grid, edges included, that is row 0 of our field */
    unsigned whole; /* rows of the whole grid, without edges */
    unsigned items; /* of the history, the one before the first included */
    unsigned flags;
} jacobi_args_t;

JACOBI_FN size_t jacobi_one(const jacobi_args_t *a)
{
    (void) a;
    return 1;
}

JACOBI_FN size_t jacobi_points(const jacobi_args_t *a)
{
    return (size_t) a->n * a->n;
}

JACOBI_FN size_t jacobi_array(const jacobi_args_t *a)
{
    return (size_t) (a->n + 2) * (a->n + 2);
}

/* Where a point is in a field: 1 to n are the rank's own rows and columns. */
JACOBI_FN size_t jacobi_at(const jacobi_args_t *a, unsigned row, unsigned column)
{
    return (size_t) row * (a->n + 2) + column;
}

JACOBI_FN double *jacobi_field(const jacobi_args_t *a, int second)
{
    return a->base + (second ? jacobi_array(a) : 0);
}

JACOBI_FN double *jacobi_present(const jacobi_args_t *a)
{
    return jacobi_field(a, 0 != (a->flags & JACOBI_SECOND));
}

/* This rank's sum, and that of all ranks, by what the ranks tell each other; the number of the history's next item. */
JACOBI_FN double *jacobi_own(const jacobi_args_t *a)
{
    return a->base + 2 * jacobi_array(a);
}

JACOBI_FN double *jacobi_total(const jacobi_args_t *a)
{
    return jacobi_own(a) + 1;
}

JACOBI_FN double *jacobi_next(const jacobi_args_t *a)
{
    return jacobi_own(a) + 2;
}

JACOBI_FN double *jacobi_history(const jacobi_args_t *a)
{
    return jacobi_own(a) + 3;
}

/* Of sums.h. */
JACOBI_FN double *jacobi_scratch(const jacobi_args_t *a)
{
    return jacobi_history(a) + a->items;
}

/* Doubles from base on, in all. */
JACOBI_FN size_t jacobi_doubles(const jacobi_args_t *a)
{
    return (size_t) (jacobi_scratch(a) - a->base) + 1 + JACOBI_BLOCKS;
}

/* The initial field and its edge, by place in the whole grid, edges included: noise in [0, 1), so that a value in a
 * wrong place is seen. */
JACOBI_FN double jacobi_initial(unsigned row, unsigned column)
{
    unsigned h = row * 0x9e3779b1u ^ column * 0x85ebca77u;

    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    return (h ^ (h >> 16)) / 4294967296.0;
}

/* The sum of a point's neighbours, with rows of `row` points. The point's next value is a quarter of it: the only
 * roundings are those of additions, in this order, so that the field has the same bits on the GPU and on the CPU. */
JACOBI_FN double jacobi_neighbours(const double *point, size_t row)
{
    return point[-(ptrdiff_t) row] + point[row] + point[-1] + point[1];
}

/* ---- the kernels: the work of each on its element e -------------------------------------------------------------- */

JACOBI_FN void jacobi_start(const jacobi_args_t *a, unsigned e, double *sum)
{
    const unsigned row = a->first + e / (a->n + 2), column = e % (a->n + 2);
    const int edge = 0 == row || a->whole + 1 == row || 0 == column || a->n + 1 == column;
    const int ours = e / (a->n + 2) - 1 < a->n;

    (void) sum;
    jacobi_field(a, 0)[e] = edge || ours ? jacobi_initial(row, column) : JACOBI_UNSET;
    jacobi_field(a, 1)[e] = edge ? jacobi_initial(row, column) : JACOBI_UNSET;
    if (0 == e) {
        *jacobi_total(a) = *jacobi_next(a) = 0;
    }
}

JACOBI_FN void jacobi_keep(const jacobi_args_t *a, unsigned e, double *sum)
{
    (void) e;
    (void) sum;
    jacobi_history(a)[(size_t) *jacobi_next(a)] = *jacobi_total(a);
    *jacobi_next(a) += 1;
}

JACOBI_FN void jacobi_sweep(const jacobi_args_t *a, unsigned e, double *sum)
{
    const size_t at = jacobi_at(a, e / a->n + 1, e % a->n + 1);
    const double *point = jacobi_present(a) + at;
    const double neighbours = jacobi_neighbours(point, a->n + 2), residual = neighbours - 4 * *point;

    jacobi_field(a, 0 == (a->flags & JACOBI_SECOND))[at] = 0.25 * neighbours;
    *sum += residual * residual;
    if (0 == e && 0 != (a->flags & JACOBI_KEEPS)) {
        jacobi_keep(a, e, sum);
    }
}

#endif
