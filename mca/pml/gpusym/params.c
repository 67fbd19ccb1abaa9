/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters of messages. They are parameters of the coll component, which opens this face.
 */
#include "mca/pml/gpusym/params.h"

#include "mca/common/ompi/vars.h"

pml_gpusym_params_t pml_gpusym_params;

static const gpusym_var_group_t group = {.names = {"ompi", "coll", "gpusym"}, .flags = MCA_BASE_VAR_FLAG_DWG};

int pml_gpusym_params_register(void)
{
    static const mca_base_var_enum_value_t choices[] = {
        {PML_GPUSYM_P2P_AUTO, "auto"}, {PML_GPUSYM_P2P_STAGED, "staged"}, {PML_GPUSYM_P2P_OFF, "off"}, {0, NULL}};
    static const gpusym_var_number_t linger = {
        "p2p_linger",
        MCA_BASE_VAR_TYPE_INT,
        5,
        &pml_gpusym_params.linger,
        -1,
        -1,
        1000000,
        0,
        "microseconds",
        "Time that the resident kernel of small messages (one thread block) stays on the receiver's GPU after a "
        "message. The next one needs no launch. cudaDeviceSynchronize and cudaFree wait for the kernel for up to that "
        "time. 0: no resident kernel; -1: use the tuning table, and pause where it has not paid off"};
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
        "Smallest message between two GPUs that the sender's copy engine pushes, at the receiver's request; the "
        "receiver pulls shorter ones. 0: use the tuning table"};
    const int rv = gpusym_var_choice(
        &group, "p2p", 3, choices, &pml_gpusym_params.p2p,
        "Point-to-point messages of GPU memory. auto: between GPUs of this host directly where they can map each "
        "other's memory, otherwise staged through host memory; staged: all through host memory; off: not served, so "
        "that only an Open MPI that knows GPU memory by itself may be given GPU pointers");
    return rv < 0                                                                               ? rv
           : gpusym_var_number(&group, &linger) < 0 || gpusym_var_number(&group, &push_min) < 0 ? OMPI_ERROR
                                                                                                : OMPI_SUCCESS;
}
