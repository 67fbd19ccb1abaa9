/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The move of a message from memory of a GPU, its own or a peer's mapping, packed or a box (kernels/work.h), to the
 * receiver's buffer. Polled.
 */
#ifndef MCA_PML_GPUSYM_MOVE_H
#define MCA_PML_GPUSYM_MOVE_H

#include "mca/common/gpusym/exec/staged.h"
#include "mca/common/ompi/layout.h"
#include "mca/pml/gpusym/bounce.h"

typedef struct pml_gpusym_move pml_gpusym_move_t;

/* Where a message goes. All of it stays as it is until the move has ended. */
typedef struct {
    gpusym_gpu_t *gpu; /* which moves the data */
    const gpusym_layout_t *layout;
    void *buf;
    bool on_host;  /* the buffer is host memory */
    bool together; /* all of it lies in one allocation; false: it is asked */
    const char *from;
    const gpusym_box_t *box; /* `from` is its first byte; NULL: it is packed. Copied */
    size_t bytes;            /* of the message that are moved, at most the layout's; not 0 */
    uint32_t signal;         /* of the copy that puts them there, which the GPU waits for; 0: they are there */
} pml_gpusym_route_t;

struct pml_gpusym_move {
    pml_gpusym_route_t route;
    int (*poll)(pml_gpusym_move_t *m);
    union { /* one copy, or several to host memory */
        gpusym_copy_t copy;
        gpusym_staged_t staged;
    };
    gpusym_lane_t *lane;        /* whose stream copies; NULL: none */
    gpusym_box_t box;           /* route.box points here */
    void *scratch;              /* GPU memory where a box is packed first; NULL: none */
    pml_gpusym_bounce_t bounce; /* pinned memory in between; none: p is NULL */
};

/* Whether the GPU can wait for a signal before it moves the data. */
bool pml_gpusym_move_can_wait(const pml_gpusym_route_t *route);
/* Starts a move. Sets *m, which stays in place until the move has ended. Errors of common.h: nothing is under way;
 * GPUSYM_ERR_NOT_AVAILABLE: boxes cannot be copied here. */
int pml_gpusym_move_start(pml_gpusym_move_t *m, const pml_gpusym_route_t *route);
/* Returns 1 if all data are in the buffer, 0 if not, or the device's error; GPUSYM_ERR_LATE: the signal has not come.
 * Not 0 ends the move, and returns what it has. */
int pml_gpusym_move_poll(pml_gpusym_move_t *m);

#endif
