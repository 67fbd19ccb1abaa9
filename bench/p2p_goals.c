/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The goals of messages: see p2p_goals.h.
 */
#include <string.h>

#include "bench/p2p_goals.h"

#define KIB ((size_t) 1 << 10)
#define MIB ((size_t) 1 << 20)

static const bench_p2p_goal_t goals[] = {
    /* what, bytes, unit, goal, limit, share of NCCL's time, resident */
    {"pingpong", 8, "us", 6, 5, 0.5, 1},            /* a doorbell, NVLink, the PML's matching */
    {"pingpong", 8, "us", 10, 7.1, 0, 0},           /* a launch */
    {"pingpong", 64 * KIB, "us", 10, 8, 0, -1},     /* a launch */
    {"window", MIB, "GB/s", 280, 390, 0, -1},       /* NVLink, by copy engines; so are the next three */
    {"oneway", 256 * MIB, "GB/s", 375, 390, 0, -1}, /**/
    {"both", 256 * MIB, "GB/s", 740, 775, 0, -1},   /**/
    {"async", 256 * MIB, "GB/s", 300, 387, 0, -1},  /* and a copy on the sender's GPU */
    {"to_host", 64 * MIB, "memcpy", 0.9, -1, 0, -1},
    {"from_host", 64 * MIB, "memcpy", 0.9, -1, 0, -1},
    {"to_host_win", 256 * KIB, "memcpy", 0.9, -1, 0, -1},
    {"from_host_win", 256 * KIB, "memcpy", 0.9, -1, 0, -1},
    {"to_host", 64 * MIB, "bus", 0.85, 1, 0, -1},
    {"from_host", 64 * MIB, "bus", 0.85, 1, 0, -1},
    {"host_pingpong", 8 * KIB, "us", 9, -1, 0, -1},
    {"first", 0, "ms", 20, -1, 0, -1},
    {"further", 0, "ms", 2, -1, 0, -1},
    {"memory_all", 0, "MiB", 64, -1, 0, -1}, /* the collectives' heap, so that messages add nothing */
    {"grown_host", 0, "KiB", 0, -1, 0, -1},
    {"grown_gpu", 0, "MiB", 0, -1, 0, -1},
    {"grown_fds", 0, "descriptors", 0, -1, 0, -1},
};

/* Whether a unit is what a row is a multiple of. */
static bool is_times(const char *unit)
{
    return 0 == strcmp(unit, "memcpy") || 0 == strcmp(unit, "bus");
}

const bench_p2p_goal_t *bench_p2p_goal(const char *what, size_t bytes, const char *unit, bool resident)
{
    for (size_t i = 0; i < sizeof(goals) / sizeof(goals[0]); i++) {
        const bench_p2p_goal_t *g = &goals[i];

        if (0 == strcmp(g->what, what) && (0 == g->bytes || bytes == g->bytes) &&
            (!is_times(g->unit) || 0 == strcmp(g->unit, unit)) && (-1 == g->linger || resident == (1 == g->linger))) {
            return g;
        }
    }
    return NULL;
}

static bool counts_up(const char *unit)
{
    return 0 == strcmp(unit, "GB/s") || is_times(unit);
}

bool bench_p2p_reached(const bench_p2p_goal_t *goal, double figure, double us, double nccl_us)
{
    const bool beside_nccl = 0 == goal->share_of_nccl || nccl_us < 0 || us <= goal->share_of_nccl * nccl_us;

    return beside_nccl && (counts_up(goal->unit) ? figure >= goal->goal : figure <= goal->goal);
}
