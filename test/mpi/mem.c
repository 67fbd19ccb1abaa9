/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory of every kind for the test programs: see mem.h.  The CUDA driver is declared by hand: the tests
 * are built where there is no cuda.h, and use nothing of device/cuda.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "mca/common/gpusym/device/device.h"
#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/device/sim/sim.h"
#include "test/mpi/mem.h"

#define ALIGN 256

/* How one device gives memory. copy() is given at least one pointer that is not ordinary host memory. */
typedef struct {
    const char *name;
    int (*init)(int local_rank);
    void (*fini)(void);
    bool (*have)(int kind);
    void *(*alloc)(int kind, size_t size);
    void (*free)(int kind, void *p);
    bool (*plain)(const void *p); /* whether the CPU may touch it */
    void (*copy)(void *dst, const void *src, size_t size);
    void (*synchronize)(void);
    bool (*context_kept)(void);
} mem_device_t;

static bool always(void)
{
    return true;
}

/* ---- CUDA ---- */

/* CUmemLocation of a GPU, CUmemAllocationProp and CUmemAccessDesc. */
typedef struct {
    int type, ordinal;
} mem_location_t;
typedef struct {
    int type, handle_types;
    mem_location_t location;
    void *unused;
    unsigned char flags[8];
} mem_prop_t;
typedef struct {
    mem_location_t location;
    int flags;
} mem_access_t;

/* DRIVER(name, parameters): entry points, as the driver exports them. CUdeviceptr is an integer as wide as a pointer.
 */
#define DRIVER_LIST                                                                                       \
    DRIVER(cuInit, (unsigned flags))                                                                      \
    DRIVER(cuGetErrorName, (int result, const char **name))                                               \
    DRIVER(cuDeviceGetCount, (int *count))                                                                \
    DRIVER(cuDeviceGet, (int *dev, int ordinal))                                                          \
    DRIVER(cuDeviceGetAttribute, (int *value, int attribute, int dev))                                    \
    DRIVER(cuDevicePrimaryCtxRetain, (void **ctx, int dev))                                               \
    DRIVER(cuDevicePrimaryCtxRelease_v2, (int dev))                                                       \
    DRIVER(cuCtxGetCurrent, (void **ctx))                                                                 \
    DRIVER(cuCtxSetCurrent, (void *ctx))                                                                  \
    DRIVER(cuPointerGetAttribute, (void *value, int attribute, uintptr_t p))                              \
    DRIVER(cuMemAlloc_v2, (uintptr_t * p, size_t size))                                                   \
    DRIVER(cuMemFree_v2, (uintptr_t p))                                                                   \
    DRIVER(cuMemAllocManaged, (uintptr_t * p, size_t size, unsigned flags))                               \
    DRIVER(cuMemHostRegister_v2, (void *p, size_t size, unsigned flags))                                  \
    DRIVER(cuMemHostUnregister, (void *p))                                                                \
    DRIVER(cuMemAllocAsync, (uintptr_t * p, size_t size, void *stream))                                   \
    DRIVER(cuMemFreeAsync, (uintptr_t p, void *stream))                                                   \
    DRIVER(cuMemGetAllocationGranularity, (size_t * bytes, const mem_prop_t *prop, unsigned flags))       \
    DRIVER(cuMemCreate, (uint64_t * handle, size_t size, const mem_prop_t *prop, uint64_t flags))         \
    DRIVER(cuMemRelease, (uint64_t handle))                                                               \
    DRIVER(cuMemAddressReserve, (uintptr_t * p, size_t size, size_t align, uintptr_t at, uint64_t flags)) \
    DRIVER(cuMemAddressFree, (uintptr_t p, size_t size))                                                  \
    DRIVER(cuMemMap, (uintptr_t p, size_t size, size_t offset, uint64_t handle, uint64_t flags))          \
    DRIVER(cuMemUnmap, (uintptr_t p, size_t size))                                                        \
    DRIVER(cuMemSetAccess, (uintptr_t p, size_t size, const mem_access_t *access, size_t count))          \
    DRIVER(cuMemcpyAsync, (uintptr_t dst, uintptr_t src, size_t size, void *stream))                      \
    DRIVER(cuStreamCreate, (void **stream, unsigned flags))                                               \
    DRIVER(cuStreamDestroy_v2, (void *stream))                                                            \
    DRIVER(cuCtxSynchronize, (void) )                                                                     \
    DRIVER(cuStreamSynchronize, (void *stream))

