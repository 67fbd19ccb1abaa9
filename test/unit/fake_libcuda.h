/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A CUDA driver of the test's own, strict where the real one is: it keeps a stack of contexts a
 * thread, refuses what needs a context without the right one, runs copies only when a stream is
 * synchronised or queried, refuses the default stream unless it is the program's, refuses to
 * open its own IPC handles, and holds virtual memory to the rules of the manual.  Any call can be
 * told to fail.  Included by test_device_cuda.c only, after device/cuda, which brings cuda.h: its
 * prototypes check these.
 */
#ifndef GPUSYM_TEST_FAKE_LIBCUDA_H
#define GPUSYM_TEST_FAKE_LIBCUDA_H

#if CUDA_VERSION < 12010 /* which have no multicast */
typedef struct {
    unsigned numDevices;
    size_t size;
    unsigned long long handleTypes, flags;
} CUmulticastObjectProp;
typedef enum { CU_MULTICAST_GRANULARITY_MINIMUM, CU_MULTICAST_GRANULARITY_RECOMMENDED } CUmulticastGranularity_flags;
CUresult cuMulticastGetGranularity(size_t *, const CUmulticastObjectProp *, CUmulticastGranularity_flags);
CUresult cuMulticastCreate(CUmemGenericAllocationHandle *, const CUmulticastObjectProp *);
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle, CUdevice);
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t, size_t,
                            unsigned long long);
CUresult cuMulticastUnbind(CUmemGenericAllocationHandle, CUdevice, size_t, size_t);
#endif

#define FAKE_GPUS 4
#define FAKE_STACK 8
#define FAKE_REGIONS 16
#define FAKE_HANDLES 64
#define FAKE_OPS 16

struct CUctx_st {
    int dev;
    bool primary;
    unsigned refs; /* of a primary context */
    unsigned long long id;
};

struct CUstream_st {
    CUstream next; /* of all */
    CUcontext ctx;
    int priority;
    CUstreamCaptureStatus capture;
    bool blocking; /* comes behind the legacy stream */
    unsigned ops;
    struct {
        void *dst;
        const void *src; /* NULL: fill with value */
        size_t size;     /* of a row */
        unsigned char value;
        size_t dpitch, spitch, rows;
        uint32_t *flag; /* neither copy nor fill: waits until it is at least number, or sets it to that */
        uint32_t number;
        bool wait;
    } op[FAKE_OPS];
};

struct CUevent_st {
    bool behind_legacy;
};

struct CUfunc_st {
    bool loaded;
    size_t bytes; /* of its parameter */
};

struct CUmod_st {
    CUcontext ctx;
    struct CUfunc_st functions[GPUSYM_K_COUNT], few[GPUSYM_K_FIRST_STREAM];
};

typedef struct {
    char *base;
    size_t size;
    unsigned type; /* CU_MEMORYTYPE_* */
    bool managed;
    int ordinal;
    CUcontext ctx;
    unsigned synchronous; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
    unsigned long long id;
    unsigned memory; /* that cuMemMap has put there, or a multicast object: its number, from 1; 0: none */
    unsigned access; /* of mapped memory: a bit for each GPU that reaches it there */
} fake_region_t;

/* Addresses that cuMemAddressReserve has handed out. */
typedef struct {
    uintptr_t base; /* 0: this place is free */
    size_t size;
} fake_range_t;

/* Memory of cuMemCreate, or a multicast object: a memfd. */
typedef struct {
    int fd;
    size_t size;
    unsigned refs, maps; /* handles; mappings, and what is bound to multicast objects; 0 and 0: this place is free */
    CUmemAllocationProp prop;
    unsigned devices; /* of a multicast object: as many as it is for; 0: it is memory */
    unsigned added;   /* a bit for each GPU */
    struct {
        unsigned memory; /* its number, from 1; 0: none */
        size_t at, size;
    } bound[FAKE_GPUS];
} fake_memory_t;

static struct {
    /* What it is told; setup() sets it back. */
    bool no_library;
    const char *missing; /* a symbol it does not have */
    int gpus;
    CUresult init;
    unsigned fail_at;      /* the n-th call from now on fails, 0: none */
    const char *fail_name; /* ... counting this one only */
    CUresult fail_with;
    bool busy;         /* streams do not come to an end by themselves */
    CUresult gone;     /* what all calls return from now on: the driver has been shut down, or its contexts destroyed */
    bool foreign;      /* IPC handles are another process's */
    bool lies;         /* calls any memory fit for IPC */
    bool captures;     /* another thread captures a blocking stream in global mode: FAKE_UNSAFE() */
    CUstream standard; /* the default streams that a program may use, and we for it; NULL: none */
    int atomics, link_rank; /* of every pair of GPUs: CU_DEVICE_P2P_ATTRIBUTE_ */
    bool no_vmm, no_fd;     /* no virtual memory; none that a descriptor names */
    bool fabric;            /* fabric handles may be asked for */
    bool no_multicast;      /* no multicast objects */
    size_t mc_granularity;  /* of multicast objects, in bytes */
    size_t granularity;     /* of virtual memory, in bytes */

    /* What it saw. */
    const char *failed;                                          /* the call that was made to fail */
    int legacy_waits;                                            /* for the default stream */
    unsigned streams, events, modules, pinned, allocations, ipc; /* live */
    void *registered;                                            /* by cuMemHostRegister */
    unsigned handles, reserved;                                  /* live, of memory and of addresses */
    unsigned mc_created;                                         /* multicast objects that it was asked for */
    unsigned bound;                                              /* live */
    unsigned descriptors;                                        /* of this process, at the beginning */
    unsigned graphs, execs;                                      /* live */
    unsigned pushes, retains, peers;
    unsigned mistakes; /* what a real driver would punish later */
    unsigned stale;    /* handles that it was given of a context that is gone: these a real driver follows */
    struct {
        CUfunction function;
        CUstream stream;
        unsigned blocks, threads;
        gpusym_work_t work;
        bool soon;        /* before the launch before it has ended */
        unsigned cluster; /* blocks of one; 0: there is none */
    } launched;
} fake;

