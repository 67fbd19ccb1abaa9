/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Sums over the processes of MPI_COMM_WORLD: see team/totals.h.
 *
 * By short messages of the PML, not by a collective: rank 0 waits for those alone that have published that they send,
 * and gives up those that have died.
 */
#include "mca/coll/gpusym/team/totals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/coll/gpusym/team/peers.h"
#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/log.h"
#include "mca/common/ompi/tags.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/request/request.h"
#include "opal/runtime/opal_progress.h"

/* Of a message: so that it goes at once, whether or not rank 0 waits for it already. */
#define ENTRIES 40

/* A process sends as many as it takes for its values that are not 0, at least one. */
typedef struct {
    int32_t rank;
    uint32_t more; /* messages behind this one */
    uint32_t n;    /* entries */
    uint32_t reserved;
    char host[64];
    char gpu[COLL_GPUSYM_GPU_TEXT];
    struct {
        uint64_t index, value;
    } entry[ENTRIES];
} note_t;

/* How long a process waits for a message of its own to leave: it always does, unless rank 0 has died. */
#define LEAVE_NS 10000000000ull
/* How often rank 0 looks whether those that it waits for live. */
#define LOOK_NS 100000000ull

/* ---- sending ---- */

static bool send_note(const note_t *note)
{
    const uint64_t since = gpusym_now_ns();
    struct ompi_request_t *req = NULL;

    if (OMPI_SUCCESS != MCA_PML_CALL(isend(note, sizeof(*note), MPI_BYTE, 0, GPUSYM_TAG_TOTALS,
                                           MCA_PML_BASE_SEND_STANDARD, MPI_COMM_WORLD, &req))) {
        return false;
    }
    while (!REQUEST_COMPLETE(req)) {
        if (gpusym_now_ns() - since > LEAVE_NS) {
            return false; /* the request stays: the PML may still send from the note */
        }
        opal_progress();
    }
    return OMPI_SUCCESS == ompi_request_free(&req);
}

static void fill_note(note_t *note, const char *gpu)
{
    memset(note, 0, sizeof(*note));
    note->rank = ompi_comm_rank(MPI_COMM_WORLD);
    snprintf(note->host, sizeof(note->host), "%s", opal_process_info.nodename);
    snprintf(note->gpu, sizeof(note->gpu), "%s", gpu);
}

static void send_values(const char *gpu, const unsigned long long *value, unsigned n)
{
    note_t *note = malloc(sizeof(*note)); /* not on the stack: see send_note */
    unsigned left = 0;
    bool sent = NULL != note;

    for (unsigned i = 0; i < n; i++) {
        left += 0 != value[i] ? 1 : 0;
    }
    for (unsigned i = 0; sent;) {
        fill_note(note, gpu);
        for (; i < n && note->n < ENTRIES; i++) {
            if (0 != value[i]) {
                note->entry[note->n].index = i;
                note->entry[note->n++].value = value[i];
            }
        }
        left -= note->n;
        note->more = left > 0;
        sent = send_note(note);
        if (0 == left) {
            break;
        }
    }
    if (sent) {
        free(note);
    } else {
        GPUSYM_LOG(2, "the summary does not include this rank: rank 0 accepts no messages");
    }
}

/* ---- receiving ---- */

typedef struct {
    coll_gpusym_totals_t *totals;
    unsigned long long *value; /* [nvalues] of each rank, one behind the other */
    coll_gpusym_peer_t **peer; /* [ranks] that are awaited; NULL: no longer, or never */
    bool *answered;            /* [ranks] */
    note_t *self;              /* [ranks] the first note of each: host and GPU */
    note_t note;               /* the one that is being received */
    unsigned awaited;
} gather_t;

static void take_note(gather_t *g, const note_t *note)
{
    coll_gpusym_totals_t *t = g->totals;
    const unsigned r = (unsigned) note->rank;

    if (r >= t->ranks || g->answered[r] || note->n > ENTRIES) {
        return;
    }
    for (unsigned i = 0; i < note->n; i++) {
        if (note->entry[i].index < t->nvalues) {
            g->value[(size_t) r * t->nvalues + note->entry[i].index] = note->entry[i].value;
        }
    }
    g->self[r] = *note;
    if (0 == note->more) {
        g->answered[r] = true;
        g->awaited -= NULL != g->peer[r] ? 1 : 0;
        g->peer[r] = NULL;
    }
}

/* Whoever has died will not send. */
static void give_up_dead(gather_t *g)
{
    coll_gpusym_peer_t *self = coll_gpusym_peers_summed(MPI_COMM_WORLD, 0);

    for (unsigned r = 1; r < g->totals->ranks; r++) {
        if (NULL != g->peer[r] && NULL != self && coll_gpusym_peers_near(self, g->peer[r]) &&
            !coll_gpusym_peer_lives(g->peer[r])) {
            g->peer[r] = NULL;
            g->awaited--;
        }
    }
}

