/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What messages are to reach on NVIDIA H200, a GPU a rank, NVLink between them; and what the hardware allows.
 */
#ifndef BENCH_P2P_GOALS_H
#define BENCH_P2P_GOALS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *what; /* of a row */
    size_t bytes;     /* 0: whatever is measured */
    const char *unit; /* us, ms, MiB, KiB, descriptors: at most so many; GB/s, memcpy, bus (times): at least */
    double goal;
    double limit;         /* of the hardware; negative: not known, or none */
    double share_of_nccl; /* of NCCL's time, at most, in addition; 0: no such goal */
    int linger;           /* 0: a goal without resident kernels; 1: with them; -1: either way */
} bench_p2p_goal_t;

/* The goal of a row, whose amount is in that unit, in a job with resident kernels or without; NULL: none. */
const bench_p2p_goal_t *bench_p2p_goal(const char *what, size_t bytes, const char *unit, bool resident);

/* Whether a figure in the goal's unit reaches it; us and nccl_us: times, negative where not measured. */
bool bench_p2p_reached(const bench_p2p_goal_t *goal, double figure, double us, double nccl_us);

#endif
