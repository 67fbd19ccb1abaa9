/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A transport (BTL) of GPU memory between processes of a host, for an ob1 that asks itself which memory is a GPU's.
 *
 * ob1 uses it beside the transport of the host (btl/sm, btl/vader), whose rank among transports it has.  On Open MPI 6
 * its latency is longer: messages of host memory, and the first part of every message, go by the other; before, short
 * messages go by both in turns.  By ob1's error callback it tells ob1 that it gets GPU memory; a flag for that would
 * say the same to osc/rdma, which would then take windows in GPU memory, and copy to them by the CPU.
 *
 * Where coll_gpusym_p2p serves messages, ob1 is never given GPU memory, and this component is not used: it adds nothing
 * to the progress of MPI.
 */
#include "mca/btl/gpunvl/btl_gpunvl.h"

#include <stdatomic.h>

#include "config.h"
#include "mca/common/ompi/face.h"
#include "mca/common/ompi/vars.h"

#define NAME "gpunvl"

static int component_register(void);
static int component_open(void);
static int component_close(void);
static mca_btl_base_module_t **component_init(int *count, bool progress_threads, bool mpi_threads);

GPUSYM_COMPONENT_EXPORT mca_btl_base_component_t mca_btl_gpunvl_component = {
    .btl_version =
        {
            GPUSYM_BTL_BASE_VERSION,
            .mca_component_name = NAME,
            MCA_BASE_MAKE_VERSION(component, GPUSYM_VERSION_MAJOR, GPUSYM_VERSION_MINOR, GPUSYM_VERSION_RELEASE),
            .mca_open_component = component_open,
            .mca_close_component = component_close,
            .mca_register_component_params = component_register,
        },
    .btl_data = {MCA_BASE_METADATA_PARAM_NONE},
    .btl_init = component_init,
};

static int module_finalize(mca_btl_base_module_t *btl);
static int module_register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t tell);

static const mca_btl_base_module_t module = {
    .btl_component = &mca_btl_gpunvl_component,
    .btl_flags = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_GET,
    .btl_exclusivity = MCA_BTL_EXCLUSIVITY_HIGH, /* that of sm and vader: they stay in use */
    .btl_latency = GPUSYM_BTL_LATENCY,
    .btl_bandwidth = 1,
    .btl_eager_limit = BTL_GPUNVL_EAGER,
    .btl_rndv_eager_limit = BTL_GPUNVL_EAGER,
    .btl_max_send_size = BTL_GPUNVL_MOST,
    .btl_rdma_pipeline_send_length = BTL_GPUNVL_EAGER,
    .btl_rdma_pipeline_frag_size = BTL_GPUNVL_MOST,
    .btl_min_rdma_pipeline_size = SIZE_MAX, /* no message is pipelined by puts */
    .btl_get_limit = SIZE_MAX,
    .btl_put_limit = SIZE_MAX,
    .btl_add_procs = btl_gpunvl_add_procs,
    .btl_del_procs = btl_gpunvl_del_procs,
    .btl_finalize = module_finalize,
    .btl_alloc = btl_gpunvl_alloc,
    .btl_free = btl_gpunvl_free,
    .btl_prepare_src = btl_gpunvl_prepare_src,
    .btl_send = btl_gpunvl_send,
    .btl_get = btl_gpunvl_get,
    .btl_register_error = module_register_error,
    .btl_register_mem = btl_gpunvl_register,
    .btl_deregister_mem = btl_gpunvl_deregister,
};

/* ---- parameters ---- */

