/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies, streams, and flags that streams wait for and set.
 */
#include <stdlib.h>

#include "mca/common/gpusym/device/cuda/cuda_internal.h"

/* ---- copies ---- */

/* Copies to the GPU of less than so many bytes go through its compute engine, so that it switches between processes:
 * 140 us where another one uses it, 5.5 otherwise. Larger ones, and those of rows, are its copy engines': 7.7 us, 12
 * where another one copies. */
#define SMALL_UPLOAD ((size_t) 32 << 10)

/* Two rows, each behind the other: a driver might join more of them. size: even. */
static int copy_two_rows(gpusym_gpu_t *gpu, CUstream stream, char *dst, const char *src, size_t size)
{
    const CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = (CUdeviceptr) (uintptr_t) src,
        .srcPitch = size / 2,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = (CUdeviceptr) (uintptr_t) dst,
        .dstPitch = size / 2,
        .WidthInBytes = size / 2,
        .Height = 2,
    };
    return CU(gpu->info.ordinal, cuMemcpy2DAsync_v2, &copy, stream);
}

/* Of an odd number of bytes all but the last, and all but the first. */
static int copy_upload(gpusym_gpu_t *gpu, CUstream stream, char *dst, const char *src, size_t size)
{
    const size_t even = size / 2 * 2;
    const int rc = copy_two_rows(gpu, stream, dst, src, even);
    return GPUSYM_SUCCESS == rc && even != size ? copy_two_rows(gpu, stream, dst + 1, src + 1, even) : rc;
}

static bool is_upload(const void *dst, const void *src)
{
    gpusym_mem_t to, from;
    cuda_look(dst, &to); /* the stream may be one that is being captured */
    cuda_look(src, &from);
    return GPUSYM_MEM_DEVICE == to.kind && (GPUSYM_MEM_HOST == from.kind || GPUSYM_MEM_REGISTERED == from.kind);
}

/* Queues a copy; the context is current. One address space: the driver sees from the pointers what
 * kind of memory they are, pageable host memory too. */
static int copy_whole(gpusym_gpu_t *gpu, CUstream stream, void *dst, const void *src, size_t size)
{
    if (__atomic_load_n(&gpu->crowded, __ATOMIC_RELAXED) && size > 1 && size < SMALL_UPLOAD && is_upload(dst, src)) {
        return copy_upload(gpu, stream, dst, src, size);
    }
    return CU(gpu->info.ordinal, cuMemcpyAsync, (CUdeviceptr) (uintptr_t) dst, (CUdeviceptr) (uintptr_t) src, size,
              stream);
}

/* Bytes from p on, at most size, that lie in the allocation there. 0: the driver knows none. */
static size_t room_at(const void *p, size_t size)
{
    gpusym_mem_t mem;
    gpusym_range_t range;
    cuda_look(p, &mem); /* first, since it leaves the text of the last error */
    if (GPUSYM_MEM_HOST == mem.kind || GPUSYM_SUCCESS != cuda_mem_range(p, &range)) {
        return 0;
    }
    const size_t room = range.size - (size_t) ((const char *) p - (const char *) range.base);
    return room < size ? room : size;
}

/* The same of memory in several allocations that touch, as small ones of cudaMalloc do: the driver refuses a copy that
 * goes from one on into the next. Ordinary memory, of which it knows nothing, is one; what begins in an allocation must
 * end in one. */
static int copy_queue(gpusym_gpu_t *gpu, CUstream stream, void *dst, const void *src, size_t size)
{
    int rc = copy_whole(gpu, stream, dst, src, size);
    if (GPUSYM_SUCCESS == rc) {
        return rc;
    }
    const bool to_known = 0 != room_at(dst, 1), from_known = 0 != room_at(src, 1);
    for (size_t at = 0, n; at < size; at += n) {
        char *to = (char *) dst + at;
        const char *from = (const char *) src + at;
        n = to_known ? room_at(to, size - at) : size - at;
        n = from_known ? room_at(from, n) : n;
        if (0 == n || n == size) {
            return rc;
        }
        const int part = copy_whole(gpu, stream, to, from, n);
        if (GPUSYM_SUCCESS != part) {
            return part;
        }
    }
    return GPUSYM_SUCCESS;
}

