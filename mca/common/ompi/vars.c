/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Parameters with checked values: see vars.h.
 */
#include "mca/common/ompi/vars.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opal/mca/base/mca_base_vari.h"

#include "mca/common/gpusym/log.h"

/* ---- values ---- */

static double number_get(const gpusym_var_number_t *p)
{
    switch (p->type) {
    case MCA_BASE_VAR_TYPE_BOOL:
        return *(const bool *) p->field;
    case MCA_BASE_VAR_TYPE_DOUBLE:
        return *(const double *) p->field;
    case MCA_BASE_VAR_TYPE_UNSIGNED_INT:
        return *(const unsigned *) p->field;
    case MCA_BASE_VAR_TYPE_UNSIGNED_LONG:
        return (double) *(const unsigned long *) p->field;
    default:
        return *(const int *) p->field;
    }
}

static void number_set(const gpusym_var_number_t *p, double value)
{
    switch (p->type) {
    case MCA_BASE_VAR_TYPE_BOOL:
        *(bool *) p->field = 0 != value;
        break;
    case MCA_BASE_VAR_TYPE_DOUBLE:
        *(double *) p->field = value;
        break;
    case MCA_BASE_VAR_TYPE_UNSIGNED_INT:
        *(unsigned *) p->field = (unsigned) value;
        break;
    case MCA_BASE_VAR_TYPE_UNSIGNED_LONG:
        *(unsigned long *) p->field = (unsigned long) value;
        break;
    default:
        *(int *) p->field = (int) value;
        break;
    }
}

/* "0 to 512 threads, a multiple of 32" */
static void number_range(const gpusym_var_number_t *p, char *buf, size_t size)
{
    int used = snprintf(buf, size, "%.0f to %.0f%s%s", p->min, p->max, '\0' == *p->unit ? "" : " ", p->unit);

    if (p->multiple > 0 && used > 0 && (size_t) used < size) {
        snprintf(buf + used, size - (size_t) used, ", a multiple of %d", p->multiple);
    }
}

static bool in_range(const gpusym_var_number_t *p, double value)
{
    if (!(value >= p->min && value <= p->max)) { /* so that no NaN passes */
        return false;
    }
    return 0 == p->multiple || 0 == (long) value % p->multiple;
}

/* ---- what the user wrote ---- */

/* The text that a variable has from the user, by its index, refused or not; NULL: none under this name. Valid until the
 * environment changes. *name: the name that the user wrote. */
static const char *var_text(int index, const char **name)
{
    const mca_base_var_t *var;
    const mca_base_var_file_value_t *from_file;
    const char *text = NULL;
    char *env = NULL;

    if (index < 0 || OPAL_SUCCESS != mca_base_var_get(index, &var)) {
        return NULL;
    }
    from_file = var->mbv_file_value;
    /* The environment, which is where mpirun puts its command line, goes before files, but for one of overrides. */
    if ((MCA_BASE_VAR_SOURCE_OVERRIDE != var->mbv_source || NULL == from_file) &&
        OPAL_SUCCESS == mca_base_var_env_name(var->mbv_full_name, &env)) {
        text = getenv(env);
        free(env);
        *name = var->mbv_full_name;
    }
    if (NULL == text && NULL != from_file) {
        text = NULL != from_file->mbvfv_value ? from_file->mbvfv_value : "";
        *name = from_file->mbvfv_var;
    }
    return text;
}

/* A registered parameter: its variables, and what the user wrote. */
typedef struct {
    int index;        /* of the variable, or a negative error */
    int synonym;      /* index of its synonym; negative: it has none */
    const char *name; /* the user's, or the full name */
    const char *text; /* NULL: it has its default */
    bool refused;     /* by Open MPI, in a message of its own */
} var_t;

/* The synonym's text holds where there is one: it is read last. */
static void var_read(var_t *var)
{
    const mca_base_var_t *own;

    var->text = var_text(var->synonym, &var->name);
    if (NULL == var->text) {
        var->text = var_text(var->index, &var->name);
    }
    if (NULL == var->text && OPAL_SUCCESS == mca_base_var_get(var->synonym >= 0 ? var->synonym : var->index, &own)) {
        var->name = own->mbv_full_name;
    }
}

