/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which device this process uses.
 */
#ifndef GPUSYM_COMMON_DEVICE_SELECT_H
#define GPUSYM_COMMON_DEVICE_SELECT_H

#include "mca/common/gpusym/device/device.h"

typedef enum { GPUSYM_DEVICE_AUTO = 0, GPUSYM_DEVICE_CUDA, GPUSYM_DEVICE_SIM, GPUSYM_DEVICE_NONE } gpusym_device_choice_t;

/*
 * Chooses and opens the device of this process: AUTO takes cuda if there is a driver, else none (the simulator is taken
 * only by name). Idempotent; the first choice stays. Returns the table, or NULL with *why saying in
 * words why there is none.
 */
const gpusym_device_t *gpusym_device_select(gpusym_device_choice_t choice, const char **why);
/* The chosen table, or NULL. */
const gpusym_device_t *gpusym_device(void);
/* Closes it. */
void gpusym_device_close(void);

#endif
