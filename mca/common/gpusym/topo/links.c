/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Links between GPUs, and network devices near them: see links.h. The only file that knows NVML and hwloc.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/topo/links.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mca/common/gpusym/common.h"

#if GPUSYM_HAVE_HWLOC
#include <hwloc.h>
#endif

/* Covers all static state below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Constant, but for tests. */
static const char *sysfs = "/sys";

/* A PCI address as a number, without its function; 0: the text is none, or that of a host bridge, which no GPU is. */
static uint64_t pci_key(const char *text)
{
    unsigned domain, bus, device;
    return 3 == sscanf(text, "%x:%x:%x", &domain, &bus, &device)
               ? (uint64_t) domain << 16 | (bus & 255) << 8 | (device & 255)
               : 0;
}

/* ---- NVML: opened at run time, as libcuda is; declared here by its public documentation, for want of nvml.h ---- */

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

enum { NVML_SUCCESS = 0, NVML_ERROR_INVALID_ARGUMENT = 2 };
enum { NVML_NVLINK_DEVICE_TYPE_GPU = 0, NVML_NVLINK_DEVICE_TYPE_IBMNPU = 1 };

/* Most NVLinks of a GPU; NVML refuses a number that the GPU does not have. */
#define NVLINKS_MAX 36u

#define NVML_CALLS(X)                                                                    \
    X(nvmlInit_v2, (void) )                                                              \
    X(nvmlShutdown, (void) )                                                             \
    X(nvmlDeviceGetCount_v2, (unsigned *n))                                              \
    X(nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvmlDevice_t *gpu))                \
    X(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t gpu, nvmlPciInfo_t * pci))                  \
    X(nvmlDeviceGetHandleByPciBusId_v2, (const char *id, nvmlDevice_t *gpu))             \
    X(nvmlDeviceGetNvLinkState, (nvmlDevice_t gpu, unsigned link, int *active))          \
    X(nvmlDeviceGetNvLinkRemoteDeviceType, (nvmlDevice_t gpu, unsigned link, int *type)) \
    X(nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvmlDevice_t gpu, unsigned link, nvmlPciInfo_t *pci))

/* A GPU's NVLinks. */
typedef struct {
    uint64_t key;
    unsigned switched, direct;   /* those that end at a switch, at another GPU */
    uint64_t other[NVLINKS_MAX]; /* [direct]: the GPU */
} nvlinks_t;

static struct {
    bool tried;
    void *lib; /* NULL: there is none, or it does not start */
#define X(name, args) int(*name) args;
    NVML_CALLS(X)
#undef X
    bool read;
    nvlinks_t links; /* of the last GPU: most processes have one */
} nvml;

static void nvml_need(void)
{
    if (nvml.tried) {
        return;
    }
    nvml.tried = true;
    nvml.lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    bool all = NULL != nvml.lib;
#define X(name, args)                                               \
    if (all) {                                                      \
        nvml.name = (__typeof__(nvml.name)) dlsym(nvml.lib, #name); \
        all = NULL != nvml.name;                                    \
    }
    NVML_CALLS(X)
#undef X
    /* This starts no GPU; getting its handle does. */
    if (all && NVML_SUCCESS == nvml.nvmlInit_v2()) {
        return;
    }
    if (NULL != nvml.lib) {
        dlclose(nvml.lib);
        nvml.lib = NULL;
    }
}

/* Counts a link by its other end. An unknown end is a switch: virtual machines do not show theirs. */
static void nvlink_add(nvlinks_t *links, nvmlDevice_t gpu, unsigned link)
{
    int type;
    nvmlPciInfo_t pci;
    if (NVML_SUCCESS != nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, link, &type) ||
        NVML_NVLINK_DEVICE_TYPE_IBMNPU == type) {
        return;
    }
    if (NVML_NVLINK_DEVICE_TYPE_GPU != type) {
        links->switched++;
    } else if (NVML_SUCCESS == nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2(gpu, link, &pci)) {
        links->other[links->direct++] = (uint64_t) pci.domain << 16 | pci.bus << 8 | pci.device;
    }
}

