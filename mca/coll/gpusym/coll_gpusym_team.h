/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A team: what a communicator shares with its peers. Made in two steps, each when all ranks are there: at
 * the first collective (who is where, the lines of the roll-call), and at the first call in which all ranks have
 * device buffers (the heap, the slots). Used by the files of coll/gpusym that serve collectives.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_H
#define MCA_COLL_GPUSYM_TEAM_H

#include "coll_gpusym.h"
#include "mca/common/gpusym/lane.h"

struct coll_gpusym_team {
    uint32_t nranks, rank;
    int reason;            /* enum coll_gpusym_reason for which every call is staged, agreed by all ranks; -1: none */
    gpusym_rollcall_t rc;  /* valid while reason < 0 or became so after the second step */
    bool broken;           /* a call failed: flags and epochs are no longer alike, every further call is refused */
    bool has_line;
    uint64_t line_off;     /* of our line in our pages */

    bool gpu_tried;        /* the second step was made */
    bool has_slot;
    int slot_class;
    gpusym_gpu_t *gpu;
    char gpu_text[112];    /* "NVIDIA H200, 0000:1b:00.0", for messages */
    int mem_gpu;           /* ordinal and context of memory known to be gpu's */
    void *mem_context;
    uint64_t slot_off, slot_size;
    uint32_t max_blocks;   /* a launch may use */
    uint32_t sm_count;     /* of the smallest GPU */
    uint32_t epoch;        /* next unused */
    gpusym_work_t work;    /* peers and layout filled in */
};

/* First step, collective over the communicator, by the saved functions. MPI error code. Afterwards module->team is set,
 * or module->passthrough. */
int coll_gpusym_team_create(mca_coll_gpusym_module_t *module);
/* Second step, collective: every rank's buffers lie on its GPU; where: one of ours. Sets team->reason where it cannot be. */
int coll_gpusym_team_gpu(mca_coll_gpusym_module_t *module, const gpusym_mem_t *where);
/* Whether mem can be used by kernels of this team's GPU (of the process's heap, before the second step). Local. */
bool coll_gpusym_team_owns(coll_gpusym_team_t *team, const gpusym_mem_t *mem);
/* Takes `epochs` epochs, clearing the slots when the counter would wrap (collective then). */
int coll_gpusym_team_epochs(mca_coll_gpusym_module_t *module, uint64_t epochs, uint32_t *first);

/* coll_gpusym_types.c: the kernels' type or operation for MPI's; -1 if they have none. */
int coll_gpusym_type(struct ompi_datatype_t *dtype);
int coll_gpusym_op(struct ompi_op_t *op);

/* coll_gpusym_stage.c: one all-reduce through host memory and the previous module. */
int coll_gpusym_stage_allreduce(mca_coll_gpusym_module_t *module, const void *sbuf, void *rbuf, gpusym_count_t count,
                                struct ompi_datatype_t *dtype, struct ompi_op_t *op, const gpusym_mem_t *where);
void coll_gpusym_stage_fini(void);

/*
 * coll_gpusym_call.c: a call in flight. start() posts it, poll() drives it, wait() is poll until the end.
 * Everything is asynchronous but staging, which calls the previous module's blocking function.
 */
typedef enum {
    COLL_GPUSYM_CALL_ROLLCALL, /* waiting for the peers' lines */
    COLL_GPUSYM_CALL_TURN,     /* agreed: native; waiting for the turn of this communicator */
    COLL_GPUSYM_CALL_RUNNING,  /* the kernel runs */
    COLL_GPUSYM_CALL_DRAINING, /* something failed; waiting for the kernel to leave */
    COLL_GPUSYM_CALL_STAGE,    /* agreed: to be staged, for `reason`; the caller does it */
    COLL_GPUSYM_CALL_ENDED,    /* with `error` */
} coll_gpusym_call_state_t;

typedef struct {
    mca_coll_gpusym_module_t *module;
    enum coll_gpusym_coll coll;
    const char *name;             /* "MPI_Allreduce" */
    gpusym_mem_t where;           /* a buffer on our GPU */
    const void *in;
    void *out;
    bool out_local;               /* out is memory of our GPU, neither managed nor the host's */
    uint64_t bytes;
    unsigned op, type;            /* of kernels.def */

    coll_gpusym_call_state_t state;
    int reason;                   /* of staging */
    int error;                    /* MPI error code */
    int algorithm;                /* that ran */
    gpusym_rollcall_read_t read;
    bool has_turn;                /* to be given back */
    gpusym_lane_t *lane;          /* while a kernel of ours is queued */
    uint32_t polls;               /* since the last look at the peers' health */
    uint64_t looked_ns, since_ns; /* last look; begin of this state */
} coll_gpusym_call_t;

/* kind: GPUSYM_KIND_NATIVE, or GPUSYM_KIND_STAGE + reason. On return the state is set; an error ends the call. */
void coll_gpusym_call_start(coll_gpusym_call_t *call, uint8_t kind);
/* One look. True once state is STAGE or ENDED. */
bool coll_gpusym_call_poll(coll_gpusym_call_t *call);
void coll_gpusym_call_wait(coll_gpusym_call_t *call);
/* Posts a call with host buffers: one store, and now and then a look at the peers. MPI error code. */
int coll_gpusym_call_pass(mca_coll_gpusym_module_t *module, const char *name, uint64_t bytes);

#endif
