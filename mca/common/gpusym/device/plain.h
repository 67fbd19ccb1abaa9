/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Addresses that are host memory without asking the device.  A driver takes about 0.1 us to answer for a pointer; most
 * buffers of a program that uses no GPU lie where only host memory can be.
 */
#ifndef GPUSYM_COMMON_DEVICE_PLAIN_H
#define GPUSYM_COMMON_DEVICE_PLAIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

/* Where ordinary host memory lies in this process.  All zero: not known.  gpusym_device_select writes it, before the
 * device can be seen. */
typedef struct {
    uintptr_t heap;         /* the heap (brk) begins here */
    uintptr_t data;         /* the program's static data begin here */
    uintptr_t data_size;    /* in bytes */
    uintptr_t stack;        /* the stack of the process's first thread ends here */
    pthread_t first_thread; /* valid if stack is not 0 */
} gpusym_plain_ranges_t;
extern gpusym_plain_ranges_t gpusym_plain_ranges;

/* Finds these places.  none: no address is plain, because the simulator takes all memory for a GPU's. */
void gpusym_plain_find(bool none);

/* Returns whether p is host memory for sure: in the heap, in the program's static data, or in the calling thread's
 * frames above the caller's, if it is the first thread.  False: ask the device.  About 3 ns.  Call it only while a
 * device is selected. */
static inline bool gpusym_plain(const void *p)
{
    const gpusym_plain_ranges_t *r = &gpusym_plain_ranges;
    const uintptr_t at = (uintptr_t) p;

    if (at - r->data < r->data_size) {
        return true;
    }
    if (0 != r->heap && at >= r->heap && at < (uintptr_t) sbrk(0)) {
        return true;
    }
    return at < r->stack && at >= (uintptr_t) __builtin_frame_address(0) &&
           pthread_equal(r->first_thread, pthread_self());
}

#endif
