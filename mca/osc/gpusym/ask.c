/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Requests to the owner of memory: see ask.h.
 */
#include "mca/osc/gpusym/ask.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "opal/runtime/opal_progress.h"
#include "opal/util/output.h"

#include "mca/osc/gpusym/serve.h"
#include "mca/osc/gpusym/wait.h"

enum { NONE, READ, WRITE };

/* ---- the owner ---- */

/* The windows that ask, or have messages. */
static struct {
    pthread_mutex_t lock;
    osc_gpusym_window_t *first;
    osc_gpusym_window_t *next; /* where progress goes on; NULL: at the first */
} open_windows = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int carry_out(osc_gpusym_window_t *w, osc_gpusym_mailbox_t *box, uint32_t request)
{
    const uint32_t pieces = box->pieces;
    uint64_t done = 0;
    int rc = pieces <= OSC_GPUSYM_MAILBOX_PIECES ? OMPI_SUCCESS : MPI_ERR_INTERN;

    for (uint32_t i = 0; OMPI_SUCCESS == rc && i < pieces; i++) {
        const osc_gpusym_piece_t piece = box->piece[i];
        if (piece.bytes > OSC_GPUSYM_MAILBOX_BYTES - done) { /* none of ours has written that */
            return MPI_ERR_INTERN;
        }
        const osc_gpusym_rows_t row = {piece.at, piece.bytes, 1, piece.bytes};
        rc = osc_gpusym_own_copy(w, &row, 1, box->data + done, false, WRITE == request);
        done += piece.bytes;
    }
    return rc;
}

/* Windows that a call of progress looks at, so that it takes no longer where a program has many. Whoever waits calls it
 * again and again. */
#define LOOKS 8u

/* A copy may itself make progress: then, and while another thread is here, there is nothing to do. */
static int make_progress(void)
{
    int n = 0;

    if (0 != pthread_mutex_trylock(&open_windows.lock)) {
        return 0;
    }
    osc_gpusym_window_t *w = NULL != open_windows.next ? open_windows.next : open_windows.first;
    for (unsigned i = 0; i < LOOKS && NULL != w; i++, w = w->next_asked) {
        osc_gpusym_mailbox_t *box = &w->mailbox[w->rank];
        const uint32_t request = __atomic_load_n(&box->request, __ATOMIC_ACQUIRE);
        if (NONE != request) {
            box->rc = carry_out(w, box, request);
            __atomic_store_n(&box->request, NONE, __ATOMIC_RELEASE);
            n++;
        }
        n += NULL != w->serve ? osc_gpusym_serve(w) : 0;
    }
    open_windows.next = w;
    pthread_mutex_unlock(&open_windows.lock);
    return n;
}

void osc_gpusym_ask_close(osc_gpusym_window_t *w)
{
    bool last = false;

    pthread_mutex_lock(&open_windows.lock);
    for (osc_gpusym_window_t **at = &open_windows.first; NULL != *at; at = &(*at)->next_asked) {
        if (w == *at) {
            *at = w->next_asked;
            open_windows.next = w == open_windows.next ? w->next_asked : open_windows.next;
            last = NULL == open_windows.first;
            break;
        }
    }
    pthread_mutex_unlock(&open_windows.lock);
    if (last) {
        (void) opal_progress_unregister(make_progress);
    }
}

int osc_gpusym_ask_open(osc_gpusym_window_t *w)
{
    if (!w->asks && NULL == w->serve) {
        return OMPI_SUCCESS;
    }
    pthread_mutex_lock(&open_windows.lock);
    const bool first = NULL == open_windows.first;
    w->next_asked = open_windows.first;
    open_windows.first = w;
    pthread_mutex_unlock(&open_windows.lock);
    const int rc = first ? opal_progress_register(make_progress) : OMPI_SUCCESS;
    if (OMPI_SUCCESS != rc) {
        osc_gpusym_ask_close(w);
    }
    return rc;
}

/* ---- the origin ---- */

typedef struct {
    osc_gpusym_window_t *w;
    osc_gpusym_mailbox_t *box;
    char *packed; /* of what the box has */
    uint64_t bytes;
    bool write;
    int rc;
} ask_t;

static bool is_answered(void *arg)
{
    const ask_t *a = arg;
    return NONE == __atomic_load_n(&a->box->request, __ATOMIC_ACQUIRE);
}

static bool is_asked(void *arg, uint32_t rank)
{
    const ask_t *a = arg;
    return a->box == &a->w->mailbox[rank];
}

