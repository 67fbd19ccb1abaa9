/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory and launches of examples/cg: see cg_device.h.
 */
#include <stdlib.h>

#include "bench/memory.h"
#include "bench/ranks.h"
#include "examples/cg_device.h"
#include "examples/module.h"
#include "examples/stream.h"
#include "test/mpi/mem.h"

static const struct {
    cg_scalars_t (*scalars)(const cg_args_t *a);
    void (*element)(const cg_args_t *a, const cg_scalars_t *c, unsigned i, double sum[2]);
} kernels[] = {
#define CG_KERNEL(id, name) {cg_##name##_scalars, cg_##name},
    CG_KERNELS
#undef CG_KERNEL
};

/* ---- a GPU ------------------------------------------------------------------------------------------------------- */

static const char *const names[] = {
#define CG_KERNEL(id, name) "cg_kernel_" #name,
    CG_KERNELS
#undef CG_KERNEL
};

#ifdef CG_FATBIN
extern const unsigned char cg_fatbin[]; /* fatbins.c */
#define IMAGE cg_fatbin
#else
#define IMAGE NULL
#endif

/* ---- none -------------------------------------------------------------------------------------------------------- */

static double *copy;

/* A collective in flight reads the sums and writes the history, beside a launch that uses neither: the product without
 * sums. Such a launch leaves them alone, in both directions. */
static void copy_launch(int id, const cg_args_t *a)
{
    const size_t vectors = (size_t) (cg_sums(a) - a->base);
    const size_t read = CG_MATRIX == id && !a->with_sums ? vectors : cg_doubles(a);
    const size_t written = a->with_sums ? cg_doubles(a) : vectors;
    cg_args_t here = *a;
    cg_scalars_t c;
    double sum[2] = {0, 0};

    mem_read(copy, a->base, read * sizeof(double));
    here.base = copy;
    c = kernels[id].scalars(&here);
    for (unsigned i = 0; i < cg_count(a); i++) {
        kernels[id].element(&here, &c, i, sum);
    }
    if (a->with_sums) {
        cg_sums(&here)[0] = sum[0];
        cg_sums(&here)[1] = sum[1];
    }
    mem_write(a->base, copy, written * sizeof(double));
}

/* ---- either ------------------------------------------------------------------------------------------------------ */

void cg_device_open(cg_args_t *problem)
{
    size_t doubles = cg_doubles(problem);

    problem->base = bench_alloc(doubles * sizeof(double));
    copy = calloc(doubles, sizeof(double));
    if (NULL == copy) {
        bench_die("no host memory");
    }
    mem_write(problem->base, copy, doubles * sizeof(double));
    if (bench_cu.there) {
        module_open(IMAGE, names, CG_KERNEL_COUNT);
    }
    stream_open();
}

void cg_device_close(cg_args_t *problem)
{
    if (bench_cu.there) {
        module_close();
    }
    stream_close();
    free(copy);
    bench_free(problem->base);
}

void cg_launch(int id, const cg_args_t *a)
{
    if (bench_cu.there) {
        module_launch(id, cg_count(a), CG_BLOCKS, CG_THREADS, a);
    } else {
        stream_wait();
        copy_launch(id, a);
    }
}
