/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Errors of one-sided calls on GPU memory: see report.h.
 */
#include "mca/osc/gpusym/report.h"

#include <stdio.h>

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/left.h"

#define GPU_ERROR                                                                        \
    "%s, in a one-sided call on GPU memory:\n"                                           \
    "the GPU reports an error:\n"                                                        \
    "    %s\n"                                                                           \
    "\n"                                                                                 \
    "An illegal address or instruction comes from an earlier kernel (CUDA repeats\n"     \
    "such an error at every later call): run the program under compute-sanitizer.\n"     \
    "The kernel log reports hardware faults (dmesg, \"Xid\").  After any other error,\n" \
    "check that the memory of the window and of the call's buffers has not been\n"       \
    "freed, and is as long as they say.  If so, gpusym is at fault: please report\n"     \
    "these lines and the datatypes.\n"                                                   \
    "The call, or the one that completes it, ends with MPI_ERR_OTHER.\n"

#define NO_MEMORY                                                              \
    "%s, in a one-sided call on GPU memory:\n"                                 \
    "memory could not be allocated:\n"                                         \
    "    %s%s\n"                                                               \
    "\n"                                                                       \
    "Free memory of the GPU or of the host, or raise the limit of locked\n"    \
    "memory (ulimit -l).  The call, or the one that completes it, ends with\n" \
    "MPI_ERR_NO_MEM.\n"

int osc_gpusym_class(struct ompi_communicator_t *comm, const gpusym_device_t *dev, int rc)
{
    char who[GPUSYM_COMM_LABEL_MAX + 64] = "A window of host memory";
    char name[GPUSYM_COMM_LABEL_MAX], limits[GPUSYM_LIMITS_TEXT];

    if (GPUSYM_SUCCESS == rc) {
        return OMPI_SUCCESS;
    }
    if (NULL != comm) {
        snprintf(who, sizeof who, "Rank %d of a window on %s", ompi_comm_rank(comm),
                 gpusym_comm_label(comm, name, sizeof name));
    }
    if (GPUSYM_ERR_NO_MEMORY == rc) {
        gpusym_help(NO_MEMORY, who, dev->error(), gpusym_memory_limits(limits));
        return MPI_ERR_NO_MEM;
    }
    gpusym_help(GPU_ERROR, who, dev->error());
    return MPI_ERR_OTHER;
}
