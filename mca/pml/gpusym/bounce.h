/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Bounce buffers: host memory that stands for a message of device memory in the PML, packed.
 */
#ifndef MCA_PML_GPUSYM_BOUNCE_H
#define MCA_PML_GPUSYM_BOUNCE_H

#include "mca/common/ompi/ompi_compat.h"

#include "mca/common/gpusym/device/device.h"

/* Where the memory is from. */
typedef enum {
    PML_GPUSYM_BOUNCE_HEAP,     /* malloc: small */
    PML_GPUSYM_BOUNCE_PINNED,   /* pinned: copied fast */
    PML_GPUSYM_BOUNCE_RESERVED, /* address space, which takes memory where it is touched */
} pml_gpusym_bounce_kind_t;

/* A buffer. p is NULL: there is none. */
typedef struct {
    char *p;
    size_t size;
    pml_gpusym_bounce_kind_t kind;
    size_t used; /* RESERVED: the bytes from p on that may have become memory; its user raises it */
} pml_gpusym_bounce_t;

/* Gets a buffer of `bytes` bytes, undefined, which gpu (NULL: none) copies fast if it is all used. False: no memory.
 * Any thread. */
bool pml_gpusym_bounce_get(pml_gpusym_bounce_t *b, gpusym_gpu_t *gpu, size_t bytes);
/* The same for what may be received, of which little is touched if the message is fetched from its sender's GPU. */
bool pml_gpusym_bounce_reserve(pml_gpusym_bounce_t *b, size_t bytes);
/* The same for pinned memory only (memory/pinned.h). */
bool pml_gpusym_bounce_pin(pml_gpusym_bounce_t *b, gpusym_gpu_t *gpu, size_t bytes);
/* Returns a buffer. No effect if there is none. */
void pml_gpusym_bounce_put(pml_gpusym_bounce_t *b);
/* Frees the buffers that are kept. */
void pml_gpusym_bounces_close(void);

#endif
