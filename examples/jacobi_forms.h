/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks of examples/jacobi tell each other, in each of the forms that are compared: rows of a field, and a
 * sum. The data are in GPU memory before and after, whatever the form.
 */
#ifndef EXAMPLES_JACOBI_FORMS_H
#define EXAMPLES_JACOBI_FORMS_H

#include <stdbool.h>

#include "examples/jacobi_kernels.h"

typedef struct {
    const char *name;
    const char *like;    /* the form with whose residuals its own are compared */
    bool exact;          /* they have the same bits on any number of ranks, not on two alone */
    bool graph;          /* iterations are captured, and replayed */
    const char *rows;    /* the collective that exchanges rows, by its name in gpusym's counters; NULL: messages */
    bool (*there)(void); /* alike on all ranks */
    /* The outer rows of the neighbours to rows 0 and n + 1 of the present field. Begins behind the kernels that were
     * queued; those that are queued next see the rows. */
    void (*exchange)(const jacobi_args_t *a);
    /* The sum over all ranks of `own` to `total`, likewise. */
    void (*reduce)(const jacobi_args_t *a);
} jacobi_form_t;

enum { JACOBI_FORMS = 5 };
extern const jacobi_form_t jacobi_forms[JACOBI_FORMS];

/* For one problem, after jacobi_device_open(); NCCL, and collectives on streams, if wanted. Collective. */
void jacobi_forms_open(const jacobi_args_t *a, bool with_nccl, bool with_streams);
void jacobi_forms_close(void);
/* Once the stream has been waited for: ends the job if a collective on it has failed. */
void jacobi_forms_check(void);

#endif
