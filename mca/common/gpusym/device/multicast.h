/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The multicast policy, which the one function of each device that makes multicast objects asks before it does.
 */
#ifndef GPUSYM_COMMON_DEVICE_MULTICAST_H
#define GPUSYM_COMMON_DEVICE_MULTICAST_H

#include <stdbool.h>

/* Returns whether a multicast object may be made on GPUs, or on simulated ones.  setting, of coll_gpusym_multicast: 1:
 * unless the environment has one of the vetoes NCCL_NVLS_ENABLE=0, NVSHMEM_DISABLE_NVLS=1,
 * TORCH_SYMM_MEM_DISABLE_MULTICAST=1; -1: the same where the tuning table has multicast; 0: never.  If not, *why (NULL:
 * not wanted) is a static text that names what forbids it. */
bool gpusym_multicast_allowed(int setting, bool simulated, const char **why);

#endif
