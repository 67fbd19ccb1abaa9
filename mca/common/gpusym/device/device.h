/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The device table: the interface of the project to a GPU.  device/cuda and device/sim provide one table each, and
 * select.h chooses between them.  Every function may be called from any thread, preserves the caller's current GPU and
 * context, neither fails nor spoils a graph because the program captures a stream, and returns GPUSYM_SUCCESS or a
 * negative error.
 */
#ifndef GPUSYM_COMMON_DEVICE_H
#define GPUSYM_COMMON_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/topo/links.h"

/* The kind of memory that a pointer refers to. */
typedef enum {
    GPUSYM_MEM_HOST = 0,   /* ordinary host memory: the GPU cannot be assumed to reach it */
    GPUSYM_MEM_DEVICE,     /* memory of one GPU; the CPU must not touch it */
    GPUSYM_MEM_MANAGED,    /* reachable from both, migrates */
    GPUSYM_MEM_REGISTERED, /* host memory that the GPU can reach (pinned or registered) */
    GPUSYM_MEM_NONE,       /* no memory: a buffer that the call does not touch; query() never returns it */
} gpusym_mem_kind_t;

typedef struct {
    gpusym_mem_kind_t kind;
    int gpu;       /* ordinal, in this process, of the GPU that owns it; -1 for none */
    void *context; /* the driver's context that owns it, if any; compared, never dereferenced */
    uint64_t id;   /* of the allocation, as gpusym_range_t.id; 0: call mem_range (memory of the virtual memory
                       * interface, whose mapping at an address may change) */
} gpusym_mem_t;

/* A GPU in use by this process (a context on it, retained).  Owned by the table. */
typedef struct gpusym_gpu gpusym_gpu_t;
/* An in-order queue of work on a GPU. */
typedef struct gpusym_stream gpusym_stream_t;
/* An executable launch that can be repeated. */
typedef struct gpusym_graph gpusym_graph_t;

typedef struct {
    int ordinal;          /* in this process */
    uint8_t uuid[16];     /* the same in every process that sees this GPU */
    char name[64];        /* "NVIDIA H200", "simulated GPU" */
    char where[32];       /* "0000:1b:00.0", "pid 1234" */
    int sm_count;         /* multiprocessors */
    bool mps;             /* shared by an MPS daemon */
    bool multicast;       /* it has multicast objects, and the driver too */
    bool clusters;        /* blocks of a launch can be a cluster */
    int cc;               /* compute capability, 10 * major + minor; 0 on the simulator */
    uint64_t bytes;       /* memory of the GPU */
    unsigned gbs;         /* bandwidth of that memory, in 10^9 bytes per second; 0: not known */
    gpusym_place_t place; /* in this host */
} gpusym_gpu_info_t;

/* Names an allocation to another process of the same host.  Plain bytes, to be sent as they are. */
typedef struct {
    uint8_t bytes[96];
} gpusym_handle_t;

/* An operation of a stream on a flag in the slot of any rank, or in pinned memory.  wait: waits until the flag is at
 * least value (as a signed difference of 32 bits).  Otherwise: sets the flag to value after all earlier work of the
 * stream is visible to all ranks. */
typedef struct {
    bool wait;
    uint32_t *at;
    uint32_t value;
} gpusym_stream_flag_t;

/* The allocation that a pointer lies in. */
typedef struct {
    void *base;
    uint64_t size;  /* in bytes, from base on */
    uint64_t id;    /* unique as long as the allocation exists or is exported.  With base and size it distinguishes an
                     * allocation from an earlier one at the same address */
    bool shareable; /* mem_export supports it.  CUDA: memory of cudaMalloc and its like, and memory of cuMemCreate whose
                     * handle may be a file descriptor, within one mapping of cuMemMap; not memory of cudaMallocAsync,
                     * nor managed memory */
    bool part; /* it is part of a block of the driver's, all of which peers map.  CUDA: memory of cudaMalloc of less
                     * than 2 MiB */
} gpusym_range_t;

/* A multicast object: a store to it reaches the same offset of every member's memory. */
typedef struct gpusym_mc gpusym_mc_t;

