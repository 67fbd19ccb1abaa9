/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * An accelerator component of Open MPI 5 and 6: tells Open MPI which memory is a GPU's, and copies it.  By it MPI_Pack,
 * MPI_Sendrecv_replace, files and partitioned messages accept GPU memory, which the hook of point-to-point messages
 * never sees, and MPIX_Query_cuda_support() answers 1.
 *
 * MPIX_Query_cuda_support() compares the name of the selected component with "cuda".  A file mca_accelerator_cuda.so
 * would hide that of an Open MPI which has one of its own, and stepping back would then leave none.  So the file and
 * its component have gpusym's name, like all the others, and the component takes the name "cuda" while it is in use.
 */
#include "mca/accelerator/gpusym/accelerator_gpusym.h"

#include <stdlib.h>
#include <string.h>

#include "opal/mca/base/base.h"

#include "config.h"
#include "mca/common/ompi/face.h"

#define NAME "gpusym"

static int component_open(void);
static int component_close(void);
static opal_accelerator_base_module_t *component_init(void);
static void component_finalize(opal_accelerator_base_module_t *module);

GPUSYM_COMPONENT_EXPORT opal_accelerator_base_component_t mca_accelerator_gpusym_component = {
    .base_version =
        {
            OPAL_ACCELERATOR_BASE_VERSION_1_0_0,
            .mca_component_name = NAME,
            MCA_BASE_MAKE_VERSION(component, GPUSYM_VERSION_MAJOR, GPUSYM_VERSION_MINOR, GPUSYM_VERSION_RELEASE),
            .mca_open_component = component_open,
            .mca_close_component = component_close,
            .mca_register_component_params = gpusym_face_register,
        },
    .base_data = {MCA_BASE_METADATA_PARAM_NONE},
    .accelerator_init = component_init,
    .accelerator_finalize = component_finalize,
};

static int component_open(void)
{
    return gpusym_face_open(opal_accelerator_base_framework.framework_verbose);
}

static void take_name(const char *name)
{
    char *to = mca_accelerator_gpusym_component.base_version.mca_component_name;

    memset(to, 0, MCA_BASE_MAX_COMPONENT_NAME_LEN + 1);
    memcpy(to, name, strlen(name));
}

/* Open MPI finds what it loaded by the name that it had then. */
static int component_close(void)
{
    take_name(NAME);
    accelerator_streams_close();
#if GPUSYM_ACCELERATOR_IPC
    accelerator_ipc_close();
#endif
    gpusym_close();
    return OPAL_SUCCESS;
}

/* ---- the choice ---- */

static bool list_has(const char *list, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = list; NULL != (at = strstr(at, name)); at += length) {
        if ((at == list || NULL != strchr(",^ ", at[-1])) && NULL != strchr(", ", at[length])) { /* or the end */
            return true;
        }
    }
    return false;
}

/* Whether mpirun's command line or the environment leaves coll/gpusym out: GPU memory is then nowhere accepted, and
 * MPIX_Query_cuda_support() must not say otherwise.  Open MPI has not read its parameters for coll yet. */
static bool is_left_out(void)
{
    const char *coll = getenv("OMPI_MCA_coll");

    if (NULL == coll || '\0' == coll[0]) {
        return false;
    }
    return ('^' == coll[0]) == list_has(coll, NAME);
}

static bool has_own_cuda(void)
{
    const mca_base_component_list_item_t *item;

    OPAL_LIST_FOREACH(item, &opal_accelerator_base_framework.framework_components, mca_base_component_list_item_t)
    {
        if (0 == strcmp(item->cli_component->mca_component_name, "cuda")) {
            return true;
        }
    }
    return false;
}

#if !GPUSYM_ACCELERATOR_IPC
static int create_event(int dev_id, opal_accelerator_event_t **event)
{
    return accelerator_create_event(dev_id, event, false);
}
#endif

static opal_accelerator_base_module_t module = {
    .check_addr = accelerator_check_addr,
    .create_stream = accelerator_create_stream,
    .record_event = accelerator_record_event,
    .query_event = accelerator_query_event,
    .mem_copy_async = accelerator_mem_copy_async,
    .mem_copy = accelerator_mem_copy,
    .mem_move = accelerator_mem_move,
    .mem_alloc = accelerator_mem_alloc,
    .mem_release = accelerator_mem_release,
    .get_address_range = accelerator_address_range,
    .host_register = accelerator_host_register,
    .host_unregister = accelerator_host_unregister,
    .get_device = accelerator_get_device,
    .get_device_pci_attr = accelerator_pci_attr,
    .device_can_access_peer = accelerator_can_access_peer,
    .get_buffer_id = accelerator_buffer_id,
#if GPUSYM_ACCELERATOR_IPC
    .create_event = accelerator_create_event,
    .sync_stream = accelerator_sync_stream,
    .wait_event = accelerator_wait_event,
    .mem_move_async = accelerator_mem_move_async,
    .mem_alloc_stream = accelerator_mem_alloc_stream,
    .mem_release_stream = accelerator_mem_release_stream,
    .is_ipc_enabled = accelerator_is_ipc_enabled,
    .get_ipc_handle = accelerator_get_ipc_handle,
    .import_ipc_handle = accelerator_import_ipc_handle,
    .open_ipc_handle = accelerator_open_ipc_handle,
    .compare_ipc_handles = accelerator_compare_ipc_handles,
    .get_ipc_event_handle = accelerator_get_ipc_event_handle,
    .import_ipc_event_handle = accelerator_import_ipc_event_handle,
    .open_ipc_event_handle = accelerator_open_ipc_event_handle,
    .num_devices = accelerator_num_devices,
    .get_mem_bw = accelerator_mem_bw,
    .get_memkind = accelerator_memkind,
#else
    .create_event = create_event,
#endif
};

/* NULL: Open MPI takes another component, in most builds "null", for which all memory is the host's. */
static opal_accelerator_base_module_t *component_init(void)
{
    const char *why = NULL;

    if (has_own_cuda()) {
        why = "this Open MPI has its own CUDA component";
    } else if (is_left_out()) {
        why = "the list of coll components excludes gpusym";
    } else if (!gpusym_device_there(&why)) {
        why = NULL != why ? why : "there is no device";
    } else {
        take_name("cuda");
        accelerator_guard_files();
        return &module;
    }
    ACCELERATOR_VERBOSE(1, "not used: %s", why);
    return NULL;
}

static void component_finalize(opal_accelerator_base_module_t *used)
{
    (void) used;
}
