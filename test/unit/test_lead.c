/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of a leader's kernels: launches of random jobs over random buffers, in the descriptor and in a list, by
 * any number of blocks, compared with the same done plainly.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/plan.h"
#include "test/unit/random.h"

#define RANKS 6u
#define ROOM 6000u /* bytes of a buffer */
#define JOBS 12u

/* The ranks' buffers, as the kernel and as the reference leave them; in place, a rank's input is its output. */
typedef struct {
    uint32_t n;
    bool in_place;
    unsigned char in[RANKS][ROOM + 16], out[RANKS][ROOM + 16], want[RANKS][ROOM + 16];
    uint32_t in_skew[RANKS], out_skew[RANKS]; /* where they begin: any alignment */
} ranks_t;

static ranks_t ranks;

static uint32_t below(uint32_t n)
{
    return (uint32_t) (next_random() % n);
}

static void *identity(const void *p)
{
    return (void *) (uintptr_t) p;
}

static unsigned char *in_of(uint32_t r)
{
    return ranks.in_place ? ranks.out[r] + ranks.out_skew[r] : ranks.in[r] + ranks.in_skew[r];
}

/* The reference reads inputs that the kernel overwrites only before that: it works on copies. */
static unsigned char kept[RANKS][ROOM + 16];
static const unsigned char *in_kept(uint32_t r)
{
    return ranks.in_place ? kept[r] + ranks.out_skew[r] : ranks.in[r] + ranks.in_skew[r];
}

static unsigned char *want_of(uint32_t r)
{
    return ranks.want[r] + ranks.out_skew[r];
}

static void make_ranks(bool in_place, uint32_t unit)
{
    ranks.n = 1 + below(RANKS);
    ranks.in_place = in_place;
    for (uint32_t r = 0; r < RANKS; r++) {
        const bool aligned = 0 != below(2);
        ranks.in_skew[r] = aligned ? 0 : unit * below(16 / unit);
        ranks.out_skew[r] = aligned ? 0 : unit * below(16 / unit);
        for (uint32_t i = 0; i < sizeof ranks.in[r]; i++) {
            ranks.in[r][i] = (unsigned char) next_random();
            ranks.out[r][i] = ranks.want[r][i] = kept[r][i] = (unsigned char) next_random();
        }
    }
}

/* Adds the sources' 32-bit words up, as the kernels do: modulo 2^32. */
static void reduce_plainly(uint32_t s, uint32_t s_end, uint64_t in, uint32_t d, uint64_t out, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += 4) {
        uint32_t sum = 0, x;
        for (uint32_t r = s; r < s_end; r++) {
            memcpy(&x, in_kept(r) + in + at, 4);
            sum += x;
        }
        memcpy(want_of(d) + out + at, &sum, 4);
    }
}

static void do_plainly(const gpusym_job_t *j)
{
    for (uint32_t d = j->dst_first; d < j->dst_end; d++) {
        if (GPUSYM_JOB_REDUCE == j->form) {
            reduce_plainly(j->src_first, j->src_end, j->in_off, d, j->out_off, j->bytes);
        } else if (GPUSYM_JOB_REDUCE_EACH == j->form) {
            reduce_plainly(j->src_first, j->src_end, j->in_off + d * j->in_step, d, j->out_off, j->bytes);
        } else if (GPUSYM_JOB_SCAN == j->form) {
            reduce_plainly(j->src_first, d + 1, j->in_off, d, j->out_off, j->bytes);
        } else if (GPUSYM_JOB_EXSCAN == j->form && d > j->src_first) {
            reduce_plainly(j->src_first, d, j->in_off, d, j->out_off, j->bytes);
        }
        for (uint32_t s = j->src_first; s < j->src_end; s++) {
            const unsigned char *from = in_kept(s) + j->in_off + d * j->in_step;
            if (GPUSYM_JOB_MOVE == j->form || GPUSYM_JOB_SPREAD == j->form) {
                memcpy(want_of(d) + j->out_off + s * j->out_step, from, j->bytes);
            } else if (GPUSYM_JOB_SWAP == j->form && s < d) {
                memcpy(want_of(d) + j->out_off + s * j->out_step, from, j->bytes);
                memcpy(want_of(s) + j->in_off + d * j->in_step, in_kept(d) + j->out_off + s * j->out_step, j->bytes);
            }
        }
    }
}

/* Runs jobs by the simulator's kernels, inline or by a list. */
static void run_jobs(unsigned family, const gpusym_job_t *job, uint32_t n, bool list)
{
    static void *at[2 * RANKS];
    static gpusym_job_t jobs[JOBS];
    static uint32_t ticket[2];
    uint64_t done = 0;
    gpusym_work_t w;
    memset(&w, 0, sizeof w);
    memcpy(jobs, job, n * sizeof *job);
    w.peer[0] = ticket;
    w.done = &done;
    w.done_seq = 7;
    w.nranks = ranks.n;
    w.op = GPUSYM_OP_SUM;
    w.type = GPUSYM_T_U32;
    w.nblocks = 1 + below(5);
    w.nthreads = 32;
    w.lead = (gpusym_lead_t){.packs = gpusym_jobs_plan(jobs, n),
                             .njobs = n,
                             .nranks = (uint16_t) ranks.n,
                             .group = (uint16_t) (1u << below(7) >> 1)};
    for (uint32_t r = 0; r < ranks.n; r++) {
        w.peer_in[r] = at[r] = in_of(r);
        w.peer_out[r] = at[ranks.n + r] = ranks.out[r] + ranks.out_skew[r];
    }
    if (list) {
        w.lead.at = at;
        w.lead.jobs = jobs;
    } else {
        memcpy(w.job, jobs, n * sizeof *job);
    }
    const unsigned kernel = below(2) ? gpusym_kernel_find(family, GPUSYM_OP_SUM, GPUSYM_T_U32) : family;
    for (uint32_t b = 0; b < w.nblocks; b++) {
        assert_int_equal(done, 0);
        gpusym_kernel_sim(kernel, &w, b);
    }
    assert_true(7ull << 32 == done && 0 == ticket[0]);
}

