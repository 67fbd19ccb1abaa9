/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Synchronisation: see sync.h.
 *
 * On one host the target takes no part in what an origin does: copies end at the origin, visible to all. So a fence
 * ends the own copies and is a barrier, and locks are words of the page. A target on another host answers once all is
 * done and visible, so that the own copies have ended with its last answer.
 */
#include "mca/osc/gpusym/sync.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ompi/group/group.h"
#include "opal/runtime/opal_progress.h"

#include "mca/common/gpusym/lock.h"
#include "mca/osc/gpusym/move.h"
#include "mca/osc/gpusym/remote.h"
#include "mca/osc/gpusym/wait.h"

/* Whether this rank has a passive access epoch. */
static bool locks(const osc_gpusym_window_t *w)
{
    return OSC_GPUSYM_UNLOCKED != w->lock_all || 0 != w->nheld;
}

/* Ends the use of the last fence's epoch, if no call has used it. False: another epoch has begun. */
static bool leave_fence(osc_gpusym_window_t *w)
{
    const bool may = !w->started && OSC_GPUSYM_UNLOCKED == w->lock_all && !w->fence_used;
    w->fence = w->fence && !may;
    return may;
}

/* ---- fences ---- */

int osc_gpusym_fence(int assertion, struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);

    pthread_mutex_lock(&w->lock);
    const bool may = !w->started && !w->exposed && !locks(w);
    pthread_mutex_unlock(&w->lock);
    if (!may) {
        return MPI_ERR_RMA_SYNC;
    }
    const int ended = osc_gpusym_end_copies(w, -1);
    const int rc = osc_gpusym_window_barrier(w);
    pthread_mutex_lock(&w->lock);
    w->fence = 0 == (assertion & MPI_MODE_NOSUCCEED);
    w->fence_used = false;
    pthread_mutex_unlock(&w->lock);
    return OMPI_SUCCESS != ended ? ended : rc;
}

/* ---- post, start, complete, wait ---- */

/* Sets in[], to whether a rank of the window is in the group. MPI error code. */
static int find_members(const osc_gpusym_window_t *w, ompi_group_t *group, bool *in)
{
    const int n = ompi_group_size(group);
    int *ranks = calloc(2 * (size_t) n + 1, sizeof *ranks), rc = MPI_ERR_NO_MEM;

    if (NULL != ranks) {
        int *members = ranks + n;
        for (int i = 0; i < n; i++) {
            ranks[i] = i;
        }
        rc = ompi_group_translate_ranks(group, n, ranks, w->comm->c_local_group, members);
        for (uint32_t i = 0; i < w->n; i++) {
            in[i] = false;
        }
        for (int i = 0; OMPI_SUCCESS == rc && i < n; i++) {
            if (members[i] < 0 || (uint32_t) members[i] >= w->n) {
                rc = MPI_ERR_GROUP;
            } else {
                in[members[i]] = true;
            }
        }
    }
    free(ranks);
    return rc;
}

static bool has_not_posted(void *arg, uint32_t t)
{
    const osc_gpusym_window_t *w = arg;
    return w->in_start[t] &&
           (int32_t) (__atomic_load_n(osc_gpusym_word(w, w->posted, t, w->rank), __ATOMIC_ACQUIRE) - w->starts[t]) < 0;
}

/* MPI_MODE_NOCHECK says that the posts have come: then this does not wait. */
int osc_gpusym_start(struct ompi_group_t *group, int assertion, struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);
    int rc = MPI_ERR_RMA_SYNC;

    (void) assertion;
    if (!w->served) {
        return osc_gpusym_refuse("MPI_Win_start", OSC_GPUSYM_NOT_SERVED);
    }
    pthread_mutex_lock(&w->lock);
    if (0 == w->nheld && leave_fence(w)) {
        rc = find_members(w, group, w->in_start);
        w->started = OMPI_SUCCESS == rc;
    }
    pthread_mutex_unlock(&w->lock);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    for (uint32_t t = 0; t < w->n; t++) {
        w->starts[t] += w->in_start[t] ? 1 : 0;
    }
    rc = osc_gpusym_window_wait(w, &(osc_gpusym_wait_t){NULL, has_not_posted, w, GPUSYM_WINDOW_FOR_POST, 0});
    w->started = OMPI_SUCCESS == rc;
    return rc;
}

