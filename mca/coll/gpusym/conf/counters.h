/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How calls were served: counters, as MPI_T performance variables and in the summary.
 */
#ifndef MCA_COLL_GPUSYM_CONF_COUNTERS_H
#define MCA_COLL_GPUSYM_CONF_COUNTERS_H

#include "kernels/kernels.h"
#include "mca/coll/gpusym/args/args.h"

/* Calls of one collective since MPI_Init, in this process; counted with relaxed atomics. Nothing but numbers of one
 * type: the summary adds them up over the ranks. */
typedef struct {
#define GPUSYM_COUNTER(field, family, name, doc) unsigned long long field;
#include "mca/coll/gpusym/args/coll_gpusym.def"
    unsigned long long algorithm[GPUSYM_ALG_COUNT]; /* of the native ones, by algorithm */
    unsigned long long reason[COLL_GPUSYM_REASONS]; /* of the staged ones, by reason */
    /* Calls with a buffer on a GPU, only where coll_gpusym_summary is set: */
    unsigned long long bytes; /* the larger buffer's, from the first byte that is used to the last */
    unsigned long long timed; /* blocking ones */
    unsigned long long ns;    /* in these */
} coll_gpusym_counters_t;

/* The numbers in the counters of all collectives. */
#define COLL_GPUSYM_COUNTERS_WORDS \
    ((unsigned) (COLL_GPUSYM_COLLS * sizeof(coll_gpusym_counters_t) / sizeof(unsigned long long)))

/* By enum coll_gpusym_coll. Hidden, so that every call reaches them by one instruction. */
extern coll_gpusym_counters_t coll_gpusym_counters[COLL_GPUSYM_COLLS] __attribute__((visibility("hidden")));

static inline void coll_gpusym_count(unsigned long long *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

enum coll_gpusym_counter_family {
#define GPUSYM_COUNTER_FAMILY(ID, prefix, metric, label, doc) COLL_GPUSYM_COUNTERS_##ID,
#include "mca/coll/gpusym/args/coll_gpusym.def"
    COLL_GPUSYM_COUNTER_FAMILIES
};
typedef struct {
    const char *prefix, *metric, *label, *doc;
} coll_gpusym_counter_family_t;
extern const coll_gpusym_counter_family_t coll_gpusym_counter_families[COLL_GPUSYM_COUNTER_FAMILIES];

/* A counter that the list names, of a collective that has it: an algorithm's is there if the collective has that. */
typedef struct {
    const char *name, *doc;
    size_t offset; /* in coll_gpusym_counters_t */
} coll_gpusym_counter_t;
/* The counters of a family, in order: number i of the collective; false: there are no more. */
bool coll_gpusym_counter(enum coll_gpusym_counter_family family, unsigned coll, unsigned i, coll_gpusym_counter_t *c);
/* Its value. */
unsigned long long coll_gpusym_counter_value(const coll_gpusym_counters_t *of, const coll_gpusym_counter_t *c);

/* Registers the performance variables, as the component's. Open MPI error code. */
int coll_gpusym_counters_register(const mca_base_component_t *component);
/* Prints a line for each collective that was called, and one for each reason why calls were staged, with what can be
 * done about it. By collective: sums over the ranks, the least and the most of a rank. To stderr. */
void coll_gpusym_counters_print(const coll_gpusym_counters_t *sum, const coll_gpusym_counters_t *least,
                                const coll_gpusym_counters_t *most);
/* Sets all to 0. */
void coll_gpusym_counters_clear(void);

#endif
