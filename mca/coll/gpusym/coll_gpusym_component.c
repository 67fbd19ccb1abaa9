/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The component: its life from registration to close, and the device of this process.
 */
#include "mca/coll/gpusym/team/peers.h"
#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/reg.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "opal/mca/base/mca_base_framework.h"
#include "opal/runtime/opal.h"
#include "opal/util/proc.h"

#include "config.h"

static int component_register(void);
static int component_open(void);
static int component_close(void);
static int component_init_query(bool enable_progress_threads, bool enable_mpi_threads);

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
            .collm_comm_query = coll_gpusym_comm_query,
        },
    .output = -1,
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
    ret = coll_gpusym_params_register();
    return OMPI_SUCCESS == ret ? coll_gpusym_counters_register() : ret;
}

static void open_output(void)
{
    mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;
    const int framework = ompi_coll_base_framework.framework_verbose; /* coll_base_verbose */

    c->output = opal_output_open(NULL);
    opal_output_set_verbosity(c->output, framework > c->verbose ? framework : c->verbose);
}

static int component_open(void)
{
    open_output();
    gpusym_device_opener = coll_gpusym_device;
    coll_gpusym_peers_publish();
    return coll_gpusym_adopt();
}

static int component_init_query(bool enable_progress_threads, bool enable_mpi_threads)
{
    (void) enable_progress_threads;
    (void) enable_mpi_threads; /* every level is served */
    mca_coll_gpusym_component.world_rank = (int) OPAL_PROC_MY_NAME.vpid;
    return OMPI_SUCCESS;
}

/* ---- the device ------------------------------------------------------------------------------ */

static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static bool device_tried; /* written under device_lock, after component.dev */

static const char *device_choice_name(int choice)
{
    switch (choice) {
    case GPUSYM_DEVICE_CUDA:
        return "cuda";
    case GPUSYM_DEVICE_SIM:
        return "sim";
    case GPUSYM_DEVICE_NONE:
        return "none";
    default:
        return "auto";
    }
}

static void open_device(mca_coll_gpusym_component_t *c)
{
    const char *why = "no reason given";

    gpusym_sim_params.host = c->sim_host;
    gpusym_sim_params.gpus = c->sim_gpus;
    gpusym_sim_params.fail = c->sim_fail;
    gpusym_sim_params.links = c->sim_links;
    gpusym_sim_params.local_rank = (int) opal_process_info.my_local_rank;
    gpusym_sim_params.world_rank = c->world_rank;
    gpusym_reg_limit = (unsigned)c->reg_limit;

    c->dev = gpusym_device_select((gpusym_device_choice_t) c->device, &why);
    if (NULL != c->dev) {
        COLL_GPUSYM_VERBOSE(1, "device %s", c->dev->name);
        return;
    }
    COLL_GPUSYM_VERBOSE(1, "no device (asked for: %s): %s", device_choice_name(c->device), why);
    if (GPUSYM_DEVICE_CUDA == c->device || GPUSYM_DEVICE_SIM == c->device) {
        coll_gpusym_help("no-device", device_choice_name(c->device), why);
    }
}

const gpusym_device_t *coll_gpusym_device(void)
{
    if (!__atomic_load_n(&device_tried, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&device_lock);
        if (!device_tried) {
            open_device(&mca_coll_gpusym_component);
            __atomic_store_n(&mca_coll_gpusym_component.no_device, NULL == mca_coll_gpusym_component.dev, __ATOMIC_RELAXED);
            __atomic_store_n(&device_tried, true, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&device_lock);
    }
    return mca_coll_gpusym_component.dev;
}

/* No thread is in a collective any more.  At the end of MPI_Finalize, or later: a program that uses MPI_T keeps
 * components open, maybe for ever.  What is set here lets an MPI that is initialised again
 * (a second session) begin afresh. */
static int component_close(void)
{
    mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;

    coll_gpusym_counters_print();
    gpusym_device_opener = NULL;
    coll_gpusym_team_fini();
    coll_gpusym_peers_fini();
    if (device_tried) {
        gpusym_device_close();
        c->dev = NULL;
        c->no_device = device_tried = false;
    }
    memset(c->counters, 0, sizeof(c->counters));
    if (0 <= c->output) {
        opal_output_close(c->output);
        c->output = -1;
    }
    return OMPI_SUCCESS;
}
