/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Gauges: see gauges.h.
 */
#include "mca/common/gpusym/shm/gauges.h"

#include <pthread.h>
#include <string.h>

#include "mca/common/gpusym/log.h"

/* Where they are while there are no pages. */
static gpusym_gauges_t own;
static gpusym_gauges_t *gauges = &own; /* atomic */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* What has been added up: others can write to the gauges. */
static uint64_t sum[GPUSYM_GAUGES_COUNT];
static uint32_t slots; /* bits: statuses of one-sided calls that are in use; atomic */

void gpusym_gauge_add(gpusym_gauge_t gauge, int64_t change)
{
    pthread_mutex_lock(&lock);
    sum[gauge] += (uint64_t) change;
    __atomic_store_n(&gauges->value[gauge], sum[gauge], __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
}

uint64_t gpusym_gauge_sum(gpusym_gauge_t gauge)
{
    pthread_mutex_lock(&lock);
    const uint64_t value = sum[gauge];
    pthread_mutex_unlock(&lock);
    return value;
}

void gpusym_gauges_move(gpusym_gauges_t *to)
{
    pthread_mutex_lock(&lock);
    to = NULL != to ? to : &own;
    memset(to, 0, sizeof *to);
    memcpy(to->value, sum, sizeof sum);
    __atomic_store_n(&gauges, to, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

static gpusym_gauges_t *now_at(void)
{
    return __atomic_load_n(&gauges, __ATOMIC_ACQUIRE);
}

gpusym_kernel_status_t *gpusym_gauges_copier(unsigned i)
{
    return &now_at()->copier[i];
}

/* ---- one-sided calls ---- */

void gpusym_window_append_for(char *text, size_t size, size_t *used, gpusym_window_for_t what, uint32_t target)
{
    static const struct {
        const char *words;
        bool of_target;
    } row[] = {
#define GPUSYM_WINDOW_FOR_ROW(name, words, of_target) [GPUSYM_WINDOW_FOR_##name] = {words, of_target},
        GPUSYM_WINDOW_FOR(GPUSYM_WINDOW_FOR_ROW)
#undef GPUSYM_WINDOW_FOR_ROW
    };

    gpusym_append(text, size, used, "%s", row[what].words);
    if (row[what].of_target) {
        gpusym_append(text, size, used, "%u", (unsigned) target);
    }
}

static int take_slot(void)
{
    uint32_t taken = __atomic_load_n(&slots, __ATOMIC_RELAXED);

    for (int i = 0; i < (int) GPUSYM_GAUGES_WINDOWS; i++) {
        while (0 == (taken >> i & 1)) {
            if (__atomic_compare_exchange_n(&slots, &taken, taken | 1u << i, false, __ATOMIC_ACQUIRE,
                                            __ATOMIC_RELAXED)) {
                return i;
            }
        }
    }
    return -1;
}

int gpusym_window_tell(int slot, const gpusym_window_status_t *status)
{
    slot = slot < 0 ? take_slot() : slot;
    if (slot >= 0) {
        gpusym_gauges_t *g = now_at();
        gpusym_told_publish(&g->window[slot].turn, &g->window[slot].status, status, sizeof *status);
    }
    return slot;
}

void gpusym_window_tell_end(int slot)
{
    if (slot >= 0) {
        __atomic_store_n(&now_at()->window[slot].turn, 0, __ATOMIC_RELEASE);
        __atomic_fetch_and(&slots, ~(1u << slot), __ATOMIC_RELEASE);
    }
}

bool gpusym_window_look(const gpusym_gauges_t copy[2], unsigned i, gpusym_window_status_t *status, bool *changed)
{
    const uint64_t turn = copy[0].window[i].turn;

    *changed = 0 != turn % 2 || turn != copy[1].window[i].turn;
    *status = copy[0].window[i].status;
    status->label[sizeof status->label - 1] = '\0';
    return !*changed && 0 != turn && status->rank < status->size && status->what < GPUSYM_WINDOW_FORS &&
           status->nawaited <= GPUSYM_WINDOW_AWAITED;
}