static void nvlinks_read(const gpusym_place_t *place, nvlinks_t *links)
{
    nvmlDevice_t gpu;
    int active, rc = NVML_SUCCESS;
    memset(links, 0, sizeof *links);
    links->key = pci_key(place->pci);
    if (NVML_SUCCESS != nvml.nvmlDeviceGetHandleByPciBusId_v2(place->pci, &gpu)) {
        return;
    }
    for (unsigned i = 0; i < NVLINKS_MAX && NVML_ERROR_INVALID_ARGUMENT != rc; i++) {
        rc = nvml.nvmlDeviceGetNvLinkState(gpu, i, &active);
        if (NVML_SUCCESS == rc && 0 != active) {
            nvlink_add(links, gpu, i);
        }
    }
}

/* Counts NVLinks from a to b, and from a to switches: a switch connects all GPUs. */
static unsigned count_nvlinks(const gpusym_place_t *a, const gpusym_place_t *b)
{
    const uint64_t other = pci_key(b->pci);
    nvml_need();
    if (NULL == nvml.lib) {
        return 0;
    }
    if (!nvml.read || pci_key(a->pci) != nvml.links.key) {
        nvlinks_read(a, &nvml.links);
        nvml.read = true;
    }
    unsigned n = nvml.links.switched;
    for (unsigned i = 0; i < nvml.links.direct; i++) {
        n += other == nvml.links.other[i];
    }
    return n;
}

/* Returns the number of the GPU that CUDA has as number i, i modulo how many it has; `all` is what NVML shows.  As CUDA
 * reads it, the list ends at what is no number of a GPU.  -1: there is none. */
static long visible_gpu(const char *list, unsigned i, unsigned all)
{
    long number[64];
    unsigned n = 0;
    while (NULL != list && n < sizeof number / sizeof *number) {
        char *end;
        number[n] = strtol(list, &end, 10);
        if (end == list || number[n] < 0 || number[n] >= (long) all || (',' != *end && '\0' != *end)) {
            break;
        }
        n++;
        list = ',' == *end ? end + 1 : NULL;
    }
    return 0 != n ? number[i % n] : -1;
}

/* With the lock held. */
static bool guess_gpu(unsigned local_rank, gpusym_place_t *place)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    unsigned n = 0;
    nvmlDevice_t gpu;
    nvmlPciInfo_t pci;
    nvml_need();
    if (NULL == nvml.lib || NVML_SUCCESS != nvml.nvmlDeviceGetCount_v2(&n) || 0 == n) {
        return false;
    }
    const long number = NULL != list ? visible_gpu(list, local_rank, n) : (long) (local_rank % n);
    if (number < 0 || NVML_SUCCESS != nvml.nvmlDeviceGetHandleByIndex_v2((unsigned) number, &gpu) ||
        NVML_SUCCESS != nvml.nvmlDeviceGetPciInfo_v3(gpu, &pci)) {
        return false;
    }
    *place = (gpusym_place_t){.number = -1};
    snprintf(place->pci, sizeof place->pci, "%04x:%02x:%02x.0", pci.domain & 0xffffff, pci.bus & 255, pci.device & 255);
    return true;
}

/* ---- hwloc: PCI and NUMA ---- */

#if GPUSYM_HAVE_HWLOC

static struct {
    bool tried;
    hwloc_topology_t topology; /* NULL: it could not be loaded */
} hw;

/* Loads only what tells the places of PCI devices (packages, and groups for NUMA nodes inside of them), including what
 * is outside of this job's share of the host. */
static void hw_open(void)
{
    hwloc_topology_t t;
    hw.tried = true;
    if (0 != hwloc_topology_init(&t)) {
        return;
    }
    if (0 == hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE) &&
        0 == hwloc_topology_set_type_filter(t, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL) &&
        0 == hwloc_topology_set_type_filter(t, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) &&
        0 == hwloc_topology_set_type_filter(t, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_ALL) &&
        0 == hwloc_topology_set_type_filter(t, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) &&
        0 == hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) && 0 == hwloc_topology_load(t)) {
        hw.topology = t;
    } else {
        hwloc_topology_destroy(t);
    }
}

