/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The places of this host's GPUs, the links between them, and the network devices that are nearest to one: NVLinks by
 * NVML, PCI and NUMA by hwloc.  Both libraries are optional, and are loaded at the first use.
 */
#ifndef GPUSYM_COMMON_TOPO_LINKS_H
#define GPUSYM_COMMON_TOPO_LINKS_H

#include <stdbool.h>
#include <stdint.h>

/* Link classes of a pair of GPUs: the larger the better. */
#define GPUSYM_LINK_NONE 0u   /* neither can map the other's memory */
#define GPUSYM_LINK_NUMA 1u   /* across NUMA nodes */
#define GPUSYM_LINK_HOST 2u   /* through the host bridge of a NUMA node */
#define GPUSYM_LINK_SWITCH 3u /* through one PCIe switch */
#define GPUSYM_LINK_NVLINK 3u /* plus the number of NVLinks, at most 252 */

/* Both are the same GPU: better than any link. */
#define GPUSYM_LINK_SELF 255u

/* A GPU's place in its host. Plain bytes, to be sent to peers. */
typedef struct {
    char pci[20];   /* "0000:1b:00.0"; "": a simulated GPU */
    int32_t number; /* of a simulated GPU on its host; -1: a real one */
} gpusym_place_t;

/*
 * Returns the link class from GPU a to GPU b, both on PCI; GPUSYM_LINK_NUMA also if nothing is known.  If a's NVLinks
 * go to switches, counts a's; b may have fewer, so the smaller of both directions holds.  Never GPUSYM_LINK_NONE: only
 * mapping tells whether memory can be mapped. Source of the NVLinks: NVML API Reference, "NvLink Methods". The first
 * call opens NVML, and the first for two GPUs without an NVLink loads hwloc's topology: tens of milliseconds each.  The
 * links of the last a are cached: pass the caller's own GPU as a, for all b.  Any thread.
 */
uint8_t gpusym_topo_link(const gpusym_place_t *a, const gpusym_place_t *b);

/*
 * Guesses which GPU a process will use that has not chosen one yet, without starting the driver: of the GPUs that NVML
 * shows and CUDA_VISIBLE_DEVICES leaves, the one with the number of the process's rank on its host (again from 0, if
 * there are fewer).  False: NVML shows none, or the variable has no numbers.  Any thread.
 */
bool gpusym_topo_guess(unsigned local_rank, gpusym_place_t *gpu);

/* Returns whether this host has RDMA devices: one system call.  Any thread. */
bool gpusym_topo_has_nics(void);

/* The RDMA devices that a process with a GPU should use: plain texts. */
typedef struct {
    char devices[256]; /* ports, as UCX names them, separated by commas: "mlx5_0:1,mlx5_1:1"; "": none */
    char why[160];     /* "behind one PCIe switch with the GPU": how near they are; or why there are none */
} gpusym_topo_nics_t;

/*
 * Finds the RDMA devices that are nearest to a GPU: behind one PCIe switch (the lowest that has any) before those
 * behind the same host bridge, those of the same NUMA node, and others.  GPUs that have the same nearest devices divide
 * these among themselves, by the order of their addresses: all processes of the host get one answer, whichever GPUs
 * each of them sees.  Ports that are down are left out, and virtual functions whose device is here too.  None, with the
 * reason: the GPU is simulated, nothing is known, or all of the nearest are down.  Needs the topology, as above, where
 * there are RDMA devices.  Any thread.
 */
void gpusym_topo_nics(const gpusym_place_t *gpu, gpusym_topo_nics_t *nics);

/* Closes NVML and hwloc's topology; the next call of these functions opens them again. */
void gpusym_topo_close(void);

#endif
