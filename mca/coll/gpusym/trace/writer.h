/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A thread of this process that writes a file now and then, beside the program: of the trace, of metrics. It blocks all
 * signals, and leaves the cores that the process is bound to for others, where there are any.
 */
#ifndef MCA_COLL_GPUSYM_TRACE_WRITER_H
#define MCA_COLL_GPUSYM_TRACE_WRITER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Zero, but for the first three: there is no thread. Its owner's; the rest is that of writer.c. */
typedef struct {
    const char *name;    /* of the thread, at most 15 characters */
    bool (*write)(void); /* in the thread; false: it ends */
    uint64_t every_ns;   /* it writes so often; 0: only where it is woken. Set before the start */
    pthread_t thread;
    pid_t pid; /* of the process that has the thread: a child of fork() has not; 0: there is none */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool woken, ending; /* under the lock */
} coll_gpusym_writer_t;

/* Starts the thread. False, with a verbose line: there is none. */
bool coll_gpusym_writer_start(coll_gpusym_writer_t *w);
/* It is to write soon; costs a system call. Any thread, between start and stop. */
void coll_gpusym_writer_wake(coll_gpusym_writer_t *w);
/* Ends it, behind what it writes now. False: there is none in this process, and has been none. */
bool coll_gpusym_writer_stop(coll_gpusym_writer_t *w);

#endif
