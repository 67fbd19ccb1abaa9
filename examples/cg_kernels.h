/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The vector work of examples/cg, written once, an element at a time: cg_kernels.cu runs it on the GPU, cg_device.c on
 * the CPU where "device" memory is the simulator's.
 *
 * The problem: -laplace(u) = f on a cube of n x n x n unknowns, 0 outside, by the 7-point stencil A u = 6 u - (its six
 * neighbours). f is A of a solution that is known, so that the error can be told. A rank has `nz` of the n planes, from
 * plane z0 on; its neighbours' outer planes are in `halo`, what they need of it is in `faces`.
 *
 * The two solvers (cg.c) keep what they have summed over all ranks in a history of GPU memory, CG_ITEM doubles an
 * iteration. Every kernel reads there what it needs, so that no sum has to visit the host.
 */
#ifndef EXAMPLES_CG_KERNELS_H
#define EXAMPLES_CG_KERNELS_H

#include <stddef.h>

#ifdef __CUDACC__
#define CG_FN static __device__ inline
#else
#define CG_FN static inline
#endif

#define CG_BLOCKS 1024u /* of a launch on the GPU at most */
#define CG_THREADS 256u /* of a block; a power of two */

/* Vectors of nz * n * n doubles. x: the solution; r = f - A x; p: the direction, q = A p; and, of the pipelined solver,
 * w = A r, s = A p, z = A s (q = A w there). */
enum { CG_X, CG_R, CG_P, CG_Q, CG_W, CG_S, CG_Z, CG_VECTORS };

/* An iteration's item of the history: (r, r); the denominator, (p, A p) or (r, A r); alpha, written by CG_STEP. */
enum { CG_GAMMA, CG_DELTA, CG_ALPHA, CG_ITEM = 4 };

/* CG_KERNEL(id, name): */
#define CG_KERNELS                                                                    \
    CG_KERNEL(START, start)   /* x, p, s, z = 0; r = f; no halo; sums: (r, r) */      \
    CG_KERNEL(MATRIX, matrix) /* out = A in; sums: (in, in), (in, out) */             \
    CG_KERNEL(UPDATE, update) /* classic: x += alpha p, r -= alpha q; sums: (r, r) */ \
    CG_KERNEL(DIRECT, direct) /* classic: p = r + beta p */                           \
    CG_KERNEL(STEP, step)     /* pipelined: z, s, p, x, r, w; sums: (r, r), (w, r) */

enum {
#define CG_KERNEL(id, name) CG_##id,
    CG_KERNELS
#undef CG_KERNEL
        CG_KERNEL_COUNT
};

/* A launch. All that a solve uses lies in one piece of memory, in this order: the vectors, faces, halo (two planes
 * each: the lower, the upper), sums (this rank's two), the history, and scratch of the kernels. */
typedef struct {
    double *base;
    unsigned n, nz, z0; /* of each side; planes here, the first of them */
    unsigned items;     /* of the history */
    unsigned iteration;
    int in, out;    /* CG_MATRIX: vectors */
    int with_sums;  /* write `sums` */
    int with_faces; /* MATRIX: keep out's (START keeps f's, DIRECT p's, STEP w's) */
    int classic;    /* START: p = f, not 0 */
} cg_args_t;

typedef struct {
    double alpha, beta;
} cg_scalars_t;

CG_FN size_t cg_plane(const cg_args_t *a)
{
    return (size_t) a->n * a->n;
}

CG_FN size_t cg_count(const cg_args_t *a)
{
    return cg_plane(a) * a->nz;
}

CG_FN double *cg_vector(const cg_args_t *a, int v)
{
    return a->base + (size_t) v * cg_count(a);
}

CG_FN double *cg_faces(const cg_args_t *a)
{
    return cg_vector(a, CG_VECTORS);
}

CG_FN double *cg_halo(const cg_args_t *a)
{
    return cg_faces(a) + 2 * cg_plane(a);
}

CG_FN double *cg_sums(const cg_args_t *a)
{
    return cg_halo(a) + 2 * cg_plane(a);
}

CG_FN double *cg_item(const cg_args_t *a, unsigned iteration)
{
    return cg_sums(a) + CG_ITEM * (1 + (size_t) iteration);
}

/* Of sums.h. */
CG_FN double *cg_scratch(const cg_args_t *a)
{
    return cg_item(a, a->items);
}

/* Doubles from base on, in all. */
CG_FN size_t cg_doubles(const cg_args_t *a)
{
    return (size_t) (cg_scratch(a) - a->base) + 2 * CG_BLOCKS + 1;
}

/* ---- the problem ------------------------------------------------------------------------------------------------- */

/* The solution: noise in [0, 1), so that a value in a wrong place is seen; 0 outside of the cube. */
CG_FN double cg_solution(unsigned n, long x, long y, long z)
{
    const long m = (long) n;
    unsigned h;

    if (x < 0 || y < 0 || z < 0 || x >= m || y >= m || z >= m) {
        return 0;
    }
    h = (unsigned) ((z * m + y) * m + x) * 0x9e3779b1u + 0x7f4a7c15u;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    return (h ^ (h >> 16)) / 4294967296.0;
}

/* The right side of a rank's unknown i. */
CG_FN double cg_right_side(const cg_args_t *a, unsigned i)
{
    const unsigned plane = a->n * a->n;
    const long x = i % plane % a->n, y = i % plane / a->n, z = (long) a->z0 + i / plane;

    return 6 * cg_solution(a->n, x, y, z) - cg_solution(a->n, x - 1, y, z) - cg_solution(a->n, x + 1, y, z) -
           cg_solution(a->n, x, y - 1, z) - cg_solution(a->n, x, y + 1, z) - cg_solution(a->n, x, y, z - 1) -
           cg_solution(a->n, x, y, z + 1);
}