/* Constants of the driver's interface. */
enum {
    STREAM_NON_BLOCKING = 1,    /* CU_STREAM_NON_BLOCKING */
    ATTACH_GLOBAL = 1,          /* CU_MEM_ATTACH_GLOBAL */
    REGISTER_FLAGS = 1 | 2,     /* CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP */
    POINTER_MEMORY_TYPE = 2,    /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
    MEMORY_TYPE_HOST = 1,       /* CU_MEMORYTYPE_HOST */
    DEVICE_MANAGED_MEMORY = 83, /* CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY */
    DEVICE_MAPPED_MEMORY = 102, /* CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
    DEVICE_BY_DESCRIPTOR = 103, /* CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
    DEVICE_MEMORY_POOLS = 115,  /* CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED */
    LOCATION_DEVICE = 1,        /* CU_MEM_LOCATION_TYPE_DEVICE */
    ALLOCATION_PINNED = 1,      /* CU_MEM_ALLOCATION_TYPE_PINNED */
    HANDLE_DESCRIPTOR = 1,      /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
    ACCESS_READWRITE = 3,       /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
};

static struct {
#define DRIVER(name, parameters) int(*name) parameters;
    DRIVER_LIST
#undef DRIVER
    int dev;
    int ordinal;
    void *ctx;
    void *stream; /* of our copies, beside whatever else runs */
} cu;

static int cu_check(const char *call, int result)
{
    const char *name = NULL;

    if (0 != result) {
        cu.cuGetErrorName(result, &name);
        fprintf(stderr, "mem: %s: %s\n", call, NULL == name ? "unknown error" : name);
    }
    return 0 == result ? 0 : -1;
}

#define CU(name, ...) cu_check(#name, cu.name(__VA_ARGS__))

/* Our context for a while; returns what was current, for cu_leave(). */
static void *cu_enter(void)
{
    void *before = NULL;

    cu.cuCtxGetCurrent(&before);
    if (before != cu.ctx) {
        CU(cuCtxSetCurrent, cu.ctx);
    }
    return before;
}

static void cu_leave(void *before)
{
    if (before != cu.ctx) {
        CU(cuCtxSetCurrent, before);
    }
}

static int cuda_init(int local_rank)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int count = 0;

    if (NULL == lib) {
        fprintf(stderr, "mem: no CUDA driver: %s\n", dlerror());
        return -1;
    }
