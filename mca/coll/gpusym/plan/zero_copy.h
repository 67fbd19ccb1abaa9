/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Zero copy: offering this rank's buffers to its peers, and mapping theirs.
 */
#ifndef MCA_COLL_GPUSYM_PLAN_ZERO_COPY_H
#define MCA_COLL_GPUSYM_PLAN_ZERO_COPY_H

#include "mca/coll/gpusym/plan/task.h"

/* Offers the buffers of the call that peers can map: fills in the keys, offsets and flags of the post. The buffers are
 * pinned until coll_gpusym_zero_copy_withdraw(). */
void coll_gpusym_zero_copy_offer(coll_gpusym_task_t *task, gpusym_post_t *post);
/* Tells the peers where the output of the next call is, if the post says that they may write there. False: not yet, for
 * a peer may still read where that of an earlier call was; nothing was changed. */
bool coll_gpusym_zero_copy_tell(coll_gpusym_task_t *task, gpusym_post_t *post);
/* Unpins the buffers that were offered. */
void coll_gpusym_zero_copy_withdraw(coll_gpusym_task_t *task);
/* Before that, of a call that has failed: keeps what leaders may still access in our staging buffer from being used
 * again. */
void coll_gpusym_zero_copy_lose(coll_gpusym_task_t *task);
/* Whether the call may use zero copy, by the posts of all ranks. All entries have been read. */
bool coll_gpusym_zero_copy_possible(const coll_gpusym_task_t *task);

/* Whether what stands in the output is copied to the staging buffer where a leader stores: it writes not all of that,
 * or reads it. */
bool coll_gpusym_zero_copy_keeps(const coll_gpusym_task_t *task);
/* Whether leaders read in the ranks' tables (agree/table.h) what goes where. */
bool coll_gpusym_zero_copy_led_by_table(const coll_gpusym_task_t *task);
/* Whether leaders can do the call, by the posts of all ranks. All entries have been read; the team is led. */
bool coll_gpusym_zero_copy_led(const coll_gpusym_task_t *task);
/* The buffers of all ranks as a leader reaches them; NULL: the rank has none. */
typedef struct {
    const void *in[COLL_GPUSYM_LED_MAX];
    void *out[COLL_GPUSYM_LED_MAX];
    uint64_t in_room[COLL_GPUSYM_LED_MAX], out_room[COLL_GPUSYM_LED_MAX]; /* bytes that are mapped there */
} coll_gpusym_led_buffers_t;
/* Maps them, on a leader. As coll_gpusym_zero_copy_map. */
bool coll_gpusym_zero_copy_map_led(coll_gpusym_task_t *task, coll_gpusym_led_buffers_t *all, bool voted, int *corrupt);

/* Maps the buffers that the peers offer, into w->peer_in and w->peer_out. voted: all ranks have mapped them before, and
 * their owners keep them. reach: what must be there; NULL: that is not known yet. False: a buffer cannot be mapped;
 * *corrupt is -1, or the rank whose post is corrupt: what it says lies outside of its memory. */
bool coll_gpusym_zero_copy_map(coll_gpusym_task_t *task, gpusym_work_t *w, const coll_gpusym_reach_t *reach, bool voted,
                               int *corrupt);
/* Sets where this rank's segments stand in the peers' outputs, by their tables: w->remote_off; and w->send, where a
 * peer takes less than it is sent. Then *reach, and maps once more, by that. The buffers are mapped. False: as
 * coll_gpusym_zero_copy_map; or the table of rank *corrupt is corrupt. */
bool coll_gpusym_zero_copy_place(coll_gpusym_task_t *task, gpusym_work_t *w, coll_gpusym_reach_t *reach, int *corrupt);
/* Notes that all ranks have mapped the buffers that this call offers: later calls need no vote on them. */
void coll_gpusym_zero_copy_mapped(coll_gpusym_task_t *task);

#endif
