/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Sums over records: see sums.h.
 */
#include "mca/coll/gpusym/trace/sums.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "mca/coll/gpusym/args/names.h"
#include "opal/mca/base/mca_base_pvar.h"

coll_gpusym_sum_t coll_gpusym_sums[COLL_GPUSYM_COLLS][COLL_GPUSYM_FORMS];

static unsigned wanted; /* times */

bool coll_gpusym_sums_want(void)
{
    if (!coll_gpusym_trace_want()) {
        return false;
    }
    __atomic_fetch_add(&wanted, 1, __ATOMIC_RELAXED);
    return true;
}

void coll_gpusym_sums_spare(void)
{
    __atomic_fetch_sub(&wanted, 1, __ATOMIC_RELAXED);
    coll_gpusym_trace_spare();
}

static void add(unsigned long long *sum, uint64_t value)
{
    __atomic_fetch_add(sum, value, __ATOMIC_RELAXED);
}

void coll_gpusym_sums_add(const coll_gpusym_record_t *r)
{
    if (0 == __atomic_load_n(&wanted, __ATOMIC_RELAXED)) {
        return;
    }
    coll_gpusym_sum_t *s = &coll_gpusym_sums[r->coll][r->form];
    add(&s->calls, 1);
    add(&s->bytes, r->bytes);
    add(&s->ns, r->returned - r->entered);
    if (0 != r->there) {
        add(&s->waiting, r->there - r->posted);
    }
}

void coll_gpusym_sums_clear(void)
{
    while (0 != __atomic_load_n(&wanted, __ATOMIC_RELAXED)) { /* handles that outlive the component */
        coll_gpusym_sums_spare();
    }
    memset(coll_gpusym_sums, 0, sizeof coll_gpusym_sums);
}

/* ---- MPI_T ---- */

static const struct {
    const char *name, *doc;
    size_t offset;
    int class;
} variables[] = {
    {"recorded", "number of calls, which the next three add up", offsetof(coll_gpusym_sum_t, calls),
     MCA_BASE_PVAR_CLASS_COUNTER},
    {"bytes", "bytes of this rank's larger buffer", offsetof(coll_gpusym_sum_t, bytes), MCA_BASE_PVAR_CLASS_AGGREGATE},
    {"time", "nanoseconds from the call of MPI until it returned, or the request was complete",
     offsetof(coll_gpusym_sum_t, ns), MCA_BASE_PVAR_CLASS_TIMER},
    {"waiting", "nanoseconds in which it waited for other ranks to call MPI", offsetof(coll_gpusym_sum_t, waiting),
     MCA_BASE_PVAR_CLASS_TIMER},
};

/* The field of all forms, which the variable's context is in the first. */
static int read_sum(const struct mca_base_pvar_t *pvar, void *value, void *object)
{
    unsigned long long sum = 0;
    (void) object;
    for (unsigned form = 0; form < COLL_GPUSYM_FORMS; form++) {
        sum +=
            __atomic_load_n((const unsigned long long *) ((const char *) pvar->ctx + form * sizeof(coll_gpusym_sum_t)),
                            __ATOMIC_RELAXED);
    }
    *(unsigned long long *) value = sum;
    return OPAL_SUCCESS;
}

/* MPI_T holds its lock. A handle that outlives the component wants nothing any more. */
static int note_handle(struct mca_base_pvar_t *pvar, mca_base_pvar_event_t event, void *object, int *count)
{
    (void) pvar;
    (void) object;
    if (MCA_BASE_PVAR_HANDLE_BIND == event) {
        *count = 1;
        return coll_gpusym_sums_want() ? OPAL_SUCCESS : OPAL_ERR_OUT_OF_RESOURCE;
    }
    if (MCA_BASE_PVAR_HANDLE_UNBIND == event && 0 != __atomic_load_n(&wanted, __ATOMIC_RELAXED)) {
        coll_gpusym_sums_spare();
    }
    return OPAL_SUCCESS;
}

int coll_gpusym_sums_register(const mca_base_component_t *component)
{
    char name[64], text[256];
    for (unsigned coll = 0; coll < COLL_GPUSYM_COLLS; coll++) {
        for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
            snprintf(name, sizeof name, "%s_%s", coll_gpusym_name(coll), variables[i].name);
            snprintf(text, sizeof text,
                     "Calls of %s on GPU memory in this process, blocking, nonblocking and persistent, while one of "
                     "these variables has a handle: %s",
                     coll_gpusym_mpi_name(coll), variables[i].doc);
            const int rv = mca_base_component_pvar_register(
                component, name, text, OPAL_INFO_LVL_9, variables[i].class, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL,
                MCA_BASE_VAR_BIND_NO_OBJECT, MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, read_sum,
                NULL, note_handle, (char *) coll_gpusym_sums[coll] + variables[i].offset);
            if (rv < 0) {
                return rv;
            }
        }
    }
    return OMPI_SUCCESS;
}