#define DRIVER(name, parameters)                                     \
    if (NULL == (cu.name = (int(*) parameters) dlsym(lib, #name))) { \
        fprintf(stderr, "mem: the CUDA driver has no %s\n", #name);  \
        return -1;                                                   \
    }
    DRIVER_LIST
#undef DRIVER
    if (0 != CU(cuInit, 0) || 0 != CU(cuDeviceGetCount, &count) || 1 > count) {
        fprintf(stderr, "mem: no GPU\n");
        return -1;
    }
    cu.ordinal = local_rank % count;
    if (0 != CU(cuDeviceGet, &cu.dev, cu.ordinal) || 0 != CU(cuDevicePrimaryCtxRetain, &cu.ctx, cu.dev) ||
        0 != CU(cuCtxSetCurrent, cu.ctx) || 0 != CU(cuStreamCreate, &cu.stream, STREAM_NON_BLOCKING)) {
        return -1;
    }
    return 0;
}

static void cuda_fini(void)
{
    CU(cuStreamDestroy_v2, cu.stream);
    CU(cuCtxSetCurrent, NULL);
    CU(cuDevicePrimaryCtxRelease_v2, cu.dev);
}

static bool cuda_has(int attribute)
{
    int value = 0;

    CU(cuDeviceGetAttribute, &value, attribute, cu.dev);
    return 0 != value;
}

static bool cuda_have(int kind)
{
    switch (kind) {
    case MEM_MANAGED:
        return cuda_has(DEVICE_MANAGED_MEMORY);
    case MEM_ASYNC:
        return cuda_has(DEVICE_MEMORY_POOLS);
    case MEM_VMM:
    case MEM_PIECES:
        return cuda_has(DEVICE_MAPPED_MEMORY) && cuda_has(DEVICE_BY_DESCRIPTOR);
    default:
        return true;
    }
}

/* Addresses that memory of cuMemCreate is mapped at. */
typedef struct mapped {
    struct mapped *next;
    uintptr_t p;
    size_t size, piece; /* bytes, and those of each mapping */
} mapped_t;

static struct {
    pthread_mutex_t lock;
    mapped_t *first;
} mapped = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Maps memory of its own at each piece; the mapping keeps it. */
static int mapped_fill(const mapped_t *m, const mem_prop_t *prop)
{
    const mem_access_t access = {.location = prop->location, .flags = ACCESS_READWRITE};
    int rc = 0;

    for (size_t at = 0; at < m->size && 0 == rc; at += m->piece) {
        uint64_t memory;

        rc = CU(cuMemCreate, &memory, m->piece, prop, 0);
        if (0 == rc) {
            rc = CU(cuMemMap, m->p + at, m->piece, 0, memory, 0);
            CU(cuMemRelease, memory);
        }
    }
    return 0 == rc ? CU(cuMemSetAccess, m->p, m->size, &access, 1) : rc;
}

/* What fails on the way is not given back: the test ends then. */
static int mapped_alloc(bool pieces, size_t size, uintptr_t *p)
{
    const mem_prop_t prop = {.type = ALLOCATION_PINNED,
                             .handle_types = HANDLE_DESCRIPTOR,
                             .location = {.type = LOCATION_DEVICE, .ordinal = cu.ordinal}};
    mapped_t *m = calloc(1, sizeof(*m));
    size_t unit = 0;

    if (NULL == m || 0 != CU(cuMemGetAllocationGranularity, &unit, &prop, 0)) {
        return -1;
    }
    m->size = (size + unit - 1) / unit * unit;
    m->piece = pieces ? unit : m->size;
    if (0 != CU(cuMemAddressReserve, &m->p, m->size, 0, 0, 0) || 0 != mapped_fill(m, &prop)) {
        return -1;
    }
    pthread_mutex_lock(&mapped.lock);
    m->next = mapped.first;
    mapped.first = m;
    pthread_mutex_unlock(&mapped.lock);
    *p = m->p;
    return 0;
}

static void mapped_free(uintptr_t p)
{
    mapped_t **link, *m;

    pthread_mutex_lock(&mapped.lock);
    for (link = &mapped.first; NULL != (m = *link) && m->p != p; link = &m->next) {
    }
    *link = NULL == m ? NULL : m->next;
    pthread_mutex_unlock(&mapped.lock);
    for (size_t at = 0; NULL != m && at < m->size; at += m->piece) {
        CU(cuMemUnmap, p + at, m->piece);
    }
    if (NULL != m) {
        CU(cuMemAddressFree, p, m->size);
    }
    free(m);
}

/* Host memory, registered with the GPU afterwards. */
static int registered_alloc(size_t size, uintptr_t *p)
{
    void *host = aligned_alloc(4096, (size + 4095) / 4096 * 4096);

    if (NULL == host || 0 != CU(cuMemHostRegister_v2, host, (size + 4095) / 4096 * 4096, REGISTER_FLAGS)) {
        free(host);
        return -1;
    }
    *p = (uintptr_t) host;
    return 0;
}

static void *cuda_alloc(int kind, size_t size)
{
    uintptr_t p = 0;
    void *before = cu_enter();
    int rc = -1;

    switch (kind) {
    case MEM_DEVICE:
        rc = CU(cuMemAlloc_v2, &p, size);
        break;
    case MEM_MANAGED:
        rc = CU(cuMemAllocManaged, &p, size, ATTACH_GLOBAL);
        break;
    case MEM_REGISTERED:
        rc = registered_alloc(size, &p);
        break;
    case MEM_VMM:
    case MEM_PIECES:
        rc = mapped_alloc(MEM_PIECES == kind, size, &p);
        break;
    case MEM_ASYNC:
        rc = CU(cuMemAllocAsync, &p, size, cu.stream);
        if (0 == rc) {
            rc = CU(cuStreamSynchronize, cu.stream); /* other streams may use it from now on */
        }
        break;
    }
    cu_leave(before);
    return 0 == rc ? (void *) p : NULL;
}

static void cuda_free(int kind, void *p)
{
    void *before = cu_enter();

    switch (kind) {
    case MEM_DEVICE:
    case MEM_MANAGED:
        CU(cuMemFree_v2, (uintptr_t) p);
        break;
    case MEM_REGISTERED:
        CU(cuMemHostUnregister, p);
        free(p);
        break;
    case MEM_VMM:
    case MEM_PIECES:
        mapped_free((uintptr_t) p);
        break;
    case MEM_ASYNC:
        CU(cuMemFreeAsync, (uintptr_t) p, cu.stream);
        CU(cuStreamSynchronize, cu.stream);
        break;
    }
    cu_leave(before);
}

/* An error here is the driver's way to say that it does not know the pointer. */
static bool cuda_plain(const void *p)
{
    unsigned type = 0;

    return 0 != cu.cuPointerGetAttribute(&type, POINTER_MEMORY_TYPE, (uintptr_t) p) || MEMORY_TYPE_HOST == type;
}

static void cuda_copy(void *dst, const void *src, size_t size)
{
    void *before = cu_enter();

    if (0 != CU(cuMemcpyAsync, (uintptr_t) dst, (uintptr_t) src, size, cu.stream) ||
        0 != CU(cuStreamSynchronize, cu.stream)) {
        exit(EXIT_FAILURE);
    }
    cu_leave(before);
}

static void cuda_synchronize(void)
{
    void *before = cu_enter();

    if (0 != CU(cuCtxSynchronize)) {
        exit(EXIT_FAILURE);
    }
    cu_leave(before);
}

static bool cuda_context_kept(void)
{
    void *now = NULL;

    return 0 == CU(cuCtxGetCurrent, &now) && now == cu.ctx;
}

/* ---- The simulator: injected faults hit the component, never a test's own memory ---- */

static struct {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;
} sim;

static int sim_check(const char *call, int rc)
{
    if (GPUSYM_SUCCESS != rc) {
        fprintf(stderr, "mem: %s on the simulator: %s\n", call, sim.dev->error());
    }
    return GPUSYM_SUCCESS == rc ? 0 : -1;
}

/* Most often the component has opened it already; then its choice and its parameters stand. */
static int sim_init(int local_rank)
{
    const char *why = "it is not known why";

    if (NULL == gpusym_device()) {
        gpusym_sim_params.local_rank = local_rank;
    }
    sim.dev = gpusym_device_select(GPUSYM_DEVICE_SIM, &why);
    if (NULL == sim.dev) {
        fprintf(stderr, "mem: no simulator: %s\n", why);
        return -1;
    }
    if (!sim.dev->simulated) {
        fprintf(stderr, "mem: the component uses the device \"%s\" (run with --mca coll_gpusym_device sim)\n",
                sim.dev->name);
        return -1;
    }
    gpusym_sim_faults_hold(true);
    const int rc = sim.dev->gpu_open(NULL, &sim.gpu);
    gpusym_sim_faults_hold(false);
    return sim_check("gpu_open", rc);
}

static void sim_fini(void)
{
    sim.dev = NULL; /* whoever opened it closes it */
}

static bool sim_have(int kind)
{
    return MEM_PIECES != kind;
}

static void *sim_alloc(int kind, size_t size)
{
    void *p = NULL, *seen;
    int rc = -1;

    gpusym_sim_faults_hold(true);
    switch (kind) {
    case MEM_DEVICE:
        rc = sim_check("mem_alloc", sim.dev->mem_alloc(sim.gpu, size, &p));
        break;
    case MEM_VMM:
        rc = sim_check("gpusym_sim_vmm_alloc", gpusym_sim_vmm_alloc(size, &p));
        break;
    case MEM_ASYNC:
        rc = sim_check("gpusym_sim_pool_alloc", gpusym_sim_pool_alloc(size, &p));
        break;
    case MEM_MANAGED:
        rc = sim_check("gpusym_sim_managed_alloc", gpusym_sim_managed_alloc(size, &p));
        break;
    case MEM_REGISTERED:
        rc = sim_check("host_alloc", sim.dev->host_alloc(sim.gpu, size, &p, &seen));
        break;
    }
    gpusym_sim_faults_hold(false);
    return 0 == rc ? p : NULL;
}

static void sim_free(int kind, void *p)
{
    switch (kind) {
    case MEM_DEVICE:
        sim_check("mem_free", sim.dev->mem_free(sim.gpu, p));
        break;
    case MEM_VMM:
        sim_check("gpusym_sim_vmm_free", gpusym_sim_vmm_free(p));
        break;
    case MEM_ASYNC:
        sim_check("gpusym_sim_pool_free", gpusym_sim_pool_free(p));
        break;
    case MEM_MANAGED:
        sim_check("gpusym_sim_managed_free", gpusym_sim_managed_free(p));
        break;
    case MEM_REGISTERED:
        sim_check("host_free", sim.dev->host_free(sim.gpu, p));
        break;
    }
}

/* With the parameter sim_host all memory counts as the device's, and goes by copy(). */
static bool sim_plain(const void *p)
{
    gpusym_mem_t mem;

    sim.dev->query(p, &mem);
    return GPUSYM_MEM_HOST == mem.kind;
}

static void sim_copy(void *dst, const void *src, size_t size)
{
    gpusym_sim_faults_hold(true);
    if (0 != sim_check("copy", sim.dev->copy(sim.gpu, dst, src, size))) {
        exit(EXIT_FAILURE);
    }
    gpusym_sim_faults_hold(false);
}

static void sim_synchronize(void)
{
    (void) sim_check("gpusym_sim_synchronize", gpusym_sim_synchronize());
}

/* ---- No device ---- */

static int host_init(int local_rank)
{
    (void) local_rank;
    return 0;
}

static void host_fini(void)
{
}

static bool host_have(int kind)
{
    return MEM_HOST == kind;
}

static bool host_plain(const void *p)
{
    (void) p;
    return true;
}

/* ---- Which ---- */

static const mem_device_t devices[] = {
    {"cuda", cuda_init, cuda_fini, cuda_have, cuda_alloc, cuda_free, cuda_plain, cuda_copy, cuda_synchronize,
     cuda_context_kept},
    {"sim", sim_init, sim_fini, sim_have, sim_alloc, sim_free, sim_plain, sim_copy, sim_synchronize, always},
    {"host", host_init, host_fini, host_have, NULL, NULL, host_plain, NULL, NULL, always},
};

static const mem_device_t *mem; /* chosen by mem_init, constant until mem_fini */

int mem_init(const char *device, int local_rank)
{
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        if (0 == strcmp(device, devices[i].name)) {
            int rc = devices[i].init(local_rank);
            mem = 0 == rc ? &devices[i] : NULL;
            return rc;
        }
    }
    fprintf(stderr, "mem: there is no device \"%s\"\n", device);
    return -1;
}

void mem_fini(void)
{
    if (NULL != mem) {
        mem->fini();
        mem = NULL;
    }
}

const char *mem_device(void)
{
    return NULL == mem ? NULL : mem->name;
}

int mem_gpu(void)
{
    return cu.ordinal;
}

bool mem_have(int kind)
{
    return MEM_HOST == kind || (0 <= kind && MEM_COUNT > kind && mem->have(kind));
}

const char *mem_name(int kind)
{
    static const char *const names[] = {
#define MEM_KIND(id, name) #name,
        MEM_KINDS
#undef MEM_KIND
    };

    return 0 <= kind && MEM_COUNT > kind ? names[kind] : NULL;
}

void *mem_alloc(int kind, size_t size)
{
    if (!mem_have(kind)) {
        fprintf(stderr, "mem: device %s has no memory of kind %d\n", mem->name, kind);
        return NULL;
    }
    size = 0 == size ? 1 : size;
    return MEM_HOST == kind ? aligned_alloc(ALIGN, (size + ALIGN - 1) / ALIGN * ALIGN) : mem->alloc(kind, size);
}

void mem_free(int kind, void *p)
{
    if (MEM_HOST == kind) {
        free(p);
    } else if (NULL != p) {
        mem->free(kind, p);
    }
}

bool mem_plain(const void *p)
{
    return mem->plain(p);
}

static void mem_copy(void *dst, const void *src, size_t size)
{
    if (0 == size) {
        return;
    }
    if (mem->plain(dst) && mem->plain(src)) {
        memcpy(dst, src, size);
    } else {
        mem->copy(dst, src, size);
    }
}

void mem_write(void *dst, const void *src, size_t size)
{
    mem_copy(dst, src, size);
}

void mem_synchronize(void)
{
    if (NULL != mem->synchronize) {
        mem->synchronize();
    }
}

void mem_read(void *dst, const void *src, size_t size)
{
    mem_copy(dst, src, size);
}

void mem_write_later(void *dst, const void *src, size_t size, void *busy)
{
    if (0 != strcmp("cuda", mem->name)) {
        mem_copy(dst, src, size);
        return;
    }
    int rc = 0;
    for (int i = 0; 0 == rc && i < 64; i++) {
        rc = CU(cuMemcpyAsync, (uintptr_t) busy, (uintptr_t) busy + MEM_BUSY / 2, MEM_BUSY / 2, NULL);
    }
    if (0 != rc || 0 != CU(cuMemcpyAsync, (uintptr_t) dst, (uintptr_t) src, size, NULL)) {
        exit(EXIT_FAILURE);
    }
}

bool mem_context_kept(void)
{
    return mem->context_kept();
}

bool mem_limit(size_t more)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void) more;
    return false;
#else
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    const bool read = NULL != f && 1 == fscanf(f, "%lu", &pages);
    const rlim_t bytes = (rlim_t) pages * (rlim_t) sysconf(_SC_PAGESIZE) + more;
    const struct rlimit limit = {bytes, bytes};
    if (NULL != f) {
        fclose(f);
    }
    return read && 0 == setrlimit(RLIMIT_AS, &limit);
#endif
}
