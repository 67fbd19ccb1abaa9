/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The counters, shown two ways: as MPI_T performance variables while the program runs, and as one line
 * per collective at its end, summed over the ranks.
 */
#include "mca/coll/gpusym/conf/counters.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/common/gpusym/common.h"
#include "opal/mca/base/mca_base_pvar.h"

coll_gpusym_counters_t coll_gpusym_counters[COLL_GPUSYM_COLLS];

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
    ret = mca_base_component_pvar_register(component, name, text, OPAL_INFO_LVL_9, MCA_BASE_PVAR_CLASS_COUNTER,
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
                            "ran in kernels that one rank per GPU launches, because ranks share GPUs", &c->led);
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
        ret = register_pvar(component, coll, "early", "", "were launched when this rank posted them", &c->early);
    }
    if (OMPI_SUCCESS == ret) {
        ret =
            register_pvar(component, coll, "late", "",
                          "were launched, because the kernel that had them, resident or early, had retired", &c->late);
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
    return OMPI_SUCCESS == ret
               ? register_pvar(component, coll, "forwarded", "",
                               "have only host buffers, and were forwarded unchanged to the next component",
                               &c->forwarded)
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
    char text[1536];
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

/* "native 30", and where ranks differ " [0 to 10 per rank]" behind it. */
static void append_number(line_t *l, const char *name, const size_t field, const coll_gpusym_counters_t *sum,
                          const coll_gpusym_counters_t *least, const coll_gpusym_counters_t *most)
{
    const unsigned long long n = *(const unsigned long long *) ((const char *) sum + field);
    const unsigned long long low = *(const unsigned long long *) ((const char *) least + field);
    const unsigned long long high = *(const unsigned long long *) ((const char *) most + field);

    append_text(l, "%s %llu", name, n);
    if (low != high) {
        append_text(l, "%s [%llu", "", low);
        append_text(l, "%s to %llu per rank]", "", high);
    }
}
#define APPEND_NUMBER(l, field) append_number(l, #field, offsetof(coll_gpusym_counters_t, field), sum, least, most)

/* "; 12.5 MiB, 8.4 us per blocking call": of calls with a buffer on a GPU. */
static void append_amount(line_t *l, const coll_gpusym_counters_t *sum)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double bytes = (double) sum->bytes;
    unsigned unit = 0;
    char text[64];

    for (; bytes >= 1024 && unit < sizeof(units) / sizeof(units[0]) - 1; ++unit) {
        bytes /= 1024;
    }
    snprintf(text, sizeof(text), "; %.*f %s", 0 == unit ? 0 : 1, bytes, units[unit]);
    append_text(l, "%s", text, 0);
    if (sum->timed > 0) {
        snprintf(text, sizeof(text), ", %.1f us per blocking call", (double) sum->ns / 1e3 / (double) sum->timed);
        append_text(l, "%s", text, 0);
    }
}

static void write_line(line_t *l)
{
    append_text(l, "%s", "\n", 0);
    fflush(stderr);
    (void) gpusym_write_all(fileno(stderr), l->text, l->used);
}

static void print_line(unsigned coll, const coll_gpusym_counters_t *sum, const coll_gpusym_counters_t *least,
                       const coll_gpusym_counters_t *most)
{
    line_t l = {.used = 0, .listed = 0};

    append_text(&l, "gpusym: %s: ", coll_gpusym_name(coll), 0);
    APPEND_NUMBER(&l, native);
    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; ++a) {
        append_entry(&l, gpusym_algorithm_name(a), sum->algorithm[a]);
    }
    append_entry(&l, "copy", sum->copied);
    append_entry(&l, "led", sum->led);
    append_entry(&l, "rails", sum->rails);
    append_entry(&l, "zero_copy", sum->zero_copy);
    append_entry(&l, "resident", sum->resident);
    append_entry(&l, "early", sum->early);
    append_entry(&l, "late", sum->late);
    end_entries(&l);
    append_text(&l, "%s", ", ", 0);
    APPEND_NUMBER(&l, staged);
    for (unsigned r = 0; r < COLL_GPUSYM_REASONS; ++r) {
        append_entry(&l, coll_gpusym_reason_name(r), sum->reason[r]);
    }
    append_entry(&l, "in_pieces", sum->cut);
    append_entry(&l, "by_windows", sum->moved);
    end_entries(&l);
    append_text(&l, "%s", ", ", 0);
    APPEND_NUMBER(&l, forwarded);
    if (sum->native + sum->staged > 0) {
        append_amount(&l, sum);
    }
    write_line(&l);
}

/* What can be done about a reason, if any call had it. */
static void print_hint(unsigned reason, const coll_gpusym_counters_t *sum)
{
    line_t l = {.used = 0, .listed = 0};

    for (unsigned coll = 0; coll < COLL_GPUSYM_COLLS; ++coll) {
        if (sum[coll].reason[reason] > 0) {
            append_text(&l, "gpusym: staged, %s: ", coll_gpusym_reason_name(reason), 0);
            append_text(&l, "%s.", coll_gpusym_reason_doc(reason), 0);
            append_text(&l, " To do: %s", coll_gpusym_reason_hint(reason), 0);
            write_line(&l);
            return;
        }
    }
}

void coll_gpusym_counters_clear(void)
{
    memset(coll_gpusym_counters, 0, sizeof(coll_gpusym_counters));
}

void coll_gpusym_counters_print(const coll_gpusym_counters_t *sum, const coll_gpusym_counters_t *least,
                                const coll_gpusym_counters_t *most)
{
    for (unsigned coll = 0; coll < COLL_GPUSYM_COLLS; ++coll) {
        if (sum[coll].native + sum[coll].staged + sum[coll].forwarded > 0) {
            print_line(coll, &sum[coll], &least[coll], &most[coll]);
        }
    }
    for (unsigned r = 0; r < COLL_GPUSYM_REASONS; ++r) {
        print_hint(r, sum);
    }
}
