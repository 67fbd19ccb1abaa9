/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which processes have gpusym, and the same one. Every process publishes in Open MPI's modex, before there is a communicator,
 * its version and the parameters that must be alike; so a communicator's ranks all know, without a message to a rank
 * that would not answer, whether they may agree on calls. Read at a communicator's first call, once a process.
 */
#ifndef MCA_COLL_GPUSYM_PEERS_H
#define MCA_COLL_GPUSYM_PEERS_H

#include "ompi_config.h" /* always first */

#include "ompi/communicator/communicator.h"

#include "mca/common/gpusym/shm/process.h"

/* A process of this host that has published. Lives until coll_gpusym_peers_fini. */
typedef struct coll_gpusym_peer coll_gpusym_peer_t;

/* From the component's open function, with the parameters registered. */
void coll_gpusym_peers_publish(void);
void coll_gpusym_peers_fini(void);

/*
 * The ranks of an intracommunicator. *reason is -1 where all have the same gpusym, on this host; peer[size] is filled
 * in then, with this process too. Else it is an enum coll_gpusym_reason for which there is no agreement in this
 * communicator: every rank comes to that by itself, if not by the same reason; what is likely a mistake has been told
 * to the user, by one rank, once. MPI error code.
 */
int coll_gpusym_peers_look(struct ompi_communicator_t *comm, coll_gpusym_peer_t **peer, int *reason);
/* Whether its process lives; about 1 us, after the first time. Takes a descriptor. Any thread. */
bool coll_gpusym_peer_lives(coll_gpusym_peer_t *peer);
int coll_gpusym_peer_process(const coll_gpusym_peer_t *peer);
/* Gives the descriptors of these n back; a later question takes them again. */
void coll_gpusym_peers_forget(coll_gpusym_peer_t *const *peer, uint32_t n);

#endif
