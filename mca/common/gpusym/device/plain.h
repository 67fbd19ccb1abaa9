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

/* The places. */
typedef enum { GPUSYM_PLAIN_NO, GPUSYM_PLAIN_DATA, GPUSYM_PLAIN_HEAP, GPUSYM_PLAIN_STACK } gpusym_plain_t;

/* Returns which of these places p lies in: the program's static data, the heap, or the calling thread's frames above
 * the caller's, if it is the first thread.  GPUSYM_PLAIN_NO: ask the device.  About 3 ns.  Call it only while a device
 * is selected. */
static inline gpusym_plain_t gpusym_plain_place(const void *p)
{
    const gpusym_plain_ranges_t *r = &gpusym_plain_ranges;
    const uintptr_t at = (uintptr_t) p;

    if (at - r->data < r->data_size) {
        return GPUSYM_PLAIN_DATA;
    }
    if (0 != r->heap && at >= r->heap && at < (uintptr_t) sbrk(0)) {
        return GPUSYM_PLAIN_HEAP;
    }
    return at < r->stack && at >= (uintptr_t) __builtin_frame_address(0) &&
                   pthread_equal(r->first_thread, pthread_self())
               ? GPUSYM_PLAIN_STACK
               : GPUSYM_PLAIN_NO;
}

/* Returns whether p is host memory for sure.  False: ask the device. */
static inline bool gpusym_plain(const void *p)
{
    return GPUSYM_PLAIN_NO != gpusym_plain_place(p);
}

#endif
