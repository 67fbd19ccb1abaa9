/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * CUDA graphs: see graph.h.
 */
#include <stdint.h>
#include <stdlib.h>

#include "bench/memory.h"
#include "bench/ranks.h"
#include "examples/graph.h"

#define CAPTURE_THREAD_LOCAL 1 /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */

struct graph {
    void *graph, *exec;
    int (*launch)(void *exec, void *stream);
};

graph_t *graph_capture(void (*queue)(void *argument), void *argument)
{
    int (*begin)(void *stream, int mode), (*end)(void *stream, void **graph), (*upload)(void *exec, void *stream);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    graph_t *g = malloc(sizeof(*g));

    if (NULL == g) {
        bench_die("no host memory");
    }
    *(void **) &begin = bench_cu_function("cuStreamBeginCapture_v2");
    *(void **) &end = bench_cu_function("cuStreamEndCapture");
    *(void **) &instantiate = bench_cu_function("cuGraphInstantiateWithFlags");
    *(void **) &upload = bench_cu_function("cuGraphUpload");
    *(void **) &g->launch = bench_cu_function("cuGraphLaunch");
    bench_cu_check("cuStreamBeginCapture", begin(bench_cu.stream, CAPTURE_THREAD_LOCAL));
    queue(argument);
    bench_cu_check("cuStreamEndCapture", end(bench_cu.stream, &g->graph));
    bench_cu_check("cuGraphInstantiateWithFlags", instantiate(&g->exec, g->graph, 0));
    bench_cu_check("cuGraphUpload", upload(g->exec, bench_cu.stream));
    BENCH_CU(cuStreamSynchronize, bench_cu.stream);
    return g;
}

void graph_launch(const graph_t *graph)
{
    bench_cu_check("cuGraphLaunch", graph->launch(graph->exec, bench_cu.stream));
}

void graph_free(graph_t *graph)
{
    int (*destroy_exec)(void *exec), (*destroy)(void *graph);

    *(void **) &destroy_exec = bench_cu_function("cuGraphExecDestroy");
    *(void **) &destroy = bench_cu_function("cuGraphDestroy");
    bench_cu_check("cuGraphExecDestroy", destroy_exec(graph->exec));
    bench_cu_check("cuGraphDestroy", destroy(graph->graph));
    free(graph);
}

void graph_copy(void *to, const void *from, size_t bytes)
{
    static int (*copy)(uintptr_t to, uintptr_t from, size_t bytes, void *stream);

    if (NULL == copy) {
        *(void **) &copy = bench_cu_function("cuMemcpyDtoDAsync_v2");
    }
    bench_cu_check("cuMemcpyDtoDAsync", copy((uintptr_t) to, (uintptr_t) from, bytes, bench_cu.stream));
}
