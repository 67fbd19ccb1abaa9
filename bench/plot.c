/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Starting plot.py: see plot.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* environ */
#endif
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/plot.h"

#define ARGUMENTS_MAX 1024

/* plot.py beside this program (a build), in share/gpusym beside its folder (an installation that was moved), or where
 * it was installed. */
static void find_script(char *path, size_t size)
{
    static const char *const places[] = {"", "../share/gpusym/"};
    char program[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    char *slash;

    program[n > 0 ? n : 0] = '\0';
    slash = strrchr(program, '/');
    for (size_t i = 0; NULL != slash && i < sizeof(places) / sizeof(places[0]); i++) {
        slash[1] = '\0';
        if (snprintf(path, size, "%s%splot.py", program, places[i]) < (int) size && 0 == access(path, R_OK)) {
            return;
        }
    }
    snprintf(path, size, "%s/plot.py", BENCH_DATA);
}

/* Whether this python3 has matplotlib. */
static bool can_plot(const char *python)
{
    char *argv[] = {(char *) (size_t) python, "-c",
                    "import importlib.util as u, sys; sys.exit(not u.find_spec('matplotlib'))", NULL};
    pid_t pid;
    int status;

    return 0 == posix_spawnp(&pid, python, NULL, NULL, argv, environ) && pid == waitpid(pid, &status, 0) &&
           WIFEXITED(status) && 0 == WEXITSTATUS(status);
}

void bench_plot(char **arguments)
{
    static const char *const pythons[] = {"python3", "/usr/bin/python3"};
    char script[PATH_MAX + 32];
    char *argv[ARGUMENTS_MAX];
    int n = 0;

    find_script(script, sizeof(script));
    /* The first in PATH may be one of conda or pyenv; the system's package is for the system's. */
    argv[n++] = (char *) (size_t) (can_plot(pythons[0]) || !can_plot(pythons[1]) ? pythons[0] : pythons[1]);
    argv[n++] = script;
    while (NULL != *arguments && n < ARGUMENTS_MAX - 1) {
        argv[n++] = *arguments++;
    }
    argv[n] = NULL;
    execvp(argv[0], argv);
    fprintf(stderr, "gpusym_bench plot: python3 cannot be run: %s (Debian, Ubuntu: python3 and python3-matplotlib)\n",
            strerror(errno));
    exit(1);
}
