/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory and launches of examples/cg: see cg_device.h.
 */
#include <stdlib.h>

#include "bench/memory.h"
#include "bench/ranks.h"
#include "examples/cg_device.h"
#include "test/mpi/mem.h"

static const struct {
    const char *name; /* in the GPU's image */
    cg_scalars_t (*scalars)(const cg_args_t *a);
    void (*element)(const cg_args_t *a, const cg_scalars_t *c, unsigned i, double sum[2]);
} kernels[] = {
#define CG_KERNEL(id, name) {"cg_kernel_" #name, cg_##name##_scalars, cg_##name},
    CG_KERNELS
#undef CG_KERNEL
};

/* ---- a GPU ------------------------------------------------------------------------------------------------------- */

static struct {
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **parameters, void **extra);
    void *module, *functions[CG_KERNEL_COUNT];
} gpu;

#ifdef CG_FATBIN
extern const unsigned char cg_fatbin[]; /* cg_fatbin.c */

static const void *image(void)
{
    return cg_fatbin;
}
#else
static const void *image(void)
{
    bench_die("this program was built without nvcc and has no GPU kernels: use --device sim, or build it with nvcc");
}
#endif

static void gpu_open(void)
{
    int (*load)(void **module, const void *image), (*find)(void **function, void *module, const char *name);

    *(void **) &load = bench_cu_function("cuModuleLoadData");
    *(void **) &find = bench_cu_function("cuModuleGetFunction");
    *(void **) &gpu.launch = bench_cu_function("cuLaunchKernel");
    bench_cu_check("cuModuleLoadData", load(&gpu.module, image()));
    for (int k = 0; k < CG_KERNEL_COUNT; k++) {
        bench_cu_check("cuModuleGetFunction", find(&gpu.functions[k], gpu.module, kernels[k].name));
    }
}

static void gpu_close(void)
{
    int (*unload)(void *module);

    *(void **) &unload = bench_cu_function("cuModuleUnload");
    bench_cu_check("cuModuleUnload", unload(gpu.module));
}

static void gpu_launch(int id, const cg_args_t *a)
{
    const size_t blocks = (cg_count(a) + CG_THREADS - 1) / CG_THREADS;
    void *parameters[] = {(void *) a};

    bench_cu_check(kernels[id].name, gpu.launch(gpu.functions[id], blocks < CG_BLOCKS ? (unsigned) blocks : CG_BLOCKS,
                                                1, 1, CG_THREADS, 1, 1, 0, bench_cu.stream, parameters, NULL));
}

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
        gpu_open();
    }
}

void cg_device_close(cg_args_t *problem)
{
    if (bench_cu.there) {
        gpu_close();
    }
    free(copy);
    bench_free(problem->base);
}

void cg_launch(int id, const cg_args_t *a)
{
    if (bench_cu.there) {
        gpu_launch(id, a);
    } else {
        copy_launch(id, a);
    }
}

void cg_wait(void)
{
    if (bench_cu.there) {
        BENCH_CU(cuStreamSynchronize, bench_cu.stream);
    }
}
