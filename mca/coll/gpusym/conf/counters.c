/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The counters, shown two ways: as MPI_T performance variables while the program runs, and as one line
 * per collective at its end.
 */
#include "mca/coll/gpusym/coll_gpusym.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "opal/mca/base/mca_base_pvar.h"

/* "allreduce", "MPI_Allreduce", "ALLREDUCE" */
static const struct {
    const char *name, *mpi, *id;
} colls[] = {
#define GPUSYM_COLL(ID, name, Name, FIELDS) {#name, "MPI_" #Name, #ID},
#include "mca/coll/gpusym/args/coll_gpusym.def"
};

coll_gpusym_counters_t coll_gpusym_counters[COLL_GPUSYM_COLLS];

static const struct {
    const char *name;
    const char *doc;
} reasons[] = {
#define GPUSYM_REASON(ID, name, doc) {#name, doc},
#include "mca/coll/gpusym/args/coll_gpusym.def"
};

/* The collective of each algorithm, "ALLREDUCE". */
static const char *const algorithm_coll[] = {
#define GPUSYM_ALGORITHM(id, name, coll, family, schedule, doc) #coll,
#include "kernels/kernels.def"
};

const char *coll_gpusym_name(unsigned coll)
{
    return coll < COLL_GPUSYM_COLLS ? colls[coll].name : "unknown";
}

const char *coll_gpusym_mpi_name(unsigned coll)
{
    return coll < COLL_GPUSYM_COLLS ? colls[coll].mpi : "unknown";
}

const char *coll_gpusym_reason_name(unsigned reason)
{
    return reason < COLL_GPUSYM_REASONS ? reasons[reason].name : "unknown";
}

const char *coll_gpusym_reason_doc(unsigned reason)
{
    return reason < COLL_GPUSYM_REASONS ? reasons[reason].doc : "unknown";
}

bool coll_gpusym_algorithm_is_of(unsigned alg, unsigned coll)
{
    return alg < GPUSYM_ALG_COUNT && coll < COLL_GPUSYM_COLLS && 0 == strcmp(algorithm_coll[alg], colls[coll].id);
}

/* ---- MPI_T ----------------------------------------------------------------------------------- */

/* Registers coll_gpusym_<collective>_<kind>[_<detail>]. */
static int pvar(unsigned coll, const char *kind, const char *detail, const char *doc, unsigned long long *counter)
{
    char name[128];
    char text[256];
    int ret;

    snprintf(name, sizeof(name), "%s_%s%s%s", colls[coll].name, kind, '\0' == *detail ? "" : "_", detail);
    snprintf(text, sizeof(text), "Calls of %s in this process, blocking, nonblocking and persistent: %s", colls[coll].mpi, doc);
    ret = mca_base_component_pvar_register(
        &mca_coll_gpusym_component.super.collm_version, name, text, OPAL_INFO_LVL_4, MCA_BASE_PVAR_CLASS_COUNTER,
        MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
        MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, NULL, NULL, NULL, counter);
    return ret < 0 ? ret : OMPI_SUCCESS;
}

