/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The host's view of kernels.def: names, validity, dispatch.
 */
#include "kernels/kernels.h"

int (*gpusym_kernel_sim_mc_members)(const void *mp, void **alias, unsigned max);
void *(*gpusym_kernel_sim_reach)(const void *p);
bool (*gpusym_kernel_sim_leaves)(void);
bool (*gpusym_kernel_sim_late)(void);

#define GS_NONE (-1) /* no schedule */

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
    const char *name;
    bool whole;
} collectives[] = {
#define GPUSYM_COLLECTIVE(id, name, whole) {#name, whole},
#include "kernels/kernels.def"
};

static const struct {
    const char *name;
    enum gpusym_reduces reduces;
    enum gpusym_protocol protocol;
    bool multicast;
    enum gpusym_family zero_copy;
    enum gpusym_plan plan;
} families[] = {
#define GPUSYM_FAMILY(id, next, reduces, protocol, multicast, zero_copy, plan) \
    {#id, GPUSYM_REDUCES_##reduces, GPUSYM_PROTOCOL_##protocol, multicast, GPUSYM_F_##zero_copy, GPUSYM_PLAN_##plan},
#include "kernels/kernels.def"
};

static const struct {
    const char *name, *doc;
    unsigned coll, family;
    int schedule;
} algorithms[] = {
#define GPUSYM_ALGORITHM(id, name, coll, family, schedule, doc) \
    {#name, doc, GPUSYM_COLL_##coll, GPUSYM_F_##family, GS_##schedule},
#include "kernels/kernels.def"
};

/* The specialised kernel of each triple; 0 (the first family's generic kernel, which is none of them): there is
 * none. */
static const unsigned char special[GPUSYM_F_COUNT][GPUSYM_OP_COUNT][GPUSYM_T_COUNT] = {
#define GPUSYM_KERNEL(f, o, t) [GPUSYM_F_##f][GPUSYM_OP_##o][GPUSYM_T_##t] = GPUSYM_K_##f##_##o##_##t,
#include "kernels/kernels.def"
};
static const unsigned char stream_special[GPUSYM_F_COUNT][GPUSYM_OP_COUNT][GPUSYM_T_COUNT] = {
#define GPUSYM_STREAM_KERNEL(f, o, t) [GPUSYM_F_##f][GPUSYM_OP_##o][GPUSYM_T_##t] = GPUSYM_K_STREAM_##f##_##o##_##t,
#include "kernels/kernels.def"
};
/* The generic kernel for streams of each family; 0: none. */
static const unsigned char stream_any[GPUSYM_F_COUNT] = {
#define GPUSYM_STREAM_FAMILY(id) [GPUSYM_F_##id] = GPUSYM_K_STREAM_##id,
#include "kernels/kernels.def"
};
_Static_assert(GPUSYM_K_COUNT <= 256, "a kernel's number fits a byte");
_Static_assert(sizeof(gpusym_work_t) <= 4096, "a descriptor fits the kernel parameters of every GPU");

static const char *const symbols[] = {
#define GPUSYM_FAMILY(id, ...) "gpusym_" #id "_ANY",
#include "kernels/kernels.def"
#define GPUSYM_KERNEL(f, o, t) "gpusym_" #f "_" #o "_" #t,
#include "kernels/kernels.def"
#define GPUSYM_STREAM_FAMILY(id) "gpusym_stream_" #id "_ANY",
#include "kernels/kernels.def"
#define GPUSYM_STREAM_KERNEL(f, o, t) "gpusym_stream_" #f "_" #o "_" #t,
#include "kernels/kernels.def"
};
_Static_assert(GPUSYM_K_COUNT == sizeof symbols / sizeof symbols[0], "and no number is left out");

static const char *const few_symbols[GPUSYM_K_FIRST_STREAM] = {
#define GPUSYM_FEW_FAMILY(id) [GPUSYM_F_##id] = "gpusym_few_" #id "_ANY",
#include "kernels/kernels.def"
#define GPUSYM_FEW_KERNEL(f, o, t) [GPUSYM_K_##f##_##o##_##t] = "gpusym_few_" #f "_" #o "_" #t,
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

unsigned gpusym_algorithm_collective(unsigned alg)
{
    return algorithms[alg].coll;
}

unsigned gpusym_algorithm_family(unsigned alg)
{
    return algorithms[alg].family;
}

int gpusym_algorithm_schedule(unsigned alg)
{
    return algorithms[alg].schedule;
}

const char *gpusym_family_name(unsigned family)
{
    return family < GPUSYM_F_COUNT ? families[family].name : NULL;
}

bool gpusym_family_reduces(unsigned family)
{
    return GPUSYM_REDUCES_NONE != families[family].reduces;
}

unsigned gpusym_family_zero_copy(unsigned family)
{
    return families[family].zero_copy;
}

enum gpusym_protocol gpusym_family_protocol(unsigned family)
{
    return families[family].protocol;
}

enum gpusym_plan gpusym_family_plan(unsigned family)
{
    return families[family].plan;
}

bool gpusym_family_copies(unsigned family)
{
    return GPUSYM_PROTOCOL_COPIES == families[family].protocol;
}

bool gpusym_family_ll128(unsigned family)
{
    return GPUSYM_PROTOCOL_LL128 == families[family].protocol;
}

bool gpusym_family_multicast(unsigned family)
{
    return families[family].multicast;
}

bool gpusym_algorithm_reproducible(unsigned alg)
{
    const unsigned family = algorithms[alg].family;
    return !gpusym_family_multicast(family) && (GS_NONE == algorithms[alg].schedule || !gpusym_family_reduces(family));
}

bool gpusym_algorithm_in_step(unsigned alg)
{
    return GS_NONE == algorithms[alg].schedule && !gpusym_family_copies(algorithms[alg].family);
}

bool gpusym_collective_whole(unsigned coll)
{
    return collectives[coll].whole;
}

bool gpusym_collective_reduces(unsigned coll)
{
    for (unsigned alg = 0; alg < GPUSYM_ALG_COUNT; alg++) {
        if (algorithms[alg].coll == coll && !gpusym_family_reduces(algorithms[alg].family)) {
            return false;
        }
    }
    return true;
}

const char *gpusym_collective_name(unsigned coll)
{
    return coll < GPUSYM_COLL_COUNT ? collectives[coll].name : NULL;
}

const char *gpusym_kernel_symbol(unsigned kernel)
{
    return kernel < GPUSYM_K_COUNT ? symbols[kernel] : NULL;
}

const char *gpusym_kernel_few_symbol(unsigned kernel)
{
    return kernel < GPUSYM_K_FIRST_STREAM ? few_symbols[kernel] : NULL;
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

/* What the switch can reduce: multimem.ld_reduce of the PTX ISA, with fp32 accumulation of the 16-bit floats. */
static bool switch_reduces(unsigned op, unsigned type)
{
    const bool is_int = 0 != (types[type].class & (GPUSYM_C_INT | GPUSYM_C_UINT));
    const bool is_half = GPUSYM_T_F16 == type || GPUSYM_T_BF16 == type;
    switch (op) {
    case GPUSYM_OP_SUM:
        return is_int ? types[type].bytes >= 4 : 0 != (types[type].class & GPUSYM_C_FLOAT);
    case GPUSYM_OP_MIN:
    case GPUSYM_OP_MAX:
        return is_int ? types[type].bytes >= 4 : is_half;
    case GPUSYM_OP_BAND:
    case GPUSYM_OP_BOR:
    case GPUSYM_OP_BXOR:
        return is_int;
    default:
        return false;
    }
}

bool gpusym_family_valid(unsigned family, unsigned op, unsigned type)
{
    if (!gpusym_family_reduces(family)) {
        return true;
    }
    if (!gpusym_op_valid(op, type)) {
        return false;
    }
    return GPUSYM_REDUCES_SWITCH != families[family].reduces || switch_reduces(op, type);
}

unsigned gpusym_kernel_family(unsigned kernel)
{
    static const unsigned char of_special[] = {
#define GPUSYM_KERNEL(family, op, type) GPUSYM_F_##family,
#include "kernels/kernels.def"
#define GPUSYM_STREAM_FAMILY(id) GPUSYM_F_##id,
#include "kernels/kernels.def"
#define GPUSYM_STREAM_KERNEL(family, op, type) GPUSYM_F_##family,
#include "kernels/kernels.def"
    };
    return kernel < GPUSYM_F_COUNT ? kernel : of_special[kernel - GPUSYM_F_COUNT];
}

unsigned gpusym_kernel_find(unsigned family, unsigned op, unsigned type)
{
    const unsigned kernel = gpusym_family_reduces(family) ? special[family][op][unsigned_twin(op, type)] : 0;
    return 0 != kernel ? kernel : family; /* the generic kernel's id is its family's */
}

unsigned gpusym_kernel_find_stream(unsigned family, unsigned op, unsigned type)
{
    const unsigned kernel = gpusym_family_reduces(family) ? stream_special[family][op][unsigned_twin(op, type)] : 0;
    const unsigned generic = 0 != stream_any[family] ? stream_any[family] : (unsigned) GPUSYM_K_COUNT;
    return 0 != kernel ? kernel : generic;
}

uint64_t *gpusym_kernel_sim_own(void)
{
    static _Thread_local uint64_t own[3 + 2 * GPUSYM_TEAM_MAX];
    return own;
}
