/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What this machine has: see machine.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "info/machine.h"

#include <dlfcn.h>
#include <link.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "info/param.h"
#include "mca/common/gpusym/device/multicast.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/net/net.h"

#include "config.h"

/* NVIDIA, NVLink: 25 * 10^9 bytes a second one way by each link of generations 2 to 4, 50 of the fifth. */
#define NVLINK_GBS 25.0
#define NVLINK5_GBS 50.0
#define NVLINK5_CC 100

void info_open(void)
{
    int provided;

    if (MPI_SUCCESS != MPI_T_init_thread(MPI_THREAD_SINGLE, &provided)) {
        fputs("gpusym_info: Open MPI does not start its interface for tools (MPI_T_init_thread)\n", stderr);
        exit(1);
    }
}

void info_close(void)
{
    MPI_T_finalize();
}

bool info_component_there(void)
{
    return info_param_there("coll_gpusym_priority"); /* others are the common library's, which has other users */
}

/* ---- links ---- */

const char *info_link_name(uint8_t class)
{
    static const char *const pci[] = {
        [GPUSYM_LINK_NONE] = "-", [GPUSYM_LINK_NUMA] = "SYS", [GPUSYM_LINK_HOST] = "PHB", [GPUSYM_LINK_SWITCH] = "PIX"};
    static char text[4][16];
    static unsigned next;

    if (GPUSYM_LINK_SELF == class || class <= GPUSYM_LINK_NVLINK) {
        return GPUSYM_LINK_SELF == class ? "X" : pci[class];
    }
    next = (next + 1) % 4;
    snprintf(text[next], sizeof(text[next]), "NV%u", class - GPUSYM_LINK_NVLINK);
    return text[next];
}

/* The first number of a PCI device's file; NAN: not known. */
static double pci_number(const gpusym_gpu_info_t *gpu, const char *file)
{
    char path[96], line[64];

    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", gpu->place.pci, file);
    for (char *c = path; '\0' != *c; c++) {
        *c = *c >= 'A' && *c <= 'F' ? (char) (*c - 'A' + 'a') : *c; /* the driver's addresses may be in capitals */
    }
    return '\0' != gpu->place.pci[0] && gpusym_file_line(path, line, sizeof(line)) ? strtod(line, NULL) : NAN;
}

double info_link_gbs(uint8_t class, const gpusym_gpu_info_t *a)
{
    if (GPUSYM_LINK_SELF == class || GPUSYM_LINK_NONE == class || '\0' == a->place.pci[0]) {
        return NAN;
    }
    if (class > GPUSYM_LINK_NVLINK) {
        return (class - GPUSYM_LINK_NVLINK) * (a->cc >= NVLINK5_CC ? NVLINK5_GBS : NVLINK_GBS);
    }
    const double gts = pci_number(a, "max_link_speed"), lanes = pci_number(a, "max_link_width");
    return gts * lanes / 8;
}

/* ---- GPUs ---- */

static bool open_device(int local_rank, info_machine_t *machine, const gpusym_device_t **dev)
{
    gpusym_config_t config = gpusym_params;
    const char *why = "";

    config.local_rank = config.world_rank = local_rank;
    if (GPUSYM_SUCCESS != gpusym_open(&config)) {
        return false;
    }
    *dev = gpusym_device_need();
    if (NULL == *dev) {
        (void) gpusym_device_there(&why);
        snprintf(machine->why, sizeof(machine->why), "%s", why);
        gpusym_close();
    }
    return NULL != *dev;
}

static uint8_t find_link(const gpusym_device_t *dev, const info_machine_t *m, int a, int b)
{
    bool reaches = false;

    if (a == b) {
        return GPUSYM_LINK_SELF;
    }
    (void) dev->gpu_reaches(a, b, &reaches);
    return reaches ? gpusym_topo_link(&m->gpu[a].place, &m->gpu[b].place) : GPUSYM_LINK_NONE;
}

/* GPUs that one process sees all of. */
static void find_gpus(const gpusym_device_t *dev, info_machine_t *m)
{
    int n = 0;

    if (GPUSYM_SUCCESS != dev->gpu_count(&n) || 0 == n) {
        snprintf(m->why, sizeof(m->why), "%s", dev->error());
    }
    for (int i = 0; i < n && i < INFO_GPUS_MAX && GPUSYM_SUCCESS == dev->gpu_look(i, &m->gpu[i]); i++) {
        gpusym_topo_nics(&m->gpu[i].place, &m->nics[i]);
        m->n++;
    }
    for (int a = 0; a < (int) m->n; a++) {
        for (int b = 0; b < (int) m->n; b++) {
            m->link[a][b] = find_link(dev, m, a, b);
        }
    }
}

