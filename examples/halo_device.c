/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory and launches of examples/halo: see halo_device.h.
 */
#include <stdlib.h>

#include "bench/memory.h"
#include "bench/ranks.h"
#include "examples/halo_device.h"
#include "examples/module.h"
#include "examples/stream.h"
#include "test/mpi/mem.h"

static const struct {
    size_t (*elements)(const halo_args_t *a);
    void (*element)(const halo_args_t *a, unsigned e);
} kernels[] = {
#define HALO_KERNEL(id, name, elements) {elements, halo_##name},
    HALO_KERNELS
#undef HALO_KERNEL
};

/* ---- a GPU ------------------------------------------------------------------------------------------------------- */

static const char *const names[] = {
#define HALO_KERNEL(id, name, elements) "halo_kernel_" #name,
    HALO_KERNELS
#undef HALO_KERNEL
};

#ifdef HALO_FATBIN
extern const unsigned char halo_fatbin[]; /* fatbins.c */
#define IMAGE halo_fatbin
#else
#define IMAGE NULL
#endif

/* ---- none -------------------------------------------------------------------------------------------------------- */

#define PIECES (2 + 2 * HALO_FACES)

static halo_args_t copy; /* the same in memory of the CPU */

/* The allocations of a problem. */
static double **piece(halo_args_t *a, int number)
{
    return number < 2                ? &a->field[number]
           : number < 2 + HALO_FACES ? &a->send[number - 2]
                                     : &a->receive[number - 2 - HALO_FACES];
}

static size_t piece_bytes(const halo_args_t *a, int number)
{
    return (number < 2 ? halo_array(a) : halo_face(a)) * sizeof(double);
}

static void copy_open(const halo_args_t *problem)
{
    copy = *problem;
    for (int p = 0; p < PIECES; p++) {
        *piece(&copy, p) = calloc(1, piece_bytes(problem, p));
        if (NULL == *piece(&copy, p)) {
            bench_die("no host memory");
        }
    }
}

static void copy_close(void)
{
    for (int p = 0; p < PIECES; p++) {
        free(*piece(&copy, p));
    }
}

static void copy_launch(int id, const halo_args_t *a)
{
    halo_args_t there = *a;

    stream_wait(); /* the order of the stream */
    copy.in = a->in;
    for (int p = 0; p < PIECES; p++) {
        mem_read(*piece(&copy, p), *piece(&there, p), piece_bytes(a, p));
    }
    for (unsigned e = 0; e < kernels[id].elements(a); e++) {
        kernels[id].element(&copy, e);
    }
    for (int p = 0; p < PIECES; p++) {
        mem_write(*piece(&there, p), *piece(&copy, p), piece_bytes(a, p));
    }
}

/* ---- either ------------------------------------------------------------------------------------------------------ */

void halo_device_open(halo_args_t *problem)
{
    for (int p = 0; p < PIECES; p++) {
        *piece(problem, p) = bench_alloc(piece_bytes(problem, p));
    }
    if (bench_cu.there) {
        module_open(IMAGE, names, HALO_KERNEL_COUNT);
    } else {
        copy_open(problem);
    }
}

void halo_device_close(halo_args_t *problem)
{
    if (bench_cu.there) {
        module_close();
    } else {
        copy_close();
    }
    for (int p = 0; p < PIECES; p++) {
        bench_free(*piece(problem, p));
    }
}

void halo_launch(int id, const halo_args_t *a)
{
    if (bench_cu.there) {
        module_launch(id, kernels[id].elements(a), HALO_BLOCKS, HALO_THREADS, a);
    } else {
        copy_launch(id, a);
    }
}

void halo_wait(void)
{
    stream_wait();
}
