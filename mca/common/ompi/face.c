/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The common library's parameters, and its opening: see face.h.
 */
#include "mca/common/ompi/face.h"

#include <stdlib.h>

#include "opal/util/output.h"

#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/ompi/vars.h"

#define MIB (1024.0 * 1024.0)
#define FIELD(name) (&gpusym_params.name)

/* The synonyms are the names that coll/gpusym has always had for them. */
static const gpusym_var_group_t group = {
    .names = {"opal", "opal_common", "gpusym"},
    .synonym = {"ompi", "coll", "gpusym"},
};

static const gpusym_var_number_t numbers[] = {
    {"heap_size", MCA_BASE_VAR_TYPE_UNSIGNED_LONG, 4, FIELD(heap_size), 56 * MIB, MIB, 4096 * MIB, 0, "bytes",
     "GPU memory that a process reserves for its symmetric heap, which all its communicators share. The suffixes K, M "
     "and G are accepted"},
    {"heap_slabs", MCA_BASE_VAR_TYPE_INT, 4, FIELD(heap_slabs), 4, 1, GPUSYM_SLABS_MAX, 0, "slabs",
     "How often a process may reserve that memory: once at first, and once more for each communicator that finds no "
     "large part of it free. More communicators share what there is, and large reductions on them take longer"},
    {"heap_vmm", MCA_BASE_VAR_TYPE_BOOL, 6, FIELD(heap_vmm), 0, 0, 1, 0, "",
     "Make the symmetric heap of the GPU's virtual memory (cuMemCreate), which peers open by file descriptors, instead "
     "of memory of cudaMalloc, which they open by IPC handles. If a rank of a communicator cannot make or map it, its "
     "ranks use the other memory"},
    {"multicast", MCA_BASE_VAR_TYPE_INT, 3, FIELD(multicast), -1, -1, 1, 0, "",
     "NVLink multicast (NVLS). -1: where the tuning table has it, that is on the simulator: on GPUs it has not run "
     "yet. "
     "1: also on GPUs that have it, with coll_gpusym_heap_vmm=1, for communicators on which a test of each multicast "
     "kernel gives the right bits; then the tuning table chooses it where published figures say that it is faster. "
     "0: never. NCCL_NVLS_ENABLE=0, NVSHMEM_DISABLE_NVLS=1 or "
     "TORCH_SYMM_MEM_DISABLE_MULTICAST=1 in the environment forbid it and override this parameter"},
    {"reg_limit", MCA_BASE_VAR_TYPE_INT, 4, FIELD(reg_limit), GPUSYM_REG_MAX, 0, GPUSYM_REG_MAX, 0, "buffers",
     "Maximum number of user allocations of a process that peers map at a time. A further one replaces the least "
     "recently used"},
    {"map_small", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(map_small), 1, 0, 1, 0, "",
     "Let peers map allocations of less than 2 MiB. The CUDA driver packs these into blocks of 2 MiB, and a peer (a "
     "process "
     "of the same job and user) then maps the whole block. 0: such buffers go through shared buffers, slower"},
    {"wait_legacy_stream", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(wait_legacy_stream), 0, 0, 1, 0, "",
     "NVIDIA GPUs: each MPI call on GPU memory waits for what the program has queued on the legacy default stream. For "
     "programs that call MPI without having waited for their kernels; it costs each call 2 to 4 microseconds, and its "
     "overlap with those kernels. A capture of a stream that is not a non-blocking one does not survive such a call"},
    {"pinned_max", MCA_BASE_VAR_TYPE_UNSIGNED_LONG, 4, FIELD(pinned_max), 256 * MIB, 0, 1048576 * MIB, 0, "bytes",
     "Maximum pinned host memory of a process for staging. Beyond it pageable memory is used, which the GPU copies "
     "much more slowly. The suffixes K, M and G are accepted"},
    {"scratch_max", MCA_BASE_VAR_TYPE_UNSIGNED_LONG, 4, FIELD(scratch_max), 256 * MIB, 0, 1048576 * MIB, 0, "bytes",
     "Maximum GPU memory that a process keeps between calls for packed data. A call that needs more allocates it, "
     "which takes about 1 ms. The suffixes K, M and G are accepted"},
    {"warn", MCA_BASE_VAR_TYPE_DOUBLE, 3, FIELD(warn), 30, 0, 1000000, 0, "seconds",
     "Time after which a waiting collective reports the ranks that it waits for, and where they were last, and a "
     "waiting one-sided call on GPU memory the ranks. The report repeats after twice that time, four times that time, "
     "and so on. 0: no report, and no message about ranks whose parameters differ"},
    {"verbose", MCA_BASE_VAR_TYPE_INT, 2, FIELD(verbose), 0, 0, 100, 0, "",
     "Verbosity on stderr. 1: one line per job, with versions and the device; 2: also decisions of each process, and "
     "why a feature is not used; 5: also one line per communicator. The higher of this parameter and "
     "coll_base_verbose applies"},
    {"sim_host", MCA_BASE_VAR_TYPE_BOOL, 7, FIELD(sim_host), 0, 0, 1, 0, "",
     "Simulator: treat every buffer as GPU memory, so that any MPI program runs the kernels"},
    {"sim_gpus", MCA_BASE_VAR_TYPE_INT, 7, FIELD(sim_gpus), 0, 0, 64, 0, "GPUs",
     "Simulator: number of GPUs per host, assigned to the processes by local rank. 0: one GPU per process"},
    {"sim_mps", MCA_BASE_VAR_TYPE_BOOL, 9, FIELD(sim_mps), 0, 0, 1, 0, "",
     "Simulator: processes that share a GPU do so by an MPS daemon"},
    {"sim_delay", MCA_BASE_VAR_TYPE_INT, 9, FIELD(sim_delay), 0, 0, 10000000, 0, "microseconds",
     "Simulator: minimum duration of a kernel, or of a copy in a stream"},
};

