/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Groups of calls: see group.h. At the end of a group its communicators are prepared, and its calls checked, in an
 * order that all ranks have: preparing waits for ranks. Then the calls are queued, of those that have no earlier one on
 * their stream or of their communicator the one that is first in that order.
 */
#include "api/group.h"

#include <stdlib.h>
#include <string.h>

#include "api/component.h"
#include "api/raise.h"

#define ARRAYS 4 /* of a call */

typedef struct {
    MPI_Comm comm;
    void *stream;
    gpusym_stream_call_t call;
    int *arrays;    /* owned: those of `call`; NULL: it has none */
    long on_stream; /* the call before on the same stream, an index; -1: there is none */
    long on_comm;   /* the call before of the same communicator; -1: there is none */
    uint64_t place; /* of the communicator */
    bool checked, queued;
} note_t;

static _Thread_local struct {
    unsigned depth; /* starts without an end */
    int error;      /* the first one; MPI_SUCCESS: there is none */
    note_t *note;   /* [room], owned; `count` of them are used */
    long count, room;
} group;

bool api_group_is_open(void)
{
    return group.depth > 0;
}

int api_group_result(int rc)
{
    if (group.depth > 0 && MPI_SUCCESS == group.error) {
        group.error = rc;
    }
    return rc;
}

/* ---- noting ---- */

static bool make_room(void)
{
    const long room = 0 == group.room ? 16 : 2 * group.room;
    note_t *note = group.note;

    if (group.count < group.room) {
        return true;
    }
    note = realloc(note, (size_t) room * sizeof(*note));
    if (NULL == note) {
        return false;
    }
    group.note = note;
    group.room = room;
    return true;
}

/* Its arrays become copies. */
static bool copy_arrays(note_t *n, int ranks)
{
    const int **array[ARRAYS] = {&n->call.scounts, &n->call.sdispls, &n->call.rcounts, &n->call.rdispls};
    const size_t length = (size_t) ranks;
    bool any = false;

    for (int i = 0; i < ARRAYS; i++) {
        any = any || NULL != *array[i];
    }
    n->arrays = any ? malloc(ARRAYS * length * sizeof(*n->arrays)) : NULL;
    for (int i = 0; i < ARRAYS && NULL != n->arrays; i++) {
        if (NULL != *array[i]) {
            *array[i] = memcpy(n->arrays + (size_t) i * length, *array[i], length * sizeof(*n->arrays));
        }
    }
    return !any || NULL != n->arrays;
}

int api_group_note(MPI_Comm comm, const gpusym_stream_call_t *call, void *stream, int ranks)
{
    note_t n = {
        .comm = comm, .stream = stream, .call = *call, .on_stream = group.count - 1, .on_comm = group.count - 1};

    if (!make_room() || !copy_arrays(&n, ranks)) {
        return MPI_ERR_NO_MEM;
    }
    while (n.on_stream >= 0 && stream != group.note[n.on_stream].stream) {
        n.on_stream--;
    }
    while (n.on_comm >= 0 && comm != group.note[n.on_comm].comm) {
        n.on_comm--;
    }
    group.note[group.count++] = n;
    return MPI_SUCCESS;
}

/* ---- the end ---- */

static bool is_queued(long i)
{
    return i < 0 || group.note[i].queued;
}

/* The call to be checked next; of each communicator they come as they were noted. NULL: all are. */
static note_t *next_to_check(void)
{
    note_t *best = NULL;

    for (long i = 0; i < group.count; i++) {
        note_t *n = &group.note[i];
        if (!n->checked && (NULL == best || n->place < best->place)) {
            best = n;
        }
    }
    return best;
}

static note_t *next_to_queue(void)
{
    note_t *best = NULL;

    for (long i = 0; i < group.count; i++) {
        note_t *n = &group.note[i];
        if (!n->queued && is_queued(n->on_stream) && is_queued(n->on_comm) &&
            (NULL == best || n->place < best->place)) {
            best = n;
        }
    }
    return best;
}

/* Goes on behind an error: other ranks wait for this one where they prepare communicators. */
static void check_all(const gpusym_streams_t *streams)
{
    note_t *n;

    for (long i = 0; i < group.count; i++) {
        group.note[i].place = streams->place(group.note[i].comm);
    }
    while (NULL != (n = next_to_check())) {
        const int rc = streams->check(n->comm, &n->call, n->stream);
        if (MPI_SUCCESS == group.error) {
            group.error = api_result(n->comm, streams, rc);
        }
        n->checked = true;
    }
}

static void queue_all(const gpusym_streams_t *streams)
{
    note_t *n;

    while (MPI_SUCCESS == group.error && NULL != (n = next_to_queue())) {
        group.error = api_result(n->comm, streams, streams->call(n->comm, &n->call, n->stream));
        n->queued = true;
    }
}

/* The group is over. Returns its first error. */
static int clear(void)
{
    const int error = group.error;

    for (long i = 0; i < group.count; i++) {
        free(group.note[i].arrays);
    }
    free(group.note);
    memset(&group, 0, sizeof(group));
    return error;
}

void api_group_start(void)
{
    group.depth++;
}

int api_group_end(void)
{
    const gpusym_streams_t *streams;
    const char *why;

    if (group.depth > 1) {
        group.depth--;
        return MPI_SUCCESS;
    }
    if (MPI_SUCCESS == group.error && group.count > 0) {
        streams = api_component(&why);
        if (NULL == streams) {
            group.error = api_raise(group.note[0].comm, MPI_ERR_UNSUPPORTED_OPERATION, why);
        } else {
            check_all(streams);
            queue_all(streams);
        }
    }
    return clear();
}
