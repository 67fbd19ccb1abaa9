/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A tuner plug-in that answers what TEST_TUNER says, and writes a line to stderr for each call of its functions:
 *
 *     ALGORITHM[:BLOCKS[:THREADS]]   for all-reduces; -: no algorithm
 *     error                          choose fails
 *     init                           init fails
 *     version, nameless              a plug-in of another version; one without a name
 *     named NAME                     one of another name
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As the header declares it, it cannot be changed. */
#define gpusym_tuner gpusym_tuner_const
#include "tuning/gpusym_tuner.h"
#undef gpusym_tuner

static const char *said(void)
{
    const char *text = getenv("TEST_TUNER");
    return NULL != text ? text : "-";
}

extern gpusym_tuner_t gpusym_tuner;

static int init(const gpusym_tuner_comm_t *comm, void **context)
{
    fprintf(stderr, "tuner: init %s: %u ranks, %s, %u multiprocessors, up to %u blocks\n", comm->name, comm->ranks,
            comm->gpu, comm->multiprocessors, comm->max_blocks);
    *context = &gpusym_tuner;
    return 0 == strcmp(said(), "init") ? 7 : 0;
}

static int choose(void *context, const gpusym_tuner_call_t *call, gpusym_tuner_choice_t *choice)
{
    static char name[64];
    unsigned n = 0, blocks = 0, threads = 0;

    while (NULL != call->algorithms[n]) {
        n++;
    }
    fprintf(stderr, "tuner: choose %s, %llu to %llu bytes of %s, %s%s\n", call->collective,
            (unsigned long long) call->bytes_min, (unsigned long long) call->bytes_max, call->type,
            NULL != call->op ? call->op : "no operation", 0 == n || context != &gpusym_tuner ? ": wrong" : "");
    if (0 == strcmp(said(), "error")) {
        return 3;
    }
    if (0 == strcmp(call->collective, "allreduce")) {
        (void) sscanf(said(), "%63[^:]:%u:%u", name, &blocks, &threads);
        choice->algorithm = 0 != strcmp(name, "-") ? name : NULL;
        choice->blocks = blocks;
        choice->threads = threads;
    }
    return 0;
}

static void finalize(void *context)
{
    fprintf(stderr, "tuner: finalize%s\n", context != &gpusym_tuner ? ": wrong" : "");
}

gpusym_tuner_t gpusym_tuner = {
    .version = GPUSYM_TUNER_VERSION, .name = "test", .init = init, .choose = choose, .finalize = finalize};

__attribute__((constructor)) static void start(void)
{
    if (0 == strcmp(said(), "version")) {
        gpusym_tuner.version = 99;
    }
    if (0 == strcmp(said(), "nameless")) {
        gpusym_tuner.name = NULL;
    }
    if (0 == strncmp(said(), "named ", 6)) {
        gpusym_tuner.name = said() + 6;
    }
}
