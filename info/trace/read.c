/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The files of a trace: see read.h. Their lines are flat objects: names, and texts, whole numbers or true.
 */
#include "info/trace/read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 32 };

/* A member of an object. text NULL: a number. */
typedef struct {
    const char *name, *text;
    int64_t number;
} word_t;
typedef struct {
    word_t word[WORDS_MAX];
    unsigned n;
} line_t;

void trace_refuse(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fputs("gpusym_trace: ", stderr);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(2);
}

void *trace_memory(void *old, size_t n)
{
    void *p = realloc(old, 0 == n ? 1 : n);
    if (NULL == p) {
        trace_refuse("no memory for %zu bytes", n);
    }
    if (NULL == old) {
        memset(p, 0, n);
    }
    return p;
}

/* Cuts the string at *at, whose first quote it stands on, out of its line, in place. NULL: it is none. */
static char *cut_string(char **at)
{
    char *from = *at, *to = from;
    if ('"' != *from++) {
        return NULL;
    }
    char *text = to;
    for (; '"' != *from; from++) {
        from += '\\' == *from;
        if ('\0' == *from) {
            return NULL;
        }
        *to++ = *from;
    }
    *at = from + 1;
    *to = '\0';
    return text;
}

static bool cut_value(char **at, word_t *w)
{
    char *end;
    w->text = NULL;
    w->number = 1;
    if ('"' == **at) {
        w->text = cut_string(at);
        return NULL != w->text;
    }
    if (0 == strncmp(*at, "true", 4)) {
        *at += 4;
        return true;
    }
    errno = 0;
    w->number = strtoll(*at, &end, 10);
    const bool right = end != *at && 0 == errno;
    *at = end;
    return right;
}

/* Takes a line apart, in place. */
static bool cut_line(char *at, line_t *line)
{
    line->n = 0;
    if ('{' != *at) {
        return false;
    }
    do {
        word_t w;
        at++;
        w.name = cut_string(&at);
        if (line->n == WORDS_MAX || NULL == w.name || ':' != *at++ || !cut_value(&at, &w)) {
            return false;
        }
        line->word[line->n++] = w;
    } while (',' == *at);
    return '}' == at[0] && ('\n' == at[1] || '\0' == at[1]);
}

static const word_t *find_word(const line_t *line, const char *name)
{
    for (unsigned i = 0; i < line->n; i++) {
        if (0 == strcmp(name, line->word[i].name)) {
            return &line->word[i];
        }
    }
    return NULL;
}

static int64_t number_of(const line_t *line, const char *name, int64_t otherwise)
{
    const word_t *w = find_word(line, name);
    return NULL != w && NULL == w->text ? w->number : otherwise;
}

/* Bytes that a terminal or a viewer might take for more than text are replaced, as where traces are written. */
static void copy_text(const line_t *line, const char *name, char *to, size_t size)
{
    const word_t *w = find_word(line, name);
    snprintf(to, size, "%s", NULL != w && NULL != w->text ? w->text : "");
    for (; '\0' != *to; to++) {
        *to = *to < ' ' || *to > '~' ? '?' : *to;
    }
}
#define COPY(line, field, c) copy_text(line, #field, (c)->field, sizeof(c)->field)
#define TIME(line, field, c) (c)->at.field = number_of(line, #field, 0)

/* Whether all times that a line has are some. */
static bool has_times(const line_t *line)
{
    static const char *const host[] = {"monotonic", "entered", "posted", "there", "launched", "returned"};
    static const char *const day[] = {"realtime", "gpu_begin", "gpu_end"};
    bool good = true;
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++) {
        const int64_t time = number_of(line, host[i], 0);
        good = good && time >= 0 && time < TRACE_HOST_MAX;
    }
    for (size_t i = 0; i < sizeof day / sizeof day[0]; i++) {
        const int64_t time = number_of(line, day[i], 0);
        good = good && time >= 0 && time < TRACE_DAY_MAX;
    }
    return good;
}

/* ---- what is read ---- */

typedef struct {
    trace_comm_t *comm;
    size_t comms;
} reader_t;

