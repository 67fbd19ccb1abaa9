/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Error codes of libmca_common_gpusym.  The library exports what begins with gpusym_.
 */
#ifndef GPUSYM_COMMON_COMMON_H
#define GPUSYM_COMMON_COMMON_H

enum {
    GPUSYM_SUCCESS = 0,
    GPUSYM_ERR = -1,               /* see the device's error() */
    GPUSYM_ERR_NO_MEMORY = -2,     /* host or GPU memory */
    GPUSYM_ERR_NOT_AVAILABLE = -3, /* this machine, build or setting does not have it */
    GPUSYM_ERR_BAD_PARAM = -4,
    GPUSYM_ERR_UNREACHABLE = -5,   /* a peer's memory cannot be mapped */
};

/* An error in words; never NULL. */
const char *gpusym_strerror(int err);

#endif
