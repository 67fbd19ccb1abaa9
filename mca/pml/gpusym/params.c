/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters of messages. They are parameters of the coll component, which opens this face.
 */
#include "mca/pml/gpusym/params.h"

#include "mca/common/gpusym/gpus.h"
#include "mca/common/ompi/vars.h"

pml_gpusym_params_t pml_gpusym_params;

static const gpusym_var_group_t group = {.names = {"ompi", "coll", "gpusym"}, .flags = MCA_BASE_VAR_FLAG_DWG};

int pml_gpusym_params_register(void)
{
    static const gpusym_var_number_t linger = {
        "p2p_linger",
        MCA_BASE_VAR_TYPE_INT,
        5,
        &gpusym_p2p_linger,
        -1,
        -1,
        1000000,
        0,
        "microseconds",
        "Time that the resident kernel of small messages and one-sided calls (one thread block; from "
        "the H100 on a cluster of eight) stays on the "
        "receiver's GPU after a message, or on the sender's after a staged one, or on the origin's. The next one "
        "needs no launch. cudaDeviceSynchronize and cudaFree wait for the kernel for up to that time. 0: no resident "
        "kernel; -1: use the tuning table, and "
        "pause the resident kernel while it saves no time"};
    static const gpusym_var_number_t push_min = {
        "p2p_push_min",
        MCA_BASE_VAR_TYPE_UNSIGNED_LONG,
        5,
        &pml_gpusym_params.push_min,
        0,
        0,
        1ull << 40,
        0,
        "bytes",
        "Smallest message between two GPUs that the sender's copy engine pushes, at the receiver's request. The "
        "receiver pulls shorter ones. 0: use the tuning table"};
    return gpusym_var_number(&group, &linger) < 0 || gpusym_var_number(&group, &push_min) < 0 ? OMPI_ERROR
                                                                                              : OMPI_SUCCESS;
}
