/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What this machine has, as gpusym sees it: Open MPI, GPUs, their links, the network.
 */
#ifndef INFO_MACHINE_H
#define INFO_MACHINE_H

#include "info/item.h"
#include "mca/common/gpusym/device/device.h"
#include "mca/common/gpusym/topo/links.h"

enum { INFO_GPUS_MAX = 64 };

typedef struct {
    bool simulated;
    bool flags;     /* its copy engines can wait for flags */
    bool multicast; /* all GPUs have multicast objects */
    uint32_t n;     /* GPUs; 0: see why */
    char why[512];
    gpusym_gpu_info_t gpu[INFO_GPUS_MAX];
    gpusym_topo_nics_t nics[INFO_GPUS_MAX];     /* that coll_gpusym_net_devices=auto takes */
    uint8_t link[INFO_GPUS_MAX][INFO_GPUS_MAX]; /* classes (topo/links.h); GPUSYM_LINK_SELF on the diagonal */
} info_machine_t;

/* Starts MPI's interface for tools, by which Open MPI registers the parameters of all components, ours among them.
 * Ends the program where that fails. MPI need not be initialised. */
void info_open(void);
void info_close(void);
/* Whether Open MPI has found coll/gpusym. After info_open() or MPI_Init. */
bool info_component_there(void);

/* Finds the GPUs that gpusym would use, by the parameters; of the simulator, which gives each process a GPU, at least
 * so many. Creates no context. */
void info_machine_find(info_machine_t *machine, uint32_t simulated);

/* "NV18", "PIX", "PHB", "SYS", as nvidia-smi topo writes; "X": the same GPU; "-": no link. Valid until the next but
 * three. */
const char *info_link_name(uint8_t class);
/* What a link can do one way, in 10^9 bytes a second, from GPU a; NAN: not known. */
double info_link_gbs(uint8_t class, const gpusym_gpu_info_t *a);

/* Adds all of this to a group. */
void info_machine_tell(info_item_t *root);

#endif
