/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The device of this process.
 */
#ifndef GPUSYM_COMMON_DEVICE_SELECT_H
#define GPUSYM_COMMON_DEVICE_SELECT_H

#include "mca/common/gpusym/device/device.h"

typedef enum {
    GPUSYM_DEVICE_AUTO = 0,
    GPUSYM_DEVICE_CUDA,
    GPUSYM_DEVICE_SIM,
    GPUSYM_DEVICE_NONE
} gpusym_device_choice_t;

/*
 * Chooses and opens the device of this process.  AUTO chooses cuda if there is a driver, otherwise none; the simulator
 * is chosen only by name.  Idempotent: the first choice remains.  Returns the table, or NULL with the reason in *why.
 */
const gpusym_device_t *gpusym_device_select(gpusym_device_choice_t choice, const char **why);
/* Returns the chosen table, or NULL. */
const gpusym_device_t *gpusym_device(void);
/* Closes the chosen device. */
void gpusym_device_close(void);

#endif
