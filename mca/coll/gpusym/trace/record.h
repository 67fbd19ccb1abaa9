/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Records of calls, and the trace (coll_gpusym_trace): the file of this process that they go to, one line of JSON
 * each. docs/guide.md describes the lines. Without that file they are only added up (sums.h).
 *
 * Records stand in a ring of fixed size that is allocated once. A call takes one, fills it while it goes on, and ends
 * it; nothing is allocated, formatted or locked for that. All of it but the times when MPI was called and has returned
 * is noted while the GPU works: see exec/traced.h. A thread (writer.h) writes the ended records ten times a
 * second, and where the ring is half full; MPI_Finalize, and a call that fails, those that are left. A call that finds
 * the ring full of ended records writes them itself; one that finds it full of calls in flight is not recorded, and
 * counted.
 */
#ifndef MCA_COLL_GPUSYM_TRACE_RECORD_H
#define MCA_COLL_GPUSYM_TRACE_RECORD_H

#include <stdbool.h>
#include <stdint.h>

/* The form in which MPI was called. */
enum coll_gpusym_form {
    COLL_GPUSYM_FORM_BLOCKING,
    COLL_GPUSYM_FORM_NONBLOCKING,
    COLL_GPUSYM_FORM_PERSISTENT,
    COLL_GPUSYM_FORMS
};

/* States of a record. Its call sets OPEN and DONE, who writes it FREE. */
enum coll_gpusym_record_state { COLL_GPUSYM_RECORD_FREE, COLL_GPUSYM_RECORD_OPEN, COLL_GPUSYM_RECORD_DONE };

/* One call of this rank. */
typedef struct {
    /* Times of gpusym_now_ns(); 0: it has not come to that. */
    uint64_t entered;   /* MPI was called */
    uint64_t posted;    /* peers see that this rank is in the call */
    uint64_t there;     /* this rank has seen that all are */
    uint64_t launched;  /* the GPU has its work; staged: the copies, or the other components, begin */
    uint64_t returned;  /* nonblocking: it is complete. In ticks, if there is a base */
    uint64_t base;      /* of ticks (ticks.h), compared when it was launched; 0: there is none */
    uint64_t gpu[3];    /* of gpusym_lane_words(): begin and end of the kernel, by the GPU's clock; 0: not known */
    uint64_t bytes;     /* of the elements in this rank's larger buffer */
    uint64_t seq;       /* number of the call in its communicator; 0: not known yet */
    const char *way;    /* how it was carried out; never freed */
    uint32_t comm, nth; /* coll_gpusym_trace_comm(); UINT32_MAX: no memory */
    int error;          /* MPI error code */
    int last;           /* the rank of the communicator that came last, as far as this one has seen; -1: not known */
    int16_t algorithm;  /* of kernels.def; -1: none */
    uint16_t blocks;    /* of the kernel; 0: not known */
    uint8_t coll, form; /* enum coll_gpusym_coll, coll_gpusym_form */
    int8_t reason;      /* enum coll_gpusym_reason, where it was staged; -1: it was not */
    bool zero_copy;
    int8_t by;      /* enum coll_gpusym_how, how it came to its kernel; -1: it has none */
    uint32_t state; /* enum coll_gpusym_record_state; last */
} __attribute__((aligned(64))) coll_gpusym_record_t;

/* Whether calls are recorded; whether the records go to the file, else nothing that only lines need is noted; and
 * whether somebody else wants them. Written while MPI is initialised, where the file can no longer be written, by the
 * next two, and, a tenth of a second at most after it has been set, for coll_gpusym_trace_calls. */
extern bool coll_gpusym_trace_on, coll_gpusym_trace_written, coll_gpusym_trace_wanted;
/* In ticks: since when they are. */
extern uint64_t coll_gpusym_trace_since;

/* Records are taken from now on, until there is a call of the second function for each one of the first. False: there
 * is no memory. Any thread. */
bool coll_gpusym_trace_want(void);
void coll_gpusym_trace_spare(void);
/* Calls that have got no record because too many others were in flight. */
uint64_t coll_gpusym_trace_lost(void);

/* Opens the file, if coll_gpusym_trace names one. host: name of this host, not kept. */
void coll_gpusym_trace_start(int world_rank, const char *host);
/* Whether there is one, for calls of now or later. */
bool coll_gpusym_trace_opened(void);
/* Writes all ended records. Any thread. */
void coll_gpusym_trace_flush(void);
/* Writes what is left, also of calls that have not ended, and closes the file. Nobody wants records any more, and no
 * thread is in a call. */
void coll_gpusym_trace_stop(void);

/* A communicator as lines name it. key: the same on all of its ranks; label: its name, copied. Sets *comm, and *nth:
 * how many communicators of that key and name there have been before. False: no memory. */
bool coll_gpusym_trace_comm(uint64_t key, const char *label, int rank, int size, uint32_t *comm, uint32_t *nth);
/* The GPU of this process, named once. text: "NVIDIA H200, 0000:1b:00.0", copied. */
void coll_gpusym_trace_gpu(const char *text);
/* Whether that is still to be done. */
extern bool coll_gpusym_trace_wants_gpu;

/* Takes a record, zeroed; 0: there is none, which is counted. */
uint32_t coll_gpusym_trace_take(void);
/* The record of that number; not 0. */
extern coll_gpusym_record_t *coll_gpusym_trace_ring; /* of record.c */
static inline coll_gpusym_record_t *coll_gpusym_trace_record(uint32_t number)
{
    return &coll_gpusym_trace_ring[number - 1];
}
/* The call has ended then, and its record is complete. */
static inline void coll_gpusym_trace_put(coll_gpusym_record_t *r, uint64_t returned)
{
    r->returned = returned;
    __atomic_store_n(&r->state, (uint32_t) COLL_GPUSYM_RECORD_DONE, __ATOMIC_RELEASE);
}
/* The call is not recorded after all. */
void coll_gpusym_trace_drop(uint32_t number);
/* There is no memory for what the record refers to: the call is counted as lost. */
void coll_gpusym_trace_lose(uint32_t number);

#endif
