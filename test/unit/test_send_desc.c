/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/p2p/send_desc.c: every transition within one process, which is a peer of its own;
 * then two processes, by fork, that make random ones at the same time, and that are killed.  A seed as the argument
 * repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mca/common/gpusym/p2p/send_desc.h"
#include "test/unit/random.h"
#include "test/unit/two.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)
#define IS(call, rc) assert_int_equal((call), (rc))

enum { SLOT = 3, CONTEXT = 77, TAG = 5 };
static gpusym_peer_t *self;
static unsigned char text[GPUSYM_SEND_DESC_ROOM + 1];

static int open_self(void **state)
{
    gpusym_pages_id_t id;
    (void) state;
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (unsigned char) next_random();
    }
    OK(gpusym_pages_open(&id));
    OK(gpusym_send_descs_open(SLOT));
    OK(gpusym_pages_peer(&id, &self));
    OK(gpusym_send_descs_attach(self, SLOT));
    return 0;
}

static int close_self(void **state)
{
    (void) state;
    gpusym_send_descs_close();
    gpusym_pages_close();
    return 0;
}

/* An offer to ourselves. */
static gpusym_offer_t offer_of(uint32_t kind, uint64_t bytes)
{
    return (gpusym_offer_t){.context = CONTEXT,
                            .tag = TAG,
                            .to = SLOT,
                            .bytes = bytes,
                            .kind = kind,
                            .key = 0x1234,
                            .off = 4096,
                            .gpu = 1,
                            .flags = 9};
}

static uint32_t put(const gpusym_offer_t *o, uint8_t rts[GPUSYM_RTS])
{
    uint32_t index = GPUSYM_SEND_DESC_MAX;
    OK(gpusym_send_desc_offer(o, text, &index, rts));
    return index;
}

static void expect_state(uint32_t index, int state, int status)
{
    int said = 99;
    IS(gpusym_send_desc_state(index, &said), state);
    IS(said, status);
}

static void expect_offer(const gpusym_send_desc_t *p, const gpusym_offer_t *o)
{
    assert_memory_equal(&p->offer, o, sizeof *o);
    assert_ptr_equal(p->peer, self);
}

/* ---- set-up ---- */

static void a_decision_is_made_once(void **state)
{
    (void) state;
    assert_true(gpusym_send_descs_attached_by(SLOT));
    assert_false(gpusym_send_descs_attached_by(SLOT + 1));
    assert_true(gpusym_send_descs_decide(SLOT));
    assert_true(gpusym_send_descs_from(self));
    assert_false(gpusym_send_descs_decide(SLOT + 1)); /* has not attached us */
    assert_false(gpusym_send_descs_decide(GPUSYM_SEND_DESC_SLOTS));
    IS(gpusym_send_descs_open(SLOT + 1), GPUSYM_ERR_NOT_AVAILABLE);
    OK(gpusym_send_descs_open(SLOT));
    IS(gpusym_send_descs_attach(self, SLOT + 1), GPUSYM_ERR_CORRUPT);
    IS(gpusym_send_descs_attach(self, GPUSYM_SEND_DESC_SLOTS), GPUSYM_ERR_NOT_AVAILABLE);
    gpusym_send_descs_close();
    assert_false(gpusym_send_descs_decide(SLOT));
    assert_false(gpusym_send_descs_from(self));
    IS(gpusym_send_descs_attach(self, SLOT), GPUSYM_ERR_NOT_AVAILABLE);
    IS(gpusym_send_descs_open(GPUSYM_SEND_DESC_SLOTS), GPUSYM_ERR_NOT_AVAILABLE);
    OK(gpusym_send_descs_open(SLOT));
    assert_false(gpusym_send_descs_from(self)); /* decided, but not attached */
    OK(gpusym_send_descs_attach(self, SLOT));
    assert_true(gpusym_send_descs_from(self));
    OK(gpusym_send_descs_open(SLOT));
}

static void a_late_attachment_changes_nothing(void **state)
{
    gpusym_pages_id_t id;
    (void) state;
    close_self(NULL);
    IS(gpusym_send_descs_open(SLOT), GPUSYM_ERR_NOT_AVAILABLE); /* no pages */
    OK(gpusym_pages_open(&id));
    OK(gpusym_pages_peer(&id, &self));
    OK(gpusym_send_descs_open(SLOT));
    assert_false(gpusym_send_descs_from(self));
    assert_false(gpusym_send_descs_decide(SLOT));
    OK(gpusym_send_descs_attach(self, SLOT));
    assert_false(gpusym_send_descs_decide(SLOT));
    assert_false(gpusym_send_descs_from(self));
}