static void compare(void)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_memory_equal(ranks.out[r], ranks.want[r], sizeof ranks.out[r]);
    }
}

/* Jobs whose outputs do not overlap: job i has bytes [i * share, (i + 1) * share) of every output. */
static void random_launch(unsigned family, uint32_t unit)
{
    static const unsigned reduces[] = {GPUSYM_JOB_REDUCE, GPUSYM_JOB_REDUCE_EACH, GPUSYM_JOB_SCAN, GPUSYM_JOB_EXSCAN};
    const bool list = 0 != below(2);
    const uint32_t n = 1 + below(list ? JOBS : GPUSYM_JOBS_MAX), share = ROOM / JOBS / 32 * 32;
    gpusym_job_t job[JOBS];
    make_ranks(false, unit);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t s = below(ranks.n), d = below(ranks.n);
        const bool reduce = GPUSYM_F_LEAD_R == family;
        const unsigned form = reduce ? reduces[below(4)] : below(2) ? GPUSYM_JOB_MOVE : GPUSYM_JOB_SPREAD;
        const bool scan = GPUSYM_JOB_SCAN == form || GPUSYM_JOB_EXSCAN == form;
        const uint32_t step = share / RANKS / unit * unit;
        const bool pieces = !reduce || GPUSYM_JOB_REDUCE_EACH == form;
        job[i] = (gpusym_job_t){.form = form,
                                .bytes = unit * (1 + below((pieces ? step : share) / unit)),
                                .in_off = unit * below(share / unit),
                                .in_step = pieces && GPUSYM_JOB_SPREAD != form ? step : 0,
                                .out_off = (uint64_t) i * share,
                                .out_step = reduce ? 0 : step,
                                .src_first = (uint16_t) s,
                                .src_end = (uint16_t) (s + 1 + below(ranks.n - s)),
                                .dst_first = (uint16_t) d,
                                .dst_end = (uint16_t) (d + 1 + below(ranks.n - d))};
        if (scan) {
            job[i].dst_first = job[i].src_first;
            job[i].dst_end = job[i].src_end;
        }
        do_plainly(&job[i]);
    }
    run_jobs(family, job, n, list);
    compare();
}

static void moves_are_right(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 3000; i++) {
        random_launch(GPUSYM_F_LEAD, 1u << below(5));
    }
}

static void reductions_are_right(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 3000; i++) {
        random_launch(GPUSYM_F_LEAD_R, below(2) ? 4 : 16);
    }
}

/* All-reduce, scan and all-to-all where each rank's input is its output. */
static void in_place(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 2000; i++) {
        const unsigned forms[] = {GPUSYM_JOB_REDUCE, GPUSYM_JOB_SCAN, GPUSYM_JOB_EXSCAN, GPUSYM_JOB_SWAP};
        const unsigned form = forms[below(4)];
        const bool swap = GPUSYM_JOB_SWAP == form;
        make_ranks(true, 4);
        gpusym_job_t job = {.form = form,
                            .bytes = 4 * (1 + below((swap ? ROOM / RANKS : ROOM) / 4)),
                            .src_end = (uint16_t) ranks.n,
                            .dst_end = (uint16_t) ranks.n};
        job.in_step = job.out_step = swap ? job.bytes : 0;
        do_plainly(&job);
        run_jobs(swap ? GPUSYM_F_LEAD : GPUSYM_F_LEAD_R, &job, 1, 0 != below(2));
        compare();
    }
}

/* A rank without an input or an output is passed over. */
static void absent_buffers(void **state)
{
    (void) state;
    static uint32_t ticket[2];
    unsigned char in[64], out[64] = {0};
    uint64_t done = 0;
    gpusym_work_t w;
    memset(in, 5, sizeof in);
    memset(&w, 0, sizeof w);
    w.peer[0] = ticket;
    w.done = &done;
    w.done_seq = 1;
    w.nranks = 3;
    w.nblocks = w.nthreads = 1;
    w.peer_in[0] = in;
    w.peer_out[2] = out;
    w.job[0] = (gpusym_job_t){.form = GPUSYM_JOB_MOVE, .bytes = 20, .src_end = 3, .dst_end = 3, .out_step = 20};
    w.lead = (gpusym_lead_t){.packs = gpusym_jobs_plan(w.job, 1), .njobs = 1, .nranks = 3};
    assert_int_equal(w.lead.packs, 9 * 2);
    gpusym_kernel_sim(GPUSYM_F_LEAD, &w, 0);
    assert_int_equal(done, 1ull << 32);
    for (unsigned i = 0; i < sizeof out; i++) {
        assert_int_equal(out[i], i < 20 ? 5 : 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_are_right),
        cmocka_unit_test(reductions_are_right),
        cmocka_unit_test(in_place),
        cmocka_unit_test(absent_buffers),
    };
    random_start(argc, argv);
    gpusym_kernel_sim_reach = identity;
    return cmocka_run_group_tests_name("lead", tests, NULL, NULL);
}