/* Threads may share the copy stream: each waits for its own copy and, at worst, for some of another's. */
int cuda_copy(gpusym_gpu_t *gpu, void *dst, const void *src, size_t size)
{
    cuda_entered_t entered;

    if (0 == size) {
        return GPUSYM_SUCCESS;
    }
    int rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = copy_queue(gpu, gpu->copies, dst, src, size);
    if (GPUSYM_SUCCESS == rc) {
        /* Waits for the copy engine, and for nothing that a peer writes. */
        rc = CU(gpu->info.ordinal, cuStreamSynchronize, gpu->copies);
    }
    cuda_ctx_leave(&entered);
    return rc;
}

int cuda_copy_async(gpusym_stream_t *stream, void *dst, const void *src, size_t size)
{
    gpusym_gpu_t *gpu = stream->gpu;
    cuda_entered_t entered;

    if (0 == size) {
        return GPUSYM_SUCCESS;
    }
    int rc = cuda_ctx_enter(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = copy_queue(gpu, stream->stream, dst, src, size);
    cuda_ctx_leave(&entered);
    return rc;
}

/* The longest distance of rows, in bytes, that the driver copies by: CU_DEVICE_ATTRIBUTE_MAX_PITCH of every GPU. */
#define PITCH_MAX (((size_t) 1 << 31) - 1)

static int copy2d_queue(gpusym_stream_t *stream, const CUDA_MEMCPY2D *copy)
{
    int n = stream->gpu->info.ordinal;
    int rc = GPUSYM_SUCCESS;

    if (copy->dstPitch <= PITCH_MAX && copy->srcPitch <= PITCH_MAX) {
        return CU(n, cuMemcpy2DAsync_v2, copy, stream->stream);
    }
    /* Rows so far apart are few: the GPU's memory holds no more. */
    for (size_t row = 0; row < copy->Height && GPUSYM_SUCCESS == rc; row++) {
        rc = CU(n, cuMemcpyAsync, copy->dstDevice + row * copy->dstPitch, copy->srcDevice + row * copy->srcPitch,
                copy->WidthInBytes, stream->stream);
    }
    return rc;
}

int cuda_copy2d_async(gpusym_stream_t *stream, void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                      size_t height)
{
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = (CUdeviceptr) (uintptr_t) src,
        .srcPitch = spitch,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = (CUdeviceptr) (uintptr_t) dst,
        .dstPitch = dpitch,
        .WidthInBytes = width,
        .Height = height,
    };
    cuda_entered_t entered;

    if (0 == width || 0 == height) {
        return GPUSYM_SUCCESS;
    }
    if (1 < height && (dpitch < width || spitch < width)) {
        return cuda_fail(GPUSYM_ERR_BAD_PARAM, "rows of %zu bytes cannot be %zu and %zu bytes apart", width, dpitch,
                         spitch);
    }
    if (1 == height || (dpitch == width && spitch == width)) {
        if (SIZE_MAX / height < width) {
            return cuda_fail(GPUSYM_ERR_BAD_PARAM, "%zu rows of %zu bytes are too many", height, width);
        }
        return cuda_copy_async(stream, dst, src, width * height);
    }
    int rc = cuda_ctx_enter(stream->gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = copy2d_queue(stream, &copy);
    cuda_ctx_leave(&entered);
    return rc;
}

/* ---- streams ---- */

/* Of the highest priority: our few blocks should not queue behind the program's many, since other ranks
 * wait for them. */
int cuda_stream_create(gpusym_gpu_t *gpu, gpusym_stream_t **stream)
{
    gpusym_stream_t *s = calloc(1, sizeof(*s));
    int least = 0, greatest = 0;
    cuda_entered_t entered;

    if (NULL == s) {
        return cuda_no_host_memory();
    }
    s->gpu = gpu;
    int rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS == rc) {
        rc = CU(gpu->info.ordinal, cuCtxGetStreamPriorityRange, &least, &greatest);
        if (GPUSYM_SUCCESS == rc) {
            rc = CU(gpu->info.ordinal, cuStreamCreateWithPriority, &s->stream, CU_STREAM_NON_BLOCKING, greatest);
        }
        cuda_ctx_leave(&entered);
    }
    if (GPUSYM_SUCCESS != rc) {
        free(s);
        return rc;
    }
    *stream = s;
    return GPUSYM_SUCCESS;
}

void cuda_stream_destroy(gpusym_stream_t *stream)
{
    cuda_entered_t entered;

    if (GPUSYM_SUCCESS == cuda_ctx_enter_living(stream->gpu, &entered)) {
        (void) cu.cuStreamDestroy_v2(stream->stream);
        cuda_ctx_leave(&entered);
    }
    free(stream);
}

