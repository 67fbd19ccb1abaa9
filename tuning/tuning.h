/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which algorithm serves a call, and in which launch geometry: chosen from what all ranks know alike, never from an
 * address. Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_TUNING_TUNING_H
#define GPUSYM_TUNING_TUNING_H

#include "tuning/geometry.h"

/* Chooses algorithm, family and launch geometry of a call. A forced algorithm that is not available is replaced by the
 * table's: multicast where there is none, or not for op and type; LL128, trees, or an order of summation other than the
 * ranks', as the call says. */
void gpusym_tuning_choose(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                          gpusym_tuning_choice_t *choice);

/* Smallest message in bytes for which ranks map each other's buffers. */
uint64_t gpusym_tuning_zero_copy_min(bool simulated);

#endif
