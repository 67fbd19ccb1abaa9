/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Every difference between Open MPI 4.1, 5.0 and 6.0 that we meet, and nothing else.  No other
 * file tests an Open MPI version.
 *
 * The same in all three, so not here: ompi_mpi_abort(), OMPI_ERRHANDLER_INVOKE, the opal_output
 * and MCA variable calls, opal_process_info.my_local_rank and num_local_peers, OPAL_PROC_MY_NAME, opal_version_string.
 * Agreement (coll_agree, coll_iagree) exists from 5.0 on and is left to the stock components.
 */
#ifndef GPUSYM_COMMON_OMPI_COMPAT_H
#define GPUSYM_COMMON_OMPI_COMPAT_H

#include "ompi_config.h" /* always first */

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ompi/communicator/communicator.h"
#include "ompi/errhandler/errhandler.h"
#include "ompi/group/group.h"
#include "ompi/mca/coll/base/base.h"
#include "ompi/mca/coll/coll.h"
#include "ompi/proc/proc.h"
#include "ompi/runtime/params.h"
#include "opal/mca/base/mca_base_framework.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/btl.h"
#if OMPI_MAJOR_VERSION >= 5
#include "opal/mca/pmix/pmix-internal.h"
#else
#include "opal/mca/pmix/pmix.h"
#endif
#include "opal/runtime/opal.h"
#include "opal/util/info.h"
#include "opal/util/info_subscriber.h"
#include "opal/util/proc.h"
#if OMPI_MAJOR_VERSION >= 5 && __has_include("opal/mca/accelerator/base/base.h")
#include "opal/mca/accelerator/base/base.h"
#define GPUSYM_OMPI_ACCELERATOR 1
#else
#define GPUSYM_OMPI_ACCELERATOR 0
#endif
/* Events of MPI_T. */
#if OMPI_MAJOR_VERSION >= 6 && __has_include("opal/mca/base/mca_base_event.h")
#include "opal/mca/base/mca_base_event.h"
#define GPUSYM_OMPI_EVENTS 1
#else
#define GPUSYM_OMPI_EVENTS 0
#endif

#if (4 == OMPI_MAJOR_VERSION && OMPI_MINOR_VERSION < 1) || OMPI_MAJOR_VERSION < 4 || OMPI_MAJOR_VERSION > 6
#error "gpusym knows Open MPI 4.1, 5.0 and 6.0"
#endif

/* The version that we are built for: "4.1". Only this major.minor may load us. */
#define GPUSYM_STRING_(x) #x
#define GPUSYM_STRING(x) GPUSYM_STRING_(x)
#define GPUSYM_OMPI_BUILT_FOR GPUSYM_STRING(OMPI_MAJOR_VERSION) "." GPUSYM_STRING(OMPI_MINOR_VERSION)

/* Whether the Open MPI that loads us is that one: its structs are ours then.
 * opal_version_string: "4.1.4", "6.0.0rc2", with more behind on some builds. */
static inline bool gpusym_ompi_fits(void)
{
    static const char built[] = GPUSYM_OMPI_BUILT_FOR ".";

    return 0 == strncmp(opal_version_string, built, sizeof(built) - 1);
}

/* Ranks that die (ULFM), from 5.0 on. The error classes of a call with a dead rank, and on a revoked communicator. */
#if OMPI_MAJOR_VERSION >= 5
#define GPUSYM_ERR_PROC_FAILED MPI_ERR_PROC_FAILED
#define GPUSYM_ERR_PROC_FAILED_NAME "MPI_ERR_PROC_FAILED"
#define GPUSYM_ERR_REVOKED MPI_ERR_REVOKED
#else
#define GPUSYM_ERR_PROC_FAILED MPI_ERR_OTHER
#define GPUSYM_ERR_PROC_FAILED_NAME "MPI_ERR_OTHER"
#define GPUSYM_ERR_REVOKED MPI_ERR_OTHER
#endif

/* What Open MPI knows of the dead: something only if it was built so, and mpirun has been told that the job is to go on
 * without them. */
