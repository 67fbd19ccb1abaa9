/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The image of kernels and their launch: see module.h.
 */
#include "bench/memory.h"
#include "bench/ranks.h"
#include "examples/module.h"

static struct {
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **parameters, void **extra);
    void *module, *functions[MODULE_KERNELS_MAX];
    const char *const *names;
} gpu;

void module_open(const void *image, const char *const names[], int count)
{
    int (*load)(void **module, const void *image), (*find)(void **function, void *module, const char *name);

    if (NULL == image) {
        bench_die("this program was built without nvcc and has no GPU kernels: use --device sim, or build it with "
                  "nvcc");
    }
    *(void **) &load = bench_cu_function("cuModuleLoadData");
    *(void **) &find = bench_cu_function("cuModuleGetFunction");
    *(void **) &gpu.launch = bench_cu_function("cuLaunchKernel");
    bench_cu_check("cuModuleLoadData", load(&gpu.module, image));
    gpu.names = names;
    for (int k = 0; k < count; k++) {
        bench_cu_check("cuModuleGetFunction", find(&gpu.functions[k], gpu.module, names[k]));
    }
}

void module_close(void)
{
    int (*unload)(void *module);

    *(void **) &unload = bench_cu_function("cuModuleUnload");
    bench_cu_check("cuModuleUnload", unload(gpu.module));
}

void module_launch(int kernel, size_t elements, unsigned blocks, unsigned threads, const void *args)
{
    const size_t wanted = (elements + threads - 1) / threads;
    void *parameters[] = {(void *) args};

    bench_cu_check(gpu.names[kernel], gpu.launch(gpu.functions[kernel], wanted < blocks ? (unsigned) wanted : blocks, 1,
                                                 1, threads, 1, 1, 0, bench_cu.stream, parameters, NULL));
}