static struct CUctx_st fake_primary[FAKE_GPUS], fake_other[FAKE_GPUS];
static fake_region_t fake_regions[FAKE_REGIONS];
static fake_memory_t fake_memories[FAKE_REGIONS];
static fake_range_t fake_ranges[FAKE_REGIONS];
static CUstream fake_streams;
static _Thread_local CUcontext fake_stack[FAKE_STACK];
static _Thread_local unsigned fake_depth;
static _Thread_local CUstreamCaptureMode fake_mode;

/* Streams, modules and graphs that it has handed out: those of a context that is gone nobody destroys. */
static void *fake_handed_out[FAKE_HANDLES];

static unsigned fake_open_descriptors(void)
{
    unsigned n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        n += -1 != fcntl(fd, F_GETFD);
    }
    return n;
}

/* A zeroed handle of `bytes` bytes; NULL: there is no memory, or no place. */
static void *fake_hand_out(size_t bytes)
{
    for (unsigned i = 0; i < FAKE_HANDLES; i++) {
        if (NULL == fake_handed_out[i]) {
            return fake_handed_out[i] = calloc(1, bytes);
        }
    }
    return NULL;
}

static void fake_take_back(const void *handle)
{
    for (unsigned i = 0; i < FAKE_HANDLES; i++) {
        if (handle == fake_handed_out[i]) {
            free(fake_handed_out[i]);
            fake_handed_out[i] = NULL;
            return;
        }
    }
    fake.mistakes++;
}

/* As the end of all contexts does. */
__attribute__((unused)) static void fake_take_back_all(void)
{
    for (unsigned i = 0; i < FAKE_HANDLES; i++) {
        free(fake_handed_out[i]);
        fake_handed_out[i] = NULL;
    }
    fake_streams = NULL;
}

static bool fake_is_named(const char *name)
{
    return NULL == fake.fail_name || 0 == strcmp(fake.fail_name, name);
}

/* Begins an entry point: whether the call is to fail. */
static bool fake_fails(const char *name)
{
    if (0 == fake.fail_at || !fake_is_named(name) || 0 != --fake.fail_at) {
        return false;
    }
    fake.failed = name;
    return true;
}

/* The same of a driver whose contexts are gone: only what asks for that is no mistake. */
static bool fake_gone(const char *name)
{
    const bool asks = 0 == strcmp(name, "cuCtxGetId") || 0 == strcmp(name, "cuCtxGetApiVersion") ||
                      0 == strcmp(name, "cuDevicePrimaryCtxGetState");
    fake.stale += CUDA_SUCCESS != fake.gone && !asks;
    return CUDA_SUCCESS != fake.gone;
}

#define FAKE_ENTER()                \
    do {                            \
        if (fake_gone(__func__)) {  \
            return fake.gone;       \
        }                           \
        if (fake_fails(__func__)) { \
            return fake.fail_with;  \
        }                           \
    } while (0)
#define FAKE_CONTEXT()                     \
    FAKE_ENTER();                          \
    if (NULL == fake_current()) {          \
        return CUDA_ERROR_INVALID_CONTEXT; \
    }                                      \
    (void) 0
#define FAKE_STREAM(stream)                                    \
    FAKE_CONTEXT();                                            \
    if (fake_default(stream)) {                                \
        (stream) = fake.standard;                              \
    }                                                          \
    if (NULL == (stream) || (stream)->ctx != fake_current()) { \
        return CUDA_ERROR_INVALID_HANDLE;                      \
    }                                                          \
    (void) 0

/* While a stream is captured, the driver refuses this to threads that are not in relaxed mode, and the capture ends:
 * tried with driver 580, but for closing mappings, modules and contexts' access. */
#define FAKE_UNSAFE()                                                   \
    if (fake.captures && CU_STREAM_CAPTURE_MODE_RELAXED != fake_mode) { \
        fake.mistakes++;                                                \
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;                   \
    }                                                                   \
    (void) 0

static CUcontext fake_current(void)
{
    return 0 == fake_depth ? NULL : fake_stack[fake_depth - 1];
}

static bool fake_default(CUstream stream)
{
    return NULL == stream || CU_STREAM_LEGACY == stream || CU_STREAM_PER_THREAD == stream;
}

static fake_region_t *fake_region(CUdeviceptr p)
{
    for (int i = 0; i < FAKE_REGIONS; i++) {
        uintptr_t base = (uintptr_t) fake_regions[i].base;
        if (0 != base && base <= p && p < base + fake_regions[i].size) {
            return &fake_regions[i];
        }
    }
    return NULL;
}

/* Memory of its own; NULL when full. */
static fake_region_t *fake_region_add(size_t size, unsigned type, bool managed, int ordinal, CUcontext ctx)
{
    for (int i = 0; i < FAKE_REGIONS; i++) {
        if (NULL == fake_regions[i].base) {
            char *base = aligned_alloc(256, (size + 255) / 256 * 256);
            if (NULL == base) {
                return NULL;
            }
            static unsigned long long ids;
            memset(base, 0xa5, size);
            fake_regions[i] = (fake_region_t){base, size, type, managed, ordinal, ctx, 0, ++ids, 0, 0};
            return &fake_regions[i];
        }
    }
    return NULL;
}

static bool fake_region_remove(CUdeviceptr p)
{
    fake_region_t *region = fake_region(p);

    if (NULL == region || (uintptr_t) region->base != p || 0 != region->memory) {
        return false;
    }
    free(region->base);
    region->base = NULL;
    return true;
}

/* Of cudaMallocAsync: it belongs to no context. */
static bool fake_is_pool(const fake_region_t *region)
{
    return NULL == region->ctx && 0 == region->memory;
}

static bool fake_exportable(const fake_region_t *region)
{
    return fake.lies || (NULL != region->ctx && !region->managed);
}

/* The driver's interface. */

CUresult cuInit(unsigned flags)
{
    FAKE_ENTER();
    return 0 == flags ? fake.init : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult result, const char **text)
{
    *text = CUDA_ERROR_OUT_OF_MEMORY == result ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult result, const char **text)
{
    *text = CUDA_ERROR_OUT_OF_MEMORY == result ? "out of memory" : "other";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    FAKE_ENTER();
    *count = fake.gpus;
    return CUDA_SUCCESS;
}

