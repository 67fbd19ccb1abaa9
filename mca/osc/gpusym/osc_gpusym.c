/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One-sided calls on GPU memory: a component of Open MPI's, which takes four sorts of windows:
 *
 * - of MPI_Win_allocate, where a rank's info object has "mpool_hints" with the value "mpool=gpusym", as mpool/gpusym
 *   does of MPI_Alloc_mem. Ranks that have it get memory of their GPU, the others of their host;
 * - of MPI_Win_create, where the memory of a rank is a GPU's;
 * - of MPI_Win_allocate_shared, where all ranks have that key, and reach each other's GPUs;
 * - of MPI_Win_create_dynamic, where a rank's info object has that key, or has not "mpool_hints" at all and the rank
 *   uses a GPU: GPU memory may be attached.
 *
 * All other windows are left to Open MPI's components, which access memory by the CPU; where there is a GPU, their
 * calls take origins in GPU memory too (wrap.h).
 */
#include "mca/common/ompi/face.h"

#include <string.h>

#include "ompi/mca/osc/base/base.h"
#include "ompi/mca/osc/osc.h"
#include "ompi/win/win.h"
#include "opal/util/output.h"

#include "config.h"
#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/device/plain.h"
#include "mca/common/gpusym/memory/pool.h"
#include "mca/osc/gpusym/accumulate.h"
#include "mca/osc/gpusym/ask.h"
#include "mca/osc/gpusym/attach.h"
#include "mca/osc/gpusym/counters.h"
#include "mca/osc/gpusym/move.h"
#include "mca/osc/gpusym/remote.h"
#include "mca/osc/gpusym/serve.h"
#include "mca/osc/gpusym/sync.h"
#include "mca/osc/gpusym/wait.h"
#include "mca/osc/gpusym/window.h"
#include "mca/osc/gpusym/wrap.h"

/* Above all others: Open MPI's have 101 at most by default. */
#define PRIORITY 1000

static int component_register(void);
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
            .mca_register_component_params = component_register,
        },
    .osc_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE},
    .osc_init = component_init,
    .osc_query = component_query,
    .osc_select = component_select,
    .osc_finalize = component_finalize,
};

static int component_register(void)
{
    const int rc = gpusym_face_register();
    return OMPI_SUCCESS == rc ? osc_gpusym_counters_register(&mca_osc_gpusym_component.osc_version) : rc;
}

static int component_open(void)
{
    return gpusym_face_open(ompi_osc_base_framework.framework_verbose);
}

static int component_close(void)
{
    osc_gpusym_wraps_close();
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

static void close_messages(osc_gpusym_window_t *w, bool failed)
{
    osc_gpusym_serve_close(w, failed);
    osc_gpusym_remote_close(w, failed);
}

/* Over several hosts. MPI error code. */
static int open_messages(osc_gpusym_window_t *w)
{
    const int rc = osc_gpusym_remote_open(w);
    return OMPI_SUCCESS == rc ? osc_gpusym_serve_open(w) : rc;
}

/* MPI_Win_free. The barrier comes first: peers may use the memory until all ranks have called it. */
static int window_free(struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);
    const int ended = osc_gpusym_end_copies(w, -1);
    const int rc = osc_gpusym_window_barrier(w);

    osc_gpusym_ask_close(w);
    close_messages(w, 0 != w->lost || OMPI_SUCCESS != rc);
    osc_gpusym_detach_all(w);
    osc_gpusym_window_destroy(w);
    return OMPI_SUCCESS != rc ? rc : ended;
}

/* Bytes of a part that this process can load and store. */
static uint64_t accessible(const osc_gpusym_window_t *w, uint32_t rank)
{
    return NULL != w->part[rank].base ? w->part[rank].bytes : 0;
}

/* Of a part that is not accessible: no bytes. Of MPI_PROC_NULL: the lowest rank that has accessible ones. */
static int shared_query(struct ompi_win_t *win, int rank, size_t *size, gpusym_disp_unit_t *disp_unit, void *base)
{
    const osc_gpusym_window_t *w = osc_gpusym_window(win);
    uint32_t i = MPI_PROC_NULL == rank ? 0 : (uint32_t) rank;

    if (w->dynamic) {
        return MPI_ERR_RMA_FLAVOR;
    }
    while (MPI_PROC_NULL == rank && i + 1 < w->n && 0 == accessible(w, i)) {
        i++;
    }
    *size = accessible(w, i);
    *disp_unit = (gpusym_disp_unit_t) w->part[i].unit;
    *(void **) base = w->part[i].base;
    return OMPI_SUCCESS;
}

