/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The path through host memory: calls the fallback with bounce buffers in place of device buffers.
 */
#ifndef MCA_COLL_GPUSYM_BOUNCE_H
#define MCA_COLL_GPUSYM_BOUNCE_H

#include "mca/coll/gpusym/args/args.h"
#include "mca/coll/gpusym/fallback/fallback.h"
#include "mca/common/gpusym/exec/lane.h"

/* What stands for the datatypes and displacements of a side whose blocks are packed, one behind the other. */
typedef struct {
    size_t types;                    /* 0: not packed, elements lie as in the buffer */
    struct ompi_datatype_t **dtypes; /* [types]: an element without its gaps; one, or of each block. Owned */
    void *displs;                    /* gpusym_displ_element_t or, by_aint, gpusym_adispl_element_t, of each block */
    bool vector, by_aint;            /* as of coll_gpusym_layout_t */
} coll_gpusym_bounce_packed_t;

typedef struct {
    bool on_gpu; /* the buffer is GPU memory, and touched */
    char *p;     /* stands for the span's first byte, or has the elements packed; NULL: none */
    size_t size; /* bytes */
    bool pinned; /* memory/pinned.h; else ordinary memory */
    coll_gpusym_bounce_packed_t packed;
} coll_gpusym_bounce_buffer_t;

/* Plain data, made by open and ended by close, on any thread. Several may be alive. */
typedef struct {
    gpusym_gpu_t *gpu; /* NULL: no buffer is on one, or it cannot be opened */
    coll_gpusym_bounce_buffer_t send, recv;
    gpusym_lane_t *lane; /* copies are queued on its stream; NULL: they end before the functions return */
} coll_gpusym_bounce_t;

/*
 * open makes the bounce buffers, and *on_host, the same call on them; in copies into them what the call reads; out
 * copies the results back if rv, of the call on_host, is MPI_SUCCESS, and returns rv or its own error; close frees
 * them. They may serve many calls with the same arguments. A buffer in host memory is used itself. The datatypes' gaps
 * are neither read nor written, on either side: other calls may use them.
 *
 * MPI error codes, reported to the user. After one of open or in *on_host can be called all the same, on any data:
 * other ranks may be in the call. Only after MPI_ERR_NO_MEM of open it cannot. close is due in any case.
 */
int coll_gpusym_bounce_open(coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s, coll_gpusym_args_t *on_host);
int coll_gpusym_bounce_in(coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s);
int coll_gpusym_bounce_out(coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s, int rv);
void coll_gpusym_bounce_close(coll_gpusym_bounce_t *s);
/* From now on `in` and `out` queue their copies, if there are a stream and pinned memory for it. end_queue gives the
 * stream back once they have ended. */
void coll_gpusym_bounce_queue(coll_gpusym_bounce_t *s);
void coll_gpusym_bounce_end_queue(coll_gpusym_bounce_t *s);
/* Whether the copies have ended. *rv: MPI_SUCCESS, or their error, reported. */
bool coll_gpusym_bounce_poll(const coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s, int *rv);
/*
 * The same in the caller's memory, for calls in segments: find opens the GPU of a call's buffers, if there is one; room
 * returns the bytes that the bounce buffers of a call or of a segment of it take; place puts them there (any address)
 * and makes *on_host. in and out follow; nothing is freed. s->lane may be set: then the copies of `in` have ended, and
 * those of `out`, once its stream is idle, and memory, buffers and arguments stay until then. find: MPI error code,
 * reported; room and place go on after it.
 */
int coll_gpusym_bounce_find(const coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s);
size_t coll_gpusym_bounce_room(coll_gpusym_buffers_t *b, const coll_gpusym_bounce_t *s);
void coll_gpusym_bounce_place(coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s, char *memory,
                              coll_gpusym_args_t *on_host);
/* Whether open packs a side of a call that is GPU memory: it has no segments. */
bool coll_gpusym_bounce_packs(coll_gpusym_buffers_t *b);
/* Reports why a call's data cannot go through host memory: topic "no-memory", of that many bytes, or "gpu-error".
 * Returns the MPI error code: MPI_ERR_NO_MEM, MPI_ERR_OTHER. */
int coll_gpusym_bounce_report(const coll_gpusym_buffers_t *b, const char *topic, size_t bytes);

#endif
