/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The component's MCA parameters.
 */
#ifndef MCA_COLL_GPUSYM_CONF_PARAMS_H
#define MCA_COLL_GPUSYM_CONF_PARAMS_H

#include <stdbool.h>

#include "mca/coll/gpusym/args/args.h"

/* Values of a collective's algorithm: one of kernels.def, or one of these. */
#define COLL_GPUSYM_ALG_AUTO (-1)
#define COLL_GPUSYM_ALG_STAGED (-2)

/* Whose network devices serve messages between islands: the nearest to this process's GPU, UCX's choice, those that
 * the user has named, none. */
typedef enum {
    COLL_GPUSYM_NET_AUTO,
    COLL_GPUSYM_NET_UCX,
    COLL_GPUSYM_NET_NAMED,
    COLL_GPUSYM_NET_NONE
} coll_gpusym_net_t;

/* Those of this process; conf/params.c has units and ranges. */
typedef struct {
    int priority;
    const char *adopt;      /* stock coll components to adopt when only gpusym is named */
    bool adopt_set;         /* the user has set it */
    unsigned oneshot_max;   /* largest message in bytes for agxll_r; 0: by the tuning table */
    const char *algorithms; /* the list of them, as the user has it */
    /* By collective: enum gpusym_algorithm, COLL_GPUSYM_ALG_AUTO or _STAGED. Of what has no kernels: AUTO */
    int algorithm[COLL_GPUSYM_COLLS];
    int blocks;          /* blocks a launch; 0: by the tuning table */
    int threads;         /* threads a block; 0: by the tuning table */
    unsigned chunk;      /* two-shot: bytes that a block takes at a time; 0: by the tuning table */
    double timeout;      /* seconds one GPU waits for another inside a kernel; 0: no limit */
    double timeout_host; /* seconds a call waits for ranks that do not come; 0: no limit */
    bool share_gpu;      /* ignored */
    int linger;       /* how long a resident kernel waits for the next call, in microseconds; -1: by the tuning table */
    int resident_max; /* longest message in bytes, or segment, of a resident kernel; -1: by the rules */
    bool graph;       /* kernels are launched by graphs */
    bool zero_copy;   /* large messages go straight between users' buffers where peers can map them */
    unsigned zero_copy_min;  /* smallest message in bytes for that; 0: by the tuning table */
    unsigned piece;          /* bytes of the segments of a staged reduction; 0: it has one */
    int node_size;           /* ranks of an island, at most; 0: as many as kernels serve */
    unsigned net_size;       /* bytes of memory for messages between islands */
    const char *rules;       /* file or folder of rules; "": that of the installation, "none": no rules */
    const char *tuner;       /* tuner plug-in, a path or a name for dlopen(); "": none */
    const char *net_devices; /* UCX's names of network devices for these, if net_choice says so */
    bool reproducible;       /* only algorithms whose bits depend on nothing but inputs and number of ranks */
    bool summary;            /* print the counters at MPI_Finalize */
    const char *trace;       /* the file of the trace; "": none */
    int trace_calls;         /* whether calls go there */
    const char *metrics;     /* the file of metrics; "": none */
    double metrics_interval; /* seconds between two writes of it; 0: only at the end */
    bool notes;              /* a summary or a profiler wants more of each call */
    unsigned epoch_first;    /* developer: first epoch of a communicator, to test the wrap */

    coll_gpusym_net_t net_choice;

    bool messages;       /* MPI's messages take GPU memory; set by the component's comm_query */
    int world_rank;      /* of this process in its MPI_COMM_WORLD; set by the component's init_query, as is: */
    unsigned local_rank; /* on its host */
    /* A process may be in several calls at once: MPI_THREAD_MULTIPLE, as init_query was told.  Open MPI's own variable
     * does not say so for long: MPI_T_init_thread sets it to what that was asked for. */
    bool multiple;
} coll_gpusym_params_t;
extern coll_gpusym_params_t coll_gpusym_params;

/* Finds an algorithm of a collective that has kernels by its name, auto and staged included. False: there is none;
 * allowed: those that there are. */
bool coll_gpusym_algorithm_parse(unsigned coll, const char *text, int *algorithm, char *allowed, size_t size);
/* The name of such a value. */
const char *coll_gpusym_algorithm_text(int algorithm);

/* Registers them, and those of the common library. Open MPI error code. */
int coll_gpusym_params_register(void);

#endif