/* The value of a text that is a whole number, in decimal, octal or hexadecimal, K, M or G behind it. */
static bool text_integer(const char *text, double *value)
{
    static const char units[] = "kmg";
    const char *unit;
    char *end;

    errno = 0;
    *value = (double) strtoll(text, &end, 0);
    if (end == text || 0 != errno) {
        return false;
    }
    unit = '\0' != *end ? strchr(units, tolower((unsigned char) *end)) : NULL;
    for (const char *u = units; NULL != unit && u <= unit; ++u) {
        *value *= 1024;
    }
    return '\0' == end[NULL != unit];
}

/* Whether the text is one of a value that the parameter may have. That Open MPI has taken it says the same of booleans'
 * words. */
static bool text_good(const gpusym_var_number_t *p, const char *text)
{
    double value;
    char *end;

    if (MCA_BASE_VAR_TYPE_BOOL == p->type && '\0' != *text && NULL == strpbrk(text, "0123456789")) {
        return true;
    }
    if (MCA_BASE_VAR_TYPE_DOUBLE != p->type) {
        return text_integer(text, &value) && in_range(p, value);
    }
    value = strtod(text, &end);
    return end != text && '\0' == *end && in_range(p, value);
}

#define SEE_ALL                                                                     \
    "ompi_info --param coll gpusym --level 3 describes the parameters most used,\n" \
    "docs/parameters.md all of them.\n"

#define BAD_VALUE                              \
    "The MCA parameter %s cannot be \"%s\".\n" \
    "\n"                                       \
    "Allowed: %s.\n"                           \
    "Used instead: %s.\n"                      \
    "\n" SEE_ALL

void gpusym_var_refused(const char *name, const char *value, const char *allowed, const char *taken)
{
    gpusym_help(BAD_VALUE, name, value, allowed, taken);
}

/* Tells the user that the default is taken in place of a value that cannot be. */
static void value_refused(const char *name, const char *value, const char *allowed, const char *fallback)
{
    char taken[64];

    snprintf(taken, sizeof(taken), "the default, %s", fallback);
    gpusym_var_refused(name, value, allowed, taken);
}

/* Open MPI refuses by itself what the type or the enumerator has no value for, in a message of its own; the field keeps
 * what it had. */
#define REFUSED OPAL_ERR_VALUE_OUT_OF_BOUNDS

static int var_find(const gpusym_var_names_t *names, const char *name)
{
    return mca_base_var_find(names->project, names->framework, names->component, name);
}

/* Open MPI makes the group of a component before the component can, without a description. */
void gpusym_var_group_describe(const char *project, const char *framework, const char *component, const char *text)
{
    const int index = mca_base_var_group_register(project, framework, component, text);
    const mca_base_var_group_t *group = NULL;
    if (index >= 0 && OPAL_SUCCESS == mca_base_var_group_get(index, &group) && NULL == group->group_description) {
        ((mca_base_var_group_t *) group)->group_description = strdup(text); /* freed with the group; NULL is fine */
    }
}

/* Registers one parameter and its synonym; the field holds the default. False: var->index is an error. */
static bool var_register(const gpusym_var_group_t *group, const char *name, const char *doc, mca_base_var_type_t type,
                         mca_base_var_enum_t *choices, int level, void *field, var_t *var)
{
    const gpusym_var_names_t *own = &group->names, *other = &group->synonym;
    const mca_base_var_flag_t flags =
        (mca_base_var_flag_t) (group->flags | (GPUSYM_VAR_EVERY_CALL == level ? MCA_BASE_VAR_FLAG_SETTABLE : 0));

    *var = (var_t){.synonym = -1};
    var->index = mca_base_var_register(own->project, own->framework, own->component, name, doc, type, choices, 0, flags,
                                       (mca_base_var_info_lvl_t) (OPAL_INFO_LVL_1 + level - 1),
                                       MCA_BASE_VAR_SCOPE_ALL_EQ, field);
    if (REFUSED == var->index) {
        var->refused = true;
        var->index = var_find(own, name);
    }
    if (var->index >= 0 && NULL != other->component) {
        var->synonym =
            mca_base_var_register_synonym(var->index, other->project, other->framework, other->component, name, 0);
        if (REFUSED == var->synonym) {
            var->refused = true;
            var->synonym = var_find(other, name);
        }
    }
    var_read(var);
    return var->index >= 0;
}

