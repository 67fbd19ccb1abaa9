/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What this process holds of the system, see usage.h.
 */
#include "test/mpi/usage.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

/* Slack, not leaks: the C library's arenas and the MPI library's free lists grow now and then. The tests make things so
 * often that a page or a mapping each would be far over it. */
#define SLACK_FDS 2
#define SLACK_MAPS 16
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLACK_BYTES (1l << 30) /* the sanitizers keep what is freed, and shadows of it */
#else
#define SLACK_BYTES (3l << 20)
#endif

static long count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    long n = 0;

    while (NULL != dir && NULL != readdir(dir)) {
        n++;
    }
    if (NULL != dir) {
        closedir(dir);
    }
    return n;
}

static long count_maps(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    long n = 0;
    int c;

    while (NULL != f && EOF != (c = getc(f))) {
        n += '\n' == c;
    }
    if (NULL != f) {
        fclose(f);
    }
    return n;
}

static long resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long all, pages = 0;

    if (NULL == f || 2 != fscanf(f, "%ld %ld", &all, &pages)) {
        pages = 0;
    }
    if (NULL != f) {
        fclose(f);
    }
    return pages * sysconf(_SC_PAGESIZE);
}

usage_t usage_now(void)
{
    return (usage_t){.fds = count_fds(), .maps = count_maps(), .bytes = resident()};
}

bool usage_same(const char *name, int rank, const usage_t *before, const usage_t *after)
{
    bool same = after->fds <= before->fds + SLACK_FDS && after->maps <= before->maps + SLACK_MAPS &&
                after->bytes <= before->bytes + SLACK_BYTES;

    if (!same) {
        fprintf(stderr, "%s: FAIL on rank %d: descriptors %ld to %ld, mappings %ld to %ld, memory %ld to %ld KiB\n",
                name, rank, before->fds, after->fds, before->maps, after->maps, before->bytes / 1024,
                after->bytes / 1024);
    }
    return same;
}
