/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of what mca/common/gpusym/agree/agreement.c tells of a process that does not come: where it was last, read
 * from the pages of a child, which are found by its process id alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mca/common/gpusym/agree/agreement.h"
#include "test/hang.h"

enum { KEY_FIRST = 11, KEY_SECOND = 22, KEY_NONE = 33, BCAST = 5, REDUCE = 6 };

typedef struct {
    pid_t pid;
    int to, from; /* a byte each way */
} child_t;

static void hear(int fd)
{
    char byte;
    assert_int_equal(read(fd, &byte, 1), 1);
}

/* The child: one line for each byte that it gets, until there are no more. */
typedef struct {
    gpusym_line_t *line[2];
    gpusym_peer_t *peer[2];
    uint64_t life[2], off[2];
    gpusym_agreement_t rc[2];
} comms_t;

static bool comm_make(comms_t *c, const gpusym_pages_id_t *id, int i, uint64_t key, const char *label)
{
    if (GPUSYM_SUCCESS != gpusym_pages_alloc(&c->off[i]) || GPUSYM_SUCCESS != gpusym_pages_peer(id, &c->peer[i])) {
        return false;
    }
    c->line[i] = gpusym_pages_line(c->off[i]);
    c->rc[i] = (gpusym_agreement_t){.nranks = 1, .line = &c->line[i], .peer = &c->peer[i]};
    gpusym_line_name(c->line[i], key, label, i, 2);
    return true;
}

static bool comm_post(comms_t *c, int i, uint8_t what)
{
    gpusym_agreement_read_t posted;
    const gpusym_post_t post = {.kind = GPUSYM_KIND_NATIVE, .what = what};
    usleep(20000); /* a tick of the clock that stamps */
    return gpusym_agreement_post(&c->rc[i], &post, &posted);
}

/* What the child does before each of its answers. */
static bool child_step(comms_t *c, int step)
{
    gpusym_pages_id_t id;
    switch (step) {
    case 0: /* no pages yet */
        return true;
    case 1:
        return GPUSYM_SUCCESS == gpusym_pages_open(&id) && comm_make(c, &id, 0, KEY_FIRST, "first (cid 1)");
    case 2:
        gpusym_line_step(c->line[0], 3, 2);
        gpusym_line_say(c->line[0], 77);
        return GPUSYM_SUCCESS == gpusym_pages_open(&id) && comm_make(c, &id, 1, KEY_SECOND, "second (cid 2)") &&
               comm_post(c, 1, REDUCE) && comm_post(c, 1, REDUCE) && comm_post(c, 0, BCAST);
    case 3:
        return comm_post(c, 1, REDUCE);
    case 4: /* it leaves: no peer looks for that communicator here any more */
        gpusym_pages_free(c->off[0]);
        return true;
    default:
        return false;
    }
}

static void child_main(int from, int to)
{
    comms_t c;
    char byte;
    memset(&c, 0, sizeof c);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int step = 0; child_step(&c, step) && 1 == write(to, "x", 1) && 1 == read(from, &byte, 1); step++) {
    }
    _exit(0);
}

