/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The tests' independent reference for collectives: which datatypes and operations MPI allows, what every
 * rank contributes, and what a reduction must be (what is only moved is a reduction over one rank).  Knows MPI's
 * handles, but calls no MPI reduction.
 *
 * Element i of rank r is a pure function of (seed, r, i, type, operation, ranks), so every rank computes the
 * whole reference alone.  Integers are computed modulo 2^bits; real and complex numbers in a wider type.
 */
#ifndef TEST_MPI_REF_H
#define TEST_MPI_REF_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the elements of a type, or of a part of it, look in memory. */
enum ref_scalar { REF_I8, REF_U8, REF_I16, REF_U16, REF_I32, REF_U32, REF_I64, REF_U64, REF_F32, REF_F64, REF_LD };

/* What MPI's chapter on reductions calls a type; decides the operations. */
enum ref_class {
    REF_CINT, /* C integer */
    REF_MINT, /* Fortran integer, multi-language type: no logical operations */
    REF_FLOAT,
    REF_COMPLEX,
    REF_LOGICAL, /* C bool, Fortran LOGICAL: 0 and 1 */
    REF_BYTE,
    REF_PAIR,
    REF_USER_SUM,    /* a predefined type with a user-defined, commutative operation */
    REF_USER_MAT,    /* 2 x 2 matrices, contiguous, with multiplication: not commutative */
    REF_USER_GAPS,   /* a vector with gaps, resized */
    REF_USER_STRUCT, /* a struct that begins behind its lower bound */
    REF_PLACED       /* data that begin before the address; no operation: only to be sent and received */
};

enum ref_op_id {
    REF_SUM,
    REF_PROD,
    REF_MIN,
    REF_MAX,
    REF_LAND,
    REF_LOR,
    REF_LXOR,
    REF_BAND,
    REF_BOR,
    REF_BXOR,
    REF_MINLOC,
    REF_MAXLOC,
    REF_USER
};

/* No element of any type is longer. */
#define REF_BYTES_MAX 40

/* What a byte of an element is. */
enum ref_byte { REF_GAP = 0 /* MPI must not touch it */, REF_DATA, REF_PADDING /* unspecified */ };

typedef struct {
    const char *name;
    MPI_Datatype mpi;
    enum ref_class cls;
    enum ref_scalar value;            /* the element, its real part, or the value of a pair */
    enum ref_scalar index;            /* pairs: the index */
    size_t index_at;                  /* pairs: offset of the index; complex: of the imaginary part */
    size_t bytes;                     /* extent: memory from one element to the next */
    unsigned char map[REF_BYTES_MAX]; /* enum ref_byte of every byte */
    MPI_Op user;                      /* REF_USER_*: the operation */
    bool derived;                     /* owned here, freed by ref_fini */
    ptrdiff_t lb;                     /* where an element's bytes begin, from the address that MPI is given */
    MPI_Datatype flat; /* another way to say the same data: `flats` of these make an element's data bytes, */
    int flats;         /* without its gaps; MPI_DATATYPE_NULL: there is none */
} ref_type_t;

typedef struct {
    const char *name;
    enum ref_op_id id;
    MPI_Op mpi; /* MPI_OP_NULL for REF_USER: the type has it */
} ref_op_t;

/* One reduction. */
typedef struct {
    const ref_type_t *type;
    const ref_op_t *op;
    uint64_t seed;
    int nranks;
    bool overflow; /* integers may overflow in SUM and PROD; false: no order of evaluation overflows */
} ref_case_t;

/* Makes the tables; after MPI_Init.  Types that this MPI library lacks are left out. */
void ref_init(void);
/* Frees the derived types and user operations; before MPI_Finalize. */
void ref_fini(void);

int ref_ntypes(void);
const ref_type_t *ref_type(int i);
int ref_nops(void);
const ref_op_t *ref_op(int i);
/* The type or operation of this name, or NULL. */
const ref_type_t *ref_type_find(const char *name);
const ref_op_t *ref_op_find(const char *name);

/* Whether the MPI standard allows op on type (user operations: only their own type). */
bool ref_allowed(const ref_type_t *type, const ref_op_t *op);
/* The handle to pass for (type, op). */
MPI_Op ref_mpi_op(const ref_type_t *type, const ref_op_t *op);

/* Writes elements [first, first + count) of rank's contribution to out, count * type->bytes of host memory of
 * any alignment; gaps and padding of out are left as they are. */
void ref_fill(const ref_case_t *c, int rank, uint64_t first, size_t count, void *out);

/* The result of elements [first, first + count): want as in ref_fill; tol: two numbers an element, the error
 * allowed in its real and imaginary part, 0 where the result must be exact. */
void ref_expect(const ref_case_t *c, uint64_t first, size_t count, void *want, long double *tol);

/* The same for the reduction over ranks [from, to) alone, in their order.  Of one rank: what ref_fill gives, exactly.
 */
void ref_expect_ranks(const ref_case_t *c, int from, int to, uint64_t first, size_t count, void *want,
                      long double *tol);

/* Whether element got is want within tol (two numbers).  Looks at data bytes only. */
bool ref_same(const ref_type_t *type, const void *got, const void *want, const long double *tol);

/* An element in words, into buf; returns buf. */
const char *ref_text(const ref_type_t *type, const void *element, char *buf, size_t size);

/* 64 well-mixed bits of x. */
uint64_t ref_mix(uint64_t x);

#endif
