/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Options, the device, the files: see job.h.
 */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/job.h"
#include "bench/memory.h"
#include "bench/timing.h"
#include "bench/variable.h"
#include "mca/common/gpusym/device/select.h"
#include "test/mpi/mem.h"

#include "config.h"

extern char **environ;

static char command_line[512];

size_t bench_number(const char *text, const char *usage)
{
    char *end;
    size_t n = strtoull(text, &end, 10);

    if (end == text || NULL == strchr("kmg", '\0' == *end ? 'k' : *end) || ('\0' != *end && '\0' != end[1])) {
        bench_refuse("%s is not a number\nusage: %s", text, usage);
    }
    return 'k' == *end ? n << 10 : 'm' == *end ? n << 20 : 'g' == *end ? n << 30 : n;
}

void bench_print_option(const char *name, const char *argument, const char *text)
{
    enum { MARGIN = 6, COLUMNS = 79 };
    int column = COLUMNS;

    printf("  --%s%s%s", name, '\0' == *argument ? "" : " ", argument);
    while ('\0' != *text) {
        const int word = (int) strcspn(text, " ");

        if (column + 1 + word > COLUMNS) {
            printf("\n%*s", MARGIN - 1, "");
            column = MARGIN - 1;
        }
        column += printf(" %.*s", word, text);
        text += word + (' ' == text[word]);
    }
    putchar('\n');
}

bool bench_common_option(bench_common_t *common, int c, char *value, const char *usage)
{
    switch (c) {
    case 'd':
        common->device = value;
        return true;
    case 'c':
        common->csv = value;
        return true;
    case 'j':
        common->json = value;
        return true;
    case 'm':
        common->min = bench_number(value, usage);
        return true;
    case 'M':
        common->max = bench_number(value, usage);
        return true;
    case 's':
        common->step = bench_number(value, usage);
        return true;
    case 'n':
        common->batches = (int) bench_number(value, usage);
        return true;
    default:
        return false;
    }
}

bool bench_common_good(const bench_common_t *common, size_t element)
{
    return common->min >= element && common->max >= common->min && 0 == common->min % element && common->step >= 2 &&
           common->max / element <= INT_MAX && common->batches >= BENCH_BATCHES_MIN &&
           common->batches <= BENCH_BATCHES_MAX;
}

int bench_cut(char *list, const char *items[BENCH_LIST_MAX], const char *usage)
{
    int n = 0;

    for (char *item = strtok(list, ","); NULL != item; item = strtok(NULL, ",")) {
        if (BENCH_LIST_MAX == n) {
            bench_refuse("more than %d items in a list", BENCH_LIST_MAX);
        }
        items[n++] = item;
    }
    if (0 == n) {
        bench_refuse("an empty list\nusage: %s", usage);
    }
    return n;
}

/* ---- the job ----------------------------------------------------------------------------------------------------- */

int bench_rank_on_host(void)
{
    MPI_Comm host;
    int number_there;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &number_there);
    MPI_Comm_free(&host);
    return number_there;
}

void bench_init(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench_ranks);
    opterr = 0 == bench_rank; /* of getopt: once */
    for (int i = 0; i < *argc; i++) {
        const char *slash = 0 == i ? strrchr((*argv)[0], '/') : NULL;
        size_t used = strlen(command_line);

        snprintf(command_line + used, sizeof(command_line) - used, "%s%s", 0 == i ? "" : " ",
                 NULL == slash ? (*argv)[i] : slash + 1);
    }
}

void bench_version(const char *program, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (0 == strcmp(argv[i], "--version")) {
            printf("%s (gpusym) " GPUSYM_VERSION "\n", program);
            exit(0);
        }
    }
}

const char *bench_device(void)
{
    int provided, choice = GPUSYM_DEVICE_AUTO;

    if (MPI_SUCCESS == MPI_T_init_thread(MPI_THREAD_SINGLE, &provided)) {
        choice = bench_variable_value("coll_gpusym_device", choice);
        MPI_T_finalize();
    }
    return GPUSYM_DEVICE_SIM == choice ? "sim" : GPUSYM_DEVICE_NONE == choice ? "host" : "cuda";
}

/* The driver's own line, "" without one. */
static void read_driver_version(char *text, size_t size)
{
    FILE *f = fopen("/proc/driver/nvidia/version", "r");

    text[0] = '\0';
    if (NULL != f) {
        if (NULL != fgets(text, (int) size, f)) {
            text[strcspn(text, "\n")] = '\0';
        }
        fclose(f);
    }
}

/* The parameters and switches that change what is measured, as mpirun and the shell gave them. */
static void describe_environment(void)
{
    static const char *const prefixes[] = {"OMPI_MCA_coll", "NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_"};
    char text[900] = "";
    size_t used = 0;

    for (char **e = environ; NULL != *e; e++) {
        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
            if (0 == strncmp(*e, prefixes[i], strlen(prefixes[i])) && used < sizeof(text)) {
                used += (size_t) snprintf(text + used, sizeof(text) - used, " %s", *e);
            }
        }
    }
    bench_comment("environment:%s", text);
}

/* What the figures were measured on: comment lines at the top. */
static void describe(const char *bench, const char *what)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING], gpu[100], driver[200];
    time_t now = time(NULL);
    int n, cuda;
    const char *commit = getenv("GPUSYM_COMMIT");

    read_driver_version(driver, sizeof(driver));
    bench_gpu(gpu, sizeof(gpu), &cuda);
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", gmtime(&now));
    bench_comment("%s: %s, %d ranks", bench, what, bench_ranks);
    bench_comment("date: %s", text);
    bench_comment("GPU of rank 0: %s", gpu);
    bench_comment("driver: %s, CUDA %d.%d", '\0' == *driver ? "-" : driver, cuda / 1000, cuda % 1000 / 10);
    MPI_Get_library_version(text, &n);
    text[strcspn(text, "\n")] = '\0';
    bench_comment("MPI: %s", text);
    bench_comment("command line: %s", command_line);
    describe_environment();
    bench_comment("commit: %s", NULL == commit || '\0' == *commit ? "-" : commit);
}

void bench_start(const char *bench, const bench_common_t *common, const char *what)
{
    bench_memory_open(common->device, bench_rank_on_host());
    bench_output_open(common->csv, common->json);
    MPI_Comm_dup(MPI_COMM_WORLD, &bench_world);
    describe(bench, what);
}

void bench_end(void)
{
    bench_output_close();
    MPI_Comm_free(&bench_world);
    bench_memory_close();
    MPI_Finalize();
}
