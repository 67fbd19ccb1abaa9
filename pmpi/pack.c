/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * libgpusym_mpi: MPI_Pack, MPI_Unpack, their external forms and MPI_Sendrecv_replace on GPU memory, by MPI's profiling
 * interface: a library to be loaded before the program's (LD_PRELOAD) or linked with it.  For Open MPI 4.1, which does
 * these calls by the CPU, where no component sees them.  From 5.0 on the accelerator component serves them.
 *
 * Calls without GPU memory, and calls with arguments that are wrong, are passed to Open MPI.  Fortran's entry points do
 * not come by C's, so the common spellings of their names are here too.
 */
#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mca/common/gpusym/device/plain.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/ompi/layout.h"

/* ---- memory ---- */

/* The GPU that some of the elements are memory of; NULL: they are host memory, managed memory included. */
static gpusym_gpu_t *gpu_of_elements(const gpusym_layout_t *l, const void *buf)
{
    const gpusym_device_t *dev = gpusym_device_need();
    const uintptr_t first = (uintptr_t) buf + (uintptr_t) l->lo;
    gpusym_gpu_t *gpu = NULL;
    gpusym_mem_t mem;

    if (NULL == dev) {
        return NULL;
    }
    const gpusym_plain_t place = gpusym_plain_place((const void *) first);
    if (GPUSYM_PLAIN_NO != place && gpusym_plain_place((const void *) (first + l->span - 1)) == place) {
        return NULL;
    }
    gpusym_layout_where(dev, l, buf, &mem);
    if (GPUSYM_MEM_DEVICE != mem.kind || GPUSYM_SUCCESS != dev->gpu_open(&mem, &gpu)) {
        return NULL;
    }
    return gpu;
}

/* The same of packed memory. */
static gpusym_gpu_t *gpu_of(const void *p)
{
    const gpusym_layout_t byte = {.kind = GPUSYM_LAYOUT_RUN, .bytes = 1, .span = 1};
    return gpu_of_elements(&byte, p);
}

#define FAILED                                                                         \
    "%s could not copy GPU memory:\n"                                                  \
    "    %s\n"                                                                         \
    "\n"                                                                               \
    "Check that the memory has not been freed, that the GPU has not been reset, and\n" \
    "that host memory is left.\n"

/* Ends a call that failed by itself, not in Open MPI. */
static int call_failed(MPI_Comm comm, const char *call, int rc)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&told)) {
        gpusym_help(FAILED, call,
                    GPUSYM_ERR_NO_MEMORY == rc ? "no host memory for what stands in for it"
                                               : gpusym_current.dev->error());
    }
    PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

/* ---- elements, and what stands for them in host memory ---- */

/* The elements of a call. */
typedef struct {
    gpusym_layout_t layout;
    char *buf;         /* the caller's */
    gpusym_gpu_t *gpu; /* NULL: they are in host memory */
    char *memory;      /* what stands for them, if they are not: `layout.span` bytes, and as many packed ones behind;
                        * of which only what is touched takes memory, since the span may be terabytes */
    char *host;        /* the address that Open MPI is given in place of buf */
} elements_t;

/* False: the call is Open MPI's, be it to report an error. */
static bool elements_find(elements_t *e, const void *buf, int count, MPI_Datatype type)
{
    if (count <= 0 || MPI_DATATYPE_NULL == type || NULL == type ||
        0 == (type->super.flags & OPAL_DATATYPE_FLAG_COMMITTED)) {
        return false;
    }
    memset(e, 0, sizeof(*e));
    gpusym_layout_find((size_t) count, type, &e->layout);
    e->buf = (char *) (uintptr_t) buf;
    e->host = e->buf;
    if (0 == e->layout.bytes) {
        return false;
    }
    e->gpu = gpu_of_elements(&e->layout, buf);
    return true;
}

static void elements_drop(elements_t *e)
{
    if (NULL != e->memory) {
        munmap(e->memory, e->layout.span + e->layout.bytes);
    }
}

