/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Send descriptors: see send_desc.h.
 */
#include "mca/common/gpusym/p2p/send_desc.h"

#include <string.h>

#include "mca/common/gpusym/lock.h"
#include "mca/common/gpusym/log.h"

/* ---- the table, in shared pages ---- */

/* Where the data of a message are. */
typedef struct {
    uint32_t kind, key;
    uint64_t off;
    int32_t gpu;
    uint32_t flags;
    uint64_t check; /* of these and of what the entry says besides, see check_of */
} place_t;

/*
 * An entry. `word` tells whose it is: the sender fills the entry and stores OFFERED; then each transition is a store or
 * a compare-and-swap of `word`, and its maker writes the fields that belong to the new state before. The sender may
 * fill the other place while the entry is OFFERED: which one counts is in `word` too, so a claim fixes it.
 */
typedef struct {
    uint64_t word; /* number << 16 | WORD_STATUS | place << 8 | state; 0: never used */
    uint64_t context, bytes;
    int32_t tag;
    uint32_t to;
    place_t first; /* a message that is pulled needs no line but this one */
    place_t other;
    int32_t status; /* PUSHED: the sender's; DONE with WORD_STATUS: the receiver's */
    uint32_t push_key;
    uint64_t push_off, push_bytes; /* PUSH_ASKED: the receiver's */
    uint64_t filled;               /* number << 1 | whether it failed: the sender's, of the offer with this number */
    unsigned char room[GPUSYM_SEND_DESC_ROOM];
} entry_t;
_Static_assert(512 == sizeof(entry_t) && 64 == offsetof(entry_t, other) && 128 == offsetof(entry_t, room),
               "entries are whole cache lines");
#define WORD_STATUS (1u << 9)

/* What a process and one of its peers know of each other. */
typedef struct {
    uint32_t attached; /* ATTACHED, INTO_GPU; 0: the peer has not attached this table. The peer writes it */
    uint32_t decision; /* DECIDED_...: whether the owner sends it RTS messages. The owner writes it once */
} relation_t;

enum { ATTACHED = 1, INTO_GPU = 2 }; /* bits: the peer receives what is host memory here into GPU memory */
enum { UNDECIDED, DECIDED_RTS, DECIDED_ORDINARY };

/* Ends with the version of this layout. */
#define TABLE_MAGIC 0x6770757370636c04ull

typedef struct {
    uint64_t magic;        /* written last */
    uint32_t slot;         /* the owner's */
    uint32_t top;          /* entries from here on are not OFFERED */
    uint32_t gpus;         /* that the owner uses, in `gpu` */
    uint32_t any_into_gpu; /* not 0: some peer has had INTO_GPU. Peers write it */
    uint32_t pad[10];
    uint64_t gpu[GPUSYM_SEND_DESC_GPUS][2];  /* their uuids */
    relation_t with[GPUSYM_SEND_DESC_SLOTS]; /* by the peer's slot */
    _Alignas(4096) entry_t entry[GPUSYM_SEND_DESC_MAX];
} table_t;
_Static_assert(GPUSYM_AREA_DESCS + sizeof(table_t) == GPUSYM_AREA_DESCS_LAST + 1u, "the table fits its place");

/* Both sides access fields that the other one may write meanwhile. What orders them is `word`. */
#define READ(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define WRITE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)

#define NUMBER_BITS 48
static uint64_t word_make(uint64_t number, unsigned place, gpusym_send_desc_state_t state)
{
    return number << 16 | (uint64_t) place << 8 | (uint64_t) state;
}

static uint64_t word_number(uint64_t word)
{
    return word >> 16;
}

static unsigned word_place(uint64_t word)
{
    return word >> 8 & 1;
}

/* Bits that nobody sets make it a state that does not exist. */
static gpusym_send_desc_state_t word_state(uint64_t word)
{
    const uint64_t state = word & 0xfeff;
    return (GPUSYM_SEND_DESC_DONE | WORD_STATUS) == state ? GPUSYM_SEND_DESC_DONE : (gpusym_send_desc_state_t) state;
}

