/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: what the ranks of a window tell each other of their memory, and what each of them then takes for its parts. All
 * memory of the others, and segments, have one size, which nobody but the device and the system know.
 */
#include "mca/osc/gpusym/window.h"

#include "mca/common/gpusym/gpus.h"
#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/gpusym/shm/segment.h"
#include "test/fuzz/fuzz.h"

enum { RANKS = 4 };

static char *const memory = (char *) ((uintptr_t) 1 << 40); /* which nobody touches */
static uint64_t there;                                      /* bytes of it */
static char page[1 << 20];

static int reg_map(uint32_t key, void **base, uint64_t *size)
{
    if (0 == key % 4) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    *base = memory;
    *size = there;
    return GPUSYM_SUCCESS;
}

/* Segments are as long as is asked for, or are refused. */
static int segment_map(uint64_t magic, uint64_t page_magic, uint64_t bytes, void **base)
{
    if (magic == page_magic) {
        MUST(bytes <= sizeof page);
        *base = page;
        return GPUSYM_SUCCESS;
    }
    *base = memory;
    return bytes == there ? GPUSYM_SUCCESS : GPUSYM_ERR_UNREACHABLE;
}

#define gpusym_reg_map(dev, gpu, peer, key, base, size) reg_map(key, base, size)
#define gpusym_segment_map(id, magic, bytes, base) segment_map(magic, PAGE_MAGIC, bytes, base)
#define gpusym_pages_peer(id, peer) ((void) (id), *(peer) = NULL, GPUSYM_SUCCESS)
#define gpusym_p2p_gpu_open(mem, gpu) ((void) (mem), (void) (gpu), GPUSYM_SUCCESS)
#define gpusym_device() NULL
#define gpusym_device_for_memory() NULL
#include "mca/osc/gpusym/window.c"

int osc_gpusym_output;

static void read_card(fuzz_input_t *in, card_t *card)
{
    const unsigned how = (unsigned) fuzz_number(in, 1);

    card->bytes = fuzz_number(in, 1 + how % 8);
    card->off = fuzz_number(in, how & 8 ? 8 : 1);
    card->key = (uint32_t) fuzz_number(in, how & 16 ? 1 : 0);
    card->shared = 0 != (how & 32);
    card->gpu = 0 != (how & 64);
    card->valid = how < 250;
}

/* What is taken for a part lies in memory that there is. */
static void check_part(const osc_gpusym_part_t *part, uint64_t room)
{
    if (part->near && part->reached && 0 != part->bytes) {
        MUST(NULL != part->base);
        const uint64_t at = (uint64_t) ((uintptr_t) part->base - (uintptr_t) memory);
        MUST(at <= room && part->bytes <= room - at);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    const unsigned how = (unsigned) fuzz_number(&in, 1);
    osc_gpusym_part_t part[RANKS];
    osc_gpusym_window_t w;
    card_t card[RANKS];

    memset(part, 0, sizeof part);
    memset(&w, 0, sizeof w);
    memset(card, 0, sizeof card);
    there = fuzz_number(&in, 1 + how % 6);
    w.part = part;
    w.n = 1 + how / 8 % RANKS;
    w.rank = how / 32 % w.n;
    w.page = 0 == w.rank ? page : NULL;
    w.in_line = how < 128;
    for (uint32_t i = 0; i < w.n; i++) {
        part[i].here = part[i].near = true;
        read_card(&in, &card[i]);
    }
    if (w.in_line && 0 == w.rank && 0 != there) { /* it knows what it has */
        w.memory = memory;
        w.bytes = there;
    }
    if (map_all(&w, card)) {
        for (uint32_t i = 0; i < w.n; i++) {
            if (w.in_line || i != w.rank) {
                check_part(&part[i], there);
            }
        }
    }
    return 0;
}
