/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which processes have the same gpusym. Before there is a communicator, every process publishes its version, and the
 * parameters that must be the same on all ranks, in Open MPI's modex. The ranks of a communicator read them at its
 * first call, once per process: so all know whether they may agree on calls, without a message to a rank that would not
 * answer.
 */
#ifndef MCA_COLL_GPUSYM_PEERS_H
#define MCA_COLL_GPUSYM_PEERS_H

#include "ompi_config.h" /* always first */

#include "ompi/communicator/communicator.h"

#include "mca/common/gpusym/shm/process.h"
#include "mca/common/gpusym/topo/islands.h"

/* A process that has published its card. Valid until coll_gpusym_peers_fini(). */
typedef struct coll_gpusym_peer coll_gpusym_peer_t;

/* Ranks of a communicator of several islands, at most: its set-up is an allgather, which libnbc does by a message from
 * each to each. */
#define COLL_GPUSYM_RANKS_MAX 1024

/* Publishes this process's card. Called by the component's open function, with the parameters registered. */
void coll_gpusym_peers_publish(void);
/* Frees all processes; no communicator uses any more. */
void coll_gpusym_peers_fini(void);

/*
 * Finds the processes of an intracommunicator. *reason is -1 where all ranks have the same gpusym, on this host, and
 * are not more than an island holds; peer[size] is filled in then, this process included. Otherwise *reason (enum
 * coll_gpusym_reason) says why the ranks cannot agree: every rank finds that they cannot, though not necessarily for
 * the same reason. One rank reports a likely mistake to the user, once. Returns an MPI error code.
 */
int coll_gpusym_peers_find(struct ompi_communicator_t *comm, coll_gpusym_peer_t **peer, int *reason);
/*
 * Finds the processes of an intracommunicator, on whatever hosts. *reason is -1 where all ranks have the same gpusym,
 * and are no more than COLL_GPUSYM_RANKS_MAX; peer[size] is filled in then, this process included. Otherwise as
 * coll_gpusym_peers_find(). Returns an MPI error code. From Open MPI 5 on it may take seconds for a process of another
 * host that has published nothing.
 */
int coll_gpusym_peers_alike(struct ompi_communicator_t *comm, coll_gpusym_peer_t **peer, int *reason);
/* The same, and the islands of a communicator that is not one island; the caller frees them. */
int coll_gpusym_peers_islands(struct ompi_communicator_t *comm, gpusym_islands_t *islands, coll_gpusym_peer_t **peer,
                              int *reason);
/* Of ranks of one mpirun: returns the process of a rank that takes part in the summary; NULL: it does not, as far as
 * this process can know. May take seconds for a process of another host without gpusym. */
coll_gpusym_peer_t *coll_gpusym_peers_summed(struct ompi_communicator_t *comm, int rank);
/* Whether two processes are on one host. */
bool coll_gpusym_peers_near(const coll_gpusym_peer_t *a, const coll_gpusym_peer_t *b);
/* Whether a process of this host lives. Takes about 1 us after the first time, and holds a file descriptor. Any
 * thread. */
bool coll_gpusym_peer_lives(coll_gpusym_peer_t *peer);
/* Returns the names of this host's network interfaces that lead to none of the other hosts of these processes, as
 * gpusym_interfaces_astray(). */
char *coll_gpusym_peers_astray(coll_gpusym_peer_t *const *peer, uint32_t n);
/* The name of its host. */
const char *coll_gpusym_peer_host(const coll_gpusym_peer_t *peer);
/* The process id. */
int coll_gpusym_peer_process(const coll_gpusym_peer_t *peer);
/* Closes the file descriptors of n processes; the next check opens them again. */
void coll_gpusym_peers_forget(coll_gpusym_peer_t *const *peer, uint32_t n);

#endif
