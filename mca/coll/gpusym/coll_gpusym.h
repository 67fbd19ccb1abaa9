/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * coll/gpusym: the face to MPI collectives.  What its files share: the component with its
 * parameters, the module (one a communicator), the saved functions of the previous modules, the
 * counters, and the team (what a communicator shares with its peers).
 */
#ifndef MCA_COLL_GPUSYM_H
#define MCA_COLL_GPUSYM_H

#include "ompi_config.h" /* always first */

#include "mpi.h"
#include "ompi/communicator/communicator.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/coll/base/base.h"
#include "ompi/mca/coll/coll.h"
#include "ompi/op/op.h"
#include "opal/util/output.h"

#include "mca/coll/gpusym/args/args.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/ompi/ompi_compat.h"
#include "mca/common/gpusym/agree/tokens.h"
#include "mca/common/gpusym/topo/paths.h"
#include "mca/common/gpusym/topo/rings.h"

enum coll_gpusym_reason {
#define GPUSYM_REASON(ID, name, doc) COLL_GPUSYM_R_##ID,
#include "mca/coll/gpusym/args/coll_gpusym.def"
    COLL_GPUSYM_REASONS
};

/* Values of coll_gpusym_<collective>_algorithm: an algorithm of kernels.def, or one of these. */
#define COLL_GPUSYM_ALG_AUTO (-1)
#define COLL_GPUSYM_ALG_STAGED (-2)

/* Calls of one collective since MPI_Init, in this process; counted with relaxed atomics. */
typedef struct {
    unsigned long long native;                       /* ran on the GPU */
    unsigned long long algorithm[GPUSYM_ALG_COUNT];  /* of those, by algorithm */
    unsigned long long copied;                       /* of those, one-rank communicators: a copy */
    unsigned long long zero_copy;                    /* of the native ones: straight between users' buffers */
    unsigned long long resident;                     /* of the native ones: by a kernel that was there, without a launch */
    unsigned long long late;                         /* of the native ones: that had left just before; launched */
    unsigned long long staged;                       /* went through the host */
    unsigned long long reason[COLL_GPUSYM_REASONS];  /* of those, by reason */
    unsigned long long forwarded;                    /* host buffers: forwarded untouched */
} coll_gpusym_counters_t;

typedef struct {
    gpusym_coll_component_t super; /* ompi_compat.h: this Open MPI's component struct */

    /* MCA parameters, see conf/params.c for units and ranges */
    int priority;
    const char *adopt;       /* which stock coll components to take in when only gpusym is named */
    bool adopt_set;          /* the user has set it, to whatever */
    unsigned oneshot_max;    /* largest message in bytes for agxll_r; 0: by the tuning table */
    /* By collective: enum gpusym_algorithm, COLL_GPUSYM_ALG_AUTO or _STAGED. Of what has no kernels: AUTO */
    int algorithm[COLL_GPUSYM_COLLS];
    int blocks;              /* blocks a launch; 0: by the tuning table */
    int threads;             /* threads a block; 0: by the tuning table */
    unsigned chunk;          /* two-shot: bytes that a block takes at a time; 0: by the tuning table */
    double timeout;          /* seconds one GPU waits for another inside a kernel; 0: no limit */
    double timeout_host;     /* seconds a call waits for ranks that do not come; 0: no limit */
    double warn;             /* seconds after which it says for whom; 0: never */
    bool share_gpu;          /* run kernels even where two ranks share a GPU */
    int linger;              /* how long a kernel stays after a small call, in microseconds; -1: by the tuning table */
    bool graph;              /* kernels are launched by graphs */
    bool zero_copy;          /* large messages go straight between users' buffers where peers can map them */
    unsigned zero_copy_min;  /* smallest message in bytes for that; 0: by the tuning table */
    bool reproducible;       /* only algorithms whose bits depend on nothing but inputs and number of ranks */
    bool summary;            /* print the counters at MPI_Finalize */
    unsigned epoch_first;    /* developer: first epoch of a communicator, to test the wrap */

    int output;              /* opal_output stream; -1 before open and after close */
    bool used;               /* a communicator has had a module of ours since the summary was printed */
    int world_rank;          /* of this process in its MPI_COMM_WORLD; set by init_query */
} mca_coll_gpusym_component_t;

