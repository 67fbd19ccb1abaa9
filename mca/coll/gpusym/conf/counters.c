/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The counters, as MPI_T performance variables while the program runs, and as one line per collective at its end,
 * summed over the ranks. Metrics: coll_gpusym_metrics.c.
 */
#include "mca/coll/gpusym/conf/counters.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/common/gpusym/common.h"
#include "opal/mca/base/mca_base_pvar.h"

coll_gpusym_counters_t coll_gpusym_counters[COLL_GPUSYM_COLLS];

/* ---- the list ---- */

const coll_gpusym_counter_family_t coll_gpusym_counter_families[COLL_GPUSYM_COUNTER_FAMILIES] = {
#define GPUSYM_COUNTER_FAMILY(ID, prefix, metric, label, doc) {prefix, metric, label, doc},
#include "mca/coll/gpusym/args/coll_gpusym.def"
};

static const struct {
    enum coll_gpusym_counter_family family;
    coll_gpusym_counter_t counter;
} listed[] = {
#define GPUSYM_COUNTER(field, family, name, doc) \
    {COLL_GPUSYM_COUNTERS_##family, {#name, doc, offsetof(coll_gpusym_counters_t, field)}},
#include "mca/coll/gpusym/args/coll_gpusym.def"
};

/* Number *i of those that the collective has; else lowers *i by how many there are. */
static bool find_algorithm(unsigned coll, unsigned *i, coll_gpusym_counter_t *c)
{
    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; a++) {
        if (coll_gpusym_algorithm_is_of(a, coll) && 0 == (*i)--) {
            *c = (coll_gpusym_counter_t){gpusym_algorithm_name(a), gpusym_algorithm_doc(a),
                                         offsetof(coll_gpusym_counters_t, algorithm[0]) +
                                             a * sizeof(unsigned long long)};
            return true;
        }
    }
    return false;
}

static bool find_reason(unsigned *i, coll_gpusym_counter_t *c)
{
    if (*i >= COLL_GPUSYM_REASONS) {
        *i -= COLL_GPUSYM_REASONS;
        return false;
    }
    *c = (coll_gpusym_counter_t){coll_gpusym_reason_name(*i), coll_gpusym_reason_doc(*i),
                                 offsetof(coll_gpusym_counters_t, reason[0]) + *i * sizeof(unsigned long long)};
    return true;
}

bool coll_gpusym_counter(enum coll_gpusym_counter_family family, unsigned coll, unsigned i, coll_gpusym_counter_t *c)
{
    if ((COLL_GPUSYM_COUNTERS_ALGORITHM == family && find_algorithm(coll, &i, c)) ||
        (COLL_GPUSYM_COUNTERS_REASON == family && find_reason(&i, c))) {
        return true;
    }
    for (size_t k = 0; k < sizeof(listed) / sizeof(listed[0]); k++) {
        if (family == listed[k].family && 0 == i--) {
            *c = listed[k].counter;
            return true;
        }
    }
    return false;
}

static unsigned long long *counter_of(coll_gpusym_counters_t *of, const coll_gpusym_counter_t *c)
{
    return (unsigned long long *) ((char *) of + c->offset);
}

unsigned long long coll_gpusym_counter_value(const coll_gpusym_counters_t *of, const coll_gpusym_counter_t *c)
{
    return __atomic_load_n((const unsigned long long *) ((const char *) of + c->offset), __ATOMIC_RELAXED);
}

/* ---- MPI_T ---- */

/* Registers coll_gpusym_<collective>_<prefix><name>. */
static int register_pvar(const mca_base_component_t *component, unsigned coll, const char *prefix,
                         const coll_gpusym_counter_t *c)
{
    char name[128];
    char text[256];
    int ret;

    snprintf(name, sizeof(name), "%s_%s%s", coll_gpusym_name(coll), prefix, c->name);
    snprintf(text, sizeof(text), "Calls of %s in this process, blocking, nonblocking and persistent: %s",
             coll_gpusym_mpi_name(coll), c->doc);
    ret = mca_base_component_pvar_register(component, name, text, OPAL_INFO_LVL_9, MCA_BASE_PVAR_CLASS_COUNTER,
                                           MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
                                           MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, NULL, NULL,
                                           NULL, counter_of(&coll_gpusym_counters[coll], c));
    return ret < 0 ? ret : OMPI_SUCCESS;
}

/* A collective without kernels has all counters too, so that tools can treat all collectives alike. */
static int register_pvars(const mca_base_component_t *component, unsigned coll)
{
    coll_gpusym_counter_t c;
    int ret = OMPI_SUCCESS;

    for (unsigned family = 0; family < COLL_GPUSYM_COUNTER_FAMILIES; ++family) {
        for (unsigned i = 0; OMPI_SUCCESS == ret && coll_gpusym_counter(family, coll, i, &c); ++i) {
            ret = register_pvar(component, coll, coll_gpusym_counter_families[family].prefix, &c);
        }
    }
    return ret;
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

/* " (agxll_r 40, resident 36)": the counters of two families that are not 0. */
static void append_families(line_t *l, unsigned coll, const coll_gpusym_counters_t *sum,
                            enum coll_gpusym_counter_family first, enum coll_gpusym_counter_family second)
{
    const enum coll_gpusym_counter_family families[] = {first, second};
    coll_gpusym_counter_t c;

    for (unsigned k = 0; k < 2; ++k) {
        for (unsigned i = 0; coll_gpusym_counter(families[k], coll, i, &c); ++i) {
            append_entry(l, c.name, coll_gpusym_counter_value(sum, &c));
        }
    }
    end_entries(l);
}

static void print_line(unsigned coll, const coll_gpusym_counters_t *sum, const coll_gpusym_counters_t *least,
                       const coll_gpusym_counters_t *most)
{
    line_t l = {.used = 0, .listed = 0};

    append_text(&l, "gpusym: %s: ", coll_gpusym_name(coll), 0);
    APPEND_NUMBER(&l, native);
    append_families(&l, coll, sum, COLL_GPUSYM_COUNTERS_ALGORITHM, COLL_GPUSYM_COUNTERS_NATIVE_USE);
    append_text(&l, "%s", ", ", 0);
    APPEND_NUMBER(&l, staged);
    append_families(&l, coll, sum, COLL_GPUSYM_COUNTERS_REASON, COLL_GPUSYM_COUNTERS_STAGED_USE);
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
