/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The host's view of kernels.def: names, validity, dispatch, cutting.
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

static uint64_t round_up(uint64_t a, uint64_t unit)
{
    return (a + unit - 1) / unit * unit;
}

/* Two-shot: every block has a span of the message, cut into chunks of equal length. */
static uint64_t plan_two_shot(gpusym_work_t *w, uint32_t chunk_bytes)
{
    const uint64_t row = (uint64_t)GPUSYM_PACK * w->nranks, rows = w->stage_room / (4 * row);
    const uint64_t packs = (w->bytes + GPUSYM_PACK - 1) / GPUSYM_PACK;
    if (w->nblocks > rows) {
        w->nblocks = (uint32_t)rows;
    }
    const uint64_t stage = rows / w->nblocks * row;
    w->stage_bytes = (uint32_t)(stage < UINT32_MAX / row * row ? stage : UINT32_MAX / row * row);
    uint64_t most = w->stage_bytes / GPUSYM_PACK; /* packs of a chunk */
    if (0 != chunk_bytes && round_up(chunk_bytes, row) / GPUSYM_PACK < most) {
        most = round_up(chunk_bytes, row) / GPUSYM_PACK;
    }
    w->span = round_up((packs + w->nblocks - 1) / w->nblocks, w->nranks);
    const uint64_t chunks = (w->span + most - 1) / most;
    w->chunk = (uint32_t)round_up((w->span + chunks - 1) / chunks, w->nranks);
    return chunks + 1; /* a barrier after each phase but the last, which only copies out */
}

/* One-shot: epochs of equal length, as few as the LL areas allow. */
static uint64_t plan_one_shot(gpusym_work_t *w)
{
    const uint64_t packs = (w->bytes + GPUSYM_PACK - 1) / GPUSYM_PACK;
    const uint64_t most = gpusym_ll_payload(w->ll_bytes) / GPUSYM_PACK, epochs = (packs + most - 1) / most;
    w->chunk = (uint32_t)((packs + epochs - 1) / epochs);
    return (packs + w->chunk - 1) / w->chunk;
}

uint64_t gpusym_kernel_plan(unsigned alg, gpusym_work_t *w, uint32_t chunk_bytes)
{
    return GPUSYM_ALG_AGXLL_R == alg ? plan_one_shot(w) : plan_two_shot(w, chunk_bytes);
}
