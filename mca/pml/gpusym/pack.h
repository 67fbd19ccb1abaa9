/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Packing a message of GPU memory into host memory, and back, at once: as gpusym_layout_pack() and
 * gpusym_layout_unpack() (layout.h), but a short message without gaps goes by the GPU's copier, if that is there, in
 * less than half of the driver's time.
 */
#ifndef MCA_PML_GPUSYM_PACK_H
#define MCA_PML_GPUSYM_PACK_H

#include "mca/common/ompi/layout.h"

/* gpu: of the elements at buf. packed: host memory. Errors: the device's. Any thread. */
int pml_gpusym_pack(gpusym_gpu_t *gpu, const gpusym_layout_t *l, void *packed, const void *buf, size_t bytes);
int pml_gpusym_unpack(gpusym_gpu_t *gpu, const gpusym_layout_t *l, void *buf, const void *packed, size_t bytes);
/* Progress: frees the copier for other copies once the kernel has come that a message of these has called. 1 ns where
 * none is called. */
void pml_gpusym_pack_poll(void);
/* Returns the pinned memory that they keep. */
void pml_gpusym_pack_close(void);

#endif
