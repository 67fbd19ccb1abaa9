/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of what leaders of islands tell each other as they give up (mca/coll/gpusym/team/watch.c, hosts.c): three
 * ranks, each an island of its own, in this process, with one worker, over a net without hosts. No step of a call waits
 * for the worker's lock: what cannot be told at once is told by the helper thread, or as the communicator is closed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/hosts.h"
#include "mca/coll/gpusym/team/part.h"
#include "mca/coll/gpusym/team/rails.h"
#include "mca/coll/gpusym/team/watch.h"
#include "test/unit/net_fake.h"

#define RANKS 3u
#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)

/* ---- in the place of other files ---- */

coll_gpusym_params_t coll_gpusym_params;
static gpusym_worker_t *worker;

gpusym_worker_t *coll_gpusym_worker(void)
{
    return worker;
}
gpusym_worker_t *coll_gpusym_worker_open(coll_gpusym_peer_t *const *peer, uint32_t n)
{
    (void) peer, (void) n;
    return worker;
}
void coll_gpusym_worker_fini(void)
{
    gpusym_worker_close(worker);
}
bool coll_gpusym_peers_near(const coll_gpusym_peer_t *a, const coll_gpusym_peer_t *b)
{
    (void) a, (void) b;
    return false;
}
bool coll_gpusym_peer_lives(coll_gpusym_peer_t *p)
{
    (void) p;
    return true;
}
void coll_gpusym_hosts_settle_pieces(coll_gpusym_team_t *t)
{
    (void) t;
}

void coll_gpusym_hosts_forgo(coll_gpusym_hosts_t *h)
{
    (void) h;
}

unsigned coll_gpusym_hosts_open_rails(coll_gpusym_team_t *t)
{
    (void) t;
    return 0;
}
bool coll_gpusym_hosts_close_rails(coll_gpusym_hosts_t *h)
{
    (void) h;
    return true;
}
void coll_gpusym_hosts_free_rails(coll_gpusym_hosts_t *h)
{
    (void) h;
}

/* ---- three leaders ---- */

/* Time goes on when the net has nothing to do. All use it with the worker's lock held. */
static bool progress(gpusym_net_t *net)
{
    return net_fake.progress(net) || net_fake_step();
}

static ompi_group_t group = {.grp_proc_count = RANKS};
static struct {
    ompi_communicator_t comm;
    coll_gpusym_fallback_t fallback;
    coll_gpusym_team_t team;
    coll_gpusym_peer_t *all[RANKS];
    gpusym_line_t line, *lines[1];
} leader[RANKS];

static void open_leader(uint32_t r)
{
    static const uint64_t hosts[RANKS] = {1, 2, 3};
    const gpusym_islands_of_t of = {.nranks = RANKS, .host = hosts};
    coll_gpusym_team_t *t = &leader[r].team;
    size_t bytes;
    const void *address = gpusym_worker_address(worker, &bytes);
    const uint32_t room = (uint32_t) (bytes + 7) / 8 * 8;
    coll_gpusym_host_card_t *cards = calloc(RANKS, sizeof *cards + room);
    assert_non_null(cards);
    memset(&leader[r], 0, sizeof leader[r]);
    leader[r].comm.c_local_group = &group;
    leader[r].comm.c_my_rank = (int) r;
    leader[r].fallback.comm = &leader[r].comm;
    leader[r].lines[0] = &leader[r].line;
    t->fallback = &leader[r].fallback;
    t->all = leader[r].all;
    t->island = r;
    t->host.nranks = t->host.rc.nranks = 1;
    t->host.rc.line = leader[r].lines;
    assert_true(gpusym_islands_make(&of, &t->islands));
    for (uint32_t p = 0; p < RANKS; p++) {
        cards->room = room; /* of the first one, by which the others are found */
        coll_gpusym_host_card_t *card = coll_gpusym_card(cards, p);
        *card = (coll_gpusym_host_card_t){.token = p + 1, .bytes = (uint32_t) bytes, .room = room};
        memcpy(card->address, address, bytes);
    }
    OK(coll_gpusym_hosts_open(t, cards));
}

static int setup(void **state)
{
    static gpusym_transport_t transport;
    const char *why = "";
    (void) state;
    transport = net_fake;
    transport.progress = progress;
    net_fake_start(&(net_fake_params_t){.seed = 1});
    OK(gpusym_worker_open(&(gpusym_worker_params_t){.transport = &transport, .bytes = 1 << 20}, &worker, &why));
    for (uint32_t r = 0; r < RANKS; r++) {
        open_leader(r);
    }
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    for (uint32_t r = 0; r < RANKS; r++) {
        coll_gpusym_hosts_close(&leader[r].team, true);
        gpusym_islands_free(&leader[r].team.islands);
    }
    coll_gpusym_hosts_fini();
    return 0;
}

/* Polls as calls do that wait, until a rank hears of a loss. */
static void await_lost(uint32_t r, int lost, bool silent)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    const char *why;
    int heard;
    while ((heard = coll_gpusym_hosts_lost(&leader[r].team, &why)) < 0) {
        nanosleep(&ms, NULL);
    }
    assert_int_equal(heard, lost);
    assert_int_equal(coll_gpusym_hosts_silent == why, silent);
}

/* Gives up while another thread has the lock. */
static void give_up(uint32_t r, int lost)
{
    gpusym_worker_enter_wait(worker);
    coll_gpusym_hosts_abort(&leader[r].team, lost, NULL);
    gpusym_worker_leave(worker);
}

/* ---- tests ---- */

/* With all ranks of an island from which nothing comes, or one rank alone. */
static void tell_at_once(const char *given)
{
    const char *why = "";
    coll_gpusym_hosts_abort(&leader[0].team, 2, given);
    assert_int_equal(coll_gpusym_hosts_blamed(&leader[0].team, 0, &why), 2);
    assert_int_equal(coll_gpusym_hosts_silent == why, coll_gpusym_hosts_silent == given);
    await_lost(1, 2, coll_gpusym_hosts_silent == given);
}

static void at_once(void **state)
{
    (void) state;
    tell_at_once("it has died");
}

static void of_a_silent_island(void **state)
{
    (void) state;
    tell_at_once(coll_gpusym_hosts_silent);
}

static void by_the_helper(void **state)
{
    (void) state;
    give_up(0, 2);
    await_lost(1, 2, false);
}

/* No rank is known to be lost: its leader stands for the island that gave up. */
static void for_nobody(void **state)
{
    const char *why;
    (void) state;
    give_up(1, -1);
    assert_int_equal(coll_gpusym_hosts_blamed(&leader[1].team, 0, &why), -1);
    await_lost(0, 1, false);
}

/* No helper thread has a turn, and no call polls again. */
static void by_closing(void **state)
{
    coll_gpusym_hosts_t *h = leader[0].team.hosts;
    (void) state;
    gpusym_worker_enter_wait(worker);
    gpusym_worker_remove_task(worker, &h->task);
    h->has_task = false;
    gpusym_worker_leave(worker);
    give_up(0, 2);
    coll_gpusym_hosts_close(&leader[0].team, true);
    await_lost(1, 2, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(of_a_silent_island, setup, teardown),
        cmocka_unit_test_setup_teardown(by_the_helper, setup, teardown),
        cmocka_unit_test_setup_teardown(for_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(by_closing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
