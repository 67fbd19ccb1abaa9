/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The MCA parameters: one table gives each its name, level, unit, range, default and meaning.  The
 * help text, the check of the range and the message about a bad value follow from it;
 * docs/parameters.md says more about some.
 */
#include "mca/coll/gpusym/conf/params.h"

#include "mca/coll/gpusym/args/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opal/mca/base/mca_base_var.h"
#include "mca/common/ompi/face.h"
#include "mca/common/ompi/vars.h"

#define MIB (1024.0 * 1024.0)
#define FIELD(name) (&coll_gpusym_params.name)

coll_gpusym_params_t coll_gpusym_params;

static const gpusym_var_group_t group = {.names = {"ompi", "coll", "gpusym"}, .flags = MCA_BASE_VAR_FLAG_DWG};

static const gpusym_var_number_t numbers[] = {
    {"priority", MCA_BASE_VAR_TYPE_INT, 6, FIELD(priority), 90, -1, 1000, 0, "",
     "Priority of this component among the coll components. The component with the highest priority serves a "
     "collective. -1 disables this component"},
    {"oneshot_max", MCA_BASE_VAR_TYPE_UNSIGNED_INT, GPUSYM_VAR_EVERY_CALL, FIELD(oneshot_max), 0, 0, 16 * MIB, 0,
     "bytes",
     "Largest message for which the algorithm agxll_r (one-shot: every rank sends its input to every rank) is "
     "selected. 0: use the tuning table"},
    {"blocks", MCA_BASE_VAR_TYPE_INT, GPUSYM_VAR_EVERY_CALL, FIELD(blocks), 0, 0, GPUSYM_BLOCKS_MAX, 0, "blocks",
     "Thread blocks per kernel launch. 0: use the tuning table"},
    {"threads", MCA_BASE_VAR_TYPE_INT, GPUSYM_VAR_EVERY_CALL, FIELD(threads), 0, 0, GPUSYM_THREADS_MAX, 32, "threads",
     "Threads per block. 0: use the tuning table"},
    {"chunk", MCA_BASE_VAR_TYPE_UNSIGNED_INT, GPUSYM_VAR_EVERY_CALL, FIELD(chunk), 0, 0, 64 * MIB, 0, "bytes",
     "Bytes of the message that a block of a two-shot kernel processes in one step. 0: use the tuning table"},
    {"timeout", MCA_BASE_VAR_TYPE_DOUBLE, 3, FIELD(timeout), 60, 0, 1000000, 0, "seconds",
     "Maximum time that a GPU waits inside a kernel for another GPU, and that another host may be silent. When it "
     "expires, the collective ends with an error. 0: no limit"},
    {"timeout_host", MCA_BASE_VAR_TYPE_DOUBLE, 3, FIELD(timeout_host), 0, 0, 1000000, 0, "seconds",
     "Maximum time that a collective waits for ranks that have not called it, or a nonblocking one for ranks that have "
     "not begun it because they are outside MPI. When it expires, the collective ends "
     "with an error. 0: no limit"},
    {"share_gpu", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(share_gpu), 0, 0, 1, 0, "",
     "Ignored. If ranks share a GPU, one of them runs the kernels for all of them"},
    {"zero_copy", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(zero_copy), 1, 0, 1, 0, "",
     "Move large messages directly between user buffers where peers can map them (NVIDIA GPUs: memory of cudaMalloc, "
     "and of cuMemCreate with a file descriptor; not of cudaMallocAsync). All other messages go through the "
     "symmetric heap"},
    {"linger", MCA_BASE_VAR_TYPE_INT, GPUSYM_VAR_EVERY_CALL, FIELD(linger), -1, -1, 1000000, 0, "microseconds",
     "Time that the resident kernel of a small collective (one thread block) stays on the GPU after a call; between "
     "islands, that of its copies. The next such call needs no launch. cudaDeviceSynchronize and cudaFree wait for the "
     "kernel for up to that "
     "time. 0: no resident kernels; -1: use the tuning table, and pause resident kernels while they save no time"},
    {"resident_max", MCA_BASE_VAR_TYPE_INT, GPUSYM_VAR_EVERY_CALL, FIELD(resident_max), -1, -1, 1024 * MIB, 0, "bytes",
     "Largest message, or block from one rank to another, that a resident kernel serves. 0: none; -1: use the rules "
     "and "
     "the tuning table"},
    {"graph", MCA_BASE_VAR_TYPE_BOOL, GPUSYM_VAR_EVERY_CALL, FIELD(graph), 1, 0, 1, 0, "",
     "Launch kernels as graphs (NVIDIA GPUs: CUDA graphs), which takes less time than a plain launch. Each persistent "
     "collective has its own graph; other calls use one graph per kernel in flight"},
    {"zero_copy_min", MCA_BASE_VAR_TYPE_UNSIGNED_INT, GPUSYM_VAR_EVERY_CALL, FIELD(zero_copy_min), 0, 0, 1024 * MIB, 0,
     "bytes", "Smallest message that moves directly between user buffers. 0: use the tuning table"},
    {"piece", MCA_BASE_VAR_TYPE_UNSIGNED_INT, GPUSYM_VAR_EVERY_CALL, FIELD(piece), 512 * 1024, 0, 1024 * MIB, 0,
     "bytes",
     "Size of the segments in which a staged reduction (user-defined operations) goes through host memory: the other "
     "components reduce one segment while the GPU copies others. 0: do not divide it"},
    {"node_size", MCA_BASE_VAR_TYPE_INT, 6, FIELD(node_size), 0, 0, GPUSYM_TEAM_MAX, 0, "ranks",
     "Maximum number of ranks in an island. The ranks of a communicator on one host are divided into islands of that "
     "size, which are treated as separate hosts. 0: divide them only if there are more than kernels support, evenly"},
    {"net_size", MCA_BASE_VAR_TYPE_UNSIGNED_INT, 4, FIELD(net_size), 32 * MIB, MIB, 1024 * MIB, 0, "bytes",
     "Host memory of a process for messages between islands. It is pinned at the first call on GPU memory in a "
     "communicator of several islands. Messages are sent in pieces of 1/256 of it, but at least 16 KiB and at most "
     "512 KiB; along rings in pieces of twice that, up to 512 KiB. Communicators for which less memory is left have "
     "shorter "
     "pieces, down to 4 KiB (unless coll_gpusym_reproducible); those for which it has no room are staged"},
    {"reproducible", MCA_BASE_VAR_TYPE_BOOL, 3, FIELD(reproducible), 0, 0, 1, 0, "",
     "Select only algorithms whose result bits depend on nothing but the inputs and the number of ranks. Chunk size, "
     "number of blocks, placement and timing do not affect the result"},
    {"summary", MCA_BASE_VAR_TYPE_BOOL, 2, FIELD(summary), 0, 0, 1, 0, "",
     "Print at MPI_Finalize, from rank 0 to stderr, how the collectives and messages of all ranks were served"},
    {"trace_calls", MCA_BASE_VAR_TYPE_INT, GPUSYM_VAR_EVERY_CALL, FIELD(trace_calls), 1, 0, 1, 0, "",
     "Whether calls are recorded in the file that coll_gpusym_trace names. A program that sets it while it runs, by "
     "MPI_T_cvar_write, has a part of its calls recorded"},
    {"metrics_interval", MCA_BASE_VAR_TYPE_DOUBLE, 2, FIELD(metrics_interval), 10, 0, 1000000, 0, "seconds",
     "Time between two writes of the file that coll_gpusym_metrics names, at least 0.1. 0: write it only at the end"},
    {"epoch_first", MCA_BASE_VAR_TYPE_UNSIGNED_INT, 9, FIELD(epoch_first), 1, 1, GPUSYM_EPOCH_MAX, 0, "epochs",
     "First epoch of a communicator's flags. Tests use it to make the counter wrap around"},
};