static const ompi_osc_base_module_t functions = {
    .osc_win_shared_query = shared_query,
    .osc_win_attach = osc_gpusym_attach,
    .osc_win_detach = osc_gpusym_detach,
    .osc_free = window_free,
    .osc_put = osc_gpusym_put,
    .osc_get = osc_gpusym_get,
    .osc_accumulate = osc_gpusym_accumulate,
    .osc_compare_and_swap = osc_gpusym_compare_and_swap,
    .osc_fetch_and_op = osc_gpusym_fetch_and_op,
    .osc_get_accumulate = osc_gpusym_get_accumulate,
    .osc_rput = osc_gpusym_rput,
    .osc_rget = osc_gpusym_rget,
    .osc_raccumulate = osc_gpusym_raccumulate,
    .osc_rget_accumulate = osc_gpusym_rget_accumulate,
    .osc_fence = osc_gpusym_fence,
    .osc_start = osc_gpusym_start,
    .osc_complete = osc_gpusym_complete,
    .osc_post = osc_gpusym_post,
    .osc_wait = osc_gpusym_wait,
    .osc_test = osc_gpusym_test,
    .osc_lock = osc_gpusym_lock,
    .osc_unlock = osc_gpusym_unlock,
    .osc_lock_all = osc_gpusym_lock_all,
    .osc_unlock_all = osc_gpusym_unlock_all,
    .osc_sync = osc_gpusym_sync,
    .osc_flush = osc_gpusym_flush,
    .osc_flush_all = osc_gpusym_flush_all,
    .osc_flush_local = osc_gpusym_flush,
    .osc_flush_local_all = osc_gpusym_flush_all,
};

/* ---- creation ---- */

/* Whether an info object has the key, and if so, in *gpu, whether it requests GPU memory by it. */
static bool has_hints(struct opal_info_t *info, bool *gpu)
{
    char hints[OPAL_MAX_INFO_VAL + 1];
    const bool has = gpusym_info_get(info, GPUSYM_POOL_KEY, hints, sizeof(hints));

    *gpu = has && gpusym_pool_requested(hints);
    return has;
}

static bool requests_gpu(struct opal_info_t *info)
{
    bool gpu;

    (void) has_hints(info, &gpu);
    return gpu;
}

static bool says_true(struct opal_info_t *info, const char *key)
{
    char value[OPAL_MAX_INFO_VAL + 1];

    return gpusym_info_get(info, key, value, sizeof(value)) && 0 == strcmp(value, "true");
}

/* What a rank's memory has a window be: that with the greatest number of any rank's is decisive. */
enum { ANYBODYS, OTHERS, OURS };

/* Of no bytes, where there is a GPU: ours, if no rank has any. A program whose windows are of GPU memory makes one of 0
 * bytes, too, for which there may be no other component. */
static int wants_of(const void *p, size_t size)
{
    const gpusym_device_t *dev = gpusym_device_for_memory();
    gpusym_mem_t mem;

    if (NULL == dev) {
        return OTHERS;
    }
    if (NULL == p || 0 == size || gpusym_plain(p)) {
        return 0 == size ? ANYBODYS : OTHERS;
    }
    dev->query(p, &mem);
    return GPUSYM_MEM_DEVICE == mem.kind ? OURS : OTHERS;
}

static int wants(void **base, size_t size, struct opal_info_t *info, int flavor)
{
    const gpusym_device_t *dev;
    bool gpu;

    if (MPI_WIN_FLAVOR_CREATE == flavor) {
        return wants_of(*base, size);
    }
    if (!has_hints(info, &gpu) && MPI_WIN_FLAVOR_DYNAMIC == flavor) { /* what will be attached is not known yet */
        dev = gpusym_device_for_memory();
        gpu = NULL != dev && dev->gpu_in_use();
    }
    return gpu ? OURS : OTHERS;
}

/* The other components are asked for a window: osc/monitoring, one of them, asks all but itself. */
static _Thread_local bool among_others;

/* All calls that create windows are collective, and Open MPI queries its components in one order, so that ranks whose
 * memory, info objects or GPUs differ can agree here and in component_select. Where coll/gpusym is not in use, the
 * ranks exchange nothing. */