static void hw_close(void)
{
    if (NULL != hw.topology) {
        hwloc_topology_destroy(hw.topology);
    }
    hw.topology = NULL;
    hw.tried = false;
}

/* Returns the nearest common ancestor. */
static hwloc_obj_t hw_common(hwloc_obj_t a, hwloc_obj_t b)
{
    for (; NULL != a; a = a->parent) {
        for (hwloc_obj_t up = b; NULL != up; up = up->parent) {
            if (up == a) {
                return a;
            }
        }
    }
    return NULL;
}

/* Returns whether both lie at one and the same NUMA node, as far as known. */
static bool hw_same_node(hwloc_obj_t a, hwloc_obj_t b)
{
    const hwloc_obj_t near_a = hwloc_get_non_io_ancestor_obj(hw.topology, a);
    const hwloc_obj_t near_b = hwloc_get_non_io_ancestor_obj(hw.topology, b);
    return 1 == hwloc_bitmap_weight(near_a->nodeset) && hwloc_bitmap_isequal(near_a->nodeset, near_b->nodeset);
}

static hwloc_obj_t hw_find(const gpusym_place_t *place)
{
    if (!hw.tried) {
        hw_open();
    }
    return NULL != hw.topology ? hwloc_get_pcidev_by_busidstring(hw.topology, place->pci) : NULL;
}

/* What connects two PCI devices: the larger the better. */
enum { BY_OTHERS, BY_NODE, BY_HOST_BRIDGE, BY_SWITCH };

static unsigned hw_connection(hwloc_obj_t a, hwloc_obj_t b, hwloc_obj_t common)
{
    if (NULL != common && HWLOC_OBJ_BRIDGE == common->type) {
        return HWLOC_OBJ_BRIDGE_PCI == common->attr->bridge.upstream_type ? BY_SWITCH : BY_HOST_BRIDGE;
    }
    return hw_same_node(a, b) ? BY_NODE : BY_OTHERS;
}

static uint8_t pci_link(const gpusym_place_t *a, const gpusym_place_t *b)
{
    static const uint8_t link[] = {[BY_OTHERS] = GPUSYM_LINK_NUMA,
                                   [BY_NODE] = GPUSYM_LINK_HOST,
                                   [BY_HOST_BRIDGE] = GPUSYM_LINK_HOST,
                                   [BY_SWITCH] = GPUSYM_LINK_SWITCH};
    const hwloc_obj_t at = hw_find(a), bt = hw_find(b);
    return NULL != at && NULL != bt ? link[hw_connection(at, bt, hw_common(at, bt))] : GPUSYM_LINK_NUMA;
}

/* ---- network devices ---- */

#define NICS_MAX 64u

/* A port of an RDMA device. */
typedef struct {
    hwloc_obj_t pci;
    bool up;
    char name[80]; /* "mlx5_0:1" */
} nic_t;

typedef struct {
    unsigned n;
    nic_t nic[NICS_MAX];
} nics_t;

static void nics_add(nics_t *nics, hwloc_obj_t pci, const char *folder, const char *device)
{
    char path[512], state[32];
    for (unsigned port = 1; nics->n < NICS_MAX; port++) {
        nic_t *nic = &nics->nic[nics->n];
        snprintf(path, sizeof path, "%.250s/%.64s/ports/%u/state", folder, device, port);
        if (!gpusym_file_line(path, state, sizeof state)) {
            return;
        }
        nic->pci = pci;
        nic->up = 4 == strtol(state, NULL, 10);                          /* "4: ACTIVE" */
        snprintf(nic->name, sizeof nic->name, "%.64s:%u", device, port); /* the kernel's names are no longer */
        nics->n++;
    }
}

static int is_device(const struct dirent *entry)
{
    return '.' != entry->d_name[0];
}

