/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/agree/notices.c: ranks are processes, which map each other's lines first.
 * A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mca/common/gpusym/agree/notices.h"
#include "mca/common/gpusym/agree/agreement.h"
#include "test/unit/random.h"

#define RANKS 4
#define COMMS 12
#define RECORDS 60

/* What all processes of a test share. */
typedef struct {
    int32_t pid[RANKS];
    gpusym_pages_id_t pages[RANKS];
    uint64_t line[RANKS]; /* of the communicator that is being made */
    uint32_t arrived;     /* at barriers, in all */
} shared_t;

/* A rank in one communicator. */
typedef struct {
    gpusym_notices_t notices;
    gpusym_agreement_t rc;
    gpusym_peer_t *peer[RANKS];
    uint64_t off;
} comm_t;

static uint32_t barriers; /* that this rank has come to */

/* Waits until all have come. */
static void barrier(shared_t *s, uint32_t ranks)
{
    barriers++;
    __atomic_fetch_add(&s->arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&s->arrived, __ATOMIC_ACQUIRE) < barriers * ranks) {
        sched_yield();
    }
}

/* All ranks open it together, and none goes on before all have mapped the lines. */
static bool open_comm(comm_t *c, shared_t *s, uint32_t nranks, uint32_t rank)
{
    *c = (comm_t){.rc = {.nranks = nranks, .rank = rank}};
    bool ok = GPUSYM_SUCCESS == gpusym_pages_open(&s->pages[rank]) && GPUSYM_SUCCESS == gpusym_pages_alloc(&c->off) &&
              GPUSYM_SUCCESS == gpusym_notices_open(&c->notices, nranks, gpusym_pages_line(c->off));
    s->line[rank] = c->off;
    barrier(s, nranks);
    c->rc.line = calloc(nranks, sizeof *c->rc.line);
    c->rc.generation = calloc(nranks, sizeof *c->rc.generation);
    ok = ok && NULL != c->rc.line && NULL != c->rc.generation;
    for (uint32_t r = 0; ok && r < nranks; r++) {
        ok = GPUSYM_SUCCESS == gpusym_pages_peer(&s->pages[r], &c->peer[r]);
        c->rc.line[r] = ok ? gpusym_peer_line(c->peer[r], s->line[r]) : NULL;
        ok = ok && NULL != c->rc.line[r];
        c->rc.generation[r] = ok ? gpusym_line_generation(c->rc.line[r]) : 0;
    }
    barrier(s, nranks);
    return ok;
}

static void leave_comm(comm_t *c)
{
    gpusym_agreement_retire(&c->rc, c->off, c->notices.off);
}

static bool read_all(comm_t *c, void *all, uint32_t bytes)
{
    return gpusym_notices_read(&c->notices, c->rc.line, c->peer, all, bytes);
}

/* What a rank writes. */
static void fill_record(unsigned char *record, uint32_t bytes, uint64_t comm, uint64_t count, uint32_t rank)
{
    for (uint32_t i = 0; i < bytes; i++) {
        record[i] = (unsigned char) (comm * 31 + count * 7 + rank * 101 + i);
    }
}

static bool exchange_record(comm_t *c, uint64_t comm, uint64_t count)
{
    unsigned char all[RANKS][GPUSYM_NOTICE_MAX], mine[GPUSYM_NOTICE_MAX], want[GPUSYM_NOTICE_MAX];
    const uint32_t bytes = 1 + (uint32_t) ((comm * 77 + count * 13) % GPUSYM_NOTICE_MAX);
    const uint32_t rank = c->rc.rank;

    fill_record(mine, bytes, comm, count, rank);
    gpusym_notices_write(&c->notices, mine, bytes);
    while (!read_all(c, all, bytes)) {
        sched_yield();
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        fill_record(want, bytes, comm, count, r);
        if (0 != memcmp((unsigned char *) all + (size_t) r * bytes, want, bytes)) {
            return false;
        }
    }
    return true;
}

