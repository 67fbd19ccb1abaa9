/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's datatypes and operations in the kernels' terms. Open MPI has checked that the operation is allowed on the
 * datatype; only the representation counts here.
 */
#include "mca/common/ompi/types.h"

#include "kernels/kernels.h"

#include <pthread.h>

typedef enum { SIGNED, UNSIGNED, REAL, COMPLEX } kind_t;

/* Predefined types by what their elements are; the library says how wide they are (0: not supported there). */
static const struct {
    struct ompi_predefined_datatype_t *dtype;
    kind_t kind;
} plain[] = {
    {&ompi_mpi_char, SIGNED},
    {&ompi_mpi_signed_char, SIGNED},
    {&ompi_mpi_short, SIGNED},
    {&ompi_mpi_int, SIGNED},
    {&ompi_mpi_long, SIGNED},
    {&ompi_mpi_long_long_int, SIGNED},
    {&ompi_mpi_int8_t, SIGNED},
    {&ompi_mpi_int16_t, SIGNED},
    {&ompi_mpi_int32_t, SIGNED},
    {&ompi_mpi_int64_t, SIGNED},
    {&ompi_mpi_aint, SIGNED},
    {&ompi_mpi_offset, SIGNED},
    {&ompi_mpi_count, SIGNED},
    {&ompi_mpi_integer, SIGNED},
    {&ompi_mpi_integer1, SIGNED},
    {&ompi_mpi_integer2, SIGNED},
    {&ompi_mpi_integer4, SIGNED},
    {&ompi_mpi_integer8, SIGNED},
    {&ompi_mpi_logical, SIGNED},
    {&ompi_mpi_logical1, SIGNED},
    {&ompi_mpi_logical2, SIGNED},
    {&ompi_mpi_logical4, SIGNED},
    {&ompi_mpi_logical8, SIGNED},
    {&ompi_mpi_unsigned_char, UNSIGNED},
    {&ompi_mpi_unsigned_short, UNSIGNED},
    {&ompi_mpi_unsigned, UNSIGNED},
    {&ompi_mpi_unsigned_long, UNSIGNED},
    {&ompi_mpi_unsigned_long_long, UNSIGNED},
    {&ompi_mpi_uint8_t, UNSIGNED},
    {&ompi_mpi_uint16_t, UNSIGNED},
    {&ompi_mpi_uint32_t, UNSIGNED},
    {&ompi_mpi_uint64_t, UNSIGNED},
    {&ompi_mpi_byte, UNSIGNED},
    {&ompi_mpi_c_bool, UNSIGNED},
    {&ompi_mpi_cxx_bool, UNSIGNED},
    {&ompi_mpi_float, REAL},
    {&ompi_mpi_double, REAL},
    {&ompi_mpi_real, REAL},
    {&ompi_mpi_real4, REAL},
    {&ompi_mpi_real8, REAL},
    {&ompi_mpi_dblprec, REAL},
    {&ompi_mpi_c_float_complex, COMPLEX},
    {&ompi_mpi_c_double_complex, COMPLEX},
    {&ompi_mpi_cxx_cplex, COMPLEX},
    {&ompi_mpi_cxx_dblcplex, COMPLEX},
    {&ompi_mpi_cplex, COMPLEX},
    {&ompi_mpi_dblcplex, COMPLEX},
    {&ompi_mpi_complex8, COMPLEX},
    {&ompi_mpi_complex16, COMPLEX},
};

/* Pairs, with the extent that an element must have for the kernels' layout. */
static const struct {
    struct ompi_predefined_datatype_t *dtype;
    int type;
} pairs[] = {
    {&ompi_mpi_float_int, GPUSYM_T_P_F32_I32}, {&ompi_mpi_double_int, GPUSYM_T_P_F64_I32},
    {&ompi_mpi_long_int, GPUSYM_T_P_I64_I32},  {&ompi_mpi_2int, GPUSYM_T_P_I32_I32},
    {&ompi_mpi_short_int, GPUSYM_T_P_I16_I32}, {&ompi_mpi_2real, GPUSYM_T_P_F32_F32},
    {&ompi_mpi_2dblprec, GPUSYM_T_P_F64_F64},  {&ompi_mpi_2integer, GPUSYM_T_P_I32_I32},
};

#define IDS 128           /* more than Open MPI has predefined types */
static int8_t by_id[IDS]; /* the kernels' type, or -1 */

/* The kernels' type of a kind and a size in bytes; -1: none. */
static int find_type(kind_t kind, size_t size)
{
    static const struct {
        kind_t kind;
        size_t bytes;
        int type;
    } types[] = {
        {SIGNED, 1, GPUSYM_T_I8},    {SIGNED, 2, GPUSYM_T_I16},   {SIGNED, 4, GPUSYM_T_I32},
        {SIGNED, 8, GPUSYM_T_I64},   {UNSIGNED, 1, GPUSYM_T_U8},  {UNSIGNED, 2, GPUSYM_T_U16},
        {UNSIGNED, 4, GPUSYM_T_U32}, {UNSIGNED, 8, GPUSYM_T_U64}, {REAL, 4, GPUSYM_T_F32},
        {REAL, 8, GPUSYM_T_F64},     {COMPLEX, 8, GPUSYM_T_C32},  {COMPLEX, 16, GPUSYM_T_C64},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (kind == types[i].kind && size == types[i].bytes) {
            return types[i].type;
        }
    }
    return -1;
}

/* Enters a predefined type whose extent is that of the kernels' type (-1: none). */
static void note_type(struct ompi_predefined_datatype_t *predefined, int type)
{
    const ompi_datatype_t *d = &predefined->dt;
    if (type >= 0 && d->id >= 0 && d->id < IDS &&
        (size_t) (d->super.ub - d->super.lb) == gpusym_type_bytes((unsigned) type)) {
        by_id[d->id] = (int8_t) type;
    }
}

/* Fills by_id. Once a process. */
static void fill_ids(void)
{
    memset(by_id, -1, sizeof by_id);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        note_type(plain[i].dtype, find_type(plain[i].kind, plain[i].dtype->dt.super.size));
    }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        note_type(pairs[i].dtype, pairs[i].type);
    }
}

int gpusym_mpi_type(struct ompi_datatype_t *dtype)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_ids);
    if (!ompi_datatype_is_predefined(dtype) || dtype->id < 0 || dtype->id >= IDS) {
        return -1;
    }
    return by_id[dtype->id];
}

int gpusym_mpi_op(struct ompi_op_t *op)
{
    static const struct {
        ompi_predefined_op_t *op;
        int id;
    } ops[] = {
        {&ompi_mpi_op_sum, GPUSYM_OP_SUM},       {&ompi_mpi_op_max, GPUSYM_OP_MAX},
        {&ompi_mpi_op_min, GPUSYM_OP_MIN},       {&ompi_mpi_op_prod, GPUSYM_OP_PROD},
        {&ompi_mpi_op_land, GPUSYM_OP_LAND},     {&ompi_mpi_op_lor, GPUSYM_OP_LOR},
        {&ompi_mpi_op_lxor, GPUSYM_OP_LXOR},     {&ompi_mpi_op_band, GPUSYM_OP_BAND},
        {&ompi_mpi_op_bor, GPUSYM_OP_BOR},       {&ompi_mpi_op_bxor, GPUSYM_OP_BXOR},
        {&ompi_mpi_op_minloc, GPUSYM_OP_MINLOC}, {&ompi_mpi_op_maxloc, GPUSYM_OP_MAXLOC},
    };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (op == &ops[i].op->op) {
            return ops[i].id;
        }
    }
    return -1;
}
