/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What gpusym_info has found, on stdout: as text, or as one JSON object, by jansson.
 */
#ifndef INFO_PRINT_H
#define INFO_PRINT_H

#include "info/item.h"

/* Prints a group. Names are words, with spaces for underscores; lists of groups are tables. */
void info_print_text(const info_item_t *group);

/* Prints a group as one JSON object. Only in a build with jansson, which the other one tells. */
void info_print_json(const info_item_t *group);
bool info_can_json(void);

#endif