#if OMPI_MAJOR_VERSION >= 5 && OPAL_ENABLE_FT_MPI
/* Whether a job goes on without ranks that die. */
static inline bool gpusym_ft_enabled(void)
{
    return ompi_ftmpi_enabled;
}
/* Whether a rank of a communicator has died. Open MPI then ends all requests on it whose tags are not the program's. */
static inline bool gpusym_ft_hurt(struct ompi_communicator_t *comm)
{
    return ompi_ftmpi_enabled && ompi_comm_coll_revoked(comm);
}
static inline bool gpusym_ft_revoked(struct ompi_communicator_t *comm)
{
    return ompi_ftmpi_enabled && ompi_comm_is_revoked(comm);
}
/* Whether it knows that the process of a rank has ended; of an intercommunicator, a rank of the remote group. */
static inline bool gpusym_ft_is_dead(struct ompi_communicator_t *comm, int rank)
{
    return ompi_ftmpi_enabled && !ompi_comm_is_proc_active(comm, rank, OMPI_COMM_IS_INTER(comm));
}
/* A dead rank of an intracommunicator; -1: none. */
static inline int gpusym_ft_dead(struct ompi_communicator_t *comm)
{
    if (!gpusym_ft_hurt(comm)) {
        return -1;
    }
    for (int r = 0; r < ompi_comm_size(comm); r++) {
        if (gpusym_ft_is_dead(comm, r)) {
            return r;
        }
    }
    return -1;
}
/* Tells it that the process of a rank has ended. False: it knows that already. */
static inline bool gpusym_ft_tell(struct ompi_communicator_t *comm, int rank)
{
    const bool news = !gpusym_ft_is_dead(comm, rank);
    if (ompi_ftmpi_enabled && news) {
        (void) ompi_errhandler_proc_failed(ompi_group_peer_lookup(comm->c_remote_group, rank));
    }
    return news;
}
/* Ends all calls on a communicator, on all of its ranks. False: it cannot. */
static inline bool gpusym_ft_revoke(struct ompi_communicator_t *comm)
{
    return ompi_ftmpi_enabled && OMPI_SUCCESS == ompi_comm_revoke_internal(comm);
}
#else
static inline bool gpusym_ft_enabled(void)
{
    return false;
}
static inline bool gpusym_ft_hurt(struct ompi_communicator_t *comm)
{
    (void) comm;
    return false;
}
static inline bool gpusym_ft_revoked(struct ompi_communicator_t *comm)
{
    (void) comm;
    return false;
}
static inline bool gpusym_ft_is_dead(struct ompi_communicator_t *comm, int rank)
{
    (void) comm;
    (void) rank;
    return false;
}
static inline int gpusym_ft_dead(struct ompi_communicator_t *comm)
{
    (void) comm;
    return -1;
}
static inline bool gpusym_ft_tell(struct ompi_communicator_t *comm, int rank)
{
    (void) comm;
    (void) rank;
    return true;
}
static inline bool gpusym_ft_revoke(struct ompi_communicator_t *comm)
{
    (void) comm;
    return false;
}
#endif

/* The component struct, and the initialiser of its interface version. */
typedef mca_coll_base_component_t gpusym_coll_component_t;
#if OMPI_MAJOR_VERSION >= 6
#define GPUSYM_COLL_BASE_VERSION MCA_COLL_BASE_VERSION_3_0_0
#elif OMPI_MAJOR_VERSION == 5
#define GPUSYM_COLL_BASE_VERSION MCA_COLL_BASE_VERSION_2_4_0
#else
#define GPUSYM_COLL_BASE_VERSION MCA_COLL_BASE_VERSION_2_0_0
#endif

/* The same of a memory pool's component. */
#if OMPI_MAJOR_VERSION >= 5
#define GPUSYM_MPOOL_BASE_VERSION MCA_MPOOL_BASE_VERSION_3_1_0
#else
#define GPUSYM_MPOOL_BASE_VERSION MCA_MPOOL_BASE_VERSION_3_0_0
#endif

/* One-sided: the interface version of a component; the type of a displacement unit. */
#if OMPI_MAJOR_VERSION >= 6
#define GPUSYM_OSC_BASE_VERSION OMPI_OSC_BASE_VERSION_4_0_0
typedef ptrdiff_t gpusym_disp_unit_t;
#else
#define GPUSYM_OSC_BASE_VERSION OMPI_OSC_BASE_VERSION_3_0_0
typedef int gpusym_disp_unit_t;
#endif

