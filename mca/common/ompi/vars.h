/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MCA parameters with checked values.  Open MPI silently reads "1x" as 1 and "abc" as 0.  These functions report a
 * value that a parameter cannot have as the user wrote it, and use the default.
 */
#ifndef GPUSYM_OMPI_VARS_H
#define GPUSYM_OMPI_VARS_H

#include "mca/common/ompi/ompi_compat.h"

#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/base/mca_base_var_enum.h"

/* The names of a group of parameters: <framework>_<component>_<name>. */
typedef struct {
    const char *project, *framework, *component;
} gpusym_var_names_t;

/* A group of parameters.  If `synonym` is set, each parameter has a synonym; if both names are set, the synonym's value
 * applies. */
typedef struct {
    gpusym_var_names_t names, synonym;
    mca_base_var_flag_t flags; /* of all parameters of the group */
} gpusym_var_group_t;

/* The level of parameters that every call reads: a tuner may write them between calls, by MPI_T, on all ranks alike. */
#define GPUSYM_VAR_EVERY_CALL 5

/* A numeric parameter.  A double holds every value of these ranges exactly. */
typedef struct {
    const char *name;
    mca_base_var_type_t type;
    int level; /* 1 to 9 */
    void *field;
    double fallback, min, max; /* the default, and the range */
    int multiple;              /* the value must be a multiple of this; 0: any value */
    const char *unit;
    const char *doc;
} gpusym_var_number_t;

/*
 * These functions register one parameter and store its value in the field.  They return its index, or a negative Open
 * MPI error.  A bad value is no error: a message reports it, and the default is used.
 */
int gpusym_var_number(const gpusym_var_group_t *group, const gpusym_var_number_t *number);
/* A parameter with enumerated values.  choices ends with a NULL string; the first is the default. */
int gpusym_var_choice(const gpusym_var_group_t *group, const char *name, int level,
                      const mca_base_var_enum_value_t *choices, int *field, const char *doc);
/* A text.  The default need not outlive the call; Open MPI owns *field. */
int gpusym_var_string(const gpusym_var_group_t *group, const char *name, int level, const char *fallback,
                      const char **field, const char *doc);

/* Describes the group of these names, MPI_T's category, if nothing else has. */
void gpusym_var_group_describe(const char *project, const char *framework, const char *component, const char *text);

/* Takes the next name off a comma-separated list; false at its end. */
bool gpusym_list_next(const char **list, char *name, size_t size);

/* Reports to the user each name with these first letters ("coll_gpusym_") that the environment, the command line or a
 * parameter file sets and no registered parameter has, with the nearest that there is. Call it when all are registered.
 */
void gpusym_vars_check(const char *prefix);

/* Prints the message "bad-param": full name of the parameter, bad value, allowed values, and the value used instead. */
void gpusym_var_refused(const char *name, const char *value, const char *allowed, const char *taken);

#endif