#define BOOLEANS "0 or 1, true or false, yes or no, enabled or disabled"

int gpusym_var_number(const gpusym_var_group_t *group, const gpusym_var_number_t *p)
{
    char range[96], value[48], fallback[48];
    char doc[512];
    var_t var;

    number_range(p, range, sizeof(range));
    if (MCA_BASE_VAR_TYPE_BOOL == p->type) {
        snprintf(doc, sizeof(doc), "%s", p->doc);
    } else {
        snprintf(doc, sizeof(doc), "%s (%s)", p->doc, range);
    }
    number_set(p, p->fallback);
    if (!var_register(group, p->name, doc, p->type, NULL, p->level, p->field, &var)) {
        return var.index;
    }
    if (var.refused || (NULL != var.text && !text_good(p, var.text)) || !in_range(p, number_get(p))) {
        snprintf(value, sizeof(value), "%.15g", number_get(p));
        snprintf(fallback, sizeof(fallback), "%.0f", p->fallback);
        value_refused(var.name, NULL != var.text ? var.text : value,
                      MCA_BASE_VAR_TYPE_BOOL == p->type ? BOOLEANS : range, fallback);
        number_set(p, p->fallback);
    }
    return var.index;
}

/* "auto, cuda, sim" */
static void choice_names(const mca_base_var_enum_value_t *choices, char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (int i = 0; NULL != choices[i].string && used < size; ++i) {
        used += (size_t) snprintf(buf + used, size - used, "%s%s", 0 == i ? "" : ", ", choices[i].string);
    }
}

/* Whether the text is a word or the number of one. Open MPI cuts numbers to an int, and takes nothing for 0. */
static bool choice_good(const mca_base_var_enum_value_t *choices, const char *text)
{
    double value;
    const bool number = text_integer(text, &value);

    for (int i = 0; NULL != choices[i].string; ++i) {
        if (0 == strcmp(choices[i].string, text) || (number && value == choices[i].value)) {
            return true;
        }
    }
    return false;
}

int gpusym_var_choice(const gpusym_var_group_t *group, const char *name, int level,
                      const mca_base_var_enum_value_t *choices, int *field, const char *doc)
{
    mca_base_var_enum_t *enumerator = NULL;
    char allowed[256];
    var_t var;
    const int ret = mca_base_var_enum_create(name, choices, &enumerator);

    if (OPAL_SUCCESS != ret) {
        return ret;
    }
    *field = choices[0].value;
    if (var_register(group, name, doc, MCA_BASE_VAR_TYPE_INT, enumerator, level, field, &var) &&
        (var.refused || (NULL != var.text && !choice_good(choices, var.text)))) {
        choice_names(choices, allowed, sizeof(allowed));
        value_refused(var.name, NULL != var.text ? var.text : "", allowed, choices[0].string);
        *field = choices[0].value;
    }
    OBJ_RELEASE(enumerator); /* the parameter keeps its own reference */
    return var.index;
}

int gpusym_var_string(const gpusym_var_group_t *group, const char *name, int level, const char *fallback,
                      const char **field, const char *doc)
{
    var_t var;

    *field = fallback;
    (void) var_register(group, name, doc, MCA_BASE_VAR_TYPE_STRING, NULL, level, (void *) field, &var);
    return var.index;
}

bool gpusym_list_next(const char **list, char *name, size_t size)
{
    *list += strspn(*list, ", ");
    const size_t length = strcspn(*list, ", ");
    if (0 == length) {
        return false;
    }
    snprintf(name, size, "%.*s", (int) length, *list);
    *list += length;
    return true;
}

/* ---- names that no parameter has ---- */