int osc_gpusym_complete(struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);

    if (!w->served) {
        return osc_gpusym_refuse("MPI_Win_complete", OSC_GPUSYM_NOT_SERVED);
    }
    if (!w->started) {
        return MPI_ERR_RMA_SYNC;
    }
    int rc = osc_gpusym_end_copies(w, -1);
    for (uint32_t t = 0; t < w->n; t++) {
        if (w->in_start[t] && !osc_gpusym_is_near(w, (int) t)) {
            const int told = osc_gpusym_remote_tell(w, (int) t, OSC_GPUSYM_COMPLETE, OSC_GPUSYM_UNLOCKED);
            rc = OMPI_SUCCESS == rc ? told : rc;
        } else if (w->in_start[t]) {
            __atomic_fetch_add(osc_gpusym_word(w, w->completed, t, w->rank), 1, __ATOMIC_SEQ_CST);
        }
    }
    w->started = false;
    return rc;
}

int osc_gpusym_post(struct ompi_group_t *group, int assertion, struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);

    (void) assertion;
    if (!w->served) {
        return osc_gpusym_refuse("MPI_Win_post", OSC_GPUSYM_NOT_SERVED);
    }
    if (w->exposed) {
        return MPI_ERR_RMA_SYNC;
    }
    int rc = find_members(w, group, w->in_post);
    for (uint32_t o = 0; OMPI_SUCCESS == rc && o < w->n; o++) {
        w->waits[o] += w->in_post[o] ? 1 : 0;
        if (w->in_post[o] && !osc_gpusym_is_near(w, (int) o)) {
            rc = osc_gpusym_remote_tell(w, (int) o, OSC_GPUSYM_POST, OSC_GPUSYM_UNLOCKED);
        } else if (w->in_post[o]) {
            __atomic_fetch_add(osc_gpusym_word(w, w->posted, w->rank, o), 1, __ATOMIC_SEQ_CST);
        }
    }
    w->exposed = OMPI_SUCCESS == rc;
    return rc;
}

static bool has_not_completed(void *arg, uint32_t o)
{
    const osc_gpusym_window_t *w = arg;
    return w->in_post[o] && (int32_t) (__atomic_load_n(osc_gpusym_word(w, w->completed, w->rank, o), __ATOMIC_ACQUIRE) -
                                       w->waits[o]) < 0;
}

static osc_gpusym_wait_t for_completion(osc_gpusym_window_t *w)
{
    return (osc_gpusym_wait_t){NULL, has_not_completed, w, GPUSYM_WINDOW_FOR_COMPLETE, 0};
}

int osc_gpusym_wait(struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);

    if (!w->served) {
        return osc_gpusym_refuse("MPI_Win_wait", OSC_GPUSYM_NOT_SERVED);
    }
    if (!w->exposed) {
        return MPI_ERR_RMA_SYNC;
    }
    const osc_gpusym_wait_t wait = for_completion(w);
    const int rc = osc_gpusym_window_wait(w, &wait);
    w->exposed = false;
    return rc;
}

int osc_gpusym_test(struct ompi_win_t *win, int *flag)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);

    if (!w->served) {
        return osc_gpusym_refuse("MPI_Win_test", OSC_GPUSYM_NOT_SERVED);
    }
    if (!w->exposed) {
        return MPI_ERR_RMA_SYNC;
    }
    const osc_gpusym_wait_t wait = for_completion(w);
    *flag = osc_gpusym_wait_ended(w, &wait);
    if (!*flag) {
        opal_progress();
    }
    w->exposed = 0 == *flag;
    return OMPI_SUCCESS;
}

/* ---- locks ---- */

/* Locks of this process, in all windows: who holds one goes ahead (sync.h). Atomic, if there are threads. */
static uint32_t nlocks;

static bool goes_ahead(void)
{
    return 0 != __atomic_load_n(&nlocks, __ATOMIC_RELAXED);
}

void osc_gpusym_count_lock(bool got)
{
    const uint32_t change = got ? 1 : UINT32_MAX;

    if (gpusym_threads) {
        __atomic_fetch_add(&nlocks, change, __ATOMIC_RELAXED);
    } else {
        nlocks += change;
    }
}

static void count_lock(osc_gpusym_held_t held, bool got)
{
    if (OSC_GPUSYM_UNCHECKED != held) {
        osc_gpusym_count_lock(got);
    }
}

