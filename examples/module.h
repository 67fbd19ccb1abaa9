/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of an example on a GPU: loaded from the image that nvcc made of them, and launched on the program's
 * stream, by the CUDA driver, which is opened at run time. Only where bench_cu.there.
 */
#ifndef EXAMPLES_MODULE_H
#define EXAMPLES_MODULE_H

#include <stddef.h>

#define MODULE_KERNELS_MAX 8

/* `names`: the kernels' in the image, at most MODULE_KERNELS_MAX; they stay the caller's. Ends the job where image is
 * NULL: a program that was built without nvcc has none. */
void module_open(const void *image, const char *const names[], int count);
void module_close(void);

/* Starts kernel number `kernel`, whose one parameter is at `args`, with a thread for each element, but at most `blocks`
 * blocks of `threads`. */
void module_launch(int kernel, size_t elements, unsigned blocks, unsigned threads, const void *args);

#endif
