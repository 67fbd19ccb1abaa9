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
/* The level of parameters that every call reads: a tuner may write them between calls, by MPI_T, on all ranks alike. */
#define LEVEL_EVERY_CALL 5

#define FIELD(name) (&mca_coll_gpusym_component.name)

/* A numeric parameter.  A double holds every value of these ranges exactly. */
typedef struct {
    const char *name;
    mca_base_var_type_t type;
    int level;
    void *field;
    double fallback, min, max;
    int multiple; /* the value must be a multiple of this; 0: any value */
    const char *unit;
    const char *doc;
} number_t;

static const number_t numbers[] = {
    {"priority", MCA_BASE_VAR_TYPE_INT, 6, FIELD(priority), 90, -1, 1000, 0, "",
     "Priority of this component among the coll components. The component with the highest priority serves a "
     "collective. -1 disables this component"},
    {"heap_size", MCA_BASE_VAR_TYPE_UNSIGNED_LONG, 4, FIELD(heap_size), 56 * MIB, MIB, 4096 * MIB, 0, "bytes",
     "GPU memory that a process reserves, once, for the symmetric heap of all its communicators. The suffixes K, M "
     "and G are accepted"},
    {"oneshot_max", MCA_BASE_VAR_TYPE_UNSIGNED_INT, LEVEL_EVERY_CALL, FIELD(oneshot_max), 0, 0, 16 * MIB, 0, "bytes",
     "Largest message for which the algorithm agxll_r (one-shot: every rank sends its input to every rank) is "
     "selected. 0: use the tuning table"},
    {"blocks", MCA_BASE_VAR_TYPE_INT, LEVEL_EVERY_CALL, FIELD(blocks), 0, 0, GPUSYM_BLOCKS_MAX, 0, "blocks",
     "Thread blocks per kernel launch. 0: use the tuning table"},
    {"threads", MCA_BASE_VAR_TYPE_INT, LEVEL_EVERY_CALL, FIELD(threads), 0, 0, GPUSYM_THREADS_MAX, 32, "threads",
     "Threads per block. 0: use the tuning table"},
    {"chunk", MCA_BASE_VAR_TYPE_UNSIGNED_INT, LEVEL_EVERY_CALL, FIELD(chunk), 0, 0, 64 * MIB, 0, "bytes",
     "Bytes of the message that a block of a two-shot kernel processes at a time. 0: use the tuning table"},
    {"timeout", MCA_BASE_VAR_TYPE_DOUBLE, 3, FIELD(timeout), 60, 0, 1000000, 0, "seconds",
     "Time a GPU waits inside a kernel for another GPU. When it expires, the job ends with a message. 0: no limit"},
    {"timeout_host", MCA_BASE_VAR_TYPE_DOUBLE, 3, FIELD(timeout_host), 0, 0, 1000000, 0, "seconds",
     "Time a collective waits for ranks that have not called it. When it expires, the collective ends with an error. "
     "0: no limit"},
    {"warn", MCA_BASE_VAR_TYPE_DOUBLE, 3, FIELD(warn), 30, 0, 1000000, 0, "seconds",
     "Time after which a waiting collective reports the ranks that it waits for, and where they were last. The "
     "report repeats after twice that time, four times that time, and so on. 0: no report, and no message about "
     "ranks whose parameters differ"},
    {"share_gpu", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(share_gpu), 0, 0, 1, 0, "",
     "Run the kernels also where ranks share a GPU. The kernels wait for each other, so the GPU must run them at the "
     "same time, as under MPS. Otherwise communicators whose ranks share a GPU are staged through host memory"},
    {"multicast", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(multicast), 1, 0, 1, 0, "",
     "Allow NVLink multicast (NVLS) objects. NCCL_NVLS_ENABLE=0, NVSHMEM_DISABLE_NVLS=1 or "
     "TORCH_SYMM_MEM_DISABLE_MULTICAST=1 in the environment forbid them and override this parameter"},
    {"zero_copy", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(zero_copy), 1, 0, 1, 0, "",
     "Move large messages directly between user buffers where peers can map them (NVIDIA GPUs: memory of cudaMalloc, "
     "and of cuMemCreate with a file descriptor; not of cudaMallocAsync). All other messages go through the "
     "symmetric heap"},
    {"linger", MCA_BASE_VAR_TYPE_INT, LEVEL_EVERY_CALL, FIELD(linger), -1, -1, 1000000, 0, "microseconds",
     "Time that the resident kernel of a small blocking collective (one thread block) stays on the GPU after a call. "
     "The next such call needs no launch. cudaDeviceSynchronize and cudaFree wait for the kernel for up to that "
     "time. 0: no resident kernels; -1: use the tuning table, and pause where resident kernels have not paid off"},
    {"graph", MCA_BASE_VAR_TYPE_BOOL, LEVEL_EVERY_CALL, FIELD(graph), 1, 0, 1, 0, "",
     "Launch kernels by a graph (NVIDIA GPUs: a CUDA graph), which costs less than a plain launch. Each persistent "
     "collective has its own graph; other calls use one graph per kernel in flight"},
    {"zero_copy_min", MCA_BASE_VAR_TYPE_UNSIGNED_INT, LEVEL_EVERY_CALL, FIELD(zero_copy_min), 0, 0, 1024 * MIB, 0, "bytes",
     "Smallest message that moves directly between user buffers. 0: use the tuning table"},
    {"reg_limit", MCA_BASE_VAR_TYPE_INT, 4, FIELD(reg_limit), 64, 0, 64, 0, "buffers",
     "Maximum number of user allocations that peers map at a time, per process. A further one replaces the least "
     "recently used"},
    {"reproducible", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(reproducible), 0, 0, 1, 0, "",
     "Select only algorithms whose result bits depend on nothing but the inputs and the number of ranks. How a "
     "message is cut, the number of blocks, placement and timing have no effect on the result"},
    {"summary", MCA_BASE_VAR_TYPE_BOOL, 2, FIELD(summary), 0, 0, 1, 0, "",
     "Print at MPI_Finalize, from rank 0 to stderr, how the calls of each collective were served"},
    {"verbose", MCA_BASE_VAR_TYPE_INT, 2, FIELD(verbose), 0, 0, 100, 0, "",
     "Verbosity on stderr. 1: decisions that are made once, and why a feature is not used; 5: also one line per "
     "communicator. The higher of this parameter and coll_base_verbose applies"},
    {"sim_host", MCA_BASE_VAR_TYPE_BOOL, 7, FIELD(sim_host), 0, 0, 1, 0, "",
     "Simulator: treat every buffer as GPU memory, so that any MPI program runs the kernels"},
    {"sim_gpus", MCA_BASE_VAR_TYPE_INT, 7, FIELD(sim_gpus), 0, 0, 64, 0, "GPUs",
     "Simulator: number of GPUs per host, assigned to the processes by local rank. 0: one GPU per process"},
    {"epoch_first", MCA_BASE_VAR_TYPE_UNSIGNED_INT, 9, FIELD(epoch_first), 1, 1, GPUSYM_EPOCH_MAX, 0, "epochs",
     "First epoch of a communicator's flags. Tests use it to make the counter wrap around"},
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

/* The text that the user wrote for a registered parameter, accepted or not; NULL: the parameter has its default.  Open MPI keeps
 * only its own reading: 1 of "1x", 0 of "abc".  Valid until the environment changes. */
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

/* Whether the text is a value that the parameter may have.  Words for booleans were checked by Open MPI. */
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

/* Reports a value out of range, and that the default is used instead. */
static void bad_value(const char *name, const char *value, const char *allowed, const char *fallback)
{
    char full[64], used[64];

    snprintf(full, sizeof(full), "coll_gpusym_%s", name);
    snprintf(used, sizeof(used), "the default, %s", fallback);
    coll_gpusym_help("bad-param", full, value, allowed, used);
}

/* Open MPI itself refuses text that the type or the enumerator has no value for, in a message of its own; the field keeps its
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

/* Whether the text is the name or the number of a choice.  Open MPI truncates numbers to an int, and reads no text as 0. */
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

/* Registers a parameter with enumerated values.  choices ends with a NULL string; the first is the default. */
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
                           "GPU memory to serve. auto: NVIDIA GPUs if there are any; cuda: NVIDIA GPUs, and a "
                           "message if there are none; sim: the simulator, which needs no GPU; none: the component "
                           "is not used");
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
                             "Algorithm of %s on GPU memory. auto: use the tuning table; staged: through host "
                             "memory, by the other components",
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

/* The algorithm of a collective without kernels stays auto. */
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
                       "Components to adopt when the list of coll components names only gpusym: all, none, a "
                       "comma-separated list, or ^ and a comma-separated list of components to exclude. When the "
                       "list names other components too, none is adopted unless this parameter is set",
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
                        "Simulator: faults to inject, as a comma-separated list of WHAT:N[@RANK]. The N-th (from 1) "
                        "alloc, import, export, bind, launch, graph or hostalloc fails; hang: the N-th launch never "
                        "ends; doorbell: the N-th command to a resident kernel arrives too late. @RANK limits the "
                        "fault to one rank",
                        MCA_BASE_VAR_TYPE_STRING, NULL, 9, FIELD(sim_fail));
}

static int register_sim_links(void)
{
    COMPONENT->sim_links = "";
    return var_register("sim_links",
                        "Simulator: links between GPUs, as a comma-separated list of A-B:CLASS. A GPU has the number "
                        "of the local rank that it is assigned to. CLASS 0: neither GPU reaches the other; 1: across "
                        "NUMA nodes; 2: within a NUMA node; 3: through one PCI switch; 3 + n: n NVLinks. Other pairs "
                        "have one NVLink",
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