/* Finds the ports of all RDMA devices, in the order of their addresses and names. */
static void nics_read(nics_t *nics)
{
    nics->n = 0;
    for (hwloc_obj_t pci = NULL; NULL != (pci = hwloc_get_next_pcidev(hw.topology, pci));) {
        const struct hwloc_pcidev_attr_s *at = &pci->attr->pcidev;
        struct dirent **entry;
        char device[128], path[256];
        snprintf(device, sizeof device, "%.80s/bus/pci/devices/%04x:%02x:%02x.%01x", sysfs, (unsigned) at->domain,
                 at->bus, at->dev, at->func);
        snprintf(path, sizeof path, "%s/physfn", device);
        if (0 == access(path, F_OK)) {
            continue; /* a virtual function, which shares the wire of another device here */
        }
        snprintf(path, sizeof path, "%s/infiniband", device);
        const int n = scandir(path, &entry, is_device, alphasort);
        for (int i = 0; i < n; i++) {
            nics_add(nics, pci, path, entry[i]->d_name);
            free(entry[i]);
        }
        if (n >= 0) {
            free(entry);
        }
    }
}

/* How near a device is to a GPU: the larger the nearer, never 0.  All common ancestors lie on the GPU's way to the
 * root: of two that connect alike, the one further down is nearer. */
static unsigned hw_nearness(hwloc_obj_t gpu, hwloc_obj_t nic)
{
    const hwloc_obj_t common = hw_common(gpu, nic);
    unsigned depth = 1;
    for (hwloc_obj_t up = common; NULL != up; up = up->parent) {
        depth++;
    }
    return hw_connection(gpu, nic, common) << 16 | depth;
}

/* Returns the devices that are nearest to a GPU, a bit each, and how near. */
static uint64_t nics_nearest(const nics_t *nics, hwloc_obj_t gpu, unsigned *nearness)
{
    uint64_t set = 0;
    *nearness = 0;
    for (unsigned i = 0; i < nics->n; i++) {
        const unsigned near = hw_nearness(gpu, nics->nic[i].pci);
        set = near > *nearness ? 0 : set;
        *nearness = near > *nearness ? near : *nearness;
        set |= near == *nearness ? (uint64_t) 1 << i : 0;
    }
    return set;
}

/* Returns whether device number nic of `nics` is for GPU number gpu of `gpus`: each GPU has one at least, and each
 * device a GPU. */
static bool nic_is_for(unsigned nic, unsigned nics, unsigned gpu, unsigned gpus)
{
    return gpus < nics ? nic % gpus == gpu : gpu % nics == nic;
}

/* Counts the GPUs that have the same nearest devices, and those of them before this one: of all PCI devices of its
 * vendor, since a process need not see all GPUs. */
static void nics_sharers(const nics_t *nics, hwloc_obj_t gpu, uint64_t set, unsigned *before, unsigned *all)
{
    unsigned nearness;
    *before = *all = 0;
    for (hwloc_obj_t pci = NULL; NULL != (pci = hwloc_get_next_pcidev(hw.topology, pci));) {
        const struct hwloc_pcidev_attr_s *at = &pci->attr->pcidev;
        *before = pci == gpu ? *all : *before;
        *all += pci == gpu || (3 == at->class_id >> 8 && gpu->attr->pcidev.vendor_id == at->vendor_id &&
                               set == nics_nearest(nics, pci, &nearness));
    }
}

