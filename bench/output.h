/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the measuring programs print: a table on stdout, and the same as CSV and JSON. Rank 0 prints; comments, facts
 * and heads are ignored on other ranks, cells and words are rank 0's alone.
 *
 * CSV: comment lines begin with #, then the columns' names, then the rows. JSON: one object, of "facts" (names and
 * numbers), "rows" (objects by the columns' names) and "comments" (lines).
 */
#ifndef BENCH_OUTPUT_H
#define BENCH_OUTPUT_H

#include <stdbool.h>

/* Opens the files, on rank 0; NULL: none. Ends the job where one cannot be written. */
void bench_output_open(const char *csv, const char *json);
void bench_output_close(void);

/* A comment line. */
__attribute__((format(printf, 1, 2))) void bench_comment(const char *format, ...);
/* A number by name, unit included ("first_call_ms"). */
void bench_fact(const char *name, double value);
/* The head of the table, once: words with their widths, and the columns' names, separated by commas. */
void bench_head(const char *line, const char *names);
/* A line between rows, on stdout only. */
__attribute__((format(printf, 1, 2))) void bench_title(const char *format, ...);
/* Cells of a row. A negative value was not measured: "-" in the table, empty in the CSV file, null in JSON, as is an
 * empty word. Width 0: in the files only; a negative one: to the left. The last cell ends the row. */
void bench_cell(int width, int digits, double value, bool last);
void bench_word(int width, const char *text);

/* What is being done, on one line of the terminal that the next output takes back. Only if stderr, or mpirun's, is one,
 * or if requested. */
void bench_progress_always(void);
__attribute__((format(printf, 1, 2))) void bench_progress(const char *format, ...);

#endif
