/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Where the GPUs of this host sit, and what lies between two of them: NVLinks by NVML, PCI and NUMA by hwloc. Both are
 * asked only when somebody wants to know, and neither need be there.
 */
#ifndef GPUSYM_COMMON_TOPO_LINKS_H
#define GPUSYM_COMMON_TOPO_LINKS_H

#include <stdint.h>

/* Classes of links between two GPUs: the larger the better. */
#define GPUSYM_LINK_NONE 0u   /* cannot be mapped */
#define GPUSYM_LINK_NUMA 1u   /* across NUMA nodes */
#define GPUSYM_LINK_HOST 2u   /* by the host bridge of a NUMA node */
#define GPUSYM_LINK_SWITCH 3u /* by one PCIe switch */
#define GPUSYM_LINK_NVLINK 3u /* plus the number of NVLinks, at most 252 */

/* Both are one GPU: better than any link. */
#define GPUSYM_LINK_SELF 255u

/* A GPU's place in its host. Plain bytes, to be told to peers. */
typedef struct {
    char pci[20];   /* "0000:1b:00.0", a text; empty: a simulated GPU */
    int32_t number; /* of a simulated GPU among those of its host; -1: a real one */
} gpusym_place_t;

/*
 * The class of the link from GPU a to GPU b, both on PCI; GPUSYM_LINK_NUMA too where nothing is known. Where a's
 * NVLinks go to switches, so many as these: b may have fewer, so that the smaller of both directions is what is there. Never
 * GPUSYM_LINK_NONE: whether memory can be mapped is found by trying.
 * Source of the NVLinks: NVML API Reference, "NvLink Methods".
 * The first call opens NVML, and the first for two GPUs without an NVLink loads hwloc's topology: tens of milliseconds
 * each. The links of the last a are remembered: it should be the caller's own GPU, for all b. Any thread.
 */
uint8_t gpusym_topo_link(const gpusym_place_t *a, const gpusym_place_t *b);

/* Lets go of NVML and hwloc's topology; the next gpusym_topo_link() opens them again. */
void gpusym_topo_close(void);

#endif
