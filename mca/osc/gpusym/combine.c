/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Combining: see combine.h.
 *
 * A kernel of the origin's GPU combines, in the target's memory, which it maps; what has gaps, or is host memory of the
 * origin, is packed to GPU memory first. What has no kernel, and host memory, is combined by the origin's CPU, in host
 * memory to which the target's elements are copied.
 */
#include "mca/osc/gpusym/combine.h"

#include <sched.h>
#include <stdlib.h>

#include "opal/runtime/opal_progress.h"

#include "mca/common/gpusym/exec/job.h"
#include "mca/common/gpusym/memory/alloc.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/ompi/types.h"
#include "mca/osc/gpusym/counters.h"
#include "mca/osc/gpusym/reduce.h"
#include "mca/osc/gpusym/report.h"

/* Polls of a kernel between two looks whether the GPU reports an error. */
#define LOOK_POLLS 4096u

/* ---- by the CPU ---- */

/* target = origin op target, by the CPU. */
static int combine_by_cpu(osc_gpusym_window_t *w, const osc_gpusym_elements_t *target,
                          const osc_gpusym_elements_t *origin, ompi_datatype_t *basic, struct ompi_op_t *op)
{
    const size_t bytes = target->layout.bytes;
    char *in = malloc(bytes), *inout = malloc(bytes);
    int rc = NULL != in && NULL != inout ? osc_gpusym_gather(w, origin, in) : MPI_ERR_NO_MEM;

    rc = OMPI_SUCCESS == rc ? osc_gpusym_gather(w, target, inout) : rc;
    rc = OMPI_SUCCESS == rc ? osc_gpusym_reduce(op, basic, in, inout, bytes) : rc;
    rc = OMPI_SUCCESS == rc ? osc_gpusym_scatter(w, target, inout) : rc;
    free(in);
    free(inout);
    return rc;
}

/* ---- by a kernel ---- */

/* Prepares launches, the first time. The caller has w->reducing. */
static bool can_launch(osc_gpusym_window_t *w)
{
    gpusym_gpu_info_t info;
    const char *why;

    if (w->launches_tried) {
        return NULL != w->ticket;
    }
    w->launches_tried = true;
    if (GPUSYM_SUCCESS != w->dev->kernels_load(w->gpu, &why) ||
        GPUSYM_SUCCESS != gpusym_mem_alloc(w->dev, w->gpu, GPUSYM_JOB_TICKET_BYTES, &w->ticket)) {
        w->ticket = NULL;
        return false;
    }
    if (GPUSYM_SUCCESS != w->dev->mem_zero(w->gpu, w->ticket, GPUSYM_JOB_TICKET_BYTES)) {
        (void) w->dev->mem_free(w->gpu, w->ticket);
        w->ticket = NULL;
        return false;
    }
    w->dev->gpu_info(w->gpu, &info);
    w->sm_count = (uint32_t) info.sm_count;
    return true;
}

/* Launches on a lane, which it puts back, and waits: the kernel waits for nobody. */
static int launch(osc_gpusym_window_t *w, gpusym_lane_t *lane, unsigned op, unsigned type, void *target,
                  const void *origin, uint64_t bytes)
{
    const gpusym_job_t job = {.form = GPUSYM_JOB_REDUCE, .bytes = bytes, .src_end = 2, .dst_end = 1};
    const void *const src[2] = {target, origin};
    void *const dst[1] = {target};
    uint32_t status = GPUSYM_STATUS_OK;

    int rc = gpusym_job_launch(lane, w->ticket, w->sm_count, op, type, src, dst, &job);
    const bool launched = GPUSYM_SUCCESS == rc;
    for (uint32_t i = 1; GPUSYM_SUCCESS == rc && !gpusym_lane_done(lane, &status); i++) {
        if (0 == i % 64) {
            opal_progress();
            sched_yield();
        }
        const int ended = 0 == i % LOOK_POLLS ? w->dev->stream_poll(lane->stream) : 0;
        rc = ended < 0 ? ended : GPUSYM_SUCCESS;
    }
    if (GPUSYM_SUCCESS != rc && launched) {
        return rc; /* the lane is lost with its kernel */
    }
    gpusym_lane_put(lane);
    return GPUSYM_SUCCESS == rc && GPUSYM_STATUS_OK != status ? GPUSYM_ERR : rc;
}