GPUSYM_COMPONENT_EXPORT extern mca_coll_gpusym_component_t mca_coll_gpusym_component;
/* Hidden, so that every call reaches them by one instruction. */
extern coll_gpusym_counters_t coll_gpusym_counters[COLL_GPUSYM_COLLS] __attribute__((visibility("hidden")));

/* The previous modules' functions, each with its (retained) module; NULL: the communicator has not got it. */
typedef struct {
#define GPUSYM_COLL(ID, name, Name, FIELDS)                                                                   \
    int (*name)(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm, mca_coll_base_module_t *module); \
    mca_coll_base_module_t *name##_module;                                                                    \
    int (*i##name)(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm, struct ompi_request_t **req,  \
                   mca_coll_base_module_t *module);                                                           \
    mca_coll_base_module_t *i##name##_module;                                                                 \
    int (*name##_init)(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm, struct ompi_info_t *info, \
                       struct ompi_request_t **req, mca_coll_base_module_t *module);                          \
    mca_coll_base_module_t *name##_init_module;
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS)                           \
    int (*name)(FIELDS(COLL_GPUSYM_PARAM) mca_coll_base_module_t *module); \
    mca_coll_base_module_t *name##_module;
#include "mca/coll/gpusym/args/coll_gpusym.def"
} coll_gpusym_saved_t;

/* What a communicator shares with its peers; made at its first collective, see team/team.c. */
typedef struct coll_gpusym_team coll_gpusym_team_t;

struct mca_coll_gpusym_module {
    mca_coll_base_module_t super;
    struct ompi_communicator_t *comm; /* not retained: the communicator owns us */
    coll_gpusym_saved_t saved;
    coll_gpusym_team_t *team;         /* NULL until the first collective */
    bool passthrough;                 /* no rank has a device: hand everything on */
    bool host_lately;                 /* the last call's buffers were host memory: the next one's are expected to be */
    bool alone;                       /* an intracommunicator of one rank */
    /* No team: nobody to agree with, or ranks that have no gpusym, or not the same. Each rank stages its own buffers,
     * and calls the previous module just when and as MPI calls us: as a rank without gpusym does. */
    bool apart;
    int reason_apart;                 /* enum coll_gpusym_reason, for what is staged then */
    bool inside;                      /* the previous module does a blocking call for us: see coll_gpusym_previous */
    int internal;                     /* call/internal.c's: how Open MPI's own all-reduces go, if that is known */
};

OBJ_CLASS_DECLARATION(mca_coll_gpusym_module_t);

/* From now on all calls of the communicator are handed on; whether they are. Any thread. */
static inline void coll_gpusym_pass(mca_coll_gpusym_module_t *m)
{
    __atomic_store_n(&m->passthrough, true, __ATOMIC_RELAXED);
}
static inline bool coll_gpusym_passes(const mca_coll_gpusym_module_t *m)
{
    return __atomic_load_n(&m->passthrough, __ATOMIC_RELAXED);
}

/* conf/params.c */
int coll_gpusym_params_register(void);
/* conf/counters.c: MPI_T performance variables, and the summary. */
int coll_gpusym_counters_register(void);
/* Prints the summary if it is asked for, in rank 0 of MPI_COMM_WORLD if gpusym served any communicator, once. */
void coll_gpusym_counters_print(void);
/* A collective's name in parameters and counters, "allreduce"; enum coll_gpusym_coll. */
const char *coll_gpusym_name(unsigned coll);
/* A collective's name in messages, "MPI_Allreduce"; enum coll_gpusym_coll. */
const char *coll_gpusym_mpi_name(unsigned coll);
const char *coll_gpusym_reason_name(unsigned reason);
const char *coll_gpusym_reason_doc(unsigned reason);
/* Whether kernels.def has the algorithm (enum gpusym_algorithm) for the collective (enum coll_gpusym_coll). */
bool coll_gpusym_algorithm_is_of(unsigned alg, unsigned coll);
static inline void coll_gpusym_count(unsigned long long *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}
/* conf/adopt.c: prepends the stock components named by the parameter to the framework's list;
 * to be called from mca_open_component. */
int coll_gpusym_adopt(void);
/* coll_gpusym_module.c */
mca_coll_base_module_t *coll_gpusym_comm_query(struct ompi_communicator_t *comm, int *priority);
/* comm: any; for an intercommunicator, has our module of its local group's communicator hand everything on. */
void coll_gpusym_pass_local(struct ompi_communicator_t *comm);