static int pvars_of(unsigned coll)
{
    coll_gpusym_counters_t *c = &coll_gpusym_counters[coll];
    int ret = pvar(coll, "native", "", "ran on the GPU", &c->native);

    /* A collective without kernels has all counters too, so that tools can treat all collectives alike. */
    for (unsigned a = 0; OMPI_SUCCESS == ret && a < GPUSYM_ALG_COUNT; ++a) {
        if (coll_gpusym_algorithm_is_of(a, coll)) {
            ret = pvar(coll, "native", gpusym_algorithm_name(a), gpusym_algorithm_doc(a), &c->algorithm[a]);
        }
    }
    if (OMPI_SUCCESS == ret) {
        ret = pvar(coll, "native", "copy", "ran as a copy by the GPU: the communicator has one rank", &c->copied);
    }
    if (OMPI_SUCCESS == ret) {
        ret = pvar(coll, "zero_copy", "", "ran on the GPU directly between user buffers, by any algorithm",
                   &c->zero_copy);
    }
    if (OMPI_SUCCESS == ret) {
        ret = pvar(coll, "resident", "", "ran in a resident kernel, without a launch", &c->resident);
    }
    if (OMPI_SUCCESS == ret) {
        ret = pvar(coll, "late", "", "were launched, because the resident kernel had just retired", &c->late);
    }
    if (OMPI_SUCCESS == ret) {
        ret = pvar(coll, "staged", "", "were staged through host memory", &c->staged);
    }
    for (unsigned r = 0; OMPI_SUCCESS == ret && r < COLL_GPUSYM_REASONS; ++r) {
        ret = pvar(coll, "staged", reasons[r].name, reasons[r].doc, &c->reason[r]);
    }
    if (OMPI_SUCCESS == ret) {
        ret = pvar(coll, "forwarded", "", "have host buffers only, and were forwarded untouched to the next component", &c->forwarded);
    }
    return OMPI_SUCCESS == ret ? pvar(coll, "passed", "", "deprecated name of the counter forwarded", &c->forwarded) : ret;
}

int coll_gpusym_counters_register(void)
{
    int ret = OMPI_SUCCESS;

    for (unsigned coll = 0; OMPI_SUCCESS == ret && coll < COLL_GPUSYM_COLLS; ++coll) {
        ret = pvars_of(coll);
    }
    return ret;
}

/* ---- the summary ----------------------------------------------------------------------------- */

typedef struct {
    char text[1024];
    size_t used;
    unsigned listed; /* entries in the open list */
} line_t;

static void append(line_t *l, const char *format, const char *name, unsigned long long n)
{
    int r = snprintf(l->text + l->used, sizeof(l->text) - l->used, format, name, n);

    if (r > 0) {
        l->used += (size_t) r;
        if (l->used >= sizeof(l->text)) {
            l->used = sizeof(l->text) - 1;
        }
    }
}

static void entry(line_t *l, const char *name, unsigned long long n)
{
    if (n > 0) {
        append(l, 0 == l->listed ? " (%s %llu" : ", %s %llu", name, n);
        ++l->listed;
    }
}

static void entries_end(line_t *l)
{
    if (l->listed > 0) {
        append(l, "%s", ")", 0);
    }
    l->listed = 0;
}

static void print_line(unsigned coll)
{
    const coll_gpusym_counters_t *c = &coll_gpusym_counters[coll];
    line_t l = {.used = 0, .listed = 0};

    append(&l, "gpusym: %s: native %llu", colls[coll].name, c->native);
    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; ++a) {
        entry(&l, gpusym_algorithm_name(a), c->algorithm[a]);
    }
    entry(&l, "copy", c->copied);
    entry(&l, "zero_copy", c->zero_copy);
    entry(&l, "resident", c->resident);
    entry(&l, "late", c->late);
    entries_end(&l);
    append(&l, ", %s %llu", "staged", c->staged);
    for (unsigned r = 0; r < COLL_GPUSYM_REASONS; ++r) {
        entry(&l, reasons[r].name, c->reason[r]);
    }
    entries_end(&l);
    append(&l, ", %s %llu", "forwarded", c->forwarded);
    append(&l, "%s", "\n", 0);
    (void) gpusym_write_all(fileno(stderr), l.text, l.used);
}

static bool any_call(const coll_gpusym_counters_t *c)
{
    return c->native + c->staged + c->forwarded > 0;
}

void coll_gpusym_counters_print(void)
{
    mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;

    if (!c->summary || !c->used || 0 != c->world_rank) {
        return;
    }
    c->used = false;
    fflush(stderr);
    for (unsigned coll = 0; coll < COLL_GPUSYM_COLLS; ++coll) {
        if (COLL_GPUSYM_ALLREDUCE == coll || any_call(&coll_gpusym_counters[coll])) {
            print_line(coll);
        }
    }
}
