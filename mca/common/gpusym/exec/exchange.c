/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Exchanges with the copier: see exchange.h.
 */
#include "mca/common/gpusym/exec/exchange.h"

#include <string.h>

/* Words of 4 bytes in a pack: a line has two. */
#define PACK_WORDS (GPUSYM_PACK / 4u)

static uint32_t packs_of(uint32_t bytes)
{
    return (bytes + GPUSYM_PACK - 1) / GPUSYM_PACK;
}

static bool is_marked(const gpusym_ll_line_t *line, uint32_t number)
{
    return __atomic_load_n(&line->half[0], __ATOMIC_ACQUIRE) >> 32 == number &&
           __atomic_load_n(&line->half[1], __ATOMIC_ACQUIRE) >> 32 == number;
}

void gpusym_exchange_clear(gpusym_exchange_t *x, uint32_t nin, uint32_t bytes)
{
    memset(&x->late, 0, sizeof x->late);
    memset(x->answer, 0, 2 * packs_of(bytes) * sizeof *x->answer);
    memset(x->sent, 0, 2 * nin * packs_of(bytes) * sizeof *x->sent);
}

bool gpusym_exchange_inputs(const gpusym_exchange_t *x, uint32_t nin, uint32_t bytes, uint32_t number,
                            char (*in)[GPUSYM_EXCHANGE_MAX])
{
    const uint32_t words = PACK_WORDS * packs_of(bytes);
    for (uint32_t i = 0; i < nin * words / 2; i++) {
        if (!is_marked(&x->sent[i], number)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < nin * words; i++) {
        const uint32_t data = (uint32_t) x->sent[i / 2].half[i % 2];
        memcpy(&in[i / words][4 * (i % words)], &data, sizeof data);
    }
    return true;
}

void gpusym_exchange_answer(gpusym_exchange_t *x, const void *answer, uint32_t bytes, uint32_t number)
{
    const uint32_t words = PACK_WORDS * packs_of(bytes);
    char padded[GPUSYM_EXCHANGE_MAX] = {0};
    memcpy(padded, answer, bytes);
    for (uint32_t i = 0; i < words; i++) {
        uint32_t data;
        memcpy(&data, &padded[4 * i], sizeof data);
        __atomic_store_n(&x->answer[i / 2].half[i % 2], (uint64_t) number << 32 | data, __ATOMIC_RELAXED);
    }
}

bool gpusym_exchange_late(const gpusym_exchange_t *x, uint32_t number)
{
    return is_marked(&x->late, number);
}
