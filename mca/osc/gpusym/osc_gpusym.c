/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * GPU memory by MPI_Win_allocate: a one-sided component of Open MPI, because it is these that allocate a window's
 * memory. It takes the windows where a rank's info object has "mpool_hints" with the value "mpool=gpusym", as
 * mpool/gpusym does of MPI_Alloc_mem. Ranks that have it get memory of their GPU, the others of their host.
 *
 * Such a window is for collectives and for the program's kernels. Open MPI's one-sided calls would touch the memory by
 * the CPU, which crashes, or (btl/vader by cross-memory attach) repeats a failing copy for ever; so that of the
 * one-sided interface which moves data is refused here with MPI_ERR_UNSUPPORTED_OPERATION, and so are post, start,
 * complete and wait, which serve nothing else. Fences, locks, flushes and MPI_Win_sync do what is left for them to do:
 * a fence is a barrier, the others have nothing to complete.
 */
#include "mca/common/ompi/face.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/osc/base/base.h"
#include "ompi/mca/osc/osc.h"
#include "ompi/op/op.h"
#include "ompi/win/win.h"
#include "opal/util/output.h"

#include "config.h"
#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/memory/pool.h"

#define VERBOSE(...) opal_output_verbose(1, ompi_osc_base_framework.framework_output, "osc:gpusym: " __VA_ARGS__)

/* Above all others (Open MPI's have 101 at most by default): the user requested this component by name. */
#define PRIORITY 1000
#define HOST_ALIGN 64 /* bytes: a cache line */

/* One of our windows. Open MPI keeps it as win->w_osc_module, until osc_free. */
typedef struct {
    ompi_osc_base_module_t super;
    ompi_communicator_t *comm; /* a duplicate: fences must not meet the program's own collectives */
    void *memory;              /* NULL where this rank's size is 0 */
    bool gpu;                  /* memory of gpusym_pool_alloc; else of the C library */
} window_t;

static int component_open(void);
static int component_close(void);
static int component_init(bool enable_progress_threads, bool enable_mpi_threads);
static int component_finalize(void);
static int component_query(struct ompi_win_t *win, void **base, size_t size, gpusym_disp_unit_t disp_unit,
                           struct ompi_communicator_t *comm, struct opal_info_t *info, int flavor);
static int component_select(struct ompi_win_t *win, void **base, size_t size, gpusym_disp_unit_t disp_unit,
                            struct ompi_communicator_t *comm, struct opal_info_t *info, int flavor, int *model);

GPUSYM_COMPONENT_EXPORT ompi_osc_base_component_t mca_osc_gpusym_component = {
    .osc_version =
        {
            GPUSYM_OSC_BASE_VERSION,
            .mca_component_name = "gpusym",
            MCA_BASE_MAKE_VERSION(component, GPUSYM_VERSION_MAJOR, GPUSYM_VERSION_MINOR, GPUSYM_VERSION_RELEASE),
            .mca_open_component = component_open,
            .mca_close_component = component_close,
            .mca_register_component_params = gpusym_face_register,
        },
    .osc_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE},
    .osc_init = component_init,
    .osc_query = component_query,
    .osc_select = component_select,
    .osc_finalize = component_finalize,
};

static int component_open(void)
{
    return gpusym_face_open(ompi_osc_base_framework.framework_verbose);
}

static int component_close(void)
{
    gpusym_close();
    return OPAL_SUCCESS;
}

static int component_init(bool enable_progress_threads, bool enable_mpi_threads)
{
    (void) enable_progress_threads;
    (void) enable_mpi_threads;
    return OMPI_SUCCESS;
}

static int component_finalize(void)
{
    return OMPI_SUCCESS;
}

/* ---- supported calls ---- */

/* A barrier of the window's ranks. */
static int wait_for_ranks(const window_t *w)
{
    return w->comm->c_coll->coll_barrier(w->comm, w->comm->c_coll->coll_barrier_module);
}