/* Keeps what the neighbours need of a vector. */
CG_FN void cg_face(const cg_args_t *a, unsigned i, double value)
{
    const size_t plane = cg_plane(a), last = cg_count(a) - plane;

    if (i < plane) {
        cg_faces(a)[i] = value;
    }
    if (i >= last) {
        cg_faces(a)[plane + i - last] = value;
    }
}

/* ---- the kernels: of each, its scalars, once a thread, and its work on element i -----------------------------------
 */

CG_FN cg_scalars_t cg_start_scalars(const cg_args_t *a)
{
    const cg_scalars_t none = {0, 0};

    (void) a;
    return none;
}

CG_FN void cg_start(const cg_args_t *a, const cg_scalars_t *c, unsigned i, double sum[2])
{
    const size_t plane = cg_plane(a);
    const double f = cg_right_side(a, i);

    (void) c;
    cg_vector(a, CG_X)[i] = cg_vector(a, CG_S)[i] = cg_vector(a, CG_Z)[i] = 0;
    cg_vector(a, CG_R)[i] = f;
    cg_vector(a, CG_P)[i] = a->classic ? f : 0;
    cg_face(a, i, f);
    if (i < plane) {
        cg_halo(a)[i] = cg_halo(a)[plane + i] = 0;
    }
    sum[0] += f * f;
}

CG_FN cg_scalars_t cg_matrix_scalars(const cg_args_t *a)
{
    return cg_start_scalars(a);
}

CG_FN void cg_matrix(const cg_args_t *a, const cg_scalars_t *c, unsigned i, double sum[2])
{
    const double *in = cg_vector(a, a->in), *halo = cg_halo(a);
    const unsigned n = a->n, plane = n * n, z = i / plane, rest = i % plane, y = rest / n, x = rest % n;
    const double below = 0 == z ? halo[rest] : in[i - plane],
                 above = a->nz - 1 == z ? halo[plane + rest] : in[i + plane];
    const double value = 6 * in[i] - (0 == x ? 0 : in[i - 1]) - (n - 1 == x ? 0 : in[i + 1]) -
                         (0 == y ? 0 : in[i - n]) - (n - 1 == y ? 0 : in[i + n]) - below - above;

    (void) c;
    cg_vector(a, a->out)[i] = value;
    if (a->with_faces) {
        cg_face(a, i, value);
    }
    sum[0] += in[i] * in[i];
    sum[1] += in[i] * value;
}

CG_FN cg_scalars_t cg_update_scalars(const cg_args_t *a)
{
    const double *now = cg_item(a, a->iteration);
    const cg_scalars_t c = {now[CG_GAMMA] / now[CG_DELTA], 0};

    return c;
}

CG_FN void cg_update(const cg_args_t *a, const cg_scalars_t *c, unsigned i, double sum[2])
{
    const double r = cg_vector(a, CG_R)[i] - c->alpha * cg_vector(a, CG_Q)[i];

    cg_vector(a, CG_X)[i] += c->alpha * cg_vector(a, CG_P)[i];
    cg_vector(a, CG_R)[i] = r;
    sum[0] += r * r;
}

CG_FN cg_scalars_t cg_direct_scalars(const cg_args_t *a)
{
    const cg_scalars_t c = {0, cg_item(a, a->iteration + 1)[CG_GAMMA] / cg_item(a, a->iteration)[CG_GAMMA]};

    return c;
}

CG_FN void cg_direct(const cg_args_t *a, const cg_scalars_t *c, unsigned i, double sum[2])
{
    const double p = cg_vector(a, CG_R)[i] + c->beta * cg_vector(a, CG_P)[i];

    (void) sum;
    cg_vector(a, CG_P)[i] = p;
    cg_face(a, i, p);
}

/* The recurrences of P. Ghysels and W. Vanroose, Hiding global synchronization latency in the preconditioned Conjugate
 * Gradient algorithm, Parallel Computing 40 (2014), without preconditioner. */
CG_FN cg_scalars_t cg_step_scalars(const cg_args_t *a)
{
    const double *now = cg_item(a, a->iteration);
    cg_scalars_t c = {now[CG_GAMMA] / now[CG_DELTA], 0};

    if (a->iteration > 0) {
        const double *before = cg_item(a, a->iteration - 1);

        c.beta = now[CG_GAMMA] / before[CG_GAMMA];
        c.alpha = now[CG_GAMMA] / (now[CG_DELTA] - c.beta * now[CG_GAMMA] / before[CG_ALPHA]);
    }
    return c;
}

CG_FN void cg_step(const cg_args_t *a, const cg_scalars_t *c, unsigned i, double sum[2])
{
    const double z = cg_vector(a, CG_Q)[i] + c->beta * cg_vector(a, CG_Z)[i];
    const double s = cg_vector(a, CG_W)[i] + c->beta * cg_vector(a, CG_S)[i];
    const double p = cg_vector(a, CG_R)[i] + c->beta * cg_vector(a, CG_P)[i];
    const double r = cg_vector(a, CG_R)[i] - c->alpha * s, w = cg_vector(a, CG_W)[i] - c->alpha * z;

    cg_vector(a, CG_Z)[i] = z;
    cg_vector(a, CG_S)[i] = s;
    cg_vector(a, CG_P)[i] = p;
    cg_vector(a, CG_X)[i] += c->alpha * p;
    cg_vector(a, CG_R)[i] = r;
    cg_vector(a, CG_W)[i] = w;
    cg_face(a, i, w);
    if (0 == i) { /* nobody reads this iteration's before the next launch */
        cg_item(a, a->iteration)[CG_ALPHA] = c->alpha;
    }
    sum[0] += r * r;
    sum[1] += w * r;
}

#endif