static void where_host_memory_goes_is_told(void **state)
{
    const uint32_t *any = gpusym_send_descs_any_into_gpu();
    (void) state;
    assert_non_null(any);
    IS(*any, 0);
    assert_false(gpusym_send_descs_into_gpu(SLOT));
    gpusym_send_descs_tell_gpu(self, false);
    IS(*any, 0);
    for (unsigned i = 0; i < 2; i++) {
        gpusym_send_descs_tell_gpu(self, true);
        assert_true(gpusym_send_descs_into_gpu(SLOT) && 0 != *any);
    }
    assert_false(gpusym_send_descs_into_gpu(SLOT + 1));
    assert_false(gpusym_send_descs_into_gpu(GPUSYM_SEND_DESC_SLOTS));
    gpusym_send_descs_tell_gpu(self, false);
    assert_false(gpusym_send_descs_into_gpu(SLOT));
    assert_true(gpusym_send_descs_attached_by(SLOT));
    gpusym_send_descs_tell_gpu(self, true);
    gpusym_send_descs_close();
    assert_false(gpusym_send_descs_into_gpu(SLOT));
    assert_null(gpusym_send_descs_any_into_gpu());
    OK(gpusym_send_descs_open(SLOT));
    assert_false(gpusym_send_descs_into_gpu(SLOT));
    gpusym_send_descs_tell_gpu(self, true); /* without having attached */
    assert_false(gpusym_send_descs_into_gpu(SLOT) || gpusym_send_descs_attached_by(SLOT));
    OK(gpusym_send_descs_attach(self, SLOT));
}

/* ---- one process ---- */

static void data_within_come_whole(void **state)
{
    static const uint64_t sizes[] = {0, 1, 7, 8, GPUSYM_SEND_DESC_ROOM};
    (void) state;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        gpusym_send_desc_t p;
        uint8_t rts[GPUSYM_RTS];
        const gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_INLINE, sizes[i]);
        const uint32_t index = put(&o, rts);
        expect_state(index, GPUSYM_SEND_DESC_OFFERED, 0);
        OK(gpusym_send_desc_claim(self, rts, &p));
        expect_offer(&p, &o);
        assert_memory_equal(p.room, text, sizes[i]);
        expect_state(index, GPUSYM_SEND_DESC_CLAIMED, 0);
        gpusym_send_desc_end(&p, 0);
        expect_state(index, GPUSYM_SEND_DESC_DONE, 0);
        IS(gpusym_send_descs_live(), 1);
        gpusym_send_desc_free(index);
        gpusym_send_desc_free(index); /* without effect */
        IS(gpusym_send_descs_live(), 0);
        IS(gpusym_send_desc_claim(self, rts, &p), GPUSYM_ERR_NOT_AVAILABLE);
    }
}

static void wrong_offers_are_refused(void **state)
{
    uint8_t rts[GPUSYM_RTS];
    uint32_t index;
    gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_INLINE, GPUSYM_SEND_DESC_ROOM + 1);
    (void) state;
    IS(gpusym_send_desc_offer(&o, text, &index, rts), GPUSYM_ERR_BAD_PARAM);
    o = offer_of(0, 1);
    IS(gpusym_send_desc_offer(&o, text, &index, rts), GPUSYM_ERR_BAD_PARAM);
    o = offer_of(GPUSYM_SEND_DESC_FAILED + 1, 1);
    IS(gpusym_send_desc_offer(&o, text, &index, rts), GPUSYM_ERR_BAD_PARAM);
    o = offer_of(GPUSYM_SEND_DESC_PIPELINE, 1);
    o.to = GPUSYM_SEND_DESC_SLOTS;
    IS(gpusym_send_desc_offer(&o, text, &index, rts), GPUSYM_ERR_BAD_PARAM);
    IS(gpusym_send_descs_live(), 0);
}

static void an_error_reaches_the_sender(void **state)
{
    gpusym_send_desc_t p;
    uint8_t rts[GPUSYM_RTS];
    const gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_MAPPED, 1 << 20);
    const uint32_t index = put(&o, rts);
    (void) state;
    OK(gpusym_send_desc_claim(self, rts, &p));
    expect_offer(&p, &o);
    gpusym_send_desc_end(&p, GPUSYM_ERR_UNREACHABLE);
    expect_state(index, GPUSYM_SEND_DESC_DONE, GPUSYM_ERR_UNREACHABLE);
    gpusym_send_desc_free(index);
}

static void a_push_is_asked_for_and_made(void **state)
{
    gpusym_send_desc_t p;
    gpusym_push_t push = {0};
    uint8_t rts[GPUSYM_RTS];
    const gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_MAPPED, 1000);
    const gpusym_push_t wanted = {17, 64, 1000}, too_much = {17, 64, 1001};
    const uint32_t index = put(&o, rts);
    int status;
    (void) state;

    IS(gpusym_send_desc_take_push(index, &push), GPUSYM_ERR_NOT_AVAILABLE);
    OK(gpusym_send_desc_claim(self, rts, &p));
    IS(gpusym_send_desc_take_push(index, &push), GPUSYM_ERR_NOT_AVAILABLE);
    IS(gpusym_send_desc_take_back(&p), GPUSYM_ERR_NOT_AVAILABLE);
    IS(gpusym_send_desc_ask_push(&p, &too_much), GPUSYM_ERR_BAD_PARAM);
    OK(gpusym_send_desc_ask_push(&p, &wanted));
    OK(gpusym_send_desc_take_back(&p));
    IS(gpusym_send_desc_take_push(index, &push), GPUSYM_ERR_NOT_AVAILABLE);
    OK(gpusym_send_desc_ask_push(&p, &wanted));
    expect_state(index, GPUSYM_SEND_DESC_PUSH_ASKED, 0);
    OK(gpusym_send_desc_take_push(index, &push));
    assert_true(push.key == wanted.key && push.off == wanted.off && push.bytes == wanted.bytes);
    IS(gpusym_send_desc_take_push(index, &push), GPUSYM_ERR_NOT_AVAILABLE);
    IS(gpusym_send_desc_take_back(&p), GPUSYM_ERR_NOT_AVAILABLE);
    IS(gpusym_send_desc_state_of(&p, &status), GPUSYM_SEND_DESC_PUSHING);
    gpusym_send_desc_pushed(index, GPUSYM_ERR_NO_MEMORY);
    IS(gpusym_send_desc_state_of(&p, &status), GPUSYM_SEND_DESC_PUSHED);
    IS(status, GPUSYM_ERR_NO_MEMORY);
    gpusym_send_desc_end(&p, 0);
    expect_state(index, GPUSYM_SEND_DESC_DONE, 0);
    gpusym_send_desc_free(index);
}