/* Makes host memory that Open MPI can use in place of the elements.  fill: with their bytes.  GPUSYM_ERR_. */
static int elements_to_host(elements_t *e, bool fill)
{
    const gpusym_layout_t *l = &e->layout;

    if (NULL == e->gpu) {
        return GPUSYM_SUCCESS;
    }
    e->memory =
        mmap(NULL, l->span + l->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (MAP_FAILED == e->memory) {
        e->memory = NULL;
        return GPUSYM_ERR_NO_MEMORY;
    }
    e->host = (char *) ((uintptr_t) e->memory - (uintptr_t) l->lo);
    if (!fill) {
        return GPUSYM_SUCCESS;
    }
    const int rc = gpusym_layout_pack(gpusym_current.dev, e->gpu, l, e->memory + l->span, e->buf, l->bytes);
    return GPUSYM_SUCCESS == rc ? gpusym_layout_scatter(l, e->host, e->memory + l->span, l->bytes) : rc;
}

/* The way back. */
static int elements_from_host(elements_t *e)
{
    const gpusym_layout_t *l = &e->layout;

    if (NULL == e->gpu) {
        return GPUSYM_SUCCESS;
    }
    const int rc = gpusym_layout_gather(l, e->host, e->memory + l->span, l->bytes);
    return GPUSYM_SUCCESS == rc
               ? gpusym_layout_unpack(gpusym_current.dev, e->gpu, l, e->buf, e->memory + l->span, l->bytes)
               : rc;
}

/* ---- packing ---- */

/* Packed memory of a call: `size` bytes from the position on, or what stands for them in host memory. */
typedef struct {
    char *at;
    size_t size;
    gpusym_gpu_t *gpu; /* NULL: it is host memory */
    char *host;        /* owned, unless it is at */
} packed_t;

static int packed_to_host(packed_t *p, void *at, size_t size, bool fill)
{
    *p = (packed_t){.at = at, .size = size, .gpu = gpu_of(at), .host = at};
    if (NULL == p->gpu) {
        return GPUSYM_SUCCESS;
    }
    p->host = malloc(size);
    if (NULL == p->host) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    return fill ? gpusym_current.dev->copy(p->gpu, p->host, at, size) : GPUSYM_SUCCESS;
}

static int packed_from_host(const packed_t *p, size_t used)
{
    return NULL != p->gpu ? gpusym_current.dev->copy(p->gpu, p->at, p->host, used) : GPUSYM_SUCCESS;
}

static void packed_drop(packed_t *p)
{
    if (NULL != p->gpu) {
        free(p->host);
    }
}

/* Whether `need` bytes at a position are inside of `size`. */
static bool has_room(MPI_Aint position, MPI_Aint size, size_t need)
{
    return position >= 0 && position <= size && need <= (size_t) (size - position);
}

int MPI_Pack(const void *inbuf, int incount, MPI_Datatype type, void *outbuf, int outsize, int *position, MPI_Comm comm)
{
    packed_t out;
    elements_t in;
    int rc;

    if (NULL == position || MPI_COMM_NULL == comm || !elements_find(&in, inbuf, incount, type) ||
        !has_room(*position, outsize, in.layout.bytes) ||
        (NULL == in.gpu && NULL == gpu_of((char *) outbuf + *position))) {
        return PMPI_Pack(inbuf, incount, type, outbuf, outsize, position, comm);
    }
    if (NULL != in.gpu) { /* packed memory of any kind */
        rc = gpusym_layout_pack(gpusym_current.dev, in.gpu, &in.layout, (char *) outbuf + *position, inbuf,
                                in.layout.bytes);
    } else {
        rc = packed_to_host(&out, (char *) outbuf + *position, in.layout.bytes, false);
        if (GPUSYM_SUCCESS == rc) {
            rc = gpusym_layout_gather(&in.layout, inbuf, out.host, out.size);
        }
        if (GPUSYM_SUCCESS == rc) {
            rc = packed_from_host(&out, out.size);
        }
        packed_drop(&out);
    }
    if (GPUSYM_SUCCESS != rc) {
        return call_failed(comm, "MPI_Pack", rc);
    }
    *position += (int) in.layout.bytes;
    return MPI_SUCCESS;
}

int MPI_Unpack(const void *inbuf, int insize, int *position, void *outbuf, int outcount, MPI_Datatype type,
               MPI_Comm comm)
{
    elements_t out;
    packed_t in;
    int rc;

    if (NULL == position || MPI_COMM_NULL == comm || !elements_find(&out, outbuf, outcount, type) ||
        !has_room(*position, insize, out.layout.bytes) ||
        (NULL == out.gpu && NULL == gpu_of((const char *) inbuf + *position))) {
        return PMPI_Unpack(inbuf, insize, position, outbuf, outcount, type, comm);
    }
    if (NULL != out.gpu) {
        rc = gpusym_layout_unpack(gpusym_current.dev, out.gpu, &out.layout, outbuf, (const char *) inbuf + *position,
                                  out.layout.bytes);
    } else {
        rc = packed_to_host(&in, (char *) (uintptr_t) inbuf + *position, out.layout.bytes, true);
        if (GPUSYM_SUCCESS == rc) {
            rc = gpusym_layout_scatter(&out.layout, outbuf, in.host, in.size);
        }
        packed_drop(&in);
    }
    if (GPUSYM_SUCCESS != rc) {
        return call_failed(comm, "MPI_Unpack", rc);
    }
    *position += (int) out.layout.bytes;
    return MPI_SUCCESS;
}

/* ---- external forms: Open MPI converts, in host memory ---- */

int MPI_Pack_external(const char datarep[], const void *inbuf, int incount, MPI_Datatype type, void *outbuf,
                      MPI_Aint outsize, MPI_Aint *position)
{
    MPI_Aint need = 0, used = 0;
    elements_t in;
    packed_t out;
    int rc, ret = MPI_SUCCESS;

    if (NULL == position || !elements_find(&in, inbuf, incount, type) ||
        (NULL == in.gpu && NULL == gpu_of((char *) outbuf + *position)) ||
        MPI_SUCCESS != PMPI_Pack_external_size(datarep, incount, type, &need) ||
        !has_room(*position, outsize, (size_t) need)) {
        return PMPI_Pack_external(datarep, inbuf, incount, type, outbuf, outsize, position);
    }
    rc = packed_to_host(&out, (char *) outbuf + *position, (size_t) need, false);
    if (GPUSYM_SUCCESS == rc) {
        rc = elements_to_host(&in, true);
    }
    if (GPUSYM_SUCCESS == rc) {
        ret = PMPI_Pack_external(datarep, in.host, incount, type, out.host, need, &used);
    }
    if (GPUSYM_SUCCESS == rc && MPI_SUCCESS == ret) {
        rc = packed_from_host(&out, (size_t) used);
    }
    elements_drop(&in);
    packed_drop(&out);
    if (GPUSYM_SUCCESS != rc) {
        return call_failed(MPI_COMM_WORLD, "MPI_Pack_external", rc);
    }
    *position += used;
    return ret;
}

int MPI_Unpack_external(const char datarep[], const void *inbuf, MPI_Aint insize, MPI_Aint *position, void *outbuf,
                        int outcount, MPI_Datatype type)
{
    MPI_Aint need = 0, used = 0;
    elements_t out;
    packed_t in;
    int rc, ret = MPI_SUCCESS;

    if (NULL == position || !elements_find(&out, outbuf, outcount, type) ||
        (NULL == out.gpu && NULL == gpu_of((const char *) inbuf + *position)) ||
        MPI_SUCCESS != PMPI_Pack_external_size(datarep, outcount, type, &need) ||
        !has_room(*position, insize, (size_t) need)) {
        return PMPI_Unpack_external(datarep, inbuf, insize, position, outbuf, outcount, type);
    }
    rc = packed_to_host(&in, (char *) (uintptr_t) inbuf + *position, (size_t) need, true);
    if (GPUSYM_SUCCESS == rc) {
        rc = elements_to_host(&out, false);
    }
    if (GPUSYM_SUCCESS == rc) {
        ret = PMPI_Unpack_external(datarep, in.host, need, &used, out.host, outcount, type);
    }
    if (GPUSYM_SUCCESS == rc && MPI_SUCCESS == ret) {
        rc = elements_from_host(&out);
    }
    elements_drop(&out);
    packed_drop(&in);
    if (GPUSYM_SUCCESS != rc) {
        return call_failed(MPI_COMM_WORLD, "MPI_Unpack_external", rc);
    }
    *position += used;
    return ret;
}

/* ---- MPI_Sendrecv_replace ---- */

/* Exchanges packed elements in host memory: the second half of `packed` is received into.  *got: bytes received. */
static int exchange(char *packed, const gpusym_layout_t *l, const int peers[4], MPI_Comm comm, MPI_Status *status,
                    size_t *got)
{
    MPI_Datatype element; /* as many bytes as one of the caller's */
    MPI_Count bytes = 0;
    int rc;

    PMPI_Type_contiguous((int) (l->bytes / l->count), MPI_BYTE, &element);
    PMPI_Type_commit(&element);
    rc = PMPI_Sendrecv(packed, (int) l->count, element, peers[0], peers[1], packed + l->bytes, (int) l->count, element,
                       peers[2], peers[3], comm, status);
    PMPI_Type_free(&element);
    if (MPI_SUCCESS == rc) {
        PMPI_Get_elements_x(status, MPI_BYTE, &bytes);
    }
    *got = bytes > 0 ? (size_t) bytes : 0;
    return rc;
}

int MPI_Sendrecv_replace(void *buf, int count, MPI_Datatype type, int dest, int sendtag, int source, int recvtag,
                         MPI_Comm comm, MPI_Status *status)
{
    const int peers[4] = {dest, sendtag, source, recvtag};
    MPI_Status own;
    MPI_Status *const filled = MPI_STATUS_IGNORE == status ? &own : status;
    elements_t e;
    char *packed;
    size_t got = 0;
    int rc = GPUSYM_ERR_NO_MEMORY, ret = MPI_SUCCESS;

    if (MPI_COMM_NULL == comm || !elements_find(&e, buf, count, type) || NULL == e.gpu) {
        return PMPI_Sendrecv_replace(buf, count, type, dest, sendtag, source, recvtag, comm, status);
    }
    packed = malloc(2 * e.layout.bytes);
    if (NULL != packed) {
        rc = gpusym_layout_pack(gpusym_current.dev, e.gpu, &e.layout, packed, buf, e.layout.bytes);
    }
    if (GPUSYM_SUCCESS == rc) {
        ret = exchange(packed, &e.layout, peers, comm, filled, &got);
    }
    if (GPUSYM_SUCCESS == rc && got > 0) {
        rc = gpusym_layout_unpack(gpusym_current.dev, e.gpu, &e.layout, buf, packed + e.layout.bytes, got);
    }
    free(packed);
    return GPUSYM_SUCCESS == rc ? ret : call_failed(comm, "MPI_Sendrecv_replace", rc);
}

/* ---- Fortran: mpif.h and the module mpi, and mpi_f08, as gfortran and its like spell them.  Handles are integers; an
 * IERROR that was left out is NULL; the length of a text comes last, by value. ---- */

/* Fortran's MPI_BOTTOM is a variable of Open MPI's Fortran library, which C programs do not load. */
extern int mpi_fortran_bottom_ __attribute__((weak));

static void *buffer_f(void *buf)
{
    return NULL != &mpi_fortran_bottom_ && (void *) &mpi_fortran_bottom_ == buf ? MPI_BOTTOM : buf;
}

static void end_f(int rc, MPI_Fint *ierr)
{
    if (NULL != ierr) {
        *ierr = (MPI_Fint) rc;
    }
}

/* A text of Fortran, which ends with blanks, as C's. */
#define DATAREP_MAX 128
static const char *text_f(const char *text, size_t length, char copy[DATAREP_MAX])
{
    while (length > 0 && ' ' == text[length - 1]) {
        length--;
    }
    length = length < DATAREP_MAX ? length : DATAREP_MAX - 1;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

#define PACK(name)                                                                                      \
    void name(void *in, MPI_Fint *count, MPI_Fint *type, void *out, MPI_Fint *size, MPI_Fint *position, \
              MPI_Fint *comm, MPI_Fint *ierr);                                                          \
    void name(void *in, MPI_Fint *count, MPI_Fint *type, void *out, MPI_Fint *size, MPI_Fint *position, \
              MPI_Fint *comm, MPI_Fint *ierr)                                                           \
    {                                                                                                   \
        end_f(MPI_Pack(buffer_f(in), *count, PMPI_Type_f2c(*type), buffer_f(out), *size, position,      \
                       PMPI_Comm_f2c(*comm)),                                                           \
              ierr);                                                                                    \
    }
#define UNPACK(name)                                                                                    \
    void name(void *in, MPI_Fint *size, MPI_Fint *position, void *out, MPI_Fint *count, MPI_Fint *type, \
              MPI_Fint *comm, MPI_Fint *ierr);                                                          \
    void name(void *in, MPI_Fint *size, MPI_Fint *position, void *out, MPI_Fint *count, MPI_Fint *type, \
              MPI_Fint *comm, MPI_Fint *ierr)                                                           \
    {                                                                                                   \
        end_f(MPI_Unpack(buffer_f(in), *size, position, buffer_f(out), *count, PMPI_Type_f2c(*type),    \
                         PMPI_Comm_f2c(*comm)),                                                         \
              ierr);                                                                                    \
    }
#define PACK_EXTERNAL(name)                                                                                            \
    void name(char *datarep, void *in, MPI_Fint *count, MPI_Fint *type, void *out, MPI_Aint *size, MPI_Aint *position, \
              MPI_Fint *ierr, size_t length);                                                                          \
    void name(char *datarep, void *in, MPI_Fint *count, MPI_Fint *type, void *out, MPI_Aint *size, MPI_Aint *position, \
              MPI_Fint *ierr, size_t length)                                                                           \
    {                                                                                                                  \
        char text[DATAREP_MAX];                                                                                        \
        end_f(MPI_Pack_external(text_f(datarep, length, text), buffer_f(in), *count, PMPI_Type_f2c(*type),             \
                                buffer_f(out), *size, position),                                                       \
              ierr);                                                                                                   \
    }
#define UNPACK_EXTERNAL(name)                                                                                          \
    void name(char *datarep, void *in, MPI_Aint *size, MPI_Aint *position, void *out, MPI_Fint *count, MPI_Fint *type, \
              MPI_Fint *ierr, size_t length);                                                                          \
    void name(char *datarep, void *in, MPI_Aint *size, MPI_Aint *position, void *out, MPI_Fint *count, MPI_Fint *type, \
              MPI_Fint *ierr, size_t length)                                                                           \
    {                                                                                                                  \
        char text[DATAREP_MAX];                                                                                        \
        end_f(MPI_Unpack_external(text_f(datarep, length, text), buffer_f(in), *size, position, buffer_f(out), *count, \
                                  PMPI_Type_f2c(*type)),                                                               \
              ierr);                                                                                                   \
    }
#define SENDRECV_REPLACE(name)                                                                                     \
    void name(void *buf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *dest, MPI_Fint *sendtag, MPI_Fint *source,     \
              MPI_Fint *recvtag, MPI_Fint *comm, MPI_Fint *status, MPI_Fint *ierr);                                \
    void name(void *buf, MPI_Fint *count, MPI_Fint *type, MPI_Fint *dest, MPI_Fint *sendtag, MPI_Fint *source,     \
              MPI_Fint *recvtag, MPI_Fint *comm, MPI_Fint *status, MPI_Fint *ierr)                                 \
    {                                                                                                              \
        MPI_Status s = {0};                                                                                        \
        const int rc = MPI_Sendrecv_replace(buffer_f(buf), *count, PMPI_Type_f2c(*type), *dest, *sendtag, *source, \
                                            *recvtag, PMPI_Comm_f2c(*comm), &s);                                   \
        if (MPI_SUCCESS == rc && MPI_F_STATUS_IGNORE != status) {                                                  \
            PMPI_Status_c2f(&s, status);                                                                           \
        }                                                                                                          \
        end_f(rc, ierr);                                                                                           \
    }

PACK(mpi_pack_)
PACK(mpi_pack_f08_)
UNPACK(mpi_unpack_)
UNPACK(mpi_unpack_f08_)
PACK_EXTERNAL(mpi_pack_external_)
PACK_EXTERNAL(mpi_pack_external_f08_)
UNPACK_EXTERNAL(mpi_unpack_external_)
UNPACK_EXTERNAL(mpi_unpack_external_f08_)
SENDRECV_REPLACE(mpi_sendrecv_replace_)
SENDRECV_REPLACE(mpi_sendrecv_replace_f08_)
