/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Resident kernels: between two small calls of a communicator a kernel may remain on the GPU, and take the next call's
 * command from a doorbell, without a launch.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_RESIDENT_H
#define MCA_COLL_GPUSYM_EXEC_RESIDENT_H

#include "mca/coll/gpusym/exec/early.h"
#include "mca/coll/gpusym/exec/launch.h"
#include "mca/coll/gpusym/plan/task.h"
#include "mca/common/gpusym/agree/line.h"
#include "tuning/resident.h"

/* A communicator has one for all-reduce, and one for the others. */
enum { COLL_GPUSYM_RESIDENT_ALLREDUCE, COLL_GPUSYM_RESIDENT_OTHER, COLL_GPUSYM_RESIDENTS };

/* One, or the last one. */
typedef struct {
    gpusym_lane_t *lane; /* its; NULL: there is none, or a call has it */
    unsigned kernel;
    unsigned coll; /* enum coll_gpusym_coll */
    int algorithm;
    bool alone;      /* no other call of the communicator has been a kernel's since its last one */
    uint32_t epoch;  /* of its last call */
    uint64_t bytes;  /* of its last call */
    uint32_t hash;   /* of its last call: coll_gpusym_task_t's */
    uint32_t served; /* calls, without its first */
    gpusym_tuning_resident_t worth;
    gpusym_work_t work;           /* it was launched with, or would be */
    gpusym_kernel_status_t *told; /* in the communicator's line; NULL: none has been launched */
} coll_gpusym_resident_t;

/* A communicator's. Zeroed before its first use. */
typedef struct {
    coll_gpusym_resident_t kernel[COLL_GPUSYM_RESIDENTS];
    coll_gpusym_early_t early;
} coll_gpusym_residents_t;
_Static_assert(COLL_GPUSYM_RESIDENTS == GPUSYM_LINE_KERNELS, "a line tells of all kernels");

/* How long a kernel remains without a call, or waits for peers that have not posted one; 0: there is none. */
uint64_t coll_gpusym_resident_linger_ns(void);
/* Whether a call may be one of a resident kernel. */
bool coll_gpusym_resident_may(const coll_gpusym_task_t *task, const coll_gpusym_plan_t *p);
/* For such a call, planned and with its epoch: true if the kernel is here, and has been sent the command; l->lane is
 * set. */
bool coll_gpusym_resident_command(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, coll_gpusym_launch_t *l,
                                  const coll_gpusym_plan_t *p);
/* The same without a plan, for a call like the last one of the kernel. */
bool coll_gpusym_resident_command_same(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task,
                                       coll_gpusym_launch_t *l);
/* The same, where this rank only sends: its kernel waits for no other, so it needs no launch token (agree/tokens.h).
 * The call goes on as if it were not. */
void coll_gpusym_resident_command_sender(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task,
                                         coll_gpusym_launch_t *l);
/* For a call that has just been posted, and is like the last one of a kernel: sends the command if that is here, or
 * launches another one (a call that is not blocking). Then l->lane is set, and the call goes on as if it were not. */
void coll_gpusym_resident_begin(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, coll_gpusym_launch_t *l);
/* For a call that coll_gpusym_resident_may() allows and no kernel here serves: makes its plan a resident kernel's, or
 * leaves it. */
void coll_gpusym_resident_prepare(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, coll_gpusym_launch_t *l,
                                  coll_gpusym_plan_t *p);
/* Whether the kernel that a call has begun with has retired: nothing of the call has been done, or will be. */
bool coll_gpusym_resident_retired(const coll_gpusym_launch_t *l);
/* Launches such a call. False: that failed. */
bool coll_gpusym_resident_relaunch(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task,
                                   coll_gpusym_launch_t *l);
/* The call of a kernel that remains, or was launched early, is done: the kernel has its lane again, or gives it back.
 * Not well: it is dismissed. */
void coll_gpusym_resident_done(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, coll_gpusym_launch_t *l,
                               bool well);
/* Makes room for the launch of p, another kernel of the communicator: resident kernels remain if there is a
 * multiprocessor for all. */
void coll_gpusym_resident_make_room(coll_gpusym_residents_t *all, const coll_gpusym_team_t *t,
                                    const coll_gpusym_plan_t *p);
/* Dismisses all kernels of a communicator, and forgets its calls: the next one like the last may be another kernel's.
 * In the same call on all ranks, which have not begun it. */
void coll_gpusym_residents_forget(coll_gpusym_residents_t *all);
/* Dismisses all kernels of a communicator, at its end. */
void coll_gpusym_residents_end(coll_gpusym_residents_t *all);

#endif
