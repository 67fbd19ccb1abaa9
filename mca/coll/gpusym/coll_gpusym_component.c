/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The component: its life from registration to close.
 */
#include "mca/coll/gpusym/coll_gpusym.h"
#include "mca/coll/gpusym/coll_gpusym_metrics.h"
#include "mca/coll/gpusym/coll_gpusym_summary.h"

#include <stdio.h>
#include <string.h>

#include "opal/mca/base/mca_base_framework.h"
#include "opal/runtime/opal.h"
#include "opal/util/proc.h"

#include "mca/coll/gpusym/call/internal.h"
#include "mca/coll/gpusym/call/request.h"
#include "mca/coll/gpusym/conf/adopt.h"
#include "mca/coll/gpusym/conf/counters.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/hosts.h"
#include "mca/coll/gpusym/stream/stream.h"
#include "mca/coll/gpusym/team/peers.h"
#include "mca/coll/gpusym/trace/events.h"
#include "mca/coll/gpusym/trace/ranges.h"
#include "mca/coll/gpusym/trace/record.h"
#include "mca/coll/gpusym/trace/sums.h"
#include "mca/common/gpusym/lock.h"
#include "mca/common/ompi/face.h"
#include "mca/common/ompi/vars.h"
#include "mca/pml/gpusym/pml_gpusym.h"

#include "config.h"

static int component_register(void);
static int component_open(void);
static int component_close(void);
static int component_init_query(bool enable_progress_threads, bool enable_mpi_threads);
static mca_coll_base_module_t *component_comm_query(struct ompi_communicator_t *comm, int *priority);

mca_coll_gpusym_component_t mca_coll_gpusym_component = {
    .super =
        {
            .collm_version =
                {
                    GPUSYM_COLL_BASE_VERSION,
                    .mca_component_name = "gpusym",
                    MCA_BASE_MAKE_VERSION(component, GPUSYM_VERSION_MAJOR, GPUSYM_VERSION_MINOR,
                                          GPUSYM_VERSION_RELEASE),
                    .mca_open_component = component_open,
                    .mca_close_component = component_close,
                    .mca_register_component_params = component_register,
                },
            .collm_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE},
            .collm_init_query = component_init_query,
            .collm_comm_query = component_comm_query,
        },
};

static int component_register(void)
{
    int ret;

    if (!gpusym_ompi_fits()) {
        opal_output_verbose(1, ompi_coll_base_framework.framework_output,
                            "coll:gpusym: not loaded: this is Open MPI %s, the component is for " GPUSYM_OMPI_BUILT_FOR,
                            opal_version_string);
        coll_gpusym_help("wrong-version", opal_version_string, GPUSYM_OMPI_BUILT_FOR);
        return OMPI_ERR_NOT_AVAILABLE;
    }
    gpusym_var_group_describe("ompi", "coll", "gpusym",
                              "gpusym, collectives and messages on GPU memory: parameters, counters of calls, their "
                              "bytes and times, counters of messages");
    ret = coll_gpusym_params_register();
    if (OMPI_SUCCESS == ret) {
        ret = coll_gpusym_counters_register(&mca_coll_gpusym_component.super.collm_version);
    }
    if (OMPI_SUCCESS == ret) {
        ret = coll_gpusym_sums_register(&mca_coll_gpusym_component.super.collm_version);
    }
    if (OMPI_SUCCESS == ret) {
        coll_gpusym_events_register(&mca_coll_gpusym_component.super.collm_version);
    }
    if (OMPI_SUCCESS == ret) {
        ret = pml_gpusym_register(&mca_coll_gpusym_component.super.collm_version);
    }
    if (OMPI_SUCCESS == ret) {
        gpusym_vars_check("coll_gpusym_");
        gpusym_vars_check("opal_common_gpusym_");
    }
    return ret;
}

static int component_open(void)
{
    const int ret = gpusym_face_open(ompi_coll_base_framework.framework_verbose); /* coll_base_verbose */

    if (OMPI_SUCCESS != ret) {
        return ret;
    }
    gpusym_collectives_serve(true);
    coll_gpusym_streams_open();
    coll_gpusym_peers_publish();
    pml_gpusym_publish();
    return coll_gpusym_adopt();
}

static int component_init_query(bool enable_progress_threads, bool enable_mpi_threads)
{
    (void) enable_progress_threads;
    coll_gpusym_params.multiple = coll_gpusym_params.multiple || enable_mpi_threads;
    gpusym_threads = coll_gpusym_params.multiple || opal_using_threads();
    coll_gpusym_params.world_rank = (int) OPAL_PROC_MY_NAME.vpid;
    coll_gpusym_params.local_rank = opal_process_info.my_local_rank;
    coll_gpusym_ranges_start();
    coll_gpusym_trace_start(coll_gpusym_params.world_rank, opal_process_info.nodename);
    coll_gpusym_metrics_start(coll_gpusym_params.world_rank, opal_process_info.nodename);
    pml_gpusym_install();
    return OMPI_SUCCESS;
}

/* The one line of a job. */
static void tell_job(struct ompi_communicator_t *comm, bool served)
{
    const bool sim = GPUSYM_DEVICE_SIM == gpusym_params.device;
    const char *why = "coll_gpusym_device is none";
    const bool there = GPUSYM_DEVICE_NONE != gpusym_params.device && gpusym_device_there(&why);

    GPUSYM_LOG(1, GPUSYM_VERSION ", Open MPI %s, %d ranks; %s%s; collectives: %s; messages of GPU memory: %s",
               opal_version_string, ompi_comm_size(comm), there ? "device: " : "no device: ",
               !there ? why
               : sim  ? "the simulator"
                      : "NVIDIA GPUs",
               served ? "served" : "not served", pml_gpusym_serves() ? "served" : "not served");
}

static mca_coll_base_module_t *component_comm_query(struct ompi_communicator_t *comm, int *priority)
{
    mca_coll_base_module_t *module;

    pml_gpusym_meet();
    coll_gpusym_params.messages = pml_gpusym_serves();
    module = coll_gpusym_comm_query(comm, priority);
    if (MPI_COMM_WORLD == comm && 0 == coll_gpusym_params.world_rank) {
        tell_job(comm, NULL != module);
    }
    if (MPI_COMM_SELF == comm) {
        coll_gpusym_summary_plan();
        coll_gpusym_metrics_plan();
    }
    return module;
}

/* No thread is in a collective any more.  At the end of MPI_Finalize, or later: a program that uses MPI_T keeps
 * components open, maybe for ever.  What is set here lets an MPI that is initialised again
 * (a second session) begin afresh. */
static int component_close(void)
{
    coll_gpusym_streams_close();
    gpusym_collectives_serve(false);
    coll_gpusym_metrics_stop();
    coll_gpusym_sums_clear();
    coll_gpusym_events_forget();
    coll_gpusym_trace_stop();
    coll_gpusym_internal_fini();
    coll_gpusym_requests_fini();
    coll_gpusym_hosts_fini();
    coll_gpusym_peers_fini();
    pml_gpusym_close();
    gpusym_close();
    coll_gpusym_counters_clear();
    return OMPI_SUCCESS;
}
