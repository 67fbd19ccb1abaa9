/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Metrics: see coll_gpusym_metrics.h.
 *
 * A thread of its own writes the files (trace/writer.h); calls know nothing of it.
 */
#include "mca/coll/gpusym/coll_gpusym_metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/counters.h"
#include "mca/coll/gpusym/conf/filename.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/trace/sums.h"
#include "mca/coll/gpusym/trace/writer.h"
#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/log.h"
#include "mca/common/ompi/attributes.h"
#include "mca/pml/gpusym/counters.h"

#include "config.h"

/* Seconds between two files, at least. */
#define SHORTEST 0.1

static struct {
    coll_gpusym_writer_t writer;
    bool failed; /* the thread's, until it has ended */
    char name[4096], temporary[4096 + 4];
    char who[1024]; /* the labels of every sample: rank="0",host="node1",pid="77" */
} metrics;

static int key = MPI_KEYVAL_INVALID;

/* ---- the text ---- */

static void put_head(FILE *f, const char *metric, const char *doc)
{
    fprintf(f, "# HELP gpusym_%s_total %s.\n# TYPE gpusym_%s_total counter\n", metric, doc, metric);
}

static bool was_called(unsigned coll)
{
    coll_gpusym_counter_t c;
    unsigned long long calls = 0;
    for (unsigned i = 0; coll_gpusym_counter(COLL_GPUSYM_COUNTERS_WAY, coll, i, &c); i++) {
        calls += coll_gpusym_counter_value(&coll_gpusym_counters[coll], &c);
    }
    return calls > 0;
}

/* Of the ways all, so that a rate begins at 0; of the others those that have been seen. */
static void put_counters(FILE *f, enum coll_gpusym_counter_family family, unsigned coll)
{
    const coll_gpusym_counter_family_t *of = &coll_gpusym_counter_families[family];
    coll_gpusym_counter_t c;
    for (unsigned i = 0; coll_gpusym_counter(family, coll, i, &c); i++) {
        const unsigned long long n = coll_gpusym_counter_value(&coll_gpusym_counters[coll], &c);
        if (n > 0 || COLL_GPUSYM_COUNTERS_WAY == family) {
            fprintf(f, "gpusym_%s_total{%s,collective=\"%s\",%s=\"%s\"} %llu\n", of->metric, metrics.who,
                    coll_gpusym_name(coll), of->label, c.name, n);
        }
    }
}

static void put_collectives(FILE *f)
{
    for (unsigned family = 0; family < COLL_GPUSYM_COUNTER_FAMILIES; family++) {
        put_head(f, coll_gpusym_counter_families[family].metric, coll_gpusym_counter_families[family].doc);
        for (unsigned coll = 0; coll < COLL_GPUSYM_COLLS; coll++) {
            if (was_called(coll)) {
                put_counters(f, family, coll);
            }
        }
    }
}

/* What the records add up to. Seconds without a decimal point of the program's language. */
static void put_sums(FILE *f)
{
    static const char *const forms[COLL_GPUSYM_FORMS] = {"blocking", "nonblocking", "persistent"};
    static const struct {
        const char *metric, *doc;
        size_t offset;
        bool time;
    } sums[] = {
        {"recorded_calls", "Calls on GPU memory that have ended, which bytes and seconds add up",
         offsetof(coll_gpusym_sum_t, calls), false},
        {"bytes", "Bytes of the larger buffer of these calls", offsetof(coll_gpusym_sum_t, bytes), false},
        {"seconds", "Time from the call of MPI until it returned or the request was complete",
         offsetof(coll_gpusym_sum_t, ns), true},
        {"waiting_seconds", "Time in which calls waited for other ranks to call MPI",
         offsetof(coll_gpusym_sum_t, waiting), true},
    };
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        put_head(f, sums[i].metric, sums[i].doc);
        for (unsigned k = 0; k < COLL_GPUSYM_COLLS * COLL_GPUSYM_FORMS; k++) {
            const coll_gpusym_sum_t *s = &coll_gpusym_sums[0][0] + k;
            const unsigned long long n =
                __atomic_load_n((const unsigned long long *) ((const char *) s + sums[i].offset), __ATOMIC_RELAXED);
            if (0 == __atomic_load_n(&s->calls, __ATOMIC_RELAXED)) {
                continue;
            }
            fprintf(f, "gpusym_%s_total{%s,collective=\"%s\",form=\"%s\"} ", sums[i].metric, metrics.who,
                    coll_gpusym_name(k / COLL_GPUSYM_FORMS), forms[k % COLL_GPUSYM_FORMS]);
            if (sums[i].time) {
                fprintf(f, "%llu.%09llu\n", n / 1000000000u, n % 1000000000u);
            } else {
                fprintf(f, "%llu\n", n);
            }
        }
    }
    put_head(f, "unrecorded_calls", "Calls on GPU memory that these leave out: too many others were in flight");
    fprintf(f, "gpusym_unrecorded_calls_total{%s} %llu\n", metrics.who, (unsigned long long) coll_gpusym_trace_lost());
}

static void put_messages(FILE *f, bool reasons)
{
    static const struct {
        const char *name;
        bool reason;
    } counters[] = {
#define PML_GPUSYM_COUNTER(ID, name, doc) {#name, false},
#define PML_GPUSYM_REASON(ID, name, doc) {#name, true},
#include "mca/pml/gpusym/counters.def"
    };
    for (unsigned i = 0; i < PML_GPUSYM_COUNTERS; i++) {
        if (reasons == counters[i].reason) {
            fprintf(f, "gpusym_%s_total{%s,%s=\"%s\"} %llu\n", reasons ? "messages_because" : "messages", metrics.who,
                    reasons ? "reason" : "way", counters[i].name + (reasons ? sizeof "because_" - 1 : 0),
                    __atomic_load_n(&pml_gpusym_counters[i], __ATOMIC_RELAXED));
        }
    }
}