/* Acquire: who sees a state sees what was written before it. */
static uint64_t word_read(const entry_t *entry)
{
    return __atomic_load_n(&entry->word, __ATOMIC_ACQUIRE);
}

static bool word_swap(entry_t *entry, uint64_t from, uint64_t to)
{
    return __atomic_compare_exchange_n(&entry->word, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Moves an entry from one state to another. False: it is in neither of this number nor in that state. */
static bool word_step(entry_t *entry, uint64_t number, gpusym_send_desc_state_t from, gpusym_send_desc_state_t to)
{
    const uint64_t word = word_read(entry);
    return word_number(word) == number && word_state(word) == from &&
           word_swap(entry, word, word_make(number, word_place(word), to));
}

static uint64_t mix(uint64_t check, uint64_t value)
{
    return (check ^ value ^ check >> 29) * 0x9e3779b97f4a7c15ull;
}

/* Receivers believe no overwritten entry. */
static uint64_t check_of(uint64_t number, const gpusym_offer_t *o)
{
    uint64_t check = mix(number, o->context);
    check = mix(check, (uint64_t) (uint32_t) o->tag << 32 | o->to);
    check = mix(check, o->bytes);
    check = mix(check, (uint64_t) o->kind << 32 | o->key);
    check = mix(check, o->off);
    return mix(check, (uint64_t) (uint32_t) o->gpu << 32 | o->flags);
}

static void rts_make(uint8_t rts[GPUSYM_RTS], uint32_t index, uint64_t number)
{
    const uint32_t low = (uint32_t) number;
    rts[0] = (uint8_t) index;
    rts[1] = (uint8_t) (index >> 8);
    for (unsigned i = 0; i < 4; i++) {
        rts[2 + i] = (uint8_t) (low >> 8 * i);
    }
    rts[6] = (uint8_t) (mix(mix(0x67, index), low) >> 56);
}

/* Returns whether these bytes begin the RTS of an entry. */
static bool rts_fits(const uint8_t *rts, unsigned length, uint32_t index, uint64_t number)
{
    uint8_t right[GPUSYM_RTS];
    rts_make(right, index, number);
    return 0 == length || 0 == memcmp(rts, right, length);
}

/* ---- set-up ---- */

/* The sender's record of an entry. */
typedef struct {
    uint64_t number; /* 0: the entry is free */
    gpusym_offer_t offer;
} record_t;

static struct {
    pthread_mutex_t lock; /* covers free entries, numbers, and all of set-up */
    table_t *table;       /* NULL: not open */
    unsigned slot;
    uint64_t number; /* of the last offer; only rises, from one table to the next too */
    unsigned nfree;
    uint16_t free[GPUSYM_SEND_DESC_MAX]; /* a stack: few entries are used, so few pages are touched */
    record_t record[GPUSYM_SEND_DESC_MAX];
    gpusym_peer_t *peer[GPUSYM_SEND_DESC_SLOTS]; /* attached; by slot */
    unsigned peers;                              /* slots from here on are not attached */
} own = {.lock = PTHREAD_MUTEX_INITIALIZER};

static table_t *table_of(gpusym_peer_t *peer)
{
    return gpusym_peer_area(peer, GPUSYM_AREA_DESCS);
}

int gpusym_send_descs_open(unsigned slot)
{
    table_t *table = gpusym_pages_area(GPUSYM_AREA_DESCS);
    int rc = GPUSYM_ERR_NOT_AVAILABLE;
    gpusym_lock(&own.lock);
    if (NULL != own.table) {
        rc = own.slot == slot ? GPUSYM_SUCCESS : rc;
    } else if (NULL != table && slot < GPUSYM_SEND_DESC_SLOTS) {
        own.nfree = GPUSYM_SEND_DESC_MAX;
        for (unsigned i = 0; i < GPUSYM_SEND_DESC_MAX; i++) {
            own.free[i] = (uint16_t) (GPUSYM_SEND_DESC_MAX - 1 - i);
            if (0 != own.record[i].number) { /* of an earlier table; untouched ones take no memory */
                own.record[i].number = 0;
            }
        }
        own.slot = slot;
        WRITE(table->slot, slot);
        WRITE(table->top, 0u);
        WRITE(table->any_into_gpu, 0u);
        __atomic_store_n(&table->magic, TABLE_MAGIC, __ATOMIC_RELEASE);
        __atomic_store_n(&own.table, table, __ATOMIC_RELEASE);
        rc = GPUSYM_SUCCESS;
    }
    gpusym_unlock(&own.lock);
    return rc;
}

void gpusym_send_descs_close(void)
{
    gpusym_lock(&own.lock);
    if (NULL != own.table) {
        for (unsigned i = 0; i < own.peers; i++) {
            if (NULL != own.peer[i]) {
                WRITE(table_of(own.peer[i])->with[own.slot].attached, 0u);
                own.peer[i] = NULL;
            }
        }
        WRITE(own.table->magic, 0ull);
        WRITE(own.table->gpus, 0u);
        own.peers = 0;
        __atomic_store_n(&own.table, NULL, __ATOMIC_RELEASE);
    }
    gpusym_unlock(&own.lock);
}

int gpusym_send_descs_attach(gpusym_peer_t *peer, unsigned peer_slot)
{
    table_t *table = table_of(peer);
    int rc = GPUSYM_SUCCESS;
    gpusym_lock(&own.lock);
    if (NULL == own.table || peer_slot >= GPUSYM_SEND_DESC_SLOTS ||
        TABLE_MAGIC != __atomic_load_n(&table->magic, __ATOMIC_ACQUIRE)) {
        rc = GPUSYM_ERR_NOT_AVAILABLE;
    } else if (READ(table->slot) != peer_slot) {
        rc = GPUSYM_ERR_CORRUPT;
    } else {
        __atomic_store_n(&own.peer[peer_slot], peer, __ATOMIC_RELEASE);
        own.peers = peer_slot >= own.peers ? peer_slot + 1 : own.peers;
        /* Release: who decides to send RTS messages finds us ready for them. */
        __atomic_store_n(&table->with[own.slot].attached, (uint32_t) ATTACHED, __ATOMIC_RELEASE);
    }
    gpusym_unlock(&own.lock);
    return rc;
}

bool gpusym_send_descs_attached_by(unsigned slot)
{
    table_t *table = __atomic_load_n(&own.table, __ATOMIC_ACQUIRE);
    return NULL != table && slot < GPUSYM_SEND_DESC_SLOTS &&
           0 != __atomic_load_n(&table->with[slot].attached, __ATOMIC_ACQUIRE);
}

bool gpusym_send_descs_decide(unsigned slot)
{
    table_t *table = __atomic_load_n(&own.table, __ATOMIC_ACQUIRE);
    if (NULL == table || slot >= GPUSYM_SEND_DESC_SLOTS) {
        return false;
    }
    relation_t *with = &table->with[slot];
    uint32_t decision = READ(with->decision);
    if (UNDECIDED == decision) {
        const uint32_t mine = 0 != __atomic_load_n(&with->attached, __ATOMIC_ACQUIRE) ? DECIDED_RTS : DECIDED_ORDINARY;
        if (__atomic_compare_exchange_n(&with->decision, &decision, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            decision = mine;
            GPUSYM_LOG(2, "messages of GPU memory to the process of local rank %u: %s", slot,
                       DECIDED_RTS == mine ? "direct"
                                           : "through host memory, since it has not mapped this process's pages");
        }
    }
    return DECIDED_RTS == decision;
}

bool gpusym_send_descs_from(gpusym_peer_t *peer)
{
    const table_t *table = table_of(peer);
    const uint32_t slot = READ(table->slot);
    return NULL != __atomic_load_n(&own.table, __ATOMIC_ACQUIRE) && slot < GPUSYM_SEND_DESC_SLOTS &&
           __atomic_load_n(&own.peer[slot], __ATOMIC_ACQUIRE) == peer &&
           DECIDED_RTS == READ(table->with[own.slot].decision);
}

void gpusym_send_descs_tell_gpu(gpusym_peer_t *peer, bool into_gpu)
{
    table_t *table = table_of(peer);
    uint32_t *said = &table->with[own.slot].attached;
    uint32_t was = READ(*said);
    while (0 != (was & ATTACHED) && into_gpu != (0 != (was & INTO_GPU)) &&
           !__atomic_compare_exchange_n(said, &was, into_gpu ? was | INTO_GPU : was & ~(uint32_t) INTO_GPU, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    if (into_gpu && 0 == READ(table->any_into_gpu)) {
        WRITE(table->any_into_gpu, 1u);
    }
}

bool gpusym_send_descs_into_gpu(unsigned slot)
{
    const table_t *table = __atomic_load_n(&own.table, __ATOMIC_ACQUIRE);
    return NULL != table && slot < GPUSYM_SEND_DESC_SLOTS && 0 != (READ(table->with[slot].attached) & INTO_GPU);
}

const uint32_t *gpusym_send_descs_any_into_gpu(void)
{
    const table_t *table = __atomic_load_n(&own.table, __ATOMIC_ACQUIRE);
    return NULL != table ? &table->any_into_gpu : NULL;
}

/* Whether a table names a GPU. */
static bool names_gpu(const table_t *table, const uint64_t uuid[2])
{
    const uint32_t said = __atomic_load_n(&table->gpus, __ATOMIC_ACQUIRE);
    const uint32_t gpus = said < GPUSYM_SEND_DESC_GPUS ? said : GPUSYM_SEND_DESC_GPUS;
    for (uint32_t i = 0; i < gpus; i++) {
        if (READ(table->gpu[i][0]) == uuid[0] && READ(table->gpu[i][1]) == uuid[1]) {
            return true;
        }
    }
    return false;
}

void gpusym_send_descs_use_gpu(const uint8_t uuid[16])
{
    uint64_t words[2];
    memcpy(words, uuid, sizeof words);
    gpusym_lock(&own.lock);
    if (NULL != own.table && own.table->gpus < GPUSYM_SEND_DESC_GPUS && !names_gpu(own.table, words)) {
        WRITE(own.table->gpu[own.table->gpus][0], words[0]);
        WRITE(own.table->gpu[own.table->gpus][1], words[1]);
        __atomic_store_n(&own.table->gpus, own.table->gpus + 1, __ATOMIC_RELEASE);
    }
    gpusym_unlock(&own.lock);
}

bool gpusym_send_descs_gpu_shared(const uint8_t uuid[16])
{
    uint64_t words[2];
    bool shared = false;
    memcpy(words, uuid, sizeof words);
    gpusym_lock(&own.lock);
    for (unsigned i = 0; i < own.peers && !shared; i++) {
        shared = i != own.slot && NULL != own.peer[i] && names_gpu(table_of(own.peer[i]), words);
    }
    gpusym_unlock(&own.lock);
    return shared;
}

/* ---- the sender's side ---- */

static bool offer_fits(const gpusym_offer_t *o)
{
    return o->kind >= GPUSYM_SEND_DESC_INLINE && o->kind <= GPUSYM_SEND_DESC_FAILED &&
           (GPUSYM_SEND_DESC_INLINE != o->kind || o->bytes <= GPUSYM_SEND_DESC_ROOM);
}

/* Takes a free entry, and the next number for it. False: the table is full. */
static bool entry_take(uint32_t *index, uint64_t *number)
{
    bool taken = false;
    gpusym_lock(&own.lock);
    if (NULL != own.table && 0 != own.nfree) {
        taken = true;
        *index = own.free[--own.nfree];
        *number = ++own.number & ((1ull << NUMBER_BITS) - 1);
        own.record[*index].number = *number;
        if (*index >= own.table->top) {
            WRITE(own.table->top, *index + 1);
        }
    }
    gpusym_unlock(&own.lock);
    return taken;
}

static void entry_give(uint32_t index)
{
    gpusym_lock(&own.lock);
    if (index < GPUSYM_SEND_DESC_MAX && NULL != own.table && 0 != own.record[index].number) {
        own.record[index].number = 0;
        own.free[own.nfree++] = (uint16_t) index;
        if (GPUSYM_SEND_DESC_MAX == own.nfree) { /* nothing is offered: searches are short again */
            WRITE(own.table->top, 0u);
        }
    }
    gpusym_unlock(&own.lock);
}

static void place_fill(entry_t *entry, unsigned which, uint64_t number, const gpusym_offer_t *o, const void *data)
{
    place_t *place = 0 == which ? &entry->first : &entry->other;
    WRITE(place->kind, o->kind);
    WRITE(place->key, o->key);
    WRITE(place->off, o->off);
    WRITE(place->gpu, o->gpu);
    WRITE(place->flags, o->flags);
    WRITE(place->check, check_of(number, o));
    if (GPUSYM_SEND_DESC_INLINE == o->kind && 0 != o->bytes) {
        memcpy(entry->room, data, o->bytes);
    } else if (GPUSYM_SEND_DESC_PIPELINE == o->kind && NULL != data) {
        memcpy(entry->room, data, sizeof entry->room);
    } else if (GPUSYM_SEND_DESC_MAPPED == o->kind && NULL != data) {
        memcpy(entry->room + GPUSYM_SEND_DESC_ROOM - GPUSYM_SEND_DESC_NOTE, data, GPUSYM_SEND_DESC_NOTE);
    } else if (GPUSYM_SEND_DESC_PIPELINE == o->kind) {
        memset(entry->room, 0, sizeof entry->room);
    }
}

int gpusym_send_desc_offer(const gpusym_offer_t *o, const void *data, uint32_t *index, uint8_t rts[GPUSYM_RTS])
{
    uint64_t number;
    if (!offer_fits(o) || o->to >= GPUSYM_SEND_DESC_SLOTS) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    if (!entry_take(index, &number)) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    entry_t *entry = &own.table->entry[*index];
    own.record[*index].offer = *o;
    /* A receiver that searches the table may still read the fields of the last offer: if it gets one of ours, it finds
     * that offer's word DONE. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    WRITE(entry->context, o->context);
    WRITE(entry->bytes, o->bytes);
    WRITE(entry->tag, o->tag);
    WRITE(entry->to, o->to);
    place_fill(entry, 0, number, o, data);
    rts_make(rts, *index, number);
    __atomic_store_n(&entry->word, word_make(number, 0, GPUSYM_SEND_DESC_OFFERED), __ATOMIC_RELEASE);
    return GPUSYM_SUCCESS;
}

/* Reads the state and status of an entry with this number. */
static int state_read(const entry_t *entry, uint64_t number, int *status)
{
    const uint64_t word = word_read(entry);
    const gpusym_send_desc_state_t state = word_state(word);
    *status = 0;
    if (word_number(word) != number || state < GPUSYM_SEND_DESC_OFFERED || state > GPUSYM_SEND_DESC_DONE) {
        return GPUSYM_ERR_CORRUPT;
    }
    if (GPUSYM_SEND_DESC_PUSHED == state || 0 != (word & WORD_STATUS)) {
        const int32_t said = READ(entry->status);
        *status = said <= 0 ? said : GPUSYM_ERR_CORRUPT;
    }
    return (int) state;
}

int gpusym_send_desc_state(uint32_t index, int *status)
{
    return state_read(&own.table->entry[index], own.record[index].number, status);
}

int gpusym_send_desc_change(uint32_t index, const gpusym_offer_t *o, const void *data)
{
    record_t *record = &own.record[index];
    entry_t *entry = &own.table->entry[index];
    gpusym_offer_t changed = record->offer;
    const uint64_t word = word_read(entry);

    changed.kind = o->kind;
    changed.key = o->key;
    changed.off = o->off;
    changed.gpu = o->gpu;
    changed.flags = o->flags;
    if (!offer_fits(&changed) || GPUSYM_SEND_DESC_MAPPED != record->offer.kind) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    if (word_number(word) != record->number || GPUSYM_SEND_DESC_OFFERED != word_state(word)) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    const unsigned other = 1 - word_place(word);
    place_fill(entry, other, record->number, &changed, data); /* nobody reads it before the swap */
    if (!word_swap(entry, word, word_make(record->number, other, GPUSYM_SEND_DESC_OFFERED))) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    record->offer = changed;
    return GPUSYM_SUCCESS;
}

int gpusym_send_desc_withdraw(uint32_t index)
{
    entry_t *entry = &own.table->entry[index];
    if (!word_step(entry, own.record[index].number, GPUSYM_SEND_DESC_OFFERED, GPUSYM_SEND_DESC_DONE)) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    entry_give(index);
    return GPUSYM_SUCCESS;
}

int gpusym_send_desc_take_push(uint32_t index, gpusym_push_t *push)
{
    entry_t *entry = &own.table->entry[index];
    if (!word_step(entry, own.record[index].number, GPUSYM_SEND_DESC_PUSH_ASKED, GPUSYM_SEND_DESC_PUSHING)) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    *push = (gpusym_push_t){READ(entry->push_key), READ(entry->push_off), READ(entry->push_bytes)};
    return push->bytes <= own.record[index].offer.bytes ? GPUSYM_SUCCESS : GPUSYM_ERR_CORRUPT;
}

void gpusym_send_desc_pushed(uint32_t index, int status)
{
    entry_t *entry = &own.table->entry[index];
    WRITE(entry->status, status);
    (void) word_step(entry, own.record[index].number, GPUSYM_SEND_DESC_PUSHING, GPUSYM_SEND_DESC_PUSHED);
}

int gpusym_send_desc_take_pipeline(uint32_t index)
{
    int status;
    if (GPUSYM_SEND_DESC_PIPELINE_ASKED != gpusym_send_desc_state(index, &status)) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    memset(own.table->entry[index].room, 0, GPUSYM_SEND_DESC_ROOM); /* the receiver reads it from PIPELINING on */
    return word_step(&own.table->entry[index], own.record[index].number, GPUSYM_SEND_DESC_PIPELINE_ASKED,
                     GPUSYM_SEND_DESC_PIPELINING)
               ? GPUSYM_SUCCESS
               : GPUSYM_ERR_CORRUPT;
}

void gpusym_send_desc_filled(uint32_t index, int status)
{
    const uint64_t word = own.record[index].number << 1 | (GPUSYM_SUCCESS != status ? 1 : 0);
    __atomic_store_n(&own.table->entry[index].filled, word, __ATOMIC_RELEASE);
}

void *gpusym_send_desc_room(uint32_t index)
{
    return own.table->entry[index].room;
}

void gpusym_send_desc_free(uint32_t index)
{
    entry_give(index);
}

unsigned gpusym_send_descs_live(void)
{
    gpusym_lock(&own.lock);
    const unsigned live = NULL != own.table ? GPUSYM_SEND_DESC_MAX - own.nfree : 0;
    gpusym_unlock(&own.lock);
    return live;
}

/* ---- the receiver's side ---- */

/* Reads what an entry says; its place too, if it is not NULL. */
static void entry_read(const entry_t *entry, const place_t *place, gpusym_offer_t *o)
{
    *o = (gpusym_offer_t){
        .context = READ(entry->context), .tag = READ(entry->tag), .to = READ(entry->to), .bytes = READ(entry->bytes)};
    if (NULL != place) {
        o->kind = READ(place->kind);
        o->key = READ(place->key);
        o->off = READ(place->off);
        o->gpu = READ(place->gpu);
        o->flags = READ(place->flags);
    }
}

/* Ends a send descriptor of ours, in whatever state it is. */
static void entry_end(entry_t *entry, uint64_t number, int status)
{
    uint64_t word = word_make(number, 0, GPUSYM_SEND_DESC_DONE);
    if (GPUSYM_SUCCESS != status) {
        WRITE(entry->status, status);
        word |= WORD_STATUS;
    }
    __atomic_store_n(&entry->word, word, __ATOMIC_RELEASE);
}

/* Claims an entry whose word was read as `word`, an OFFERED one. *lost: it has changed meanwhile. */
static int entry_claim(gpusym_peer_t *peer, uint32_t index, uint64_t word, gpusym_send_desc_t *p, bool *lost)
{
    entry_t *entry = &table_of(peer)->entry[index];
    const uint64_t number = word_number(word);
    const place_t *place = 0 == word_place(word) ? &entry->first : &entry->other;

    *lost = !word_swap(entry, word, word_make(number, word_place(word), GPUSYM_SEND_DESC_CLAIMED));
    if (*lost) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    *p = (gpusym_send_desc_t){.peer = peer, .index = index, .number = number, .room = entry->room};
    entry_read(entry, place, &p->offer);
    if (READ(place->check) != check_of(number, &p->offer) || p->offer.to != own.slot || !offer_fits(&p->offer)) {
        entry_end(entry, number, GPUSYM_ERR_CORRUPT);
        return GPUSYM_ERR_CORRUPT;
    }
    return GPUSYM_SUCCESS;
}

int gpusym_send_desc_claim(gpusym_peer_t *peer, const uint8_t rts[GPUSYM_RTS], gpusym_send_desc_t *p)
{
    const uint32_t index = (uint32_t) rts[0] | (uint32_t) rts[1] << 8;
    bool lost = true;
    int rc = GPUSYM_ERR_CORRUPT;
    if (index >= GPUSYM_SEND_DESC_MAX) {
        return rc;
    }
    while (lost) {
        const uint64_t word = word_read(&table_of(peer)->entry[index]);
        if (!rts_fits(rts, GPUSYM_RTS, index, word_number(word))) {
            return GPUSYM_ERR_CORRUPT;
        }
        if (GPUSYM_SEND_DESC_OFFERED != word_state(word)) {
            return GPUSYM_ERR_NOT_AVAILABLE;
        }
        rc = entry_claim(peer, index, word, p, &lost); /* lost: the sender has changed its place */
    }
    return rc;
}

/* Finds the oldest send descriptor to us. False: there is none. */
static bool find_oldest(gpusym_peer_t *peer, uint64_t context, int32_t tag, const uint8_t *rts, unsigned length,
                        uint32_t *index, uint64_t *word)
{
    table_t *table = table_of(peer);
    const uint32_t said = READ(table->top), top = said < GPUSYM_SEND_DESC_MAX ? said : GPUSYM_SEND_DESC_MAX;
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < top; i++) {
        const entry_t *entry = &table->entry[i];
        const uint64_t now = word_read(entry), number = word_number(now);
        if (GPUSYM_SEND_DESC_OFFERED == word_state(now) && number < oldest && READ(entry->to) == own.slot &&
            READ(entry->context) == context && READ(entry->tag) == tag && rts_fits(rts, length, i, number)) {
            oldest = number;
            *index = i;
            *word = now;
        }
    }
    return UINT64_MAX != oldest;
}

int gpusym_send_desc_claim_oldest(gpusym_peer_t *peer, uint64_t context, int32_t tag, const uint8_t *rts,
                                  unsigned length, gpusym_send_desc_t *p)
{
    bool lost = true;
    int rc = GPUSYM_ERR_NOT_AVAILABLE;
    uint32_t index;
    uint64_t word;
    while (lost && find_oldest(peer, context, tag, rts, length, &index, &word)) {
        rc = entry_claim(peer, index, word, p, &lost);
    }
    return lost ? GPUSYM_ERR_NOT_AVAILABLE : rc;
}

int gpusym_send_desc_oldest_bytes(gpusym_peer_t *peer, uint64_t context, int32_t tag, uint64_t *bytes)
{
    uint32_t index;
    uint64_t word;
    while (find_oldest(peer, context, tag, NULL, 0, &index, &word)) {
        const entry_t *entry = &table_of(peer)->entry[index];
        *bytes = READ(entry->bytes);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        const uint64_t now = READ(entry->word);
        if (word_number(now) == word_number(word) && GPUSYM_SEND_DESC_OFFERED == word_state(now)) {
            return GPUSYM_SUCCESS;
        }
    }
    return GPUSYM_ERR_NOT_AVAILABLE;
}

static entry_t *entry_of(const gpusym_send_desc_t *p)
{
    return &table_of(p->peer)->entry[p->index];
}

int gpusym_send_desc_state_of(const gpusym_send_desc_t *p, int *status)
{
    return state_read(entry_of(p), p->number, status);
}

int gpusym_send_desc_is_filled(const gpusym_send_desc_t *p)
{
    const uint64_t word = __atomic_load_n(&entry_of(p)->filled, __ATOMIC_ACQUIRE);
    return word >> 1 != p->number ? 0 : 0 == (word & 1) ? 1 : GPUSYM_ERR;
}

int gpusym_send_desc_ask_push(gpusym_send_desc_t *p, const gpusym_push_t *push)
{
    entry_t *entry = entry_of(p);
    if (push->bytes > p->offer.bytes) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    WRITE(entry->push_key, push->key);
    WRITE(entry->push_off, push->off);
    WRITE(entry->push_bytes, push->bytes);
    return word_step(entry, p->number, GPUSYM_SEND_DESC_CLAIMED, GPUSYM_SEND_DESC_PUSH_ASKED) ? GPUSYM_SUCCESS
                                                                                              : GPUSYM_ERR_CORRUPT;
}

int gpusym_send_desc_ask_pipeline(gpusym_send_desc_t *p)
{
    entry_t *entry = entry_of(p);
    return word_step(entry, p->number, GPUSYM_SEND_DESC_CLAIMED, GPUSYM_SEND_DESC_PIPELINE_ASKED) ||
                   word_step(entry, p->number, GPUSYM_SEND_DESC_PUSHED, GPUSYM_SEND_DESC_PIPELINE_ASKED)
               ? GPUSYM_SUCCESS
               : GPUSYM_ERR_CORRUPT;
}

int gpusym_send_desc_begin_pipeline(gpusym_send_desc_t *p)
{
    return word_step(entry_of(p), p->number, GPUSYM_SEND_DESC_CLAIMED, GPUSYM_SEND_DESC_PIPELINING)
               ? GPUSYM_SUCCESS
               : GPUSYM_ERR_CORRUPT;
}

int gpusym_send_desc_take_back(gpusym_send_desc_t *p)
{
    return word_step(entry_of(p), p->number, GPUSYM_SEND_DESC_PUSH_ASKED, GPUSYM_SEND_DESC_CLAIMED)
               ? GPUSYM_SUCCESS
               : GPUSYM_ERR_NOT_AVAILABLE;
}

void gpusym_send_desc_end(gpusym_send_desc_t *p, int status)
{
    entry_end(entry_of(p), p->number, status);
}