#define NO_NAME                          \
    "There is no MCA parameter %s:\n"    \
    "%s sets it, which has no effect.\n" \
    "%s%s%s"                             \
    "\n" SEE_ALL

/* The longest name that is looked at. */
#define NAME_MAX_LENGTH 80

/* The number of letters to insert, remove or change to make one name of the other (Levenshtein). */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[NAME_MAX_LENGTH + 1];
    const size_t n = strlen(b);

    for (size_t k = 0; k <= n; k++) {
        row[k] = (unsigned) k;
    }
    for (size_t i = 1; '\0' != a[i - 1]; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned) i;
        for (size_t k = 1; k <= n; k++) {
            const unsigned changed = diagonal + (a[i - 1] != b[k - 1]);
            const unsigned other = 1 + (row[k] < row[k - 1] ? row[k] : row[k - 1]);
            diagonal = row[k];
            row[k] = changed < other ? changed : other;
        }
    }
    return row[n];
}

/* The registered parameter with these first letters whose name is nearest; NULL: none is near. */
static const char *nearest(const char *name, const char *prefix)
{
    const mca_base_var_t *var;
    const char *best = NULL;
    unsigned least = 4; /* more is another name, not a mistake */

    for (int i = 0; i < mca_base_var_get_count(); i++) {
        if (OPAL_SUCCESS == mca_base_var_get(i, &var) && NULL != var->mbv_full_name &&
            0 == strncmp(var->mbv_full_name, prefix, strlen(prefix)) && strlen(var->mbv_full_name) <= NAME_MAX_LENGTH) {
            const unsigned d = distance(name, var->mbv_full_name);
            best = d < least ? var->mbv_full_name : best;
            least = d < least ? d : least;
        }
    }
    return best;
}

/* Tells the user of a name that no parameter has; `from`: who sets it. */
static void check_name(const char *prefix, const char *name, size_t length, const char *from)
{
    char copy[NAME_MAX_LENGTH + 1];
    int index;

    if (length > NAME_MAX_LENGTH || length < strlen(prefix) || 0 != strncmp(name, prefix, strlen(prefix))) {
        return;
    }
    memcpy(copy, name, length);
    copy[length] = '\0';
    if (OPAL_SUCCESS != mca_base_var_find_by_name(copy, &index)) {
        const char *other = nearest(copy, prefix);
        gpusym_help(NO_NAME, copy, from, NULL != other ? "Did you mean " : "", NULL != other ? other : "",
                    NULL != other ? "?\n" : "");
    }
}

extern char **environ;

/* mpirun puts its command line into the environment too. */
static void check_environment(const char *prefix)
{
    static const char start[] = "OMPI_MCA_";

    for (char **e = environ; NULL != e && NULL != *e; e++) {
        if (0 == strncmp(*e, start, sizeof(start) - 1)) {
            const char *name = *e + sizeof(start) - 1;
            check_name(prefix, name, strcspn(name, "="), "the command line or the environment");
        }
    }
}

static void check_file(const char *prefix, const char *path)
{
    FILE *file = fopen(path, "re");
    char line[512];

    while (NULL != file && NULL != fgets(line, sizeof(line), file)) {
        const char *name = line + strspn(line, " \t");
        check_name(prefix, name, strcspn(name, " \t=\n"), path);
    }
    if (NULL != file) {
        fclose(file);
    }
}

/* The files that Open MPI has read. */
static void check_files(const char *prefix)
{
    const int index = mca_base_var_find("opal", "mca", "base", "param_files");
    const char *const *value = NULL;
    char *copy, *state = NULL;

    if (index < 0 || OPAL_SUCCESS != mca_base_var_get_value(index, &value, NULL, NULL) || NULL == value ||
        NULL == *value) {
        return;
    }
    copy = strdup(*value);
    for (char *path = NULL != copy ? strtok_r(copy, ",", &state) : NULL; NULL != path;
         path = strtok_r(NULL, ",", &state)) {
        check_file(prefix, path);
    }
    free(copy);
}

void gpusym_vars_check(const char *prefix)
{
    check_environment(prefix);
    check_files(prefix);
}
