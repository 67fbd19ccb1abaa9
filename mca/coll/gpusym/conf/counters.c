/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The counters, shown two ways: as MPI_T performance variables while the program runs, and as one line
 * per collective at its end.
 */
#include "mca/coll/gpusym/conf/counters.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/common/gpusym/common.h"
#include "opal/mca/base/mca_base_pvar.h"

coll_gpusym_counters_t coll_gpusym_counters[COLL_GPUSYM_COLLS];

/* A communicator has had a module of ours since the summary was printed. */
static bool used;

/* ---- MPI_T ----------------------------------------------------------------------------------- */

/* Registers coll_gpusym_<collective>_<kind>[_<detail>]. */
static int register_pvar(const mca_base_component_t *component, unsigned coll, const char *kind, const char *detail,
                         const char *doc, unsigned long long *counter)
{
    char name[128];
    char text[256];
    int ret;

    snprintf(name, sizeof(name), "%s_%s%s%s", coll_gpusym_name(coll), kind, '\0' == *detail ? "" : "_", detail);
    snprintf(text, sizeof(text), "Calls of %s in this process, blocking, nonblocking and persistent: %s",
             coll_gpusym_mpi_name(coll), doc);
    ret = mca_base_component_pvar_register(component, name, text, OPAL_INFO_LVL_4, MCA_BASE_PVAR_CLASS_COUNTER,
                                           MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
                                           MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, NULL, NULL,
                                           NULL, counter);
    return ret < 0 ? ret : OMPI_SUCCESS;
}

static int register_pvars(const mca_base_component_t *component, unsigned coll)
{
    coll_gpusym_counters_t *c = &coll_gpusym_counters[coll];
    int ret = register_pvar(component, coll, "native", "", "ran on the GPU", &c->native);

    /* A collective without kernels has all counters too, so that tools can treat all collectives alike. */
    for (unsigned a = 0; OMPI_SUCCESS == ret && a < GPUSYM_ALG_COUNT; ++a) {
        if (coll_gpusym_algorithm_is_of(a, coll)) {
            ret = register_pvar(component, coll, "native", gpusym_algorithm_name(a), gpusym_algorithm_doc(a),
                                &c->algorithm[a]);
        }
    }
    if (OMPI_SUCCESS == ret) {
        ret = register_pvar(component, coll, "native", "copy",
                            "ran as a copy by the GPU: the communicator has one rank", &c->copied);
    }
    if (OMPI_SUCCESS == ret) {
        ret = register_pvar(component, coll, "native", "led",
                            "ran in kernels of one rank for each GPU, because ranks share GPUs", &c->led);
    }
    if (OMPI_SUCCESS == ret) {
        ret = register_pvar(component, coll, "native", "rails", "ran on the GPUs of several islands, over the network",
                            &c->rails);
    }
    if (OMPI_SUCCESS == ret) {
        ret = register_pvar(component, coll, "zero_copy", "",
                            "ran on the GPU directly between user buffers, by any algorithm", &c->zero_copy);
    }
    if (OMPI_SUCCESS == ret) {
        ret =
            register_pvar(component, coll, "resident", "", "ran in a resident kernel, without a launch", &c->resident);
    }
    if (OMPI_SUCCESS == ret) {
        ret = register_pvar(component, coll, "late", "", "were launched, because the resident kernel had just retired",
                            &c->late);
    }
    if (OMPI_SUCCESS == ret) {
        ret = register_pvar(component, coll, "staged", "", "were staged through host memory", &c->staged);
    }
    for (unsigned r = 0; OMPI_SUCCESS == ret && r < COLL_GPUSYM_REASONS; ++r) {
        ret = register_pvar(component, coll, "staged", coll_gpusym_reason_name(r), coll_gpusym_reason_doc(r),
                            &c->reason[r]);
    }
    if (OMPI_SUCCESS == ret) {
        ret = register_pvar(component, coll, "staged", "in_pieces",
                            "were staged through host memory in pieces, for any of these reasons", &c->cut);
    }
    if (OMPI_SUCCESS == ret) {
        ret = register_pvar(component, coll, "staged", "by_windows",
                            "were staged through host memory that the processes share, for any of these reasons",
                            &c->moved);
    }
    if (OMPI_SUCCESS == ret) {
        ret =
            register_pvar(component, coll, "forwarded", "",
                          "have host buffers only, and were forwarded untouched to the next component", &c->forwarded);
    }
    return OMPI_SUCCESS == ret
               ? register_pvar(component, coll, "passed", "", "deprecated name of the counter forwarded", &c->forwarded)
               : ret;
}

