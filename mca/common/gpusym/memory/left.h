/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Host memory that a process may still take: pinning more would not fail, but end it.
 */
#ifndef GPUSYM_COMMON_MEMORY_LEFT_H
#define GPUSYM_COMMON_MEMORY_LEFT_H

#include <stdint.h>

/* Returns the bytes that the memory limit of this process's cgroup leaves, files that are cached not counted.
 * UINT64_MAX: there is no limit, or it cannot be read. Takes some 100 us. */
uint64_t gpusym_memory_left(void);
/* The same with other files: in place of /proc/self/cgroup, and of the folder /sys/fs/cgroup. */
uint64_t gpusym_memory_left_in(const char *cgroup, const char *root);

#endif