/* Waits for it. */
static int get_lock(osc_gpusym_window_t *w, uint32_t target, osc_gpusym_held_t held, bool ahead)
{
    const bool exclusive = OSC_GPUSYM_EXCLUSIVE == held;
    osc_gpusym_queue_t *q = &w->words[target].lockers;

    if (!osc_gpusym_is_near(w, (int) target)) {
        return osc_gpusym_remote_lock(w, (int) target, OSC_GPUSYM_LOCK, held, ahead);
    }
    if (osc_gpusym_try_lock(w, target, w->rank, exclusive, ahead)) {
        return OMPI_SUCCESS;
    }
    if (ahead) {
        return osc_gpusym_await_lock(w, target, exclusive);
    }
    int rc = osc_gpusym_get_turn(w, q, GPUSYM_WINDOW_FOR_LOCK, target);
    rc = OMPI_SUCCESS == rc ? osc_gpusym_await_lock(w, target, exclusive) : rc;
    if (OMPI_SUCCESS == rc) {
        osc_gpusym_next_turn(q);
    }
    return rc;
}

/* MPI error code. */
static int release(osc_gpusym_window_t *w, uint32_t target, osc_gpusym_held_t held)
{
    if (osc_gpusym_is_near(w, (int) target)) {
        osc_gpusym_release(w, target, held);
        return OMPI_SUCCESS;
    }
    return OSC_GPUSYM_UNCHECKED == held ? OMPI_SUCCESS
                                        : osc_gpusym_remote_tell(w, (int) target, OSC_GPUSYM_UNLOCK, held);
}

/* Tries to get shared locks of all ranks but `held`, which this one has (n: none): all or none, and not `held` either.
 * Sets *refused to a rank whose lock is not to be had now; n: there is none. */
static int try_all(osc_gpusym_window_t *w, bool ahead, uint32_t held, uint32_t *refused)
{
    bool *const got = w->got;

    memset(got, 0, w->n * sizeof *got);
    int rc = osc_gpusym_spans_hosts(w) ? osc_gpusym_remote_try_locks(w, (int) held, ahead, got) : OMPI_SUCCESS;
    for (uint32_t i = 0; i < w->n; i++) {
        got[i] =
            got[i] || i == held || (osc_gpusym_is_near(w, (int) i) && osc_gpusym_try_lock(w, i, w->rank, false, ahead));
    }
    for (*refused = 0; *refused < w->n && got[*refused]; (*refused)++) {
    }
    for (uint32_t i = 0; *refused < w->n && i < w->n; i++) {
        const int released = got[i] ? release(w, i, OSC_GPUSYM_SHARED) : OMPI_SUCCESS;
        rc = OMPI_SUCCESS == rc ? released : rc;
    }
    return rc;
}

/* Becomes the first of those that wait for each rank's lock, in the order of ranks, so that two that do this do not
 * wait for each other. Sets *n to how many there are. */
static int get_turns(osc_gpusym_window_t *w, uint32_t *n)
{
    int rc = OMPI_SUCCESS;

    for (*n = 0; OMPI_SUCCESS == rc && *n < w->n; *n += OMPI_SUCCESS == rc ? 1 : 0) {
        rc = osc_gpusym_is_near(w, (int) *n)
                 ? osc_gpusym_get_turn(w, &w->words[*n].lockers, GPUSYM_WINDOW_FOR_LOCK, *n)
                 : osc_gpusym_remote_lock(w, (int) *n, OSC_GPUSYM_TURN, OSC_GPUSYM_UNLOCKED, false);
    }
    return rc;
}

static int pass_turn(osc_gpusym_window_t *w, uint32_t target)
{
    if (osc_gpusym_is_near(w, (int) target)) {
        osc_gpusym_next_turn(&w->words[target].lockers);
        return OMPI_SUCCESS;
    }
    return osc_gpusym_remote_tell(w, (int) target, OSC_GPUSYM_PASS, OSC_GPUSYM_UNLOCKED);
}

/* The locks of all ranks, all or none: who held some while it waits could keep others from what they need to release
 * the rest. If they are not to be had now, it first becomes the first of all that wait, so that no new one comes before
 * it; then it waits for one that was refused, without any other, and tries the others again. */
static int get_all(osc_gpusym_window_t *w)
{
    const bool ahead = goes_ahead();
    uint32_t refused, nturns = 0;
    int rc = try_all(w, ahead, w->n, &refused);

    if (OMPI_SUCCESS == rc && refused < w->n && !ahead) {
        rc = get_turns(w, &nturns);
    }
    while (OMPI_SUCCESS == rc && refused < w->n) {
        const uint32_t held = refused;
        rc = get_lock(w, held, OSC_GPUSYM_SHARED, true);
        rc = OMPI_SUCCESS == rc ? try_all(w, true, held, &refused) : rc;
    }
    for (uint32_t i = 0; i < nturns; i++) {
        const int passed = pass_turn(w, i);
        rc = OMPI_SUCCESS == rc ? passed : rc;
    }
    return rc;
}