/* ---- algorithms ---- */

/* Gets the values that a collective's algorithm may have, `first` before the others, and a NULL behind them. */
static void list_choices(unsigned coll, int first, mca_base_var_enum_value_t choices[GPUSYM_ALG_COUNT + 3])
{
    unsigned n = 0;

    choices[n++] = (mca_base_var_enum_value_t){COLL_GPUSYM_ALG_AUTO, "auto"};
    choices[n++] = (mca_base_var_enum_value_t){COLL_GPUSYM_ALG_STAGED, "staged"};
    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; a++) {
        if (coll_gpusym_algorithm_is_of(a, coll)) {
            choices[n++] = (mca_base_var_enum_value_t){(int) a, gpusym_algorithm_name(a)};
        }
    }
    choices[n] = (mca_base_var_enum_value_t){0, NULL};
    for (unsigned i = 1; i < n; i++) {
        if (first == choices[i].value) {
            const mca_base_var_enum_value_t chosen = choices[i];
            choices[i] = choices[0];
            choices[0] = chosen;
        }
    }
}

/* The name of a parameter that is not documented: coll_gpusym_algorithm has its value too. It may be written between
 * calls, by MPI_T, on all ranks alike. */
static int register_algorithm(unsigned coll)
{
    static const gpusym_var_group_t unseen = {.names = {"ompi", "coll", "gpusym"},
                                              .flags = MCA_BASE_VAR_FLAG_DWG | MCA_BASE_VAR_FLAG_INTERNAL};
    mca_base_var_enum_value_t choices[GPUSYM_ALG_COUNT + 3];
    char name[64];

    list_choices(coll, coll_gpusym_params.algorithm[coll], choices);
    snprintf(name, sizeof(name), "%s_algorithm", coll_gpusym_name(coll));
    return gpusym_var_choice(&unseen, name, GPUSYM_VAR_EVERY_CALL, choices, FIELD(algorithm[coll]),
                             "Of coll_gpusym_algorithm, for one collective. If both are set, this value applies");
}

