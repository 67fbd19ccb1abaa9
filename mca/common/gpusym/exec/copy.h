/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copying: one copy from address to address, by a kernel or a copy engine, polled.  No function waits, and no work
 * that is queued waits for another process, but a copy for a signal, for a limited time.  Only where the GPU queues
 * nothing (no memory for a stream, say), the driver copies at once.
 *
 * A few lanes (lane.h) of each GPU, the copy queues, do all copies; those of one lane end in their order.  Short ones
 * go to the GPU's copier, if it has one (copier.h) and `local` or `far` is set.  Several copies may share a launch,
 * which takes the CPU longer than the GPU takes for a copy.
 */
#ifndef GPUSYM_COMMON_EXEC_COPY_H
#define GPUSYM_COMMON_EXEC_COPY_H

#include "mca/common/gpusym/exec/copier.h"
#include "mca/common/gpusym/exec/lane.h"

/* A copy under way. */
typedef struct {
    struct gpusym_copy_queue *queue; /* NULL: no lane has it */
    gpusym_copier_t *copier;         /* which does it; NULL: none */
    struct gpusym_copy_list *list;   /* which the copier does; NULL: none. Without all three nothing is under way */
    uint32_t in_list;                /* its place there */
    uint32_t seq;                    /* of its lane */
    uint32_t seen;                   /* the first block of the kernel that has not ended */
    uint32_t end;                    /* behind its last block; 0: a copy engine copies */
    uint32_t polls;
    int error;     /* of a shared launch */
    bool awaits;   /* a signal */
    bool late;     /* which has not come */
    bool waits;    /* for its launch; atomic */
    uint32_t held; /* polls since then */
    bool flag;     /* the stream writes a word behind the copy engine's copy */
} gpusym_copy_t;

/* height rows of width bytes, which begin to_pitch and from_pitch bytes apart.  One run of bytes: height 1. */
typedef struct {
    void *dst;
    const void *src;
    uint64_t width, height, to_pitch, from_pitch;
    bool local;  /* dst is memory of this GPU, of this process: then the copy ends sooner */
    bool far;    /* dst is a peer's mapping, or pinned host memory: then a short copy may go to the copier, too */
    bool engine; /* one side is host memory that is not pinned, which only copy engines reach */
    bool shared; /* it may wait for gpusym_copy_flush, to share a launch */
    /* One run: SIGNALS, WAITS or 0, and the number of the signal (kernels/work.h). A copy engine stores no signal; a
     * copy that is to wait for one ends with GPUSYM_ERR_LATE where no kernel does it. */
    uint32_t does, signal;
} gpusym_copy_rows_t;

/*
 * Starts a copy by gpu, to and from memory that it reaches: GPU memory of this process or a peer's mapping, or pinned
 * host memory.  The ranges do not overlap.  Sets *copy, which stays in place until gpusym_copy_poll says that the
 * copy has ended.  Nothing to copy is a copy that has ended.  Errors: the device's; nothing is under way then.
 * Thread-safe.
 */
int gpusym_copy_start(const gpusym_device_t *dev, gpusym_gpu_t *gpu, void *dst, const void *src, uint64_t bytes,
                      gpusym_copy_t *copy);
int gpusym_copy_start_rows(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_copy_rows_t *rows,
                           gpusym_copy_t *copy);
/* The same of a copy between boxes, which lie in mapped memory and, `out`, in memory of this GPU, of this process. It
 * may wait for gpusym_copy_flush. run->first and blocks are not read. GPUSYM_ERR_NOT_AVAILABLE: there are no kernels.
 */
int gpusym_copy_start_box(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_box_run_t *run,
                          gpusym_copy_t *copy);
/* Launches what waits to share a launch, unless more may come, that is little, and the last such launch is under way:
 * then it waits until that has ended. Short ones are a list of the copier's, if there is one, and wait until it has
 * time. Its errors are told by gpusym_copy_poll. A few ns if nothing waits. */
void gpusym_copy_flush(bool more);
/* Returns 1 if the copy has ended, and is visible to all, 0 if it is under way, or the device's error, which ends it
 * too; GPUSYM_ERR_LATE: the signal has not come, and what the copy has written is undefined. A few ns while it is under
 * way. If it waits for its launch, gpusym_copy_flush is called at times. */
int gpusym_copy_poll(gpusym_copy_t *copy);

/* Returns the lanes, and closes the copiers. No copy may be under way. Call it before gpusym_lanes_close. */
void gpusym_copy_queues_close(void);

#endif