int coll_gpusym_counters_register(const mca_base_component_t *component)
{
    int ret = OMPI_SUCCESS;

    for (unsigned coll = 0; OMPI_SUCCESS == ret && coll < COLL_GPUSYM_COLLS; ++coll) {
        ret = register_pvars(component, coll);
    }
    return ret;
}

/* ---- the summary ----------------------------------------------------------------------------- */

typedef struct {
    char text[1024];
    size_t used;
    unsigned listed; /* entries in the open list */
} line_t;

static void append_text(line_t *l, const char *format, const char *name, unsigned long long n)
{
    int r = snprintf(l->text + l->used, sizeof(l->text) - l->used, format, name, n);

    if (r > 0) {
        l->used += (size_t) r;
        if (l->used >= sizeof(l->text)) {
            l->used = sizeof(l->text) - 1;
        }
    }
}

static void append_entry(line_t *l, const char *name, unsigned long long n)
{
    if (n > 0) {
        append_text(l, 0 == l->listed ? " (%s %llu" : ", %s %llu", name, n);
        ++l->listed;
    }
}

static void end_entries(line_t *l)
{
    if (l->listed > 0) {
        append_text(l, "%s", ")", 0);
    }
    l->listed = 0;
}

static void print_line(unsigned coll)
{
    const coll_gpusym_counters_t *c = &coll_gpusym_counters[coll];
    line_t l = {.used = 0, .listed = 0};

    append_text(&l, "gpusym: %s: native %llu", coll_gpusym_name(coll), c->native);
    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; ++a) {
        append_entry(&l, gpusym_algorithm_name(a), c->algorithm[a]);
    }
    append_entry(&l, "copy", c->copied);
    append_entry(&l, "led", c->led);
    append_entry(&l, "rails", c->rails);
    append_entry(&l, "zero_copy", c->zero_copy);
    append_entry(&l, "resident", c->resident);
    append_entry(&l, "late", c->late);
    end_entries(&l);
    append_text(&l, ", %s %llu", "staged", c->staged);
    for (unsigned r = 0; r < COLL_GPUSYM_REASONS; ++r) {
        append_entry(&l, coll_gpusym_reason_name(r), c->reason[r]);
    }
    append_entry(&l, "in_pieces", c->cut);
    append_entry(&l, "by_windows", c->moved);
    end_entries(&l);
    append_text(&l, ", %s %llu", "forwarded", c->forwarded);
    append_text(&l, "%s", "\n", 0);
    (void) gpusym_write_all(fileno(stderr), l.text, l.used);
}

static bool any_call(const coll_gpusym_counters_t *c)
{
    return c->native + c->staged + c->forwarded > 0;
}

void coll_gpusym_counters_use(void)
{
    __atomic_store_n(&used, true, __ATOMIC_RELAXED); /* several threads may be here */
}

void coll_gpusym_counters_clear(void)
{
    memset(coll_gpusym_counters, 0, sizeof(coll_gpusym_counters));
}

void coll_gpusym_counters_print(void)
{
    const coll_gpusym_params_t *c = &coll_gpusym_params;

    if (!c->summary || !used || 0 != c->world_rank) {
        return;
    }
    used = false;
    fflush(stderr);
    for (unsigned coll = 0; coll < COLL_GPUSYM_COLLS; ++coll) {
        if (COLL_GPUSYM_ALLREDUCE == coll || any_call(&coll_gpusym_counters[coll])) {
            print_line(coll);
        }
    }
}
