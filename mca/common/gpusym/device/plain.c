/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Where ordinary host memory lies: see plain.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/device/plain.h"

#include <link.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "mca/common/gpusym/shm/process.h"

gpusym_plain_ranges_t gpusym_plain_ranges;

/* For dl_iterate_phdr: the writable segment of the program itself, which comes first. */
static int find_data(struct dl_phdr_info *info, size_t size, void *arg)
{
    gpusym_plain_ranges_t *ranges = arg;

    (void) size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (PT_LOAD == segment->p_type && 0 != (segment->p_flags & PF_W) && segment->p_memsz > ranges->data_size) {
            ranges->data = info->dlpi_addr + segment->p_vaddr;
            ranges->data_size = segment->p_memsz;
        }
    }
    return 1;
}

void gpusym_plain_find(bool none)
{
    gpusym_plain_ranges_t ranges = {.heap = 0};

    if (!none) {
        (void) dl_iterate_phdr(find_data, &ranges);
        gpusym_process_memory(&ranges.stack, &ranges.heap);
        ranges.first_thread = pthread_self();
        if (syscall(SYS_gettid) != getpid()) {
            ranges.stack = 0; /* the first thread is another one, whose handle nobody tells */
        }
    }
    gpusym_plain_ranges = ranges;
}
