/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A net of several ends in one process and one thread, for unit tests: everything that a net may do happens by chance,
 * from a seed, in a time of its own.  Time stands still until net_fake_step(): what a test does between two steps takes
 * none, so that the time tells how many one-way delays something needs.
 */
#ifndef TEST_UNIT_NET_FAKE_H
#define TEST_UNIT_NET_FAKE_H

#include "mca/common/gpusym/net/net.h"

#define NET_FAKE_DELAY 1000u /* one way, in units of time */

/* Chances are per 1000 messages. */
typedef struct {
    uint64_t seed;
    uint32_t jitter; /* a message takes NET_FAKE_DELAY, and up to this more: so messages overtake */
    uint32_t loss;   /* messages that vanish; the sender's memory becomes free */
    uint32_t twice;  /* messages that come twice */
    uint32_t slow;   /* messages that land a delay later than they are placed, or are broken off if the peer is lost */
    uint32_t refuse; /* sends that fail with GPUSYM_ERR_NO_MEMORY */
    uint32_t part_bytes; /* no chance: of a message, as the table has it; 0: no limit */
} net_fake_params_t;

/* Begins a world without ends, at time 0. The ends of the last one must be closed. */
void net_fake_start(const net_fake_params_t *params);

/* A transport. A message leaves the sender's memory when it lands: if the data change before `sent`, others land; if
 * the head does, the test is aborted. */
extern const gpusym_transport_t net_fake;

/* The time. */
uint64_t net_fake_now(void);
/* Goes on to the time of the next event; false: there is none. The ends see it in their progress(). */
bool net_fake_step(void);

/* Cuts the link between two ends, or heals it. What is under way on a cut link, and what is sent, waits. */
void net_fake_cut(gpusym_net_t *a, gpusym_net_t *b, bool cut);
/* Ends the process of an end: it neither sends nor lands anything as of now, and its peers lose it a delay later. */
void net_fake_kill(gpusym_net_t *net);
/* Lets any bytes arrive as a message. */
void net_fake_inject(gpusym_net_t *net, const void *header, size_t header_bytes, const void *data, uint32_t bytes);

#endif