/* One communicator after the other, whose lines and boards are used again. */
static bool exchange_all(shared_t *s, uint32_t rank)
{
    bool ok = true;
    for (uint32_t comm = 0; ok && comm < COMMS; comm++) {
        comm_t c;
        if (0 == next_random() % 3) {
            usleep((useconds_t) (next_random() % 5000));
        }
        ok = open_comm(&c, s, RANKS, rank);
        for (uint64_t count = 0; ok && count < RECORDS; count++) {
            if (0 == next_random() % 16) {
                usleep((useconds_t) (next_random() % 300));
            }
            ok = exchange_record(&c, comm, count);
        }
        leave_comm(&c); /* others may not have read the last record */
    }
    return ok;
}

/* Rank 0 reads the last record of rank 1 and leaves, long before rank 1 reads its own; what it allocates meanwhile
 * takes nothing of it. */
static bool leave_early(shared_t *s, uint32_t rank)
{
    comm_t c;
    uint32_t all[2], word = 7 + rank, record[GPUSYM_NOTICE_MAX / sizeof(uint32_t)] = {0};
    bool ok = open_comm(&c, s, 2, rank);
    const uint64_t off = c.off, board = c.notices.off;

    if (ok) {
        gpusym_notices_write(&c.notices, &word, sizeof word);
    }
    if (0 == rank) {
        while (ok && !read_all(&c, all, sizeof word)) {
            sched_yield();
        }
        leave_comm(&c);
        for (int i = 0; ok && i < 20; i++) {
            gpusym_notices_t other;
            uint64_t line;
            ok = GPUSYM_SUCCESS == gpusym_pages_alloc(&line) && line != off &&
                 GPUSYM_SUCCESS == gpusym_notices_open(&other, 1, gpusym_pages_line(line)) && other.off != board;
            for (int k = 0; ok && k < 3; k++) {
                gpusym_notices_write(&other, record, sizeof record);
            }
        }
    }
    barrier(s, 2); /* rank 0 is gone */
    if (1 == rank) {
        ok = ok && read_all(&c, all, sizeof word);
        leave_comm(&c);
    }
    ok = ok && 7 == all[0] && 8 == all[1];
    barrier(s, 2); /* and rank 1: now line and board serve again */
    if (0 == rank) {
        uint64_t line;
        gpusym_notices_t other;
        ok = ok && GPUSYM_SUCCESS == gpusym_pages_alloc(&line) && line == off &&
             GPUSYM_SUCCESS == gpusym_notices_open(&other, 1, gpusym_pages_line(line)) && other.off == board;
    }
    barrier(s, 2);
    return ok;
}

/* A rank that has not written a record is not read, and is once it has. */
static bool write_late(shared_t *s, uint32_t rank)
{
    comm_t c;
    uint32_t all[2], word = 7 + rank;
    bool ok = open_comm(&c, s, 2, rank);
    if (ok && 1 == rank) {
        gpusym_notices_write(&c.notices, &word, sizeof word);
        ok = !read_all(&c, all, sizeof word);
    }
    barrier(s, 2);
    if (ok && 0 == rank) {
        gpusym_notices_write(&c.notices, &word, sizeof word);
    }
    barrier(s, 2);
    ok = ok && read_all(&c, all, sizeof word) && 7 == all[0] && 8 == all[1];
    leave_comm(&c);
    return ok;
}

/* Runs `play` as each of n ranks; all return true. */
static void run_ranks(uint32_t n, bool (*play)(shared_t *s, uint32_t rank))
{
    shared_t *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(MAP_FAILED != s);
    for (uint32_t r = 0; r < n; r++) {
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (0 == pid) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            random_state += r;
            _exit(play(s, r) ? 0 : 1);
        }
        s->pid[r] = pid;
    }
    for (uint32_t r = 0; r < n; r++) {
        int status;
        assert_int_equal(waitpid(s->pid[r], &status, 0), s->pid[r]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    munmap(s, sizeof *s);
}

static void records_are_exchanged(void **state)
{
    (void) state;
    run_ranks(RANKS, exchange_all);
}

static void a_rank_that_is_gone_is_read(void **state)
{
    (void) state;
    run_ranks(2, leave_early);
}

static void a_rank_is_read_once_it_has_written(void **state)
{
    (void) state;
    run_ranks(2, write_late);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_exchanged),
        cmocka_unit_test(a_rank_that_is_gone_is_read),
        cmocka_unit_test(a_rank_is_read_once_it_has_written),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("notices", tests, NULL, NULL);
}
