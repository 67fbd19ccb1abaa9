/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Events for Chrome's trace viewer and Perfetto: see print.h. A process for each rank, with a track of its calls and
 * one of its GPU; nonblocking calls, which may overlap, have asynchronous tracks. Arrows lead from the rank that came
 * last to those that waited for it.
 */
#include "info/trace/print.h"

#include <inttypes.h>
#include <string.h>

#include "mca/common/gpusym/json.h"

enum { CALLS = 0, GPU = 1 }; /* tracks of a rank */

/* Shorter waits have no arrow. ns. */
#define ARROW_NS 1000

static struct {
    FILE *out;
    bool any;
    int64_t begin;
} to;

static void put_text(const char *text)
{
    char quoted[GPUSYM_JSON_ROOM(TRACE_TEXT + 32)];
    gpusym_json_text(text, quoted, sizeof quoted);
    fputs(quoted, to.out);
}

/* A number of ns as us. */
static void put_us(const char *name, int64_t ns)
{
    fprintf(to.out, ",\"%s\":%" PRId64 ".%03" PRId64, name, ns / 1000, ns % 1000);
}

/* Begins an event; the caller ends it by "}". */
static void begin_event(const char *phase, const char *name, int rank, int track)
{
    fprintf(to.out, "%s{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"name\":", to.any ? ",\n" : "", phase, rank, track);
    to.any = true;
    put_text(name);
}

static void put_name(const char *what, int rank, int track, const char *name)
{
    begin_event("M", what, rank, track);
    fputs(",\"args\":{\"name\":", to.out);
    put_text(name);
    fputs("}}", to.out);
}

static void put_rank(const trace_file_t *f)
{
    char name[512];
    snprintf(name, sizeof name, "rank %d (%s)", f->rank, f->host);
    put_name("process_name", f->rank, CALLS, name);
    put_name("thread_name", f->rank, CALLS, "calls");
    snprintf(name, sizeof name, "GPU%s%s", '\0' != f->gpu[0] ? " " : "", f->gpu);
    put_name("thread_name", f->rank, GPU, name);
    begin_event("M", "process_sort_index", f->rank, CALLS);
    fprintf(to.out, ",\"args\":{\"sort_index\":%d}}", f->rank);
}

static void put_arguments(const trace_call_t *c)
{
    const struct {
        const char *name, *text;
    } texts[] = {{"communicator", c->comm},   {"form", c->form}, {"way", c->way},
                 {"algorithm", c->algorithm}, {"by", c->by},     {"staged", c->reason}};
    fprintf(to.out, ",\"args\":{\"bytes\":%" PRIu64 ",\"call\":%" PRIu64, c->bytes, c->seq);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if ('\0' != texts[i].text[0]) {
            fprintf(to.out, ",\"%s\":", texts[i].name);
            put_text(texts[i].text);
        }
    }
    if (0 != c->blocks) {
        fprintf(to.out, ",\"blocks\":%u", c->blocks);
    }
    if (c->zero_copy) {
        fputs(",\"zero copy\":true", to.out);
    }
    if (c->last >= 0) {
        fprintf(to.out, ",\"last rank\":%d", c->last);
    }
    if (0 != c->error) {
        fprintf(to.out, ",\"error\":%d", c->error);
    }
    fputc('}', to.out);
}

/* What lasts from one time to another. of: with this call's arguments, or NULL. */
static void put_span(const char *name, int rank, int track, int64_t from, int64_t until, const trace_call_t *of)
{
    if (0 == from || until <= from) {
        return;
    }
    begin_event("X", name, rank, track);
    put_us("ts", from - to.begin);
    put_us("dur", until - from);
    if (NULL != of) {
        put_arguments(of);
    }
    fputc('}', to.out);
}

/* The same of a nonblocking call: on a track of its own. */
static void put_async(const char *name, int rank, size_t id, const trace_call_t *c)
{
    for (int end = 0; end < 2; end++) {
        begin_event(end ? "e" : "b", name, rank, CALLS);
        fprintf(to.out, ",\"cat\":\"nonblocking\",\"id\":%zu", id);
        put_us("ts", (end ? trace_end_of(c) : c->at.entered) - to.begin);
        if (!end) {
            put_arguments(c);
        }
        fputc('}', to.out);
    }
}

static void put_call(const trace_t *t, size_t i)
{
    const trace_call_t *c = &t->call[i];
    const int rank = t->file[c->file].rank;
    const bool has_kernel = '\0' != c->algorithm[0];
    const int64_t end = trace_end_of(c), work = 0 != c->at.gpu_begin ? c->at.gpu_begin : c->at.launched;
    char name[64];
    trace_mpi_name(c->coll, name, sizeof name);
    if (end <= c->at.entered) {
        return;
    }
    if (0 == strcmp(c->form, "blocking")) {
        put_span(name, rank, CALLS, c->at.entered, end, c);
        put_span("wait for ranks", rank, CALLS, c->at.posted, c->at.there, NULL);
    } else {
        put_async(name, rank, i, c);
    }
    put_span(name, rank, GPU, has_kernel ? work : 0, 0 != c->at.gpu_end ? c->at.gpu_end : end, c);
}

/* From the rank that came last to one that waited for it. */
static void put_arrow(const trace_t *t, size_t id, const trace_call_t *last, const trace_call_t *waits)
{
    for (int end = 0; end < 2; end++) {
        const trace_call_t *c = end ? waits : last;
        begin_event(end ? "f" : "s", "last rank", t->file[c->file].rank, CALLS);
        fprintf(to.out, ",\"cat\":\"wait\",\"id\":%zu%s", id, end ? ",\"bp\":\"e\"" : "");
        put_us("ts", (end ? c->at.there : c->at.posted) - to.begin);
        fputc('}', to.out);
    }
}

static void put_arrows(const trace_t *t, const trace_group_t *g)
{
    const trace_call_t *last = &t->call[g->first + g->last];
    for (size_t i = g->first; i < g->first + g->n && g->whole; i++) {
        const trace_call_t *c = &t->call[i];
        if (c != last && 0 != last->at.posted && 0 != c->at.posted && 0 != c->at.there &&
            g->came - c->at.posted >= ARROW_NS) {
            put_arrow(t, i, last, c);
        }
    }
}

void trace_print_events(const trace_t *t, FILE *out)
{
    to.out = out;
    to.any = false;
    to.begin = t->begin;
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", out);
    for (uint32_t i = 0; i < t->files; i++) {
        put_rank(&t->file[i]);
    }
    for (size_t i = 0; i < t->calls; i++) {
        put_call(t, i);
    }
    for (size_t i = 0; i < t->groups; i++) {
        put_arrows(t, &t->group[i]);
    }
    fputs("\n]}\n", out);
}