/* A simulated GPU, as the process with that number has it, and its links to the others. */
static void look_as(int number, info_machine_t *m)
{
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;

    if (!open_device(number, m, &dev)) {
        return;
    }
    if (GPUSYM_SUCCESS == dev->gpu_look(0, &m->gpu[number]) && GPUSYM_SUCCESS == dev->gpu_open(NULL, &gpu)) {
        m->gpu[number].ordinal = number;
        for (int b = 0; b < (int) m->n; b++) {
            const gpusym_place_t peer = {.number = b};
            m->link[number][b] = (uint8_t) dev->gpu_link(gpu, &peer);
        }
    }
    gpusym_close();
}

void info_machine_find(info_machine_t *m, uint32_t simulated)
{
    const gpusym_device_t *dev;
    const uint32_t gpus = (uint32_t) gpusym_params.sim_gpus;

    memset(m, 0, sizeof(*m));
    if (!open_device(0, m, &dev)) {
        return;
    }
    m->simulated = dev->simulated;
    m->flags = NULL != dev->stream_flags;
    if (!m->simulated) {
        find_gpus(dev, m);
    }
    gpusym_close();
    if (m->simulated) {
        m->n = gpus > 0 ? gpus : simulated > 0 ? simulated : 1;
        m->n = m->n < INFO_GPUS_MAX ? m->n : INFO_GPUS_MAX;
        for (int i = 0; i < (int) m->n; i++) {
            look_as(i, m);
        }
    }
    m->multicast = true;
    for (uint32_t i = 0; i < m->n; i++) {
        m->multicast = m->multicast && m->gpu[i].multicast;
    }
}

/* ---- what is told ---- */

/* The file that a loaded library came from; NULL: it is not loaded. */
static const char *file_of(const char *name)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    struct link_map *map = NULL;

    if (NULL != library) {
        (void) dlinfo(library, RTLD_DI_LINKMAP, &map);
        dlclose(library); /* whoever loaded it holds it */
    }
    return NULL == map ? NULL : map->l_name;
}

/* Whether an item of a list, separated by commas, is that name; an empty list has all. */
static bool listed(const char *list, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = list; '\0' != *at; at += '\0' != *at) {
        const size_t n = strcspn(at, ",");
        if (n == length && 0 == strncmp(at, name, n)) {
            return true;
        }
        at += n;
    }
    return '\0' == *list;
}

/* Whether the list of coll components lets Open MPI use ours. */
static bool is_selected(void)
{
    const char *list = info_param_text("coll");

    return '^' == *list ? !listed(list + 1, "gpusym") || '\0' == list[1] : listed(list, "gpusym");
}

static void tell_versions(info_item_t *root)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    info_item_t *gpusym = info_group(root, "gpusym");
    const char *component = file_of("mca_coll_gpusym.so"), *library = file_of("libmca_common_gpusym.so");
    int length;

    info_text(gpusym, "version", "%s", GPUSYM_VERSION);
    info_text(gpusym, "built_for", "Open MPI %s", GPUSYM_OMPI_VERSION);
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    info_text(gpusym, "runs_with", "%s", version);
    info_text(gpusym, "component", "%s",
              info_component_there() ? (NULL == component ? "found" : component)
                                     : "not found by Open MPI in its component path");
    if (!is_selected()) {
        info_text(gpusym, "but", "the parameter coll excludes it: %s", info_param_text("coll"));
    }
    info_text(gpusym, "library", "%s", NULL == library ? "-" : library);
    info_text(gpusym, "kernels_for", "%s", GPUSYM_HAVE_KERNELS ? GPUSYM_KERNELS_ARCH : "the simulator alone");
}

static void tell_driver(info_item_t *device)
{
    char line[128];
    int (*get_version)(int *version) = NULL;
    int version = 0;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (NULL != lib) {
        *(void **) &get_version = dlsym(lib, "cuDriverGetVersion");
    }
    info_text(device, "driver", "%s",
              gpusym_file_line("/sys/module/nvidia/version", line, sizeof(line)) ? line : "none");
    if (NULL != get_version && 0 == get_version(&version)) {
        info_text(device, "cuda", "%d.%d", version / 1000, version % 1000 / 10);
    }
}