/* Of a window that is not served, nothing can be locked, nor accessed. */
static bool checks(const osc_gpusym_window_t *w, int assertion)
{
    return w->served && 0 == (assertion & MPI_MODE_NOCHECK);
}

int osc_gpusym_lock(int type, int target, int assertion, struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);
    const osc_gpusym_held_t held = !checks(w, assertion)        ? OSC_GPUSYM_UNCHECKED
                                   : MPI_LOCK_EXCLUSIVE == type ? OSC_GPUSYM_EXCLUSIVE
                                                                : OSC_GPUSYM_SHARED;
    int rc = MPI_ERR_RMA_SYNC;

    if (MPI_PROC_NULL == target) {
        return OMPI_SUCCESS;
    }
    pthread_mutex_lock(&w->lock);
    if (OSC_GPUSYM_UNLOCKED != w->held[target]) {
        rc = MPI_ERR_RMA_CONFLICT;
    } else if (!w->no_locks && leave_fence(w)) {
        w->held[target] = held;
        w->nheld++;
        rc = OMPI_SUCCESS;
    }
    pthread_mutex_unlock(&w->lock);
    if (OMPI_SUCCESS == rc && OSC_GPUSYM_UNCHECKED != held) {
        rc = get_lock(w, (uint32_t) target, held, goes_ahead());
        if (OMPI_SUCCESS != rc) {
            pthread_mutex_lock(&w->lock);
            w->held[target] = OSC_GPUSYM_UNLOCKED;
            w->nheld--;
            pthread_mutex_unlock(&w->lock);
            return rc;
        }
        count_lock(held, true);
    }
    return rc;
}

int osc_gpusym_unlock(int target, struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);

    if (MPI_PROC_NULL == target) {
        return OMPI_SUCCESS;
    }
    if (OSC_GPUSYM_UNLOCKED == w->held[target]) {
        return MPI_ERR_RMA_SYNC;
    }
    const int ended = osc_gpusym_end_copies(w, target), rc = release(w, (uint32_t) target, w->held[target]);
    count_lock(w->held[target], false);
    pthread_mutex_lock(&w->lock);
    w->held[target] = OSC_GPUSYM_UNLOCKED;
    w->nheld--;
    pthread_mutex_unlock(&w->lock);
    return OMPI_SUCCESS != ended ? ended : rc;
}

int osc_gpusym_lock_all(int assertion, struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);
    const osc_gpusym_held_t held = checks(w, assertion) ? OSC_GPUSYM_SHARED : OSC_GPUSYM_UNCHECKED;
    int rc = MPI_ERR_RMA_SYNC;

    pthread_mutex_lock(&w->lock);
    if (!w->no_locks && 0 == w->nheld && leave_fence(w)) {
        w->lock_all = held;
        rc = OMPI_SUCCESS;
    }
    pthread_mutex_unlock(&w->lock);
    if (OMPI_SUCCESS == rc && OSC_GPUSYM_SHARED == held) {
        rc = get_all(w);
        w->lock_all = OMPI_SUCCESS == rc ? held : OSC_GPUSYM_UNLOCKED;
    }
    if (OMPI_SUCCESS == rc) {
        count_lock(held, true);
    }
    return rc;
}

int osc_gpusym_unlock_all(struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);

    if (OSC_GPUSYM_UNLOCKED == w->lock_all) {
        return MPI_ERR_RMA_SYNC;
    }
    int rc = osc_gpusym_end_copies(w, -1);
    for (uint32_t i = 0; i < w->n; i++) {
        const int released = release(w, i, w->lock_all);
        rc = OMPI_SUCCESS == rc ? released : rc;
    }
    count_lock(w->lock_all, false);
    w->lock_all = OSC_GPUSYM_UNLOCKED;
    return rc;
}

/* ---- flushes ---- */

int osc_gpusym_sync(struct ompi_win_t *win)
{
    osc_gpusym_window_progress(osc_gpusym_window(win));
    atomic_thread_fence(memory_order_seq_cst);
    return OMPI_SUCCESS;
}

int osc_gpusym_flush(int target, struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);

    if (MPI_PROC_NULL == target) {
        return OMPI_SUCCESS;
    }
    if (OSC_GPUSYM_UNLOCKED == w->lock_all && OSC_GPUSYM_UNLOCKED == w->held[target]) {
        return MPI_ERR_RMA_SYNC;
    }
    return osc_gpusym_end_copies(w, target);
}

int osc_gpusym_flush_all(struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);
    return locks(w) ? osc_gpusym_end_copies(w, -1) : MPI_ERR_RMA_SYNC;
}
