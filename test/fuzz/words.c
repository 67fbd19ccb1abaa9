/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: what users write: values and names of parameters, lists of algorithms, info keys, names of files, the faults
 * and links of the simulator. The first byte says which, the rest is the text.
 */
#include "opal/mca/base/mca_base_vari.h"
#include "test/fuzz/fuzz.h"

#include <stdarg.h>

/* Open MPI's parameters. */
static const mca_base_var_t known[] = {{.mbv_full_name = (char *) (uintptr_t) "coll_gpusym_blocks"},
                                       {.mbv_full_name = (char *) (uintptr_t) "coll_gpusym_chunk"}};

static int var_count(void)
{
    return sizeof known / sizeof known[0];
}

static int var_get(int index, const mca_base_var_t **var)
{
    *var = &known[index];
    return OPAL_SUCCESS;
}

static int var_find_by_name(const char *name, int *index)
{
    for (*index = 0; *index < var_count(); ++*index) {
        if (0 == strcmp(name, known[*index].mbv_full_name)) {
            return OPAL_SUCCESS;
        }
    }
    return OPAL_ERR_NOT_FOUND;
}

/* What the user would be told. */
static __attribute__((format(printf, 1, 2))) void help(const char *format, ...)
{
    char text[4096];
    va_list ap;

    va_start(ap, format);
    MUST(vsnprintf(text, sizeof text, format, ap) > 0);
    va_end(ap);
}

#define gpusym_help help
#define mca_base_var_get var_get
#define mca_base_var_get_count var_count
#define mca_base_var_find_by_name var_find_by_name
#include "mca/common/ompi/vars.c"

static const char *algorithms; /* the text of coll_gpusym_algorithm */

static int var_string(const gpusym_var_group_t *group, const char *name, int level, const char *fallback,
                      const char **field, const char *doc)
{
    (void) group;
    (void) level;
    (void) doc;
    *field = 0 == strcmp("algorithm", name) ? algorithms : fallback;
    return 0;
}

static int var_choice(const gpusym_var_group_t *group, const char *name, int level,
                      const mca_base_var_enum_value_t *choices, int *field, const char *doc)
{
    (void) group;
    (void) level;
    (void) doc;
    MUST('\0' != *name && choices[0].value == *field);
    return 0;
}

int gpusym_face_register(void)
{
    return 0;
}

#define gpusym_var_string var_string
#define gpusym_var_choice var_choice
#include "mca/coll/gpusym/args/names.c"
#include "mca/coll/gpusym/conf/filename.c"
#include "mca/coll/gpusym/conf/params.c"
#include "mca/coll/gpusym/conf/settings.c"
#include "mca/common/gpusym/device/sim/fault.c"
#include "mca/common/gpusym/memory/pool.h"

/* ---- readers of texts ---- */

static bool is_algorithm(int algorithm, unsigned coll)
{
    return COLL_GPUSYM_ALG_AUTO == algorithm || COLL_GPUSYM_ALG_STAGED == algorithm ||
           (algorithm >= 0 && algorithm < (int) GPUSYM_ALG_COUNT &&
            coll_gpusym_algorithm_is_of((unsigned) algorithm, coll));
}

/* A value that is taken fits the parameter's field, and is in its range there. */
static void read_number(const char *text)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const gpusym_var_number_t *p = &numbers[i];
        double value;
        if (!text_good(p, text) || MCA_BASE_VAR_TYPE_BOOL == p->type) {
            continue;
        }
        value = strtod(text, NULL);
        if (MCA_BASE_VAR_TYPE_DOUBLE != p->type) {
            MUST(text_integer(text, &value));
        }
        number_set(p, value);
        MUST(value == number_get(p) && in_range(p, number_get(p)));
    }
}

static void read_choice(const char *text)
{
    mca_base_var_enum_value_t choices[GPUSYM_ALG_COUNT + 3];
    char allowed[64];

    list_choices(0, COLL_GPUSYM_ALG_AUTO, choices);
    (void) choice_good(choices, text);
    choice_names(choices, allowed, sizeof allowed);
    MUST(strlen(allowed) < sizeof allowed);
}

static void read_algorithms(const char *text)
{
    algorithms = text;
    MUST(register_algorithms() >= 0);
    for (unsigned coll = 0; coll < COLL_GPUSYM_NATIVES; coll++) {
        MUST(is_algorithm(coll_gpusym_params.algorithm[coll], coll));
    }
}

static void read_name(const char *text)
{
    check_name("coll_gpusym_", text, strlen(text), "a test");
    check_name("coll_gpusym_", text, strcspn(text, "="), "a test");
}

static void read_settings(const char *text)
{
    char allowed[128], small[8];

    (void) coll_gpusym_key_find(text);
    for (unsigned key = 0; key < COLL_GPUSYM_KEYS; key++) {
        int value = COLL_GPUSYM_UNSET, again = COLL_GPUSYM_UNSET;
        const bool good = coll_gpusym_key_parse(key, text, &value, allowed, sizeof allowed);
        MUST(strlen(allowed) < sizeof allowed);
        MUST(good == coll_gpusym_key_parse(key, text, &again, small, sizeof small));
        if (!good) {
            continue;
        }
        const char *shown = coll_gpusym_key_text(key, value);
        MUST(value == again && NULL != shown);
        MUST(key >= COLL_GPUSYM_NATIVES || is_algorithm(value, key));
        MUST(coll_gpusym_key_parse(key, shown, &again, allowed, sizeof allowed) && value == again);
    }
}

static void read_filename(const char *text)
{
    char name[512];

    coll_gpusym_filename(name, sizeof name, text, INT32_MAX, "a-host");
    MUST(NULL != memchr(name, '\0', sizeof name));
}

static void read_hints(const char *text)
{
    MUST(!gpusym_pool_requested(text) || NULL != strstr(text, "mpool=gpusym"));
}

/* The parts of a list that are for every rank. */
static unsigned count_plain(const char *text)
{
    unsigned n = 0;

    while ('\0' != *text) {
        const char *const end = text + strcspn(text, ",");
        n += NULL == memchr(text, '@', (size_t) (end - text));
        text = end + (',' == *end);
    }
    return n;
}

static void read_faults(const char *text)
{
    if (GPUSYM_SUCCESS == sim_faults_parse(text)) {
        MUST(faults.n <= FAULTS_MAX && faults.n >= count_plain(text));
        for (unsigned i = 0; i < faults.n; i++) {
            MUST(faults.fault[i].kind < SIM_FAULT_KINDS && 0 != faults.fault[i].n);
        }
    }
    MUST(NULL != memchr(sim.why, '\0', sizeof sim.why));
}

static void read_links(const char *text)
{
    gpusym_sim_params.links = text;
    if (GPUSYM_SUCCESS == sim_links_check()) {
        for (int32_t other = 0; other < 4; other++) {
            const int class = sim_link_class(other);
            (void) sim_link_spoils(other);
            MUST(class >= 0 && class <= (int) GPUSYM_LINK_SELF);
        }
    }
    MUST(NULL != memchr(sim.why, '\0', sizeof sim.why));
    gpusym_sim_params.links = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const char *text) = {read_number, read_choice,   read_algorithms,
                                                        read_name,   read_settings, read_filename,
                                                        read_hints,  read_faults,   read_links};
    const size_t n = 0 == size ? 0 : size - 1;
    char *text = malloc(n + 1);

    MUST(NULL != text);
    if (0 != n) {
        memcpy(text, data + 1, n);
    }
    text[n] = '\0';
    readers[(0 == size ? 0 : data[0]) % (sizeof readers / sizeof readers[0])](text);
    free(text);
    return 0;
}
