/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: the files of a trace (info/trace/). An input is two files, one behind the other: a byte 0 is between them. That
 * a file is refused ends the program; here, the reading.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

/* What a reading that is refused has open. */
static jmp_buf refused;
static FILE *opened;
static char *line_buffer;

static __attribute__((noreturn)) void refuse(int status)
{
    (void) status;
    longjmp(refused, 1);
}

static FILE *open_file(const char *path)
{
    opened = fopen(path, "r");
    line_buffer = NULL;
    return opened;
}

static ssize_t read_line(char **text, size_t *room, FILE *in)
{
    const ssize_t n = getline(text, room, in);
    line_buffer = *text;
    return n;
}

static int close_file(FILE *in)
{
    opened = NULL;
    line_buffer = NULL; /* freed before */
    return fclose(in);
}

#define exit refuse
#define fopen(path, mode) open_file(path)
#define getline read_line
#define fclose close_file
#include "info/trace/read.c"
#undef exit
#undef fopen
#undef getline
#undef fclose

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "info/trace/print.h"
#include "test/fuzz/fuzz.h"

enum { FILES = 2 };

static void check_trace(const trace_t *t)
{
    size_t in_groups = 0;

    for (size_t i = 0; i < t->calls; i++) {
        MUST(t->call[i].file < t->files);
    }
    for (size_t g = 0; g < t->groups; g++) {
        const trace_call_t *call = &t->call[t->group[g].first];
        for (size_t i = 1; i < t->group[g].n; i++) {
            MUST(call[i].comm_rank > call[i - 1].comm_rank);
        }
        MUST(t->group[g].n > 0 && t->group[g].first + t->group[g].n <= t->calls);
        MUST(t->group[g].last < t->group[g].n);
        in_groups += t->group[g].n;
    }
    MUST(in_groups == t->calls);
}

/* A picture, whose texts are texts. */
static void draw(const trace_t *t)
{
    static const char begin[] = "<title>", end[] = "</title></rect>\n";
    char *picture = NULL;
    size_t size;
    FILE *out = open_memstream(&picture, &size);

    MUST(NULL != out);
    trace_print_picture(t, 0, 20, out);
    fclose(out);
    for (const char *at = picture; NULL != (at = strstr(at, begin));) {
        at += sizeof begin - 1;
        const size_t n = strcspn(at, "<>");
        MUST(0 == strncmp(at + n, end, sizeof end - 1));
        for (size_t i = 0; i < n; i++) {
            MUST(at[i] >= ' ' && at[i] <= '~' && ('&' != at[i] || NULL != strchr("agl", at[i + 1])));
        }
    }
    free(picture);
}

static void print(const trace_t *t, FILE *nowhere)
{
    trace_print_events(t, nowhere);
    trace_print_tables(t);
    if (0 != t->calls) {
        draw(t);
    }
}

/* Reads and prints; what is said goes nowhere. */
static void read_all(trace_t *t, char **paths, int n, FILE *nowhere)
{
    FILE *const out = stdout, *const err = stderr;

    stdout = stderr = nowhere;
    if (0 == setjmp(refused)) {
        trace_read(t, paths, n);
        trace_merge(t);
        stderr = err;
        check_trace(t);
        stderr = nowhere;
        print(t, nowhere);
    } else if (NULL != opened) {
        fclose(opened);
        free(line_buffer);
    }
    stdout = out;
    stderr = err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd[FILES] = {-1, -1};
    static char path[FILES][40];
    static FILE *nowhere;
    char *paths[FILES] = {path[0], path[1]};
    const uint8_t *cut = 0 == size ? NULL : memchr(data, '\0', size);
    const size_t first = NULL == cut ? size : (size_t) (cut - data), rest = NULL == cut ? 0 : size - first - 1;
    trace_t t = {0};

    if (NULL == nowhere) {
        nowhere = fopen("/dev/null", "w");
        for (int i = 0; i < FILES; i++) {
            fd[i] = memfd_create("trace", 0);
            snprintf(path[i], sizeof path[i], "/proc/self/fd/%d", fd[i]);
        }
    }
    MUST(0 == ftruncate(fd[0], 0) && (ssize_t) first == pwrite(fd[0], data, first, 0));
    MUST(0 == ftruncate(fd[1], 0) && (NULL == cut || (ssize_t) rest == pwrite(fd[1], cut + 1, rest, 0)));
    opened = NULL;
    read_all(&t, paths, NULL == cut ? 1 : 2, nowhere);
    trace_free(&t);
    return 0;
}
