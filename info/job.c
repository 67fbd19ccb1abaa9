/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks of a running job do: see job.h. The gauges and each line of each process are copied once; all that
 * follows is of these copies.
 */
#include "info/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "info/ranks.h"
#include "mca/common/gpusym/agree/agreement.h"
#include "mca/common/gpusym/agree/status.h"
#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/shm/gauges.h"

/* A status that has not been written for so long is of a call that has ended, or that the program does not poll. */
#define STALE_NS 2000000000ull
/* What the coarse clock is behind, at most. */
#define COARSE_NS 20000000ull
enum { AWAITED_MAX = 64, TOLD = 8 };

static const char *const collectives[] = {
#define GPUSYM_COLL(ID, name, Name, ...) "MPI_" #Name,
#include "mca/coll/gpusym/args/coll_gpusym.def"
};

/* A rank's line in one communicator. */
typedef struct {
    const info_rank_t *process;
    gpusym_line_t line;
    bool posted, waits;
    uint16_t last; /* low bits of the number of the last call that it has posted */
    uint8_t what;
    uint32_t awaited[AWAITED_MAX]; /* ranks of the communicator */
    unsigned nawaited;
} row_t;

/* A one-sided call that waits. */
typedef struct {
    const info_rank_t *process;
    gpusym_window_status_t status;
} window_t;

static struct {
    row_t *row;
    unsigned n;
    window_t *window;
    unsigned nwindows;
    uint64_t now;
} all;

static const char *collective(uint8_t what)
{
    const unsigned coll = what & 0x7fu;
    return coll < sizeof(collectives) / sizeof(collectives[0]) ? collectives[coll] : "unknown";
}

static int16_t distance(uint64_t a, uint64_t b)
{
    return (int16_t) (uint16_t) (a - b);
}

/* ---- lines ---- */

static void *there(void *memory)
{
    if (NULL == memory) {
        fputs("gpusym_info: no host memory\n", stderr);
        exit(1);
    }
    return memory;
}

static void add_row(const info_rank_t *process, const gpusym_line_t *line)
{
    const gpusym_entry_t *entry;
    const gpusym_status_t *s = &line->status;
    all.row = there(realloc(all.row, (all.n + 1) * sizeof(*all.row)));
    row_t *row = &all.row[all.n++];
    *row = (row_t){.process = process, .line = *line};
    row->posted = gpusym_status_last(line, &row->last, &entry);
    row->what = row->posted ? (uint8_t) (entry->word >> 32) : 0;
    row->waits = 0 != s->seq && s->polled_ns + STALE_NS > all.now &&
                 distance(s->seq, row->last) == (GPUSYM_STATUS_NEW == s->state ? 1 : 0);
}

static row_t *find_row(const row_t *of, uint32_t rank)
{
    for (unsigned i = 0; i < all.n; i++) {
        row_t *row = &all.row[i];
        if (row->line.rank == rank && row->line.size == of->line.size && 0 == strcmp(row->line.label, of->line.label)) {
            return row;
        }
    }
    return NULL;
}

/* Whether a waiting row waits for a rank, of which this is the line; NULL: it has none here. */
static bool awaits(const row_t *w, const row_t *peer)
{
    const gpusym_status_t *s = &w->line.status;
    if (NULL == peer) { /* it may be of another host, but for what islands do among themselves */
        return GPUSYM_STATUS_POST == s->awaits || GPUSYM_STATUS_SETUP == s->awaits;
    }
    if (peer->line.end.key != w->line.end.key) {
        return false;
    }
    switch (s->awaits) {
    case GPUSYM_STATUS_POST:
        return peer->line.step < w->line.step || distance(s->seq, peer->last) > (int) GPUSYM_AGREEMENT_HISTORY / 2;
    case GPUSYM_STATUS_SETUP:
        return peer->line.step < w->line.step;
    case GPUSYM_STATUS_ENTRIES:
        return !peer->posted || distance(s->seq, peer->last) > 0;
    case GPUSYM_STATUS_VOTE:
        return peer->line.vote[s->seq % GPUSYM_AGREEMENT_HISTORY] >> 1 != s->seq;
    case GPUSYM_STATUS_LAUNCH:
        return peer->line.launched < s->seq;
    case GPUSYM_STATUS_STAGED:
        return peer->line.ready < s->seq;
    default:
        return false;
    }
}

static void find_awaited(row_t *w)
{
    const gpusym_status_t *s = &w->line.status;
    for (unsigned i = 0; i < s->nawaited; i++) {
        w->awaited[w->nawaited++] = s->awaited[i];
    }
    for (uint32_t r = 0; r < w->line.size && w->nawaited < AWAITED_MAX && 0 == s->nawaited; r++) {
        if (r != w->line.rank && awaits(w, find_row(w, r))) {
            w->awaited[w->nawaited++] = r;
        }
    }
}

