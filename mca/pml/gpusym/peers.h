/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The processes of this job on this host that exchange messages of device memory directly: those that both have
 * published themselves, before Open MPI's fence, and can map each other's pages. All others exchange ordinary messages.
 */
#ifndef MCA_PML_GPUSYM_PEERS_H
#define MCA_PML_GPUSYM_PEERS_H

#include "mca/common/ompi/ompi_compat.h"

#include "ompi/communicator/communicator.h"
#include "ompi/proc/proc.h"

#include "mca/common/gpusym/p2p/send_desc.h"

typedef struct {
    gpusym_peer_t *pages;
    uint32_t slot;   /* the process's number on this host */
    uint64_t active; /* when it ended a message of ours last, in ns, about; atomic */
    uint32_t piped;  /* messages that will go through pipelines, since it could not map our memory; atomic */
    uint32_t late;   /* messages that no kernel will wait for, since its data came late; atomic */
    bool told;       /* a verbose line has said so */
    bool waited;     /* for it to attach this process; atomic */
} pml_gpusym_peer_t;

/* By the process's number in its job; NULL: it exchanges ordinary messages. */
extern pml_gpusym_peer_t **pml_gpusym_peers;
extern uint32_t pml_gpusym_npeers __attribute__((visibility("hidden")));
/* A word that is 0 as long as no peer receives into GPU memory what this process sends from host memory. */
extern const uint32_t *pml_gpusym_any_into_gpu __attribute__((visibility("hidden")));

/* Publishes this process. Needs the device. A process that cannot share pages is not published: a verbose line
 * tells. */
void pml_gpusym_peers_publish(void);
/* Attaches all processes that have published. Call it after Open MPI's fence. */
void pml_gpusym_peers_attach(void);
/* Returns whether a peer gets RTS messages. The first call decides; it waits up to a second where the peer may still be
 * in MPI_Init. */
bool pml_gpusym_peer_decide(pml_gpusym_peer_t *peer);
/* Forgets all peers. */
void pml_gpusym_peers_close(void);

/* Returns the process of a rank of comm (of its remote group, for an intercommunicator); NULL: ordinary messages. */
static inline pml_gpusym_peer_t *pml_gpusym_peer(struct ompi_communicator_t *comm, int rank)
{
    const opal_process_name_t *name = &ompi_comm_peer_lookup(comm, rank)->super.proc_name;
    return name->jobid == OPAL_PROC_MY_NAME.jobid && name->vpid < pml_gpusym_npeers ? pml_gpusym_peers[name->vpid]
                                                                                    : NULL;
}

static inline bool pml_gpusym_peer_is_self(const pml_gpusym_peer_t *peer)
{
    return pml_gpusym_peers[OPAL_PROC_MY_NAME.vpid] == peer;
}

#endif