static void a_pipeline_is_asked_for(void **state)
{
    gpusym_send_desc_t p;
    uint8_t rts[GPUSYM_RTS];
    gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_INLINE, GPUSYM_SEND_DESC_ROOM); /* leaves something in the room */
    uint32_t index = put(&o, rts);
    int status;
    (void) state;
    OK(gpusym_send_desc_withdraw(index));
    o = offer_of(GPUSYM_SEND_DESC_MAPPED, 1000);
    assert_int_equal(put(&o, rts), index);
    IS(gpusym_send_desc_take_pipeline(index), GPUSYM_ERR_NOT_AVAILABLE);
    OK(gpusym_send_desc_claim(self, rts, &p));
    IS(gpusym_send_desc_take_pipeline(index), GPUSYM_ERR_NOT_AVAILABLE);
    OK(gpusym_send_desc_ask_pipeline(&p));
    IS(gpusym_send_desc_ask_pipeline(&p), GPUSYM_ERR_CORRUPT); /* once */
    IS(gpusym_send_desc_state_of(&p, &status), GPUSYM_SEND_DESC_PIPELINE_ASKED);
    OK(gpusym_send_desc_take_pipeline(index));
    IS(gpusym_send_desc_state_of(&p, &status), GPUSYM_SEND_DESC_PIPELINING);
    for (unsigned i = 0; i < GPUSYM_SEND_DESC_ROOM; i++) {
        IS(((unsigned char *) p.room)[i], 0);
    }
    gpusym_send_desc_end(&p, 0);
    expect_state(index, GPUSYM_SEND_DESC_DONE, 0);
    gpusym_send_desc_free(index);
}

/* The memory of an offer is filled after the offer; what an earlier one with this entry has told does not count. */
static void memory_may_be_filled_later(void **state)
{
    uint8_t rts[GPUSYM_RTS];
    const gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_MAPPED, 1000);
    uint32_t last = UINT32_MAX;
    (void) state;
    for (int i = 0; i < 6; i++) {
        const int tells = 0 == i % 3 ? GPUSYM_ERR : GPUSYM_SUCCESS;
        gpusym_send_desc_t p;
        const uint32_t index = put(&o, rts);
        assert_true(0 == i || index == last);
        last = index;
        if (0 == i % 2) {
            gpusym_send_desc_filled(index, tells); /* before it is claimed */
        }
        OK(gpusym_send_desc_claim(self, rts, &p));
        if (0 != i % 2) {
            IS(gpusym_send_desc_is_filled(&p), 0);
            gpusym_send_desc_filled(index, tells);
        }
        IS(gpusym_send_desc_is_filled(&p), GPUSYM_SUCCESS == tells ? 1 : GPUSYM_ERR);
        gpusym_send_desc_end(&p, 0);
        expect_state(index, GPUSYM_SEND_DESC_DONE, 0);
        gpusym_send_desc_free(index);
    }
}

static void a_pipeline_takes_the_place_of_a_push_that_failed(void **state)
{
    gpusym_send_desc_t p;
    gpusym_push_t push;
    uint8_t rts[GPUSYM_RTS];
    const gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_PINNED, 1000);
    const gpusym_push_t wanted = {17, 64, 1000};
    const uint32_t index = put(&o, rts);
    (void) state;
    OK(gpusym_send_desc_claim(self, rts, &p));
    expect_offer(&p, &o);
    OK(gpusym_send_desc_ask_push(&p, &wanted));
    IS(gpusym_send_desc_ask_pipeline(&p), GPUSYM_ERR_CORRUPT); /* the sender may be taking the push on */
    IS(gpusym_send_desc_begin_pipeline(&p), GPUSYM_ERR_CORRUPT);
    OK(gpusym_send_desc_take_push(index, &push));
    IS(gpusym_send_desc_ask_pipeline(&p), GPUSYM_ERR_CORRUPT);
    gpusym_send_desc_pushed(index, GPUSYM_ERR_UNREACHABLE);
    OK(gpusym_send_desc_ask_pipeline(&p));
    OK(gpusym_send_desc_take_pipeline(index));
    gpusym_send_desc_end(&p, 0);
    expect_state(index, GPUSYM_SEND_DESC_DONE, 0);
    gpusym_send_desc_free(index);
}

