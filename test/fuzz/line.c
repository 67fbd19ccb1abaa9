/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: what ranks of a host agree by (agree/): lines, entries, tables and notices that a peer has written. Two ranks
 * have lines in the slab of this process; rank 1's is the peer's.
 */
#include "mca/common/gpusym/agree/notices.h"
#include "mca/common/gpusym/agree/agreement.h"
#include "mca/common/gpusym/agree/status.h"
#include "mca/common/gpusym/agree/table.h"
#include "mca/common/gpusym/agree/tokens.h"
#include "test/fuzz/fuzz.h"

enum { RANKS = 2, STEPS = 64, RECORD = 40 };

static struct {
    gpusym_peer_t *peer[RANKS];
    gpusym_line_t *line[RANKS];
    uint64_t generation[RANKS], off[RANKS];
    gpusym_notices_t notices[RANKS];
} self;

static void open_self(void)
{
    gpusym_pages_id_t id;

    if (NULL != self.peer[0]) {
        return;
    }
    MUST(GPUSYM_SUCCESS == gpusym_pages_open(&id));
    for (unsigned r = 0; r < RANKS; r++) {
        MUST(GPUSYM_SUCCESS == gpusym_pages_peer(&id, &self.peer[r]));
        MUST(GPUSYM_SUCCESS == gpusym_pages_alloc(&self.off[r]));
        self.line[r] = gpusym_pages_line(self.off[r]);
        self.generation[r] = gpusym_line_generation(self.line[r]);
        MUST(GPUSYM_SUCCESS == gpusym_notices_open(&self.notices[r], RANKS, self.line[r]));
    }
}

/* Every rank of the rows. */
static void read_rows(const gpusym_table_row_t *rows)
{
    volatile uint64_t sum = 0;

    for (unsigned r = 0; r < RANKS; r++) {
        sum += rows[r].send_off + rows[r].recv_bytes;
    }
}

static void read_peer(gpusym_agreement_t *rc, gpusym_agreement_read_t *read, gpusym_notices_t *notices)
{
    unsigned char all[RANKS * RECORD];
    const gpusym_table_row_t *rows;
    gpusym_seen_t seen;

    if (gpusym_agreement_read(rc, read)) {
        MUST(read->bounce < 0 || (read->bounce_rank >= 0 && read->bounce_rank < RANKS));
        MUST(read->mismatch_rank < RANKS && read->corrupt_rank < RANKS);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        (void) gpusym_agreement_has_posted(rc, r, rc->seq);
        (void) gpusym_agreement_last(rc, r);
        (void) gpusym_agreement_has_voted(rc, r, rc->seq);
        (void) gpusym_agreement_is_ready(rc, r, rc->seq);
        (void) gpusym_agreement_is_done(rc, r, rc->seq);
        (void) gpusym_agreement_decide(rc, rc->seq, 0 != r);
        if (GPUSYM_TABLE_THERE == gpusym_table_find(rc, r, rc->seq, &rows)) {
            read_rows(rows);
        }
    }
    (void) gpusym_agreement_votes(rc, rc->seq);
    (void) gpusym_agreement_refused(rc, rc->seq);
    const int corrupt = gpusym_agreement_corrupt(rc, read), aborted = gpusym_agreement_aborted(rc, rc->seq);
    MUST(corrupt >= -1 && corrupt < RANKS && aborted >= -1 && aborted < RANKS);
    (void) gpusym_notices_read(notices, rc->line, rc->peer, all, RECORD);
    gpusym_peer_seen(self.peer[1], 1, &seen);
    MUST(NULL != memchr(seen.label, '\0', sizeof seen.label));
}

/* The peer writes 8 bytes of its line. */
static void write_line(fuzz_input_t *in)
{
    const size_t at = fuzz_number(in, 2) % (sizeof(gpusym_line_t) / 8) * 8;

    fuzz_take(in, (char *) self.line[1] + at, 8);
}

/* ... or what is most looked at. */
static void write_field(fuzz_input_t *in)
{
    gpusym_line_t *line = self.line[1];
    uint64_t *const field[] = {&line->table, &line->notices,       &line->board,
                               &line->go,    &line->entry[1].word, &line->vote[1]};

    *field[fuzz_number(in, 1) % (sizeof field / sizeof field[0])] = fuzz_number(in, 1 + fuzz_number(in, 1) % 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    static gpusym_line_t before[RANKS];

    open_self();
    memcpy(before, self.line[0], sizeof before[0]);
    memcpy(&before[1], self.line[1], sizeof before[1]);
    gpusym_agreement_t rc = {
        .nranks = RANKS, .line = self.line, .peer = self.peer, .generation = self.generation, .holder = 1};
    gpusym_agreement_read_t read = {0};
    gpusym_notices_t notices = self.notices[0];
    const unsigned char record[RECORD] = {1};

    gpusym_notices_write(&notices, record, RECORD);
    for (unsigned step = 0; step < STEPS && in.left > 0; step++) {
        switch (fuzz_number(&in, 1) % 4) {
        case 0: {
            const gpusym_post_t post = {.kind = (uint8_t) fuzz_number(&in, 1), .exact = true, .bytes = 8};
            (void) gpusym_agreement_post(&rc, &post, &read);
            break;
        }
        case 1:
            write_line(&in);
            break;
        default:
            write_field(&in);
        }
        if (0 != rc.seq) {
            read_peer(&rc, &read, &notices);
        }
    }
    memcpy(self.line[0], before, sizeof before[0]);
    memcpy(self.line[1], &before[1], sizeof before[1]);
    return 0;
}
