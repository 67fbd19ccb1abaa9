/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which algorithm ran: see counters.h.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "bench/counters.h"

#define COUNTERS_MAX 64
#define NAME_MAX_BYTES 128

static struct {
    char name[NAME_MAX_BYTES]; /* behind coll_gpusym_<collective>_: "native_agxll_r", "staged_mixed" */
    MPI_T_pvar_handle handle;
    unsigned long long before;
} counters[COUNTERS_MAX];
static int ncounters;
static MPI_T_pvar_session session;

void bench_counters_open(void)
{
    int provided;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
}

void bench_counters_close(void)
{
    MPI_T_pvar_session_free(&session); /* its handles too */
    MPI_T_finalize();
}

/* The part of variable number i's name behind prefix, if it is one to be read; NULL otherwise. */
static const char *match_name(int i, const char *prefix, char name[NAME_MAX_BYTES])
{
    int length = NAME_MAX_BYTES, verbosity, class, bind, readonly, continuous, atomic;
    MPI_Datatype type;
    MPI_T_enum set;
    const char *rest = name + strlen(prefix);

    if (MPI_SUCCESS != MPI_T_pvar_get_info(i, name, &length, &verbosity, &class, &type, &set, NULL, NULL, &bind,
                                           &readonly, &continuous, &atomic) ||
        0 != strncmp(name, prefix, strlen(prefix)) || MPI_UNSIGNED_LONG_LONG != type) {
        return NULL;
    }
    return 0 == strncmp(rest, "native_", 7) || 0 == strncmp(rest, "staged_", 7) ? rest : NULL;
}

int bench_counters_of(const char *collective)
{
    char prefix[NAME_MAX_BYTES], name[NAME_MAX_BYTES];
    int all, count;

    while (ncounters > 0) {
        MPI_T_pvar_handle_free(session, &counters[--ncounters].handle);
    }
    snprintf(prefix, sizeof(prefix), "coll_gpusym_%s_", collective);
    MPI_T_pvar_get_num(&all);
    for (int i = 0; i < all && ncounters < COUNTERS_MAX; i++) {
        const char *rest = match_name(i, prefix, name);

        if (NULL != rest &&
            MPI_SUCCESS == MPI_T_pvar_handle_alloc(session, i, NULL, &counters[ncounters].handle, &count)) {
            snprintf(counters[ncounters].name, sizeof(counters[ncounters].name), "%s", rest);
            ncounters++;
        }
    }
    return ncounters;
}

void bench_counters_start(void)
{
    for (int i = 0; i < ncounters; i++) {
        MPI_T_pvar_read(session, counters[i].handle, &counters[i].before);
    }
}

void bench_counters_say(char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < ncounters && used < size; i++) {
        unsigned long long now = counters[i].before;
        bool staged = 's' == counters[i].name[0];

        MPI_T_pvar_read(session, counters[i].handle, &now);
        if (now > counters[i].before) {
            used += (size_t) snprintf(text + used, size - used, "%s%s%s", used > 0 ? "+" : "", staged ? "staged:" : "",
                                      counters[i].name + 7);
        }
    }
}
