/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which algorithm would serve a collective, and why.
 */
#ifndef INFO_WHY_H
#define INFO_WHY_H

#include "info/item.h"

/* COLLECTIVE BYTES TYPE RANKS [OP], as the user wrote them; op NULL: sum, for collectives that reduce. */
typedef struct {
    const char *coll, *bytes, *type, *ranks, *op;
} info_why_t;

/* Adds the answer for the GPUs of this machine, by the parameters. NULL, or what is wrong with the words: valid until
 * the next call. */
const char *info_why_tell(info_item_t *root, const info_why_t *words);

#endif
