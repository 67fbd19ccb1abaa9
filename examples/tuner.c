/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A tuner plug-in: rings for long all-reduces, few blocks for all-gathers, and the tuning table for all else. Build it
 * as a shared library, and name it:
 *
 *     cc -shared -fPIC -o libtuner.so tuner.c
 *     mpirun --mca coll gpusym --mca coll_gpusym_tuner ./libtuner.so ./program
 *
 * gpusym_tuner.h says what the functions get, and what they may answer.
 */
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CONFIG_H
#include "tuning/gpusym_tuner.h"
#else
#include <gpusym_tuner.h>
#endif

/* What the plug-in knows of a communicator. */
typedef struct {
    uint64_t ring_min; /* bytes of an all-reduce from which on a ring serves it */
    uint32_t few_blocks;
} known_t;

static int init(const gpusym_tuner_comm_t *comm, void **context)
{
    known_t *known = malloc(sizeof *known);

    if (NULL == known) {
        return 1;
    }
    known->ring_min = comm->nvlink ? 64u << 20 : 1u << 20;
    known->few_blocks = comm->multiprocessors < 16 ? 1 : 8;
    *context = known;
    return 0;
}

static int choose(void *context, const gpusym_tuner_call_t *call, gpusym_tuner_choice_t *choice)
{
    const known_t *known = context;

    if (0 == strcmp(call->collective, "allreduce") && call->bytes_min >= known->ring_min) {
        choice->algorithm = "ring_simple";
    } else if (0 == strcmp(call->collective, "allgather")) {
        choice->blocks = known->few_blocks;
    }
    return 0;
}

const gpusym_tuner_t gpusym_tuner = {
    .version = GPUSYM_TUNER_VERSION, .name = "example", .init = init, .choose = choose, .finalize = free};
