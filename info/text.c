/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Text: see print.h.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "info/print.h"

enum { STEP = 2, COLUMNS = 100, CELLS_MAX = 72 };

/* A value as it is printed, valid until the next but one. */
static const char *value_of(const info_item_t *item)
{
    static char text[2][64];
    static unsigned next;

    switch (item->kind) {
    case INFO_NUMBER:
        if (isnan(item->number)) {
            return "-";
        }
        next ^= 1u;
        snprintf(text[next], sizeof(text[next]), "%.15g", item->number);
        return text[next];
    case INFO_TRUTH:
        return 0 != item->number ? "yes" : "no";
    default:
        return item->text;
    }
}

static void print_name(const char *name)
{
    for (; '\0' != *name; name++) {
        putchar('_' == *name ? ' ' : *name);
    }
}

/* A long text, in lines. */
static void print_note(const char *text, int indent)
{
    int column = 0;

    while ('\0' != *text) {
        const int word = (int) strcspn(text, " ");

        if (0 == column || column + 1 + word > COLUMNS) {
            printf("%s%*s", 0 == column ? "" : "\n", indent, "");
            column = indent + printf("%.*s", word, text);
        } else {
            column += printf(" %.*s", word, text);
        }
        text += word + (' ' == text[word]);
    }
    putchar('\n');
}

/* ---- tables ---- */

/* The width of column i: of its name, and of all its values. */
static int width_of(const info_item_t *list, const info_item_t *head, unsigned i)
{
    int width = (int) strlen(head->name);

    for (const info_item_t *row = list->first; NULL != row; row = row->next) {
        const info_item_t *cell = row->first;
        for (unsigned k = 0; k < i; k++) {
            cell = cell->next;
        }
        const int length = (int) strlen(value_of(cell));
        width = length > width ? length : width;
    }
    return width;
}

static void print_cell(const char *text, bool name, bool right, int width, bool last)
{
    const int room = width - (int) strlen(text);

    printf("%*s", right ? room : 0, "");
    if (name) {
        print_name(text);
    } else {
        fputs(text, stdout);
    }
    if (!last) {
        printf("%*s", (right ? 0 : room) + STEP, "");
    }
}

/* A line of a table: the names of the columns, or the values of a row; then its notes. */
static void print_row(const info_item_t *row, bool names, const int *width, int indent)
{
    unsigned i = 0;

    printf("%*s", indent, "");
    for (const info_item_t *cell = row->first; NULL != cell && INFO_NOTE != cell->kind; cell = cell->next) {
        const bool last = NULL == cell->next || INFO_NOTE == cell->next->kind;
        print_cell(names ? cell->name : value_of(cell), names, INFO_NUMBER == cell->kind, width[i++], last);
    }
    putchar('\n');
    for (const info_item_t *cell = row->first; NULL != cell && !names; cell = cell->next) {
        if (INFO_NOTE == cell->kind) {
            print_note(cell->text, indent + 2 * STEP);
        }
    }
}

static void print_table(const info_item_t *list, int indent)
{
    int width[CELLS_MAX] = {0};
    unsigned i = 0;

    for (const info_item_t *cell = list->first->first; NULL != cell && INFO_NOTE != cell->kind && i < CELLS_MAX;
         cell = cell->next) {
        width[i] = width_of(list, cell, i);
        i++;
    }
    print_row(list->first, true, width, indent);
    for (const info_item_t *row = list->first; NULL != row; row = row->next) {
        print_row(row, false, width, indent);
    }
}

/* ---- groups ---- */

static void print_list(const info_item_t *list, int indent)
{
    if (NULL == list->first) {
        printf("%*snone\n", indent, "");
    } else if (INFO_GROUP == list->first->kind) {
        print_table(list, indent);
    } else {
        for (const info_item_t *item = list->first; NULL != item; item = item->next) {
            print_note(value_of(item), indent);
        }
    }
}

/* The width of the names of a group's values. */
static int names_width(const info_item_t *group)
{
    int width = 0;

    for (const info_item_t *item = group->first; NULL != item; item = item->next) {
        const int length = (int) strlen(item->name);
        width = INFO_GROUP != item->kind && INFO_LIST != item->kind && length > width ? length : width;
    }
    return width;
}

static void print_group(const info_item_t *group, int indent)
{
    const int width = names_width(group);

    for (const info_item_t *item = group->first; NULL != item; item = item->next) {
        const bool nested = INFO_GROUP == item->kind || INFO_LIST == item->kind;

        if (nested && 0 == indent && item != group->first) {
            putchar('\n');
        }
        printf("%*s", indent, "");
        print_cell(item->name, true, false, width, nested);
        if (INFO_GROUP == item->kind) {
            puts(":");
            print_group(item, indent + STEP);
        } else if (INFO_LIST == item->kind) {
            puts(":");
            print_list(item, indent + STEP);
        } else {
            puts(value_of(item));
        }
    }
}

void info_print_text(const info_item_t *group)
{
    print_group(group, 0);
}