static void uuid_text(const uint8_t *uuid, char text[48])
{
    static const char digits[] = "0123456789abcdef";

    text += sprintf(text, "GPU-");
    for (int i = 0; i < 16; i++) {
        if (4 == i || 6 == i || 8 == i || 10 == i) {
            *text++ = '-';
        }
        *text++ = digits[uuid[i] >> 4];
        *text++ = digits[uuid[i] & 15];
    }
    *text = '\0';
}

static void tell_gpus(info_item_t *root, const info_machine_t *m)
{
    info_item_t *list = info_list(root, "gpus");

    for (uint32_t i = 0; i < m->n; i++) {
        const gpusym_gpu_info_t *gpu = &m->gpu[i];
        info_item_t *row = info_group(list, NULL);
        const double node = pci_number(gpu, "numa_node"); /* -1: the host has one */
        char uuid[48];

        uuid_text(gpu->uuid, uuid);
        info_number(row, "gpu", i);
        info_text(row, "name", "%s", gpu->name);
        info_text(row, "uuid", "%s", uuid);
        info_text(row, "address", "%s", gpu->where);
        info_number(row, "memory_mib", (double) (gpu->bytes >> 20));
        info_number(row, "multiprocessors", gpu->sm_count);
        info_text(row, "compute_capability", gpu->cc > 0 ? "%d.%d" : "-", gpu->cc / 10, gpu->cc % 10);
        info_number(row, "numa_node", node < 0 ? NAN : node);
        info_text(row, "nic", "%s", '\0' != m->nics[i].devices[0] ? m->nics[i].devices : "-");
    }
}

static void tell_links(info_item_t *root, const info_machine_t *m)
{
    info_item_t *list = info_list(root, "links");
    char name[16];

    for (uint32_t a = 0; a < m->n && m->n > 1; a++) {
        info_item_t *row = info_group(list, NULL);

        info_number(row, "gpu", a);
        for (uint32_t b = 0; b < m->n; b++) {
            snprintf(name, sizeof(name), "%u", (unsigned) b);
            info_text(row, name, "%s", info_link_name(m->link[a][b]));
        }
    }
}

static void tell_network_device(void *arg, const char *device, const char *way)
{
    info_item_t *row = info_group(arg, NULL);
    const char *list = info_param_text("coll_gpusym_net_devices");

    info_text(row, "device", "%s", device);
    info_text(row, "transport", "%s", way);
    info_truth(row, "allowed", 0 == strcmp(list, "auto") || 0 == strcmp(list, "ucx") || listed(list, device));
}

static void tell_network(info_item_t *root)
{
    const char *why = "";
    const gpusym_transport_t *ucx = gpusym_transport_ucx(&why);
    info_item_t *network = info_group(root, "network");

    info_text(network, "between_hosts", "%s", NULL == ucx ? why : "UCX");
    if (NULL != ucx && NULL != ucx->devices) {
        ucx->devices(tell_network_device, info_list(network, "devices"));
    }
}

static void tell_multicast(info_item_t *device, const info_machine_t *m)
{
    const char *why = "a GPU, or its driver, has no multicast objects";

    if (!gpusym_multicast_allowed((int) info_param_number("coll_gpusym_multicast", -1), m->simulated, &why) ||
        !m->multicast) {
        info_text(device, "multicast", "no: %s", why);
    } else {
        info_text(device, "multicast", "%s", m->simulated ? "yes" : "tried by each communicator; not run on GPUs yet");
    }
}

void info_machine_tell(info_item_t *root)
{
    info_machine_t *m = malloc(sizeof(*m));
    info_item_t *device;

    if (NULL == m) {
        return;
    }
    info_machine_find(m, 0);
    tell_versions(root);
    device = info_group(root, "device");
    tell_driver(device);
    info_text(device, "used", "%s", m->simulated ? "the simulator" : m->n > 0 ? "NVIDIA GPUs" : "none");
    if (0 == m->n) {
        info_text(device, "because", "%s", m->why);
    }
    if (0 != m->n) {
        tell_multicast(device, m);
    }
    tell_gpus(root, m);
    tell_links(root, m);
    tell_network(root);
    free(m);
}
