/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams, graphs and events for the test programs, on the device of mem.h.  On CUDA they go to the driver, as a
 * user's program would; on the simulator to the very instance of libmca_common_gpusym that the component uses.
 *
 * A stream is a void *: on CUDA a CUstream (a blocking one, as of cudaStreamCreate), and on any device what gpusym
 * takes for a stream of the program.  An error ends the process with a line on stderr.  Any thread; on CUDA the GPU's
 * context is current in it afterwards.  On the simulator injected faults hit none of this, except in gpu_graph_launch.
 */
#ifndef TEST_MPI_GPU_STREAM_H
#define TEST_MPI_GPU_STREAM_H

#include <stdbool.h>
#include <stddef.h>

/* After mem_init, in its thread. Returns 0; -1 with a line on stderr if the device has no streams. */
int gpu_stream_init(void);

void *gpu_stream_create(void);
/* Waits for its work. */
void gpu_stream_destroy(void *stream);
void gpu_stream_synchronize(void *stream);
/* Whether all its work is done. */
bool gpu_stream_done(void *stream);

/* Queues a copy between memory of any kind, each side in one allocation. */
void gpu_stream_copy(void *stream, void *dst, const void *src, size_t size);
/* Queues a call of a function, which must not call MPI nor the device. */
void gpu_stream_call(void *stream, void (*function)(void *), void *argument);
/* Work that the stream gets from now on waits for the event, as it was last recorded. Not while it is captured. */
void gpu_stream_wait(void *stream, void *event);

void *gpu_event_create(void);
void gpu_event_destroy(void *event);
/* The event is reached once all work is done that the stream has now. Not while it is captured. */
void gpu_event_record(void *event, void *stream);
bool gpu_event_reached(void *event);

/* From now on what is queued on the stream goes into a graph, until gpu_capture_end returns it. On CUDA in the global
 * mode: no thread may do what could make the graph wrong. */
void gpu_capture_begin(void *stream);
void *gpu_capture_end(void *stream);
/* False, with a line on stderr: nothing was queued. */
bool gpu_graph_launch(void *graph, void *stream);
/* Its launches go on. */
void gpu_graph_destroy(void *graph);

#endif
