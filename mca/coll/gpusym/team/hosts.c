/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What ranks of several islands share: see hosts.h.
 */
#include "mca/coll/gpusym/team/hosts.h"

#include <stdlib.h>

#include "mca/coll/gpusym/team/islands.h"
#include "mca/coll/gpusym/team/part.h"
#include "mca/coll/gpusym/team/rails.h"
#include "mca/coll/gpusym/team/watch.h"

/* Communicators that were freed, whose leaders still answer. With the worker's lock held. */
static coll_gpusym_hosts_t *closed;

/* ---- closing ---- */

/* Of a communicator that was freed: closes what can be. Whether that is all; it is freed then. */
static bool end_hosts(coll_gpusym_hosts_t *h)
{
    const bool rails = coll_gpusym_hosts_close_rails(h);
    if (NULL != h->records && (!h->used || gpusym_records_left(h->records)) && gpusym_records_close(h->records)) {
        h->records = NULL;
    }
    if (!rails || NULL != h->records) {
        return false;
    }
    if (h->has_task) {
        gpusym_worker_remove_task(h->worker, &h->task);
    }
    coll_gpusym_part_put(h);
    coll_gpusym_hosts_t **at = &closed;
    while (*at != h) {
        at = &(*at)->next;
    }
    *at = h->next;
    coll_gpusym_part_free(h);
    return true;
}

/* Of the helper thread. */
static bool poll_hosts(void *arg)
{
    coll_gpusym_hosts_t *h = arg;
    int rc;
    const bool open = NULL != h->records && gpusym_records_poll(h->records, &rc);
    if (NULL != h->records && NULL != h->team) {
        coll_gpusym_hosts_watch(h);
    }
    return NULL == h->team ? !end_hosts(h) || open : open;
}

/* Ends the communicators that were freed, as far as the others have left them: a program that makes many would have
 * many of them. With the lock held. */
static void sweep_closed(void)
{
    coll_gpusym_hosts_t *next;
    int rc;
    for (coll_gpusym_hosts_t *h = closed; NULL != h; h = next) {
        next = h->next;
        if (NULL != h->records) {
            (void) gpusym_records_poll(h->records, &rc);
        }
        (void) end_hosts(h);
    }
}

static int add_task(coll_gpusym_hosts_t *h)
{
    int rc = GPUSYM_SUCCESS;
    if (!h->has_task) {
        h->task = (gpusym_worker_task_t){.poll = poll_hosts, .arg = h};
        rc = gpusym_worker_add_task(h->worker, &h->task);
        h->has_task = GPUSYM_SUCCESS == rc;
    }
    return rc;
}

void coll_gpusym_hosts_close(coll_gpusym_team_t *t, bool used)
{
    coll_gpusym_hosts_t *h = t->hosts;
    if (NULL == h) {
        return;
    }
    gpusym_worker_t *w = h->worker;
    gpusym_worker_enter_wait(w); /* the helper thread reads what follows */
    t->hosts = NULL;
    h->last_seq = t->host.rc.seq;
    h->seq = &h->last_seq;
    h->team = NULL;
    h->used = used;
    coll_gpusym_hosts_forgo(h);
    if (NULL != h->records && used) {
        coll_gpusym_hosts_pass_on(h); /* who has left tells nothing more */
        gpusym_records_leave(h->records);
    }
    h->next = closed;
    closed = h;
    if (!end_hosts(h)) {
        (void) add_task(h); /* without a thread, the next communicator of several islands closes it */
    }
    gpusym_worker_leave(w);
}

void coll_gpusym_hosts_fini(void)
{
    coll_gpusym_worker_fini();
    while (NULL != closed) {
        coll_gpusym_hosts_t *h = closed;
        closed = h->next;
        coll_gpusym_hosts_free_rails(h);
        gpusym_records_free(h->records);
        coll_gpusym_part_free(h);
    }
}

/* ---- set-up ---- */

int coll_gpusym_hosts_open(coll_gpusym_team_t *t, coll_gpusym_host_card_t *cards)
{
    coll_gpusym_hosts_t *h = t->hosts = coll_gpusym_part_create(t, cards);
    if (NULL == h) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    gpusym_worker_enter_wait(h->worker);
    sweep_closed();
    coll_gpusym_hosts_settle_pieces(t);
    int rc = 0 == t->host.rank ? coll_gpusym_hosts_open_records(h) : GPUSYM_SUCCESS;
    if (GPUSYM_SUCCESS == rc && 0 == t->host.rank) {
        rc = add_task(h); /* a leader must answer while the program is elsewhere */
    }
    gpusym_worker_leave(h->worker);
    return rc;
}

unsigned coll_gpusym_hosts_reserve(coll_gpusym_team_t *t)
{
    gpusym_worker_enter_wait(t->hosts->worker);
    sweep_closed();
    const unsigned has = coll_gpusym_hosts_open_rails(t);
    gpusym_worker_leave(t->hosts->worker);
    return has;
}
