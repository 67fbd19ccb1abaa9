/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the host knows of the kernels: the enums of kernels.def, their names, which kernel serves
 * (algorithm, operation, type), and how many epochs a call of an algorithm uses.
 * Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_KERNELS_KERNELS_H
#define GPUSYM_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/work.h"

enum gpusym_type {
#define GPUSYM_TYPE(id, name, bytes, class) GPUSYM_T_##id,
#include "kernels/kernels.def"
    GPUSYM_T_COUNT
};

enum gpusym_op {
#define GPUSYM_OP(id, name, classes) GPUSYM_OP_##id,
#include "kernels/kernels.def"
    GPUSYM_OP_COUNT
};

enum gpusym_algorithm {
#define GPUSYM_ALGORITHM(id, name, coll, doc) GPUSYM_ALG_##id,
#include "kernels/kernels.def"
    GPUSYM_ALG_COUNT
};

/* Classes of types, for the masks of GPUSYM_OP. */
#define GPUSYM_C_INT 1u
#define GPUSYM_C_UINT 2u
#define GPUSYM_C_FLOAT 4u
#define GPUSYM_C_COMPLEX 8u
#define GPUSYM_C_PAIR 16u

/* Kernel ids: first the generic kernel of each algorithm (id == algorithm), then the specialised. */
enum gpusym_kernel {
    GPUSYM_K_FIRST_SPECIAL = GPUSYM_ALG_COUNT - 1,
#define GPUSYM_KERNEL(alg, op, type) GPUSYM_K_##alg##_##op##_##type,
#include "kernels/kernels.def"
    GPUSYM_K_COUNT
};

/* Names as users write them: "sum", "f32", "agxll_r"; NULL past the end. */
const char *gpusym_op_name(unsigned op);
const char *gpusym_type_name(unsigned type);
const char *gpusym_algorithm_name(unsigned alg);
const char *gpusym_algorithm_doc(unsigned alg);
/* The symbol of a kernel in the GPU's module: "gpusym_AGXLL_R_SUM_F32", "gpusym_AGXLL_R_ANY". */
const char *gpusym_kernel_symbol(unsigned kernel);

/* Bytes of one element of a type. */
size_t gpusym_type_bytes(unsigned type);
/* Whether the kernels can apply op to elements of type. */
bool gpusym_op_valid(unsigned op, unsigned type);
/* The kernel for (algorithm, operation, type): the specialised one if the list has it, else the
 * generic one.  The triple must be valid. */
unsigned gpusym_kernel_find(unsigned alg, unsigned op, unsigned type);

/* Cuts the message of a descriptor whose bytes (not 0), nranks, nblocks and slot shape are set, for an algorithm, in
 * chunks of at most chunk_bytes a block (0: as large as the slot allows): sets w->chunk, w->span and w->stage_bytes, makes w->nblocks smaller if the slot has no room for so many, and returns the epochs
 * that the call uses up. All ranks compute the same. The next call's epoch is larger by
 * at least this. */
uint64_t gpusym_kernel_plan(unsigned alg, gpusym_work_t *w, uint32_t chunk_bytes);

/* Largest message a rank can send in one epoch of agxll_r through LL areas of ll_bytes. */
static inline uint64_t gpusym_ll_payload(uint32_t ll_bytes)
{
    return ll_bytes / 2;
}

/*
 * The simulator's instantiation: runs block `block` of kernel `kernel` in the calling thread, as
 * if one GPU thread did all of the block's work.  Blocks of a launch may be run one after the
 * other in rising order: block b waits only for block b of other ranks.
 */
void gpusym_kernel_sim(unsigned kernel, const gpusym_work_t *w, uint32_t block);

#endif
