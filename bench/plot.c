/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Starting plot.py: see plot.h. It is inside the program, so that there is no file to be found wherever that is
 * installed; the assembler reads it (Makefile.am makes this anew when it changes).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/plot.h"

#define ARGUMENTS_MAX 1024

extern char bench_plot_script[];

__asm__(".pushsection .rodata\n"
        ".globl bench_plot_script\n"
        ".hidden bench_plot_script\n"
        ".type bench_plot_script, %object\n"
        "bench_plot_script:\n"
        ".incbin \"" BENCH_PLOT "\"\n"
        ".byte 0\n"
        ".size bench_plot_script, . - bench_plot_script\n"
        ".popsection\n");

void bench_plot(char **arguments)
{
    char *argv[ARGUMENTS_MAX] = {"python3", "-c", bench_plot_script};
    int n = 3;

    while (NULL != *arguments && n < ARGUMENTS_MAX - 1) {
        argv[n++] = *arguments++;
    }
    execvp(argv[0], argv);
    fprintf(stderr, "gpusym_bench plot: python3 cannot be run: %s (Debian, Ubuntu: python3 and python3-matplotlib)\n",
            strerror(errno));
    exit(1);
}
