/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Hosts, one process and one GPU each, in a time of their own: the engine between hosts (mca/common/gpusym/rail/) and
 * its streams run as they are, over a net and on GPUs whose operations take the time that LogGP says, and move no data.
 * Source: Alexandrov, Ionescu, Schauser and Scheiman, LogGP: incorporating long messages into the LogP model, SPAA
 * 1995.
 */
#ifndef TEST_SCALE_MODEL_H
#define TEST_SCALE_MODEL_H

#include "mca/common/gpusym/rail/call.h"

/* What operations take, in ns; bytes per ns are GB/s. */
typedef struct {
    const char *name, *what;
    double latency;    /* L: from the sender's interface to the receiver's */
    double overhead;   /* o: of the sender, for a message; g is no longer */
    double wire_gbs;   /* 1 / G: of an interface, each way */
    double launch;     /* from the CPU's call until the GPU begins */
    double kernel;     /* until the CPU sees that a kernel has ended, beside what its bytes take */
    double kernel_gbs; /* of pinned memory, by kernels, each way */
    double copy;       /* by the copier, from the command until the CPU sees its end, beside its bytes; 0: none */
    double copy_gbs;   /* of the copier */
    double exchange;   /* the same of an exchange: from the command until the CPU has the inputs, and from the answer
                           * on; half of it each */
    double exchange_gbs;
    uint32_t piece_bytes; /* of the engine */
} scale_net_t;

/* Opens so many hosts. Ends the program where there is no memory. */
void scale_open(const scale_net_t *net, uint32_t hosts);
void scale_close(void);
/* Does a call on all hosts, which begin at once.  Returns the ns until the last one has ended; -1: it never does.  The
 * first call of a kind also opens streams. */
double scale_run(const gpusym_rail_call_t *call);
/* Bytes of data and heads that the host that sends most has sent in the last call; events of it. */
double scale_sent(void);
uint64_t scale_events(void);

#endif
