/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The host's view of kernels.def: names, validity, dispatch, epochs.
 */
#include "kernels/kernels.h"

static const char *const op_names[] = {
#define GPUSYM_OP(id, name, classes) #name,
#include "kernels/kernels.def"
};

static const unsigned op_classes[] = {
#define GPUSYM_OP(id, name, classes) classes,
#include "kernels/kernels.def"
};

static const struct {
    const char *name;
    unsigned char bytes, class;
} types[] = {
#define GPUSYM_TYPE(id, name, bytes, class) {#name, bytes, GPUSYM_C_##class},
#include "kernels/kernels.def"
};

static const struct {
    const char *name, *doc;
} algorithms[] = {
#define GPUSYM_ALGORITHM(id, name, coll, doc) {#name, doc},
#include "kernels/kernels.def"
};

/* The specialised kernel of each triple; 0 (the first algorithm's generic kernel, which is none of them): there is none. */
static const unsigned char special[GPUSYM_ALG_COUNT][GPUSYM_OP_COUNT][GPUSYM_T_COUNT] = {
#define GPUSYM_KERNEL(a, o, t) [GPUSYM_ALG_##a][GPUSYM_OP_##o][GPUSYM_T_##t] = GPUSYM_K_##a##_##o##_##t,
#include "kernels/kernels.def"
};

static const char *const symbols[] = {
#define GPUSYM_ALGORITHM(id, name, coll, doc) "gpusym_" #id "_ANY",
#include "kernels/kernels.def"
#define GPUSYM_KERNEL(a, o, t) "gpusym_" #a "_" #o "_" #t,
#include "kernels/kernels.def"
};

const char *gpusym_op_name(unsigned op)
{
    return op < GPUSYM_OP_COUNT ? op_names[op] : NULL;
}

const char *gpusym_type_name(unsigned type)
{
    return type < GPUSYM_T_COUNT ? types[type].name : NULL;
}

const char *gpusym_algorithm_name(unsigned alg)
{
    return alg < GPUSYM_ALG_COUNT ? algorithms[alg].name : NULL;
}

const char *gpusym_algorithm_doc(unsigned alg)
{
    return alg < GPUSYM_ALG_COUNT ? algorithms[alg].doc : NULL;
}

const char *gpusym_kernel_symbol(unsigned kernel)
{
    return kernel < GPUSYM_K_COUNT ? symbols[kernel] : NULL;
}

size_t gpusym_type_bytes(unsigned type)
{
    return type < GPUSYM_T_COUNT ? types[type].bytes : 0;
}

bool gpusym_op_valid(unsigned op, unsigned type)
{
    return op < GPUSYM_OP_COUNT && type < GPUSYM_T_COUNT && 0 != (op_classes[op] & types[type].class);
}

/* Operations to which a signed integer is what the unsigned one of its width is: one kernel serves both. */
static unsigned unsigned_twin(unsigned op, unsigned type)
{
    if (GPUSYM_OP_MIN == op || GPUSYM_OP_MAX == op) {
        return type;
    }
    switch (type) {
    case GPUSYM_T_I8:
        return GPUSYM_T_U8;
    case GPUSYM_T_I16:
        return GPUSYM_T_U16;
    case GPUSYM_T_I32:
        return GPUSYM_T_U32;
    case GPUSYM_T_I64:
        return GPUSYM_T_U64;
    default:
        return type;
    }
}

unsigned gpusym_kernel_find(unsigned alg, unsigned op, unsigned type)
{
    const unsigned kernel = special[alg][op][unsigned_twin(op, type)];
    return 0 != kernel ? kernel : alg; /* the generic kernel's id is its algorithm's */
}