/* The accelerator framework, from 5.0 on: whether its table has functions for memory and events of other processes, and
 * the 16 others that came with them (6.0); the stream that stands for the driver's default one. */
#if OMPI_MAJOR_VERSION >= 6
#define GPUSYM_ACCELERATOR_IPC 1
#define GPUSYM_IS_DEFAULT_STREAM(stream) (MCA_ACCELERATOR_STREAM_DEFAULT == (stream))
#else
#define GPUSYM_ACCELERATOR_IPC 0
#define GPUSYM_IS_DEFAULT_STREAM(stream) (false)
#endif

/*
 * Transports (BTLs).  The interface version of a component; the flag by which a transport tells ob1, by ob1's error
 * callback, that it gets GPU memory of a process.
 */
#if OMPI_MAJOR_VERSION >= 5
#define GPUSYM_BTL_BASE_VERSION MCA_BTL_BASE_VERSION_3_3_0
#define GPUSYM_BTL_ADD_DEVICE_GET MCA_BTL_ERROR_FLAGS_ADD_ACCELERATOR_IPC
#else
#define GPUSYM_BTL_BASE_VERSION MCA_BTL_BASE_VERSION_3_1_0
#define GPUSYM_BTL_ADD_DEVICE_GET MCA_BTL_ERROR_FLAGS_ADD_CUDA_IPC
#endif

/* The latency, in Open MPI's terms, of a transport that ob1 shall use beside that of the host. Messages begin by the
 * transports of the shortest, which is 1. Up to 5.0 ob1 acknowledges what came by one of the others only when some
 * message of it happens to end, and may wait for ever. */
#if OMPI_MAJOR_VERSION >= 6
#define GPUSYM_BTL_LATENCY 100
#else
#define GPUSYM_BTL_LATENCY 1
#endif

/* Whether ob1 asks which memory is a GPU's. That of 4.1 does if it is built so, as the headers of its installation say;
 * later ones if Open MPI has selected an accelerator component. */
static inline bool gpusym_ob1_sees_devices(void)
{
#if GPUSYM_OMPI_ACCELERATOR
    return 0 != strcmp(opal_accelerator_base_selected_component.base_version.mca_component_name, "null");
#elif OMPI_MAJOR_VERSION == 4 && OPAL_CUDA_SUPPORT
    return true;
#else
    return false;
#endif
}

/* Gives a message that has come in to its reader in this process. endpoint: of the sender, or NULL. False: the tag has
 * no reader. */
static inline bool gpusym_btl_deliver(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                      mca_btl_base_tag_t tag, void *data, size_t bytes)
{
    const mca_btl_active_message_callback_t *reader = &mca_btl_base_active_message_trigger[tag];
    mca_btl_base_segment_t segment = {.seg_addr.pval = data, .seg_len = bytes};

    if (NULL == reader->cbfunc) {
        return false;
    }
#if OMPI_MAJOR_VERSION >= 5
    const mca_btl_base_receive_descriptor_t message = {
        .endpoint = endpoint, .des_segments = &segment, .des_segment_count = 1, .tag = tag, .cbdata = reader->cbdata};
    reader->cbfunc(btl, &message);
#else
    mca_btl_base_descriptor_t message;
    (void) endpoint;
    memset(&message, 0, sizeof(message));
    message.des_segments = &segment;
    message.des_segment_count = 1;
    reader->cbfunc(btl, tag, &message, reader->cbdata);
#endif
    return true;
}

/* Whether ompio marks open files by OMPI_FILE_ASSERT_NO_ACCEL_BUF (mca/accelerator/gpusym/guard.c). */
#if OMPI_MAJOR_VERSION >= 6
#define GPUSYM_FILE_OPEN_MEANS_HOST 1
#else
#define GPUSYM_FILE_OPEN_MEANS_HOST 0
#endif

/* Copies the value that an info object has for a key to `value`, cut to its size (more than OPAL_MAX_INFO_VAL is never
 * needed). False: the object has none, or is NULL. */
