/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the host knows of the kernels: the enums of kernels.def, their names, and which kernel serves
 * (algorithm, operation, type).
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

enum gpusym_collective {
#define GPUSYM_COLLECTIVE(id, ...) GPUSYM_COLL_##id,
#include "kernels/kernels.def"
    GPUSYM_COLL_COUNT
};

enum gpusym_family {
#define GPUSYM_FAMILY(id, ...) GPUSYM_F_##id,
#include "kernels/kernels.def"
    GPUSYM_F_COUNT
};

enum gpusym_algorithm {
#define GPUSYM_ALGORITHM(id, name, coll, family, schedule, doc) GPUSYM_ALG_##id,
#include "kernels/kernels.def"
    GPUSYM_ALG_COUNT
};

/* What applies a family's operation: nothing, the kernels to what the ranks have sent, the switch. */
enum gpusym_reduces { GPUSYM_REDUCES_NONE, GPUSYM_REDUCES_RANKS, GPUSYM_REDUCES_SWITCH };

/* How a family's data reach another rank. */
enum gpusym_protocol { GPUSYM_PROTOCOL_LL, GPUSYM_PROTOCOL_LL128, GPUSYM_PROTOCOL_SIMPLE, GPUSYM_PROTOCOL_COPIES };

/* How a family cuts a message: see plan.c. */
enum gpusym_plan {
    GPUSYM_PLAN_LINES,    /* epochs of LL lines */
    GPUSYM_PLAN_LL128,    /* slices, in units for streams */
    GPUSYM_PLAN_TWO_SHOT, /* spans for blocks, chunks of slices for owners; both halves staged */
    GPUSYM_PLAN_SCATTER,  /* ... only the first half staged */
    GPUSYM_PLAN_SLICES,   /* ... nothing staged */
    GPUSYM_PLAN_EXCHANGE, /* spans of segments for blocks, staged in chunks */
    GPUSYM_PLAN_SEGMENTS, /* ... nothing staged */
    GPUSYM_PLAN_CHANNELS, /* loops of chunks through FIFOs */
    GPUSYM_PLAN_COPIES    /* chunks for copy engines */
};

/* Whether a plan is of zero copy: peers' buffers are accessed. */
#define GPUSYM_PLAN_STRAIGHT(plan) \
    (GPUSYM_PLAN_SCATTER == (plan) || GPUSYM_PLAN_SLICES == (plan) || GPUSYM_PLAN_SEGMENTS == (plan))

/* Classes of types, for the masks of GPUSYM_OP. */
#define GPUSYM_C_INT 1u
#define GPUSYM_C_UINT 2u
#define GPUSYM_C_FLOAT 4u
#define GPUSYM_C_COMPLEX 8u
#define GPUSYM_C_PAIR 16u

/* Kernel ids: first the generic kernel of each family (id == family), then the specialised; behind them those for
 * streams, in the same order. */
enum gpusym_kernel {
    GPUSYM_K_FIRST_SPECIAL = GPUSYM_F_COUNT - 1,
#define GPUSYM_KERNEL(family, op, type) GPUSYM_K_##family##_##op##_##type,
#include "kernels/kernels.def"
    GPUSYM_K_FIRST_STREAM,
    GPUSYM_K_BEFORE_STREAM = GPUSYM_K_FIRST_STREAM - 1,
#define GPUSYM_STREAM_FAMILY(id) GPUSYM_K_STREAM_##id,
#include "kernels/kernels.def"
#define GPUSYM_STREAM_KERNEL(family, op, type) GPUSYM_K_STREAM_##family##_##op##_##type,
#include "kernels/kernels.def"
    GPUSYM_K_COUNT
};

/* Whether a collective's message is cut as one; else every pair of ranks has a segment of it. */
bool gpusym_collective_whole(unsigned coll);
/* Whether it has an operation: all of its algorithms reduce. */
bool gpusym_collective_reduces(unsigned coll);
/* Names as users write them: "allreduce", "sum", "f32", "agxll_r"; NULL past the end. */
const char *gpusym_collective_name(unsigned coll);
const char *gpusym_op_name(unsigned op);
const char *gpusym_type_name(unsigned type);
const char *gpusym_algorithm_name(unsigned alg);
const char *gpusym_algorithm_doc(unsigned alg);
/* The collective that an algorithm serves. */
unsigned gpusym_algorithm_collective(unsigned alg);
/* The family that an algorithm runs; its zero-copy twin (the same where it has none). */
unsigned gpusym_algorithm_family(unsigned alg);
unsigned gpusym_family_zero_copy(unsigned family);
/* enum gs_schedule_kind of an algorithm of rings, chains and trees; -1: it is none of them. */
int gpusym_algorithm_schedule(unsigned alg);
/* Whether the order in which an algorithm reduces is that of the ranks, whatever the message is cut into. */
bool gpusym_algorithm_reproducible(unsigned alg);
/* Whether its kernels send what lies in a place before they store there, where a reduce-scatter's output lies over its
 * input. */
