/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which memory a pointer is, copies, and memory of the GPU.
 */
#include "mca/accelerator/gpusym/accelerator_gpusym.h"

#include <stdatomic.h>
#include <string.h>

#include "opal/util/proc.h"

#include "mca/common/gpusym/device/plain.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/ompi/face.h"

/* ---- the device ---- */

/* MPI_Init opens this framework before it knows the ranks, by which the simulator assigns its GPUs. Other faces of
 * gpusym tell the ranks when they open; in a process without any, this does. */
static const gpusym_device_t *select_device(void)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    if (OPAL_VPID_INVALID == OPAL_PROC_MY_NAME.vpid) {
        return NULL;
    }
    if (!atomic_flag_test_and_set(&told) && OPAL_SUCCESS == gpusym_face_open(0)) {
        gpusym_close();
    }
    return gpusym_device_need();
}

const gpusym_device_t *accelerator_device(void)
{
    if (__builtin_expect(__atomic_load_n(&gpusym_current.tried, __ATOMIC_ACQUIRE), 1)) {
        return gpusym_current.dev;
    }
    return select_device();
}

#define FAILED                                                                       \
    "%s of %zu bytes failed:\n"                                                      \
    "    %s\n"                                                                       \
    "\n"                                                                             \
    "Open MPI accesses GPU memory through gpusym's accelerator component, and may\n" \
    "end the process.  Check that the memory has not been freed, that the GPU has\n" \
    "not been reset, and that it has memory left (nvidia-smi).\n"

int accelerator_code(int rc, const char *operation, size_t bytes)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    if (GPUSYM_SUCCESS == rc) {
        return OPAL_SUCCESS;
    }
    if (!atomic_flag_test_and_set(&told)) {
        gpusym_help(FAILED, operation, bytes, gpusym_current.dev->error());
    }
    return GPUSYM_ERR_NO_MEMORY == rc ? OPAL_ERR_OUT_OF_RESOURCE : OPAL_ERROR;
}

/* ---- pointers ---- */

/* Managed memory is the host's: the CPU reaches it, so windows and files on it work as without this component. Where
 * the simulator takes all memory for its own, only what it has allocated must not be touched by the CPU. */
static bool is_gpus(const gpusym_device_t *dev, const void *p, gpusym_mem_t *mem)
{
    gpusym_range_t range;

    if (gpusym_plain(p)) {
        return false;
    }
    dev->query(p, mem);
    if (__builtin_expect(dev->simulated, 0) && 0 != gpusym_params.sim_host) {
        return GPUSYM_SUCCESS == dev->mem_range(p, &range);
    }
    return GPUSYM_MEM_DEVICE == mem->kind;
}

int accelerator_look_up(const void *addr, int *dev_id, uint64_t *flags)
{
    const gpusym_device_t *dev = accelerator_device();
    gpusym_mem_t mem;

    *dev_id = MCA_ACCELERATOR_NO_DEVICE_ID;
    *flags = 0;
    if (NULL == dev || NULL == addr || !is_gpus(dev, addr, &mem)) {
        return 0;
    }
    *dev_id = mem.gpu;
    return 1;
}

int accelerator_gpu(int dev_id, gpusym_gpu_t **gpu)
{
    const gpusym_device_t *dev = accelerator_device();
    const gpusym_mem_t mem = {.kind = GPUSYM_MEM_DEVICE, .gpu = dev_id};

    if (NULL == dev) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    return GPUSYM_SUCCESS == dev->gpu_open(dev_id >= 0 ? &mem : NULL, gpu) ? OPAL_SUCCESS : OPAL_ERROR;
}

int accelerator_gpu_of(const void *a, const void *b, gpusym_gpu_t **gpu)
{
    const gpusym_device_t *dev = accelerator_device();
    gpusym_mem_t mem;

    *gpu = NULL;
    if (NULL == dev || (!is_gpus(dev, a, &mem) && !is_gpus(dev, b, &mem))) {
        return OPAL_SUCCESS;
    }
    return accelerator_code(dev->gpu_open(&mem, gpu), "The first use of a GPU, for a copy", 0);
}

/* Finds the allocation that p lies in. */
static bool find_range(const void *p, gpusym_range_t *range)
{
    const gpusym_device_t *dev = accelerator_device();
    return NULL != dev && GPUSYM_SUCCESS == dev->mem_range(p, range);
}

int accelerator_address_range(int dev_id, const void *p, void **base, size_t *size)
{
    gpusym_range_t range;

    (void) dev_id;
    if (!find_range(p, &range)) {
        return OPAL_ERROR;
    }
    *base = range.base;
    *size = (size_t) range.size;
    return OPAL_SUCCESS;
}

/* The id of the allocation: another one at the same address has another. */
int accelerator_buffer_id(int dev_id, const void *p, opal_accelerator_buffer_id_t *id)
{
    gpusym_range_t range;

    (void) dev_id;
    if (!find_range(p, &range)) {
        return OPAL_ERROR;
    }
    *id = range.id;
    return OPAL_SUCCESS;
}

