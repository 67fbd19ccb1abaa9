/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rails: collectives between processes that do not reach each other's memory, one of each island, over the streams of
 * net/stream.h.  The CPU drives: it launches a kernel that ends by itself when a piece has landed, and sends a piece
 * when that kernel has ended.  No kernel waits for a peer or for the net, but exchanges (short.h), for a limited time:
 * nothing that a program does between posting a call and waiting for it can make a kernel hang.
 *
 *     input -> send buffer (pinned) -> net -> ring (pinned) -> output, or reduced with the input -> send buffer
 *
 * No function waits.  The thread that uses the streams uses their rails; one call of a rail is under way at a time.
 */
#ifndef GPUSYM_COMMON_RAIL_RAIL_H
#define GPUSYM_COMMON_RAIL_RAIL_H

#include "mca/common/gpusym/rail/call.h"

/* Streams begin in generation 0: a rail that takes another one's place has other tokens, or another first_stream. */
int gpusym_rail_open(const gpusym_rail_params_t *params, gpusym_rail_t **rail);
/* Closes a rail without a call, or whose call has failed.  False: a kernel runs, or a message is still landing or being
 * sent; call it again after the next progress of the streams.  NULL is accepted. */
bool gpusym_rail_close(gpusym_rail_t *rail);
/* Whether no kernel of a call that has failed runs any more: its buffers are the caller's again.  Messages, which are
 * sent from the rail's own memory, may still be under way. */
bool gpusym_rail_idle(gpusym_rail_t *rail);
/* The same as close for a rail whose streams have been closed.  Waits for its kernels. */
void gpusym_rail_free(gpusym_rail_t *rail);

/* Starts a call, on a rail that is quiet.  The caller has posted the same on all processes in the same order, or will.
 * Its buffers and `arg` stay as they are until it has ended; after an error, until gpusym_rail_close or
 * gpusym_rail_idle returns true.  GPUSYM_ERR_BAD_PARAM: the form does not do that. */
int gpusym_rail_start(gpusym_rail_t *rail, const gpusym_rail_call_t *call);
/* Moves the call on: 1: it has ended, and its output is visible to the GPU; 0: it is under way; else an error, after
 * which the rail is closed: GPUSYM_ERR_UNREACHABLE: a peer to which something is to be sent is lost;
 * GPUSYM_ERR_CORRUPT: a peer does a later call; the device's.  Of a peer that is only waited for, the streams' lost()
 * tells.  The caller moves the streams on. */
int gpusym_rail_poll(gpusym_rail_t *rail);

/* Lets a held call go on to its end. */
void gpusym_rail_release(gpusym_rail_t *rail);
/* Gives up a held call, on all processes: none has written an output.  True: no kernel of it runs any more, and its
 * buffers are the caller's again; false: call it again.  Messages may still be under way, to processes that do
 * something else now.  What was sent is dropped by the calls that find it. */
bool gpusym_rail_drop(gpusym_rail_t *rail);
/* Whether no kernel and no message of a call that was dropped, or has failed, is under way any more. */
bool gpusym_rail_quiet(gpusym_rail_t *rail);

const gpusym_rail_counters_t *gpusym_rail_counters(const gpusym_rail_t *rail);

#endif
