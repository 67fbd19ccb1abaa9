/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Staging pipelines: messages in pieces through memory that the sender shares, for memory that the receiver cannot map;
 * and buffers in that memory, for messages that are sent before anybody receives them.
 *
 * The sender copies a piece into a slot, the receiver copies it out; up to GPUSYM_PIPELINE_SLOTS pieces are under way.
 * The send descriptor's entry holds the flow: which slots, how many pieces have been filled, how many taken.  A sender
 * takes slots once the receiver has begun its half, so that messages that nobody receives yet, though they may have
 * been found by a matching probe, keep none.
 *
 * Slots are host memory, which both GPUs and CPUs reach.  Longer messages between two GPUs go through GPU memory of the
 * sender, if both sides allow that and the receiver can map it, which it tells the sender first.
 *
 * Both halves are polled; no function waits.  Thread-safe, but one thread at a time polls a half.  What a receiver
 * starts may wait for gpusym_copy_flush, to share a launch with what others start: call it when all were polled.
 */
#ifndef GPUSYM_COMMON_P2P_PIPELINE_H
#define GPUSYM_COMMON_P2P_PIPELINE_H

#include "mca/common/gpusym/exec/queue.h"
#include "mca/common/gpusym/memory/share.h"
#include "mca/common/gpusym/p2p/send_desc.h"
#include "mca/common/gpusym/shm/flow.h"

/* Shared memory of a process for slots and buffers, in bytes; how much of it buffers may take. */
#define GPUSYM_PIPELINE_BYTES (16ull << 20)
#define GPUSYM_PIPELINE_BUFFERS (4ull << 20)
/* GPU memory of a process for slots, in bytes, from the first message on that needs it. */
#define GPUSYM_PIPELINE_GPU_BYTES (24ull << 20)

/* One half of a pipeline.  Its user only provides the memory, which stays in place until the half has ended. */
typedef struct {
    gpusym_queue_t copies; /* of pieces. No gpu: `at` is host memory */
    char *at;
    uint64_t bytes;           /* to be sent, or wanted */
    uint32_t index;           /* the sender's: of the send descriptor's entry */
    gpusym_send_desc_t *desc; /* the receiver's; NULL: this is the sender's half */
    bool by_gpu;              /* slots may be GPU memory */
    gpusym_share_t *segment;  /* host memory of the slots, as it is mapped here */
    char *mem;                /* GPU memory of the slots, as it is mapped here; NULL: none, or not used */
    bool told;                /* to the other side: that there is such memory, or whether it is mapped */
    uint64_t piece, off[GPUSYM_PIPELINE_SLOTS]; /* bytes of a piece; offsets of the slots */
    gpusym_flow_t ring;                         /* of pieces */
    int status;                                 /* why it ends, an error of common.h */
    bool theirs;                                /* it is the other process's error */
    bool alone;                                 /* the other process has died */
    bool asked; /* the receiver's: the sender has been asked for the pipeline, and has not begun */
} gpusym_pipeline_t;
_Static_assert(GPUSYM_PIPELINE_SLOTS <= GPUSYM_QUEUE_MAX, "there is a copy for each slot");

/* Returns whether this process has host memory for slots; the first call makes it.  Without it no half can be sent. */
bool gpusym_pipelines_ready(void);

/* Begins the sender's half for the send descriptor of entry `index`, offered or changed as a PIPELINE with no flow, or
 * for which the receiver has asked (gpusym_send_desc_take_pipeline).  src: of gpu, or host memory if gpu is NULL; it
 * must not change until the half has ended.  by_gpu: pieces may go through GPU memory: then mem_alloc and mem_export
 * may be called, once in a process, by gpusym_pipeline_poll. */
void gpusym_pipeline_send(gpusym_pipeline_t *pipeline, const gpusym_device_t *dev, gpusym_gpu_t *gpu, const void *src,
                          uint64_t bytes, uint32_t index, bool by_gpu);
/* Begins the receiver's half for a claimed send descriptor.  If that is no PIPELINE, because the sender thought that
 * its memory could be mapped here, it asks the sender for one.  dst: as src.  bytes: wanted; of a longer message, what
 * is behind is not received.  The send descriptor stays in place until the half has ended.  by_gpu: as above; then
 * mem_import, which may wait for the GPU, may be called, once for each sender. */
void gpusym_pipeline_receive(gpusym_pipeline_t *pipeline, const gpusym_device_t *dev, gpusym_gpu_t *gpu, void *dst,
                             uint64_t bytes, gpusym_send_desc_t *desc, bool by_gpu);
/* Does what can be done of a half now.  Returns whether it has ended; *status is then 0 or an error of common.h.  When
 * the sender's has ended, its send descriptor is DONE, and the entry can be freed; the receiver's has ended its send
 * descriptor. pipeline->theirs: the error is the other process's. */
bool gpusym_pipeline_poll(gpusym_pipeline_t *pipeline, int *status);
/* The other process has died: the half ends with this error as soon as its copies have. */
void gpusym_pipeline_fail(gpusym_pipeline_t *pipeline, int status);

/* A buffer in the shared memory. */
typedef struct {
    void *host; /* for the CPU; NULL: there is none */
    void *dev;  /* for the GPU; NULL: it is not pinned, and copy engines take `host` */
    uint64_t off, bytes;
} gpusym_pipeline_buffer_t;

/* Gets a buffer, which gpu may fill (NULL: the CPU does).  Return it by gpusym_pipeline_buffer_put.
 * GPUSYM_ERR_NOT_AVAILABLE: all are in use, or there is no shared memory. */
int gpusym_pipeline_buffer_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes,
                               gpusym_pipeline_buffer_t *buffer);
void gpusym_pipeline_buffer_put(gpusym_pipeline_buffer_t *buffer);
/* Changes an offer that nobody has claimed to a PIPELINE whose data, buffer->bytes, are all in the buffer.  The buffer
 * stays until the send descriptor is DONE; the sender has no half.  The receiver takes it as any pipeline.  Errors: as
 * gpusym_send_desc_change. */
int gpusym_pipeline_buffer_change(uint32_t index, const gpusym_pipeline_buffer_t *buffer);

/* Unmaps and frees all shared memory.  No half may be under way; buffers become invalid.  Idempotent. */
void gpusym_pipelines_close(const gpusym_device_t *dev);

#endif
