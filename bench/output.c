/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Table, CSV, JSON, progress: see output.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/output.h"
#include "bench/ranks.h"
#include "mca/common/gpusym/json.h"

#define COLUMNS_MAX 40
#define TEXT_MAX 1024 /* bytes of a comment or a word */

static FILE *csv, *json; /* rank 0's, NULL without */
/* Of the JSON file: what follows its rows, collected until it is closed; the columns' names, and which is next. */
static struct {
    char *facts, *comments, *names;
    size_t facts_size, comments_size;
    FILE *to_facts, *to_comments;
    const char *columns[COLUMNS_MAX];
    int ncolumns, next, rows;
} parts;
static bool in_row;
static bool progress_requested, progress_shown;

static FILE *writable(const char *path)
{
    FILE *f = NULL == path ? NULL : fopen(path, "w");

    if (NULL == f && NULL != path) {
        bench_die("%s cannot be written", path);
    }
    return f;
}

void bench_output_open(const char *csv_path, const char *json_path)
{
    if (0 != bench_rank) {
        return;
    }
    csv = writable(csv_path);
    json = writable(json_path);
    if (NULL != json) {
        parts.to_facts = open_memstream(&parts.facts, &parts.facts_size);
        parts.to_comments = open_memstream(&parts.comments, &parts.comments_size);
        if (NULL == parts.to_facts || NULL == parts.to_comments) {
            bench_die("no host memory");
        }
    }
}

static void close_json(void)
{
    fclose(parts.to_facts);
    fclose(parts.to_comments);
    fprintf(json, "%s\n],\n\"facts\": {%s\n},\n\"comments\": [%s\n]}\n", 0 == parts.ncolumns ? "{\"rows\": [" : "",
            parts.facts, parts.comments);
    free(parts.facts);
    free(parts.comments);
    free(parts.names);
    fclose(json);
    json = NULL;
}

void bench_output_close(void)
{
    if (NULL != csv) {
        fclose(csv);
        csv = NULL;
    }
    if (NULL != json) {
        close_json();
    }
}

/* ---- progress ---------------------------------------------------------------------------------------------------- */

void bench_progress_always(void)
{
    progress_requested = true;
}

/* mpirun hands a rank's stderr on by a pipe: then its own counts, if our parent is on this host. */
static bool is_terminal(void)
{
    char path[64], target[64] = "";

    snprintf(path, sizeof(path), "/proc/%ld/fd/2", (long) getppid());
    return isatty(STDERR_FILENO) || (readlink(path, target, sizeof(target) - 1) > 0 &&
                                     (0 == strncmp(target, "/dev/pts/", 9) || 0 == strncmp(target, "/dev/tty", 8)));
}

static void erase_progress(void)
{
    if (progress_shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        progress_shown = false;
    }
}

void bench_progress(const char *format, ...)
{
    va_list ap;

    if (0 != bench_rank || (!progress_requested && !is_terminal())) {
        return;
    }
    erase_progress();
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fflush(stderr);
    progress_shown = true;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* Text as JSON has it. */
static void write_quoted(FILE *f, const char *text)
{
    char quoted[GPUSYM_JSON_ROOM(TEXT_MAX)];

    gpusym_json_text(text, quoted, sizeof(quoted));
    fputs(quoted, f);
}

static void write_line(const char *text)
{
    erase_progress();
    printf("# %s\n", text);
    fflush(stdout);
    if (NULL != csv) {
        fprintf(csv, "# %s\n", text);
        fflush(csv);
    }
}

void bench_comment(const char *format, ...)
{
    char text[TEXT_MAX];
    va_list ap;

    if (0 != bench_rank) {
        return;
    }
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    write_line(text);
    if (NULL != json) {
        fputs(0 == ftell(parts.to_comments) ? "\n" : ",\n", parts.to_comments);
        write_quoted(parts.to_comments, text);
    }
}

void bench_fact(const char *name, double value)
{
    char text[128];

    if (0 != bench_rank) {
        return;
    }
    snprintf(text, sizeof(text), "%s: %.2f", name, value);
    write_line(text);
    if (NULL != json) {
        fprintf(parts.to_facts, "%s\"%s\": %.6g", 0 == ftell(parts.to_facts) ? "\n" : ",\n", name, value);
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void begin_json(const char *names)
{
    parts.names = strdup(names);
    if (NULL == parts.names) {
        bench_die("no host memory");
    }
    for (char *name = strtok(parts.names, ","); NULL != name; name = strtok(NULL, ",")) {
        if (COLUMNS_MAX == parts.ncolumns) {
            bench_die("more than %d columns", COLUMNS_MAX);
        }
        parts.columns[parts.ncolumns++] = name;
    }
    fputs("{\"rows\": [", json);
}

void bench_head(const char *line, const char *names)
{
    if (0 != bench_rank) {
        return;
    }
    erase_progress();
    printf("%s\n", line);
    if (NULL != csv) {
        fprintf(csv, "%s\n", names);
    }
    if (NULL != json) {
        begin_json(names);
    }
}

void bench_title(const char *format, ...)
{
    va_list ap;

    if (0 != bench_rank) {
        return;
    }
    erase_progress();
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

/* What comes before the value of the next cell. */
static void begin_cell(void)
{
    if (!in_row) {
        erase_progress();
    }
    if (NULL != csv && in_row) {
        fputc(',', csv);
    }
    if (NULL != json) {
        fprintf(json, "%s\"%s\": ", in_row ? ", " : 0 == parts.rows ? "\n{" : ",\n{", parts.columns[parts.next]);
        parts.next++;
    }
    in_row = true;
}

static void end_row(void)
{
    printf("\n");
    fflush(stdout);
    if (NULL != csv) {
        fputc('\n', csv);
        fflush(csv);
    }
    if (NULL != json) {
        fputc('}', json);
        fflush(json);
    }
    parts.next = 0;
    parts.rows++;
    in_row = false;
}

void bench_cell(int width, int digits, double value, bool last)
{
    const bool measured = value >= 0;

    begin_cell();
    if (width > 0 && measured) {
        printf("%*.*f ", width, digits, value);
    } else if (0 != width) {
        printf("%*s ", width, "-");
    }
    if (NULL != csv && measured) {
        fprintf(csv, "%.*f", digits, value);
    }
    if (NULL != json && measured) {
        fprintf(json, "%.*f", digits, value);
    } else if (NULL != json) {
        fputs("null", json);
    }
    if (last) {
        end_row();
    }
}

void bench_word(int width, const char *text)
{
    begin_cell();
    if (0 != width) {
        printf("%*s ", width, '\0' == *text ? "-" : text);
    }
    if (NULL != csv) {
        fputs(text, csv);
    }
    if (NULL != json && '\0' != *text) {
        write_quoted(json, text);
    } else if (NULL != json) {
        fputs("null", json);
    }
}