int cuda_stream_poll(gpusym_stream_t *stream)
{
    cuda_entered_t entered;

    int rc = cuda_ctx_enter_spared(stream->gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    CUresult result = cu.cuStreamQuery(stream->stream);
    cuda_ctx_leave(&entered);
    if (CUDA_ERROR_NOT_READY == result) {
        return 0;
    }
    rc = cuda_check(stream->gpu->info.ordinal, "cuStreamQuery", result);
    return GPUSYM_SUCCESS == rc ? 1 : rc;
}

/* ---- streams of the program ---- */

/* The handles 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD name streams of whatever context is current. */
static bool is_default(CUstream stream)
{
    return NULL == stream || CU_STREAM_LEGACY == stream || CU_STREAM_PER_THREAD == stream;
}

/* The context that a stream belongs to, as the calling thread means it. A default stream of a thread without a context
 * is ours to choose. */
static int stream_context(const gpusym_gpu_t *gpu, CUstream stream, CUcontext *ctx)
{
    if (!is_default(stream)) {
        return CU(gpu->info.ordinal, cuStreamGetCtx, stream, ctx);
    }
    const int rc = CU(gpu->info.ordinal, cuCtxGetCurrent, ctx);
    if (NULL == *ctx) {
        *ctx = gpu->ctx;
    }
    return rc;
}

int cuda_stream_wrap(gpusym_gpu_t *gpu, void *handle, gpusym_stream_t **stream)
{
    CUcontext ctx = NULL;

    const int rc = stream_context(gpu, handle, &ctx);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (gpu->ctx != ctx) {
        return cuda_fail(GPUSYM_ERR_BAD_PARAM,
                         "the stream %p belongs to another GPU or context than the memory, which is of GPU %d", handle,
                         gpu->info.ordinal);
    }
    gpusym_stream_t *s = calloc(1, sizeof(*s));
    if (NULL == s) {
        return cuda_no_host_memory();
    }
    s->gpu = gpu;
    s->stream = handle;
    *stream = s;
    return GPUSYM_SUCCESS;
}

void cuda_stream_unwrap(gpusym_stream_t *stream)
{
    free(stream);
}

int cuda_stream_captured(gpusym_stream_t *stream, bool *captured)
{
    const int n = stream->gpu->info.ordinal;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuda_entered_t entered;

    int rc = cuda_ctx_enter(stream->gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(n, cuStreamIsCapturing, stream->stream, &status);
    cuda_ctx_leave(&entered);
    if (GPUSYM_SUCCESS == rc && CU_STREAM_CAPTURE_STATUS_INVALIDATED == status) {
        rc = cuda_fail(
            GPUSYM_ERR,
            "the stream %p on GPU %d is being captured into a graph, and an earlier error has made that graph "
            "invalid: end the capture first",
            (void *) stream->stream, n);
    }
    *captured = GPUSYM_SUCCESS == rc && CU_STREAM_CAPTURE_STATUS_ACTIVE == status;
    return rc;
}

/* ---- flags ---- */

/* Of one call to the driver, which takes them in their order. */
#define FLAGS_MAX 8

/* A write is preceded by a barrier of the whole system: a rank that reads the flag can read what the stream copied
 * before, to a peer too. */
static int flags_queue(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n)
{
    CUstreamBatchMemOpParams ops[FLAGS_MAX] = {{0}};
    for (unsigned i = 0; i < n; i++) {
        const CUdeviceptr at = (CUdeviceptr) (uintptr_t) flags[i].at;
        if (flags[i].wait) {
            ops[i].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
            ops[i].waitValue.address = at;
            ops[i].waitValue.value = flags[i].value;
            ops[i].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
        } else {
            ops[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
            ops[i].writeValue.address = at;
            ops[i].writeValue.value = flags[i].value;
            ops[i].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
        }
    }
    return CU(stream->gpu->info.ordinal, cuStreamBatchMemOp_v2, stream->stream, n, ops, 0);
}

int cuda_stream_flags(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n)
{
    cuda_entered_t entered;

    int rc = cuda_ctx_enter(stream->gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    while (n > 0 && GPUSYM_SUCCESS == rc) {
        const unsigned now = n < FLAGS_MAX ? n : FLAGS_MAX;
        rc = flags_queue(stream, flags, now);
        flags += now;
        n -= now;
    }
    cuda_ctx_leave(&entered);
    return rc;
}