/* With devices that are nearest: those for this GPU. */
static void nics_choose(const nics_t *nics, hwloc_obj_t gpu, gpusym_topo_nics_t *chosen)
{
    static const char *const how[] = {[BY_OTHERS] = "none is nearer to the GPU",
                                      [BY_NODE] = "of the GPU's NUMA node",
                                      [BY_HOST_BRIDGE] = "behind one host bridge with the GPU",
                                      [BY_SWITCH] = "behind one PCIe switch with the GPU"};
    unsigned nearness, gpu_number, gpus, up = 0, number = 0;
    const uint64_t set = nics_nearest(nics, gpu, &nearness);
    size_t used = 0;
    nics_sharers(nics, gpu, set, &gpu_number, &gpus);
    for (unsigned i = 0; i < nics->n; i++) {
        up += (set >> i & 1) && nics->nic[i].up;
    }
    for (unsigned i = 0; i < nics->n; i++) {
        const char *name = nics->nic[i].name;
        if (!(set >> i & 1)) {
            continue;
        }
        if (0 == up) {
            snprintf(chosen->why, sizeof chosen->why, "the nearest one, %s, is down", name);
            return;
        }
        if (nics->nic[i].up && nic_is_for(number++, up, gpu_number, gpus) &&
            used + strlen(name) + 2 <= sizeof chosen->devices) {
            used += (size_t) snprintf(chosen->devices + used, sizeof chosen->devices - used, "%s%s",
                                      0 == used ? "" : ",", name);
        }
    }
    snprintf(chosen->why, sizeof chosen->why, "%s", how[nearness >> 16]);
}

/* With the lock held. */
static void find_nics(const gpusym_place_t *place, gpusym_topo_nics_t *chosen)
{
    nics_t nics;
    const hwloc_obj_t gpu = hw_find(place);
    if (NULL == hw.topology) {
        snprintf(chosen->why, sizeof chosen->why, "hwloc cannot load the topology of this host");
        return;
    }
    if (NULL == gpu) {
        snprintf(chosen->why, sizeof chosen->why, "hwloc does not show GPU %s", place->pci);
        return;
    }
    nics_read(&nics);
    if (0 == nics.n) {
        snprintf(chosen->why, sizeof chosen->why, "hwloc shows no RDMA device");
        return;
    }
    nics_choose(&nics, gpu, chosen);
}

#else

static void hw_close(void)
{
}

static uint8_t pci_link(const gpusym_place_t *a, const gpusym_place_t *b)
{
    (void) a;
    (void) b;
    return GPUSYM_LINK_NUMA;
}

static void find_nics(const gpusym_place_t *place, gpusym_topo_nics_t *chosen)
{
    (void) place;
    snprintf(chosen->why, sizeof chosen->why, "gpusym was built without hwloc");
}

#endif

/* ---- both ---- */

uint8_t gpusym_topo_link(const gpusym_place_t *a, const gpusym_place_t *b)
{
    if (a->number == b->number && pci_key(a->pci) == pci_key(b->pci)) {
        return GPUSYM_LINK_SELF;
    }
    pthread_mutex_lock(&lock);
    const unsigned n = count_nvlinks(a, b);
    const uint8_t link_class = 0 != n ? (uint8_t) (GPUSYM_LINK_NVLINK + n) : pci_link(a, b);
    pthread_mutex_unlock(&lock);
    return link_class;
}

bool gpusym_topo_guess(unsigned local_rank, gpusym_place_t *gpu)
{
    pthread_mutex_lock(&lock);
    const bool found = guess_gpu(local_rank, gpu);
    pthread_mutex_unlock(&lock);
    return found;
}

bool gpusym_topo_has_nics(void)
{
    char path[128];
    snprintf(path, sizeof path, "%.80s/class/infiniband", sysfs);
    return 0 == access(path, F_OK);
}

void gpusym_topo_nics(const gpusym_place_t *gpu, gpusym_topo_nics_t *nics)
{
    *nics = (gpusym_topo_nics_t){.devices = ""};
    if (!gpusym_topo_has_nics()) {
        snprintf(nics->why, sizeof nics->why, "this host has no RDMA device");
        return;
    }
    if ('\0' == gpu->pci[0]) {
        snprintf(nics->why, sizeof nics->why, "the GPU is simulated");
        return;
    }
    pthread_mutex_lock(&lock);
    find_nics(gpu, nics);
    pthread_mutex_unlock(&lock);
}

void gpusym_topo_close(void)
{
    pthread_mutex_lock(&lock);
    if (NULL != nvml.lib) {
        nvml.nvmlShutdown();
        dlclose(nvml.lib);
    }
    memset(&nvml, 0, sizeof nvml);
    hw_close();
    pthread_mutex_unlock(&lock);
}