/* team/team.c: frees a team, after the communicator's last collective. NULL is fine. */
void coll_gpusym_team_free(coll_gpusym_team_t *team);
/* Called at component close: the heap, streams, pages of the process. */
void coll_gpusym_team_fini(void);

/* coll_gpusym_coll.c: the functions that a module shows to Open MPI, coll_gpusym_<name>, _i<name> and _<name>_init. All
 * they do is to make a coll_gpusym_args_t and call one of the next three. */
#define GPUSYM_COLL(ID, name, Name, FIELDS)                                                    \
    int coll_gpusym_##name(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm,        \
                           mca_coll_base_module_t *module);                                    \
    int coll_gpusym_i##name(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm,       \
                            struct ompi_request_t **req, mca_coll_base_module_t *module);      \
    int coll_gpusym_##name##_init(FIELDS(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm, \
                                  struct ompi_info_t *info, struct ompi_request_t **req,       \
                                  mca_coll_base_module_t *module);
#define GPUSYM_COLL_LOCAL(ID, name, Name, FIELDS) \
    int coll_gpusym_##name(FIELDS(COLL_GPUSYM_PARAM) mca_coll_base_module_t *module);
#include "mca/coll/gpusym/args/coll_gpusym.def"

/* What a module shows for MPI_Iallreduce: tells the program's calls from Open MPI's own, and costs the program's a few
 * instructions. */
int coll_gpusym_iallreduce_entry(COLL_GPUSYM_F_REDUCTION(COLL_GPUSYM_PARAM) struct ompi_communicator_t *comm,
                                 struct ompi_request_t **req, mca_coll_base_module_t *module);

/* args/keep.c: copies the arrays that a points to, and makes it point to the copies: *kept, to be freed with free()
 * when the call has completed (NULL: there are none). False: no memory. */
bool coll_gpusym_args_keep(const mca_coll_gpusym_module_t *m, coll_gpusym_args_t *a, void **kept);
/* The engine: one call on this rank. MPI error code. Each may be called with device, host, or no memory at all.
 * The requests must be of a class made from ompi_coll_base_nbc_request_t: MPI's own layer keeps the datatypes and the
 * operation of a call in there (ompi_coll_base_retain_op), and puts itself before req_complete_cb or req_free. */
int coll_gpusym_blocking(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a);
int coll_gpusym_nonblocking(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, struct ompi_request_t **req);
/* The request is inactive. info may be NULL. */
int coll_gpusym_persistent(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, struct ompi_info_t *info,
                           struct ompi_request_t **req);

/* call/internal.c: all-reduces of Open MPI's own. */
/* Where MPI_Iallreduce calls a module from, once it has been seen: what comes from there is the program's. */
extern const void *coll_gpusym_iallreduce_caller __attribute__((visibility("hidden")));
/* Whether an iallreduce on comm, called from `caller`, is Open MPI's own: a few integers. The same on all ranks. */
bool coll_gpusym_is_internal(size_t count, struct ompi_datatype_t *dtype, struct ompi_op_t *op,
                             struct ompi_communicator_t *comm, const void *caller);
/* Starts such a call, of MPI_INT in host memory: by the previous module where not all ranks have the same gpusym. MPI error
 * code. *req is completed by Open MPI's progress, and the caller's to free; until then `out` and the communicator must be
 * there. Any thread. */
int coll_gpusym_internal_iallreduce(mca_coll_gpusym_module_t *m, const void *in, void *out, size_t count,
                                    struct ompi_op_t *op, struct ompi_request_t **req);
/* Progress is no longer made. */
void coll_gpusym_internal_fini(void);

/* "MPI_COMM_WORLD (cid 0)" style name for messages, into buf; returns buf. */
#define COLL_GPUSYM_COMM_NAME_MAX (MPI_MAX_OBJECT_NAME + 64)
const char *coll_gpusym_comm_name(struct ompi_communicator_t *comm, char *buf, size_t size);

/* conf/help.c: an error to the user in three parts (what happened, where, what to do), to stderr.
 * topic: one of conf/help.def, which gives the types of the arguments. */
void coll_gpusym_help(const char *topic, ...);

/* A line for who wants to know, see coll_gpusym_verbose; the first argument is a literal format. */
#define COLL_GPUSYM_VERBOSE(level, ...) \
    opal_output_verbose((level), mca_coll_gpusym_component.output, "coll:gpusym: " __VA_ARGS__)

#endif
