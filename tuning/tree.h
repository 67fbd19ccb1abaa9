/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Trees between hosts: how many children a process has.  Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_TUNING_TREE_H
#define GPUSYM_TUNING_TREE_H

#include <stdint.h>

#define GPUSYM_TREE_DEGREE_MAX 16u

/* Returns the degree, 2 to GPUSYM_TREE_DEGREE_MAX, of the tree of n processes by which a short message is reduced and
 * spread the soonest: the same on all of them. */
uint32_t gpusym_tuning_tree_degree(uint32_t n);
/* Returns the steps from the root of a tree to its last process. */
uint32_t gpusym_tuning_tree_depth(uint32_t n, uint32_t degree);

#endif
