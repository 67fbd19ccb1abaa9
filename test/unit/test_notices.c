/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/agree/notices.c: ranks are processes, which know of each other the process id alone.
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
#include "test/unit/random.h"

#define RANKS 4
#define COMMS 12
#define RECORDS 60

/* What all processes of a test share. */
typedef struct {
    int32_t pid[RANKS];
    uint32_t arrived; /* at barriers, in all */
} shared_t;

/* A rank in one communicator. */
typedef struct {
    gpusym_notices_t notices;
    uint64_t line;
} comm_t;

/* Waits until all have come n times. */
static void barrier(shared_t *s, uint32_t ranks, uint32_t n)
{
    __atomic_fetch_add(&s->arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&s->arrived, __ATOMIC_ACQUIRE) < n * ranks) {
        sched_yield();
    }
}

static bool open_comm(comm_t *c, const shared_t *s, uint32_t nranks, uint32_t rank, uint64_t key)
{
    if (GPUSYM_SUCCESS != gpusym_pages_alloc(&c->line) ||
        GPUSYM_SUCCESS != gpusym_notices_open(&c->notices, nranks, rank, key, gpusym_pages_line(c->line), s->pid)) {
        return false;
    }
    gpusym_line_name(gpusym_pages_line(c->line), key, "");
    return true;
}

static void close_comm(comm_t *c)
{
    gpusym_pages_free(c->line);
    gpusym_notices_close(&c->notices);
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
    const uint32_t rank = c->notices.rank;

    fill_record(mine, bytes, comm, count, rank);
    gpusym_notices_write(&c->notices, mine, bytes);
    while (!gpusym_notices_read(&c->notices, all, bytes)) {
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
        ok = open_comm(&c, s, RANKS, rank, 1000 + comm);
        for (uint64_t count = 0; ok && count < RECORDS; count++) {
            if (0 == next_random() % 16) {
                usleep((useconds_t) (next_random() % 300));
            }
            ok = exchange_record(&c, comm, count);
        }
        barrier(s, RANKS, comm + 1); /* all have read the last record */
        close_comm(&c);
    }
    return ok;
}

/* Whether a rank's records come within 20 ms. */
static bool is_read_soon(comm_t *c, uint32_t *all)
{
    for (int i = 0; i < 20; i++) {
        if (gpusym_notices_read(&c->notices, all, sizeof *all)) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

/* Rank 0 leaves after one record, and its line and board serve another communicator, with records enough. Rank 1 does
 * not take these for its own; nor does it find a rank that has never come. */
static bool leave_early(shared_t *s, uint32_t rank)
{
    comm_t c, other;
    uint32_t all[2], word = 7 + rank;
    bool ok = open_comm(&c, s, 2, rank, 5);
    gpusym_notices_write(&c.notices, &word, sizeof word);
    while (ok && !gpusym_notices_read(&c.notices, all, sizeof word)) {
        sched_yield();
    }
    ok = ok && 7 == all[0] && 8 == all[1];
    barrier(s, 2, 1);
    if (0 == rank) {
        const uint64_t line = c.line, board = c.notices.off;
        close_comm(&c);
        ok = ok && open_comm(&other, s, 1, 0, 6) && line == other.line && board == other.notices.off;
        for (int i = 0; ok && i < 5; i++) {
            gpusym_notices_write(&other.notices, &word, sizeof word);
        }
        barrier(s, 2, 2);
    } else {
        barrier(s, 2, 2);
        gpusym_notices_write(&c.notices, &word, sizeof word);
        ok = ok && !is_read_soon(&c, all);
        ok = ok && open_comm(&other, s, 2, rank, 9); /* which rank 0 never enters */
        gpusym_notices_write(&other.notices, &word, sizeof word);
        ok = ok && !is_read_soon(&other, all);
    }
    barrier(s, 2, 3);
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
            gpusym_pages_id_t id;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            random_state += r;
            for (uint32_t i = 0; i < n; i++) {
                while (0 == __atomic_load_n(&s->pid[i], __ATOMIC_ACQUIRE)) {
                    sched_yield();
                }
            }
            usleep((useconds_t) (next_random() % 5000)); /* the others look for pages that are not there yet */
            const bool ok = GPUSYM_SUCCESS == gpusym_pages_open(&id) && play(s, r);
            _exit(ok ? 0 : 1);
        }
        __atomic_store_n(&s->pid[r], pid, __ATOMIC_RELEASE);
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

static void a_rank_that_is_gone_is_not_read(void **state)
{
    (void) state;
    run_ranks(2, leave_early);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_exchanged),
        cmocka_unit_test(a_rank_that_is_gone_is_not_read),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("notices", tests, NULL, NULL);
}