static void an_unclaimed_offer_changes_place(void **state)
{
    gpusym_send_desc_t p;
    uint8_t rts[GPUSYM_RTS];
    gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_MAPPED, 300), within = {.kind = GPUSYM_SEND_DESC_INLINE, .gpu = -1},
                   pipeline = {.kind = GPUSYM_SEND_DESC_PIPELINE, .off = 3};
    uint32_t index = put(&o, rts);
    (void) state;

    OK(gpusym_send_desc_change(index, &within, text + 1));
    IS(gpusym_send_desc_change(index, &pipeline, NULL), GPUSYM_ERR_BAD_PARAM); /* a reader may use the room */
    OK(gpusym_send_desc_claim(self, rts, &p));
    IS(p.offer.kind, GPUSYM_SEND_DESC_INLINE);
    IS(p.offer.key, 0);
    IS(p.offer.gpu, -1);
    IS(p.offer.bytes, 300);
    assert_memory_equal(p.room, text + 1, 300);
    gpusym_send_desc_end(&p, 0);
    gpusym_send_desc_free(index);

    o.bytes = GPUSYM_SEND_DESC_ROOM + 1;
    index = put(&o, rts);
    IS(gpusym_send_desc_change(index, &within, text), GPUSYM_ERR_BAD_PARAM);
    OK(gpusym_send_desc_change(index, &o, NULL)); /* from one memory to another, as often as one likes */
    OK(gpusym_send_desc_change(index, &pipeline, NULL));
    OK(gpusym_send_desc_claim(self, rts, &p));
    IS(p.offer.kind, GPUSYM_SEND_DESC_PIPELINE);
    IS(p.offer.off, 3);
    assert_ptr_equal(p.room, gpusym_send_desc_room(index));
    for (unsigned i = 0; i < GPUSYM_SEND_DESC_ROOM; i++) {
        IS(((unsigned char *) p.room)[i], 0);
    }
    gpusym_send_desc_end(&p, 0);
    gpusym_send_desc_free(index);

    index = put(&o, rts);
    OK(gpusym_send_desc_claim(self, rts, &p));
    IS(gpusym_send_desc_change(index, &pipeline, NULL), GPUSYM_ERR_NOT_AVAILABLE);
    IS(gpusym_send_desc_withdraw(index), GPUSYM_ERR_NOT_AVAILABLE);
    gpusym_send_desc_end(&p, 0);
    gpusym_send_desc_free(index);

    index = put(&o, rts);
    OK(gpusym_send_desc_withdraw(index));
    IS(gpusym_send_desc_claim(self, rts, &p), GPUSYM_ERR_NOT_AVAILABLE);
    IS(gpusym_send_descs_live(), 0);
}

static void a_wrong_rts_claims_nothing(void **state)
{
    gpusym_send_desc_t p;
    uint8_t rts[GPUSYM_RTS], wrong[GPUSYM_RTS];
    const gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_MAPPED, 1);
    const uint32_t index = put(&o, rts);
    (void) state;
    for (unsigned i = 0; i < 8 * GPUSYM_RTS; i++) {
        memcpy(wrong, rts, sizeof wrong);
        wrong[i / 8] ^= (uint8_t) (1u << i % 8);
        IS(gpusym_send_desc_claim(self, wrong, &p), GPUSYM_ERR_CORRUPT);
    }
    OK(gpusym_send_desc_claim(self, rts, &p));
    gpusym_send_desc_end(&p, 0);
    gpusym_send_desc_free(index);
    IS(put(&o, wrong), index); /* the same entry, another number */
    IS(gpusym_send_desc_claim(self, rts, &p), GPUSYM_ERR_CORRUPT);
    OK(gpusym_send_desc_withdraw(index));
}