/* Has the owner do what the box has. */
static int post(ask_t *a)
{
    if (0 == a->box->pieces) {
        return OMPI_SUCCESS;
    }
    if (a->write) {
        memcpy(a->box->data, a->packed, a->bytes);
    }
    __atomic_store_n(&a->box->request, a->write ? WRITE : READ, __ATOMIC_RELEASE);
    a->rc = osc_gpusym_window_wait(a->w, &(osc_gpusym_wait_t){is_answered, is_asked, a, GPUSYM_WINDOW_FOR_ANSWER, 0});
    if (OMPI_SUCCESS != a->rc) {
        return a->rc;
    }
    a->rc = a->box->rc;
    if (!a->write) {
        memcpy(a->packed, a->box->data, a->bytes);
    }
    a->packed += a->bytes;
    a->bytes = 0;
    a->box->pieces = 0;
    return a->rc;
}

static int add_run(void *arg, ptrdiff_t off, size_t bytes)
{
    ask_t *a = arg;
    uint64_t at = (uint64_t) off;

    while (bytes > 0) {
        const uint64_t room = OSC_GPUSYM_MAILBOX_BYTES - a->bytes, n = bytes < room ? bytes : room;
        a->box->piece[a->box->pieces++] = (osc_gpusym_piece_t){at, n};
        a->bytes += n;
        at += n;
        bytes -= n;
        if ((OSC_GPUSYM_MAILBOX_PIECES == a->box->pieces || OSC_GPUSYM_MAILBOX_BYTES == a->bytes) &&
            OMPI_SUCCESS != post(a)) {
            return -1;
        }
    }
    return 0;
}

/* ---- without the owner ---- */

/* A copy by the kernel, as far as one call takes it: of 2 GiB it leaves some bytes. */
#define DIRECT_RUNS 64u
#define DIRECT_BYTES ((size_t) 1 << 30)
typedef struct {
    int pid;
    bool write;
    char *packed;
    size_t bytes; /* of the runs */
    unsigned runs;
    struct iovec run[DIRECT_RUNS];
} direct_t;

/* 0; -1, with errno: not all has been copied. */
static int copy_runs(direct_t *d)
{
    const struct iovec packed = {d->packed, d->bytes};

    if (0 == d->bytes) {
        return 0;
    }
    errno = EFAULT;
    const ssize_t done = d->write ? process_vm_writev(d->pid, &packed, 1, d->run, d->runs, 0)
                                  : process_vm_readv(d->pid, &packed, 1, d->run, d->runs, 0);
    d->packed += d->bytes;
    const bool all = done >= 0 && (size_t) done == d->bytes;
    d->bytes = d->runs = 0;
    return all ? 0 : -1;
}

static int add_direct(void *arg, ptrdiff_t off, size_t bytes)
{
    direct_t *d = arg;
    uintptr_t at = (uintptr_t) off;

    while (bytes > 0) {
        if ((DIRECT_RUNS == d->runs || DIRECT_BYTES == d->bytes) && 0 != copy_runs(d)) {
            return -1;
        }
        const size_t room = DIRECT_BYTES - d->bytes, n = bytes < room ? bytes : room;
        d->run[d->runs++] = (struct iovec){(void *) at, n};
        d->bytes += n;
        at += n;
        bytes -= n;
    }
    return 0;
}

/* False: the owner must be asked, for some of it or, if this process may not access its memory, from now on for all. */
static bool copy_directly(osc_gpusym_window_t *w, int target, const gpusym_layout_t *l, uint64_t at, void *packed,
                          bool write)
{
    osc_gpusym_part_t *part = &w->part[target];
    direct_t d;

    if (!__atomic_load_n(&part->direct, __ATOMIC_RELAXED)) {
        return false;
    }
    d.pid = gpusym_peer_pid(part->process);
    d.write = write;
    d.packed = packed;
    d.bytes = d.runs = 0;
    if (0 == gpusym_layout_runs(l, (ptrdiff_t) (part->address + at), add_direct, &d) && 0 == copy_runs(&d)) {
        return true;
    }
    if (EFAULT != errno) { /* that is memory that the kernel does not copy, as a GPU's */
        __atomic_store_n(&part->direct, false, __ATOMIC_RELAXED);
        OSC_GPUSYM_VERBOSE("host memory of rank %d of a window is copied by its owner, in calls of MPI: %s", target,
                           strerror(errno));
    }
    return false;
}

int osc_gpusym_ask(osc_gpusym_window_t *w, int target, const gpusym_layout_t *l, uint64_t at, void *packed, bool write)
{
    ask_t a = {.w = w, .box = &w->mailbox[target], .packed = packed, .write = write};

    if (copy_directly(w, target, l, at, packed, write)) {
        return OMPI_SUCCESS;
    }
    a.rc = osc_gpusym_get_turn(w, &a.box->origins, GPUSYM_WINDOW_FOR_ANSWER, (uint32_t) target);
    if (OMPI_SUCCESS != a.rc) {
        return a.rc;
    }
    a.box->pieces = 0;
    if (0 == gpusym_layout_runs(l, (ptrdiff_t) at, add_run, &a)) {
        (void) post(&a);
    }
    osc_gpusym_next_turn(&a.box->origins);
    return a.rc;
}
