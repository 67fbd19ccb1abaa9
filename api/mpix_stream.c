/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPICH's names: see mpix_stream.h. A communicator has its stream as an attribute.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api/gpusym.h"
#include "api/group.h"
#include "api/mpix_stream.h"
#include "api/raise.h"

#define DIGITS "0123456789abcdef"

struct gpusym_mpix_stream {
    void *stream; /* the program's */
    int users;    /* atomic: the program's handle, and communicators */
};

static MPIX_Stream hold(MPIX_Stream s)
{
    __atomic_fetch_add(&s->users, 1, __ATOMIC_RELAXED);
    return s;
}

static void release(MPIX_Stream s)
{
    if (1 == __atomic_fetch_sub(&s->users, 1, __ATOMIC_ACQ_REL)) {
        free(s);
    }
}

/* ---- info ---- */

int MPIX_Info_set_hex(MPI_Info info, const char *key, const void *value, int value_size)
{
    const unsigned char *bytes = value;
    char digits[MPI_MAX_INFO_VAL];

    if (!api_mpi_is_up() || MPI_INFO_NULL == info || NULL == key || (NULL == value && value_size > 0)) {
        return api_raise(MPI_COMM_NULL, MPI_ERR_ARG, NULL);
    }
    if (value_size < 0 || (size_t) value_size >= sizeof(digits) / 2) {
        return api_raise(MPI_COMM_NULL, MPI_ERR_INFO_VALUE, NULL);
    }
    for (int i = 0; i < value_size; i++) {
        digits[2 * i] = DIGITS[bytes[i] / 16];
        digits[2 * i + 1] = DIGITS[bytes[i] % 16];
    }
    digits[2 * value_size] = 0;
    return MPI_Info_set(info, key, digits);
}

static bool info_get(MPI_Info info, const char *key, char value[MPI_MAX_INFO_VAL + 1])
{
    int found = 0;

#if MPI_VERSION >= 4 /* where MPI_Info_get is deprecated */
    int size = MPI_MAX_INFO_VAL + 1;
    const int rc = MPI_Info_get_string(info, key, &size, value, &found);
#else
    const int rc = MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
#endif
    return MPI_SUCCESS == rc && found;
}

/* The stream that MPIX_Info_set_hex() has written. */
static bool stream_of(const char *digits, void **stream)
{
    unsigned char bytes[sizeof(*stream)];

    if (strlen(digits) != 2 * sizeof(bytes)) {
        return false;
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        const char *high = strchr(DIGITS, digits[2 * i]), *low = strchr(DIGITS, digits[2 * i + 1]);

        if (NULL == high || NULL == low) {
            return false;
        }
        bytes[i] = (unsigned char) ((high - DIGITS) * 16 + (low - DIGITS));
    }
    memcpy(stream, bytes, sizeof(bytes));
    return true;
}

/* ---- streams ---- */

int MPIX_Stream_create(MPI_Info info, MPIX_Stream *stream)
{
    char value[MPI_MAX_INFO_VAL + 1];
    void *of_program;
    MPIX_Stream s;

    if (!api_mpi_is_up() || NULL == stream) {
        return api_raise(MPI_COMM_NULL, MPI_ERR_ARG, NULL);
    }
    if (MPI_INFO_NULL == info || !info_get(info, "type", value) || 0 != strcmp(value, "cudaStream_t")) {
        return api_raise(MPI_COMM_NULL, MPI_ERR_UNSUPPORTED_OPERATION,
                         "MPIX_Stream_create: gpusym has only streams of the GPU: set type=cudaStream_t in the info");
    }
    if (!info_get(info, "value", value) || !stream_of(value, &of_program)) {
        return api_raise(MPI_COMM_NULL, MPI_ERR_INFO_VALUE,
                         "MPIX_Stream_create: the info has no stream: set its value by MPIX_Info_set_hex(info, "
                         "\"value\", &stream, sizeof(stream))");
    }
    s = malloc(sizeof(*s));
    if (NULL == s) {
        return api_raise(MPI_COMM_NULL, MPI_ERR_NO_MEM, NULL);
    }
    *s = (struct gpusym_mpix_stream){.stream = of_program, .users = 1};
    *stream = s;
    return MPI_SUCCESS;
}

int MPIX_Stream_free(MPIX_Stream *stream)
{
    if (NULL == stream || MPIX_STREAM_NULL == *stream) {
        return api_raise(MPI_COMM_NULL, MPI_ERR_ARG, NULL);
    }
    release(*stream);
    *stream = MPIX_STREAM_NULL;
    return MPI_SUCCESS;
}

/* ---- communicators ---- */

static int copy_attribute(MPI_Comm comm, int keyval, void *extra, void *from, void *to, int *flag)
{
    (void) comm;
    (void) keyval;
    (void) extra;
    *(void **) to = hold(from);
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_attribute(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void) comm;
    (void) keyval;
    (void) extra;
    release(value);
    return MPI_SUCCESS;
}