static int component_register(void)
{
    static const gpusym_var_group_t group = {.names = {"opal", "btl", NAME}, .flags = MCA_BASE_VAR_FLAG_DWG};
    static const gpusym_var_number_t ring_size = {
        "ring_size",
        MCA_BASE_VAR_TYPE_UNSIGNED_LONG,
        5,
        &btl_gpunvl.ring_size,
        256 << 10,
        128 << 10,
        64 << 20,
        GPUSYM_RING_RECORD,
        "bytes",
        "Host memory that a process has for incoming messages of each other process of this host: control messages of "
        "gets, and all messages if no other transport is allowed. Senders queue messages that do not fit. All "
        "processes must have the same value"};
    const int ret = gpusym_face_register();

    if (OPAL_SUCCESS != ret) {
        return ret;
    }
    return gpusym_var_number(&group, &ring_size) < 0 ? OPAL_ERROR : OPAL_SUCCESS;
}

static int component_open(void)
{
    return gpusym_face_open(opal_btl_base_framework.framework_verbose);
}

static int component_close(void)
{
    gpusym_close();
    return OPAL_SUCCESS;
}

/* ---- progress ---- */

/* One thread at a time; what it calls comes back here, too. */
static int progress(void)
{
    static atomic_flag busy = ATOMIC_FLAG_INIT;

    if (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) {
        return 0;
    }
    btl_gpunvl_watch();
    const int n = btl_gpunvl_receive() + btl_gpunvl_send_queued() + btl_gpunvl_end_gets();
    atomic_flag_clear_explicit(&busy, memory_order_release);
    return n;
}

/* ---- the module ---- */

/* Why this process does not use the transport; NULL: it does. */
static const char *find_objection(void)
{
    const char *why = NULL;

    if (GPUSYM_P2P_OFF != gpusym_params.p2p) {
        return "coll_gpusym_p2p is not off";
    }
    if (!gpusym_ob1_sees_devices()) {
        return "this Open MPI does not detect GPU memory";
    }
    if (!gpusym_device_there(&why)) {
        return NULL != why ? why : "there is no device";
    }
    if (btl_gpunvl.slots < 2 || btl_gpunvl.slot >= btl_gpunvl.slots) {
        return "no other process of this job is on this host";
    }
    return NULL;
}

static mca_btl_base_module_t **component_init(int *count, bool progress_threads, bool mpi_threads)
{
    mca_btl_base_module_t **modules;

    (void) progress_threads;
    (void) mpi_threads; /* every level is served */
    *count = 0;
    btl_gpunvl.slot = (uint32_t) opal_process_info.my_local_rank;
    btl_gpunvl.slots = (uint32_t) opal_process_info.num_local_peers + 1;
    const char *why = find_objection();
    if (NULL != why) {
        GPUSYM_LOG(2, "btl/gpunvl: not used: %s", why);
        return NULL;
    }
    modules = malloc(sizeof(modules[0]));
    if (NULL == modules || !btl_gpunvl_publish()) {
        free(modules);
        btl_gpunvl_close_sends();
        btl_gpunvl_withdraw();
        return NULL;
    }
    memset(&btl_gpunvl.counters, 0, sizeof(btl_gpunvl.counters));
    btl_gpunvl.super = module;
    btl_gpunvl.super.btl_registration_handle_size = btl_gpunvl_handle_size();
    opal_progress_register(progress);
    modules[0] = &btl_gpunvl.super;
    *count = 1;
    return modules;
}

static int module_register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t tell)
{
    (void) btl;
    btl_gpunvl.tell = tell;
    return OPAL_SUCCESS;
}

static int module_finalize(mca_btl_base_module_t *btl)
{
    const btl_gpunvl_counters_t *c = &btl_gpunvl.counters;

    (void) btl;
    opal_progress_unregister(progress);
    GPUSYM_LOG(2, "btl/gpunvl: gets %lu of %lu bytes, %lu failed; exports %lu; messages %lu, %lu queued",
               (unsigned long) c->gets, (unsigned long) c->bytes, (unsigned long) c->failed, (unsigned long) c->exports,
               (unsigned long) c->sent, (unsigned long) c->queued);
    btl_gpunvl_close_gets();
    btl_gpunvl_close_sends();
    btl_gpunvl_withdraw();
    btl_gpunvl.tell = NULL;
    return OPAL_SUCCESS;
}
