/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Packing and unpacking by a kernel: the nodes of a datatype (kernels/work.h), arranged for it and kept in GPU memory,
 * and its launch.
 */
#ifndef GPUSYM_COMMON_EXEC_PACK_H
#define GPUSYM_COMMON_EXEC_PACK_H

#include "mca/common/gpusym/exec/lane.h"

/* Nodes of a datatype at most. */
#define GPUSYM_NODES_MAX ((size_t) 1 << 20)
/* GPU memory for the nodes of all datatypes, in bytes, at most. It is taken 2 MiB at a time. */
#define GPUSYM_NODES_BYTES_MAX ((size_t) 64 << 20)

/* The nodes of one element of a datatype, arranged; what kernels read of them is in GPU memory. Thread-safe. */
typedef struct gpusym_nodes gpusym_nodes_t;

/* Arranges n nodes of one element, 1 to GPUSYM_NODES_MAX, in packed order: finds the form in which the kernel takes
 * them, sorts sticks by address, and cuts long nodes in pieces. `nodes` stays the caller's. The caller frees *made by
 * gpusym_nodes_free. GPUSYM_ERR_NO_MEMORY. */
int gpusym_nodes_make(const gpusym_node_t *nodes, size_t n, gpusym_nodes_t **made);
/* Frees them and their copies in GPU memory, which no kernel may be reading any more. NULL: nothing happens. */
void gpusym_nodes_free(gpusym_nodes_t *nodes);
/* The nodes and rows that they were made of, which copy engines would copy one by one, and the bytes of all. */
void gpusym_nodes_count(const gpusym_nodes_t *nodes, uint64_t *copies, uint64_t *rows, uint64_t *bytes);
/* Gets the box of the elements (kernels/work.h) if they have one, from the first byte of the first node on; `count` of
 * them are `extent` bytes apart. False: there is none. */
bool gpusym_nodes_box(const gpusym_nodes_t *nodes, uint64_t count, ptrdiff_t extent, gpusym_box_t *box);
/* Copies the nodes to GPU memory, the first time, and loads the kernels. GPUSYM_ERR_NOT_AVAILABLE: there are no
 * kernels, or there is no room for the nodes; or the device's error. */
int gpusym_nodes_upload(gpusym_nodes_t *nodes, const gpusym_device_t *dev, gpusym_gpu_t *gpu);

/* What is packed or unpacked: the packed bytes [from, to) of elements. */
typedef struct {
    gpusym_node_t rows;   /* without nodes: the only one, of the whole count, disp from `user` */
    size_t size;          /* packed bytes of an element */
    ptrdiff_t extent, lo; /* from element to element; the first byte of all that is touched, from `user` */
    uint64_t from, to;    /* from < to */
    const void *user;     /* the elements' address; NULL for MPI_BOTTOM */
    const void *packed;   /* the address of the packed byte `from`; memory that the GPU reaches */
    bool unpack;
} gpusym_pack_call_t;

/* Queues the kernel. nodes: uploaded to this GPU; NULL: call->rows. The stream belongs to gpu. Errors: the device's;
 * nothing is queued then. GPUSYM_ERR_NOT_AVAILABLE: there are no kernels, or the nodes are not there. */
int gpusym_pack_queue(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_stream_t *stream,
                      const gpusym_nodes_t *nodes, const gpusym_pack_call_t *call);

/* The unit in which a copy from box to box is made (kernels/work.h). */
uint16_t gpusym_box_unit(const gpusym_box_run_t *box);
/* Sets the n copies from box to box of a launch, 1 to GPUSYM_BOXES_MAX, and which blocks each gets: `first`, `blocks`
 * and `unit` of `box` are not read. */
void gpusym_boxes_plan(gpusym_work_t *w, const gpusym_box_run_t *box, uint32_t n);
/* Queues them on the lane's stream, as a part of the operation begun last, whose first *blocks parts tell their end.
 * Errors as of gpusym_pack_queue. */
int gpusym_boxes_queue(gpusym_lane_t *lane, const gpusym_box_run_t *box, uint32_t n, uint32_t *blocks);

#endif
