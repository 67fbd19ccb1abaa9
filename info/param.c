/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters: see param.h. By Open MPI's own list of them, which tells more than MPI_T does: where a value was set.
 */
#include "info/param.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/ompi/ompi_compat.h"
#include "opal/mca/base/mca_base_var.h"

/* NULL: there is none. A synonym's own entry. */
static const mca_base_var_t *find(const char *name, int *index)
{
    const mca_base_var_t *var;

    return OPAL_SUCCESS == mca_base_var_find_by_name(name, index) && OPAL_SUCCESS == mca_base_var_get(*index, &var)
               ? var
               : NULL;
}

bool info_param_there(const char *name)
{
    int index;

    return NULL != find(name, &index);
}

/* Where a value is kept; NULL: there is no such parameter. */
static const void *value_at(const char *name, mca_base_var_type_t *type)
{
    int index;
    const mca_base_var_t *var = find(name, &index);
    const void *at = NULL;

    if (NULL == var || OPAL_SUCCESS != mca_base_var_get_value(index, &at, NULL, NULL)) {
        return NULL;
    }
    *type = var->mbv_type;
    return at;
}

double info_param_number(const char *name, double otherwise)
{
    mca_base_var_type_t type;
    const void *at = value_at(name, &type);

    switch (NULL == at ? MCA_BASE_VAR_TYPE_STRING : type) {
    case MCA_BASE_VAR_TYPE_INT:
        return *(const int *) at;
    case MCA_BASE_VAR_TYPE_UNSIGNED_INT:
        return *(const unsigned *) at;
    case MCA_BASE_VAR_TYPE_UNSIGNED_LONG:
        return (double) *(const unsigned long *) at;
    case MCA_BASE_VAR_TYPE_BOOL:
        return *(const bool *) at;
    case MCA_BASE_VAR_TYPE_DOUBLE:
        return *(const double *) at;
    default:
        return otherwise;
    }
}

const char *info_param_text(const char *name)
{
    mca_base_var_type_t type;
    const void *at = value_at(name, &type);
    const char *text = NULL == at || MCA_BASE_VAR_TYPE_STRING != type ? NULL : *(const char *const *) at;

    return NULL == text ? "" : text;
}

/* ---- the list ---- */

static bool is_ours(const char *name)
{
    static const char *const prefixes[] = {"coll_gpusym_", "btl_gpunvl_", "accelerator_gpusym_", "mpool_gpusym_",
                                           "osc_gpusym_"};

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (0 == strncmp(name, prefixes[i], strlen(prefixes[i]))) {
            return true;
        }
    }
    return false;
}

/* Where a value comes from. mpirun puts its command line into the environment of the ranks. */
static void source_text(int index, char *text, size_t size)
{
    mca_base_var_source_t source = MCA_BASE_VAR_SOURCE_DEFAULT;
    const char *file = NULL;

    (void) mca_base_var_get_value(index, NULL, &source, &file);
    switch (source) {
    case MCA_BASE_VAR_SOURCE_DEFAULT:
        snprintf(text, size, "default");
        break;
    case MCA_BASE_VAR_SOURCE_ENV:
        snprintf(text, size, "%s",
                 NULL == getenv("OMPI_COMM_WORLD_SIZE") ? "environment" : "environment, or mpirun's command line");
        break;
    case MCA_BASE_VAR_SOURCE_FILE:
    case MCA_BASE_VAR_SOURCE_OVERRIDE:
        snprintf(text, size, "file %s", NULL == file ? "" : file);
        break;
    case MCA_BASE_VAR_SOURCE_COMMAND_LINE:
        snprintf(text, size, "command line");
        break;
    default:
        snprintf(text, size, "program");
        break;
    }
}

/* The value as ompi_info writes it: what stands behind ":value:" in the first line of that kind. */
static void value_text(int index, char *text, size_t size)
{
    static const char mark[] = ":value:";
    char **lines = NULL;

    text[0] = '\0';
    if (OPAL_SUCCESS != mca_base_var_dump(index, &lines, MCA_BASE_VAR_DUMP_PARSABLE) || NULL == lines) {
        return;
    }
    for (char **line = lines; NULL != *line; line++) {
        const char *value = strstr(*line, mark);
        if (NULL != value && '\0' == text[0]) {
            const bool quoted = '"' == value[sizeof(mark) - 1];
            snprintf(text, size, "%s", value + sizeof(mark) - 1 + quoted);
            text[strlen(text) - (quoted && '\0' != text[0])] = '\0';
        }
        free(*line);
    }
    free(lines);
}

static void tell_param(info_item_t *list, const mca_base_var_t *var, int index)
{
    info_item_t *row = info_group(list, NULL);
    const char *doc = NULL == var->mbv_description ? "" : var->mbv_description, *end = strstr(doc, ". ");
    char text[4096];

    info_text(row, "name", "%s", var->mbv_full_name);
    value_text(index, text, sizeof(text));
    info_text(row, "value", "%s", text);
    source_text(index, text, sizeof(text));
    info_text(row, "set_by", "%s", text);
    info_note(row, "meaning", "%.*s", NULL == end ? (int) strlen(doc) : (int) (end - doc), doc);
}

/* What is not documented is told where it is set. */
static bool is_seen(const mca_base_var_t *var, int index)
{
    mca_base_var_source_t source = MCA_BASE_VAR_SOURCE_DEFAULT;

    (void) mca_base_var_get_value(index, NULL, &source, NULL);
    return 0 == (var->mbv_flags & MCA_BASE_VAR_FLAG_INTERNAL) || MCA_BASE_VAR_SOURCE_DEFAULT != source;
}

static int by_name(const void *a, const void *b)
{
    const mca_base_var_t *x, *y;

    (void) mca_base_var_get(*(const int *) a, &x);
    (void) mca_base_var_get(*(const int *) b, &y);
    return strcmp(x->mbv_full_name, y->mbv_full_name);
}

unsigned info_params_tell(info_item_t *root, const char *pattern)
{
    info_item_t *list = info_list(root, "parameters");
    const int count = mca_base_var_get_count();
    int *found = calloc((size_t) count + 1, sizeof(*found));
    const mca_base_var_t *var;
    char contained[256];
    unsigned n = 0;

    snprintf(contained, sizeof(contained), "*%s*", NULL == pattern ? "" : pattern);
    for (int i = 0; NULL != found && i < count; i++) {
        if (OPAL_SUCCESS == mca_base_var_get(i, &var) && NULL != var->mbv_full_name && is_ours(var->mbv_full_name) &&
            0 == fnmatch(contained, var->mbv_full_name, 0) && is_seen(var, i)) {
            found[n++] = i;
        }
    }
    if (n > 0) {
        qsort(found, n, sizeof(*found), by_name);
    }
    for (unsigned i = 0; i < n; i++) {
        (void) mca_base_var_get(found[i], &var);
        tell_param(list, var, found[i]);
    }
    free(found);
    return n;
}
