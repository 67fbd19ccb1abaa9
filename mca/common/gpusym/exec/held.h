/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What graphs of the program hold: memory that the kernels captured in them access, as long as they may be launched.
 */
#ifndef GPUSYM_COMMON_EXEC_HELD_H
#define GPUSYM_COMMON_EXEC_HELD_H

#include "mca/common/gpusym/device/device.h"

typedef struct gpusym_held gpusym_held_t;

/* For an owner, who ends it by gpusym_held_leave. NULL without memory. */
gpusym_held_t *gpusym_held_new(void);
/* The graph into which the stream is captured holds it from now on; for good, where the device does not tell a graph's
 * end. Not by two threads at once. */
void gpusym_held_by_graph(gpusym_held_t *held, const gpusym_device_t *dev, gpusym_stream_t *stream);
/* Whether some graph does, or has not been told to be gone yet: that may come late. */
bool gpusym_held_still(const gpusym_held_t *held);
/* NULL is fine. */
void gpusym_held_leave(gpusym_held_t *held);

#endif