static int window_fence(int assertion, struct ompi_win_t *win)
{
    (void) assertion;
    return wait_for_ranks((const window_t *) win->w_osc_module);
}

static void window_destroy(window_t *w)
{
    const char *why;

    if (NULL == w) {
        return;
    }
    if (NULL != w->comm) {
        (void) ompi_comm_free(&w->comm);
    }
    if (!w->gpu) {
        free(w->memory);
    } else if (NULL != w->memory && GPUSYM_SUCCESS != gpusym_pool_free(gpusym_device(), w->memory, &why)) {
        VERBOSE("%p is not freed: %s", w->memory, why);
    }
    free(w);
}

/* MPI_Win_free. The barrier comes first: peers may use the memory until all ranks have called it. */
static int window_free(struct ompi_win_t *win)
{
    window_t *w = (window_t *) win->w_osc_module;
    const int rc = wait_for_ranks(w);

    window_destroy(w);
    return rc;
}

/* Completes nothing: no call of ours moves data. */
static int complete_nothing(struct ompi_win_t *win)
{
    (void) win;
    atomic_thread_fence(memory_order_seq_cst);
    return OMPI_SUCCESS;
}

static int complete_nothing_to(int target, struct ompi_win_t *win)
{
    (void) target;
    return complete_nothing(win);
}

static int window_lock(int type, int target, int assertion, struct ompi_win_t *win)
{
    (void) type;
    (void) target;
    (void) assertion;
    return complete_nothing(win);
}

/* ---- refused calls ---- */

/* The caller calls the user's error handler. The message appears once per process. */
static int refuse_call(const char *call)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&told)) {
        opal_output(0,
                    "gpusym: %s on a window of GPU memory.\n"
                    "  The window was allocated with GPU memory because its info object requests it, and Open MPI's\n"
                    "  one-sided calls cannot reach it. Use collectives or kernels on it, or allocate it without that\n"
                    "  info key.",
                    call);
    }
    return MPI_ERR_UNSUPPORTED_OPERATION;
}

