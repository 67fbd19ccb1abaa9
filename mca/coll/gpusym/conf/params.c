/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The MCA parameters: one table gives each its name, level, unit, range, default and meaning.  The
 * help text, the check of the range and the message about a bad value follow from it;
 * docs/parameters.md says more about some.
 */
#include "mca/coll/gpusym/coll_gpusym.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/base/mca_base_var_enum.h"
#include "opal/mca/base/mca_base_vari.h"

#define MIB (1024.0 * 1024.0)
#define COMPONENT (&mca_coll_gpusym_component)
/* The level of what is read at every call: a tuner may write it between calls, by MPI_T, on all ranks alike. */
#define LEVEL_EVERY_CALL 5

#define FIELD(name) (&mca_coll_gpusym_component.name)

/* A parameter that is a number; doubles hold all these ranges exactly. */
typedef struct {
    const char *name;
    mca_base_var_type_t type;
    int level;
    void *field;
    double fallback, min, max;
    int multiple; /* the value must be a multiple of it; 0: any */
    const char *unit;
    const char *doc;
} number_t;

static const number_t numbers[] = {
    {"priority", MCA_BASE_VAR_TYPE_INT, 6, FIELD(priority), 90, -1, 1000, 0, "",
     "Priority among the coll components; the highest serves a collective. -1: never used"},
    {"heap_size", MCA_BASE_VAR_TYPE_UNSIGNED_LONG, 4, FIELD(heap_size), 56 * MIB, MIB, 4096 * MIB, 0, "bytes",
     "GPU memory a process sets aside, once, for the staging areas of all its communicators. K, M and G may follow the "
     "number"},
    {"oneshot_max", MCA_BASE_VAR_TYPE_UNSIGNED_INT, LEVEL_EVERY_CALL, FIELD(oneshot_max), 0, 0, 16 * MIB, 0, "bytes",
     "Largest message that the algorithm agxll_r (every rank sends all to every rank) is taken for. 0: by the tuning "
     "table"},
    {"blocks", MCA_BASE_VAR_TYPE_INT, LEVEL_EVERY_CALL, FIELD(blocks), 0, 0, GPUSYM_BLOCKS_MAX, 0, "blocks",
     "Thread blocks of a kernel launch. 0: by the tuning table"},
    {"threads", MCA_BASE_VAR_TYPE_INT, LEVEL_EVERY_CALL, FIELD(threads), 0, 0, GPUSYM_THREADS_MAX, 32, "threads",
     "Threads of a block. 0: by the tuning table"},
    {"chunk", MCA_BASE_VAR_TYPE_UNSIGNED_INT, LEVEL_EVERY_CALL, FIELD(chunk), 0, 0, 64 * MIB, 0, "bytes",
     "What a block of a two-shot kernel takes of the message at a time. 0: by the tuning table"},
    {"timeout", MCA_BASE_VAR_TYPE_DOUBLE, 3, FIELD(timeout), 60, 0, 1000000, 0, "seconds",
     "How long a GPU waits for another one inside a kernel before the job ends with a message. 0: for ever"},
    {"timeout_host", MCA_BASE_VAR_TYPE_DOUBLE, 3, FIELD(timeout_host), 0, 0, 1000000, 0, "seconds",
     "How long a collective waits for ranks that have not called it before it ends with an error. 0: for ever"},
    {"warn", MCA_BASE_VAR_TYPE_DOUBLE, 3, FIELD(warn), 30, 0, 1000000, 0, "seconds",
     "After how long a collective that waits for ranks says for which ones, and where they were last; again after twice, four "
     "times that, and so on. 0: never, and nothing is said of ranks whose parameters differ"},
    {"share_gpu", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(share_gpu), 0, 0, 1, 0, "",
     "Run the kernels also where ranks share a GPU. These kernels wait for each other, so they must run at the same "
     "time, as under MPS. Otherwise such communicators are staged through host memory"},
    {"multicast", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(multicast), 1, 0, 1, 0, "",
     "Allow NVLink multicast (NVLS) objects. NCCL_NVLS_ENABLE=0, NVSHMEM_DISABLE_NVLS=1 or "
     "TORCH_SYMM_MEM_DISABLE_MULTICAST=1 in the environment forbid them whatever is said here"},
    {"zero_copy", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(zero_copy), 1, 0, 1, 0, "",
     "Move large messages straight between users' buffers where peers can map them (on NVIDIA GPUs: memory of cudaMalloc, "
     "and of cuMemCreate with a file descriptor; not cudaMallocAsync). Otherwise, and what is smaller, goes by way of the heap"},
    {"linger", MCA_BASE_VAR_TYPE_INT, LEVEL_EVERY_CALL, FIELD(linger), -1, -1, 1000000, 0, "microseconds",
     "How long the kernel of a small blocking collective stays on the GPU (one block), so that the next one costs no launch. "
     "cudaDeviceSynchronize and cudaFree wait for it as long. 0: not at all; -1: by the tuning table, and not where it was "
     "not worth it before"},
    {"graph", MCA_BASE_VAR_TYPE_BOOL, LEVEL_EVERY_CALL, FIELD(graph), 1, 0, 1, 0, "",
     "Launch kernels by a graph (on NVIDIA GPUs: a CUDA graph), which costs less than a launch: one for each "
     "persistent collective, else one for each of the kernels in flight"},
    {"zero_copy_min", MCA_BASE_VAR_TYPE_UNSIGNED_INT, LEVEL_EVERY_CALL, FIELD(zero_copy_min), 0, 0, 1024 * MIB, 0, "bytes",
     "Smallest message that goes straight between users' buffers. 0: by the tuning table"},
    {"reg_limit", MCA_BASE_VAR_TYPE_INT, 4, FIELD(reg_limit), 64, 0, 64, 0, "buffers",
     "How many allocations of the user a process lets its peers map at a time; for one more, that which was not used for "
     "the longest time is given up"},
    {"reproducible", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(reproducible), 0, 0, 1, 0, "",
     "Take only algorithms whose results have bits that depend on nothing but the inputs and the number of ranks: not on "
     "how a message is cut, on blocks, placement or timing"},
    {"summary", MCA_BASE_VAR_TYPE_BOOL, 2, FIELD(summary), 0, 0, 1, 0, "",
     "Print at MPI_Finalize, from rank 0 to stderr, how the calls of each collective were served"},
    {"verbose", MCA_BASE_VAR_TYPE_INT, 2, FIELD(verbose), 0, 0, 100, 0, "",
     "How much to say on stderr. 1: what is decided once, and why something is not used; 5: a line a communicator; "
     "coll_base_verbose counts too"},
    {"sim_host", MCA_BASE_VAR_TYPE_BOOL, 7, FIELD(sim_host), 0, 0, 1, 0, "",
     "Simulator: take every buffer for GPU memory, so that any MPI program runs the kernels"},
    {"sim_gpus", MCA_BASE_VAR_TYPE_INT, 7, FIELD(sim_gpus), 0, 0, 64, 0, "GPUs",
     "Simulator: GPUs of a host, shared out to the processes by local rank. 0: one a process"},
    {"epoch_first", MCA_BASE_VAR_TYPE_UNSIGNED_INT, 9, FIELD(epoch_first), 1, 1, GPUSYM_EPOCH_MAX, 0, "epochs",
     "First epoch of a communicator's flags, to test that their counting may wrap round"},
};

