/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The summary of a job: see coll_gpusym_summary.h.
 */
#include "mca/coll/gpusym/coll_gpusym_summary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/coll/gpusym/coll_gpusym.h"
#include "mca/coll/gpusym/conf/counters.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/totals.h"
#include "mca/coll/gpusym/trace/record.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/ompi/attributes.h"
#include "mca/pml/gpusym/counters.h"
#include "mca/common/gpusym/gpus.h"

#include "config.h"

/* The counters of collectives, then those of messages. */
#define WORDS (COLL_GPUSYM_COUNTERS_WORDS + PML_GPUSYM_COUNTERS)

static int key = MPI_KEYVAL_INVALID, trace_key = MPI_KEYVAL_INVALID;

/* Name and place of the GPU that this process has used; "": none. */
static void find_gpu(char *text, size_t size)
{
    const gpusym_heap_t *heap = gpusym_heap();
    gpusym_gpu_t *gpu = NULL != heap ? gpusym_heap_gpu(heap) : gpusym_p2p_gpu_last();
    gpusym_gpu_info_t info;

    text[0] = '\0';
    if (NULL != gpu) {
        gpusym_current.dev->gpu_info(gpu, &info);
        snprintf(text, size, "%s, %s", info.name, info.where);
    }
}

/* "4 x NVIDIA H200", or why there is none. */
static void describe_gpus(const coll_gpusym_totals_t *t, char *text, size_t size)
{
    const char *why = "coll_gpusym_device is none";

    if (t->gpus > 0) {
        snprintf(text, size, "%u x %s%s", t->gpus, t->gpu, t->gpus_differ ? " and others" : "");
    } else if (GPUSYM_DEVICE_NONE == gpusym_params.device || !gpusym_device_there(&why)) {
        snprintf(text, size, "no device: %s", why);
    } else {
        snprintf(text, size, "no GPU was used");
    }
}

static void print_head(const coll_gpusym_totals_t *t)
{
    char gpus[256], missing[64] = "";

    describe_gpus(t, gpus, sizeof(gpus));
    if (t->answered < t->ranks) {
        snprintf(missing, sizeof(missing), ", of which %u are counted", t->answered);
    }
    fflush(stderr);
    fprintf(stderr, "gpusym: " GPUSYM_VERSION ", Open MPI %s, %u rank%s on %u host%s%s, %s\n", opal_version_string,
            t->ranks, 1 == t->ranks ? "" : "s", t->hosts, 1 == t->hosts ? "" : "s", missing, gpus);
    fflush(stderr);
}

static void print_totals(const coll_gpusym_totals_t *t)
{
    print_head(t);
    coll_gpusym_counters_print((const coll_gpusym_counters_t *) t->sum, (const coll_gpusym_counters_t *) t->least,
                               (const coll_gpusym_counters_t *) t->most);
    pml_gpusym_counters_print(t->sum + COLL_GPUSYM_COUNTERS_WORDS);
}

static int summarize(MPI_Comm comm, int keyval, void *attribute, void *state)
{
    char gpu[COLL_GPUSYM_GPU_TEXT];
    unsigned long long *value = malloc(WORDS * sizeof(*value));
    coll_gpusym_totals_t totals;

    (void) comm;
    (void) keyval;
    (void) attribute;
    (void) state;
    key = MPI_KEYVAL_INVALID; /* of the next MPI_Init */
    if (NULL == value) {
        gpusym_log_no_memory("the summary");
        return MPI_SUCCESS;
    }
    memcpy(value, coll_gpusym_counters, sizeof(coll_gpusym_counters));
    memcpy(value + COLL_GPUSYM_COUNTERS_WORDS, pml_gpusym_counters, sizeof(pml_gpusym_counters));
    find_gpu(gpu, sizeof(gpu));
    if (coll_gpusym_totals_gather(gpu, value, WORDS, &totals)) {
        print_totals(&totals);
        coll_gpusym_totals_free(&totals);
    }
    free(value);
    return MPI_SUCCESS;
}

/* A program that uses MPI_T may keep the component open for ever. */
static int end_trace(MPI_Comm comm, int keyval, void *attribute, void *state)
{
    (void) comm;
    (void) keyval;
    (void) attribute;
    (void) state;
    trace_key = MPI_KEYVAL_INVALID; /* of the next MPI_Init */
    coll_gpusym_trace_flush();
    return MPI_SUCCESS;
}

void coll_gpusym_summary_plan(void)
{
    if (coll_gpusym_trace_opened() && !gpusym_attribute_at_finalize(end_trace, &trace_key)) {
        GPUSYM_LOG(2, "the trace is written when the component is closed: MPI_COMM_SELF accepts no attribute");
    }
    if (coll_gpusym_params.summary && !gpusym_attribute_at_finalize(summarize, &key)) {
        GPUSYM_LOG(2, "no summary: MPI_COMM_SELF accepts no attribute");
    }
}