bool gpusym_algorithm_in_step(unsigned alg);
/* How a family moves data, and cuts a message. */
enum gpusym_protocol gpusym_family_protocol(unsigned family);
enum gpusym_plan gpusym_family_plan(unsigned family);
/* Whether copy engines send the data of a family's calls (mca/common/gpusym/exec/copies.h). */
bool gpusym_family_copies(unsigned family);
/* Whether a family needs links that keep stores of 128 bytes whole. */
bool gpusym_family_ll128(unsigned family);
/* "AGXLL_R", for messages; NULL past the end. */
const char *gpusym_family_name(unsigned family);
/* Whether a family applies the operation; whether it needs gpusym_work_t.mc. */
bool gpusym_family_reduces(unsigned family);
bool gpusym_family_multicast(unsigned family);
/* The symbol of a kernel in the GPU's module: "gpusym_AGXLL_R_SUM_F32", "gpusym_AGXLL_R_ANY". */
const char *gpusym_kernel_symbol(unsigned kernel);
/* The symbol of the same for at most GPUSYM_FEW_RANKS ranks, whose parameter gpusym_work_few() makes (few.h): in a
 * module of its own; NULL: there is none. */
const char *gpusym_kernel_few_symbol(unsigned kernel);

/* Bytes of one element of a type. */
size_t gpusym_type_bytes(unsigned type);
/* Whether the kernels can apply op to elements of type. */
bool gpusym_op_valid(unsigned op, unsigned type);
/* The kernel for (family, operation, type): the specialised one if the list has it, else the
 * generic one.  The triple must be valid; a family that does not reduce takes any. */
unsigned gpusym_kernel_find(unsigned family, unsigned op, unsigned type);
/* The same of the kernels for streams of the program; GPUSYM_K_COUNT: the family has none. */
unsigned gpusym_kernel_find_stream(unsigned family, unsigned op, unsigned type);
/* The family of a kernel. */
unsigned gpusym_kernel_family(unsigned kernel);
/* Whether a multicast family can do op on elements of type on GPUs (what multimem.ld_reduce offers); families that
 * reduce with loads of their own: as gpusym_op_valid. */
bool gpusym_family_valid(unsigned family, unsigned op, unsigned type);

/*
 * The simulator's instantiation: runs block `block` of kernel `kernel` in the calling thread, as
 * if one GPU thread did all of the block's work.  Blocks of a launch may be run one after the
 * other in rising order: block b waits only for block b of other ranks.
 */
void gpusym_kernel_sim(unsigned kernel, const gpusym_work_t *w, uint32_t block);

/* Reduces n sources in host memory into dst, which is not one of them: elements of a type that the operation is valid
 * for, in rising order of the sources, with the rounding and the bits of the kernels that reduce so.  At most
 * GPUSYM_TEAM_MAX of them. */
void gpusym_kernel_reduce_on_cpu(unsigned op, unsigned type, const void *const *src, uint32_t n, void *dst,
                                 uint64_t bytes);
/* Whether it reduces 6 GB/s; else a tenth of that. */
bool gpusym_kernel_reduces_fast_on_cpu(unsigned op, unsigned type);

/*
 * The simulator's multicast, for the kernels that need it: stores in alias[] where the CPU reads and writes the place
 * mp of every member's memory, in the order of the ranks, and returns how many there are (at most max); not positive:
 * mp is no multicast address. NULL (as it is at first): there is no multicast, and such a kernel ends with
 * GPUSYM_STATUS_NO_MULTICAST. Set it before the first launch.
 */
extern int (*gpusym_kernel_sim_mc_members)(const void *mp, void **alias, unsigned max);

/* Likewise: where the CPU finds what a pointer of the simulated GPU points to; NULL: nowhere. For the commands of
 * resident kernels, which no launch has translated. */
extern void *(*gpusym_kernel_sim_reach)(const void *p);
/* Likewise: whether a kernel that was launched early, and has sent its entry, is to leave; NULL: not. */
extern bool (*gpusym_kernel_sim_leaves)(void);
/* Likewise: whether a command to a resident kernel comes too late, so that it retires; NULL: not. */
extern bool (*gpusym_kernel_sim_late)(void);
/* What the threads of a block share, of a launch on a stream: the simulator's kernels' own. */
uint64_t *gpusym_kernel_sim_own(void); /* [3 + 2 * GPUSYM_TEAM_MAX], of the calling thread */

#endif
