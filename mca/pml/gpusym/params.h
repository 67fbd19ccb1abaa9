/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters of messages: coll_gpusym_p2p and those that begin with it.
 */
#ifndef MCA_PML_GPUSYM_PARAMS_H
#define MCA_PML_GPUSYM_PARAMS_H

/* How messages of device memory are served. */
typedef enum { PML_GPUSYM_P2P_AUTO, PML_GPUSYM_P2P_STAGED, PML_GPUSYM_P2P_OFF } pml_gpusym_p2p_t;

typedef struct {
    int p2p;                /* pml_gpusym_p2p_t */
    int linger;             /* of the copier, in microseconds; -1: by the tuning table */
    unsigned long push_min; /* bytes of a message that its receiver asks the sender to push; 0: by the tuning table */
} pml_gpusym_params_t;
extern pml_gpusym_params_t pml_gpusym_params;

/* Registers the parameters. Returns an Open MPI error code. */
int pml_gpusym_params_register(void);

#endif