static inline bool gpusym_info_get(opal_info_t *info, const char *key, char *value, size_t size)
{
    int found = 0;

    if (NULL == info || 0 == size) {
        return false;
    }
#if OMPI_MAJOR_VERSION >= 5
    opal_cstring_t *text = NULL;
    if (OPAL_SUCCESS == opal_info_get(info, key, &text, &found) && 0 != found) {
        snprintf(value, size, "%s", text->string);
        OBJ_RELEASE(text);
    }
#else
    if (OPAL_SUCCESS != opal_info_get(info, key, (int) size - 1, value, &found)) {
        found = 0;
    }
#endif
    return 0 != found;
}

/* Keys of a communicator's info, of at most 27 characters. The callback gets each value that a program sets, at once
 * the one that the communicator is made with, or "". It returns that, or NULL: then MPI_Comm_get_info has none. */
#if OMPI_MAJOR_VERSION >= 5
typedef const char *gpusym_info_text_t;
#else
typedef char *gpusym_info_text_t;
#endif
static inline void gpusym_comm_subscribe(ompi_communicator_t *comm, const char *key,
                                         opal_key_interest_callback_t *callback)
{
    static char none[] = ""; /* kept by its address in 4.1 */

    (void) opal_infosubscribe_subscribe(&comm->super, (gpusym_info_text_t) (uintptr_t) key, none, callback);
}

/* Sets what MPI_Comm_get_info returns for such a key, and tells no subscriber; NULL: nothing. 4.1 returns what the
 * program has set, which it keeps beside that. */
static inline void gpusym_comm_keep_info(ompi_communicator_t *comm, const char *key, const char *value)
{
    if (NULL == comm->super.s_info) {
        return;
    }
    if (NULL != value) {
        (void) opal_info_set(comm->super.s_info, key, value);
    } else {
        (void) opal_info_delete(comm->super.s_info, key);
    }
#if OMPI_MAJOR_VERSION < 5
    char set_key[OPAL_MAX_INFO_KEY + 1];
    snprintf(set_key, sizeof(set_key), OPAL_INFO_SAVE_PREFIX "%s", key);
    if (NULL != value) {
        (void) opal_info_set(comm->super.s_info, set_key, value);
    } else {
        (void) opal_info_delete(comm->super.s_info, set_key);
    }
#endif
}

/* A component's symbol must be visible; OMPI_MODULE_DECLSPEC is gone since 5.0. */
#define GPUSYM_COMPONENT_EXPORT OMPI_DECLSPEC

/* A count of elements in a collective's interface; arrays of counts and of displacements (the last: in bytes, of the
 * neighbourhood alltoallw), and their i-th element. */
#if OMPI_MAJOR_VERSION >= 6
typedef size_t gpusym_count_t;
#define GPUSYM_COUNT_MAX SIZE_MAX
typedef ompi_count_array_t gpusym_counts_t;
typedef ompi_disp_array_t gpusym_displs_t;
typedef ompi_disp_array_t gpusym_adispls_t;
#define gpusym_count_at(counts, i) ((size_t) ompi_count_array_get((counts), (i)))
#define gpusym_displ_at(displs, i) ((ptrdiff_t) ompi_disp_array_get((displs), (i)))
#define gpusym_adispl_at(displs, i) ((ptrdiff_t) ompi_disp_array_get((displs), (i)))
#define GPUSYM_INT_COUNTS_OF(p) ompi_count_array_create(p) /* of arrays of int */
#define GPUSYM_INT_DISPLS_OF(p) ompi_disp_array_create(p)
#define GPUSYM_COUNTS_OF(p) ompi_count_array_create_c(p)
#define GPUSYM_DISPLS_OF(p) ompi_disp_array_create_c(p)
#define GPUSYM_ADISPLS_OF(p) ompi_disp_array_create_c(p)
typedef size_t gpusym_count_element_t;
typedef ptrdiff_t gpusym_displ_element_t;
typedef ptrdiff_t gpusym_adispl_element_t;
#else
typedef int gpusym_count_t;
#define GPUSYM_COUNT_MAX INT_MAX
typedef const int *gpusym_counts_t;
typedef const int *gpusym_displs_t;
typedef const MPI_Aint *gpusym_adispls_t;
#define gpusym_count_at(counts, i) ((size_t) (counts)[i])
#define gpusym_displ_at(displs, i) ((ptrdiff_t) (displs)[i])
#define gpusym_adispl_at(displs, i) ((ptrdiff_t) (displs)[i])
#define GPUSYM_INT_COUNTS_OF(p) (p)
#define GPUSYM_INT_DISPLS_OF(p) (p)
#define GPUSYM_COUNTS_OF(p) (p)
#define GPUSYM_DISPLS_OF(p) (p)
#define GPUSYM_ADISPLS_OF(p) (p)
typedef int gpusym_count_element_t;
typedef int gpusym_displ_element_t;
typedef MPI_Aint gpusym_adispl_element_t;
#endif

