/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Accumulates: see accumulate.h.
 *
 * Each holds the target's lock for accumulates from its first byte to its last, and ends before it returns: so all of
 * them are atomic to each other, and in the order in which a rank calls them. Those of a few elements the copier does
 * (swap.h). Else what MPI_REPLACE stores, and what is fetched, is copied as by put and get. The owner does it for ranks
 * of other hosts, with the same lock.
 */
#include "mca/osc/gpusym/accumulate.h"

#include <string.h>

#include "ompi/op/op.h"
#include "ompi/request/request.h"

#include "mca/osc/gpusym/bounce.h"
#include "mca/osc/gpusym/combine.h"
#include "mca/osc/gpusym/remote.h"
#include "mca/osc/gpusym/swap.h"
#include "mca/osc/gpusym/wait.h"

/* Bytes of the longest basic type. */
#define BASIC_MAX 64u

/* ---- the lock ---- */

static int lock_target(osc_gpusym_window_t *w, int target)
{
    return osc_gpusym_get_turn(w, &w->words[target].accumulates, GPUSYM_WINDOW_FOR_ACCUMULATE, (uint32_t) target);
}

static void unlock_target(const osc_gpusym_window_t *w, int target)
{
    osc_gpusym_next_turn(&w->words[target].accumulates);
}

/* ---- the calls ---- */

/* Of elements without a place there is no buffer. */
typedef struct {
    const void *buf;
    size_t count;
    struct ompi_datatype_t *type;
} buffer_t;

/* result NULL: nothing is fetched. An origin may be shorter than the target's elements, of which the first are then
 * combined; all are fetched. */
static int accumulate(const char *call, const buffer_t *origin, const buffer_t *result, int target, ptrdiff_t disp,
                      size_t count, struct ompi_datatype_t *type, struct ompi_op_t *op, struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);
    const bool stores = &ompi_mpi_op_no_op.op != op, replaces = &ompi_mpi_op_replace.op == op;
    osc_gpusym_elements_t at, first, from = {.buf = NULL}, to;
    ompi_datatype_t *basic = osc_gpusym_basic_type(type);

    if (MPI_PROC_NULL == target) {
        return OMPI_SUCCESS;
    }
    int rc = osc_gpusym_target(w, call, target, disp, count, type, &at);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    if (stores) {
        osc_gpusym_origin(w, origin->buf, origin->count, origin->type, &from);
    }
    if (NULL != result) {
        osc_gpusym_origin(w, result->buf, result->count, result->type, &to);
    }
    if (NULL == result && from.layout.bytes < at.layout.bytes) {
        osc_gpusym_cut(&at, from.layout.bytes);
    }
    if (NULL != result && to.layout.bytes > at.layout.bytes) {
        osc_gpusym_cut(&to, at.layout.bytes);
    }
    if ((stores && from.layout.bytes > at.layout.bytes) || (NULL != result && to.layout.bytes < at.layout.bytes)) {
        return MPI_ERR_TRUNCATE;
    }
    if (0 == at.layout.bytes) {
        return OMPI_SUCCESS;
    }
    if (NULL == basic || (stores && basic != osc_gpusym_basic_type(origin->type))) {
        return MPI_ERR_TYPE;
    }
    if (!osc_gpusym_is_near(w, target)) {
        const osc_gpusym_access_t access = {.kind = NULL != result ? OSC_GPUSYM_FETCH : OSC_GPUSYM_COMBINE,
                                            .target = target,
                                            .at = &at,
                                            .from = stores ? &from : NULL,
                                            .to = NULL != result ? &to : NULL,
                                            .basic = basic,
                                            .op = op};
        return osc_gpusym_remote_access(w, &access);
    }
    first = at;
    if (from.layout.bytes < at.layout.bytes) {
        osc_gpusym_cut(&first, from.layout.bytes);
    }
    rc = lock_target(w, target);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    osc_gpusym_swap_t swap = {
        .target = &at, .given = &from, .result = NULL != result ? &to : NULL, .op = GPUSYM_COMBINE_REPLACE};
    if (from.layout.bytes == at.layout.bytes && (NULL != result || !replaces) &&
        (replaces || osc_gpusym_kernels_have(op, basic, &swap.op, &swap.type)) && osc_gpusym_swap(w, &swap, &rc)) {
        unlock_target(w, target);
        return rc;
    }
    if (NULL != result) {
        rc = osc_gpusym_move(w, target, &to, &at, &to);
        const int ended = osc_gpusym_end_copies(w, target);
        rc = OMPI_SUCCESS != rc ? rc : ended;
    }
    if (OMPI_SUCCESS == rc && replaces) {
        rc = osc_gpusym_move(w, target, &first, &from, &from);
        const int ended = osc_gpusym_end_copies(w, target);
        rc = OMPI_SUCCESS != rc ? rc : ended;
    } else if (OMPI_SUCCESS == rc && 0 != from.layout.bytes) {
        rc = osc_gpusym_combine(w, &first, &from, basic, op);
    }
    unlock_target(w, target);
    return rc;
}

int osc_gpusym_accumulate(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type,
                          int target, ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type,
                          struct ompi_op_t *op, struct ompi_win_t *win)
{
    const buffer_t from = {origin, (size_t) origin_count, origin_type};
    return accumulate("MPI_Accumulate", &from, NULL, target, disp, (size_t) count, type, op, win);
}

