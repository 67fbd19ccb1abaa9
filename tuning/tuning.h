/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which algorithm serves a call, and in which launch geometry: chosen from what all ranks know alike, never from an
 * address. Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_TUNING_TUNING_H
#define GPUSYM_TUNING_TUNING_H

#include "kernels/work.h"
#include "tuning/geometry.h"

/* Chooses algorithm, family and launch geometry of a call. A forced algorithm that is not available is replaced by the
 * table's: multicast where there is none, or not for op and type; LL128, trees, or an order of summation other than the
 * ranks', as the call says. */
void gpusym_tuning_choose(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                          gpusym_tuning_choice_t *choice);
/* The same in a slot of that shape: if it has no room for the LL128 lines of the choice, call->ll128 becomes false, and
 * the choice is made again. */
void gpusym_tuning_choose_in(const gpusym_work_t *slot, gpusym_tuning_call_t *call,
                             const gpusym_tuning_forced_t *forced, gpusym_tuning_choice_t *choice);

/* What an algorithm lacks to serve a call, LACKS(ID, words); NOTHING: it can. */
#define GPUSYM_TUNING_LACKS(LACKS)                                                                           \
    LACKS(NOTHING, "")                                                                                       \
    LACKS(MULTICAST, "the ranks have no multicast object")                                                   \
    LACKS(MULTICAST_OP, "multicast does not reduce by that operation on that type")                          \
    LACKS(ORDER, "its order of summation is not that of the ranks, which coll_gpusym_reproducible wants")    \
    LACKS(STEP, "in place, it would overwrite what other blocks or copy engines have still to send")         \
    LACKS(COPIES, "copy engines do not wait for flags here, or the slot has no room for it")                 \
    LACKS(MAPPED, "copy engines store into buffers that peers have mapped (zero copy), which these are not") \
    LACKS(REACH, "not every rank reaches every other, so that only rings and chains are possible")           \
    LACKS(LL128, "a link does not keep stores of 128 bytes whole, as NVLink does, or the slot has no room for it")
typedef enum {
#define GPUSYM_TUNING_LACK(id, words) GPUSYM_TUNING_LACKS_##id,
    GPUSYM_TUNING_LACKS(GPUSYM_TUNING_LACK)
#undef GPUSYM_TUNING_LACK
        GPUSYM_TUNING_LACKS_COUNT
} gpusym_tuning_lack_t;

/* Returns what an algorithm lacks to serve a call of its collective: the choice takes no algorithm that lacks
 * anything. */
gpusym_tuning_lack_t gpusym_tuning_lacks(const gpusym_tuning_call_t *call, unsigned algorithm);

/* The same in a slot of that shape, which may have no room for it. */
gpusym_tuning_lack_t gpusym_tuning_lacks_in(const gpusym_work_t *slot, const gpusym_tuning_call_t *call,
                                            unsigned algorithm);

/* Returns how many times gpusym_tuning_call_t.bytes a message has, as users count it: 1 where it is cut as one, of
 * scans, and between neighbors; otherwise a rank's segments of all ranks. */
uint32_t gpusym_tuning_parts(unsigned coll, uint32_t nranks);

/* Smallest message in bytes for which ranks map each other's buffers. */
uint64_t gpusym_tuning_zero_copy_min(uint32_t nranks, bool simulated);

#endif