/* Copies of such arrays' first n elements to `to`, which has room for n words of eight bytes, as arrays again. */
#define GPUSYM_ARRAY_COPY(what, WHAT)                                                                   \
    static inline gpusym_##what##s_t gpusym_##what##s_copy(void *to, gpusym_##what##s_t from, size_t n) \
    {                                                                                                   \
        gpusym_##what##_element_t *p = to;                                                              \
        for (size_t i = 0; i < n; i++) {                                                                \
            p[i] = (gpusym_##what##_element_t) gpusym_##what##_at(from, i);                             \
        }                                                                                               \
        return GPUSYM_##WHAT##S_OF(p);                                                                  \
    }
GPUSYM_ARRAY_COPY(count, COUNT)
GPUSYM_ARRAY_COPY(displ, DISPL)
GPUSYM_ARRAY_COPY(adispl, ADISPL)
#undef GPUSYM_ARRAY_COPY

/*
 * The writer of a communicator's table of functions.  Up to 5.0 the framework does, after enable(),
 * from the module's own coll_<name> fields; and it calls disable() once for every function that a
 * module owns.  From 6.0 on a module installs in enable() and puts back in disable() itself.
 * prev and prev_module: what was there before.  Both may be called any number of times.
 */
#if OMPI_MAJOR_VERSION >= 6
#define GPUSYM_COLL_INSTALL(comm, module, name)              \
    do {                                                     \
        (comm)->c_coll->coll_##name = (module)->coll_##name; \
        (comm)->c_coll->coll_##name##_module = (module);     \
    } while (0)
#define GPUSYM_COLL_RESTORE(comm, module, name, prev, prev_module) \
    do {                                                           \
        if ((comm)->c_coll->coll_##name##_module == (module)) {    \
            (comm)->c_coll->coll_##name = (prev);                  \
            (comm)->c_coll->coll_##name##_module = (prev_module);  \
        }                                                          \
    } while (0)
#else
#define GPUSYM_COLL_INSTALL(comm, module, name) ((void) 0)
#define GPUSYM_COLL_RESTORE(comm, module, name, prev, prev_module) ((void) 0)
#endif

/* The i-th component that is linked into Open MPI itself; NULL past the last. */
static inline const mca_base_component_t *gpusym_static_component(const mca_base_framework_t *framework, int i)
{
    if (NULL == framework->framework_static_components || NULL == framework->framework_static_components[i]) {
        return NULL;
    }
#if OMPI_MAJOR_VERSION >= 6
    return *framework->framework_static_components[i];
#else
    return framework->framework_static_components[i];
#endif
}

/*
 * What a process tells the others before there is a communicator: the modex.
 *
 * put: from a component's open function, so before Open MPI's fence. False: no process will get it. local: those of
 *      this host only get it.
 * get: what a process of this mpirun (gpusym_same_mpirun) has put, cut to `size`; how many bytes it has put, which may
 *      be more. 0: nothing, or it is on another host and has put it locally, or the fence does not collect. Asks the
 *      server of this host, waits for no other process.
 * wait: the same, but waits until that process has put all that it puts in MPI_Init.
 * fetch: of a process on another host. Open MPI 4: what the fence has collected. From 5 on the fence brings nothing
 *      reliably (PMIx 5.0.7): asks that host, and waits 10 s at most, which a process that has put nothing takes.
 * complete: whether all processes of a job have put theirs when MPI_Init returns.
 */
static inline bool gpusym_modex_put(const char *key, const void *data, size_t size, bool local)
{
#if OMPI_MAJOR_VERSION >= 5
    pmix_value_t value;

    if (!PMIx_Initialized()) {
        return false; /* ompi_info, MPI_T alone */
    }
    memset(&value, 0, sizeof(value));
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = (char *) (uintptr_t) data; /* copied */
    value.data.bo.size = size;
    return PMIX_SUCCESS == PMIx_Put(local ? PMIX_LOCAL : PMIX_GLOBAL, key, &value);
#else
    opal_value_t value;

    if (NULL == opal_pmix.initialized || !opal_pmix.initialized() || NULL == opal_pmix.put) {
        return false;
    }
    OBJ_CONSTRUCT(&value, opal_value_t);
    value.key = (char *) (uintptr_t) key; /* both are copied */
    value.type = OPAL_BYTE_OBJECT;
    value.data.bo.bytes = (uint8_t *) (uintptr_t) data;
    value.data.bo.size = (int32_t) size;
    const int rc = opal_pmix.put(local ? OPAL_PMIX_LOCAL : OPAL_PMIX_GLOBAL, &value);
    value.key = NULL;
    value.data.bo.bytes = NULL;
    OBJ_DESTRUCT(&value);
    return OPAL_SUCCESS == rc;
#endif
}

/* Whether what processes publish may come only after the coll components have been initialised, at the latest when
 * MPI_COMM_WORLD gets its collectives, behind MPI_Init's last barrier. Open MPI 6 does not wait for it before. */
static inline bool gpusym_modex_is_late(void)
{
    const bool *late = NULL;
    const int at = mca_base_var_find("opal", "pmix", "base", "async_modex");
    return at >= 0 && OPAL_SUCCESS == mca_base_var_get_value(at, &late, NULL, NULL) && NULL != late && *late;
}

enum { GPUSYM_MODEX_AT_ONCE, GPUSYM_MODEX_WAIT, GPUSYM_MODEX_FETCH };
#define GPUSYM_MODEX_SECONDS 10

static inline size_t gpusym_modex_ask(const char *key, const opal_process_name_t *name, void *data, size_t size,
                                      int way)
{
    size_t bytes = 0;
#if OMPI_MAJOR_VERSION >= 5
    pmix_proc_t proc;
    pmix_info_t how;
    pmix_value_t *value = NULL;

    memset(&proc, 0, sizeof(proc));
    OPAL_PMIX_CONVERT_NAME(&proc, name);
    if (GPUSYM_MODEX_FETCH == way) {
        const int seconds = GPUSYM_MODEX_SECONDS;
        PMIX_INFO_LOAD(&how, PMIX_TIMEOUT, &seconds, PMIX_INT);
    } else {
        PMIX_INFO_LOAD(&how, PMIX_IMMEDIATE, NULL, PMIX_BOOL);
    }
    const pmix_status_t rc = PMIx_Get(&proc, key, &how, GPUSYM_MODEX_WAIT == way ? 0 : 1, &value);
    PMIX_INFO_DESTRUCT(&how);
    if (PMIX_SUCCESS == rc && NULL != value && PMIX_BYTE_OBJECT == value->type) {
        bytes = value->data.bo.size;
        memcpy(data, value->data.bo.bytes, bytes < size ? bytes : size);
    }
    if (NULL != value) {
        PMIX_VALUE_RELEASE(value);
    }
#else
    opal_list_t how;
    opal_value_t *at_once = OBJ_NEW(opal_value_t), *value = NULL;

    if (NULL == at_once) {
        return 0;
    }
    OBJ_CONSTRUCT(&how, opal_list_t);
    at_once->key = strdup(OPAL_PMIX_IMMEDIATE);
    at_once->type = OPAL_BOOL;
    at_once->data.flag = true;
    opal_list_append(&how, &at_once->super);
    if (OPAL_SUCCESS == opal_pmix.get(name, key, GPUSYM_MODEX_WAIT == way ? NULL : &how, &value) && NULL != value) {
        if (OPAL_BYTE_OBJECT == value->type && value->data.bo.size > 0) {
            bytes = (size_t) value->data.bo.size;
            memcpy(data, value->data.bo.bytes, bytes < size ? bytes : size);
        }
        OBJ_RELEASE(value);
    }
    OPAL_LIST_DESTRUCT(&how);
#endif
    return bytes;
}

static inline size_t gpusym_modex_get(const char *key, const opal_process_name_t *name, void *data, size_t size)
{
    return gpusym_modex_ask(key, name, data, size, GPUSYM_MODEX_AT_ONCE);
}

static inline size_t gpusym_modex_wait(const char *key, const opal_process_name_t *name, void *data, size_t size)
{
    return gpusym_modex_ask(key, name, data, size, GPUSYM_MODEX_WAIT);
}

static inline size_t gpusym_modex_fetch(const char *key, const opal_process_name_t *name, void *data, size_t size)
{
#if OMPI_MAJOR_VERSION < 5
    const bool *collect = NULL;
    const int at = mca_base_var_find("opal", "pmix", "base", "collect_data");
    if (at < 0 || OPAL_SUCCESS != mca_base_var_get_value(at, &collect, NULL, NULL) || NULL == collect || !*collect) {
        return 0;
    }
#endif
    return gpusym_modex_ask(key, name, data, size, GPUSYM_MODEX_FETCH);
}

static inline bool gpusym_modex_complete(void)
{
    return !ompi_async_mpi_init;
}

/* Gets the numbers in their job (vpids) of the processes of this job on this host, this one included: at most `max`,
 * all of those below it. Returns how many. After Open MPI's fence. */
static inline unsigned gpusym_local_peers(uint32_t *vpid, unsigned max)
{
    opal_process_name_t job = {.jobid = OPAL_PROC_MY_NAME.jobid, .vpid = OPAL_VPID_WILDCARD};
    char *text = NULL, *rest = NULL;
    unsigned n = 0;
    int rc;

#if OMPI_MAJOR_VERSION >= 5
    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, PMIX_LOCAL_PEERS, &job, &text, PMIX_STRING);
#else
    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, OPAL_PMIX_LOCAL_PEERS, &job, &text, OPAL_STRING);
