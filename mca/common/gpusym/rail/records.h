/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Records: how the islands of a communicator agree on a call.  The calls are numbered, and each island has a leader.  A
 * leader whose island may do a call on GPU memory posts a record of its island, and gets the records of all others; one
 * whose island does it on host memory goes on at once, and answers the others when they ask, sooner or later.
 *
 *     post of call s --> is there a post of s here? it is the record that is waited for
 *                        does this island do s on host memory? an answer of kind 0 goes back
 *                        not known yet? the post waits here until it is
 *
 * Where all islands post, each has all records after one step.
 *
 * The islands rely on this: a leader posts the next call only after it has read all records of the one before.  So it
 * has at most one post that this island has neither answered nor posted itself, while the record of the call before,
 * which both have posted, may still be in use here.  Calls on host memory bind nobody: a leader may be thousands of
 * calls ahead of what it is asked for, or be asked for what it reaches thousands of calls later.
 *
 * No function waits.  The thread that uses the streams uses their records.  The caller moves the streams on.
 */
#ifndef GPUSYM_COMMON_RAIL_RECORDS_H
#define GPUSYM_COMMON_RAIL_RECORDS_H

#include "mca/common/gpusym/net/stream.h"
#include "mca/common/gpusym/rail/call.h"

#define GPUSYM_RECORD_BYTES 64

/* The record of an island in a call, as on the wire.  But for `call` and kind 0, the user gives it its meaning. */
typedef struct {
    uint64_t call; /* set by the records: all bits of its number */
    uint64_t bytes, balance;
    uint32_t hash, flags, what, layout;
    uint16_t kind; /* 0: the island does the call on host memory; all else but `call` is 0 in an answer */
    uint8_t pad[22];
} gpusym_record_t;
_Static_assert(GPUSYM_RECORD_BYTES == sizeof(gpusym_record_t), "no padding: the record is sent as it is");

/* A leader's end of the agreement with all others. */
typedef struct gpusym_records gpusym_records_t;

typedef struct {
    gpusym_net_streams_t *streams; /* whose pieces may have GPUSYM_RECORD_BYTES */
    uint32_t n, pos;               /* islands, and which of them this one is */
    uint16_t stream;               /* number of the channel of the streams to the other leaders */
    /* Gets a leader by its island, as in gpusym_rail_params_t.  Called by open, once for each other island.  Does not
     * move the streams on.  An error ends open. */
    int (*peer)(void *arg, uint32_t pos, gpusym_rail_peer_t *peer);
    /* Asked for a call that another leader has posted, and this one has not.  1: it is known that this island does it
     * on host memory: a record of kind 0 goes there.  0: not known yet, or this leader will post the call.  Called from
     * poll, again and again while it returns 0, after 1 no more for this leader. */
    int (*answer)(void *arg, uint64_t call);
    void *arg;
} gpusym_records_params_t;

/* Bytes of the ring for one other leader; the streams give each ring whole pages. */
#define GPUSYM_RECORDS_RING_BYTES (8u * GPUSYM_RECORD_BYTES)

/* Opens the streams to all other leaders, in generation 0: records that take others' place have other tokens, or
 * another channel.  Errors: those of peer and gpusym_net_stream_open, GPUSYM_ERR_NO_MEMORY; then nothing is open. */
int gpusym_records_open(const gpusym_records_params_t *params, gpusym_records_t **records);

/* Posts the record of this island in a call, which is copied: sends it to the leaders that have got no answer for this
 * call.  The numbers of posts rise, with gaps: calls that an island does on host memory are not posted, only answered.
 * A call for which some leader has got an answer may be posted until that leader gets an answer for a later one.
 * GPUSYM_ERR_BAD_PARAM: the number does not rise, or a record of the call before is missing; nothing is posted.  Else
 * an error as in poll. */
int gpusym_records_post(gpusym_records_t *records, uint64_t call, const gpusym_record_t *mine);

/* Gets the records of all islands in the call that was posted last.  1: all are there: (*all)[n], this island's own one
 * among them, valid until the next post; 0: not yet; GPUSYM_ERR_BAD_PARAM: another call; else an error as in poll. */
int gpusym_records_read(const gpusym_records_t *records, uint64_t call, const gpusym_record_t **all);

/* Reads what has come, answers, sends what waits for room.  Returns whether something is open: another leader has
 * posted a call that this one has not posted, and cannot answer yet.  *rc: GPUSYM_SUCCESS, or the first error, which
 * stays: GPUSYM_ERR_CORRUPT: another leader has sent what is no record, or what this protocol does not have;
 * GPUSYM_ERR_UNREACHABLE: one to which something is to be sent is lost (of those that are only waited for, the streams'
 * lost() tells); the transport's.  The leaders without an error are still served.  Post need not be called any more:
 * after the communicator, poll answers late questions. */
bool gpusym_records_poll(gpusym_records_t *records, int *rc);

/* Whether the record of an island in the call that was posted last is there. */
bool gpusym_records_has(const gpusym_records_t *records, uint32_t pos);

/* Tells the other leaders that this island gave up: no call will be agreed on any more.  why: the user's word for
 * it. */
void gpusym_records_abort(gpusym_records_t *records, uint64_t why);
/* Whether another leader has told so; *pos: the first such, *why: its word. */
bool gpusym_records_aborted(const gpusym_records_t *records, uint32_t *pos, uint64_t *why);

/* Tells the other leaders that this one posts nothing more.  It still answers, until all have told the same. */
void gpusym_records_leave(gpusym_records_t *records);
/* Whether all leaders that are not lost have told so, this one included, and nothing is left to be sent. */
bool gpusym_records_left(const gpusym_records_t *records);

/* The watch: a network may lose a leader without telling.  From the first call of this function on, this leader sends
 * a beat to its two neighbours on the ring of islands every fifth of the limit, and hears theirs.  The caller calls it
 * many times in a twentieth of the limit, the most that counts as silence between two calls, so that nobody is lost
 * while this process was stopped.  All leaders begin at about the same time, with the same limit.  A beat for which
 * there is no room is left out.  Whoever gives up or leaves neither beats nor is watched any more. */
void gpusym_records_watch(gpusym_records_t *records, uint64_t now_ns, uint64_t limit_ns);
/* Whether nothing has come from a neighbour for the limit; *pos: the first such.  That stays. */
bool gpusym_records_silent(const gpusym_records_t *records, uint32_t *pos);

/* Closes the streams, and frees the records.  False: a message is still landing or being sent; call it again after the
 * next progress of the streams.  NULL is accepted. */
bool gpusym_records_close(gpusym_records_t *records);
/* The same for records whose streams have been closed. */
void gpusym_records_free(gpusym_records_t *records);

#endif
