/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Errors of this transport, to the user and to ob1.
 */
#include "mca/btl/gpunvl/btl_gpunvl.h"

#define DEAD                                                                        \
    "The process of rank %u of MPI_COMM_WORLD (pid %d) has ended while messages\n"  \
    "with it were in progress (btl/gpunvl).\n"                                      \
    "\n"                                                                            \
    "Look for the first error that this rank printed: a signal, an out-of-memory\n" \
    "kill, an exit without MPI_Finalize.\n"

#define CORRUPT                                                                      \
    "The memory through which rank %u of MPI_COMM_WORLD (pid %d) and this process\n" \
    "exchange messages (btl/gpunvl) holds values that neither writes.\n"             \
    "\n"                                                                             \
    "One of the two has written out of bounds: run the program under valgrind,\n"    \
    "or with -fsanitize=address.  To run without that memory: --mca btl ^gpunvl.\n"

static void report(btl_gpunvl_endpoint_t *endpoint, const char *text, const char *brief)
{
    if (__atomic_exchange_n(&endpoint->dead, true, __ATOMIC_ACQ_REL)) {
        return;
    }
    gpusym_help(text, (unsigned) endpoint->proc->proc_name.vpid, gpusym_peer_pid(endpoint->pages));
    if (NULL != btl_gpunvl.tell) {
        btl_gpunvl.tell(&btl_gpunvl.super, MCA_BTL_ERROR_FLAGS_FATAL, endpoint->proc, (char *) (uintptr_t) brief);
    }
}

void btl_gpunvl_report_dead(btl_gpunvl_endpoint_t *endpoint)
{
    report(endpoint, DEAD, "btl/gpunvl: a peer has ended");
}

void btl_gpunvl_report_corrupt(btl_gpunvl_endpoint_t *endpoint)
{
    report(endpoint, CORRUPT, "btl/gpunvl: memory shared with a peer is overwritten");
}