/* ---- copies ---- */

/* The types that Open MPI passes are hints, and mostly missing; the addresses tell. */
int accelerator_mem_copy(int dst_id, int src_id, void *dst, const void *src, size_t size, accelerator_transfer_t type)
{
    gpusym_gpu_t *gpu;
    int rc;

    (void) dst_id;
    (void) src_id;
    (void) type;
    if (0 == size) {
        return OPAL_SUCCESS;
    }
    rc = accelerator_gpu_of(dst, src, &gpu);
    if (OPAL_SUCCESS != rc) {
        return rc;
    }
    if (NULL == gpu) {
        memcpy(dst, src, size);
        return OPAL_SUCCESS;
    }
    return accelerator_code(gpusym_current.dev->copy(gpu, dst, src, size), "A copy", size);
}

/* Bytes that a move between overlapping buffers copies at a time, by way of scratch memory. */
#define MOVE_STEP ((size_t) 4 << 20)

/* Moves between overlapping buffers, from the end that the move does not overwrite before it is read. */
static int move_by_steps(gpusym_gpu_t *gpu, char *dst, const char *src, size_t size, void *scratch)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    int rc = GPUSYM_SUCCESS;

    for (size_t done = 0; done < size && GPUSYM_SUCCESS == rc;) {
        const size_t step = size - done < MOVE_STEP ? size - done : MOVE_STEP;
        const size_t at = dst < src ? done : size - done - step;
        rc = dev->copy(gpu, scratch, src + at, step);
        if (GPUSYM_SUCCESS == rc) {
            rc = dev->copy(gpu, dst + at, scratch, step);
        }
        done += step;
    }
    return rc;
}

int accelerator_mem_move(int dst_id, int src_id, void *dst, const void *src, size_t size, accelerator_transfer_t type)
{
    const uintptr_t to = (uintptr_t) dst, from = (uintptr_t) src;
    gpusym_gpu_t *gpu;
    void *scratch;
    int rc;

    if (to - from >= size && from - to >= size) {
        return accelerator_mem_copy(dst_id, src_id, dst, src, size, type);
    }
    rc = accelerator_gpu_of(dst, src, &gpu);
    if (OPAL_SUCCESS != rc) {
        return rc;
    }
    if (NULL == gpu) {
        memmove(dst, src, size);
        return OPAL_SUCCESS;
    }
    rc = gpusym_scratch_get(gpusym_current.dev, gpu, size < MOVE_STEP ? size : MOVE_STEP, &scratch);
    if (GPUSYM_SUCCESS == rc) {
        rc = move_by_steps(gpu, dst, src, size, scratch);
        gpusym_scratch_put(gpusym_current.dev, gpu, scratch);
    }
    return accelerator_code(rc, "A move", size);
}

/* ---- memory ---- */

int accelerator_mem_alloc(int dev_id, void **p, size_t size)
{
    gpusym_gpu_t *gpu;
    const int rc = accelerator_gpu(dev_id, &gpu);

    return OPAL_SUCCESS != rc ? rc
                              : accelerator_code(gpusym_current.dev->mem_alloc(gpu, size, p), "An allocation", size);
}

int accelerator_mem_release(int dev_id, void *p)
{
    gpusym_gpu_t *gpu;
    int rc;

    (void) dev_id;
    if (NULL == p) {
        return OPAL_SUCCESS;
    }
    rc = accelerator_gpu_of(p, p, &gpu);
    if (OPAL_SUCCESS != rc || NULL == gpu) {
        return OPAL_SUCCESS != rc ? rc : OPAL_ERR_BAD_PARAM;
    }
    return accelerator_code(gpusym_current.dev->mem_free(gpu, p), "The release of memory", 0);
}

/* Open MPI pins its own buffers as it allocates them, those of files too that no GPU memory goes to: a process that
 * uses no GPU gets no context for that. */
int accelerator_host_register(int dev_id, void *p, size_t size)
{
    const gpusym_device_t *dev = accelerator_device();
    gpusym_gpu_t *gpu;
    void *seen;

    if (NULL == dev || dev->gpu_current() < 0 || OPAL_SUCCESS != accelerator_gpu(dev_id, &gpu)) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    return GPUSYM_SUCCESS == dev->host_register(gpu, p, size, &seen) ? OPAL_SUCCESS : OPAL_ERROR;
}

int accelerator_host_unregister(int dev_id, void *p)
{
    const gpusym_device_t *dev = accelerator_device();
    gpusym_gpu_t *gpu;

    if (NULL == dev || dev->gpu_current() < 0 || OPAL_SUCCESS != accelerator_gpu(dev_id, &gpu)) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    return GPUSYM_SUCCESS == dev->host_unregister(gpu, p) ? OPAL_SUCCESS : OPAL_ERROR;
}