static double number_get(const number_t *p)
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

static void number_set(const number_t *p, double value)
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
static void number_range(const number_t *p, char *buf, size_t size)
{
    int used = snprintf(buf, size, "%.0f to %.0f%s%s", p->min, p->max, '\0' == *p->unit ? "" : " ", p->unit);

    if (p->multiple > 0 && used > 0 && (size_t) used < size) {
        snprintf(buf + used, size - (size_t) used, ", a multiple of %d", p->multiple);
    }
}

static bool in_range(const number_t *p, double value)
{
    if (!(value >= p->min && value <= p->max)) { /* so that no NaN passes */
        return false;
    }
    return 0 == p->multiple || 0 == (long) value % p->multiple;
}

/* ---- what the user wrote ---- */

/* Open MPI keeps what it made of that: of "1x" 1, of "abc" 0. The text of a registered parameter, refused or not; NULL: it has
 * its default. Valid until the environment changes. */
static const char *user_text(const char *name)
{
    const mca_base_var_t *var;
    const mca_base_var_file_value_t *from_file;
    char full[64], *env = NULL;
    const char *text = NULL;
    int index;

    snprintf(full, sizeof(full), "coll_gpusym_%s", name);
    if (OPAL_SUCCESS != mca_base_var_find_by_name(full, &index) || OPAL_SUCCESS != mca_base_var_get(index, &var)) {
        return NULL;
    }
    from_file = var->mbv_file_value;
    /* The environment, which is where mpirun puts its command line, goes before files, but for one of overrides. */
    if ((MCA_BASE_VAR_SOURCE_OVERRIDE != var->mbv_source || NULL == from_file) &&
        OPAL_SUCCESS == mca_base_var_env_name(full, &env)) {
        text = getenv(env);
        free(env);
    }
    if (NULL == text && NULL != from_file) {
        text = NULL != from_file->mbvfv_value ? from_file->mbvfv_value : "";
    }
    return text;
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

/* Whether the text is one of a value that the parameter may have. That Open MPI has taken it says the same of booleans' words. */
static bool text_good(const number_t *p, const char *text)
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

/* Says that a parameter's default is taken in place of a value that cannot be. */
static void bad_value(const char *name, const char *value, const char *allowed, const char *fallback)
{
    char full[64], taken[64];

    snprintf(full, sizeof(full), "coll_gpusym_%s", name);
    snprintf(taken, sizeof(taken), "the default, %s", fallback);
    coll_gpusym_help("bad-param", full, value, allowed, taken);
}

/* Open MPI refuses by itself what the type or the enumerator has no value for, in a message of its own; the field keeps its
 * default. */
#define REFUSED OPAL_ERR_VALUE_OUT_OF_BOUNDS

/* Registers one parameter; its field holds the default.  Returns its index, REFUSED, or another
 * negative error. */
static int var_register(const char *name, const char *doc, mca_base_var_type_t type, mca_base_var_enum_t *choices,
                        int level, void *field)
{
    const mca_base_var_flag_t flags = LEVEL_EVERY_CALL == level ? MCA_BASE_VAR_FLAG_SETTABLE : 0;

    return mca_base_component_var_register(&COMPONENT->super.collm_version, name, doc, type, choices, 0, flags,
                                           (mca_base_var_info_lvl_t) (OPAL_INFO_LVL_1 + level - 1),
                                           MCA_BASE_VAR_SCOPE_ALL_EQ, field);
}

#define BOOLEANS "0 or 1, true or false, yes or no, enabled or disabled"

static int number_register(const number_t *p)
{
    char range[96], value[48], fallback[48];
    const char *text;
    char doc[512];
    int ret;

    number_range(p, range, sizeof(range));
    if (MCA_BASE_VAR_TYPE_BOOL == p->type) {
        snprintf(doc, sizeof(doc), "%s", p->doc);
    } else {
        snprintf(doc, sizeof(doc), "%s (%s)", p->doc, range);
    }
    number_set(p, p->fallback);
    ret = var_register(p->name, doc, p->type, NULL, p->level, p->field);
    if (ret < 0 && REFUSED != ret) {
        return ret;
    }
    text = user_text(p->name);
    if (REFUSED == ret || (NULL != text && !text_good(p, text)) || !in_range(p, number_get(p))) {
        snprintf(value, sizeof(value), "%.15g", number_get(p));
        snprintf(fallback, sizeof(fallback), "%.0f", p->fallback);
        bad_value(p->name, NULL != text ? text : value, MCA_BASE_VAR_TYPE_BOOL == p->type ? BOOLEANS : range, fallback);
        number_set(p, p->fallback);
        return OMPI_SUCCESS;
    }
    return ret;
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

/* A parameter that is one of some words.  choices ends with a NULL string; its first is the default. */
static int choice_register(const char *name, int level, const mca_base_var_enum_value_t *choices, int *field,
                           const char *doc)
{
    mca_base_var_enum_t *enumerator = NULL;
    const char *text;
    char allowed[256];
    int ret = mca_base_var_enum_create(name, choices, &enumerator);

    if (OPAL_SUCCESS != ret) {
        return ret;
    }
    *field = choices[0].value;
    ret = var_register(name, doc, MCA_BASE_VAR_TYPE_INT, enumerator, level, field);
    text = ret >= 0 || REFUSED == ret ? user_text(name) : NULL;
    if (REFUSED == ret || (NULL != text && !choice_good(choices, text))) {
        choice_names(choices, allowed, sizeof(allowed));
        bad_value(name, NULL != text ? text : "", allowed, choices[0].string);
        *field = choices[0].value;
        ret = OMPI_SUCCESS;
    }
    OBJ_RELEASE(enumerator); /* the parameter keeps its own reference */
    return ret;
}

static int register_device(void)
{
    static const mca_base_var_enum_value_t choices[] = {
        {GPUSYM_DEVICE_AUTO, "auto"},
        {GPUSYM_DEVICE_CUDA, "cuda"},
        {GPUSYM_DEVICE_SIM, "sim"},
        {GPUSYM_DEVICE_NONE, "none"},
        {0, NULL},
    };

    return choice_register("device", 2, choices, FIELD(device),
                           "What GPU memory is. auto: NVIDIA GPUs if there are any; cuda: these, and a message if "
                           "there are none; sim: the simulator, which needs no GPU; none: the component is not used");
}

/* coll_gpusym_<collective>_algorithm */
static int register_algorithm(unsigned coll)
{
    mca_base_var_enum_value_t choices[GPUSYM_ALG_COUNT + 3] = {
        {COLL_GPUSYM_ALG_AUTO, "auto"},
        {COLL_GPUSYM_ALG_STAGED, "staged"},
    };
    char doc[1024], name[64];
    size_t used;
    unsigned n = 2;

    snprintf(name, sizeof(name), "%s_algorithm", coll_gpusym_name(coll));
    used = (size_t) snprintf(doc, sizeof(doc),
                             "How %s on GPU memory is done. auto: by the tuning table; "
                             "staged: through host memory, by the other components",
                             coll_gpusym_mpi_name(coll));
    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; ++a) {
        if (coll_gpusym_algorithm_is_of(a, coll)) {
            choices[n].value = (int) a;
            choices[n++].string = gpusym_algorithm_name(a);
            used += (size_t) snprintf(doc + used, used < sizeof(doc) ? sizeof(doc) - used : 0, "; %s: %s",
                                      gpusym_algorithm_name(a), gpusym_algorithm_doc(a));
        }
    }
    choices[n].value = 0;
    choices[n].string = NULL;
    return choice_register(name, LEVEL_EVERY_CALL, choices, FIELD(algorithm[coll]), doc);
}

/* Those of what has no kernels stay auto. */
static int register_algorithms(void)
{
    int ret = OMPI_SUCCESS;

    for (unsigned coll = 0; coll < COLL_GPUSYM_COLLS; ++coll) {
        COMPONENT->algorithm[coll] = COLL_GPUSYM_ALG_AUTO;
    }
    for (unsigned coll = 0; ret >= 0 && coll < COLL_GPUSYM_NATIVES; ++coll) {
        ret = register_algorithm(coll);
    }
    return ret;
}

static int register_adopt(void)
{
    mca_base_var_source_t source = MCA_BASE_VAR_SOURCE_DEFAULT;
    int var;

    COMPONENT->adopt = "all";
    var = var_register("adopt",
                       "Which components to take in when the list of coll components names only gpusym: all, none, a "
                       "comma list, or ^ and a comma list of those to leave out. When the list names others too, "
                       "nothing is taken in unless this is set",
                       MCA_BASE_VAR_TYPE_STRING, NULL, 3, FIELD(adopt));
    if (var >= 0) {
        (void) mca_base_var_get_value(var, NULL, &source, NULL);
    }
    COMPONENT->adopt_set = MCA_BASE_VAR_SOURCE_DEFAULT != source;
    return var;
}

static int register_sim_fail(void)
{
    COMPONENT->sim_fail = "";
    return var_register("sim_fail",
                        "Simulator: faults to inject, what:n[@rank], separated by commas: the n-th (from 1) alloc, "
                        "import, export, bind, launch, graph or hostalloc fails, or the n-th launch never ends (hang), or the n-th address that a kernel which "
                        "stays is told comes too late (bell); on every rank or on one",
                        MCA_BASE_VAR_TYPE_STRING, NULL, 9, FIELD(sim_fail));
}

static int register_sim_links(void)
{
    COMPONENT->sim_links = "";
    return var_register("sim_links",
                        "Simulator: links between GPUs, A-B:CLASS, separated by commas; GPUs are numbered as the local ranks "
                        "they are handed to. Class 0: neither reaches the other, 1: across NUMA nodes, 2: in one, 3: by one "
                        "PCI switch, 3 + n: n NVLinks. Of pairs that are not named: one NVLink",
                        MCA_BASE_VAR_TYPE_STRING, NULL, 9, FIELD(sim_links));
}

int coll_gpusym_params_register(void)
{
    int ret = register_device();

    if (ret >= 0) {
        ret = register_algorithms();
    }
    if (ret >= 0) {
        ret = register_adopt();
    }
    if (ret >= 0) {
        ret = register_sim_fail();
    }
    if (ret >= 0) {
        ret = register_sim_links();
    }
    for (size_t i = 0; ret >= 0 && i < sizeof(numbers) / sizeof(numbers[0]); ++i) {
        ret = number_register(&numbers[i]);
    }
    return ret < 0 ? ret : OMPI_SUCCESS;
}