static int register_device(void)
{
    static const mca_base_var_enum_value_t choices[] = {
        {GPUSYM_DEVICE_AUTO, "auto"},
        {GPUSYM_DEVICE_CUDA, "cuda"},
        {GPUSYM_DEVICE_SIM, "sim"},
        {GPUSYM_DEVICE_NONE, "none"},
        {0, NULL},
    };

    return gpusym_var_choice(&group, "device", 2, choices, FIELD(device),
                             "GPU memory to serve. auto: NVIDIA GPUs if there are any; cuda: NVIDIA GPUs, with a "
                             "message if there are none; sim: the simulator, which needs no GPU; none: disable the "
                             "component");
}

static int register_p2p(void)
{
    static const mca_base_var_enum_value_t choices[] = {
        {GPUSYM_P2P_AUTO, "auto"}, {GPUSYM_P2P_STAGED, "staged"}, {GPUSYM_P2P_OFF, "off"}, {0, NULL}};

    return gpusym_var_choice(
        &group, "p2p", 3, choices, FIELD(p2p),
        "Point-to-point messages of GPU memory. auto: directly between GPUs of a host that can map each other's "
        "memory, otherwise staged through host memory; staged: stage all; off: leave them to Open MPI, for which "
        "btl/gpunvl moves the data. off requires an Open MPI that supports GPU memory itself (built with CUDA, or "
        "5.0 and later with gpusym's accelerator component); with any other, programs must not pass GPU pointers");
}

static int register_sim_fail(void)
{
    return gpusym_var_string(
        &group, "sim_fail", 9, "", FIELD(sim_fail),
        "Simulator: faults to inject, as a comma-separated list of [WAY:]WHAT:N[+][@RANK]. The N-th (from 1) "
        "alloc, import, export, launch, graph, hostalloc, copy, stream or open (of a GPU, each time) fails; cluster: "
        "the N-th launch of a resident kernel of several blocks; multicast: "
        "the N-th call that makes, joins or adds to a multicast object; bind: that binds memory to one; switch: the "
        "N-th multicast kernel reduces by another operation; "
        "hang: the N-th launch never ends; stall: the N-th copy in a stream; freeze: the N-th launch, and its stream "
        "with it; doorbell: the N-th command to a resident "
        "kernel arrives too late; "
        "entry: the N-th kernel that was launched early leaves when it has sent its entry; "
        "+: all later ones too; WAY die: the process is killed instead; stay: that call does not return. @RANK limits "
        "the fault to one rank");
}

static int register_sim_links(void)
{
    return gpusym_var_string(
        &group, "sim_links", 9, "", FIELD(sim_links),
        "Simulator: links between GPUs, as a comma-separated list of A-B:CLASS[!]. A GPU has the number of "
        "the local rank that it is assigned to. CLASS 0: neither GPU reaches the other; 1: across "
        "NUMA nodes; 2: within a NUMA node; 3: through one PCI switch; 3 + n: n NVLinks. !: each copy "
        "across the link changes a byte. Other pairs have one NVLink");
}

/* This process's rank in its job. A framework of Open MPI 5 and 6 that opens before PMIx is asked finds it where PMIx's
 * server has put it. */
static unsigned long find_rank(void)
{
    const char *rank = getenv("PMIX_RANK");
    if (OPAL_VPID_INVALID != OPAL_PROC_MY_NAME.vpid) {
        return (unsigned long) OPAL_PROC_MY_NAME.vpid;
    }
    return NULL != rank ? strtoul(rank, NULL, 10) : GPUSYM_LOG_NO_RANK; /* none: ompi_info */
}

int gpusym_face_register(void)
{
    int ret;

    if (!gpusym_ompi_fits()) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    gpusym_log_name(find_rank(), opal_process_info.nodename);
    if (0 <= mca_base_var_find(group.names.project, group.names.framework, group.names.component, "device")) {
        return OPAL_SUCCESS;
    }
    gpusym_var_group_describe(group.names.project, group.names.framework, group.names.component,
                              "gpusym's common library: parameters");
    ret = register_device();
    if (ret >= 0) {
        ret = register_p2p();
    }
    if (ret >= 0) {
        ret = register_sim_fail();
    }
    if (ret >= 0) {
        ret = register_sim_links();
    }
    for (size_t i = 0; ret >= 0 && i < sizeof(numbers) / sizeof(numbers[0]); ++i) {
        ret = gpusym_var_number(&group, &numbers[i]);
    }
    return ret < 0 ? ret : OPAL_SUCCESS;
}

int gpusym_face_open(int framework)
{
    gpusym_config_t config = gpusym_params;

    gpusym_log_name(find_rank(), opal_process_info.nodename);
    config.verbose = framework > config.verbose ? framework : config.verbose;
    config.world_rank = (int) OPAL_PROC_MY_NAME.vpid;
    config.local_rank = OPAL_VPID_INVALID != OPAL_PROC_MY_NAME.vpid ? (int) opal_process_info.my_local_rank : -1;
    return GPUSYM_SUCCESS == gpusym_open(&config) ? OPAL_SUCCESS : OPAL_ERR_OUT_OF_RESOURCE;
}
