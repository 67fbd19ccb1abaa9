/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Successive halving (Jamieson and Talwalkar, "Non-stochastic Best Arm Identification", 2016): the best of many
 * candidates by few measurements. All are measured shortly; the slower half drops out, and the others are measured for
 * twice as long, until one is left.  Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_TUNING_HALVING_H
#define GPUSYM_TUNING_HALVING_H

enum { GPUSYM_TUNING_CANDIDATES_MAX = 64 };

/* Seconds of one call of candidate i, by so many calls; negative: it cannot be measured, and drops out. */
typedef double gpusym_tuning_measure_t(void *arg, unsigned i, unsigned calls);

/* Measures n candidates (1 to GPUSYM_TUNING_CANDIDATES_MAX), at first by so many calls each. Sets order[n] to their
 * numbers, the best first; those that cannot be measured are last. Returns how many can. */
unsigned gpusym_tuning_halve(unsigned n, unsigned calls, gpusym_tuning_measure_t *measure, void *arg, unsigned *order);

#endif