/* Refused calls ignore their arguments. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define TARGET int target, ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type
#define ORIGIN gpusym_count_t origin_count, struct ompi_datatype_t *origin_type
#define RESULT void *result, gpusym_count_t result_count, struct ompi_datatype_t *result_type

static int refuse_put(const void *origin, ORIGIN, TARGET, struct ompi_win_t *win)
{
    return refuse_call("MPI_Put");
}

static int refuse_get(void *origin, ORIGIN, TARGET, struct ompi_win_t *win)
{
    return refuse_call("MPI_Get");
}

static int refuse_accumulate(const void *origin, ORIGIN, TARGET, struct ompi_op_t *op, struct ompi_win_t *win)
{
    return refuse_call("MPI_Accumulate");
}

static int refuse_get_accumulate(const void *origin, ORIGIN, RESULT, TARGET, struct ompi_op_t *op,
                                 struct ompi_win_t *win)
{
    return refuse_call("MPI_Get_accumulate");
}

static int refuse_rput(const void *origin, ORIGIN, TARGET, struct ompi_win_t *win, struct ompi_request_t **request)
{
    return refuse_call("MPI_Rput");
}

static int refuse_rget(void *origin, ORIGIN, TARGET, struct ompi_win_t *win, struct ompi_request_t **request)
{
    return refuse_call("MPI_Rget");
}

static int refuse_raccumulate(const void *origin, ORIGIN, TARGET, struct ompi_op_t *op, struct ompi_win_t *win,
                              struct ompi_request_t **request)
{
    return refuse_call("MPI_Raccumulate");
}

static int refuse_rget_accumulate(const void *origin, ORIGIN, RESULT, TARGET, struct ompi_op_t *op,
                                  struct ompi_win_t *win, struct ompi_request_t **request)
{
    return refuse_call("MPI_Rget_accumulate");
}

static int refuse_compare_and_swap(const void *origin, const void *compare, void *result, struct ompi_datatype_t *type,
                                   int target, ptrdiff_t disp, struct ompi_win_t *win)
{
    return refuse_call("MPI_Compare_and_swap");
}

static int refuse_fetch_and_op(const void *origin, void *result, struct ompi_datatype_t *type, int target,
                               ptrdiff_t disp, struct ompi_op_t *op, struct ompi_win_t *win)
{
    return refuse_call("MPI_Fetch_and_op");
}

static int refuse_start(struct ompi_group_t *group, int assertion, struct ompi_win_t *win)
{
    return refuse_call("MPI_Win_start");
}

static int refuse_complete(struct ompi_win_t *win)
{
    return refuse_call("MPI_Win_complete");
}

static int refuse_post(struct ompi_group_t *group, int assertion, struct ompi_win_t *win)
{
    return refuse_call("MPI_Win_post");
}

static int refuse_wait(struct ompi_win_t *win)
{
    return refuse_call("MPI_Win_wait");
}

static int refuse_test(struct ompi_win_t *win, int *flag)
{
    return refuse_call("MPI_Win_test");
}

static int refuse_shared_query(struct ompi_win_t *win, int rank, size_t *size, gpusym_disp_unit_t *disp_unit,
                               void *base)
{
    return refuse_call("MPI_Win_shared_query");
}

static int refuse_attach(struct ompi_win_t *win, void *base, size_t size)
{
    return refuse_call("MPI_Win_attach");
}

static int refuse_detach(struct ompi_win_t *win, const void *base)
{
    return refuse_call("MPI_Win_detach");
}

#undef TARGET
#undef ORIGIN
#undef RESULT
#pragma GCC diagnostic pop

static const ompi_osc_base_module_t functions = {
    .osc_win_shared_query = refuse_shared_query,
    .osc_win_attach = refuse_attach,
    .osc_win_detach = refuse_detach,
    .osc_free = window_free,
    .osc_put = refuse_put,
    .osc_get = refuse_get,
    .osc_accumulate = refuse_accumulate,
    .osc_compare_and_swap = refuse_compare_and_swap,
    .osc_fetch_and_op = refuse_fetch_and_op,
    .osc_get_accumulate = refuse_get_accumulate,
    .osc_rput = refuse_rput,
    .osc_rget = refuse_rget,
    .osc_raccumulate = refuse_raccumulate,
    .osc_rget_accumulate = refuse_rget_accumulate,
    .osc_fence = window_fence,
    .osc_start = refuse_start,
    .osc_complete = refuse_complete,
    .osc_post = refuse_post,
    .osc_wait = refuse_wait,
    .osc_test = refuse_test,
    .osc_lock = window_lock,
    .osc_unlock = complete_nothing_to,
    .osc_lock_all = complete_nothing_to, /* its int is an assertion */
    .osc_unlock_all = complete_nothing,
    .osc_sync = complete_nothing,
    .osc_flush = complete_nothing_to,
    .osc_flush_all = complete_nothing,
    .osc_flush_local = complete_nothing_to,
    .osc_flush_local_all = complete_nothing,
};

/* ---- creation ---- */

static bool requests_gpu(struct opal_info_t *info)
{
    char hints[OPAL_MAX_INFO_VAL + 1];

    return gpusym_info_get(info, GPUSYM_POOL_KEY, hints, sizeof(hints)) && gpusym_pool_requested(hints);
}

/* Sets *answer, alike on all ranks, to whether `mine` is true on any rank of comm. Collective. MPI error code. */
static int any_rank(struct ompi_communicator_t *comm, bool mine, bool *answer)
{
    const int in = mine ? 1 : 0;
    int out = 0;
    const int rc = comm->c_coll->coll_allreduce(&in, &out, 1, &ompi_mpi_int.dt, &ompi_mpi_op_max.op, comm,
                                                comm->c_coll->coll_allreduce_module);

    *answer = 0 != out;
    return rc;
}

