/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters, as Open MPI has them. After info_open() of machine.h, or MPI_Init.
 */
#ifndef INFO_PARAM_H
#define INFO_PARAM_H

#include "info/item.h"

/* Whether there is a parameter of that name. */
bool info_param_there(const char *name);
/* The value of a number, a truth or a choice; of one that there is not: otherwise. */
double info_param_number(const char *name, double otherwise);
/* The value of a text; "" of one that there is not. Valid until info_close(). */
const char *info_param_text(const char *name);

/* Adds our parameters whose names match a shell pattern, or contain it (NULL: all), each with its value, where that was
 * set, and what it is for. Returns how many these are. */
unsigned info_params_tell(info_item_t *root, const char *pattern);

#endif
