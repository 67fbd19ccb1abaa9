/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of messages: see p2p_rows.h.
 */
#include <stdio.h>
#include <string.h>

#include "bench/output.h"
#include "bench/p2p_goals.h"
#include "bench/p2p_rows.h"
#include "bench/ranks.h"
#include "test/mpi/mem.h"

static bool goals_count, kernels_stay;

bench_p2p_row_t bench_p2p_row(const char *what, int from, int to, size_t bytes)
{
    bench_p2p_row_t row = {
        .what = what, .from = from, .to = to, .bytes = bytes, .from_kind = -1, .to_kind = -1, .amount = -1, .unit = ""};

    for (int by = 0; by < BENCH_BYS; by++) {
        row.speeds[by] = (bench_speed_t){-1, -1, 0};
    }
    return row;
}

void bench_p2p_head(bool judged, bool resident)
{
    char line[256];

    goals_count = judged;
    kernels_stay = resident;
    snprintf(line, sizeof(line),
             "%-13s %4s %4s %10s %10s %10s %10s %8s %10s %8s %10s %8s %6s %10s %11s %6s %6s %11s %6s %7s %s", "what",
             "from", "to", "bytes", "memory", "to memory", "us", "GB/s", "NCCL us", "GB/s", "stream us", "GB/s",
             "ratio", "amount", "unit", "wrong", "goal", "unit", "limit", "reached", "way");
    bench_head(line, "what,from,to,bytes,from_memory,to_memory,us,GBs,nccl_us,nccl_GBs,nccl_stream_us,nccl_stream_GBs,"
                     "nccl_over_gpusym,amount,amount_unit,wrong_bytes,goal,goal_unit,limit,reached,way,"
                     "wrong_bytes_of_nccl");
}

/* The figure of a row that a goal in this unit is for; negative: not measured. */
static double find_figure(const bench_p2p_row_t *row, const char *unit)
{
    const bench_speed_t *s = &row->speeds[BENCH_BY_MPI];

    return 0 == strcmp(unit, "us")                            ? s->us
           : 0 == strcmp(unit, "ms")                          ? s->us / 1e3
           : 0 == strcmp(unit, "GB/s")                        ? s->gbs
           : row->amount >= 0 && 0 == strcmp(unit, row->unit) ? row->amount
                                                              : -1;
}

static void print_goal(const bench_p2p_row_t *row)
{
    const bench_p2p_goal_t *g = bench_p2p_goal(row->what, row->bytes, row->unit, kernels_stay);
    const double figure = NULL == g ? -1 : find_figure(row, g->unit);

    bench_cell(6, NULL != g && g->goal > 0 && g->goal < 1 ? 1 : 0, NULL == g ? -1 : g->goal, false);
    bench_word(11, NULL == g ? "" : g->unit);
    bench_cell(6, NULL != g && g->limit < 10 ? 1 : 0, NULL == g ? -1 : g->limit, false);
    bench_word(7, NULL == g || !goals_count || figure < 0                                                     ? ""
                  : bench_p2p_reached(g, figure, row->speeds[BENCH_BY_MPI].us, row->speeds[BENCH_BY_NCCL].us) ? "yes"
                                                                                                              : "no");
}

static void print_kinds(const bench_p2p_row_t *row)
{
    const char *from = mem_name(row->from_kind), *to = mem_name(row->to_kind);

    bench_word(10, NULL == from ? "" : from);
    bench_word(10, NULL == to ? "" : to);
}

unsigned long long bench_p2p_print(const bench_p2p_row_t *row)
{
    const bench_speed_t *mpi = &row->speeds[BENCH_BY_MPI], *nccl = &row->speeds[BENCH_BY_NCCL];
    const unsigned long long of_nccl = nccl->wrong + row->speeds[BENCH_BY_STREAM].wrong;

    if (0 != bench_rank) {
        return mpi->wrong + of_nccl;
    }
    bench_word(-13, row->what);
    bench_cell(4, 0, row->from, false);
    bench_cell(4, 0, row->to, false);
    bench_cell(10, 0, 0 == row->bytes ? -1 : (double) row->bytes, false);
    print_kinds(row);
    for (int by = 0; by < BENCH_BYS; by++) {
        bench_cell(10, 2, row->speeds[by].us, false);
        bench_cell(8, 3, row->speeds[by].gbs, false);
    }
    bench_cell(6, 2, nccl->us < 0 || mpi->us < 0 ? -1 : nccl->us / mpi->us, false);
    bench_cell(10, 2, row->amount, false);
    bench_word(11, row->unit);
    bench_cell(6, 0, mpi->us < 0 ? -1 : (double) mpi->wrong, false);
    print_goal(row);
    bench_word(-1, row->way);
    bench_cell(0, 0, (double) of_nccl, true);
    return mpi->wrong + of_nccl;
}