static child_t child_start(void)
{
    int down[2], up[2];
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    const child_t child = {fork(), down[1], up[0]};
    assert_true(child.pid >= 0);
    if (0 == child.pid) {
        close(down[1]);
        close(up[0]);
        child_main(down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    hear(child.from);
    return child;
}

static void child_goes_on(const child_t *child)
{
    assert_int_equal(write(child->to, "x", 1), 1);
    hear(child->from);
}

static void a_process_is_seen_where_it_was_last(void **state)
{
    gpusym_peer_t *peer, *again;
    gpusym_seen_t seen;

    (void) state;
    const child_t child = child_start();
    assert_int_equal(gpusym_pages_find(child.pid, &peer), GPUSYM_ERR_NOT_AVAILABLE);

    child_goes_on(&child);
    assert_int_equal(gpusym_pages_find(child.pid, &peer), GPUSYM_SUCCESS);
    assert_int_equal(gpusym_pages_find(child.pid, &again), GPUSYM_SUCCESS);
    assert_ptr_equal(peer, again);
    assert_int_equal(gpusym_peer_pid(peer), child.pid);
    gpusym_peer_seen(peer, KEY_FIRST, &seen);
    assert_true(seen.begun);
    assert_int_equal(seen.step, 0);
    assert_int_equal(seen.what, -1);
    assert_string_equal(seen.label, "first (cid 1)");
    gpusym_peer_seen(peer, KEY_SECOND, &seen);
    assert_false(seen.begun);

    child_goes_on(&child);
    gpusym_peer_seen(peer, KEY_FIRST, &seen);
    assert_true(seen.begun);
    assert_int_equal(seen.step, 3);
    assert_int_equal(seen.said, 77);
    assert_int_equal(seen.what, BCAST);
    assert_string_equal(seen.label, "first (cid 1)");
    assert_true(seen.age_ns < hang_s() * 1000000000ull);

    child_goes_on(&child);
    gpusym_peer_seen(peer, KEY_NONE, &seen);
    assert_false(seen.begun);
    assert_int_equal(seen.what, REDUCE);
    assert_string_equal(seen.label, "second (cid 2)");
    usleep(60000);
    gpusym_peer_seen(peer, KEY_SECOND, &seen);
    assert_true(seen.begun);
    assert_true(seen.age_ns >= 40000000u);

    child_goes_on(&child);
    gpusym_peer_seen(peer, KEY_FIRST, &seen);
    assert_false(seen.begun);

    close(child.to);
    close(child.from);
    assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
    assert_int_equal(gpusym_pages_find(child.pid, &peer), GPUSYM_ERR_UNREACHABLE);
    gpusym_pages_close();
}

/* Sequences are known modulo 2^16 alone, here and there. */
static void the_last_call_is_counted(void **state)
{
    gpusym_pages_id_t id;
    gpusym_peer_t *peer[2];
    gpusym_line_t *line[2];
    gpusym_agreement_t rc[2];
    gpusym_agreement_read_t posted;
    const gpusym_post_t post = {.kind = GPUSYM_KIND_NATIVE};

    (void) state;
    assert_int_equal(gpusym_pages_open(&id), GPUSYM_SUCCESS);
    for (uint32_t r = 0; r < 2; r++) {
        uint64_t off;
        assert_int_equal(gpusym_pages_alloc(&off), GPUSYM_SUCCESS);
        assert_int_equal(gpusym_pages_peer(&id, &peer[r]), GPUSYM_SUCCESS);
        line[r] = gpusym_pages_line(off);
        rc[r] = (gpusym_agreement_t){.nranks = 2, .rank = r, .line = line, .peer = peer};
    }
    assert_int_equal(gpusym_agreement_last(&rc[0], 1), 0);
    for (uint64_t call = 1; call <= 140000; call++) {
        assert_true(gpusym_agreement_post(&rc[0], &post, &posted));
        assert_int_equal(gpusym_agreement_last(&rc[0], 0), call);
        assert_int_equal(gpusym_agreement_last(&rc[0], 1), call - 1);
        assert_false(gpusym_agreement_has_posted(&rc[0], 1, call));
        assert_false(gpusym_agreement_has_voted(&rc[0], 0, call));
        gpusym_agreement_vote(&rc[0], call, true);
        assert_true(gpusym_agreement_has_voted(&rc[1], 0, call));
        assert_true(gpusym_agreement_post(&rc[1], &post, &posted));
        assert_int_equal(gpusym_agreement_last(&rc[0], 1), call);
        assert_true(gpusym_agreement_has_posted(&rc[0], 1, call));
    }
    gpusym_pages_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_is_seen_where_it_was_last),
        cmocka_unit_test(the_last_call_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
