/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The device table: all that the rest of the project knows of a GPU.  device/cuda and device/sim fill one each, and
 * select.h chooses between them.  Every function may be called from any thread, leaves the caller's current GPU and
 * context as they were, and returns GPUSYM_SUCCESS or a negative error.
 */
#ifndef GPUSYM_COMMON_DEVICE_H
#define GPUSYM_COMMON_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/topo/links.h"

/* What a pointer points to. */
typedef enum {
    GPUSYM_MEM_HOST = 0,   /* ordinary host memory: the GPU cannot be assumed to reach it */
    GPUSYM_MEM_DEVICE,     /* memory of one GPU; the CPU must not touch it */
    GPUSYM_MEM_MANAGED,    /* reachable from both, migrates */
    GPUSYM_MEM_REGISTERED, /* host memory that the GPU can reach (pinned or registered) */
    GPUSYM_MEM_NONE,       /* no memory: what a call does not touch; query() never says this */
} gpusym_mem_kind_t;

typedef struct {
    gpusym_mem_kind_t kind;
    int gpu;          /* ordinal, in this process, of the GPU that owns it; -1 for none */
    void *context;    /* the driver's context that owns it, if any; compared, never followed */
    uint64_t id;      /* of the allocation, as gpusym_range_t.id; 0: mem_range is to be asked (memory of the virtual memory
                       * interface: what is mapped at an address may change) */
} gpusym_mem_t;

/* A GPU in use by this process (a context on it, retained).  Owned by the table. */
typedef struct gpusym_gpu gpusym_gpu_t;
/* An in-order queue of work on a GPU. */
typedef struct gpusym_stream gpusym_stream_t;
/* A launch that is kept, to be made again. */
typedef struct gpusym_graph gpusym_graph_t;

typedef struct {
    int ordinal;       /* in this process */
    uint8_t uuid[16];  /* the same in every process that sees this GPU */
    char name[64];     /* "NVIDIA H200", "simulated GPU" */
    char where[32];    /* "0000:1b:00.0", "pid 1234" */
    int sm_count;      /* multiprocessors */
    int cc;            /* compute capability, 10 * major + minor; 0 on the simulator */
    uint64_t bytes;    /* memory of the GPU */
    gpusym_place_t place; /* in this host */
} gpusym_gpu_info_t;

/* A peer's allocation, to be sent to another process of the same host. Plain bytes. */
typedef struct {
    uint8_t bytes[96];
} gpusym_handle_t;

/* What a stream does with a flag, of any rank's slot: waits until it is at least value (a difference of 32 bits with a sign),
 * or sets it to value once all that the stream did before can be read by everyone. */
typedef struct {
    bool wait;
    uint32_t *at;
    uint32_t value;
} gpusym_stream_flag_t;

/* The allocation that a pointer lies in. */
typedef struct {
    void *base;
    uint64_t size;  /* in bytes, from base on */
    uint64_t id;    /* no other allocation has it, as long as this one is there or exported: so, with base and size, it tells
                     * memory that was freed and allocated again at the same address from what was there */
    bool shareable; /* mem_export can name it: on CUDA, memory of cudaMalloc and its like of at least 2 MiB, which has
                     * a block of its own, and memory of cuMemCreate whose handle may be a file descriptor: what cuMemMap
                     * mapped in one piece; not cudaMallocAsync's, nor managed */
} gpusym_range_t;

/* A multicast object: a store to it reaches the same offset of every member's memory. */
typedef struct gpusym_mc gpusym_mc_t;