#endif
    if (OPAL_SUCCESS == rc && NULL != text) {
        for (char *p = strtok_r(text, ",", &rest); NULL != p && n < max; p = strtok_r(NULL, ",", &rest)) {
            vpid[n++] = (uint32_t) strtoul(p, NULL, 10);
        }
    }
    free(text);
    return n;
}

/* A number for a communicator that is the same on all of its ranks. */
static inline uint64_t gpusym_comm_context(const ompi_communicator_t *comm)
{
#if OMPI_MAJOR_VERSION >= 5
    return comm->c_contextid.cid_base * 0x9e3779b97f4a7c15ull + comm->c_contextid.cid_sub.u64;
#else
    return comm->c_contextid;
#endif
}

/* Whether two processes were started by one mpirun, or spawned from such: they have the same servers, then. */
static inline bool gpusym_same_mpirun(const opal_process_name_t *a, const opal_process_name_t *b)
{
    return a->jobid >> 16 == b->jobid >> 16; /* the job family */
}

/* A communicator's name and id, "MPI_COMM_WORLD (cid 0)", into buf; returns buf. The name is that of MPI_Comm_set_name,
 * else the value of an info key. */
#define GPUSYM_COMM_LABEL_MAX (MPI_MAX_OBJECT_NAME + 64)
#define GPUSYM_COMM_NAME_KEY "gpusym_name"
static inline const char *gpusym_comm_label(const ompi_communicator_t *comm, char *buf, size_t size)
{
    const char *name = comm->c_name; /* an array in 4.1, a pointer later */
    char set[MPI_MAX_OBJECT_NAME];

    if (0 == (comm->c_flags & OMPI_COMM_NAMEISSET) &&
        gpusym_info_get(comm->super.s_info, GPUSYM_COMM_NAME_KEY, set, sizeof(set))) {
        name = set;
    }
    if (NULL == name || '\0' == name[0]) {
        name = "communicator";
    }
#if OMPI_MAJOR_VERSION >= 5
    snprintf(buf, size, "%s (cid %s)", name, ompi_comm_print_cid(comm));
#else
    snprintf(buf, size, "%s (cid %" PRIu32 ")", name, comm->c_contextid);
#endif
    return buf;
}

#endif