static void put_all(FILE *f)
{
    fprintf(f,
            "# HELP gpusym_info Version of the library.\n# TYPE gpusym_info gauge\n"
            "gpusym_info{%s,version=\"" GPUSYM_VERSION "\"} 1\n",
            metrics.who);
    put_collectives(f);
    put_sums(f);
    put_head(f, "messages", "Point-to-point messages of GPU memory, by the way that they took");
    put_messages(f, false);
    put_head(f, "messages_because", "Point-to-point messages of GPU memory that did not go directly, by reason");
    put_messages(f, true);
}

/* ---- the file ---- */

/* False, with errno: it cannot be written; then FILE is as it was. */
static bool write_file(const char *text, size_t size)
{
    int fd;
    GPUSYM_RESTART(fd, open(metrics.temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (fd < 0) {
        return false;
    }
    bool ok = gpusym_write_all(fd, text, size);
    int error = errno;
    if (0 != close(fd) && ok) {
        ok = false;
        error = errno;
    }
    if (ok && 0 == rename(metrics.temporary, metrics.name)) {
        return true;
    }
    error = ok ? errno : error;
    (void) unlink(metrics.temporary);
    errno = error;
    return false;
}

/* False: it cannot be written, and a message says why. */
static bool write_metrics(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (NULL == f) {
        gpusym_log_no_memory("metrics");
        return false;
    }
    put_all(f);
    const bool whole = 0 == fclose(f);
    const bool ok = whole && write_file(text, size);
    if (!whole) {
        gpusym_log_no_memory("metrics");
    } else if (!ok) {
        coll_gpusym_help("metrics-write", coll_gpusym_params.world_rank, metrics.name, strerror(errno));
    }
    free(text);
    return ok;
}

/* The thread's. */
static bool write_again(void)
{
    metrics.failed = !write_metrics();
    if (metrics.failed) {
        coll_gpusym_sums_spare();
    }
    return !metrics.failed;
}

static bool start_writer(void)
{
    const double interval = coll_gpusym_params.metrics_interval, least = interval > SHORTEST ? interval : SHORTEST;
    metrics.failed = false;
    metrics.writer = (coll_gpusym_writer_t){
        .name = "gpusym-metrics", .write = write_again, .every_ns = 0 == interval ? 0 : (uint64_t) (least * 1e9)};
    return coll_gpusym_writer_start(&metrics.writer);
}

/* The names of the files, from the root: the program may go to another folder. False: there is no room for them. */
static bool name_files(const char *pattern, int rank, const char *host)
{
    char name[2048], folder[2000] = "";
    coll_gpusym_filename(name, sizeof name, pattern, rank, host);
    if ('/' != name[0] && NULL == getcwd(folder, sizeof folder)) {
        return false;
    }
    snprintf(metrics.name, sizeof metrics.name, "%s%s%s", folder, '/' != name[0] ? "/" : "", name);
    snprintf(metrics.temporary, sizeof metrics.temporary, "%s.tmp", metrics.name);
    return true;
}

/* A label's value: a backslash, a quote or a line's end in it would need one before. */
static void name_who(int rank, const char *host)
{
    char clean[256];
    size_t n = 0;
    for (; '\0' != host[n] && n < sizeof clean - 1; n++) {
        clean[n] = host[n] <= ' ' || '"' == host[n] || '\\' == host[n] || host[n] > '~' ? '?' : host[n];
    }
    clean[n] = '\0';
    snprintf(metrics.who, sizeof metrics.who, "rank=\"%d\",host=\"%s\",pid=\"%d\"", rank, clean, (int) getpid());
}

void coll_gpusym_metrics_start(int world_rank, const char *host)
{
    const char *pattern = coll_gpusym_params.metrics;
    if (NULL == pattern || '\0' == pattern[0] || 0 != metrics.writer.pid) {
        return;
    }
    if (!name_files(pattern, world_rank, host)) {
        coll_gpusym_help("metrics-write", world_rank, pattern, strerror(errno));
        return;
    }
    name_who(world_rank, host);
    if (!coll_gpusym_sums_want()) {
        return;
    }
    if (!write_metrics() || !start_writer()) {
        coll_gpusym_sums_spare();
    }
}

void coll_gpusym_metrics_stop(void)
{
    if (coll_gpusym_writer_stop(&metrics.writer) && !metrics.failed) {
        (void) write_metrics();
        coll_gpusym_sums_spare();
    }
}

/* A program that uses MPI_T may keep the component open for ever. */
static int stop_at_finalize(MPI_Comm comm, int keyval, void *attribute, void *state)
{
    (void) comm;
    (void) keyval;
    (void) attribute;
    (void) state;
    key = MPI_KEYVAL_INVALID; /* of the next MPI_Init */
    coll_gpusym_metrics_stop();
    return MPI_SUCCESS;
}

void coll_gpusym_metrics_plan(void)
{
    if (0 != metrics.writer.pid && !gpusym_attribute_at_finalize(stop_at_finalize, &key)) {
        GPUSYM_LOG(2, "the last metrics are written when the component is closed: MPI_COMM_SELF accepts no attribute");
    }
}