static void take_call(trace_t *t, const reader_t *reader, const line_t *line)
{
    if (0 == (t->calls & (t->calls - 1))) {
        t->call = trace_memory(t->call, (0 == t->calls ? 1 : 2 * t->calls) * sizeof *t->call);
    }
    trace_call_t *c = &t->call[t->calls++];
    *c = (trace_call_t){.file = t->files - 1, .comm_rank = -1};
    c->last = (int) number_of(line, "last", -1);
    c->error = (int) number_of(line, "error", 0);
    c->blocks = (uint32_t) number_of(line, "blocks", 0);
    c->seq = (uint64_t) number_of(line, "seq", 0);
    c->bytes = (uint64_t) number_of(line, "bytes", 0);
    c->zero_copy = 0 != number_of(line, "zero_copy", 0);
    COPY(line, id, c);
    COPY(line, comm, c);
    COPY(line, coll, c);
    COPY(line, form, c);
    COPY(line, way, c);
    COPY(line, algorithm, c);
    COPY(line, by, c);
    COPY(line, reason, c);
    TIME(line, entered, c);
    TIME(line, posted, c);
    TIME(line, there, c);
    TIME(line, launched, c);
    TIME(line, gpu_begin, c);
    TIME(line, gpu_end, c);
    TIME(line, returned, c);
    for (size_t i = reader->comms; i > 0; i--) {
        const trace_comm_t *of = &reader->comm[i - 1];
        if (0 == strcmp(of->id, c->id)) {
            c->comm_rank = of->rank;
            c->comm_size = of->size;
            break;
        }
    }
    t->file[c->file].calls++;
}

static void take_comm(reader_t *reader, const line_t *line)
{
    reader->comm = trace_memory(reader->comm, (reader->comms + 1) * sizeof *reader->comm);
    trace_comm_t *c = &reader->comm[reader->comms++];
    COPY(line, id, c);
    c->rank = (int) number_of(line, "rank", -1);
    c->size = (int) number_of(line, "size", 0);
}

static void take_clocks(trace_file_t *f, const line_t *line, unsigned end)
{
    f->monotonic[end] = number_of(line, "monotonic", 0);
    f->realtime[end] = number_of(line, "realtime", 0);
}

static void take_line(trace_t *t, reader_t *reader, char *text)
{
    trace_file_t *f = &t->file[t->files - 1];
    line_t line;
    if (!cut_line(text, &line) || !has_times(&line)) {
        f->bad++; /* of a process that was killed, the last one */
    } else if (NULL != find_word(&line, "coll")) {
        take_call(t, reader, &line);
    } else if (NULL != find_word(&line, "comm")) {
        take_comm(reader, &line);
    } else if (NULL != find_word(&line, "gpu")) {
        COPY(&line, gpu, f);
    } else if (NULL != find_word(&line, "end")) {
        f->ended = true;
        f->lost = (uint64_t) number_of(&line, "lost", 0);
        take_clocks(f, &line, 1);
    } else {
        f->bad++;
    }
}

static void take_head(trace_file_t *f, char *text)
{
    line_t line;
    if (!cut_line(text, &line) || 1 != number_of(&line, "gpusym_trace", 0) || !has_times(&line)) {
        trace_refuse("%s: this is no file that coll_gpusym_trace of this version has written", f->path);
    }
    f->rank = (int) number_of(&line, "rank", -1);
    f->pid = (unsigned long) number_of(&line, "pid", 0);
    COPY(&line, host, f);
    take_clocks(f, &line, 0);
}

static void read_file(trace_t *t, const char *path)
{
    reader_t reader = {0};
    char *text = NULL;
    size_t room = 0;
    FILE *in = fopen(path, "r");
    if (NULL == in) {
        trace_refuse("%s: %s", path, strerror(errno));
    }
    trace_file_t *f = &t->file[t->files++];
    *f = (trace_file_t){.path = path};
    if (getline(&text, &room, in) < 0) {
        trace_refuse("%s: it is empty", path);
    }
    take_head(f, text);
    while (getline(&text, &room, in) >= 0) {
        take_line(t, &reader, text);
    }
    free(text);
    free(reader.comm);
    fclose(in);
}

static int by_rank(const void *a, const void *b)
{
    const trace_file_t *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) : strcmp(x->path, y->path);
}

void trace_read(trace_t *t, char **paths, int n)
{
    *t = (trace_t){.clock_error = -1};
    t->file = trace_memory(NULL, (size_t) n * sizeof *t->file);
    for (int i = 0; i < n; i++) {
        read_file(t, paths[i]);
    }
    /* By rank; calls name the place of their file. */
    uint32_t *place = trace_memory(NULL, (size_t) n * sizeof *place);
    for (uint32_t i = 0; i < t->files; i++) {
        t->file[i].host_number = i;
    }
    qsort(t->file, t->files, sizeof *t->file, by_rank);
    for (uint32_t i = 0; i < t->files; i++) {
        place[t->file[i].host_number] = i;
    }
    for (size_t i = 0; i < t->calls; i++) {
        t->call[i].file = place[t->call[i].file];
    }
    free(place);
}

void trace_free(trace_t *t)
{
    free(t->file);
    free(t->call);
    free(t->group);
}
