/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the accelerator component share.
 *
 * Calls go one way: the component fills Open MPI's table from all others; all call memory.c, which calls none.
 */
#ifndef ACCELERATOR_GPUSYM_H
#define ACCELERATOR_GPUSYM_H

#include "mca/common/ompi/ompi_compat.h"

#include "opal/mca/accelerator/accelerator.h"
#include "opal/mca/accelerator/base/base.h"
#include "opal/util/output.h"

#include "mca/common/gpusym/gpusym.h"

#define ACCELERATOR_VERBOSE(level, ...) \
    opal_output_verbose((level), opal_accelerator_base_framework.framework_output, "accelerator:gpusym: " __VA_ARGS__)

typedef opal_accelerator_transfer_type_t accelerator_transfer_t;

/* ---- memory.c ---- */

/* Returns the device; NULL: there is none, or MPI_Init has not come that far, and no pointer is a GPU's. */
const gpusym_device_t *accelerator_device(void);
/* Opens GPU dev_id; MCA_ACCELERATOR_NO_DEVICE_ID: the calling thread's current one, or the first.  Open MPI error
 * code. */
int accelerator_gpu(int dev_id, gpusym_gpu_t **gpu);
/* Opens the GPU that owns one of two pointers.  *gpu NULL: none does, both are host memory.  Open MPI error code. */
int accelerator_gpu_of(const void *a, const void *b, gpusym_gpu_t **gpu);
/* The Open MPI error code of a GPUSYM_ error.  If that is an error, tells the user which operation failed, once per
 * process, with the device's own words: Open MPI ends the process without a reason after some. */
int accelerator_code(int rc, const char *operation, size_t bytes);

/* Returns 1 for GPU memory, 0 for host memory, as Open MPI's check_addr. */
int accelerator_look_up(const void *addr, int *dev_id, uint64_t *flags);
int accelerator_mem_copy(int dst_id, int src_id, void *dst, const void *src, size_t size, accelerator_transfer_t type);
int accelerator_mem_move(int dst_id, int src_id, void *dst, const void *src, size_t size, accelerator_transfer_t type);
int accelerator_mem_alloc(int dev_id, void **p, size_t size);
int accelerator_mem_release(int dev_id, void *p);
int accelerator_address_range(int dev_id, const void *p, void **base, size_t *size);
int accelerator_buffer_id(int dev_id, const void *p, opal_accelerator_buffer_id_t *id);
int accelerator_host_register(int dev_id, void *p, size_t size);
int accelerator_host_unregister(int dev_id, void *p);

/* ---- gpus.c ---- */

int accelerator_get_device(int *dev_id);
int accelerator_pci_attr(int dev_id, opal_accelerator_pci_attr_t *attr);
int accelerator_can_access_peer(int *access, int from, int to);
int accelerator_num_devices(int *count);
int accelerator_mem_bw(int dev_id, float *gbs);

#if GPUSYM_ACCELERATOR_IPC
void accelerator_memkind(ompi_memkind_t *memkind);
#endif

/* ---- stream.c ---- */

/* An event, not recorded yet. */
typedef opal_accelerator_event_t accelerator_gpusym_event_t;
OBJ_CLASS_DECLARATION(accelerator_gpusym_event_t);

int accelerator_create_stream(int dev_id, opal_accelerator_stream_t **stream);
int accelerator_sync_stream(opal_accelerator_stream_t *stream);
int accelerator_mem_copy_async(int dst_id, int src_id, void *dst, const void *src, size_t size,
                               opal_accelerator_stream_t *stream, accelerator_transfer_t type);
int accelerator_mem_move_async(int dst_id, int src_id, void *dst, const void *src, size_t size,
                               opal_accelerator_stream_t *stream, accelerator_transfer_t type);
int accelerator_mem_alloc_stream(int dev_id, void **p, size_t size, opal_accelerator_stream_t *stream);
int accelerator_mem_release_stream(int dev_id, void *p, opal_accelerator_stream_t *stream);
/* shared: processes that open the event's handle find it complete: recording it waits for the stream. */
int accelerator_create_event(int dev_id, opal_accelerator_event_t **event, bool shared);
int accelerator_record_event(int dev_id, opal_accelerator_event_t *event, opal_accelerator_stream_t *stream);
int accelerator_query_event(int dev_id, opal_accelerator_event_t *event);
int accelerator_wait_event(int dev_id, opal_accelerator_event_t *event, opal_accelerator_stream_t *stream);
/* Destroys the stream that stands for the default one. */
void accelerator_streams_close(void);

/* ---- guard.c ---- */

/* As accelerator_look_up.  Before Open MPI goes on with GPU memory, has the transports that it uses now go through host
 * memory where they would touch GPU memory by the CPU. */
int accelerator_check_addr(const void *addr, int *dev_id, uint64_t *flags);
/* The same of files; once. */
void accelerator_guard_files(void);

/* ---- ipc.c ---- */

#if GPUSYM_ACCELERATOR_IPC
bool accelerator_is_ipc_enabled(void);
int accelerator_get_ipc_handle(int dev_id, void *p, opal_accelerator_ipc_handle_t *handle);
int accelerator_import_ipc_handle(int dev_id, uint8_t bytes[IPC_MAX_HANDLE_SIZE],
                                  opal_accelerator_ipc_handle_t *handle);
int accelerator_open_ipc_handle(int dev_id, opal_accelerator_ipc_handle_t *handle, void **p);
int accelerator_compare_ipc_handles(uint8_t a[IPC_MAX_HANDLE_SIZE], uint8_t b[IPC_MAX_HANDLE_SIZE]);
int accelerator_get_ipc_event_handle(opal_accelerator_event_t *event, opal_accelerator_ipc_event_handle_t *handle);
int accelerator_import_ipc_event_handle(uint8_t bytes[IPC_MAX_HANDLE_SIZE],
                                        opal_accelerator_ipc_event_handle_t *handle);
int accelerator_open_ipc_event_handle(opal_accelerator_ipc_event_handle_t *handle, opal_accelerator_event_t *event);
/* Ends all exports. */
void accelerator_ipc_close(void);
#endif

#endif
