/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The output of the library, to stderr: log lines, by level of verbosity, and errors to the user. The faces provide the
 * name of the process.
 */
#ifndef GPUSYM_COMMON_LOG_H
#define GPUSYM_COMMON_LOG_H

#include <stdarg.h>
#include <stddef.h>

/* Takes a line in place of stderr: a test. The line ends with a newline. */
typedef void gpusym_log_print_t(const char *line);

/* Lines of this level and below are printed. 0: none. Read without a lock. */
extern int gpusym_log_level;

/* Sets the level, and who takes lines. print NULL: they go to stderr; it must remain valid. */
void gpusym_log_to(gpusym_log_print_t *print, int level);
/* Raises the level; never lowers it. */
void gpusym_log_raise(int level);
/* Prints a line whatever the level is; called by GPUSYM_LOG. Any thread. */
void gpusym_log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints one line, given without its newline, behind the names of host and process. Levels: 1: one line of the job,
 * from rank 0: what was found and chosen; 2: the decisions of each process, and why a feature is not used; 5: one line
 * per communicator. */
#define GPUSYM_LOG(level, ...)                                  \
    do {                                                        \
        if (__builtin_expect(gpusym_log_level >= (level), 0)) { \
            gpusym_log_line(__VA_ARGS__);                       \
        }                                                       \
    } while (0)

/* Logs, at level 2, a system call that failed and what it was for, with errno; keeps errno. */
void gpusym_log_call(const char *call, const char *what);
/* Logs, at level 2, that there is no host memory for something; keeps errno. */
void gpusym_log_no_memory(const char *what);

/* Names the process in lines and errors: its rank in MPI_COMM_WORLD, or GPUSYM_LOG_NO_RANK, and its host. The name is
 * copied. */
#define GPUSYM_LOG_NO_RANK (~0ul)
void gpusym_log_name(unsigned long rank, const char *host);
/* Prints an error for the user to stderr, by one write: the process, then the text, between rules. The text tells what
 * happened, where, and what to do; its lines have at most 78 columns. Once a node: where another process of the job has
 * printed the same but for numbers within the last ten seconds or so, it is a line of level 2. Any thread. */
void gpusym_help(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gpusym_help_list(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));

/* Appends to a text of `size` bytes, with its end, as far as it fits. *used: its length, 0 at first; once it does not
 * fit, what it would have been. */
void gpusym_append(char *text, size_t size, size_t *used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
