/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Host memory that a process may still take: pinning more than a cgroup leaves would not fail, but end it. And why it
 * may be that some could not be pinned.
 */
#ifndef GPUSYM_COMMON_MEMORY_LEFT_H
#define GPUSYM_COMMON_MEMORY_LEFT_H

#include <stdint.h>

/* Returns the bytes that the memory limit of this process's cgroup leaves, files that are cached not counted,
 * but for those that are memory. UINT64_MAX: there is no limit, or it cannot be read. Takes some 100 us. */
uint64_t gpusym_memory_left(void);
/* The same with other files: in place of /proc/self/cgroup, and of the folder /sys/fs/cgroup. */
uint64_t gpusym_memory_left_in(const char *cgroup, const char *root);

/* Writes the limits of this process that may be why memory could not be pinned, and what to do, for the end of a line
 * that tells the driver's words: the limit of locked memory, which some drivers charge, and the cgroup's. Empty: there
 * are none. Returns text. */
#define GPUSYM_LIMITS_TEXT 256
const char *gpusym_memory_limits(char text[GPUSYM_LIMITS_TEXT]);

#endif
