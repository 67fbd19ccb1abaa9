/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which algorithm ran, which way messages took: see counters.h.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "bench/counters.h"

#define COUNTERS_MAX 64
#define NAME_MAX_BYTES 128

static struct {
    char say[NAME_MAX_BYTES]; /* "agxll_r", "staged:mixed" */
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

/* Reads the name of variable number i. Returns whether it begins with prefix and counts. */
static bool read_name(int i, const char *prefix, char name[NAME_MAX_BYTES])
{
    int length = NAME_MAX_BYTES, verbosity, class, bind, readonly, continuous, atomic;
    MPI_Datatype type;
    MPI_T_enum set;

    return MPI_SUCCESS == MPI_T_pvar_get_info(i, name, &length, &verbosity, &class, &type, &set, NULL, NULL, &bind,
                                              &readonly, &continuous, &atomic) &&
           0 == strncmp(name, prefix, strlen(prefix)) && MPI_UNSIGNED_LONG_LONG == type;
}

/* What is said of a counter, whose name continues so behind the prefix; false: it is none of these. */
typedef bool (*say_t)(const char *rest, char say[NAME_MAX_BYTES]);

static bool say_algorithm(const char *rest, char say[NAME_MAX_BYTES])
{
    const bool native = 0 == strncmp(rest, "native_", 7), staged = 0 == strncmp(rest, "staged_", 7);

    snprintf(say, NAME_MAX_BYTES, "%s%s", staged ? "staged:" : "", native || staged ? rest + 7 : rest);
    return native || staged;
}

static bool say_all(const char *rest, char say[NAME_MAX_BYTES])
{
    snprintf(say, NAME_MAX_BYTES, "%s", rest);
    return true;
}

/* In place of those that are open; returns how many. */
static int open_counters(const char *prefix, say_t say)
{
    char name[NAME_MAX_BYTES];
    int all, count;

    while (ncounters > 0) {
        MPI_T_pvar_handle_free(session, &counters[--ncounters].handle);
    }
    MPI_T_pvar_get_num(&all);
    for (int i = 0; i < all && ncounters < COUNTERS_MAX; i++) {
        if (read_name(i, prefix, name) && say(name + strlen(prefix), counters[ncounters].say) &&
            MPI_SUCCESS == MPI_T_pvar_handle_alloc(session, i, NULL, &counters[ncounters].handle, &count)) {
            ncounters++;
        }
    }
    return ncounters;
}

int bench_counters_of(const char *collective)
{
    char prefix[NAME_MAX_BYTES];

    snprintf(prefix, sizeof(prefix), "coll_gpusym_%s_", collective);
    return open_counters(prefix, say_algorithm);
}

int bench_counters_of_messages(const char *direction)
{
    char prefix[NAME_MAX_BYTES];

    snprintf(prefix, sizeof(prefix), "coll_gpusym_p2p_%s_", direction);
    return open_counters(prefix, say_all);
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

        MPI_T_pvar_read(session, counters[i].handle, &now);
        if (now > counters[i].before) {
            used += (size_t) snprintf(text + used, size - used, "%s%s", used > 0 ? "+" : "", counters[i].say);
        }
    }
}