int osc_gpusym_raccumulate(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type,
                           int target, ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type,
                           struct ompi_op_t *op, struct ompi_win_t *win, struct ompi_request_t **request)
{
    const buffer_t from = {origin, (size_t) origin_count, origin_type};
    *request = &ompi_request_empty;
    return accumulate("MPI_Raccumulate", &from, NULL, target, disp, (size_t) count, type, op, win);
}

int osc_gpusym_get_accumulate(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type,
                              void *result, gpusym_count_t result_count, struct ompi_datatype_t *result_type,
                              int target, ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type,
                              struct ompi_op_t *op, struct ompi_win_t *win)
{
    const buffer_t from = {origin, (size_t) origin_count, origin_type};
    const buffer_t to = {result, (size_t) result_count, result_type};
    return accumulate("MPI_Get_accumulate", &from, &to, target, disp, (size_t) count, type, op, win);
}

int osc_gpusym_rget_accumulate(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type,
                               void *result, gpusym_count_t result_count, struct ompi_datatype_t *result_type,
                               int target, ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type,
                               struct ompi_op_t *op, struct ompi_win_t *win, struct ompi_request_t **request)
{
    const buffer_t from = {origin, (size_t) origin_count, origin_type};
    const buffer_t to = {result, (size_t) result_count, result_type};
    *request = &ompi_request_empty;
    return accumulate("MPI_Rget_accumulate", &from, &to, target, disp, (size_t) count, type, op, win);
}

int osc_gpusym_fetch_and_op(const void *origin, void *result, struct ompi_datatype_t *type, int target, ptrdiff_t disp,
                            struct ompi_op_t *op, struct ompi_win_t *win)
{
    const buffer_t from = {origin, 1, type}, to = {result, 1, type};
    return accumulate("MPI_Fetch_and_op", &from, &to, target, disp, 1, type, op, win);
}

/* The lock is held. */
static int compare_and_swap(osc_gpusym_window_t *w, const osc_gpusym_elements_t *at,
                            const osc_gpusym_elements_t *origin, const osc_gpusym_elements_t *compare,
                            const osc_gpusym_elements_t *result)
{
    const osc_gpusym_swap_t swap = {
        .target = at, .given = origin, .compared = compare, .result = result, .op = GPUSYM_COMBINE_COMPARE};
    char new[BASIC_MAX], old[BASIC_MAX], found[BASIC_MAX];
    int rc;

    if (osc_gpusym_swap(w, &swap, &rc)) {
        return rc;
    }
    rc = osc_gpusym_gather(w, origin, new);
    rc = OMPI_SUCCESS == rc ? osc_gpusym_gather(w, compare, old) : rc;
    rc = OMPI_SUCCESS == rc ? osc_gpusym_gather(w, at, found) : rc;
    if (OMPI_SUCCESS == rc && 0 == memcmp(found, old, at->layout.bytes)) {
        rc = osc_gpusym_scatter(w, at, new);
    }
    return OMPI_SUCCESS == rc ? osc_gpusym_scatter(w, result, found) : rc;
}

/* The owner compares. */
static int compare_remote(osc_gpusym_window_t *w, int target, const osc_gpusym_elements_t *at,
                          const osc_gpusym_elements_t *origin, const osc_gpusym_elements_t *compare,
                          const osc_gpusym_elements_t *result)
{
    char both[2 * BASIC_MAX]; /* new, and old behind it */
    osc_gpusym_elements_t given = {.buf = both, .own = true};
    const osc_gpusym_access_t access = {
        .kind = OSC_GPUSYM_SWAP, .target = target, .at = at, .from = &given, .to = result};
    int rc = osc_gpusym_gather(w, origin, both);

    gpusym_layout_find(2 * at->layout.bytes, &ompi_mpi_byte.dt, &given.layout);
    rc = OMPI_SUCCESS == rc ? osc_gpusym_gather(w, compare, both + at->layout.bytes) : rc;
    return OMPI_SUCCESS == rc ? osc_gpusym_remote_access(w, &access) : rc;
}

int osc_gpusym_compare_and_swap(const void *origin, const void *compare, void *result, struct ompi_datatype_t *type,
                                int target, ptrdiff_t disp, struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);
    osc_gpusym_elements_t at, new, old, found;

    if (MPI_PROC_NULL == target) {
        return OMPI_SUCCESS;
    }
    int rc = osc_gpusym_target(w, "MPI_Compare_and_swap", target, disp, 1, type, &at);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    if (at.layout.bytes > BASIC_MAX) {
        return MPI_ERR_TYPE;
    }
    osc_gpusym_origin(w, origin, 1, type, &new);
    osc_gpusym_origin(w, compare, 1, type, &old);
    osc_gpusym_origin(w, result, 1, type, &found);
    if (!osc_gpusym_is_near(w, target)) {
        return compare_remote(w, target, &at, &new, &old, &found);
    }
    rc = lock_target(w, target);
    if (OMPI_SUCCESS == rc) {
        rc = compare_and_swap(w, &at, &new, &old, &found);
        unlock_target(w, target);
    }
    return rc;
}