static int component_query(struct ompi_win_t *win, void **base, size_t size, gpusym_disp_unit_t disp_unit,
                           struct ompi_communicator_t *comm, struct opal_info_t *info, int flavor)
{
    const char *why;
    bool any;

    (void) win;
    (void) disp_unit;
    if (among_others || !gpusym_collectives_served() ||
        OMPI_SUCCESS !=
            osc_gpusym_any_rank(comm, gpusym_device_there(&why) || OURS == wants(base, size, info, flavor), &any) ||
        !any) {
        return OMPI_ERR_NOT_SUPPORTED;
    }
    return PRIORITY;
}

/* The best of the other components; NULL, *rc says why: there is none. */
static const ompi_osc_base_component_t *best_other(struct ompi_win_t *win, void **base, size_t size,
                                                   gpusym_disp_unit_t disp_unit, struct ompi_communicator_t *comm,
                                                   struct opal_info_t *info, int flavor, int *rc)
{
    const ompi_osc_base_component_t *best = NULL;
    mca_base_component_list_item_t *item;
    int best_priority = -1;

    *rc = OMPI_ERR_NOT_SUPPORTED;
    OPAL_LIST_FOREACH(item, &ompi_osc_base_framework.framework_components, mca_base_component_list_item_t)
    {
        const ompi_osc_base_component_t *c = (const ompi_osc_base_component_t *) item->cli_component;
        if (&mca_osc_gpusym_component == c) {
            continue;
        }
        const int priority = c->osc_query(win, base, size, disp_unit, comm, info, flavor);
        if (MPI_WIN_FLAVOR_SHARED == flavor && OMPI_ERR_RMA_SHARED == priority) { /* Open MPI 4.1 */
            *rc = OMPI_ERR_RMA_SHARED;
            return NULL;
        }
        if (priority > best_priority) {
            best = c;
            best_priority = priority;
        }
    }
    return best;
}

/* Has the best of the other components make the window, as if this one did not exist. OMPI_ERR_NOT_SUPPORTED, alike on
 * all ranks: there is none. */
static int select_other(struct ompi_win_t *win, void **base, size_t size, gpusym_disp_unit_t disp_unit,
                        struct ompi_communicator_t *comm, struct opal_info_t *info, int flavor, int *model)
{
    const char *why;
    bool none;
    int rc;

    among_others = true;
    const ompi_osc_base_component_t *c = best_other(win, base, size, disp_unit, comm, info, flavor, &rc);
    const int agreed = osc_gpusym_any_rank(comm, NULL == c, &none);
    if (OMPI_SUCCESS != agreed) {
        rc = agreed;
    } else if (NULL != c) {
        rc = none ? OMPI_ERR_NOT_SUPPORTED : c->osc_select(win, base, size, disp_unit, comm, info, flavor, model);
    }
    among_others = false;
    if (OMPI_SUCCESS == rc && gpusym_device_there(&why)) {
        const bool wrapped = OMPI_SUCCESS == osc_gpusym_wrap(win);
        OSC_GPUSYM_VERBOSE("a %swindow is of osc/%s: origins in GPU memory %s",
                           MPI_WIN_FLAVOR_DYNAMIC == flavor ? "dynamic " : "", c->osc_version.mca_component_name,
                           wrapped ? "go through the host" : "do not work, since there is no memory");
    }
    return rc;
}

/* Has progress serve what others request. Over several hosts all ranks have messages, or none has the window. MPI error
 * code. */
static int open_window(osc_gpusym_window_t *w, bool apart)
{
    bool some = false;
    int rc = OMPI_SUCCESS;

    if (w->served && apart) {
        const int opened = open_messages(w);
        rc = osc_gpusym_any_rank(w->comm, OMPI_SUCCESS != opened, &some);
        rc = OMPI_SUCCESS == rc && some ? MPI_ERR_NO_MEM : rc;
        OSC_GPUSYM_VERBOSE("a window has ranks on several hosts, which %s",
                           OMPI_SUCCESS == rc ? "exchange messages through host memory"
                                              : "have no memory for messages");
    }
    rc = OMPI_SUCCESS == rc ? osc_gpusym_ask_open(w) : rc;
    if (OMPI_SUCCESS != rc) {
        close_messages(w, false);
    }
    return rc;
}

/* Makes this rank's part of a window, and joins the others'. *failed, alike on all ranks: some have not the memory that
 * they want, or a dynamic window would not be served; *w is then NULL. MPI error code. */
