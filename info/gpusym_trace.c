/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym_trace: what the files of coll_gpusym_trace say. docs/guide.md describes it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/job.h"
#include "info/trace/print.h"

enum { NUMBER_MAX = 1000000000 };

static struct {
    const char *events, *picture; /* files; NULL: not wanted */
    unsigned first, calls;        /* first 0: those around the longest wait */
    char **path;
    int paths;
} asked = {.calls = 8};

__attribute__((noreturn)) static void refuse_use(const char *what, const char *word)
{
    fprintf(stderr, "gpusym_trace: %s%s\n", what, word);
    fputs("usage: "
#define TRACE_LINE(arguments, text) "gpusym_trace " arguments "\n       "
#include "bench/options.def"
          "gpusym_trace --help, --version\n",
          stderr);
    exit(2);
}

__attribute__((noreturn)) static void help(void)
{
    puts("usage:");
#define TRACE_LINE(arguments, text) puts("  gpusym_trace " arguments "\n      " text);
#include "bench/options.def"
    puts("\nOptions:");
#define BENCH_INFO BENCH_PRINT
#define TRACE BENCH_PRINT
#include "bench/options.def"
    exit(0);
}

/* The number that an option takes. */
static unsigned read_number(const char *value)
{
    char *end;
    errno = 0;
    const long n = strtol(value, &end, 10);
    if (0 != errno || '\0' != *end || n < 1 || n > NUMBER_MAX) {
        refuse_use("a number from 1 to 1000000000 is wanted: ", value);
    }
    return (unsigned) n;
}

static void take_option(char letter, const char *value)
{
    switch (letter) {
    case 'o':
        asked.events = value;
        break;
    case 's':
        asked.picture = value;
        break;
    case 'f':
        asked.first = read_number(value);
        break;
    default:
        asked.calls = read_number(value);
        break;
    }
}

/* Returns the number of words that it took. */
static int read_option(int left, char **argv)
{
    static const struct {
        const char *name;
        char letter;
    } options[] = {
#define TRACE(name, argument, letter, text) {"--" name, letter},
#include "bench/options.def"
    };
    if (0 == strcmp(argv[0], "--help")) {
        help();
    }
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (0 == strcmp(argv[0], options[i].name)) {
            if (left < 2) {
                refuse_use("a value is missing: ", argv[0]);
            }
            take_option(options[i].letter, argv[1]);
            return 2;
        }
    }
    refuse_use("no such option: ", argv[0]);
}

static void read_arguments(int argc, char **argv)
{
    asked.path = trace_memory(NULL, (size_t) argc * sizeof *asked.path);
    for (int i = 1; i < argc;) {
        if (0 == strncmp(argv[i], "--", 2)) {
            i += read_option(argc - i, argv + i);
        } else {
            asked.path[asked.paths++] = argv[i++];
        }
    }
    if (0 == asked.paths) {
        refuse_use("no files", "");
    }
}

static FILE *open_file(const char *path)
{
    FILE *f = 0 == strcmp(path, "-") ? stdout : fopen(path, "w");
    if (NULL == f) {
        trace_refuse("%s: %s", path, strerror(errno));
    }
    return f;
}

static void close_file(FILE *f, const char *path)
{
    if (0 != fflush(f) || ferror(f) || (stdout != f && 0 != fclose(f))) {
        trace_refuse("%s: %s", path, strerror(errno));
    }
}

int main(int argc, char **argv)
{
    trace_t t;
    bench_version("gpusym_trace", argc, argv);
    read_arguments(argc, argv);
    trace_read(&t, asked.path, asked.paths);
    trace_merge(&t);
    if (NULL != asked.events) {
        FILE *f = open_file(asked.events);
        trace_print_events(&t, f);
        close_file(f, asked.events);
    }
    if (NULL != asked.picture && 0 == t.calls) {
        trace_refuse("%s: there are no calls to draw", asked.picture);
    }
    if (NULL != asked.picture) {
        FILE *f = open_file(asked.picture);
        trace_print_picture(&t, asked.first, asked.calls, f);
        close_file(f, asked.picture);
    }
    if (NULL == asked.events && NULL == asked.picture) {
        trace_print_tables(&t);
        close_file(stdout, "the tables");
    }
    trace_free(&t);
    free(asked.path);
    return 0;
}
