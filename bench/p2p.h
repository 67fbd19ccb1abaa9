/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym_bench p2p: messages on GPU memory between pairs of ranks, beside NCCL's.
 */
#ifndef BENCH_P2P_H
#define BENCH_P2P_H

#define BENCH_P2P_USAGE                                                                                      \
    "gpusym_bench p2p [--device cuda|sim|host] [--min BYTES] [--max BYTES] [--step FACTOR] [--bytes LIST]\n" \
    "                 [--only LIST] [--batches N] [--messages N] [--no-nccl] [--csv FILE] [--json FILE]\n"   \
    "                 [--progress]\n"                                                                        \
    "--only: first, pingpong, window, oneway, both, async, to_host, from_host, grown"

/* The whole program, from MPI_Init to MPI_Finalize; argv[1] is "p2p". Returns the exit status. */
int bench_p2p(int argc, char **argv);

#endif
