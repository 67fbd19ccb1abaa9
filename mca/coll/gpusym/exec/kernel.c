/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernel of a call: see kernel.h.
 */
#include "mca/coll/gpusym/exec/kernel.h"

#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/exec/traced.h"
#include "mca/common/gpusym/gpusym.h"

/* Beyond a kernel's own limit, before it is given up. */
#define GRACE_NS 5000000000ull

/* The kernel has ended, or will take the next call. */
static void put_lane(coll_gpusym_run_t *run, bool well)
{
    if (run->launch.resident.remains || COLL_GPUSYM_EARLY == run->launch.resident.how) {
        coll_gpusym_resident_done(run->engine->residents, &run->task, &run->launch, well);
    } else {
        coll_gpusym_launch_put_lane(&run->launch);
    }
}

/* Its completion word is there. */
static coll_gpusym_turn_t complete(coll_gpusym_run_t *run, uint32_t status, bool keeps)
{
    const bool retired = 0 != (status & GPUSYM_STATUS_RETIRED);
    status &= ~GPUSYM_STATUS_RETIRED;
    coll_gpusym_traced_ran(run);
    coll_gpusym_launch_put_streams(&run->launch);
    if (GPUSYM_STATUS_OK == (status & 0xff) && keeps) {
        return COLL_GPUSYM_TURN_DONE;
    }
    if (!run->launch.unpacks) { /* else `stop` waits for that */
        put_lane(run, GPUSYM_STATUS_OK == (status & 0xff) && (!retired || !run->launch.resident.remains));
    }
    switch (status & 0xff) {
    case GPUSYM_STATUS_OK:
        return COLL_GPUSYM_TURN_DONE;
    case GPUSYM_STATUS_TIMEOUT:
        return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_TIMEOUT, (int) (status >> 8), NULL);
    default:
        return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_GPU, -1, "the kernel was aborted");
    }
}

coll_gpusym_turn_t coll_gpusym_kernel_poll(coll_gpusym_run_t *run, bool keeps)
{
    uint32_t status;
    if (gpusym_lane_done(run->launch.lane, &status)) {
        return complete(run, status, keeps);
    }
    if (coll_gpusym_resident_retired(&run->launch) &&
        !coll_gpusym_resident_relaunch(run->engine->residents, &run->task, &run->launch)) {
        return coll_gpusym_run_gpu_failed(run);
    }
    return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
}

/* Whether the kernel will not write its completion word. A resident one may have retired, but not by its last line. */
static bool is_lost(const coll_gpusym_run_t *run, int idle)
{
    uint32_t status;
    return 0 != idle && !gpusym_lane_done(run->launch.lane, &status) && !coll_gpusym_launch_retired(&run->launch);
}

coll_gpusym_turn_t coll_gpusym_kernel_check(coll_gpusym_run_t *run, uint64_t now_ns)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const double timeout = coll_gpusym_params.timeout;
    /* The time of a nonblocking call counts from when all have launched: before, a peer may be busy elsewhere. */
    if (0 == run->since_ns && (COLL_GPUSYM_NONBLOCKING != run->mode ||
                               gpusym_agreement_all_launched(coll_gpusym_run_agreement(run), run->task.read.seq))) {
        run->since_ns = now_ns;
    }
    const int idle = dev->stream_poll(run->launch.lane->stream);
    if (is_lost(run, idle)) {
        const char *text = idle < 0 ? dev->error() : "the kernel ended without completing";
        coll_gpusym_launch_abandon(&run->launch);
        return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_GPU, -1, text);
    }
    const uint64_t waited = 0 != run->since_ns ? now_ns - run->since_ns : 0;
    if (timeout > 0 && (double) waited > timeout * 1e9 + (double) GRACE_NS) {
        return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_GPU, -1, "the kernel does not end");
    }
    return COLL_GPUSYM_TURN_WAITS;
}

bool coll_gpusym_kernel_stop(coll_gpusym_run_t *run, bool recalled, bool due)
{
    coll_gpusym_launch_t *l = &run->launch;
    uint32_t status;
    if (NULL == l->lane) {
        return true;
    }
    if (!run->stopping) {
        run->stopping = true;
        l->resident.recalled = recalled;
        __atomic_store_n(&l->lane->host->abort, 1u, __ATOMIC_RELEASE);
    }
    /* One that had retired before it had the command is not launched: that would take back the abort. */
    if (gpusym_lane_done(l->lane, &status) || coll_gpusym_launch_retired(l)) {
        if (l->unpacks) {
            return coll_gpusym_kernel_stop_copies(run);
        }
        coll_gpusym_launch_put_streams(l);
        put_lane(run, false);
        return true;
    }
    if (due && is_lost(run, gpusym_current.dev->stream_poll(l->lane->stream))) {
        run->engine->team->runs_on = true;
        coll_gpusym_launch_abandon(l);
        return true;
    }
    return false;
}

void coll_gpusym_kernel_abandon(coll_gpusym_run_t *run)
{
    run->engine->team->runs_on = true;
    coll_gpusym_launch_abandon(&run->launch);
    coll_gpusym_scratch_lose(&run->launch);
}

coll_gpusym_turn_t coll_gpusym_kernel_copies(coll_gpusym_run_t *run)
{
    const coll_gpusym_launch_t *l = &run->launch;
    const int idle =
        0 == l->words ? gpusym_current.dev->stream_poll(l->lane->stream) : gpusym_lane_parts_done(l->lane, l->words);
    if (0 == idle) {
        return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
    }
    coll_gpusym_launch_put_lane(&run->launch);
    return idle < 0 ? coll_gpusym_run_gpu_failed(run) : COLL_GPUSYM_TURN_DONE;
}

coll_gpusym_turn_t coll_gpusym_kernel_check_copies(coll_gpusym_run_t *run, uint64_t now_ns)
{
    const double timeout = coll_gpusym_params.timeout;
    run->launch.words = 0; /* they may never come: the stream tells */
    run->since_ns = 0 == run->since_ns ? now_ns : run->since_ns;
    if (timeout <= 0 || (double) (now_ns - run->since_ns) <= timeout * 1e9 + (double) GRACE_NS) {
        return COLL_GPUSYM_TURN_WAITS;
    }
    return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_GPU, -1, "its copies do not end");
}

bool coll_gpusym_kernel_stop_copies(coll_gpusym_run_t *run)
{
    coll_gpusym_launch_t *l = &run->launch;
    if (NULL != l->lane && 0 == gpusym_current.dev->stream_poll(l->lane->stream)) {
        return false;
    }
    if (NULL != l->lane) {
        coll_gpusym_launch_put_lane(l);
    }
    return true;
}

void coll_gpusym_kernel_count(const coll_gpusym_run_t *run, coll_gpusym_counters_t *counters)
{
    if (MPI_SUCCESS != run->error) {
        return;
    }
    coll_gpusym_count(&counters->native);
    if (run->launch.algorithm < 0) { /* nothing was to be moved */
        return;
    }
    coll_gpusym_count(&counters->algorithm[run->launch.algorithm]);
    if (run->task.zero_copy.used) {
        coll_gpusym_count(&counters->zero_copy);
    }
    unsigned long long *const how[] = {NULL, &counters->resident, &counters->early, &counters->early, &counters->late};
    if (NULL != how[run->launch.resident.how]) {
        coll_gpusym_count(how[run->launch.resident.how]);
    }
}
