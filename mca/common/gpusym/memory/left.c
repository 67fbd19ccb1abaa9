/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory limit of a cgroup: see left.h. Of version 2, and of version 1, whose hierarchies have a line each.
 */
#include "mca/common/gpusym/memory/left.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define PATH_BYTES 1024

/* The names of a version's files, and in `stat` of the bytes of cached files, of which those of memory files stay. */
typedef struct {
    const char *folder, *limit, *used, *cached, *shared;
} names_t;
static const names_t v1 = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "total_shmem"};
static const names_t v2 = {"", "memory.max", "memory.current", "file", "shmem"};

/* Opens a file of a cgroup. In a container its path may not be there: then the root is its cgroup. */
static FILE *open_file(const char *root, const names_t *n, const char *path, const char *name)
{
    char at[PATH_BYTES];
    FILE *f = NULL;
    if (snprintf(at, sizeof at, "%s%s%s/%s", root, n->folder, path, name) < (int) sizeof at) {
        f = fopen(at, "re");
    }
    if (NULL == f && snprintf(at, sizeof at, "%s%s/%s", root, n->folder, name) < (int) sizeof at) {
        f = fopen(at, "re");
    }
    return f;
}

/* Reads a number, behind a word where there is one: "max" is none. */
static bool read_number(FILE *f, const char *word, uint64_t *number)
{
    char line[128];
    const size_t length = NULL != word ? strlen(word) : 0;
    bool found = false;
    while (NULL != f && !found && NULL != fgets(line, sizeof line, f)) {
        found = (0 == length || (0 == strncmp(line, word, length) && ' ' == line[length])) &&
                1 == sscanf(line + length, "%" SCNu64, number);
    }
    if (NULL != f) {
        fclose(f);
    }
    return found;
}

/* Of version 1 no limit is a number: the greatest, in pages of up to 1 MiB. */
#define NO_LIMIT (INT64_MAX - ((1 << 20) - 1))

static uint64_t read_left(const char *root, const names_t *n, const char *path)
{
    uint64_t limit, used, cached = 0, shared = 0;
    if (!read_number(open_file(root, n, path, n->limit), NULL, &limit) ||
        !read_number(open_file(root, n, path, n->used), NULL, &used) || limit >= NO_LIMIT) {
        return UINT64_MAX;
    }
    (void) read_number(open_file(root, n, path, "memory.stat"), n->cached, &cached);
    (void) read_number(open_file(root, n, path, "memory.stat"), n->shared, &shared);
    cached -= shared < cached ? shared : cached;
    used -= cached < used ? cached : used;
    return used < limit ? limit - used : 0;
}

uint64_t gpusym_memory_left_in(const char *cgroup, const char *root)
{
    char line[PATH_BYTES];
    uint64_t left = UINT64_MAX;
    FILE *f = fopen(cgroup, "re");
    while (NULL != f && NULL != fgets(line, sizeof line, f)) {
        char *controllers = strchr(line, ':'), *path = NULL != controllers ? strchr(controllers + 1, ':') : NULL;
        if (NULL == path) {
            continue;
        }
        path[strcspn(path, "\n")] = '\0';
        *path++ = '\0';
        const bool second = '\0' == controllers[1];
        if (second || 0 == strcmp(controllers + 1, "memory")) {
            const uint64_t here = read_left(root, second ? &v2 : &v1, 0 == strcmp(path, "/") ? "" : path);
            left = here < left ? here : left;
        }
    }
    if (NULL != f) {
        fclose(f);
    }
    return left;
}

uint64_t gpusym_memory_left(void)
{
    return gpusym_memory_left_in("/proc/self/cgroup", "/sys/fs/cgroup");
}

const char *gpusym_memory_limits(char text[GPUSYM_LIMITS_TEXT])
{
    struct rlimit locked;
    const uint64_t left = gpusym_memory_left();
    int n = 0;

    text[0] = '\0';
    if (0 == getrlimit(RLIMIT_MEMLOCK, &locked) && RLIM_INFINITY != locked.rlim_cur) {
        n = snprintf(text, GPUSYM_LIMITS_TEXT, "; the limit of locked memory (ulimit -l) is %" PRIu64 " KiB: raise it",
                     (uint64_t) locked.rlim_cur >> 10);
    }
    if (UINT64_MAX != left) {
        (void) snprintf(text + n, GPUSYM_LIMITS_TEXT - (size_t) n,
                        "; the memory limit of the cgroup leaves %" PRIu64 " KiB: raise that of the job or container",
                        left >> 10);
    }
    return text;
}
