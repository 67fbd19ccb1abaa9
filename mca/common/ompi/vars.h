/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MCA parameters with checked values. Open MPI keeps what it makes of a text: of "1x" 1, of "abc" 0. Here a value that a
 * parameter cannot have is named to the user as it was written, and the default is taken.
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

/* A group of parameters. Where `synonym` has names, each parameter has these too; set by both, the synonym's value holds. */
typedef struct {
    gpusym_var_names_t names, synonym;
    mca_base_var_flag_t flags; /* of all parameters of the group */
} gpusym_var_group_t;

/* The level of what is read at every call: a tuner may write it between calls, by MPI_T, on all ranks alike. */
#define GPUSYM_VAR_EVERY_CALL 5

/* A parameter that is a number; doubles hold all these ranges exactly. */
typedef struct {
    const char *name;
    mca_base_var_type_t type;
    int level; /* 1 to 9 */
    void *field;
    double fallback, min, max; /* the default, and the range */
    int multiple;              /* the value must be a multiple of it; 0: any */
    const char *unit;
    const char *doc;
} gpusym_var_number_t;

/*
 * Each registers one parameter; its field gets the value. Returns its index or a negative Open MPI error. A value that it
 * cannot have is no error: the user is told, and the default is taken.
 */
int gpusym_var_number(const gpusym_var_group_t *group, const gpusym_var_number_t *number);
/* One of some words. choices ends with a NULL string; its first is the default. */
int gpusym_var_choice(const gpusym_var_group_t *group, const char *name, int level,
                      const mca_base_var_enum_value_t *choices, int *field, const char *doc);
/* Any text. The default must outlive the call only; *field is then Open MPI's. */
int gpusym_var_string(const gpusym_var_group_t *group, const char *name, int level, const char *fallback,
                      const char **field, const char *doc);

/* Tells the user that a parameter, by its full name, cannot have a value; what it may have; what is taken instead. */
void gpusym_var_refused(const char *name, const char *value, const char *allowed, const char *taken);

#endif