static int make_window(void **base, size_t size, gpusym_disp_unit_t disp_unit, struct ompi_communicator_t *comm,
                       struct opal_info_t *info, int flavor, osc_gpusym_window_t **w, bool *failed)
{
    const bool dynamic = MPI_WIN_FLAVOR_DYNAMIC == flavor, shared = MPI_WIN_FLAVOR_SHARED == flavor;
    const osc_gpusym_memory_t kind = MPI_WIN_FLAVOR_ALLOCATE != flavor ? OSC_GPUSYM_GIVEN
                                     : requests_gpu(info)              ? OSC_GPUSYM_GPU
                                                                       : OSC_GPUSYM_HOST;
    bool apart = false;
    int rc;

    if (shared) {
        rc = osc_gpusym_window_create_shared(comm, size, requests_gpu(info), says_true(info, "alloc_shared_noncontig"),
                                             w, failed);
    } else {
        *w = osc_gpusym_window_create(kind, MPI_WIN_FLAVOR_CREATE == flavor ? *base : NULL, dynamic ? 0 : size);
        rc = osc_gpusym_any_rank(comm, NULL == *w, failed);
    }
    if (OMPI_SUCCESS == rc && !*failed) {
        (*w)->dynamic = dynamic;
        rc = osc_gpusym_window_join(*w, comm, (uint64_t) disp_unit, &apart);
        *failed = OMPI_SUCCESS == rc && ((shared && ((*w)->asks || apart)) || ((shared || dynamic) && !(*w)->served));
    }
    if (OMPI_SUCCESS == rc && !*failed) {
        rc = open_window(*w, apart);
    }
    if (OMPI_SUCCESS != rc || *failed) {
        osc_gpusym_window_destroy(*w);
        *w = NULL;
    }
    return rc;
}

/* Why a window that is to have GPU memory is another component's. */
static const char *why_failed(int flavor)
{
    switch (flavor) {
    case MPI_WIN_FLAVOR_DYNAMIC:
        return OSC_GPUSYM_NOT_SERVED;
    case MPI_WIN_FLAVOR_SHARED:
        return "not all ranks have GPU memory for it, want it, or reach it";
    default:
        return "not all ranks have GPU memory for it";
    }
}

/* Either all ranks have what they requested, or none: the window is then another component's, in host memory, as it is
 * if no rank wants GPU memory. But if no other component takes that (Open MPI 4.1 without osc/pt2pt, where btl/vader
 * copies in two steps), it is served as memory of ranks without a GPU is. */
static int component_select(struct ompi_win_t *win, void **base, size_t size, gpusym_disp_unit_t disp_unit,
                            struct ompi_communicator_t *comm, struct opal_info_t *info, int flavor, int *model)
{
    const bool given = MPI_WIN_FLAVOR_CREATE == flavor;
    osc_gpusym_window_t *w = NULL;
    bool failed = false;
    int most, rc = osc_gpusym_most(comm, wants(base, size, info, flavor), &most);

    if (OMPI_SUCCESS == rc && OTHERS != most) {
        rc = make_window(base, size, disp_unit, comm, info, flavor, &w, &failed);
        if (OMPI_SUCCESS == rc && failed && !given) {
            OSC_GPUSYM_VERBOSE("a window has host memory, since %s", why_failed(flavor));
        }
    }
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    if (NULL == w && OTHERS != most && given) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    if (NULL == w) {
        rc = select_other(win, base, size, disp_unit, comm, info, flavor, model);
        if (OMPI_ERR_NOT_SUPPORTED != rc || OTHERS != most || MPI_WIN_FLAVOR_SHARED == flavor) {
            return rc;
        }
        rc = make_window(base, size, disp_unit, comm, info, flavor, &w, &failed);
        if (OMPI_SUCCESS != rc || failed) {
            return OMPI_SUCCESS != rc ? rc : OMPI_ERR_OUT_OF_RESOURCE;
        }
        OSC_GPUSYM_VERBOSE("a window of host memory is served here, since no other component takes it");
    }
    w->super = functions;
    w->no_locks = says_true(info, "no_locks");
    win->w_osc_module = &w->super;
    if (!given && !w->dynamic) {
        *base = w->part[w->rank].base;
    }
    *model = MPI_WIN_UNIFIED;
    return OMPI_SUCCESS;
}