/* Receives one message. False: nobody is awaited any more. */
static bool receive_note(gather_t *g)
{
    struct ompi_request_t *req = NULL;
    uint64_t looked = gpusym_now_ns();

    if (OMPI_SUCCESS != MCA_PML_CALL(irecv(&g->note, sizeof(g->note), MPI_BYTE, MPI_ANY_SOURCE, GPUSYM_TAG_TOTALS,
                                           MPI_COMM_WORLD, &req))) {
        return false;
    }
    while (!REQUEST_COMPLETE(req)) {
        opal_progress();
        if (gpusym_now_ns() - looked > LOOK_NS) {
            looked = gpusym_now_ns();
            give_up_dead(g);
            if (0 == g->awaited && !REQUEST_COMPLETE(req)) {
                (void) ompi_request_cancel(req);
                (void) ompi_request_wait(&req, MPI_STATUS_IGNORE);
                return false;
            }
        }
    }
    return OMPI_SUCCESS == ompi_request_free(&req);
}

static void await_peers(gather_t *g)
{
    for (unsigned r = 1; r < g->totals->ranks; r++) {
        g->peer[r] = coll_gpusym_peers_summed(MPI_COMM_WORLD, (int) r);
        g->awaited += NULL != g->peer[r] ? 1 : 0;
    }
    while (g->awaited > 0 && receive_note(g)) {
        take_note(g, &g->note);
    }
}

/* ---- adding up ---- */

static void count_places(const gather_t *g)
{
    coll_gpusym_totals_t *t = g->totals;

    for (unsigned r = 0; r < t->ranks; r++) {
        const note_t *own = &g->self[r];
        bool new_host = g->answered[r], new_gpu = g->answered[r] && '\0' != own->gpu[0];
        for (unsigned k = 0; k < r; k++) {
            const bool same_host = g->answered[k] && 0 == strcmp(g->self[k].host, own->host);
            new_host = new_host && !same_host;
            new_gpu = new_gpu && !(same_host && 0 == strcmp(g->self[k].gpu, own->gpu));
        }
        t->hosts += new_host ? 1 : 0;
        t->gpus += new_gpu ? 1 : 0;
        if (new_gpu) {
            const size_t length = strcspn(own->gpu, ",");
            t->gpus_differ = t->gpus_differ || ('\0' != t->gpu[0] &&
                                                (strlen(t->gpu) != length || 0 != strncmp(t->gpu, own->gpu, length)));
            snprintf(t->gpu, sizeof(t->gpu), "%.*s", (int) length, own->gpu);
        }
    }
}

static void add_up(const gather_t *g)
{
    coll_gpusym_totals_t *t = g->totals;

    for (unsigned r = 0; r < t->ranks; r++) {
        const unsigned long long *value = g->value + (size_t) r * t->nvalues;
        for (unsigned i = 0; g->answered[r] && i < t->nvalues; i++) {
            t->sum[i] += value[i];
            t->least[i] = 0 == t->answered || value[i] < t->least[i] ? value[i] : t->least[i];
            t->most[i] = value[i] > t->most[i] ? value[i] : t->most[i];
        }
        t->answered += g->answered[r] ? 1 : 0;
    }
    count_places(g);
}

static bool gather(const char *gpu, const unsigned long long *value, unsigned n, coll_gpusym_totals_t *t)
{
    gather_t g = {.totals = t};

    t->ranks = (unsigned) ompi_comm_size(MPI_COMM_WORLD);
    t->nvalues = n;
    t->sum = calloc(n, sizeof(*t->sum));
    t->least = calloc(n, sizeof(*t->least));
    t->most = calloc(n, sizeof(*t->most));
    g.value = calloc((size_t) t->ranks * n, sizeof(*g.value));
    g.peer = calloc(t->ranks, sizeof(*g.peer));
    g.answered = calloc(t->ranks, sizeof(*g.answered));
    g.self = calloc(t->ranks, sizeof(*g.self));
    const bool ok = NULL != t->sum && NULL != t->least && NULL != t->most && NULL != g.value && NULL != g.peer &&
                    NULL != g.answered && NULL != g.self;
    if (ok) {
        fill_note(&g.self[0], gpu);
        memcpy(g.value, value, n * sizeof(*value));
        g.answered[0] = true;
        await_peers(&g);
        add_up(&g);
    } else {
        gpusym_log_no_memory("the summary");
        coll_gpusym_totals_free(t);
    }
    free(g.value);
    free(g.peer);
    free(g.answered);
    free(g.self);
    return ok;
}

bool coll_gpusym_totals_gather(const char *gpu, const unsigned long long *value, unsigned n,
                               coll_gpusym_totals_t *totals)
{
    *totals = (coll_gpusym_totals_t){.ranks = 0};
    if (0 == ompi_comm_rank(MPI_COMM_WORLD)) {
        return gather(gpu, value, n, totals);
    }
    if (NULL != coll_gpusym_peers_summed(MPI_COMM_WORLD, 0)) {
        send_values(gpu, value, n);
    }
    return false;
}

void coll_gpusym_totals_free(coll_gpusym_totals_t *totals)
{
    free(totals->sum);
    free(totals->least);
    free(totals->most);
    *totals = (coll_gpusym_totals_t){.ranks = 0};
}