/* Whether a process of this host waits. */
static bool waits_anywhere(int32_t pid)
{
    for (unsigned i = 0; i < all.n; i++) {
        if (all.row[i].process->pid == pid && all.row[i].waits) {
            return true;
        }
    }
    for (unsigned i = 0; i < all.nwindows; i++) {
        if (all.window[i].process->pid == pid) {
            return true;
        }
    }
    return false;
}

/* ---- in words ---- */

static const char *state_of(const row_t *row)
{
    static const char *const states[] = {"not posted", "posted", "agrees", "runs", "stops", "left to Open MPI"};
    if (row->waits) {
        return states[row->line.status.state];
    }
    return row->posted ? "does not wait, or is not polled" : "set up";
}

static double seconds(uint64_t ns)
{
    return round((double) ns * 1e-8) / 10;
}

static void list_awaited(const row_t *w, char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "-");
    for (unsigned i = 0; i < w->nawaited && i < TOLD && used < size; i++) {
        const row_t *peer = find_row(w, w->awaited[i]);
        used += (size_t) snprintf(text + used, size - used, "%s%u", 0 == i ? "" : ", ", w->awaited[i]);
        if (NULL != peer && used < size) {
            used += (size_t) snprintf(text + used, size - used, " (pid %d)", (int) peer->process->pid);
        }
    }
    if (w->nawaited > TOLD && used < size) {
        snprintf(text + used, size - used, " and %u more", w->nawaited - TOLD);
    }
}

static void tell_row(info_item_t *list, const row_t *row)
{
    const gpusym_status_t *s = &row->line.status;
    char text[512];
    info_item_t *item = info_group(list, NULL);
    list_awaited(row, text, sizeof(text));
    info_text(item, "communicator", "%s", row->line.label);
    info_number(item, "rank", row->line.rank);
    info_number(item, "size", row->line.size);
    info_number(item, "pid", row->process->pid);
    info_number(item, "call", row->waits ? (double) s->seq : row->last);
    info_text(item, "collective", "%s", row->waits ? collective(s->what) : row->posted ? collective(row->what) : "-");
    info_number(item, "bytes", row->waits ? (double) s->bytes : NAN);
    info_text(item, "state", "%s", state_of(row));
    info_text(item, "way", "%s", row->waits && '\0' != s->way[0] ? s->way : "-");
    info_number(item, "seconds", row->waits ? seconds(all.now - s->since_ns) : NAN);
    info_text(item, "waits_for", "%s", text);
}

/* ---- one-sided calls ---- */

static void add_window(const info_rank_t *process, const gpusym_window_status_t *status)
{
    all.window = there(realloc(all.window, (all.nwindows + 1) * sizeof(*all.window)));
    all.window[all.nwindows++] = (window_t){.process = process, .status = *status};
}

static void tell_window(info_item_t *list, const window_t *w)
{
    const gpusym_window_status_t *s = &w->status;
    char awaited[512], action[128];
    size_t used = 0;
    info_item_t *item = info_group(list, NULL);
    for (unsigned i = 0; i < s->nawaited; i++) {
        gpusym_append(awaited, sizeof(awaited), &used, "%s%u", 0 == i ? "" : ", ", s->awaited[i]);
        if (0 != s->pid[i]) {
            gpusym_append(awaited, sizeof(awaited), &used, " (pid %d)", (int) s->pid[i]);
        }
    }
    gpusym_append(awaited, sizeof(awaited), &used, "%s", 0 == s->nawaited ? "-" : s->more ? " and more" : "");
    used = 0;
    gpusym_window_append_for(action, sizeof(action), &used, s->what, s->target);
    info_text(item, "window_on", "%s", s->label);
    info_number(item, "rank", s->rank);
    info_number(item, "size", s->size);
    info_number(item, "pid", w->process->pid);
    info_number(item, "seconds", seconds(all.now - s->since_ns));
    info_text(item, "waits_for", "%s", awaited);
    info_text(item, "to", "%s", action);
}

/* ---- memory and resident kernels ---- */

static double mib(double bytes)
{
    return round(bytes / (1 << 20) * 10) / 10;
}

