/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Names of files that each process writes.
 */
#ifndef MCA_COLL_GPUSYM_CONF_FILENAME_H
#define MCA_COLL_GPUSYM_CONF_FILENAME_H

#include <stddef.h>

/* What a parameter's pattern means for this process: %r is the rank, %h the host, %p the process, %% a percent sign;
 * without %r and %p, .RANK is appended. Cut to what `size` bytes hold, at least 300. */
void coll_gpusym_filename(char *name, size_t size, const char *pattern, int rank, const char *host);

#endif