static void the_oldest_is_found(void **state)
{
    gpusym_send_desc_t p;
    uint64_t bytes;
    uint32_t index[6];
    uint8_t rts[6][GPUSYM_RTS];
    gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_MAPPED, 10);
    (void) state;

    IS(gpusym_send_desc_oldest_bytes(self, CONTEXT, TAG, &bytes), GPUSYM_ERR_NOT_AVAILABLE);
    index[0] = put(&o, rts[0]);
    index[1] = put(&o, rts[1]);
    OK(gpusym_send_desc_withdraw(index[0]));
    o.bytes = 11;
    index[0] = put(&o, rts[0]); /* in a lower entry, but newer */
    o.tag++;
    index[2] = put(&o, rts[2]);
    o.tag--;
    o.context++;
    index[3] = put(&o, rts[3]);
    o.context--;
    o.to++;
    index[4] = put(&o, rts[4]);
    o.to--;
    o.bytes = 12;
    index[5] = put(&o, rts[5]);

    OK(gpusym_send_desc_oldest_bytes(self, CONTEXT, TAG, &bytes));
    IS(bytes, 10);
    IS(gpusym_send_desc_claim(self, rts[4], &p), GPUSYM_ERR_CORRUPT); /* to another process */
    expect_state(index[4], GPUSYM_SEND_DESC_DONE, GPUSYM_ERR_CORRUPT);
    OK(gpusym_send_desc_claim_oldest(self, CONTEXT, TAG, rts[5], 2, &p)); /* it names that one */
    IS(p.offer.bytes, 12);
    gpusym_send_desc_end(&p, 0);
    OK(gpusym_send_desc_claim_oldest(self, CONTEXT, TAG, NULL, 0, &p));
    IS(p.offer.bytes, 10);
    gpusym_send_desc_end(&p, 0);
    OK(gpusym_send_desc_oldest_bytes(self, CONTEXT, TAG, &bytes));
    IS(bytes, 11);
    OK(gpusym_send_desc_claim_oldest(self, CONTEXT, TAG, NULL, 0, &p));
    IS(p.index, index[0]);
    gpusym_send_desc_end(&p, 0);
    IS(gpusym_send_desc_claim_oldest(self, CONTEXT, TAG, NULL, 0, &p), GPUSYM_ERR_NOT_AVAILABLE);
    IS(gpusym_send_desc_oldest_bytes(self, CONTEXT, TAG, &bytes), GPUSYM_ERR_NOT_AVAILABLE);
    for (unsigned i = 0; i < 6; i++) {
        gpusym_send_desc_free(index[i]);
    }
    IS(gpusym_send_descs_live(), 0);
}

static void a_full_table_takes_no_more(void **state)
{
    static uint8_t rts[GPUSYM_SEND_DESC_MAX][GPUSYM_RTS];
    gpusym_send_desc_t p;
    uint8_t none[GPUSYM_RTS];
    uint32_t more;
    (void) state;
    for (unsigned i = 0; i < GPUSYM_SEND_DESC_MAX; i++) {
        const gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_MAPPED, i);
        IS(put(&o, rts[i]), i); /* the lowest first */
    }
    const gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_MAPPED, 1);
    IS(gpusym_send_desc_offer(&o, NULL, &more, none), GPUSYM_ERR_NOT_AVAILABLE);
    IS(gpusym_send_descs_live(), GPUSYM_SEND_DESC_MAX);
    for (unsigned i = GPUSYM_SEND_DESC_MAX; i-- > 0;) {
        OK(gpusym_send_desc_claim(self, rts[i], &p));
        IS(p.offer.bytes, i);
        gpusym_send_desc_end(&p, 0);
        gpusym_send_desc_free(i);
    }
    IS(put(&o, none), 0);
    OK(gpusym_send_desc_withdraw(0));
}

/* Whatever stands in the sender's table, the receiver stays within it and says so. */
static void garbage_is_told(void **state)
{
    unsigned char *area = gpusym_peer_area(self, GPUSYM_AREA_DESCS);
    const size_t size = GPUSYM_AREA_DESCS_LAST + 1 - GPUSYM_AREA_DESCS, head = 3 * 4096, used = head + 64 * 512;
    uint8_t rts[GPUSYM_RTS];
    unsigned char *good = malloc(size);
    const gpusym_offer_t o = offer_of(GPUSYM_SEND_DESC_MAPPED, 1 << 20);
    const uint32_t index = put(&o, rts);
    (void) state;
    assert_non_null(good);
    memcpy(good, area, size);
    for (unsigned round = 0; round < 20000; round++) {
        gpusym_send_desc_t p;
        uint64_t bytes;
        int status;
        const size_t at = head + index * 512u + next_random() % 128, there = at - head - index * 512u;
        area[at] ^= (unsigned char) (1 + next_random() % 255);
        const int rc = gpusym_send_desc_claim(self, rts, &p);
        if (GPUSYM_SUCCESS == rc) { /* bytes that a claim does not read */
            assert_true(there >= 64);
            expect_offer(&p, &o);
            gpusym_send_desc_end(&p, 0);
        } else {
            assert_true(GPUSYM_ERR_CORRUPT == rc || GPUSYM_ERR_NOT_AVAILABLE == rc);
        }
        (void) gpusym_send_desc_state(index, &status);
        memcpy(area + head, good + head, 512 * 4);
        if (0 == round % 100) {
            for (size_t i = 0; i < used; i++) {
                area[i] = (unsigned char) next_random();
            }
            (void) gpusym_send_descs_from(self);
            (void) gpusym_send_desc_oldest_bytes(self, CONTEXT, TAG, &bytes);
            IS(gpusym_send_desc_claim(self, rts, &p), GPUSYM_ERR_CORRUPT);
            IS(gpusym_send_desc_state(index, &status), GPUSYM_ERR_CORRUPT);
            IS(gpusym_send_desc_claim_oldest(self, CONTEXT, TAG, NULL, 0, &p), GPUSYM_ERR_NOT_AVAILABLE);
            memcpy(area, good, size);
        }
    }
    OK(gpusym_send_desc_withdraw(index));
    free(good);
}

/* ---- two processes ---- */

#define RING 1024u /* RTS messages on their way */
#define WINDOW 64u /* of claimed ones, or of those not yet claimed */