typedef struct gpusym_device {
    const char *name; /* "cuda", "sim" */
    bool simulated;

    /* Looks whether this kind of device is here (cuda: whether there is a driver, which is not started: whether that
     * shows a GPU is known by the first gpu_open). Makes no context. Idempotent. stream_destroy and close let
     * queued work end.
     * GPUSYM_ERR_NOT_AVAILABLE with *why set to a static or table-owned text when it is not. */
    int (*open)(const char **why);
    /* Lets go of everything. GPUs, streams and memory must not be used afterwards. */
    void (*close)(void);

    /* What p points to; never fails (an unknown pointer is host memory). About 0.1 us. */
    void (*query)(const void *p, gpusym_mem_t *mem);

    /* The allocation p lies in, of whoever made it. GPUSYM_ERR_NOT_AVAILABLE where the device knows of none there:
     * host memory, memory that was freed. About 0.2 us. */
    int (*mem_range)(const void *p, gpusym_range_t *range);

    /* Takes the GPU that owns mem (mem->gpu, in mem->context where that is known) into use, or, for mem NULL
     * or without an owner, the caller's current GPU, else GPU 0. Returns the same object for the same
     * GPU and context. Lives until close(). */
    int (*gpu_open)(const gpusym_mem_t *mem, gpusym_gpu_t **gpu);
    /* Whether what was made on it is still there: a program may destroy its context (cudaDeviceReset), as the end of the process
     * does. If not, pinned memory must not be touched, and all that is left to do is to give objects back: the functions that
     * do that still may be called. About 1 us. */
    bool (*gpu_alive)(gpusym_gpu_t *gpu);
    void (*gpu_info)(gpusym_gpu_t *gpu, gpusym_gpu_info_t *info);
    /* The class (team.h) of the link to a peer's GPU, where the driver alone tells it, in microseconds: NVLinks as good as
     * any here are GPUSYM_LINK_NVLINK + 1, however many; GPUSYM_LINK_SELF. GPUSYM_ERR_NOT_AVAILABLE: ask
     * gpusym_topo_link(). */
    int (*gpu_link)(gpusym_gpu_t *gpu, const gpusym_place_t *peer);

    /* size bytes of the GPU's own memory, 256-byte aligned, shareable by mem_export. */
    int (*mem_alloc)(gpusym_gpu_t *gpu, size_t size, void **p);
    int (*mem_free)(gpusym_gpu_t *gpu, void *p);
    /* Zeroes; done when it returns. */
    int (*mem_zero)(gpusym_gpu_t *gpu, void *p, size_t size);

    /* Names an allocation, of any size, for another process on this host. p: its base, from mem_alloc or, where
     * mem_range says that it is shareable, the program's own. Where it is freed while peers map it, they may unmap
     * their mappings, and must not use them. GPUSYM_ERR_UNREACHABLE, GPUSYM_ERR_BAD_PARAM: cannot be named. */
    int (*mem_export)(gpusym_gpu_t *gpu, void *p, gpusym_handle_t *handle);
    /* Ends the naming, once for each mem_export and before close: peers that have mapped it keep their mappings, others can
     * no longer make one. Until then this process may hold a descriptor, and memory that was freed is not given
     * back. Nothing to do for memory of mem_alloc. */
    int (*mem_unexport)(gpusym_gpu_t *gpu, const gpusym_handle_t *handle);
    /* Maps it here, from its base on; *p is a device pointer for kernels and copies. mem_unimport ends it.
     * A process may import what it exported itself (several ranks as threads). GPUSYM_ERR_UNREACHABLE where it cannot
     * be mapped, or is gone. Either may wait for work that runs on the GPU: no such work may wait for the caller. */
    int (*mem_import)(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, void **p);
    int (*mem_unimport)(gpusym_gpu_t *gpu, void *p);

    /* Pinned host memory: *host for the CPU, *dev for the kernels. Zeroed. */
    int (*host_alloc)(gpusym_gpu_t *gpu, size_t size, void **host, void **dev);
    int (*host_free)(gpusym_gpu_t *gpu, void *host);

    /* Copies between any two kinds of memory; done when it returns. Touches no device pointer with the CPU. */
    int (*copy)(gpusym_gpu_t *gpu, void *dst, const void *src, size_t size);

    int (*stream_create)(gpusym_gpu_t *gpu, gpusym_stream_t **stream);
    void (*stream_destroy)(gpusym_stream_t *stream);
    /* 1: all that was queued has ended; 0: not yet; negative: the GPU reports an error. */
    int (*stream_poll)(gpusym_stream_t *stream);

    /* Whether kernels can run on this GPU; loads their module. GPUSYM_ERR_NOT_AVAILABLE and *why if not. */
    int (*kernels_load)(gpusym_gpu_t *gpu, const char **why);
    /* Queues a kernel with w->nblocks blocks of w->nthreads threads. w is copied. */
    int (*launch)(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w);
    /* As launch, for one that is made again and again: by *graph, which is made where that is NULL, and which costs less
     * than a launch does. Kernel and shape may differ from those of before. All streams are of one GPU; a graph is
     * used by one thread at a time. After an error nothing is queued; *graph NULL: none can be made, launch may do.
     * NULL: this device has no such thing. */
    int (*graph_launch)(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w);
    /* Its launches have ended. */
    void (*graph_destroy)(gpusym_graph_t *graph);
    /* Queues a copy between any two kinds of memory. */
    int (*copy_async)(gpusym_stream_t *stream, void *dst, const void *src, size_t size);
    /* Queues waits for flags and changes of flags, n of them, in their order: no kernel is needed for that. What waits in a
     * stream may keep other streams of the process from going on. NULL: this device cannot. */
    int (*stream_flags)(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n);
    /* Queues a copy of height rows of width bytes, which begin dpitch and spitch bytes apart, between memory that the
     * GPU reaches. Rows of dst must not overlap each other nor src. GPUSYM_ERR_BAD_PARAM: a pitch below width (where
     * there are two rows or more), or sizes beyond what 64 bits count. */
    int (*copy2d_async)(gpusym_stream_t *stream, void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                        size_t height);

    /* Multicast; all NULL where the device has none. Only gpusym_multicast_create() (multicast.h) may call
     * mc_create: the sites' vetoes are checked there. mc_create: one rank makes the object for
     * `members` allocations of `size` bytes and gets its handle; mc_import: the others join by handle;
     * mc_bind: each rank adds p (of its own mem_alloc); *mp: a pointer for the multimem primitives. */
    int (*mc_create)(gpusym_gpu_t *gpu, unsigned members, size_t size, gpusym_mc_t **mc, gpusym_handle_t *handle);
    int (*mc_import)(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, gpusym_mc_t **mc);
    int (*mc_bind)(gpusym_mc_t *mc, unsigned member, void *p, size_t size, void **mp);
    void (*mc_free)(gpusym_mc_t *mc);

    /* The last error of the calling thread in words: what the driver said. Never NULL. */
    const char *(*error)(void);
} gpusym_device_t;

#endif
