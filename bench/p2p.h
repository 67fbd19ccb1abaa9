/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym_bench p2p: messages on GPU memory between pairs of ranks, beside NCCL's.
 */
#ifndef BENCH_P2P_H
#define BENCH_P2P_H

/* The whole program, from MPI_Init to MPI_Finalize; argv[1] is "p2p". Returns the exit status. */
int bench_p2p(int argc, char **argv);

#endif
