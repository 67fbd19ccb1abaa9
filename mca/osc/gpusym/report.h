/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Errors of one-sided calls on GPU memory, to the user.
 */
#ifndef MCA_OSC_GPUSYM_REPORT_H
#define MCA_OSC_GPUSYM_REPORT_H

#include "mca/common/ompi/face.h"

#include "ompi/communicator/communicator.h"

#include "mca/common/gpusym/device/device.h"

/* MPI's class for what the device has returned. The user is told of an error. comm: of the window; NULL: one of host
 * memory. Any thread. */
int osc_gpusym_class(struct ompi_communicator_t *comm, const gpusym_device_t *dev, int rc);

#endif
