/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym_bench plot: latency and bandwidth over size, as PNG files.
 */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

/* Becomes python3 running plot.py, which is installed with the program, with these arguments (the last is NULL): the
 * python3 in PATH, or that of the system if only that one has matplotlib. Does not return: ends the process with a line
 * on stderr where there is no python3. */
__attribute__((noreturn)) void bench_plot(char **arguments);

#endif
