/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What this process holds, by /proc: see process.h.
 */
#include <dirent.h>
#include <stdio.h>

#include "bench/process.h"

size_t bench_resident_memory(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    size_t kib = 0;

    while (NULL != f && NULL != fgets(line, sizeof(line), f) && 1 != sscanf(line, "VmRSS: %zu", &kib)) {
    }
    if (NULL != f) {
        fclose(f);
    }
    return kib << 10;
}

size_t bench_open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;

    while (NULL != dir && NULL != readdir(dir)) {
        n++;
    }
    if (NULL != dir) {
        closedir(dir);
        n -= 3; /* ".", "..", and this folder's own */
    }
    return n;
}