static void tell_process(info_item_t *list, const info_rank_t *r)
{
    gpusym_gauges_t g;
    info_item_t *item = info_group(list, NULL);
    const bool there = r->look.fd >= 0 && gpusym_look_area(&r->look, GPUSYM_AREA_GAUGES, sizeof(g), &g);
    info_text(item, "job", "%s", r->job);
    info_number(item, "world_rank", r->world_rank);
    info_number(item, "pid", r->pid);
    info_text(item, "command", "%s", r->command);
    info_text(item, "state", "%c", r->state);
    info_number(item, "shared_mib", mib(r->shared_bytes));
    info_number(item, "heap_mib", there ? mib((double) g.value[GPUSYM_GAUGE_HEAP]) : NAN);
    info_number(item, "heap_used_mib", there ? mib((double) g.value[GPUSYM_GAUGE_HEAP_USED]) : NAN);
    info_number(item, "pinned_mib", there ? mib((double) g.value[GPUSYM_GAUGE_PINNED]) : NAN);
    info_number(item, "mappings", there ? (double) g.value[GPUSYM_GAUGE_MAPPINGS] : NAN);
    info_number(item, "mapped_mib", there ? mib((double) g.value[GPUSYM_GAUGE_MAPPED]) : NAN);
}

/* In words, and since when. A kernel leaves by itself, and tells nobody, once it has waited for long enough: for a
 * command, or (row: its communicator) for ranks that have not posted a call. */
static const char *kernel_state(const gpusym_kernel_status_t *k, const row_t *row, uint64_t *since_ns)
{
    static const char *const states[] = {"not running", "busy", "idle", "not running", "did not end"};
    const bool posted = NULL != row && row->waits && GPUSYM_STATUS_POSTED == row->line.status.state;
    const bool left = (GPUSYM_KERNEL_IDLE == k->state || (GPUSYM_KERNEL_BUSY == k->state && posted)) &&
                      k->since_ns + k->linger_ns + COARSE_NS < all.now;
    *since_ns = k->since_ns + (left ? k->linger_ns : 0);
    return states[left ? GPUSYM_KERNEL_GONE : k->state];
}

/* The caller has said in `name` which kernel it is. */
static void tell_kernel(info_item_t *list, const info_rank_t *r, const char *name, const gpusym_kernel_status_t *k,
                        const row_t *row)
{
    uint64_t since_ns;
    if (GPUSYM_KERNEL_NONE == k->state || k->state >= GPUSYM_KERNEL_STATES) { /* the latter no process writes */
        return;
    }
    info_item_t *item = info_group(list, NULL);
    info_number(item, "world_rank", r->world_rank);
    info_number(item, "pid", r->pid);
    info_text(item, "kernel", "%s", name);
    info_text(item, "state", "%s", kernel_state(k, row, &since_ns));
    info_number(item, "seconds", since_ns < all.now ? seconds(all.now - since_ns) : 0);
    info_number(item, "operations", (double) (k->served + 1));
}

static void tell_kernels(info_item_t *list, const info_rank_t *r)
{
    gpusym_gauges_t g;
    char name[160];
    if (r->look.fd < 0 || !gpusym_look_area(&r->look, GPUSYM_AREA_GAUGES, sizeof(g), &g)) {
        return;
    }
    for (unsigned i = 0; i < GPUSYM_GAUGES_COPIERS; i++) {
        snprintf(name, sizeof(name), "copier of GPU %u", g.copier[i].what);
        tell_kernel(list, r, name, &g.copier[i], NULL);
    }
    for (unsigned i = 0; i < all.n; i++) {
        for (unsigned k = 0; all.row[i].process == r && k < GPUSYM_LINE_KERNELS; k++) {
            const gpusym_kernel_status_t *kernel = &all.row[i].line.kernel[k];
            snprintf(name, sizeof(name), "%s of %s", collective((uint8_t) kernel->what), all.row[i].line.label);
            tell_kernel(list, r, name, kernel, &all.row[i]);
        }
    }
}

/* ---- who is late ---- */

/* Of ranks for which one-sided calls wait. False: none of them is late by itself. */
static bool tell_late_in_window(info_item_t *root)
{
    for (unsigned i = 0; i < all.nwindows; i++) {
        const gpusym_window_status_t *s = &all.window[i].status;
        char action[128], pid[32] = "of another host";
        size_t used = 0;
        for (unsigned k = 0; k < s->nawaited; k++) {
            if (waits_anywhere(s->pid[k])) {
                continue;
            }
            if (0 != s->pid[k]) {
                snprintf(pid, sizeof(pid), "pid %d", (int) s->pid[k]);
            }
            gpusym_window_append_for(action, sizeof(action), &used, s->what, s->target);
            info_text(root, "late", "rank %u (%s) of a window on %s, which others wait for to %s", s->awaited[k], pid,
                      s->label, action);
            return true;
        }
    }
    return false;
}