bool coll_gpusym_algorithm_parse(unsigned coll, const char *text, int *algorithm, char *allowed, size_t size)
{
    mca_base_var_enum_value_t choices[GPUSYM_ALG_COUNT + 3];
    size_t used = (size_t) snprintf(allowed, size, "for %s:", coll_gpusym_name(coll));

    list_choices(coll, COLL_GPUSYM_ALG_AUTO, choices);
    for (unsigned i = 0; NULL != choices[i].string; i++) {
        if (0 == strcmp(text, choices[i].string)) {
            *algorithm = choices[i].value;
            return true;
        }
        used += (size_t) snprintf(allowed + (used < size ? used : size), used < size ? size - used : 0, "%s %s",
                                  0 == i ? "" : ",", choices[i].string);
    }
    return false;
}

const char *coll_gpusym_algorithm_text(int algorithm)
{
    return COLL_GPUSYM_ALG_AUTO == algorithm     ? "auto"
           : COLL_GPUSYM_ALG_STAGED == algorithm ? "staged"
                                                 : gpusym_algorithm_name((unsigned) algorithm);
}

/* Takes an item of the list. False: it is none; allowed: what is, where it names a collective. */
static bool take_item(const char *item, char *allowed, size_t size)
{
    const char *colon = strchr(item, ':');

    for (unsigned coll = 0; NULL != colon && coll < COLL_GPUSYM_NATIVES; coll++) {
        const size_t length = strlen(coll_gpusym_name(coll));
        if (length == (size_t) (colon - item) && 0 == strncmp(coll_gpusym_name(coll), item, length)) {
            return coll_gpusym_algorithm_parse(coll, colon + 1, &coll_gpusym_params.algorithm[coll], allowed, size);
        }
    }
    return false;
}

/* The algorithm of a collective without kernels is auto. */
static int register_algorithms(void)
{
    char item[64], allowed[1024];
    const char *list;
    int ret =
        gpusym_var_string(&group, "algorithm", 4, "", FIELD(algorithms),
                          "Algorithms of collectives on GPU memory: a comma-separated list of collective:"
                          "algorithm, such as allreduce:ring_ll,bcast:st. auto: use the tuning table; staged: "
                          "stage through host memory, by the other components. Those that are not named are auto");

    for (unsigned coll = 0; coll < COLL_GPUSYM_COLLS; coll++) {
        coll_gpusym_params.algorithm[coll] = COLL_GPUSYM_ALG_AUTO;
    }
    for (list = ret >= 0 && NULL != coll_gpusym_params.algorithms ? coll_gpusym_params.algorithms : "";
         gpusym_list_next(&list, item, sizeof(item));) {
        snprintf(allowed, sizeof(allowed), "collective:algorithm, such as allreduce:ring_ll");
        if (!take_item(item, allowed, sizeof(allowed))) {
            gpusym_var_refused("coll_gpusym_algorithm", item, allowed, "the other items of its list");
        }
    }
    for (unsigned coll = 0; ret >= 0 && coll < COLL_GPUSYM_NATIVES; coll++) {
        ret = register_algorithm(coll);
    }
    return ret;
}

/* ---- texts ---- */

/* Whether a text is a list of names, none of which is one of the words. */
static bool is_device_list(const char *text, const char *const *words)
{
    const char *list = text;
    char item[64];

    for (size_t i = 0; '\0' != text[i]; i++) {
        if ((unsigned char) text[i] <= ' ' ||
            (',' == text[i] && (0 == i || ',' == text[i + 1] || '\0' == text[i + 1]))) {
            return false;
        }
    }
    while (gpusym_list_next(&list, item, sizeof(item))) {
        for (unsigned i = 0; NULL != words[i]; i++) {
            if (0 == strcmp(item, words[i])) {
                return false;
            }
        }
    }
    return true;
}

