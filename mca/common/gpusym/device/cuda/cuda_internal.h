/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the CUDA device call of each other.  Only this folder includes it.
 *
 * Calls go one way: cuda_device.c calls all others; gpu.c calls multicast.c, that calls peer.c, and both of these
 * memory.c; all call driver.c, which calls none.
 */
#ifndef GPUSYM_COMMON_DEVICE_CUDA_INTERNAL_H
#define GPUSYM_COMMON_DEVICE_CUDA_INTERNAL_H

#include "mca/common/gpusym/device/cuda/driver.h"

#pragma GCC visibility push(hidden)

/* ---- gpu.c ---- */

int cuda_gpu_count(int *count);
int cuda_gpu_current(void);
bool cuda_gpu_in_use(void);
int cuda_gpu_look(int ordinal, gpusym_gpu_info_t *info);
int cuda_gpu_reaches(int from, int to, bool *reaches);
int cuda_gpu_open(const gpusym_mem_t *mem, gpusym_gpu_t **gpu);
bool cuda_gpu_alive(gpusym_gpu_t *gpu);
void cuda_gpu_info(gpusym_gpu_t *gpu, gpusym_gpu_info_t *info);
void cuda_gpu_crowded(gpusym_gpu_t *gpu);
int cuda_gpu_link(gpusym_gpu_t *gpu, const gpusym_place_t *peer);
/* Releases all GPUs; cuda_state.lock is held. */
void cuda_gpus_close(void);

/* ---- memory.c ---- */

/* Set in the ids of mapped memory: no BUFFER_ID of other memory is one of them. */
#define CUDA_MAPPED_ID (UINT64_C(1) << 63)

void cuda_query(const void *p, gpusym_mem_t *mem);
void cuda_look(const void *p, gpusym_mem_t *mem);
int cuda_mem_range(const void *p, gpusym_range_t *range);
int cuda_mem_alloc(gpusym_gpu_t *gpu, size_t size, void **p);
int cuda_mem_free(gpusym_gpu_t *gpu, void *p);
int cuda_mem_zero(gpusym_gpu_t *gpu, void *p, size_t size);
/* Maps memory at size bytes of reserved addresses, for gpu, which is current.  The mapping keeps the memory when its
 * handle is released. */
int cuda_map_at(gpusym_gpu_t *gpu, CUdeviceptr at, size_t size, CUmemGenericAllocationHandle memory);
/* The same at size bytes of new addresses, multiples of unit (0: of what mappings need), which cuda_map_end gives back.
 * After an error nothing is held. */
int cuda_map_new(gpusym_gpu_t *gpu, size_t size, size_t unit, CUmemGenericAllocationHandle memory, CUdeviceptr *at);
int cuda_map_end(gpusym_gpu_t *gpu, CUdeviceptr at, size_t size);
int cuda_vmm_reserve(gpusym_gpu_t *gpu, size_t *size, unsigned n, void **at);
int cuda_vmm_release(gpusym_gpu_t *gpu, void *at, size_t size, unsigned n);
int cuda_vmm_map(gpusym_gpu_t *gpu, void *at, size_t size);
int cuda_vmm_unmap(gpusym_gpu_t *gpu, void *at, size_t size);
int cuda_host_alloc(gpusym_gpu_t *gpu, size_t size, void **host, void **dev);
int cuda_host_free(gpusym_gpu_t *gpu, void *host);
int cuda_host_register(gpusym_gpu_t *gpu, void *host, size_t size, void **dev);
int cuda_host_unregister(gpusym_gpu_t *gpu, void *host);

/* ---- peer.c ---- */

/* Before the first export or import. */
void cuda_peers_open(void);
/* Ends all mappings; cuda_state.lock is held. */
void cuda_peers_close(void);
int cuda_mem_export(gpusym_gpu_t *gpu, void *p, gpusym_handle_t *handle);
int cuda_mem_unexport(gpusym_gpu_t *gpu, const gpusym_handle_t *handle);
int cuda_mem_import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, void **p);
int cuda_mem_unimport(gpusym_gpu_t *gpu, void *p);

/* A descriptor for memory that was made to be shared so, which peers can fetch; the caller closes it. */
int cuda_share(const gpusym_gpu_t *gpu, CUmemGenericAllocationHandle memory, int *fd);
/* The memory that a descriptor of another process names; the caller releases it.  GPUSYM_ERR_UNREACHABLE: it cannot be
 * fetched. */
int cuda_fetch(const gpusym_gpu_t *gpu, int64_t pid, int theirs, CUmemGenericAllocationHandle *memory);

/* ---- multicast.c ---- */

/* Whether the driver has the calls. */
bool cuda_mc_known(void);
int cuda_mc_create(gpusym_gpu_t *gpu, int setting, unsigned members, size_t size, gpusym_mc_t **mc,
                   gpusym_handle_t *handle);
int cuda_mc_import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, gpusym_mc_t **mc);
int cuda_mc_add(gpusym_mc_t *mc);
int cuda_mc_bind(gpusym_mc_t *mc, unsigned member, void *p, size_t size, void **mp);
void cuda_mc_free(gpusym_mc_t *mc);
/* Ends all objects; cuda_state.lock is held. */
void cuda_mcs_close(void);

/* ---- stream.c ---- */

int cuda_copy(gpusym_gpu_t *gpu, void *dst, const void *src, size_t size);
int cuda_copy_async(gpusym_stream_t *stream, void *dst, const void *src, size_t size);
int cuda_copy2d_async(gpusym_stream_t *stream, void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                      size_t height);
int cuda_stream_create(gpusym_gpu_t *gpu, gpusym_stream_t **stream);
void cuda_stream_destroy(gpusym_stream_t *stream);
int cuda_stream_poll(gpusym_stream_t *stream);
int cuda_stream_wrap(gpusym_gpu_t *gpu, void *handle, gpusym_stream_t **stream);
void cuda_stream_unwrap(gpusym_stream_t *stream);
int cuda_stream_captured(gpusym_stream_t *stream, bool *captured);
int cuda_stream_flags(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n);

/* ---- kernel.c ---- */

int cuda_kernels_load(gpusym_gpu_t *gpu, const char **why);
int cuda_stream_kernels_load(gpusym_gpu_t *gpu, const char **why);
int cuda_launch(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w);
int cuda_graph_launch(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w);
void cuda_graph_destroy(gpusym_graph_t *graph);

#pragma GCC visibility pop

#endif
