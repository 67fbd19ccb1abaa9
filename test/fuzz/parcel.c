/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: both sides of the table of parcels (p2p/parcel.h), which a peer writes. The own table is the peer's too.
 */
#include "mca/common/gpusym/p2p/parcel.c"
#include "test/fuzz/fuzz.h"

enum { SLOT = 3, ENTRIES = 4, STEPS = 48 };

static gpusym_peer_t *self;

static void open_self(void)
{
    gpusym_pages_id_t id;

    if (NULL == self) {
        MUST(GPUSYM_SUCCESS == gpusym_pages_open(&id) && GPUSYM_SUCCESS == gpusym_pages_peer(&id, &self));
    }
    MUST(GPUSYM_SUCCESS == gpusym_parcels_open(SLOT));
    (void) gpusym_parcels_attach(self, SLOT);
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
                       .word = word_make(number, 0, GPUSYM_PARCEL_OFFERED)};
}

static void write_table(fuzz_input_t *in)
{
    const size_t at = fuzz_number(in, 1) % (offsetof(table_t, with) / 8) * 8;

    fuzz_take(in, (char *) own.table + at, 8);
}

static void claimed(gpusym_parcel_t *p, fuzz_input_t *in)
{
    const gpusym_push_t push = {.bytes = fuzz_number(in, 2)};
    int status;

    MUST(p->index < GPUSYM_PARCEL_MAX && p->offer.to == SLOT);
    MUST(p->offer.kind >= GPUSYM_PARCEL_INLINE && p->offer.kind <= GPUSYM_PARCEL_FAILED);
    MUST(GPUSYM_PARCEL_INLINE != p->offer.kind || p->offer.bytes <= GPUSYM_PARCEL_ROOM);
    MUST(p->room == own.table->entry[p->index].room);
    (void) gpusym_parcel_ask_push(p, &push);
    (void) gpusym_parcel_take_back(p);
    (void) gpusym_parcel_ask_pipe(p);
    (void) gpusym_parcel_begin_pipe(p);
    (void) gpusym_parcel_is_filled(p);
    const int state = gpusym_parcel_state_of(p, &status);
    MUST(GPUSYM_ERR_CORRUPT == state || (state >= GPUSYM_PARCEL_OFFERED && state <= GPUSYM_PARCEL_DONE));
    MUST(status <= 0);
    gpusym_parcel_end(p, fuzz_number(in, 1) % 2 ? GPUSYM_ERR : GPUSYM_SUCCESS);
}

static void receive(fuzz_input_t *in)
{
    uint8_t envelope[GPUSYM_ENVELOPE];
    gpusym_parcel_t p;
    uint64_t bytes;

    switch (fuzz_number(in, 1) % 4) {
    case 0:
        fuzz_take(in, envelope, sizeof envelope);
        if (GPUSYM_SUCCESS == gpusym_parcel_claim(self, envelope, &p)) {
            claimed(&p, in);
        }
        break;
    case 1: {
        const uint32_t index = (uint32_t) fuzz_number(in, 1) % ENTRIES;
        envelope_make(envelope, index, word_number(own.table->entry[index].word));
        if (GPUSYM_SUCCESS == gpusym_parcel_claim(self, envelope, &p)) {
            claimed(&p, in);
        }
        break;
    }
    case 2:
        if (GPUSYM_SUCCESS == gpusym_parcel_claim_oldest(self, 0, 0, NULL, 0, &p)) {
            claimed(&p, in);
        }
        break;
    default:
        (void) gpusym_parcel_oldest_bytes(self, 0, 0, &bytes);
    }
}

/* A message of this process, whose receiver writes what it likes. */
static void send(fuzz_input_t *in)
{
    const gpusym_offer_t o = {.to = SLOT, .bytes = 1000, .kind = GPUSYM_PARCEL_PINNED};
    uint8_t envelope[GPUSYM_ENVELOPE];
    gpusym_push_t push;
    uint32_t index;
    int status;

    if (GPUSYM_SUCCESS != gpusym_parcel_offer(&o, NULL, &index, envelope)) {
        return;
    }
    const size_t at = fuzz_number(in, 1) % (offsetof(entry_t, room) / 8) * 8;
    entry_t *entry = &own.table->entry[index];
    entry->word = word_make(word_number(entry->word), 0, (gpusym_parcel_state_t) (fuzz_number(in, 1) % 10));
    fuzz_take(in, (char *) entry + at, 8);
    const int state = gpusym_parcel_state(index, &status);
    MUST(GPUSYM_ERR_CORRUPT == state || (state >= GPUSYM_PARCEL_OFFERED && state <= GPUSYM_PARCEL_DONE));
    MUST(GPUSYM_SUCCESS != gpusym_parcel_take_push(index, &push) || push.bytes <= o.bytes);
    (void) gpusym_parcel_take_pipe(index);
    gpusym_parcel_pushed(index, GPUSYM_SUCCESS);
    gpusym_parcel_free(index);
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
        (void) gpusym_parcels_from(self);
        (void) gpusym_parcels_into_gpu(SLOT);
        gpusym_parcels_use_gpu(uuid);
        (void) gpusym_parcels_gpu_shared(uuid);
    }
    MUST(0 == gpusym_parcels_live());
    memset(own.table, 0, offsetof(table_t, entry));
    memset(own.table->entry, 0, ENTRIES * sizeof(entry_t));
    gpusym_parcels_close();
    return 0;
}