/* What MPI is else: a ring of RTS messages in shared memory. */
typedef struct {
    two_meeting_t meeting;
    uint64_t sent, taken;
    uint32_t over;
    struct {
        uint8_t rts[GPUSYM_RTS];
        uint64_t serial;
    } ring[RING];
} channel_t;

static channel_t *channel;

static bool open_side(unsigned side, gpusym_pages_id_t *card)
{
    return GPUSYM_SUCCESS == gpusym_pages_open(card) && GPUSYM_SUCCESS == gpusym_send_descs_open(side);
}

static pid_t start(void (*child)(gpusym_peer_t *), gpusym_peer_t **peer)
{
    channel = two_channel(sizeof *channel);
    gpusym_send_descs_close();
    gpusym_pages_close();
    return two_start(&channel->meeting, open_side, child, peer);
}

static int reap(pid_t pid)
{
    return two_reap(pid, channel, sizeof *channel);
}

/* A message's bytes, kind and data follow from its serial number. */
static uint64_t hash(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15ull;
    return x ^ x >> 29;
}

static uint64_t bytes_of(uint64_t serial)
{
    return 8 + hash(serial) % (GPUSYM_SEND_DESC_ROOM - 7);
}

static void data_of(uint64_t serial, unsigned char *data)
{
    memset(data, (int) (hash(serial) >> 8 & 0xff), GPUSYM_SEND_DESC_ROOM);
    memcpy(data, &serial, sizeof serial);
}

/* The receiver: a send descriptor that it holds. */
typedef struct {
    bool held, asked;
    uint64_t serial;
    gpusym_send_desc_t p;
} held_t;

static uint64_t wrong, pushes, changed;

static void check_claimed(const held_t *h)
{
    unsigned char data[GPUSYM_SEND_DESC_ROOM];
    const gpusym_offer_t *o = &h->p.offer;
    data_of(h->serial, data);
    wrong += o->bytes != bytes_of(h->serial) || o->tag != (int) (h->serial % 7) || o->context != 99;
    if (GPUSYM_SEND_DESC_INLINE == o->kind) {
        wrong += 0 != memcmp(h->p.room, data, o->bytes) || (0 != o->key && h->serial != o->off);
        changed += 0 == o->key;
    } else {
        wrong += GPUSYM_SEND_DESC_MAPPED != o->kind || o->off != h->serial || o->key != (uint32_t) hash(h->serial);
    }
}

/* One random step with a send descriptor that is held. */
static void step_held(held_t *h)
{
    int said;
    const int state = gpusym_send_desc_state_of(&h->p, &said);
    const gpusym_push_t push = {(uint32_t) h->serial, h->serial, h->p.offer.bytes};
    if (GPUSYM_SEND_DESC_CLAIMED == state && 0 == next_random() % 2) {
        wrong += GPUSYM_SUCCESS != gpusym_send_desc_ask_push(&h->p, &push);
    } else if (GPUSYM_SEND_DESC_CLAIMED == state) {
        gpusym_send_desc_end(&h->p, -(int) (h->serial % 5));
        h->held = false;
    } else if (GPUSYM_SEND_DESC_PUSH_ASKED == state && 0 == next_random() % 4) {
        (void) gpusym_send_desc_take_back(&h->p);
    } else if (GPUSYM_SEND_DESC_PUSHED == state) {
        pushes++;
        wrong += said != -(int) (h->serial % 3);
        gpusym_send_desc_end(&h->p, -(int) (h->serial % 5));
        h->held = false;
    } else if (GPUSYM_SEND_DESC_PUSH_ASKED != state && GPUSYM_SEND_DESC_PUSHING != state) {
        wrong++;
        h->held = false;
    }
}

/* Takes an RTS from the ring, and claims what it names. False: there is none. */
static bool claim_next(gpusym_peer_t *peer, held_t *h)
{
    if (channel->taken == __atomic_load_n(&channel->sent, __ATOMIC_ACQUIRE)) {
        return false;
    }
    const unsigned at = channel->taken % RING;
    h->serial = channel->ring[at].serial;
    wrong += !gpusym_send_descs_from(peer);
    h->held = GPUSYM_SUCCESS == gpusym_send_desc_claim(peer, channel->ring[at].rts, &h->p);
    wrong += !h->held;
    __atomic_store_n(&channel->taken, channel->taken + 1, __ATOMIC_RELEASE);
    if (h->held) {
        check_claimed(h);
    }
    return true;
}

static void receive_all(gpusym_peer_t *peer)
{
    static held_t held[WINDOW];
    unsigned busy = 1;
    random_state ^= 0x55;
    while (0 != busy || 0 == __atomic_load_n(&channel->over, __ATOMIC_ACQUIRE)) {
        busy = 0;
        for (unsigned i = 0; i < WINDOW; i++) {
            uint64_t bytes;
            if (held[i].held) {
                step_held(&held[i]);
            } else {
                (void) claim_next(peer, &held[i]);
            }
            busy += held[i].held;
            if (0 == next_random() % 64 && GPUSYM_SUCCESS == gpusym_send_desc_oldest_bytes(peer, 99, 3, &bytes)) {
                wrong += bytes < 8 || bytes > GPUSYM_SEND_DESC_ROOM;
            }
        }
        sched_yield();
    }
    if (0 != wrong || 0 == pushes || 0 == changed) {
        fprintf(stderr, "wrong %lu, pushes %lu, changed %lu\n", (unsigned long) wrong, (unsigned long) pushes,
                (unsigned long) changed);
    }
    _exit(0 != wrong || 0 == pushes || 0 == changed);
}

