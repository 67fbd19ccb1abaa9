/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * JSON: see print.h. The only user of jansson.
 */
#include "info/print.h"

#include "config.h"

#if GPUSYM_HAVE_JANSSON

#include <jansson.h>
#include <math.h>
#include <stdio.h>

/* A text that is not UTF-8 is null. */
static json_t *convert(const info_item_t *item)
{
    json_t *to;

    switch (item->kind) {
    case INFO_TRUTH:
        return json_boolean(0 != item->number);
    case INFO_NUMBER:
        if (isnan(item->number)) {
            return json_null();
        }
        return floor(item->number) == item->number ? json_integer((json_int_t) item->number) : json_real(item->number);
    case INFO_GROUP:
        to = json_object();
        for (const info_item_t *in = item->first; NULL != in; in = in->next) {
            json_object_set_new(to, in->name, convert(in));
        }
        return to;
    case INFO_LIST:
        to = json_array();
        for (const info_item_t *in = item->first; NULL != in; in = in->next) {
            json_array_append_new(to, convert(in));
        }
        return to;
    default:
        to = json_string(item->text);
        return NULL == to ? json_null() : to;
    }
}

void info_print_json(const info_item_t *group)
{
    json_t *whole = convert(group);

    json_dumpf(whole, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(whole);
}

#else

void info_print_json(const info_item_t *group)
{
    (void) group;
}

#endif

bool info_can_json(void)
{
    return GPUSYM_HAVE_JANSSON;
}
