/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages of windows: see message.h.
 */
#include "mca/osc/gpusym/message.h"

#include <stdlib.h>

#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/request/request.h"

#include "mca/common/gpusym/memory/left.h"

bool osc_gpusym_area_get(const osc_gpusym_window_t *w, size_t bytes, osc_gpusym_area_t *area)
{
    char limits[GPUSYM_LIMITS_TEXT];
    void *host, *dev;

    area->pinned = GPUSYM_SUCCESS == w->dev->host_alloc(w->gpu, bytes, &host, &dev);
    if (!area->pinned) {
        OSC_GPUSYM_VERBOSE("%zu bytes for messages of a window are not pinned: %s%s", bytes, w->dev->error(),
                           gpusym_memory_limits(limits));
    }
    area->base = area->pinned ? host : malloc(bytes);
    return NULL != area->base;
}

void osc_gpusym_area_free(const osc_gpusym_window_t *w, osc_gpusym_area_t *area)
{
    if (area->pinned) {
        (void) w->dev->host_free(w->gpu, area->base);
    } else {
        free(area->base);
    }
    area->base = NULL;
}

int osc_gpusym_send(const osc_gpusym_window_t *w, const void *buf, size_t bytes, int rank, int tag,
                    struct ompi_request_t **request)
{
    return MCA_PML_CALL(isend(buf, bytes, &ompi_mpi_byte.dt, rank, tag, MCA_PML_BASE_SEND_STANDARD, w->comm, request));
}

int osc_gpusym_receive(const osc_gpusym_window_t *w, void *buf, size_t bytes, int rank, int tag,
                       struct ompi_request_t **request)
{
    return MCA_PML_CALL(irecv(buf, bytes, &ompi_mpi_byte.dt, rank, tag, w->comm, request));
}

bool osc_gpusym_message_ended(const struct ompi_request_t *request)
{
    return REQUEST_COMPLETE(request);
}

int osc_gpusym_message_end(struct ompi_request_t **request)
{
    const int rc = (*request)->req_status.MPI_ERROR;

    (void) ompi_request_free(request);
    return OMPI_SUCCESS == rc ? OMPI_SUCCESS : MPI_ERR_OTHER;
}

/* By Open MPI's tables: from 6.0 on MPI's functions are in a library above the one that components use. */
struct ompi_op_t *osc_gpusym_op_at(int index)
{
    struct ompi_op_t *op = index >= 0 ? opal_pointer_array_get_item(ompi_op_f_to_c_table, index) : NULL;
    return NULL != op && &ompi_mpi_op_null.op != op && ompi_op_is_intrinsic(op) ? op : NULL;
}

ompi_datatype_t *osc_gpusym_type_at(int index)
{
    ompi_datatype_t *type = index >= 0 ? opal_pointer_array_get_item(&ompi_datatype_f_to_c_table, index) : NULL;
    return NULL != type && ompi_datatype_is_predefined(type) && 0 != type->super.size ? type : NULL;
}