/* A CUdevice is not the ordinal here, so that nobody takes one for the other. */
CUresult cuDeviceGet(CUdevice *dev, int ordinal)
{
    FAKE_ENTER();
    *dev = 10 + ordinal;
    return 0 <= ordinal && ordinal < fake.gpus ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice dev)
{
    FAKE_ENTER();
    snprintf(name, (size_t) size, "fake %d", dev - 10);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    FAKE_ENTER();
    memset(uuid, dev, sizeof(*uuid));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice dev)
{
    FAKE_ENTER();
    snprintf(id, (size_t) size, "0000:%02x:00.0", dev);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *id)
{
    unsigned bus = 0;

    FAKE_ENTER();
    if (1 != sscanf(id, "0000:%x:00.0", &bus) || bus < 10 || 10 + (unsigned) fake.gpus <= bus) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *dev = (int) bus;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
    FAKE_ENTER();
    if (from == to) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *value = CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED == attribute ? fake.atomics
             : CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK == attribute      ? fake.link_rank
                                                                          : 7;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *yes, CUdevice from, CUdevice to)
{
    FAKE_ENTER();
    *yes = fake.atomics;
    return from == to ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* By number: older headers do not have all of them. */
#define FAKE_ATTRIBUTE_VMM ((CUdevice_attribute) 102)
#define FAKE_ATTRIBUTE_FD ((CUdevice_attribute) 103)
#define FAKE_ATTRIBUTE_FABRIC ((CUdevice_attribute) 128)
#define FAKE_ATTRIBUTE_MULTICAST ((CUdevice_attribute) 132)

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
    FAKE_ENTER();
    (void) dev;
    *value = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == attribute       ? 132
             : CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == attribute ? 9
             : CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE == attribute        ? 2619000
             : CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH == attribute  ? 5120
             : FAKE_ATTRIBUTE_VMM == attribute                           ? !fake.no_vmm
             : FAKE_ATTRIBUTE_FD == attribute                            ? !fake.no_fd
             : FAKE_ATTRIBUTE_FABRIC == attribute                        ? fake.fabric
             : FAKE_ATTRIBUTE_MULTICAST == attribute                     ? !fake.no_multicast
                                                                         : 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    FAKE_ENTER();
    (void) dev;
    *bytes = (size_t) 1 << 37;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active)
{
    FAKE_ENTER();
    *flags = 0;
    *active = 0 < fake_primary[dev - 10].refs;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
    FAKE_ENTER();
    *ctx = &fake_primary[dev - 10];
    (*ctx)->refs++;
    fake.retains++;
    return CUDA_SUCCESS;
}

/* Never made to fail, nor is cuCtxPopCurrent_v2: nothing could be done about it. */
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    if (fake_gone(__func__)) {
        return fake.gone;
    }
    if (0 == fake_primary[dev - 10].refs) {
        fake.mistakes++;
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    fake_primary[dev - 10].refs--;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    FAKE_ENTER();
    *ctx = fake_current();
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    FAKE_ENTER();
    if (NULL == ctx || (ctx->primary && 0 == ctx->refs) || FAKE_STACK == fake_depth) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    fake_stack[fake_depth++] = ctx;
    fake.pushes++;
    return CUDA_SUCCESS;
}

