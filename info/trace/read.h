/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What stands in the files of a trace (coll_gpusym_trace): one for each rank of a job, and the calls of all of them,
 * those of one collective behind each other, by one clock.
 */
#ifndef INFO_TRACE_READ_H
#define INFO_TRACE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest text of a line that is kept. */
#define TRACE_TEXT 128

/* Times of a file: more of a host's clock, or of the day and of a GPU, are none. Differences of such are in int64_t. */
#define TRACE_HOST_MAX ((int64_t) 1 << 60)
#define TRACE_DAY_MAX ((int64_t) 1 << 62)

/* Times of a call. ns of rank 0's host's clock; 0: the call has none. */
typedef struct {
    int64_t entered, posted, there, launched, gpu_begin, gpu_end, returned;
} trace_times_t;

/* One file. */
typedef struct {
    const char *path;
    int rank;
    unsigned long pid;
    char host[TRACE_TEXT], gpu[TRACE_TEXT]; /* "": not known */
    int64_t monotonic[2], realtime[2];      /* both clocks at the beginning and at the end; 0: not known */
    uint64_t calls, lost, bad; /* lines of calls; calls that were not recorded; lines that cannot be read */
    bool ended;                /* the file is complete */
    uint32_t host_number;      /* that of its host */
} trace_file_t;

/* A communicator, as one rank of it names it. */
typedef struct {
    char id[40];
    int rank, size; /* of the file's process */
    uint32_t file;
} trace_comm_t;

/* One call of one rank. Its texts, like those of files, are printable ASCII. */
typedef struct {
    uint32_t file;
    int comm_rank, comm_size; /* -1, 0: not known */
    int last;                 /* rank of the communicator; -1: not known */
    int error;
    uint32_t blocks;
    uint64_t seq, bytes;
    bool zero_copy;
    char id[40], comm[TRACE_TEXT];
    char coll[32], form[16], way[16], algorithm[32], by[16], reason[32]; /* "": none */
    trace_times_t at;
} trace_call_t;

/* A collective: calls first to first + n - 1. A call whose communicator is not known is alone. */
typedef struct {
    size_t first, n;
    bool whole;      /* all ranks are there */
    uint64_t bytes;  /* the largest of all ranks */
    uint32_t last;   /* the call of the rank that came last, as far as is known */
    int64_t came;    /* when that rank had; 0: not known */
    int64_t moving;  /* from then on until the last rank returned, in ns; 0: not known */
    double waited;   /* ns, sum over the ranks: from when they had come until then */
    int64_t longest; /* of one rank: of that */
} trace_group_t;

typedef struct {
    trace_file_t *file; /* [files], by rank */
    uint32_t files, hosts;
    trace_call_t *call; /* [calls] */
    size_t calls;
    trace_group_t *group; /* [groups], by time */
    size_t groups;
    int64_t begin, end;  /* of all calls */
    int64_t clock_error; /* most that clocks of two hosts may still differ, in ns; -1: not known */
} trace_t;

/* Reads these files. Ends the program, with a message, where there is no memory or a file is no trace. */
void trace_read(trace_t *t, char **paths, int n);
/* Sets all times to the clock of rank 0's host, then finds the groups and what is known of them. */
void trace_merge(trace_t *t);
void trace_free(trace_t *t);

/* When a rank came to a call. */
static inline int64_t trace_came(const trace_call_t *c)
{
    return 0 != c->at.posted ? c->at.posted : c->at.entered;
}
/* How long it has waited there for the last rank, in ns. */
static inline int64_t trace_waited(const trace_group_t *g, const trace_call_t *c)
{
    const int64_t until = 0 != c->at.returned && c->at.returned < g->came ? c->at.returned : g->came;
    return until > trace_came(c) ? until - trace_came(c) : 0;
}
/* Of a call: the end of what is known of it. */
static inline int64_t trace_end_of(const trace_call_t *c)
{
    return 0 != c->at.returned ? c->at.returned : c->at.launched > c->at.there ? c->at.launched : c->at.there;
}
/* A memory block of n bytes, zeroed; ends the program where there is none. */
void *trace_memory(void *old, size_t n);
__attribute__((noreturn, format(printf, 1, 2))) void trace_refuse(const char *format, ...);

#endif
