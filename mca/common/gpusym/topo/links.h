/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The places of this host's GPUs, and the links between them: NVLinks by NVML, PCI and NUMA by hwloc.  Both libraries
 * are optional, and are loaded at the first use.
 */
#ifndef GPUSYM_COMMON_TOPO_LINKS_H
#define GPUSYM_COMMON_TOPO_LINKS_H

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

/* Closes NVML and hwloc's topology; the next gpusym_topo_link() opens them again. */
void gpusym_topo_close(void);

#endif