/* Offers message `serial`, directly or within. */
static uint32_t offer_serial(uint64_t serial)
{
    unsigned char data[GPUSYM_SEND_DESC_ROOM];
    uint32_t index;
    const unsigned at = channel->sent % RING;
    const gpusym_offer_t o = {.context = 99,
                              .tag = (int) (serial % 7),
                              .to = 1,
                              .bytes = bytes_of(serial),
                              .kind = 0 == hash(serial) % 3 ? GPUSYM_SEND_DESC_INLINE : GPUSYM_SEND_DESC_MAPPED,
                              .key = (uint32_t) hash(serial),
                              .off = serial};
    data_of(serial, data);
    OK(gpusym_send_desc_offer(&o, data, &index, channel->ring[at].rts));
    channel->ring[at].serial = serial;
    __atomic_store_n(&channel->sent, channel->sent + 1, __ATOMIC_RELEASE);
    return index;
}

/* The sender's steps with an offered message. Returns whether it is over. */
static bool step_offered(uint32_t index, uint64_t serial)
{
    unsigned char data[GPUSYM_SEND_DESC_ROOM];
    gpusym_push_t push;
    int status;
    const gpusym_offer_t within = {.kind = GPUSYM_SEND_DESC_INLINE};
    const int state = gpusym_send_desc_state(index, &status);
    if (GPUSYM_SEND_DESC_OFFERED == state && 0 != hash(serial) % 3 && 0 == next_random() % 2) {
        data_of(serial, data);
        (void) gpusym_send_desc_change(index, &within, data);
    } else if (GPUSYM_SEND_DESC_PUSH_ASKED == state && GPUSYM_SUCCESS == gpusym_send_desc_take_push(index, &push)) {
        assert_true(push.key == (uint32_t) serial && push.off == serial && push.bytes == bytes_of(serial));
        gpusym_send_desc_pushed(index, -(int) (serial % 3));
    } else if (GPUSYM_SEND_DESC_DONE == state) {
        assert_int_equal(status, -(int) (serial % 5));
        gpusym_send_desc_free(index);
        return true;
    }
    assert_true(state > 0);
    return false;
}

static void random_steps_on_both_sides_agree(void **state)
{
    gpusym_peer_t *peer;
    struct {
        bool live;
        uint32_t index;
        uint64_t serial;
    } at[2 * WINDOW] = {{0}};
    const uint64_t all = 1000000;
    uint64_t serial = 0;
    unsigned live = 0;
    (void) state;
    const pid_t pid = start(receive_all, &peer);
    assert_true(gpusym_send_descs_decide(1));
    while (serial < all || 0 != live) {
        for (unsigned i = 0; i < 2 * WINDOW; i++) {
            if (at[i].live) {
                at[i].live = !step_offered(at[i].index, at[i].serial);
                live -= !at[i].live;
            } else if (serial < all && channel->sent - __atomic_load_n(&channel->taken, __ATOMIC_ACQUIRE) < RING) {
                at[i].live = true;
                at[i].serial = serial++;
                at[i].index = offer_serial(at[i].serial);
                live++;
            }
        }
        assert_true(gpusym_peer_alive(peer));
        sched_yield();
    }
    __atomic_store_n(&channel->over, 1, __ATOMIC_RELEASE);
    assert_int_equal(reap(pid), 0);
    IS(gpusym_send_descs_live(), 0);
}

static void claim_and_stop(gpusym_peer_t *peer)
{
    static held_t h[3];
    for (unsigned i = 0; i < 3; i++) {
        while (!claim_next(peer, &h[i])) {
            sched_yield();
        }
    }
    const gpusym_push_t push = {1, 1, 8};
    (void) gpusym_send_desc_ask_push(&h[1].p, &push);
    (void) gpusym_send_desc_ask_push(&h[2].p, &push);
    for (;;) {
        pause();
    }
}

static void the_entries_of_a_killed_receiver_are_freed(void **state)
{
    static const int last[] = {GPUSYM_SEND_DESC_CLAIMED, GPUSYM_SEND_DESC_PUSH_ASKED, GPUSYM_SEND_DESC_PUSHING};
    gpusym_peer_t *peer;
    gpusym_push_t push;
    uint32_t index[4];
    int status;
    (void) state;
    const pid_t pid = start(claim_and_stop, &peer);
    for (unsigned i = 0; i < 4; i++) {
        index[i] = offer_serial(i);
    }
    while (GPUSYM_SUCCESS != gpusym_send_desc_take_push(index[2], &push) ||
           GPUSYM_SEND_DESC_PUSH_ASKED != gpusym_send_desc_state(index[1], &status)) {
        sched_yield();
        if (GPUSYM_SEND_DESC_PUSHING == gpusym_send_desc_state(index[2], &status)) {
            break;
        }
    }
    kill(pid, SIGKILL);
    reap(pid);
    assert_false(gpusym_peer_alive(peer));
    for (unsigned i = 0; i < 3; i++) {
        IS(gpusym_send_desc_state(index[i], &status), last[i]);
        gpusym_send_desc_free(index[i]);
    }
    OK(gpusym_send_desc_withdraw(index[3]));
    IS(gpusym_send_descs_live(), 0);
}

