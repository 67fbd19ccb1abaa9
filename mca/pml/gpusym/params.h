/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters of messages: those that begin with coll_gpusym_p2p_. coll_gpusym_p2p itself is of all faces
 * (common/gpusym.h).
 */
#ifndef MCA_PML_GPUSYM_PARAMS_H
#define MCA_PML_GPUSYM_PARAMS_H

typedef struct {
    unsigned long push_min; /* bytes of a message that its receiver asks the sender to push; 0: by the tuning table */
} pml_gpusym_params_t;
extern pml_gpusym_params_t pml_gpusym_params;

/* Registers the parameters. Returns an Open MPI error code. */
int pml_gpusym_params_register(void);

#endif
