/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What gpusym_info has found: values by name, groups of them, and lists of groups. print.h makes text and JSON of it.
 */
#ifndef INFO_ITEM_H
#define INFO_ITEM_H

#include <stdbool.h>

typedef enum {
    INFO_GROUP,  /* of items of any kind */
    INFO_LIST,   /* of groups that have the same names, or of texts */
    INFO_TEXT,   /* a text */
    INFO_NOTE,   /* a long text, which gets lines of its own */
    INFO_NUMBER, /* the unit is part of the name: memory_mib; NAN: not known */
    INFO_TRUTH,
} info_kind_t;

typedef struct info_item info_item_t;
struct info_item {
    info_kind_t kind;
    char *name; /* NULL: of a list */
    char *text;
    double number;            /* of INFO_TRUTH: 0 or 1 */
    info_item_t *first, *end; /* of a group or a list: what is in it, in order */
    info_item_t *next;
};

/* Add an item to a group, or to a list (name NULL), which owns it. in NULL: the caller owns it, and frees it by
 * info_free(). All end the program where there is no memory. */
info_item_t *info_group(info_item_t *in, const char *name);
info_item_t *info_list(info_item_t *in, const char *name);
__attribute__((format(printf, 3, 4))) void info_text(info_item_t *in, const char *name, const char *format, ...);
__attribute__((format(printf, 3, 4))) void info_note(info_item_t *in, const char *name, const char *format, ...);
void info_number(info_item_t *in, const char *name, double number);
void info_truth(info_item_t *in, const char *name, bool truth);

/* Frees an item and what is in it. */
void info_free(info_item_t *item);

#endif
