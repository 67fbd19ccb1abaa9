/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * CUDA graphs of what an example queues on its stream, by the CUDA driver, which is opened at run time. Only where
 * bench_cu.there.
 */
#ifndef EXAMPLES_GRAPH_H
#define EXAMPLES_GRAPH_H

#include <stddef.h>

typedef struct graph graph_t;

/* A graph of what queue(argument) queues on the program's stream, and nothing of that is done yet. Ends the job where
 * that cannot be. */
graph_t *graph_capture(void (*queue)(void *argument), void *argument);
/* On the program's stream. */
void graph_launch(const graph_t *graph);
void graph_free(graph_t *graph);

/* A copy within GPU memory on the program's stream. */
void graph_copy(void *to, const void *from, size_t bytes);

#endif
