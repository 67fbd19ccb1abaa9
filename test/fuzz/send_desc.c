/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: both sides of the table of send descriptors (p2p/send_desc.h), which a peer writes. The own table is the peer's
 * too.
 */
#include "mca/common/gpusym/p2p/send_desc.c"
#include "test/fuzz/fuzz.h"

enum { SLOT = 3, ENTRIES = 4, STEPS = 48 };

static gpusym_peer_t *self;

static void open_self(void)
{
    gpusym_pages_id_t id;

    if (NULL == self) {
        MUST(GPUSYM_SUCCESS == gpusym_pages_open(&id) && GPUSYM_SUCCESS == gpusym_pages_peer(&id, &self));
    }
    MUST(GPUSYM_SUCCESS == gpusym_send_descs_open(SLOT));
    (void) gpusym_send_descs_attach(self, SLOT);
}

/* The peer writes over one of its first entries: anywhere, or what a sender could have written but for its fields. */
static void write_entry(fuzz_input_t *in)
{
    entry_t *entry = &own.table->entry[fuzz_number(in, 1) % ENTRIES];

    if (fuzz_number(in, 1) % 2) {
        const size_t at = fuzz_number(in, 1) % (offsetof(entry_t, room) / 8) * 8;
        fuzz_take(in, (char *) entry + at, 8);
        return;
    }
    gpusym_offer_t o = {.to = SLOT};
    const uint64_t number = fuzz_number(in, 2);
    o.kind = (uint32_t) fuzz_number(in, 1);
    o.bytes = fuzz_number(in, fuzz_number(in, 1) % 9);
    o.off = fuzz_number(in, 8);
    o.key = (uint32_t) fuzz_number(in, 4);
    *entry = (entry_t){.bytes = o.bytes,
                       .to = o.to,
                       .first = {.kind = o.kind, .key = o.key, .off = o.off, .check = check_of(number, &o)},
                       .word = word_make(number, 0, GPUSYM_SEND_DESC_OFFERED)};
}

static void write_table(fuzz_input_t *in)
{
    const size_t at = fuzz_number(in, 1) % (offsetof(table_t, with) / 8) * 8;

    fuzz_take(in, (char *) own.table + at, 8);
}

static void claimed(gpusym_send_desc_t *p, fuzz_input_t *in)
{
    const gpusym_push_t push = {.bytes = fuzz_number(in, 2)};
    int status;

    MUST(p->index < GPUSYM_SEND_DESC_MAX && p->offer.to == SLOT);
    MUST(p->offer.kind >= GPUSYM_SEND_DESC_INLINE && p->offer.kind <= GPUSYM_SEND_DESC_FAILED);
    MUST(GPUSYM_SEND_DESC_INLINE != p->offer.kind || p->offer.bytes <= GPUSYM_SEND_DESC_ROOM);
    MUST(p->room == own.table->entry[p->index].room);
    (void) gpusym_send_desc_ask_push(p, &push);
    (void) gpusym_send_desc_take_back(p);
    (void) gpusym_send_desc_ask_pipeline(p);
    (void) gpusym_send_desc_begin_pipeline(p);
    (void) gpusym_send_desc_is_filled(p);
    const int state = gpusym_send_desc_state_of(p, &status);
    MUST(GPUSYM_ERR_CORRUPT == state || (state >= GPUSYM_SEND_DESC_OFFERED && state <= GPUSYM_SEND_DESC_DONE));
    MUST(status <= 0);
    gpusym_send_desc_end(p, fuzz_number(in, 1) % 2 ? GPUSYM_ERR : GPUSYM_SUCCESS);
}

static void receive(fuzz_input_t *in)
{
    uint8_t rts[GPUSYM_RTS];
    gpusym_send_desc_t p;
    uint64_t bytes;

    switch (fuzz_number(in, 1) % 4) {
    case 0:
        fuzz_take(in, rts, sizeof rts);
        if (GPUSYM_SUCCESS == gpusym_send_desc_claim(self, rts, &p)) {
            claimed(&p, in);
        }
        break;
    case 1: {
        const uint32_t index = (uint32_t) fuzz_number(in, 1) % ENTRIES;
        rts_make(rts, index, word_number(own.table->entry[index].word));
        if (GPUSYM_SUCCESS == gpusym_send_desc_claim(self, rts, &p)) {
            claimed(&p, in);
        }
        break;
    }
    case 2:
        if (GPUSYM_SUCCESS == gpusym_send_desc_claim_oldest(self, 0, 0, NULL, 0, &p)) {
            claimed(&p, in);
        }
        break;
    default:
        (void) gpusym_send_desc_oldest_bytes(self, 0, 0, &bytes);
    }
}

/* A message of this process, whose receiver writes what it likes. */
static void send(fuzz_input_t *in)
{
    const gpusym_offer_t o = {.to = SLOT, .bytes = 1000, .kind = GPUSYM_SEND_DESC_PINNED};
    uint8_t rts[GPUSYM_RTS];
    gpusym_push_t push;
    uint32_t index;
    int status;

    if (GPUSYM_SUCCESS != gpusym_send_desc_offer(&o, NULL, &index, rts)) {
        return;
    }
    const size_t at = fuzz_number(in, 1) % (offsetof(entry_t, room) / 8) * 8;
    entry_t *entry = &own.table->entry[index];
    entry->word = word_make(word_number(entry->word), 0, (gpusym_send_desc_state_t) (fuzz_number(in, 1) % 10));
    fuzz_take(in, (char *) entry + at, 8);
    const int state = gpusym_send_desc_state(index, &status);
    MUST(GPUSYM_ERR_CORRUPT == state || (state >= GPUSYM_SEND_DESC_OFFERED && state <= GPUSYM_SEND_DESC_DONE));
    MUST(GPUSYM_SUCCESS != gpusym_send_desc_take_push(index, &push) || push.bytes <= o.bytes);
    (void) gpusym_send_desc_take_pipeline(index);
    gpusym_send_desc_pushed(index, GPUSYM_SUCCESS);
    gpusym_send_desc_free(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t uuid[16] = {1};
    fuzz_input_t in = {data, size};

    open_self();
    for (unsigned step = 0; step < STEPS && in.left > 0; step++) {
        switch (fuzz_number(&in, 1) % 5) {
        case 0:
            write_table(&in);
            break;
        case 1:
        case 2:
            write_entry(&in);
            break;
        case 3:
            receive(&in);
            break;
        default:
            send(&in);
        }
        (void) gpusym_send_descs_from(self);
        (void) gpusym_send_descs_into_gpu(SLOT);
        gpusym_send_descs_use_gpu(uuid);
        (void) gpusym_send_descs_gpu_shared(uuid);
    }
    MUST(0 == gpusym_send_descs_live());
    memset(own.table, 0, offsetof(table_t, entry));
    memset(own.table->entry, 0, ENTRIES * sizeof(entry_t));
    gpusym_send_descs_close();
    return 0;
}
