/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Parameters by MPI_T: see variable.h.
 */
#include <stdio.h>
#include <string.h>

#include "bench/output.h"
#include "bench/ranks.h"
#include "bench/variable.h"

bool bench_variable_choice(const bench_variable_t *v, const char *wanted, int *value)
{
    char name[128];
    int n, length;

    if (MPI_T_ENUM_NULL == v->choices || MPI_SUCCESS != MPI_T_enum_get_info(v->choices, &n, NULL, &(int){0})) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        length = sizeof(name);
        if (MPI_SUCCESS == MPI_T_enum_get_item(v->choices, i, value, name, &length) && 0 == strcmp(name, wanted)) {
            return true;
        }
    }
    return false;
}

/* Whether there is such a variable. */
static bool open_handle(bench_variable_t *v, MPI_Datatype *type)
{
    char name[128];
    int index, length = sizeof(name), verbosity, bind, scope, count;

    return MPI_SUCCESS == MPI_T_cvar_get_index(v->name, &index) &&
           MPI_SUCCESS ==
               MPI_T_cvar_get_info(index, name, &length, &verbosity, type, &v->choices, NULL, NULL, &bind, &scope) &&
           MPI_SUCCESS == MPI_T_cvar_handle_alloc(index, NULL, &v->handle, &count);
}

void bench_variable_open(bench_variable_t *v)
{
    MPI_Datatype type;

    if (!open_handle(v, &type)) {
        bench_die("there is no control variable %s", v->name);
    }
    if (MPI_INT != type) {
        bench_die("%s is not of type int", v->name);
    }
}

int bench_variable_value(const char *name, int otherwise)
{
    bench_variable_t v;
    MPI_Datatype type;
    int value = otherwise;

    snprintf(v.name, sizeof(v.name), "%s", name);
    if (!open_handle(&v, &type)) {
        return otherwise;
    }
    if (MPI_INT == type && MPI_SUCCESS != MPI_T_cvar_read(v.handle, &value)) {
        value = otherwise;
    }
    bench_variable_close(&v);
    return value;
}

void bench_variable_close(bench_variable_t *v)
{
    MPI_T_cvar_handle_free(&v->handle);
}

bool bench_variable_set(const bench_variable_t *v, int value)
{
    int now = ~value, rc;

    if (BENCH_AS_IT_IS == value) {
        return true;
    }
    rc = MPI_T_cvar_write(v->handle, &value);
    if (MPI_SUCCESS == rc) {
        rc = MPI_T_cvar_read(v->handle, &now);
    }
    if (!bench_agree(MPI_SUCCESS == rc && now == value)) {
        bench_comment("%s cannot be set by MPI_T here (error %d): use --mca parameters, one run for each combination",
                      v->name, rc);
        return false;
    }
    return true;
}
