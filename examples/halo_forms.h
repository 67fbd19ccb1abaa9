/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The exchange of faces of examples/halo, in each of the forms that are compared. The field is in GPU memory, whatever
 * the form.
 */
#ifndef EXAMPLES_HALO_FORMS_H
#define EXAMPLES_HALO_FORMS_H

#include <mpi.h>
#include <stdbool.h>

#include "examples/halo_kernels.h"

typedef struct {
    const char *name;
    const char *collective; /* by its name in gpusym's counters; NULL: messages, or none */
    bool (*there)(void);    /* alike on all ranks */
    /* What is made once: between halo_forms_open() and halo_forms_close(). Collective. */
    void (*open)(const halo_args_t *a);
    void (*close)(void);
    /* The neighbours' outer points to the halo of field[in]. Begins behind the kernels that were launched; the kernels
     * that are launched next see the halo. */
    void (*exchange)(const halo_args_t *a);
} halo_form_t;

/* Numbered from 0, NULL past the end. */
const halo_form_t *halo_form(int number);

/* For one problem, after halo_device_open(), on a communicator with a periodic grid of HALO_DIRECTIONS, whose ranks are
 * those of MPI_COMM_WORLD; NCCL and collectives on streams if wanted. Collective. */
void halo_forms_open(const halo_args_t *a, MPI_Comm grid, bool with_nccl, bool with_streams);
void halo_forms_close(void);

#endif