/* The last line. */
static void tell_late(info_item_t *root)
{
    const row_t *waiter = NULL, *late = NULL;
    uint32_t rank = 0;
    bool any = false, awaited = false;
    for (unsigned i = 0; i < all.n; i++) {
        const row_t *w = &all.row[i];
        any = any || w->waits;
        for (unsigned k = 0; w->waits && k < w->nawaited; k++) {
            const row_t *peer = find_row(w, w->awaited[k]);
            awaited = true;
            if ((NULL == peer || !waits_anywhere(peer->process->pid)) && NULL == late) {
                waiter = w;
                late = peer;
                rank = w->awaited[k];
            }
        }
    }
    if (NULL == waiter && tell_late_in_window(root)) {
        return;
    }
    any = any || 0 != all.nwindows;
    awaited = awaited || 0 != all.nwindows;
    if (!any) {
        info_text(root, "late", "no rank: no call waits");
    } else if (!awaited) {
        info_text(root, "late", "no rank: the calls run");
    } else if (NULL == waiter) {
        info_text(root, "late", "ranks wait for each other, in different calls");
    } else if (NULL == late) {
        info_text(root, "late", "rank %u of %s, of another host or without a call there, in %s, call %llu", rank,
                  waiter->line.label, collective(waiter->line.status.what),
                  (unsigned long long) waiter->line.status.seq);
    } else {
        char behind[48] = ", which has not launched it";
        if (GPUSYM_STATUS_STAGED == waiter->line.status.awaits) {
            snprintf(behind, sizeof(behind), ", which copies its data to the host");
        } else if (GPUSYM_STATUS_LAUNCH != waiter->line.status.awaits) {
            snprintf(behind, sizeof(behind), ", behind by %d",
                     late->posted ? distance(waiter->line.status.seq, late->last) : 0);
        }
        info_text(root, "late", "rank %u (pid %d) of %s, in %s, call %llu%s", rank, (int) late->process->pid,
                  waiter->line.label, collective(waiter->line.status.what),
                  (unsigned long long) waiter->line.status.seq, behind);
    }
}

static void read_window(const info_rank_t *r, unsigned i)
{
    gpusym_gauges_t copy[2];
    gpusym_window_status_t status;
    bool changed = true, waits = false;
    for (int attempt = 0; attempt < GPUSYM_TOLD_ATTEMPTS && changed; attempt++) {
        changed = gpusym_look_area(&r->look, GPUSYM_AREA_GAUGES, sizeof(copy[0]), &copy[0]) &&
                  gpusym_look_area(&r->look, GPUSYM_AREA_GAUGES, sizeof(copy[1]), &copy[1]);
        waits = changed && gpusym_window_look(copy, i, &status, &changed);
    }
    if (waits && status.polled_ns + STALE_NS > all.now) {
        add_window(r, &status);
    }
}

static void read_rank(const info_rank_t *r)
{
    gpusym_line_t line;
    const uint64_t lines = r->look.fd >= 0 ? gpusym_look_lines(&r->look) : 0;
    for (uint64_t i = 0; i < lines; i++) {
        if (gpusym_status_look(&r->look, i, &line)) {
            add_row(r, &line);
        }
    }
    for (unsigned i = 0; r->look.fd >= 0 && i < GPUSYM_GAUGES_WINDOWS; i++) {
        read_window(r, i);
    }
}

const char *info_job_tell(info_item_t *root, const char *pid)
{
    info_ranks_t ranks;
    bool several;
    const char *error = info_ranks_find(pid, &ranks, &several);
    if (NULL != error && !several) {
        info_ranks_free(&ranks);
        return error;
    }
    info_item_t *list = info_list(root, "processes");
    for (unsigned i = 0; i < ranks.n; i++) {
        tell_process(list, &ranks.rank[i]);
    }
    all.now = gpusym_now_ns();
    for (unsigned i = 0; i < ranks.n && NULL == error; i++) {
        read_rank(&ranks.rank[i]);
    }
    list = NULL == error ? info_list(root, "calls") : NULL;
    for (unsigned i = 0; i < all.n; i++) {
        if (all.row[i].waits) {
            find_awaited(&all.row[i]);
        }
    }
    for (unsigned i = 0; i < all.n; i++) {
        tell_row(list, &all.row[i]);
    }
    list = NULL == error && 0 != all.nwindows ? info_list(root, "one_sided_calls") : NULL;
    for (unsigned i = 0; i < all.nwindows; i++) {
        tell_window(list, &all.window[i]);
    }
    list = NULL == error ? info_list(root, "resident_kernels") : NULL;
    for (unsigned i = 0; i < ranks.n && NULL == error; i++) {
        tell_kernels(list, &ranks.rank[i]);
    }
    if (NULL == error) {
        tell_late(root);
    }
    free(all.row);
    free(all.window);
    all.row = NULL;
    all.window = NULL;
    all.n = all.nwindows = 0;
    info_ranks_free(&ranks);
    return error;
}