/* Never made to fail. */
CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
    if (0 == fake_depth) {
        fake.mistakes++;
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *ctx = fake_stack[--fake_depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *dev)
{
    FAKE_CONTEXT();
    *dev = 10 + fake_current()->dev;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned *version)
{
    FAKE_ENTER();
    *version = 13000;
    return NULL == ctx || (ctx->primary && 0 == ctx->refs) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
    FAKE_ENTER();
    *id = ctx->id;
    return ctx->primary && 0 == ctx->refs ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    FAKE_CONTEXT();
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
}

/* One context may reach one other, once. */
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    if (0 != flags || NULL == peer || peer == fake_current()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (0 != fake.peers) {
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    }
    fake.peers++;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *what, void **where, CUdeviceptr p)
{
    const fake_region_t *region = fake_region(p);

    FAKE_ENTER();
    for (unsigned i = 0; i < n; i++) {
        switch (what[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(unsigned *) where[i] = NULL == region ? 0 : region->type;
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            *(bool *) where[i] = NULL != region && region->managed;
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *) where[i] = NULL == region ? -2 : region->ordinal;
            break;
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            *(CUcontext *) where[i] = NULL == region ? NULL : region->ctx;
            break;
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            *(unsigned *) where[i] = NULL == region ? 0 : region->synchronous;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            *(CUdeviceptr *) where[i] = NULL == region ? 0 : (uintptr_t) region->base;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            *(size_t *) where[i] = NULL == region ? 0 : region->size;
            break;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            *(unsigned long long *) where[i] = NULL == region ? 0 : region->id;
            break;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: /* strict: a bool, as the manual has it */
            *(bool *) where[i] = NULL != region && CU_MEMORYTYPE_DEVICE == region->type && fake_exportable(region);
            break;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            *(CUmemoryPool *) where[i] = NULL != region && fake_is_pool(region) ? (CUmemoryPool) (void *) &fake : NULL;
            break;
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            *(CUdeviceptr *) where[i] = NULL == region ? 0 : (uintptr_t) region->base;
            break;
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            *(size_t *) where[i] = NULL == region ? 0 : region->size;
            break;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            *(unsigned *) where[i] =
                NULL == region || 0 == region->memory ? 0 : fake_memories[region->memory - 1].prop.requestedHandleTypes;
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute what, CUdeviceptr p)
{
    fake_region_t *region = fake_region(p);

    FAKE_CONTEXT();
    if (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS != what || NULL == region || region->ctx != fake_current()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    FAKE_UNSAFE();
    region->synchronous = *(const unsigned *) value;
    return CUDA_SUCCESS;
}

/* A flag that is not there yet: nothing behind it is run. */
static bool fake_waits(CUstream stream, unsigned i)
{
    return NULL != stream->op[i].flag && stream->op[i].wait &&
           (int32_t) (*stream->op[i].flag - stream->op[i].number) < 0;
}

static void fake_run(CUstream stream)
{
    for (unsigned i = 0; i < stream->ops; i++) {
        if (fake_waits(stream, i)) {
            memmove(stream->op, stream->op + i, (stream->ops - i) * sizeof(stream->op[0]));
            stream->ops -= i;
            return;
        }
        if (NULL != stream->op[i].flag) {
            if (!stream->op[i].wait) {
                *stream->op[i].flag = stream->op[i].number;
            }
            continue;
        }
        if (NULL == stream->op[i].src) {
            memset(stream->op[i].dst, stream->op[i].value, stream->op[i].size);
        }
        for (size_t row = 0; NULL != stream->op[i].src && row < stream->op[i].rows; row++) {
            memcpy((char *) stream->op[i].dst + row * stream->op[i].dpitch,
                   (const char *) stream->op[i].src + row * stream->op[i].spitch, stream->op[i].size);
        }
    }
    stream->ops = 0;
}

/* Before memory goes, its work ends. */
static void fake_run_all(void)
{
    for (CUstream stream = fake_streams; NULL != stream; stream = stream->next) {
        fake_run(stream);
    }
}

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t size)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    CUcontext ctx = fake_current();
    fake_region_t *region = fake_region_add(size, CU_MEMORYTYPE_DEVICE, false, ctx->dev, ctx);
    if (NULL == region) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake.allocations++;
    *p = (uintptr_t) region->base;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr p)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    fake_run_all();
    if (!fake_region_remove(p)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake.allocations--;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **p, size_t size, unsigned flags)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    if ((CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake_region_t *region = fake_region_add(size, CU_MEMORYTYPE_HOST, false, fake_current()->dev, fake_current());
    if (NULL == region) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake.pinned++;
    *p = region->base;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *p)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    if (!fake_region_remove((uintptr_t) p)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake.pinned--;
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned flags)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    if ((CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) != flags || NULL == p || 0 == size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake.pinned++;
    fake.registered = p;
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *p)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    if (fake.registered != p) {
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    fake.registered = NULL;
    fake.pinned--;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *dev, void *host, unsigned flags)
{
    FAKE_CONTEXT();
    *dev = (uintptr_t) host;
    return 0 == flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_queue(CUstream stream, void *dst, const void *src, unsigned char value, size_t size)
{
    if (FAKE_OPS == stream->ops) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream->op[stream->ops].dst = dst;
    stream->op[stream->ops].src = src;
    stream->op[stream->ops].size = size;
    stream->op[stream->ops].rows = 1;
    stream->op[stream->ops].flag = NULL;
    stream->op[stream->ops++].value = value;
    return CUDA_SUCCESS;
}

/* Whether memory goes on behind the end of the region in which it begins, which no copy does, or is mapped and this GPU
 * has no access to it. */
static bool fake_crosses(CUdeviceptr p, size_t size)
{
    const fake_region_t *region = fake_region(p);
    return NULL != region && (p + size > (uintptr_t) region->base + region->size ||
                              (0 != region->memory && 0 == (region->access & 1u << fake_current()->dev)));
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t size, CUstream stream)
{
    FAKE_STREAM(stream);
    if (fake_crosses(dst, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return fake_queue(stream, (void *) (uintptr_t) dst, NULL, value, size);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
    FAKE_STREAM(stream);
    if (fake_crosses(dst, size) || fake_crosses(src, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return fake_queue(stream, (void *) (uintptr_t) dst, (const void *) (uintptr_t) src, 0, size);
}

/* Unified addresses only, of the lengths that a GPU takes. */
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    const size_t max = 0x7fffffff;

    FAKE_STREAM(stream);
    if (CU_MEMORYTYPE_UNIFIED != copy->srcMemoryType || CU_MEMORYTYPE_UNIFIED != copy->dstMemoryType ||
        0 != copy->srcXInBytes || 0 != copy->srcY || 0 != copy->dstXInBytes || 0 != copy->dstY ||
        copy->srcPitch > max || copy->dstPitch > max || copy->WidthInBytes > copy->srcPitch ||
        copy->WidthInBytes > copy->dstPitch || 0 == copy->WidthInBytes || 0 == copy->Height) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = fake_queue(stream, (void *) (uintptr_t) copy->dstDevice,
                                 (const void *) (uintptr_t) copy->srcDevice, 0, copy->WidthInBytes);
    if (CUDA_SUCCESS == result) {
        stream->op[stream->ops - 1].dpitch = copy->dstPitch;
        stream->op[stream->ops - 1].spitch = copy->srcPitch;
        stream->op[stream->ops - 1].rows = copy->Height;
    }
    return result;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr p)
{
    FAKE_CONTEXT();
    const fake_region_t *region = fake_region(p);
    if (NULL == region || NULL == region->ctx || (uintptr_t) region->base != p) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &p, sizeof(p));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle handle, unsigned flags)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    if (!fake.foreign || CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS != flags) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    memcpy(p, &handle, sizeof(*p));
    fake.ipc++;
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    if (0 == fake.ipc || NULL == fake_region(p)) {
        fake.mistakes++;
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake.ipc--;
    return CUDA_SUCCESS;
}

/* Virtual memory. Needs no context. A handle is a number of fake_memories, and what was mapped with it; addresses are
 * inaccessible until access is set. Memory is a memfd, which a shareable handle names. */

#define FAKE_HANDLE 0x100
#define FAKE_TYPE_FABRIC 8u /* CU_MEM_HANDLE_TYPE_FABRIC, which older headers do not have */

static bool fake_whole(size_t n)
{
    return 0 == n % fake.granularity;
}

static fake_memory_t *fake_memory(CUmemGenericAllocationHandle handle)
{
    fake_memory_t *memory = &fake_memories[(handle - FAKE_HANDLE) % FAKE_REGIONS];
    return handle < FAKE_HANDLE || handle >= FAKE_HANDLE + FAKE_REGIONS || 0 == memory->refs ? NULL : memory;
}

/* Of an object that goes, all must have been unbound before: the manual does not say what becomes of the rest. */
static void fake_memory_settle(fake_memory_t *memory)
{
    if (0 != memory->refs || 0 != memory->maps) {
        return;
    }
    for (unsigned i = 0; i < FAKE_GPUS; i++) {
        fake.mistakes += 0 != memory->bound[i].memory;
    }
    close(memory->fd);
}

/* A handle to the memory of fd, which is taken over. */
static CUresult fake_memory_add(int fd, size_t size, const CUmemAllocationProp *prop,
                                CUmemGenericAllocationHandle *handle)
{
    if (fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    for (unsigned i = 0; i < FAKE_REGIONS; i++) {
        if (0 == fake_memories[i].refs && 0 == fake_memories[i].maps) {
            fake_memories[i] = (fake_memory_t){.fd = fd, .size = size, .refs = 1, .prop = *prop};
            fake.handles++;
            *handle = FAKE_HANDLE + i;
            return CUDA_SUCCESS;
        }
    }
    close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Whether there can be such memory: of a GPU, by handles that the system has. */
static CUresult fake_memory_judge(const CUmemAllocationProp *prop)
{
    const unsigned types = (unsigned) prop->requestedHandleTypes;

    if (fake.no_vmm) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (CU_MEM_ALLOCATION_TYPE_PINNED != prop->type || CU_MEM_LOCATION_TYPE_DEVICE != prop->location.type ||
        0 != (types & ~(unsigned) CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR & ~FAKE_TYPE_FABRIC)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->location.id < 0 || prop->location.id >= fake.gpus) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (0 != (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) && fake.no_fd) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return 0 != (types & FAKE_TYPE_FABRIC) && !fake.fabric ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    FAKE_ENTER();
    if (CU_MEM_ALLOC_GRANULARITY_MINIMUM != option && CU_MEM_ALLOC_GRANULARITY_RECOMMENDED != option) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *granularity = fake.granularity;
    return fake_memory_judge(prop);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
    FAKE_ENTER();
    const CUresult result = fake_memory_judge(prop);
    if (CUDA_SUCCESS != result || 0 != flags || 0 == size || !fake_whole(size)) {
        return CUDA_SUCCESS != result ? result : CUDA_ERROR_INVALID_VALUE;
    }
    const int fd = memfd_create("fake", MFD_CLOEXEC);
    if (fd >= 0 && 0 != ftruncate(fd, (off_t) size)) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return fake_memory_add(fd, size, prop, handle);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *p)
{
    const fake_region_t *region = fake_region((uintptr_t) p);

    FAKE_ENTER();
    if (NULL == region || 0 == region->memory) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake_memories[region->memory - 1].refs++;
    fake.handles++;
    *handle = FAKE_HANDLE + region->memory - 1;
    return CUDA_SUCCESS;
}

/* Never made to fail: nothing could be done about it. */
CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    fake_memory_t *memory = fake_memory(handle);

    if (NULL == memory || 0 == fake.handles) {
        fake.mistakes++;
        return CUDA_ERROR_INVALID_VALUE;
    }
    memory->refs--;
    fake.handles--;
    fake_memory_settle(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    const fake_memory_t *memory = fake_memory(handle);

    FAKE_ENTER();
    if (NULL == memory || 0 != memory->devices) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *prop = memory->prop;
    return CUDA_SUCCESS;
}

/* What a fabric handle holds; it names the memory, and keeps nothing. */
typedef struct {
    dev_t device;
    ino_t inode;
} fake_fabric_t;
#define FAKE_FABRIC_BYTES 64 /* CUmemFabricHandle */

static fake_fabric_t fake_name(int fd)
{
    struct stat st = {0};

    (void) fstat(fd, &st);
    return (fake_fabric_t){st.st_dev, st.st_ino};
}

CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags)
{
    const fake_memory_t *memory = fake_memory(handle);

    FAKE_ENTER();
    if (NULL == memory || 0 != flags || 0 == (memory->prop.requestedHandleTypes & type)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (FAKE_TYPE_FABRIC == (unsigned) type) {
        const fake_fabric_t name = fake_name(memory->fd);
        memset(shared, 0, FAKE_FABRIC_BYTES);
        memcpy(shared, &name, sizeof(name));
        return CUDA_SUCCESS;
    }
    if (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != type) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *(int *) shared = dup(memory->fd);
    return *(int *) shared < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

/* The object of that name, or the memory; NULL: it is gone. */
static fake_memory_t *fake_find(const fake_fabric_t *name, bool object)
{
    for (unsigned i = 0; i < FAKE_REGIONS; i++) {
        fake_memory_t *memory = &fake_memories[i];
        if (0 == memory->refs && 0 == memory->maps) {
            continue;
        }
        const fake_fabric_t its = fake_name(memory->fd);
        if (its.device == name->device && its.inode == name->inode && object == (0 != memory->devices)) {
            return memory;
        }
    }
    return NULL;
}

/* All handles of a multicast object are one here: its members are. */
static CUresult fake_open_again(fake_memory_t *memory, CUmemGenericAllocationHandle *handle)
{
    memory->refs++;
    fake.handles++;
    *handle = FAKE_HANDLE + (CUmemGenericAllocationHandle) (memory - fake_memories);
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared,
                                        CUmemAllocationHandleType type)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    const int fd = (int) (intptr_t) shared;
    fake_memory_t *there;
    fake_fabric_t name;
    struct stat st;

    FAKE_ENTER();
    if (FAKE_TYPE_FABRIC == (unsigned) type) {
        memcpy(&name, shared, sizeof(name));
        there = fake_find(&name, true);
        there = NULL != there ? there : fake_find(&name, false);
        return !fake.fabric    ? CUDA_ERROR_NOT_PERMITTED
               : NULL == there ? CUDA_ERROR_INVALID_VALUE
                               : fake_open_again(there, handle);
    }
    if (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != type || 0 != fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    name = fake_name(fd);
    there = fake_find(&name, true);
    return NULL != there ? fake_open_again(there, handle)
                         : fake_memory_add(dup(fd), (size_t) st.st_size, &prop, handle);
}

/* ---- multicast objects ---- */

static unsigned fake_count(unsigned bits)
{
    return (unsigned) __builtin_popcount(bits);
}

/* Whether there can be such an object. Devices: at least one, and as many as there are. */
static CUresult fake_mc_judge(const CUmulticastObjectProp *prop)
{
    const unsigned long long known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | FAKE_TYPE_FABRIC;

    if (fake.no_multicast || fake.no_vmm) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (0 == prop->numDevices || 0 == prop->size || 0 != prop->flags || 0 != (prop->handleTypes & ~known)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->numDevices > (unsigned) fake.gpus) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (0 != (prop->handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) && fake.no_fd) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return 0 != (prop->handleTypes & FAKE_TYPE_FABRIC) && !fake.fabric ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop,
                                   CUmulticastGranularity_flags option)
{
    FAKE_ENTER();
    if (CU_MULTICAST_GRANULARITY_MINIMUM != option && CU_MULTICAST_GRANULARITY_RECOMMENDED != option) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *granularity = fake.mc_granularity;
    return fake_mc_judge(prop);
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop)
{
    const CUmemAllocationProp types = {.requestedHandleTypes = (CUmemAllocationHandleType) prop->handleTypes};

    fake.mc_created++;
    FAKE_ENTER();
    FAKE_UNSAFE();
    CUresult result = fake_mc_judge(prop);
    if (CUDA_SUCCESS != result || 0 != prop->size % fake.mc_granularity) {
        return CUDA_SUCCESS != result ? result : CUDA_ERROR_INVALID_VALUE;
    }
    const int fd = memfd_create("fake object", MFD_CLOEXEC);
    if (fd >= 0 && 0 != ftruncate(fd, (off_t) prop->size)) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = fake_memory_add(fd, prop->size, &types, handle);
    if (CUDA_SUCCESS == result) {
        fake_memories[*handle - FAKE_HANDLE].devices = prop->numDevices;
    }
    return result;
}

/* The object of a handle; NULL: it is none. */
static fake_memory_t *fake_object(CUmemGenericAllocationHandle handle)
{
    fake_memory_t *object = fake_memory(handle);
    return NULL != object && 0 != object->devices ? object : NULL;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice dev)
{
    fake_memory_t *object = fake_object(handle);

    FAKE_ENTER();
    FAKE_UNSAFE();
    if (dev < 10 || dev >= 10 + fake.gpus) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (NULL == object || 0 != (object->added & 1u << (dev - 10)) || fake_count(object->added) == object->devices) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    object->added |= 1u << (dev - 10);
    return CUDA_SUCCESS;
}

/* Whether all have been added. A real driver waits for that, in cuMemMap and in binds: for ever, where this thread is
 * the one to add them. */
static bool fake_mc_complete(const fake_memory_t *object)
{
    const bool complete = fake_count(object->added) == object->devices;
    fake.mistakes += !complete;
    return complete;
}

static bool fake_mc_whole(size_t n)
{
    return 0 == n % fake.mc_granularity;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t at, CUmemGenericAllocationHandle from,
                            size_t offset, size_t size, unsigned long long flags)
{
    fake_memory_t *object = fake_object(handle), *memory = fake_memory(from);

    FAKE_ENTER();
    FAKE_UNSAFE();
    if (NULL == object || NULL == memory || 0 != memory->devices || 0 != flags || 0 == size || !fake_mc_whole(at) ||
        !fake_mc_whole(offset) || !fake_mc_whole(size) || at + size > object->size || offset + size > memory->size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!fake_mc_complete(object)) {
        return CUDA_ERROR_NOT_READY;
    }
    const int gpu = memory->prop.location.id;
    if (CU_MEM_LOCATION_TYPE_DEVICE != memory->prop.location.type || 0 == (object->added & 1u << gpu)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (0 != object->bound[gpu].memory ||
        (0 != object->prop.requestedHandleTypes && 0 == memory->prop.requestedHandleTypes)) {
        return CUDA_ERROR_INVALID_VALUE; /* the fake keeps one binding of a GPU */
    }
    object->bound[gpu].memory = (unsigned) (from - FAKE_HANDLE) + 1;
    object->bound[gpu].at = at;
    object->bound[gpu].size = size;
    memory->maps++;
    fake.bound++;
    return CUDA_SUCCESS;
}

/* Strict: what was bound, and nothing else. */
CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice dev, size_t at, size_t size)
{
    fake_memory_t *object = fake_object(handle);
    const int gpu = dev - 10;

    FAKE_ENTER();
    FAKE_UNSAFE();
    if (NULL == object || gpu < 0 || gpu >= fake.gpus || 0 == object->bound[gpu].memory ||
        at != object->bound[gpu].at || size != object->bound[gpu].size) {
        fake.mistakes++;
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake_memory_t *memory = &fake_memories[object->bound[gpu].memory - 1];
    object->bound[gpu].memory = 0;
    memory->maps--;
    fake.bound--;
    fake_memory_settle(memory);
    return CUDA_SUCCESS;
}

/* The range that p lies in; NULL: none. */
static fake_range_t *fake_range(CUdeviceptr p)
{
    for (int i = 0; i < FAKE_REGIONS; i++) {
        if (0 != fake_ranges[i].base && fake_ranges[i].base <= p && p < fake_ranges[i].base + fake_ranges[i].size) {
            return &fake_ranges[i];
        }
    }
    return NULL;
}

/* Whether something is mapped in [p, p + size). */
static bool fake_mapped(CUdeviceptr p, size_t size)
{
    for (int i = 0; i < FAKE_REGIONS; i++) {
        const uintptr_t base = (uintptr_t) fake_regions[i].base;
        if (0 != base && 0 != fake_regions[i].memory && base < p + size && p < base + fake_regions[i].size) {
            return true;
        }
    }
    return false;
}

/* Without an alignment they are aligned as mappings must be. */
CUresult cuMemAddressReserve(CUdeviceptr *p, size_t size, size_t alignment, CUdeviceptr at, unsigned long long flags)
{
    const size_t page = (size_t) sysconf(_SC_PAGESIZE), unit = 0 != alignment ? alignment : fake.granularity;
    fake_range_t *range = fake_ranges;

    FAKE_ENTER();
    if (fake.no_vmm) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (0 == size || 0 != size % page || 0 != (alignment & (alignment - 1)) || 0 != at % page || 0 != flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    while (range < fake_ranges + FAKE_REGIONS && 0 != range->base) {
        range++;
    }
    char *map = fake_ranges + FAKE_REGIONS == range
                    ? MAP_FAILED
                    : mmap(NULL, size + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (MAP_FAILED == map) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const size_t before = (unit - (uintptr_t) map % unit) % unit;
    if (0 != before) {
        (void) munmap(map, before);
    }
    (void) munmap(map + before + size, unit - before);
    *range = (fake_range_t){(uintptr_t) map + before, size};
    fake.reserved++;
    *p = range->base;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t size)
{
    fake_range_t *range = fake_range(p);

    FAKE_ENTER();
    FAKE_UNSAFE();
    if (NULL == range || range->base != p || range->size != size || fake_mapped(p, size) || 0 == fake.reserved) {
        fake.mistakes++;
        return CUDA_ERROR_INVALID_VALUE;
    }
    (void) munmap((void *) (uintptr_t) p, size);
    range->base = 0;
    fake.reserved--;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    fake_memory_t *memory = fake_memory(handle);
    const fake_range_t *range = fake_range(p);

    FAKE_ENTER();
    if (NULL == memory || NULL == range || p + size > range->base + range->size || 0 != offset || 0 != flags ||
        0 == size || size > memory->size || !fake_whole(size) || !fake_whole(p) || fake_mapped(p, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (0 != memory->devices && !fake_mc_whole(p | size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (0 != memory->devices && !fake_mc_complete(memory)) {
        return CUDA_ERROR_NOT_READY;
    }
    for (int i = 0; i < FAKE_REGIONS; i++) {
        if (NULL == fake_regions[i].base) {
            fake_regions[i] = (fake_region_t){
                .base = mmap((void *) (uintptr_t) p, size, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->fd, 0),
                .size = size,
                .type = CU_MEMORYTYPE_DEVICE,
                .ordinal = memory->prop.location.id,
                .id = 1, /* the same of all: nothing may rely on it */
                .memory = (unsigned) (handle - FAKE_HANDLE) + 1};
            memory->maps++;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemUnmap(CUdeviceptr p, size_t size)
{
    fake_region_t *region = fake_region(p);

    FAKE_ENTER();
    FAKE_UNSAFE();
    if (NULL == region || 0 == region->memory || (uintptr_t) region->base != p || region->size != size) {
        fake.mistakes++;
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake_run_all();
    fake_memory_t *memory = &fake_memories[region->memory - 1];
    memory->maps--;
    fake_memory_settle(memory);
    (void) mmap(region->base, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    region->base = NULL;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc *access, size_t count)
{
    fake_region_t *region = fake_region(p);

    FAKE_ENTER();
    if (NULL == region || 0 == region->memory || (uintptr_t) region->base != p || region->size != size || 1 != count ||
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE != access->flags || CU_MEM_LOCATION_TYPE_DEVICE != access->location.type) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (access->location.id < 0 || access->location.id >= fake.gpus) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    region->access |= 1u << access->location.id;
    return 0 == mprotect(region->base, size, PROT_READ | PROT_WRITE) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    FAKE_CONTEXT();
    if (CU_STREAM_NON_BLOCKING < flags || NULL == (*stream = fake_hand_out(sizeof(**stream)))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    (*stream)->ctx = fake_current();
    (*stream)->blocking = CU_STREAM_DEFAULT == flags;
    (*stream)->priority = priority;
    (*stream)->next = fake_streams;
    fake_streams = *stream;
    fake.streams++;
    return CUDA_SUCCESS;
}

/* Destroys it even if it fails: an error is what earlier work has left. */
CUresult cuStreamDestroy_v2(CUstream stream)
{
    if (CUDA_SUCCESS != fake.gone || NULL == stream || stream->ctx != fake_current()) {
        FAKE_STREAM(stream);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    for (CUstream *link = &fake_streams; NULL != *link; link = &(*link)->next) {
        if (*link == stream) {
            *link = stream->next;
            break;
        }
    }
    fake_take_back(stream);
    fake.streams--;
    FAKE_ENTER();
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    if (CU_STREAM_LEGACY == stream) {
        FAKE_CONTEXT();
        if (fake.captures) {
            fake.mistakes++; /* it ends the capture */
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        fake.legacy_waits++;
        return CUDA_SUCCESS;
    }
    if (!fake_default(stream) && fake_is_named(__func__) && 1 == fake.fail_at) {
        stream->ops = 0; /* the error has come before them */
    }
    FAKE_STREAM(stream);
    FAKE_UNSAFE();
    fake_run(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
    FAKE_STREAM(stream);
    FAKE_UNSAFE();
    if (fake.busy) {
        return CUDA_ERROR_NOT_READY;
    }
    fake_run(stream);
    return 0 == stream->ops ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* Needs no context but of a default stream. */
CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx)
{
    FAKE_ENTER();
    if (fake_default(stream)) {
        FAKE_CONTEXT();
    }
    *ctx = fake_default(stream) ? fake_current() : stream->ctx;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    const bool legacy = NULL == stream || CU_STREAM_LEGACY == stream;

    FAKE_STREAM(stream);
    *status = stream->capture;
    return legacy && fake.captures ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    FAKE_CONTEXT();
    if (CU_EVENT_DISABLE_TIMING != flags || NULL == (*event = fake_hand_out(sizeof(**event)))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake.events++;
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    FAKE_STREAM(stream);
    event->behind_legacy = stream->blocking;
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event)
{
    FAKE_ENTER();
    FAKE_UNSAFE();
    fake.legacy_waits += event->behind_legacy;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    fake_take_back(event);
    fake.events--;
    FAKE_ENTER();
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    const CUstreamCaptureMode before = fake_mode;

    FAKE_ENTER();
    fake_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned n, CUstreamBatchMemOpParams *ops, unsigned flags)
{
    FAKE_STREAM(stream);
    for (unsigned i = 0; i < n; i++) {
        const bool wait = CU_STREAM_MEM_OP_WAIT_VALUE_32 == ops[i].operation;
        if (0 != flags || (!wait && CU_STREAM_MEM_OP_WRITE_VALUE_32 != ops[i].operation) ||
            (wait ? CU_STREAM_WAIT_VALUE_GEQ : CU_STREAM_WRITE_VALUE_DEFAULT) != ops[i].waitValue.flags) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        CUresult result = fake_queue(stream, NULL, NULL, 0, 0);
        if (CUDA_SUCCESS != result) {
            return result;
        }
        stream->op[stream->ops - 1].flag = (uint32_t *) (uintptr_t) ops[i].waitValue.address;
        stream->op[stream->ops - 1].number = (uint32_t) ops[i].waitValue.value;
        stream->op[stream->ops - 1].wait = wait;
    }
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    if ((gpusym_fatbin != image && gpusym_few_fatbin != image && gpusym_stream_fatbin != image) ||
        NULL == (*module = fake_hand_out(sizeof(**module)))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    (*module)->ctx = fake_current();
    fake.modules++;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    if (module->ctx != fake_current()) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    fake_take_back(module);
    fake.modules--;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    FAKE_CONTEXT();
    for (unsigned k = 0; k < GPUSYM_K_COUNT; k++) {
        const char *few = gpusym_kernel_few_symbol(k);
        if (0 == strcmp(name, gpusym_kernel_symbol(k)) || (NULL != few && 0 == strcmp(name, few))) {
            const bool all = 0 == strcmp(name, gpusym_kernel_symbol(k));
            *function = all ? &module->functions[k] : &module->few[k];
            (*function)->bytes = all ? sizeof(gpusym_work_t) : gpusym_few_layout.end;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncLoad(CUfunction function)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    function->loaded = true;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra)
{
    FAKE_STREAM(stream);
    if (1 != gy || 1 != gz || 1 != by || 1 != bz || 0 != shared || NULL != extra || 0 == gx || 0 == bx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake.launched.function = function;
    fake.launched.stream = stream;
    fake.launched.blocks = gx;
    fake.launched.threads = bx;
    memcpy(&fake.launched.work, parameters[0], function->bytes);
    fake.launched.soon = false;
    fake.launched.cluster = 0;
    return CUDA_SUCCESS;
}

/* Blocks of a cluster, if that is what the attribute says, and so many blocks can be divided into such; else 0. Up to 8
 * all GPUs that have clusters can have. */
static unsigned fake_cluster(CUlaunchAttributeID id, const CUlaunchAttributeValue *value, unsigned blocks)
{
    const unsigned cluster = value->clusterDim.x;
    return CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION == id && 1 == value->clusterDim.y && 1 == value->clusterDim.z &&
                   cluster > 0 && cluster <= 8 && 0 == blocks % cluster
               ? cluster
               : 0;
}

/* With one of the attributes that are used. */
#undef cuLaunchKernelEx
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    const CUlaunchAttribute *a = config->attrs;
    const bool soon = 1 == config->numAttrs && CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION == a->id &&
                      1 == a->value.programmaticStreamSerializationAllowed;
    const unsigned cluster = 1 == config->numAttrs && !soon ? fake_cluster(a->id, &a->value, config->gridDimX) : 0;
    if (!soon && 0 == cluster) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fake_fails(__func__)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUresult result = cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                                           config->blockDimX, config->blockDimY, config->blockDimZ,
                                           config->sharedMemBytes, config->hStream, parameters, extra);
    fake.launched.soon = soon;
    fake.launched.cluster = cluster;
    return result;
}

/* Graphs of one kernel. */

struct CUgraphNode_st {
    CUfunction function;
    unsigned blocks, threads, cluster;
    gpusym_work_t work; /* copied when it is set, as by the driver */
};

struct CUgraph_st {
    bool filled;
    struct CUgraphNode_st node;
};

struct CUgraphExec_st {
    CUgraph graph;
    struct CUgraphNode_st node;
};

static bool fake_node_set(struct CUgraphNode_st *node, const CUDA_KERNEL_NODE_PARAMS *p)
{
    if (1 != p->gridDimY || 1 != p->gridDimZ || 1 != p->blockDimY || 1 != p->blockDimZ || 0 != p->sharedMemBytes ||
        NULL != p->extra || 0 == p->gridDimX || 0 == p->blockDimX) {
        return false;
    }
#if CUDA_VERSION >= 12000
    if (NULL != p->kern || NULL != p->ctx) {
        return false;
    }
#endif
    if (0 != node->cluster && 0 != p->gridDimX % node->cluster) {
        return false;
    }
    *node = (struct CUgraphNode_st){
        .function = p->func, .blocks = p->gridDimX, .threads = p->blockDimX, .cluster = node->cluster};
    memcpy(&node->work, p->kernelParams[0], p->func->bytes);
    return true;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags)
{
    FAKE_CONTEXT();
    if (0 != flags || NULL == (*graph = fake_hand_out(sizeof(**graph)))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake.graphs++;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n,
                              const CUDA_KERNEL_NODE_PARAMS *params)
{
    FAKE_CONTEXT();
    if (NULL != before || 0 != n || graph->filled || !fake_node_set(&graph->node, params)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    graph->filled = true;
    *node = &graph->node;
    return CUDA_SUCCESS;
}

#undef cuGraphKernelNodeSetAttribute
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value)
{
    FAKE_CONTEXT();
    node->cluster = fake_cluster(id, value, node->blocks);
    return 0 != node->cluster ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    FAKE_CONTEXT();
    FAKE_UNSAFE();
    if (0 != flags || !graph->filled || NULL == (*exec = fake_hand_out(sizeof(**exec)))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    **exec = (struct CUgraphExec_st){graph, graph->node};
    fake.execs++;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    FAKE_CONTEXT();
    return &exec->graph->node == node && fake_node_set(&exec->node, params) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    FAKE_STREAM(stream);
    fake.launched.function = exec->node.function;
    fake.launched.stream = stream;
    fake.launched.blocks = exec->node.blocks;
    fake.launched.threads = exec->node.threads;
    fake.launched.work = exec->node.work;
    fake.launched.cluster = exec->node.cluster;
    return CUDA_SUCCESS;
}

/* Never made to fail, nor is cuGraphDestroy: nothing could be done about it. */
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    if (fake_gone(__func__)) {
        return fake.gone;
    }
    fake_take_back(exec);
    fake.execs--;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    if (fake_gone(__func__)) {
        return fake.gone;
    }
    fake_take_back(graph);
    fake.graphs--;
    return CUDA_SUCCESS;
}

/* The dynamic linker, as device/cuda sees it. */

static void *fake_dlopen(const char *name, int flags)
{
    (void) flags;
    return fake.no_library || 0 != strcmp(name, "libcuda.so.1") ? NULL : (void *) &fake;
}

static char *fake_dlerror(void)
{
    static char text[] = "no such file";

    return text;
}

static int fake_dlclose(void *lib)
{
    return (void *) &fake == lib ? 0 : -1;
}

static void *fake_dlsym(void *lib, const char *name)
{
    if ((void *) &fake != lib || (NULL != fake.missing && 0 == strcmp(fake.missing, name))) {
        return NULL;
    }
#define X(symbol)                            \
    if (0 == strcmp(name, SYMBOL(symbol))) { \
        return (void *) symbol;              \
    }
    DRIVER_REQUIRED(X)
#undef X
#define X(symbol, type)               \
    if (0 == strcmp(name, #symbol)) { \
        return (void *) symbol;       \
    }
    DRIVER_OPTIONAL(X)
#undef X
    return 0 == strcmp(name, "cuMulticastCreate") ? (void *) cuMulticastCreate : NULL;
}

#endif
