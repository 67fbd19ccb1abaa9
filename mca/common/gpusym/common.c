/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The error codes of libmca_common_gpusym in words.  Touches nothing.
 */
#include "mca/common/gpusym/common.h"

const char *gpusym_strerror(int err)
{
    switch (err) {
    case GPUSYM_SUCCESS:
        return "success";
    case GPUSYM_ERR:
        return "the GPU or its driver reports an error";
    case GPUSYM_ERR_NO_MEMORY:
        return "out of host or GPU memory";
    case GPUSYM_ERR_NOT_AVAILABLE:
        return "not available on this machine, in this build or by its settings";
    case GPUSYM_ERR_BAD_PARAM:
        return "bad parameter";
    case GPUSYM_ERR_UNREACHABLE:
        return "a peer's memory cannot be mapped";
    default:
        return "unknown error";
    }
}