typedef struct gpusym_device {
    const char *name; /* "cuda", "sim" */
    bool simulated;

    /* Checks whether this kind of device is available.  cuda: whether there is a driver; open does not start it, and
     * the first gpu_open finds out whether it has a GPU.  Creates no context.  Idempotent. GPUSYM_ERR_NOT_AVAILABLE:
     * not available; *why is a static or table-owned text. */
    int (*open)(const char **why);
    /* Releases everything, after queued work has ended.  GPUs, streams and memory must not be used afterwards. */
    void (*close)(void);

    /* Returns the kind and owner of the memory at p.  Never fails: an unknown pointer is host memory.  About 0.1 us;
     * with gpusym_cuda_wait_legacy_stream it waits. At the first question about an allocation it may make the driver
     * treat that as MPI wants it, and waits for what the legacy stream has: 10 us. That ends no capture of a stream. */
    void (*query)(const void *p, gpusym_mem_t *mem);

    /* The same without any effect on the memory, and without a wait. */
    void (*look)(const void *p, gpusym_mem_t *mem);

    /* Returns the allocation that contains p, whoever created it; of an imported one, as much as is mapped here.
     * GPUSYM_ERR_NOT_AVAILABLE: the device knows no allocation there (host memory, freed memory).  About 0.2 us. */
    int (*mem_range)(const void *p, gpusym_range_t *range);

    /* The GPUs that this process may use, by ordinal, without opening any: these functions create no context.
     * gpu_count starts the driver. gpu_current: -1: the calling thread has no current GPU. gpu_look: as gpu_info.
     * gpu_reaches: whether kernels and copies of one GPU reach the memory of another, given the same process.
     * GPUSYM_ERR_BAD_PARAM: no GPU has this ordinal; GPUSYM_ERR_NOT_AVAILABLE: there is no GPU. */
    int (*gpu_count)(int *count);
    int (*gpu_current)(void);
    /* Returns whether this process uses a GPU, in whatever thread: there is a context.  The simulator: gpu_open has
     * been called, or all memory counts as a GPU's.  Starts no driver. */
    bool (*gpu_in_use)(void);
    int (*gpu_look)(int ordinal, gpusym_gpu_info_t *info);
    int (*gpu_reaches)(int from, int to, bool *reaches);

    /* Opens the GPU that owns mem (mem->gpu, in mem->context if known); if mem is NULL or has no owner, the caller's
     * current GPU, otherwise GPU 0.  Returns the same object for the same GPU and context.  It is valid until
     * close(). */
    int (*gpu_open)(const gpusym_mem_t *mem, gpusym_gpu_t **gpu);
    /* Returns whether the objects of the GPU still exist.  A program may destroy its context (cudaDeviceReset), as does
     * the end of the process.  In that case pinned memory must not be touched, and only functions that release objects
     * may be called.  About 1 us. */
    bool (*gpu_alive)(gpusym_gpu_t *gpu);
    void (*gpu_info)(gpusym_gpu_t *gpu, gpusym_gpu_info_t *info);
    /* Tells that other processes use this GPU too, for ever: from now on copy and copy_async avoid, where they can,
     * what makes the GPU switch between processes (140 us).  NULL: the device does not care.  Any thread. */
    void (*gpu_crowded)(gpusym_gpu_t *gpu);
    /* The class (topo/links.h) of the link to a peer's GPU, where the driver alone tells it, in microseconds: NVLinks
     * as good as any here are GPUSYM_LINK_NVLINK + 1, however many; GPUSYM_LINK_SELF. GPUSYM_ERR_NOT_AVAILABLE: ask
     * gpusym_topo_link(). */
    int (*gpu_link)(gpusym_gpu_t *gpu, const gpusym_place_t *peer);

    /* Allocates size bytes of GPU memory, 256-byte aligned, which mem_export supports.  The caller frees it by
     * mem_free. */
    int (*mem_alloc)(gpusym_gpu_t *gpu, size_t size, void **p);
    int (*mem_free)(gpusym_gpu_t *gpu, void *p);
    /* Zeroes size bytes at p.  Complete on return. */
    int (*mem_zero)(gpusym_gpu_t *gpu, void *p, size_t size);

    /* Memory at addresses that were reserved before, so that more can follow it (CUDA: the virtual memory interface),
     * and which mem_export supports.  All NULL: the device has none.
     * vmm_reserve rounds *size, the bytes of one piece, up to what the GPU can map, and reserves addresses for n of
     * them; there is no memory yet.  The caller ends that by vmm_release, with the rounded size, before close, when
     * nothing is mapped there.  vmm_map allocates size bytes, undefined, for one piece, at addresses of it that have
     * none; vmm_unmap frees them, when no work uses them.  Peers that have imported them keep them.
     * GPUSYM_ERR_NOT_AVAILABLE: this GPU, or its driver, has none that peers could import.  After an error nothing is
     * held. */
    int (*vmm_reserve)(gpusym_gpu_t *gpu, size_t *size, unsigned n, void **at);
    int (*vmm_release)(gpusym_gpu_t *gpu, void *at, size_t size, unsigned n);
    int (*vmm_map)(gpusym_gpu_t *gpu, void *at, size_t size);
    int (*vmm_unmap)(gpusym_gpu_t *gpu, void *at, size_t size);

    /* Exports an allocation of any size to other processes on this host.  p: its base, from mem_alloc or, if mem_range
     * reports it as shareable, allocated by the program.  If it is freed while peers map it, they must not use their
     * mappings, but may unmap them.  GPUSYM_ERR_UNREACHABLE, GPUSYM_ERR_BAD_PARAM: cannot be exported. */
    int (*mem_export)(gpusym_gpu_t *gpu, void *p, gpusym_handle_t *handle);
    /* Ends an export; call it once for each mem_export, before close.  Peers keep their mappings, and no peer can
     * create a new one.  Until then the process may hold a descriptor, and freed memory is not released.  Not needed
     * for memory of mem_alloc. */
    int (*mem_unexport)(gpusym_gpu_t *gpu, const gpusym_handle_t *handle);
    /* Maps an exported allocation from its base on; *p is a device pointer for kernels and copies.  mem_unimport unmaps
     * it. A process may import its own exports (several ranks as threads).  GPUSYM_ERR_UNREACHABLE: the allocation
     * cannot be mapped, or no longer exists.  Both functions may wait for running work of the GPU, which must not wait
     * for the caller. */
    int (*mem_import)(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, void **p);
    int (*mem_unimport)(gpusym_gpu_t *gpu, void *p);

    /* Allocates pinned host memory, zeroed: *host for the CPU, *dev for the kernels.  The caller frees *host by
     * host_free. */
    int (*host_alloc)(gpusym_gpu_t *gpu, size_t size, void **host, void **dev);
    int (*host_free)(gpusym_gpu_t *gpu, void *host);
    /* Pins memory that the caller has mapped, whole pages, shared with other processes say: *dev for the GPU.  Each
     * process does so for itself.  The caller ends it by host_unregister, before it unmaps the memory.  About 1 ms for
     * 10 MiB. */
    int (*host_register)(gpusym_gpu_t *gpu, void *host, size_t size, void **dev);
    int (*host_unregister)(gpusym_gpu_t *gpu, void *host);

    /* Copies size bytes between any two kinds of memory.  Complete on return.  The CPU accesses no device memory. */
    int (*copy)(gpusym_gpu_t *gpu, void *dst, const void *src, size_t size);

    /* The caller destroys the stream by stream_destroy, which lets queued work end. */
    int (*stream_create)(gpusym_gpu_t *gpu, gpusym_stream_t **stream);
    void (*stream_destroy)(gpusym_stream_t *stream);
    /* Returns 1 if all queued work has ended, 0 if not, a negative error if the GPU reports one. */
    int (*stream_poll)(gpusym_stream_t *stream);

    /* A stream of the program, by the handle that the program has (CUDA: a CUstream, or one of the handles for the
     * legacy stream and that of the thread), for launches and copies. The caller ends it by stream_unwrap, which leaves
     * the program's stream as it is. Cheap. GPUSYM_ERR_BAD_PARAM: it is no stream of this GPU, as far as is found
     * out. */
    int (*stream_wrap)(gpusym_gpu_t *gpu, void *handle, gpusym_stream_t **stream);
    void (*stream_unwrap)(gpusym_stream_t *stream);
    /* Whether the stream is being captured into a graph: what is queued is not run then. */
    int (*stream_captured)(gpusym_stream_t *stream, bool *captured);

    /* Loads the module of the kernels.  GPUSYM_ERR_NOT_AVAILABLE, with *why: kernels cannot run on this GPU. */
    int (*kernels_load)(gpusym_gpu_t *gpu, const char **why);
    /* The same of the kernels for streams of the program, which are not in that module. kernels_load has returned
     * success. */
    int (*stream_kernels_load)(gpusym_gpu_t *gpu, const char **why);
    /* Queues a kernel with w->nblocks blocks of w->nthreads threads. w is copied. */
    int (*launch)(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w);
    /* As launch, by an executable graph, which costs less than a launch.  Creates *graph if it is NULL; the caller
     * destroys it by graph_destroy.  Kernel and launch geometry may differ from call to call, but clusters have a graph
     * of their own.  All streams belong to
     * one GPU, and one thread uses a graph at a time.  After an error nothing is queued; if *graph is NULL, no graph
     * can be created, and launch may work.  NULL: the device has no graphs. */
    int (*graph_launch)(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w);
    /* The launches of the graph must have ended. */
    void (*graph_destroy)(gpusym_graph_t *graph);
    /* Queues a copy between any two kinds of memory. Either side may lie in several allocations that touch. */
    int (*copy_async)(gpusym_stream_t *stream, void *dst, const void *src, size_t size);
    /* Queues n flag operations, in order, without a kernel.  A waiting stream may block other streams of the process.
     * NULL: the device does not support this. */
    int (*stream_flags)(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n);
    /* Queues a copy of height rows of width bytes, which begin dpitch and spitch bytes apart, between memory that the
     * GPU reaches. Rows of dst must not overlap each other nor src. GPUSYM_ERR_BAD_PARAM: a pitch below width (where
     * there are two rows or more), or sizes beyond what 64 bits count. */
    int (*copy2d_async)(gpusym_stream_t *stream, void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                        size_t height);

    /* Multicast objects.  All NULL: the device has none.  The ranks take these steps together, each of them after all
     * have done the one before:
     *   mc_create  one rank makes the object, for `members` GPUs with `size` bytes each, and gets its handle for the
     *              others.  setting: of coll_gpusym_multicast.  This is the one function of a device that makes such
     *              objects, and it asks gpusym_multicast_allowed() (multicast.h) before anything else;
     *   mc_import  the others open it;
     *   mc_add     each rank adds its GPU;
     *   mc_bind    each rank binds `size` bytes at p, of its own memory (CUDA: of vmm_map, at one offset of a piece on
     *              all ranks), as number `member`; *mp is a pointer for the multimem primitives.  Before all have added
     *              theirs a driver would wait for them without end;
     *   mc_free    each rank gives its object up, whatever it has done of this, when no kernel of any rank uses it.
     * After an error of create or import nothing is held.  GPUSYM_ERR_NOT_AVAILABLE: forbidden, or this GPU, its driver
     * or this kind of memory has none. */
    int (*mc_create)(gpusym_gpu_t *gpu, int setting, unsigned members, size_t size, gpusym_mc_t **mc,
                     gpusym_handle_t *handle);
    int (*mc_import)(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, gpusym_mc_t **mc);
    int (*mc_add)(gpusym_mc_t *mc);
    int (*mc_bind)(gpusym_mc_t *mc, unsigned member, void *p, size_t size, void **mp);
    void (*mc_free)(gpusym_mc_t *mc);

    /* Returns the text of the calling thread's last error, as the driver reported it.  Never NULL. */
    const char *(*error)(void);
} gpusym_device_t;

#endif