/* MPI_Win_allocate is collective, and Open MPI queries its components in one order, so that ranks whose info objects
 * differ can agree here. Where coll/gpusym is not in use, the ranks exchange nothing. */
static int component_query(struct ompi_win_t *win, void **base, size_t size, gpusym_disp_unit_t disp_unit,
                           struct ompi_communicator_t *comm, struct opal_info_t *info, int flavor)
{
    bool requested;

    (void) win;
    (void) base;
    (void) size;
    (void) disp_unit;
    if (MPI_WIN_FLAVOR_ALLOCATE != flavor || !gpusym_collectives_served() ||
        OMPI_SUCCESS != any_rank(comm, requests_gpu(info), &requested) || !requested) {
        return OMPI_ERR_NOT_SUPPORTED;
    }
    return PRIORITY;
}

/* Makes this rank's part, without a communicator yet. NULL: there is no memory of that kind. */
static window_t *window_create(size_t size, bool gpu)
{
    window_t *w = calloc(1, sizeof(*w));
    const char *why = "no host memory";
    bool ok = NULL != w;

    if (ok) {
        w->super = functions;
        w->gpu = gpu;
    }
    if (ok && size > 0 && gpu) {
        ok = GPUSYM_SUCCESS == gpusym_pool_alloc(gpusym_device_for_memory(), size, &w->memory, &why);
    } else if (ok && size > 0) {
        ok = size <= SIZE_MAX - HOST_ALIGN;
        w->memory = ok ? aligned_alloc(HOST_ALIGN, (size + HOST_ALIGN - 1) / HOST_ALIGN * HOST_ALIGN) : NULL;
        ok = NULL != w->memory;
    }
    if (!ok) {
        VERBOSE("no memory for a window of %zu bytes here: %s", size, why);
        window_destroy(w);
        return NULL;
    }
    return w;
}

/* Has the best of the other components make the window, as if this one did not exist. */
static int select_other(struct ompi_win_t *win, void **base, size_t size, gpusym_disp_unit_t disp_unit,
                        struct ompi_communicator_t *comm, struct opal_info_t *info, int flavor, int *model)
{
    const ompi_osc_base_component_t *best = NULL;
    mca_base_component_list_item_t *item;
    int best_priority = -1;

    OPAL_LIST_FOREACH(item, &ompi_osc_base_framework.framework_components, mca_base_component_list_item_t)
    {
        const ompi_osc_base_component_t *c = (const ompi_osc_base_component_t *) item->cli_component;
        if (&mca_osc_gpusym_component != c) {
            const int priority = c->osc_query(win, base, size, disp_unit, comm, info, flavor);
            if (priority > best_priority) {
                best = c;
                best_priority = priority;
            }
        }
    }
    if (NULL == best) {
        return OMPI_ERR_NOT_SUPPORTED;
    }
    return best->osc_select(win, base, size, disp_unit, comm, info, flavor, model);
}

/* Either all ranks have what they requested, or none: the window is then another component's, in host memory. */
static int component_select(struct ompi_win_t *win, void **base, size_t size, gpusym_disp_unit_t disp_unit,
                            struct ompi_communicator_t *comm, struct opal_info_t *info, int flavor, int *model)
{
    window_t *w = window_create(size, requests_gpu(info));
    bool failed = true;
    int rc = any_rank(comm, NULL == w, &failed);

    if (OMPI_SUCCESS == rc && failed) {
        VERBOSE("a window has host memory, since not all ranks have GPU memory for it");
        window_destroy(w);
        return select_other(win, base, size, disp_unit, comm, info, flavor, model);
    }
    if (OMPI_SUCCESS == rc) {
        rc = ompi_comm_dup(comm, &w->comm);
    }
    if (OMPI_SUCCESS != rc) {
        window_destroy(w);
        return rc;
    }
    win->w_osc_module = &w->super;
    *base = w->memory;
    *model = MPI_WIN_UNIFIED;
    return OMPI_SUCCESS;
}
