/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * GPU and host memory of the measuring programs, and the few functions of the CUDA driver that test/mpi/mem.h does not
 * offer: declared by hand and found by dlopen, so that the programs are built without CUDA's headers.
 */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* BENCH_DRIVER(name, parameters); CUdeviceptr is an integer as wide as a pointer, a result of 0 is success. */
#define BENCH_DRIVER_LIST                                                        \
    BENCH_DRIVER(cuCtxGetDevice, (int *device))                                  \
    BENCH_DRIVER(cuDeviceGetName, (char *name, int length, int device))          \
    BENCH_DRIVER(cuDriverGetVersion, (int *version))                             \
    BENCH_DRIVER(cuMemGetInfo_v2, (size_t * available, size_t * total))          \
    BENCH_DRIVER(cuMemHostAlloc, (void **p, size_t size, unsigned flags))        \
    BENCH_DRIVER(cuMemFreeHost, (void *p))                                       \
    BENCH_DRIVER(cuMemcpyDtoH_v2, (void *dst, uintptr_t src, size_t size))       \
    BENCH_DRIVER(cuMemcpyHtoD_v2, (uintptr_t dst, const void *src, size_t size)) \
    BENCH_DRIVER(cuStreamCreate, (void **stream, unsigned flags))                \
    BENCH_DRIVER(cuStreamDestroy_v2, (void *stream))                             \
    BENCH_DRIVER(cuStreamSynchronize, (void *stream))

#define BENCH_STREAM_NON_BLOCKING 1 /* CU_STREAM_NON_BLOCKING */

typedef struct {
    bool there;   /* false on the simulator and without a device: then nothing else is set */
    void *stream; /* of this program, non-blocking */
#define BENCH_DRIVER(name, parameters) int(*name) parameters;
    BENCH_DRIVER_LIST
#undef BENCH_DRIVER
} bench_driver_t;

/* Set by bench_memory_open(). */
extern bench_driver_t bench_cu;

/* A driver call that ends the job when it fails. */
#define BENCH_CU(name, ...) bench_cu_check(#name, bench_cu.name(__VA_ARGS__))
void bench_cu_check(const char *call, int result);
/* A function of the driver by name; ends the job if it has none. Only where bench_cu.there. */
void *bench_cu_function(const char *name);

/* Opens "cuda", "sim" or "host" with GPU local_rank; the GPU's context is then current in this thread. Ends the job
 * where there is no such device. */
void bench_memory_open(const char *device, int local_rank);
void bench_memory_close(void);

/* Name of our GPU, and CUDA's version as the driver counts it (13000; 0 without). */
void bench_gpu(char *name, size_t size, int *cuda);
/* Bytes free on our GPU, of all that use it; 0 without one. */
size_t bench_free_memory(void);

/* The kind of memory that is measured, as test/mpi/mem.h counts. */
int bench_memory_kind(void);
/* The memory that is measured: the GPU's, or the host's for device "host". Freed by bench_free(). Both end the job
 * rather than fail. Contents by mem_write() and mem_read() of test/mpi/mem.h. */
void *bench_alloc(size_t size);
void bench_free(void *p);
/* Host memory, pinned where there is a GPU. */
void *bench_host_alloc(size_t size);
void bench_host_free(void *p);

/* Between that host memory and the measured memory, as a user who stages would copy. Done when they return. */
void bench_to_host(void *host, const void *p, size_t size);
void bench_from_host(void *p, const void *host, size_t size);

#endif
