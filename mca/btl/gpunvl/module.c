/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The module: what all files of this transport share. The component fills it.
 */
#include "mca/btl/gpunvl/btl_gpunvl.h"

btl_gpunvl_t btl_gpunvl;
