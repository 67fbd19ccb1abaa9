/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory and launches of examples/jacobi: see jacobi_device.h.
 */
#include <stdlib.h>

#include "bench/memory.h"
#include "bench/ranks.h"
#include "examples/jacobi_device.h"
#include "examples/module.h"
#include "examples/stream.h"
#include "test/mpi/gpu_stream.h"
#include "test/mpi/mem.h"

static const struct {
    size_t (*elements)(const jacobi_args_t *a);
    void (*element)(const jacobi_args_t *a, unsigned e, double *sum);
} kernels[] = {
#define JACOBI_KERNEL(id, name, elements) {elements, jacobi_##name},
    JACOBI_KERNELS
#undef JACOBI_KERNEL
};

/* ---- a GPU ------------------------------------------------------------------------------------------------------- */

static const char *const names[] = {
#define JACOBI_KERNEL(id, name, elements) "jacobi_kernel_" #name,
    JACOBI_KERNELS
#undef JACOBI_KERNEL
};

#ifdef JACOBI_FATBIN
extern const unsigned char jacobi_fatbin[]; /* fatbins.c */
#define IMAGE jacobi_fatbin
#else
#define IMAGE NULL
#endif

/* ---- none -------------------------------------------------------------------------------------------------------- */

/* All launches that there are, on the CPU. They are not written once the stream may have one: a graph keeps it. */
typedef struct {
    int id;
    jacobi_args_t args;
} call_t;

static call_t calls[JACOBI_KERNEL_COUNT][JACOBI_FLAGS];
static double *copy; /* of the problem; with host memory not used */

static void calls_open(const jacobi_args_t *problem)
{
    for (int id = 0; id < JACOBI_KERNEL_COUNT; id++) {
        for (unsigned flags = 0; flags < JACOBI_FLAGS; flags++) {
            calls[id][flags] = (call_t){id, *problem};
            calls[id][flags].args.base = NULL == stream_handle() ? problem->base : copy;
            calls[id][flags].args.flags = flags;
        }
    }
}

static void run_call(void *argument)
{
    const call_t *call = argument;
    double sum = 0;

    for (unsigned e = 0; e < kernels[call->id].elements(&call->args); e++) {
        kernels[call->id].element(&call->args, e, &sum);
    }
    if (JACOBI_SWEEP == call->id && 0 != (call->args.flags & JACOBI_SUM)) {
        *jacobi_own(&call->args) = sum;
    }
}

/* Copies what a launch has written back, and no more: neighbours may put rows into the fields meanwhile. */
static void queue_results(int id, const jacobi_args_t *a)
{
    const size_t all = jacobi_doubles(a), numbers = (size_t) (jacobi_own(a) - a->base);
    const size_t row = jacobi_at(a, 1, 0);
    const size_t field = (size_t) (jacobi_field(a, 0 == (a->flags & JACOBI_SECOND)) - a->base);
    void *stream = stream_handle();

    if (JACOBI_START == id) {
        gpu_stream_copy(stream, a->base, copy, all * sizeof(double));
        return;
    }
    if (JACOBI_SWEEP == id) {
        gpu_stream_copy(stream, a->base + field + row, copy + field + row, a->n * row * sizeof(double));
    }
    gpu_stream_copy(stream, a->base + numbers, copy + numbers, (all - numbers) * sizeof(double));
}

static void queue_call(int id, const jacobi_args_t *a)
{
    const size_t bytes = jacobi_doubles(a) * sizeof(double);
    void *stream = stream_handle();
    call_t *call = &calls[id][a->flags];

    if (NULL == stream) {
        run_call(call);
        return;
    }
    gpu_stream_copy(stream, copy, a->base, bytes);
    gpu_stream_call(stream, run_call, call);
    queue_results(id, a);
}

/* ---- either ------------------------------------------------------------------------------------------------------ */

void jacobi_device_open(jacobi_args_t *problem)
{
    const size_t doubles = jacobi_doubles(problem);

    problem->base = bench_alloc(doubles * sizeof(double));
    copy = calloc(doubles, sizeof(double));
    if (NULL == copy) {
        bench_die("no host memory");
    }
    mem_write(problem->base, copy, doubles * sizeof(double));
    if (bench_cu.there) {
        module_open(IMAGE, names, JACOBI_KERNEL_COUNT);
    }
    stream_open();
    calls_open(problem);
}

void jacobi_device_close(jacobi_args_t *problem)
{
    if (bench_cu.there) {
        module_close();
    }
    stream_close();
    free(copy);
    bench_free(problem->base);
}

void jacobi_launch(int id, const jacobi_args_t *a)
{
    if (bench_cu.there) {
        module_launch(id, kernels[id].elements(a), JACOBI_BLOCKS, JACOBI_THREADS, a);
    } else {
        queue_call(id, a);
    }
}