static const uint8_t first_gpu[16] = "the first GPU", second_gpu[16] = "the second GPU";

static void use_first_gpu(gpusym_peer_t *peer)
{
    (void) peer;
    gpusym_send_descs_use_gpu(first_gpu);
    __atomic_store_n(&channel->over, 1, __ATOMIC_RELEASE);
    for (;;) {
        pause();
    }
}

static void a_gpu_of_two_processes_is_told(void **state)
{
    gpusym_peer_t *peer;
    (void) state;
    for (unsigned i = 0; i < GPUSYM_SEND_DESC_GPUS + 2; i++) { /* our own do not count */
        gpusym_send_descs_use_gpu(first_gpu);
        gpusym_send_descs_use_gpu(second_gpu);
    }
    assert_false(gpusym_send_descs_gpu_shared(first_gpu));
    const pid_t pid = start(use_first_gpu, &peer);
    gpusym_send_descs_use_gpu(second_gpu);
    two_reach(&channel->over, 1);
    assert_true(gpusym_send_descs_gpu_shared(first_gpu));
    assert_false(gpusym_send_descs_gpu_shared(second_gpu));
    kill(pid, SIGKILL);
    reap(pid);
}

static void offer_and_die(gpusym_peer_t *peer)
{
    (void) peer;
    unsigned char data[GPUSYM_SEND_DESC_ROOM];
    uint32_t index;
    const gpusym_offer_t o = {.context = 99, .tag = 1, .bytes = 100, .kind = GPUSYM_SEND_DESC_INLINE};
    data_of(1, data);
    if (gpusym_send_descs_decide(0) &&
        GPUSYM_SUCCESS == gpusym_send_desc_offer(&o, data, &index, channel->ring[0].rts)) {
        raise(SIGKILL);
    }
}

static void what_a_killed_sender_has_offered_stays(void **state)
{
    gpusym_peer_t *peer;
    gpusym_send_desc_t p;
    unsigned char data[GPUSYM_SEND_DESC_ROOM];
    uint8_t rts[GPUSYM_RTS];
    (void) state;
    const pid_t pid = start(offer_and_die, &peer);
    while (gpusym_peer_alive(peer)) {
        sched_yield();
    }
    memcpy(rts, channel->ring[0].rts, sizeof rts);
    assert_true(WIFSIGNALED(reap(pid)));
    assert_true(gpusym_send_descs_from(peer));
    data_of(1, data);
    OK(gpusym_send_desc_claim(peer, rts, &p));
    IS(p.offer.bytes, 100);
    assert_memory_equal(p.room, data, 100);
    gpusym_send_desc_end(&p, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_decision_is_made_once, open_self, close_self),
        cmocka_unit_test_setup_teardown(a_late_attachment_changes_nothing, open_self, close_self),
        cmocka_unit_test_setup_teardown(where_host_memory_goes_is_told, open_self, close_self),
        cmocka_unit_test_setup_teardown(data_within_come_whole, open_self, close_self),
        cmocka_unit_test_setup_teardown(wrong_offers_are_refused, open_self, close_self),
        cmocka_unit_test_setup_teardown(an_error_reaches_the_sender, open_self, close_self),
        cmocka_unit_test_setup_teardown(a_push_is_asked_for_and_made, open_self, close_self),
        cmocka_unit_test_setup_teardown(memory_may_be_filled_later, open_self, close_self),
        cmocka_unit_test_setup_teardown(a_pipeline_is_asked_for, open_self, close_self),
        cmocka_unit_test_setup_teardown(a_pipeline_takes_the_place_of_a_push_that_failed, open_self, close_self),
        cmocka_unit_test_setup_teardown(an_unclaimed_offer_changes_place, open_self, close_self),
        cmocka_unit_test_setup_teardown(a_wrong_rts_claims_nothing, open_self, close_self),
        cmocka_unit_test_setup_teardown(the_oldest_is_found, open_self, close_self),
        cmocka_unit_test_setup_teardown(a_full_table_takes_no_more, open_self, close_self),
        cmocka_unit_test_setup_teardown(garbage_is_told, open_self, close_self),
        cmocka_unit_test_setup_teardown(random_steps_on_both_sides_agree, open_self, close_self),
        cmocka_unit_test_setup_teardown(the_entries_of_a_killed_receiver_are_freed, open_self, close_self),
        cmocka_unit_test_setup_teardown(what_a_killed_sender_has_offered_stays, open_self, close_self),
        cmocka_unit_test_setup_teardown(a_gpu_of_two_processes_is_told, open_self, close_self),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
