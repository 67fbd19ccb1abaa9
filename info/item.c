/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What gpusym_info has found: see item.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "info/item.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *there(void *p)
{
    if (NULL == p) {
        fputs("gpusym_info: no host memory\n", stderr);
        exit(1);
    }
    return p;
}

static info_item_t *add(info_item_t *in, const char *name, info_kind_t kind)
{
    info_item_t *item = there(calloc(1, sizeof(*item)));

    item->kind = kind;
    item->name = NULL == name ? NULL : there(strdup(name));
    if (NULL == in) {
        return item;
    }
    if (NULL == in->first) {
        in->first = item;
    } else {
        in->end->next = item;
    }
    in->end = item;
    return item;
}

info_item_t *info_group(info_item_t *in, const char *name)
{
    return add(in, name, INFO_GROUP);
}

info_item_t *info_list(info_item_t *in, const char *name)
{
    return add(in, name, INFO_LIST);
}

static void set_text(info_item_t *item, const char *format, va_list ap)
{
    if (vasprintf(&item->text, format, ap) < 0) {
        there(NULL);
    }
}

void info_text(info_item_t *in, const char *name, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    set_text(add(in, name, INFO_TEXT), format, ap);
    va_end(ap);
}

void info_note(info_item_t *in, const char *name, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    set_text(add(in, name, INFO_NOTE), format, ap);
    va_end(ap);
}

void info_number(info_item_t *in, const char *name, double number)
{
    add(in, name, INFO_NUMBER)->number = number;
}

void info_truth(info_item_t *in, const char *name, bool truth)
{
    add(in, name, INFO_TRUTH)->number = truth;
}

void info_free(info_item_t *item)
{
    while (NULL != item->first) {
        info_item_t *first = item->first;
        item->first = first->next;
        info_free(first);
    }
    free(item->name);
    free(item->text);
    free(item);
}
