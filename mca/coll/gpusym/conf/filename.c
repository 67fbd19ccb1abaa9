/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Names of files: see filename.h.
 */
#include "mca/coll/gpusym/conf/filename.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

void coll_gpusym_filename(char *name, size_t size, const char *pattern, int rank, const char *host)
{
    size_t used = 0;
    bool unique = false;
    for (; '\0' != *pattern && used < size - 290; pattern++) {
        char *at = name + used;
        int n = 1;
        if ('%' == pattern[0] && ('r' == pattern[1] || 'p' == pattern[1])) {
            n = snprintf(at, size - used, "%d", 'r' == *++pattern ? rank : (int) getpid());
            unique = true;
        } else if ('%' == pattern[0] && 'h' == pattern[1]) {
            n = snprintf(at, size - used, "%.255s", host);
            pattern++;
        } else {
            pattern += '%' == pattern[0] && '%' == pattern[1];
            *at = *pattern;
        }
        used += (size_t) n;
    }
    name[used] = '\0';
    if (!unique) {
        snprintf(name + used, size - used, ".%d", rank);
    }
}