/* Of the attribute; MPI_KEYVAL_INVALID where MPI has no room for it. */
static int attribute(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int keyval = MPI_KEYVAL_INVALID;
    int found;

    pthread_mutex_lock(&lock);
    if (MPI_KEYVAL_INVALID == keyval) {
        MPI_Comm_create_keyval(copy_attribute, delete_attribute, &keyval, NULL);
    }
    found = keyval;
    pthread_mutex_unlock(&lock);
    return found;
}

static MPIX_Stream stream_of_comm(MPI_Comm comm)
{
    void *s = NULL;
    int found = 0;

    MPI_Comm_get_attr(comm, attribute(), &s, &found);
    return found ? s : MPIX_STREAM_NULL;
}

/* Gives comm the stream, and makes it ready. */
static int attach(MPI_Comm comm, MPIX_Stream stream)
{
    const int rc = MPI_Comm_set_attr(comm, attribute(), stream);

    if (MPI_SUCCESS != rc) {
        return rc;
    }
    hold(stream);
    return gpusym_stream_prepare(comm, MPI_INFO_NULL);
}

int MPIX_Stream_comm_create(MPI_Comm comm, MPIX_Stream stream, MPI_Comm *newcomm)
{
    int rc;

    if (!api_mpi_is_up() || NULL == newcomm) {
        return api_raise(comm, MPI_ERR_ARG, NULL);
    }
    if (MPI_COMM_NULL == comm) {
        return api_raise(comm, MPI_ERR_COMM, NULL);
    }
    rc = MPI_Comm_dup(comm, newcomm);
    if (MPI_SUCCESS != rc || MPIX_STREAM_NULL == stream) {
        return rc;
    }
    rc = attach(*newcomm, stream);
    if (MPI_SUCCESS != rc) {
        MPI_Comm_free(newcomm);
    }
    return rc;
}

int MPIX_Comm_get_stream(MPI_Comm comm, int idx, MPIX_Stream *stream)
{
    if (!api_mpi_is_up() || NULL == stream || 0 != idx) {
        return api_raise(comm, MPI_ERR_ARG, NULL);
    }
    if (MPI_COMM_NULL == comm) {
        return api_raise(comm, MPI_ERR_COMM, NULL);
    }
    *stream = stream_of_comm(comm);
    return MPI_SUCCESS;
}

/* ---- communication ---- */

/* Raises the error of a call, which is that of an open group too. */
static int refuse(MPI_Comm comm, int error_class, const char *text)
{
    return api_group_result(api_raise(comm, error_class, text));
}

int MPIX_Allreduce_enqueue_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                             MPI_Comm comm)
{
    MPIX_Stream s;

    if (!api_mpi_is_up() || MPI_COMM_NULL == comm) {
        return refuse(comm, MPI_ERR_COMM, NULL);
    }
    s = stream_of_comm(comm);
    if (MPIX_STREAM_NULL == s) {
        return refuse(comm, MPI_ERR_COMM,
                      "MPIX_Allreduce_enqueue: the communicator has no stream: make one by "
                      "MPIX_Stream_comm_create");
    }
    return gpusym_allreduce_on_stream_c(sendbuf, recvbuf, count, datatype, op, comm, s->stream);
}

int MPIX_Allreduce_enqueue(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                           MPI_Comm comm)
{
    return MPIX_Allreduce_enqueue_c(sendbuf, recvbuf, count, datatype, op, comm);
}

static int no_messages(MPI_Comm comm)
{
    return refuse(comm, MPI_ERR_UNSUPPORTED_OPERATION,
                  "gpusym has no messages on streams: synchronize the stream and call MPI_Send and MPI_Recv, or "
                  "use a collective on the stream (gpusym.h)");
}

int MPIX_Send_enqueue(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm)
{
    (void) buf;
    (void) count;
    (void) datatype;
    (void) dest;
    (void) tag;
    return no_messages(comm);
}

int MPIX_Recv_enqueue(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                      MPI_Status *status)
{
    (void) buf;
    (void) count;
    (void) datatype;
    (void) source;
    (void) tag;
    (void) status;
    return no_messages(comm);
}

int MPIX_Isend_enqueue(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                       MPI_Request *request)
{
    (void) request;
    return MPIX_Send_enqueue(buf, count, datatype, dest, tag, comm);
}

int MPIX_Irecv_enqueue(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                       MPI_Request *request)
{
    (void) request;
    return MPIX_Recv_enqueue(buf, count, datatype, source, tag, comm, MPI_STATUS_IGNORE);
}

int MPIX_Wait_enqueue(MPI_Request *request, MPI_Status *status)
{
    (void) request;
    (void) status;
    return no_messages(MPI_COMM_NULL);
}

int MPIX_Waitall_enqueue(int count, MPI_Request array_of_requests[], MPI_Status array_of_statuses[])
{
    (void) count;
    (void) array_of_requests;
    (void) array_of_statuses;
    return no_messages(MPI_COMM_NULL);
}