static int register_net_devices(void)
{
    static const char *const words[] = {[COLL_GPUSYM_NET_AUTO] = "auto",
                                        [COLL_GPUSYM_NET_UCX] = "ucx",
                                        [COLL_GPUSYM_NET_NAMED] = "",
                                        [COLL_GPUSYM_NET_NONE] = "none",
                                        [COLL_GPUSYM_NET_NONE + 1] = NULL};
    const int ret = gpusym_var_string(
        &group, "net_devices", 4, words[COLL_GPUSYM_NET_AUTO], FIELD(net_devices),
        "Network devices for messages between islands. auto: the RDMA devices nearest to the GPU of the process, "
        "beside TCP by interfaces that lead to other hosts, unless UCX_NET_DEVICES is set; ucx: leave it to UCX; a "
        "comma-separated list of UCX device names; none: do not use the network, stage calls between islands");
    const char *text = NULL != coll_gpusym_params.net_devices ? coll_gpusym_params.net_devices : "";
    unsigned choice = COLL_GPUSYM_NET_AUTO;

    while ('\0' != *text && NULL != words[choice] && 0 != strcmp(text, words[choice])) {
        choice++;
    }
    if (NULL == words[choice]) {
        choice = is_device_list(text, words) ? COLL_GPUSYM_NET_NAMED : COLL_GPUSYM_NET_AUTO;
        if (COLL_GPUSYM_NET_AUTO == choice) {
            gpusym_var_refused("coll_gpusym_net_devices", text, "auto, ucx, none, or UCX device names: mlx5_0:1,eth0",
                               "the default, auto");
        }
    }
    coll_gpusym_params.net_choice = (coll_gpusym_net_t) choice;
    return ret;
}

static int register_rules(void)
{
    return gpusym_var_string(&group, "rules", GPUSYM_VAR_EVERY_CALL, "", FIELD(rules),
                             "Rules that select algorithms, blocks and threads in place of the tuning table, as "
                             "gpusym_tune writes them: a file, or a folder that has one for these GPUs and this number "
                             "of ranks (sm90-4.json). Read when a communicator is set up. Empty: the folder "
                             "share/gpusym/rules of the installation; none: no rules");
}

static int register_tuner(void)
{
    return gpusym_var_string(
        &group, "tuner", GPUSYM_VAR_EVERY_CALL, "", FIELD(tuner),
        "Tuner plug-in, a shared library that chooses algorithms in place of rules and the tuning "
        "table (gpusym_tuner.h): a path, or a name in the library path. Loaded when a communicator "
        "is set up. Empty: none");
}

static int register_adopt(void)
{
    mca_base_var_source_t source = MCA_BASE_VAR_SOURCE_DEFAULT;
    const int var =
        gpusym_var_string(&group, "adopt", 3, "all", FIELD(adopt),
                          "Components to adopt if the list of coll components names only gpusym: all, none, a "
                          "comma-separated list, or ^ and a comma-separated list of components to exclude. If the "
                          "list names other components too, none is adopted unless this parameter is set");

    if (var >= 0) {
        (void) mca_base_var_get_value(var, NULL, &source, NULL);
    }
    coll_gpusym_params.adopt_set = MCA_BASE_VAR_SOURCE_DEFAULT != source;
    return var;
}

static int register_trace(void)
{
    return gpusym_var_string(&group, "trace", 2, "", FIELD(trace),
                             "File to which each process writes one line of JSON for each of its collectives on GPU "
                             "memory. gpusym_trace reads these files. %r in the name is the rank, %h the host, %p the "
                             "process; without %r and %p, a dot and the rank are appended. Empty: no trace");
}

static int register_metrics(void)
{
    return gpusym_var_string(&group, "metrics", 2, "", FIELD(metrics),
                             "File to which each process writes its counters, and bytes and times of its collectives "
                             "on GPU memory, in Prometheus's text format, every coll_gpusym_metrics_interval seconds "
                             "and at the end. The name is as for coll_gpusym_trace. Empty: no metrics");
}

int coll_gpusym_params_register(void)
{
    int ret = gpusym_face_register();

    if (ret >= 0) {
        ret = register_algorithms();
    }
    if (ret >= 0) {
        ret = register_adopt();
    }
    if (ret >= 0) {
        ret = register_net_devices();
    }
    if (ret >= 0) {
        ret = register_trace();
    }
    if (ret >= 0) {
        ret = register_metrics();
    }
    if (ret >= 0) {
        ret = register_rules();
    }
    if (ret >= 0) {
        ret = register_tuner();
    }
    for (size_t i = 0; ret >= 0 && i < sizeof(numbers) / sizeof(numbers[0]); ++i) {
        ret = gpusym_var_number(&group, &numbers[i]);
    }
    coll_gpusym_params.notes = coll_gpusym_params.summary;
    return ret < 0 ? ret : OMPI_SUCCESS;
}