/* A run in GPU memory that kernels reach: the elements themselves, or packed. */
typedef struct {
    void *at;
    void *scratch; /* NULL: none */
} run_t;

static bool aligned(const void *p, unsigned type)
{
    return 0 == (uintptr_t) p % gpusym_type_bytes(type);
}

static int run_get(osc_gpusym_window_t *w, run_t *run, const osc_gpusym_elements_t *e, bool direct, unsigned type)
{
    run->at = e->buf + e->layout.lo;
    run->scratch = NULL;
    if (direct && GPUSYM_LAYOUT_RUN == e->layout.kind && aligned(run->at, type)) {
        return OMPI_SUCCESS;
    }
    if (GPUSYM_SUCCESS != gpusym_scratch_get(w->dev, w->gpu, e->layout.bytes, &run->scratch)) {
        run->scratch = NULL;
        return MPI_ERR_NO_MEM;
    }
    run->at = run->scratch;
    return osc_gpusym_pack(w, e, run->at);
}

static void run_put(osc_gpusym_window_t *w, run_t *run)
{
    if (NULL != run->scratch) {
        gpusym_scratch_put(w->dev, w->gpu, run->scratch);
    }
}

bool osc_gpusym_kernels_have(struct ompi_op_t *op, ompi_datatype_t *basic, uint32_t *kernel_op, uint32_t *kernel_type)
{
    const int o = gpusym_mpi_op(op), t = gpusym_mpi_type(basic);

    *kernel_op = (uint32_t) o;
    *kernel_type = (uint32_t) t;
    return o >= 0 && t >= 0 && gpusym_op_valid(*kernel_op, *kernel_type) &&
           basic->super.size == gpusym_type_bytes(*kernel_type);
}

/* False: nothing has been done. */
static bool combine_by_kernel(osc_gpusym_window_t *w, const osc_gpusym_elements_t *target,
                              const osc_gpusym_elements_t *origin, ompi_datatype_t *basic, struct ompi_op_t *mpi_op,
                              int *rc)
{
    uint32_t op, type;
    run_t in = {.scratch = NULL}, out = {.scratch = NULL};
    gpusym_lane_t *lane;

    if (!target->gpu || !osc_gpusym_kernels_have(mpi_op, basic, &op, &type) || !can_launch(w)) {
        return false;
    }
    const bool ready = OMPI_SUCCESS == run_get(w, &in, origin, origin->gpu && origin->own, type) &&
                       OMPI_SUCCESS == run_get(w, &out, target, true, type) &&
                       GPUSYM_SUCCESS == gpusym_lane_get(w->dev, w->gpu, &lane);
    if (ready) {
        const int ended = launch(w, lane, op, type, out.at, in.at, target->layout.bytes);
        *rc = osc_gpusym_class(w->comm, w->dev, ended);
        if (OMPI_SUCCESS == *rc && NULL != out.scratch) {
            *rc = osc_gpusym_unpack(w, target, out.at);
        }
    }
    run_put(w, &in);
    run_put(w, &out);
    return ready;
}

int osc_gpusym_combine(osc_gpusym_window_t *w, const osc_gpusym_elements_t *target, const osc_gpusym_elements_t *origin,
                       ompi_datatype_t *basic, struct ompi_op_t *op)
{
    int rc = OMPI_SUCCESS;

    pthread_mutex_lock(&w->reducing);
    const bool launched = combine_by_kernel(w, target, origin, basic, op, &rc);
    if (!launched) {
        rc = combine_by_cpu(w, target, origin, basic, op);
    }
    osc_gpusym_count(launched ? OSC_GPUSYM_BY_LAUNCH : OSC_GPUSYM_BY_CPU);
    pthread_mutex_unlock(&w->reducing);
    return rc;
}
