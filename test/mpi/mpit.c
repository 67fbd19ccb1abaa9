/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The component's variables by name, see mpit.h.
 */
#include "test/mpi/mpit.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 128
#define COUNTERS_MAX 256 /* that a program reads */

const struct mpit_algorithm mpit_algorithms[GPUSYM_ALG_COUNT] = {
#define GPUSYM_ALGORITHM(id, name, coll, family, schedule, doc) {#name, GPUSYM_COLL_##coll, GPUSYM_F_##family},
#include "kernels/kernels.def"
};

static bool started(void)
{
    static bool on;
    int provided;

    on = on || MPI_SUCCESS == MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    return on;
}

/* A handle to a variable of one number; to be freed. */
static bool cvar_open(const char *name, MPI_T_cvar_handle *handle, MPI_Datatype *type, MPI_T_enum *choices)
{
    char found[NAME_BYTES];
    int index, count, length = sizeof(found), verbosity, bind, scope;

    return started() && MPI_SUCCESS == MPI_T_cvar_get_index(name, &index) &&
           MPI_SUCCESS ==
               MPI_T_cvar_get_info(index, found, &length, &verbosity, type, choices, NULL, NULL, &bind, &scope) &&
           MPI_SUCCESS == MPI_T_cvar_handle_alloc(index, NULL, handle, &count);
}

bool mpit_set(const char *name, unsigned value)
{
    MPI_T_cvar_handle handle;
    MPI_Datatype type;
    MPI_T_enum choices;
    unsigned now = ~value;
    bool ok;

    if (!cvar_open(name, &handle, &type, &choices)) {
        return false;
    }
    ok = (MPI_INT == type || MPI_UNSIGNED == type) && MPI_SUCCESS == MPI_T_cvar_write(handle, &value) &&
         MPI_SUCCESS == MPI_T_cvar_read(handle, &now) && now == value;
    MPI_T_cvar_handle_free(&handle);
    return ok;
}

bool mpit_get(const char *name, unsigned *value)
{
    MPI_T_cvar_handle handle;
    MPI_Datatype type;
    MPI_T_enum choices;
    bool ok;

    *value = 0;
    if (!cvar_open(name, &handle, &type, &choices)) {
        return false;
    }
    /* A flag may be an int or one byte; the rest stays 0. */
    ok = (MPI_INT == type || MPI_UNSIGNED == type || MPI_C_BOOL == type) &&
         MPI_SUCCESS == MPI_T_cvar_read(handle, value);
    MPI_T_cvar_handle_free(&handle);
    return ok;
}

bool mpit_choose(const char *name, const char *word)
{
    MPI_T_cvar_handle handle;
    MPI_Datatype type;
    MPI_T_enum choices;
    char item[NAME_BYTES];
    int n = 0, value = 0, length;
    bool found = false;

    if (!cvar_open(name, &handle, &type, &choices)) {
        return false;
    }
    MPI_T_cvar_handle_free(&handle);
    if (MPI_T_ENUM_NULL == choices || MPI_SUCCESS != MPI_T_enum_get_info(choices, &n, NULL, &(int){0})) {
        return false;
    }
    for (int i = 0; i < n && !found; i++) {
        length = sizeof(item);
        found = MPI_SUCCESS == MPI_T_enum_get_item(choices, i, &value, item, &length) && 0 == strcmp(item, word);
    }
    return found && mpit_set(name, (unsigned) value);
}

/* The handle of a counter, made once and kept: Open MPI counts from when a handle is made. NULL: there is no such
 * one. */
static const MPI_T_pvar_handle *counter_handle(MPI_T_pvar_session session, const char *name)
{
    static struct {
        char name[NAME_BYTES];
        MPI_T_pvar_handle handle;
    } known[COUNTERS_MAX];
    static int nknown;
    int index, count, i = 0;

    while (i < nknown && 0 != strcmp(known[i].name, name)) {
        i++;
    }
    if (i < nknown) {
        return &known[i].handle;
    }
    if (COUNTERS_MAX == i || MPI_SUCCESS != MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) ||
        MPI_SUCCESS != MPI_T_pvar_handle_alloc(session, index, NULL, &known[i].handle, &count) || 1 != count) {
        return NULL;
    }
    snprintf(known[i].name, sizeof(known[i].name), "%s", name);
    nknown++;
    return &known[i].handle;
}

bool mpit_counter(const char *name, unsigned long long *value)
{
    static MPI_T_pvar_session session;
    static bool open;
    const MPI_T_pvar_handle *handle;

    open = open || (started() && MPI_SUCCESS == MPI_T_pvar_session_create(&session));
    handle = open ? counter_handle(session, name) : NULL;
    return NULL != handle && MPI_SUCCESS == MPI_T_pvar_read(session, *handle, value);
}

static void missing(const char *name, const char *why)
{
    fprintf(stderr, "%s: %s\n", name, why);
    MPI_Abort(MPI_COMM_WORLD, 99);
}

void mpit_need(const char *name, unsigned value)
{
    if (!mpit_set(name, value)) {
        missing(name, "cannot be set by MPI_T");
    }
}

void mpit_algorithm(const char *coll, const char *word)
{
    char name[NAME_BYTES];

    snprintf(name, sizeof(name), "coll_gpusym_%s_algorithm", coll);
    if (!mpit_choose(name, word)) {
        missing(name, word);
    }
}

unsigned long long mpit_count(const char *coll, const char *which)
{
    unsigned long long value = 0;
    char name[NAME_BYTES];

    snprintf(name, sizeof(name), "coll_gpusym_%s_%s", coll, which);
    if (!mpit_counter(name, &value)) {
        missing(name, "no such counter");
    }
    return value;
}
