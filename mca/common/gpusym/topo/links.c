/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Links between GPUs: see links.h. The only file that knows NVML and hwloc.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/topo/links.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#if GPUSYM_HAVE_HWLOC
#include <hwloc.h>
#endif

/* Covers all static state below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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

static void nvml_open(void)
{
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
    if (!nvml.tried) {
        nvml_open();
    }
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

static uint8_t pci_link(const gpusym_place_t *a, const gpusym_place_t *b)
{
    if (!hw.tried) {
        hw_open();
    }
    const hwloc_obj_t at = NULL != hw.topology ? hwloc_get_pcidev_by_busidstring(hw.topology, a->pci) : NULL;
    const hwloc_obj_t bt = NULL != hw.topology ? hwloc_get_pcidev_by_busidstring(hw.topology, b->pci) : NULL;
    if (NULL == at || NULL == bt) {
        return GPUSYM_LINK_NUMA;
    }
    const hwloc_obj_t common = hw_common(at, bt);
    if (NULL != common && HWLOC_OBJ_BRIDGE == common->type) {
        return HWLOC_OBJ_BRIDGE_PCI == common->attr->bridge.upstream_type ? GPUSYM_LINK_SWITCH : GPUSYM_LINK_HOST;
    }
    return hw_same_node(at, bt) ? GPUSYM_LINK_HOST : GPUSYM_LINK_NUMA;
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
