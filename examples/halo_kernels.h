/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The work of examples/halo on its field, written once, an element at a time: halo_kernels.cu runs it on the GPU,
 * halo_device.c on the CPU where "device" memory is the simulator's.
 *
 * The field: a grid of points that is cut into one block of n x n x n per rank. A rank's array has one more point on
 * each side, the halo: copies of the neighbours' outer points. Direction 0 is the one whose points are furthest apart
 * in memory, in direction 2 they are neighbours, as of a C array of [n + 2][n + 2][n + 2].
 */
#ifndef EXAMPLES_HALO_KERNELS_H
#define EXAMPLES_HALO_KERNELS_H

#include <stddef.h>

#ifdef __CUDACC__
#define HALO_FN static __device__ inline
#else
#define HALO_FN static inline
#endif

#define HALO_BLOCKS 2048u   /* of a launch on the GPU at most */
#define HALO_THREADS 256u   /* of a block */
#define HALO_UNSET (-1e300) /* a point that has no value yet; it is seen in every result that it gets into */

/* Face 2 d is at the lower end of direction d, face 2 d + 1 at its upper end. */
enum { HALO_DIRECTIONS = 3, HALO_FACES = 2 * HALO_DIRECTIONS };

/* HALO_KERNEL(id, name, elements): */
#define HALO_KERNELS                                                                           \
    HALO_KERNEL(START, start, halo_array)      /* field[0]: the initial values, no halo yet */ \
    HALO_KERNEL(PACK, pack, halo_face)         /* `send`: the outer points of field[in] */     \
    HALO_KERNEL(UNPACK, unpack, halo_face)     /* the halo of field[in]: `receive` */          \
    HALO_KERNEL(STENCIL, stencil, halo_points) /* field[1 - in]: one step on from field[in] */

enum {
#define HALO_KERNEL(id, name, elements) HALO_##id,
    HALO_KERNELS
#undef HALO_KERNEL
        HALO_KERNEL_COUNT
};

/* A launch. */
typedef struct {
    double *field[2];                               /* halo_array() doubles each */
    double *send[HALO_FACES], *receive[HALO_FACES]; /* halo_face() doubles each */
    unsigned n;                                     /* points of a block in each direction; (n + 2)^3 < 2^31 */
    unsigned whole[HALO_DIRECTIONS];                /* of the grid */
    unsigned first[HALO_DIRECTIONS];                /* this rank's first, in the grid */
    int in;                                         /* which field is the present one */
} halo_args_t;

HALO_FN size_t halo_points(const halo_args_t *a)
{
    return (size_t) a->n * a->n * a->n;
}

HALO_FN size_t halo_face(const halo_args_t *a)
{
    return (size_t) a->n * a->n;
}

HALO_FN size_t halo_array(const halo_args_t *a)
{
    return (size_t) (a->n + 2) * (a->n + 2) * (a->n + 2);
}

/* Where a point is in an array of the field: 1 to n are the rank's own, 0 and n + 1 the halo. */
HALO_FN size_t halo_at(const halo_args_t *a, unsigned i, unsigned j, unsigned k)
{
    return ((size_t) i * (a->n + 2) + j) * (a->n + 2) + k;
}

/* The initial field, by place in the grid, which is periodic: noise in [0, 1), so that a value in a wrong place is
 * seen. */
HALO_FN double halo_initial(unsigned i, unsigned j, unsigned k)
{
    unsigned h = i * 0x9e3779b1u ^ j * 0x85ebca77u ^ k * 0xc2b2ae3du;

    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    return (h ^ (h >> 16)) / 4294967296.0;
}

/* One step of the heat equation at a point whose neighbours in memory are `di`, `dj` and 1 away. Both factors are
 * powers of two, so there is one rounding for each addition and no other, whether a compiler fuses multiplications into
 * additions or not: the result has the same bits on the GPU and on the CPU. */
HALO_FN double halo_step(const double *point, size_t di, size_t dj)
{
    const double sum = point[-(ptrdiff_t) di] + point[di] + point[-(ptrdiff_t) dj] + point[dj] + point[-1] + point[1];

    return 0.25 * point[0] + 0.125 * sum;
}

/* ---- the kernels: the work of each on its element e -------------------------------------------------------------- */

HALO_FN void halo_start(const halo_args_t *a, unsigned e)
{
    const unsigned side = a->n + 2, k = e % side, j = e / side % side, i = e / side / side;
    const int inside = i - 1 < a->n && j - 1 < a->n && k - 1 < a->n;

    a->field[0][e] = inside ? halo_initial(a->first[0] + i - 1, a->first[1] + j - 1, a->first[2] + k - 1) : HALO_UNSET;
    a->field[1][e] = HALO_UNSET;
}

/* The same point of all six faces: what it is of face 2 d + side is at `layer` in direction d. */
HALO_FN size_t halo_face_at(const halo_args_t *a, unsigned e, int direction, unsigned layer)
{
    const unsigned u = e / a->n + 1, v = e % a->n + 1;

    return 0 == direction   ? halo_at(a, layer, u, v)
           : 1 == direction ? halo_at(a, u, layer, v)
                            : halo_at(a, u, v, layer);
}

HALO_FN void halo_pack(const halo_args_t *a, unsigned e)
{
    const double *field = a->field[a->in];

#ifdef __CUDACC__
#pragma unroll
#endif
    for (int d = 0; d < HALO_DIRECTIONS; d++) {
        a->send[2 * d][e] = field[halo_face_at(a, e, d, 1)];
        a->send[2 * d + 1][e] = field[halo_face_at(a, e, d, a->n)];
    }
}

HALO_FN void halo_unpack(const halo_args_t *a, unsigned e)
{
    double *field = a->field[a->in];

#ifdef __CUDACC__
#pragma unroll
#endif
    for (int d = 0; d < HALO_DIRECTIONS; d++) {
        field[halo_face_at(a, e, d, 0)] = a->receive[2 * d][e];
        field[halo_face_at(a, e, d, a->n + 1)] = a->receive[2 * d + 1][e];
    }
}

HALO_FN void halo_stencil(const halo_args_t *a, unsigned e)
{
    const unsigned k = e % a->n, j = e / a->n % a->n, i = e / a->n / a->n;
    const size_t at = halo_at(a, i + 1, j + 1, k + 1);

    a->field[1 - a->in][at] = halo_step(a->field[a->in] + at, halo_at(a, 1, 0, 0), halo_at(a, 0, 1, 0));
}

#endif
