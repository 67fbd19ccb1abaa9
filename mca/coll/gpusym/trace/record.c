/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The trace: see record.h.
 */
#include "mca/coll/gpusym/trace/record.h"

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/filename.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/trace/ranges.h"
#include "mca/coll/gpusym/trace/ticks.h"
#include "mca/coll/gpusym/trace/writer.h"
#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/exec/lane.h"
#include "mca/common/gpusym/json.h"

#include "config.h"

/* Records in the ring: 1 MiB. */
#define RECORDS 8192u
/* The thread writes the ended ones so often; and where more than half of the ring waits for it, of so many calls the
 * first wakes it: by a system call, which takes a few microseconds. */
#define EVERY_NS 100000000u
#define WAKES 1024u
/* Records that a new call passes over, still in use by calls that last long, before it gives up. */
#define TRIES 16u
/* What is formatted before it is written to the file. A line is shorter than the reserve. */
#define TEXT_SIZE 65536u
#define LINE_MAX_BYTES 2048u

typedef struct {
    uint64_t key;
    char *name; /* as a JSON string, quoted; owned */
    char *text; /* its part of a call's line, up to the number behind its key; owned */
    size_t text_size;
    int rank, size;
    uint32_t nth;     /* communicators of this key and name so far, less one */
    uint32_t written; /* of these: those whose lines are in the file */
} comm_t;

bool coll_gpusym_trace_on;
bool coll_gpusym_trace_written;
bool coll_gpusym_trace_wanted;
uint64_t coll_gpusym_trace_since;
bool coll_gpusym_trace_wants_gpu;
coll_gpusym_record_t *coll_gpusym_trace_ring; /* [RECORDS] */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the file, communicators, who wants records */
static unsigned wanted;                                  /* coll_gpusym_trace_want() without _spare() */
static struct {
    _Alignas(64) uint64_t head; /* the next record to be taken, modulo RECORDS */
    uint64_t lost;              /* calls without a record */
    _Alignas(64) uint64_t tail; /* all before this one have been written; under the lock, calls read it */
} at;
static coll_gpusym_writer_t writer;
static struct {
    int fd;
    uint64_t calls;
    char *text; /* [TEXT_SIZE] */
    size_t used;
    comm_t *comm;
    uint32_t comms, room;
    char name[4096];
} out; /* under the lock */

/* ---- text ---- */

/* Inline, so that copies of a constant size are no calls. */
static inline __attribute__((always_inline)) void put_text(const char *text, size_t n)
{
    memcpy(out.text + out.used, text, n);
    out.used += n;
}
#define PUT(literal) put_text(literal, sizeof(literal) - 1)

static void put_string(const char *text)
{
    put_text(text, strlen(text));
}

/* Two digits at a time. */
static void put_number(uint64_t value)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                                "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                                "8081828384858687888990919293949596979899";
    char digits[20];
    size_t n = sizeof digits;
    for (; value >= 10; value /= 100) {
        n -= 2;
        memcpy(digits + n, pairs + 2 * (value % 100), 2);
    }
    if (0 != value || sizeof digits == n) {
        digits[--n] = (char) ('0' + value);
    }
    put_text(digits + n, sizeof digits - n);
}

static void put_signed(int64_t value)
{
    if (value < 0) {
        PUT("-");
    }
    put_number(value < 0 ? 0 - (uint64_t) value : (uint64_t) value);
}

/* ---- who wants records ---- */

/* The program wants calls in the file. */
static bool is_written(void)
{
    return coll_gpusym_trace_opened() && 0 != coll_gpusym_params.trace_calls;
}

/* With the lock held, or while no thread is in a call. */
static void switch_records(void)
{
    const bool written = is_written(), on = written || 0 != wanted;
    if (on && !coll_gpusym_trace_on) {
        __atomic_store_n(&coll_gpusym_trace_since, coll_gpusym_ticks_now(), __ATOMIC_RELAXED);
    }
    __atomic_store_n(&coll_gpusym_trace_written, written, __ATOMIC_RELAXED);
    __atomic_store_n(&coll_gpusym_trace_wanted, 0 != wanted, __ATOMIC_RELAXED);
    __atomic_store_n(&coll_gpusym_trace_on, on, __ATOMIC_RELEASE);
}

static bool have_ring(void)
{
    void *memory;
    if (NULL != coll_gpusym_trace_ring) {
        return true;
    }
    if (0 != posix_memalign(&memory, 64, RECORDS * sizeof *coll_gpusym_trace_ring)) {
        gpusym_log_no_memory("records of calls");
        return false;
    }
    memset(memory, 0, RECORDS * sizeof *coll_gpusym_trace_ring); /* no page fault in a call */
    at.head = at.lost = at.tail = out.calls = 0;
    coll_gpusym_ticks_start();
    coll_gpusym_trace_ring = memory;
    return true;
}

bool coll_gpusym_trace_want(void)
{
    pthread_mutex_lock(&lock);
    const bool ok = have_ring();
    wanted += ok;
    switch_records();
    pthread_mutex_unlock(&lock);
    return ok;
}

void coll_gpusym_trace_spare(void)
{
    pthread_mutex_lock(&lock);
    wanted--;
    switch_records();
    pthread_mutex_unlock(&lock);
}

uint64_t coll_gpusym_trace_lost(void)
{
    return __atomic_load_n(&at.lost, __ATOMIC_RELAXED);
}

/* ---- the file ---- */

static void give_up(void)
{
    coll_gpusym_help("trace-write", coll_gpusym_params.world_rank, out.name, strerror(errno));
    close(out.fd);
    out.fd = -1;
    switch_records();
}

static void write_text(void)
{
    if (out.fd >= 0 && out.used > 0 && !gpusym_write_all(out.fd, out.text, out.used)) {
        give_up();
    }
    out.used = 0;
}

/* Before each line. */
static void reserve_line(void)
{
    if (out.used + LINE_MAX_BYTES > TEXT_SIZE) {
        write_text();
    }
}

/* Both clocks at one time, by which files of several hosts can be compared. */
static void put_clocks(void)
{
    struct timespec real;
    const uint64_t before = gpusym_now_ns();
    clock_gettime(CLOCK_REALTIME, &real);
    const uint64_t after = gpusym_now_ns();
    PUT(",\"monotonic\":");
    put_number(before + (after - before) / 2);
    PUT(",\"realtime\":");
    put_number((uint64_t) real.tv_sec * 1000000000u + (uint64_t) real.tv_nsec);
}

static void put_head(int rank, const char *host)
{
    char quoted[512];
    gpusym_json_text(host, quoted, sizeof quoted);
    PUT("{\"gpusym_trace\":1,\"version\":\"" GPUSYM_VERSION "\",\"rank\":");
    put_signed(rank);
    PUT(",\"host\":");
    put_string(quoted);
    PUT(",\"pid\":");
    put_number((uint64_t) getpid());
    put_clocks();
    PUT("}\n");
}

/* ---- lines ---- */

/* ,"comm":"NAME","id":"KEY. and the rest of the identifier. */
static void put_comm(const comm_t *c, uint32_t nth)
{
    put_text(c->text, c->text_size);
    put_number(nth);
    PUT("\"");
}

/* The lines of communicators that no line has named yet. */
static void name_comms(comm_t *c, uint32_t nth)
{
    for (; c->written <= nth; c->written++) {
        reserve_line();
        PUT("{\"rank\":");
        put_signed(c->rank);
        PUT(",\"size\":");
        put_signed(c->size);
        put_comm(c, c->written);
        PUT("}\n");
    }
}

#define PUT_TIME(name, value)             \
    do {                                  \
        if (0 != (value)) {               \
            PUT(",\"" name "\":");        \
            put_number((uint64_t) value); \
        }                                 \
    } while (0)

/* Both clocks, as the lines of ended calls are written: between the comparison when a call was launched and this one
 * its ticks are exact, however long it lasted. */
static struct {
    uint64_t base, ns;
} compared;

static void compare_clocks(void)
{
    compared.base = coll_gpusym_ticks_base();
    compared.ns = gpusym_now_ns();
}

static uint64_t returned_at(const coll_gpusym_record_t *r)
{
    if (0 == r->base) {
        return r->returned;
    }
    const uint64_t ns = coll_gpusym_ticks_ns(r->base, r->returned);
    if (ns >= compared.ns) { /* it ended meanwhile */
        return ns;
    }
    const double part = (double) (int64_t) (ns - r->launched) / (double) (compared.ns - r->launched);
    return ns + (uint64_t) (int64_t) (part * (double) (int64_t) (compared.base - r->base));
}

static void put_times(const coll_gpusym_record_t *r, bool ended)
{
    uint64_t gpu[2];
    gpusym_lane_times(r->gpu, gpu);
    PUT_TIME("entered", r->entered);
    PUT_TIME("posted", r->posted);
    PUT_TIME("there", r->there);
    if (0 != r->there && r->last >= 0) {
        PUT(",\"last\":");
        put_number((uint64_t) r->last);
    }
    PUT_TIME("launched", r->launched);
    PUT_TIME("gpu_begin", gpu[0]);
    PUT_TIME("gpu_end", gpu[1]);
    if (ended) {
        PUT_TIME("returned", returned_at(r));
    }
}

static void put_way(const coll_gpusym_record_t *r)
{
    static const struct {
        const char *text;
        size_t n;
    } forms[] = {{"blocking", 8}, {"nonblocking", 11}, {"persistent", 10}};
    PUT(",\"form\":\"");
    put_text(forms[r->form].text, forms[r->form].n);
    PUT("\",\"bytes\":");
    put_number(r->bytes);
    if (NULL != r->way) {
        PUT(",\"way\":\"");
        put_string(r->way);
        PUT("\"");
    }
    if (r->algorithm >= 0) {
        PUT(",\"algorithm\":\"");
        put_string(gpusym_algorithm_name((unsigned) r->algorithm));
        PUT("\"");
    }
    if (r->by >= 0) {
        static const char *const by[] = {"launch", "resident", "early", "early", "late"};
        PUT(",\"by\":\"");
        put_string(by[r->by]);
        PUT("\"");
    }
    if (0 != r->blocks) {
        PUT(",\"blocks\":");
        put_number(r->blocks);
    }
    if (r->zero_copy) {
        PUT(",\"zero_copy\":true");
    }
    if (r->reason >= 0) {
        PUT(",\"reason\":\"");
        put_string(coll_gpusym_reason_name((unsigned) r->reason));
        PUT("\"");
    }
}

/* ended: else the call is still going on, and its communicator not known. */
static void put_record(const coll_gpusym_record_t *r, bool ended)
{
    if (ended) {
        name_comms(&out.comm[r->comm], r->nth);
    }
    reserve_line();
    PUT("{\"coll\":\"");
    put_string(coll_gpusym_name(r->coll));
    PUT("\"");
    if (ended) {
        put_comm(&out.comm[r->comm], r->nth);
        PUT(",\"seq\":");
        put_number(r->seq);
    }
    put_way(r);
    put_times(r, ended);
    if (0 != r->error) {
        PUT(",\"error\":");
        put_signed(r->error);
    }
    PUT("}\n");
    out.calls += ended;
}

/* ---- the ring ---- */

static uint32_t state_of(const coll_gpusym_record_t *r)
{
    return __atomic_load_n(&r->state, __ATOMIC_ACQUIRE);
}

/* Writes ended records, the oldest first; calls that go on do not hold up the others. all: also those that the thread
 * has passed by before they were marked as taken. With the lock held. */
static void write_ended(bool all)
{
    const uint64_t end = __atomic_load_n(&at.head, __ATOMIC_RELAXED), first = end > RECORDS ? end - RECORDS : 0;
    uint64_t tail = all || at.tail < first ? first : at.tail;
    compare_clocks();
    for (uint64_t i = tail; i < end; i++) {
        coll_gpusym_record_t *r = &coll_gpusym_trace_ring[i % RECORDS];
        const uint32_t state = state_of(r);
        if (COLL_GPUSYM_RECORD_DONE == state) {
            put_record(r, true);
            __atomic_store_n(&r->state, COLL_GPUSYM_RECORD_FREE, __ATOMIC_RELEASE);
        }
        if (COLL_GPUSYM_RECORD_OPEN != state && i == tail) {
            tail++;
        }
    }
    __atomic_store_n(&at.tail, tail, __ATOMIC_RELAXED); /* coll_gpusym_trace_take() reads it */
}

void coll_gpusym_trace_flush(void)
{
    if (NULL == out.text) {
        return;
    }
    pthread_mutex_lock(&lock);
    write_ended(true);
    write_text();
    pthread_mutex_unlock(&lock);
}

/* The thread's, as long as the file can be written. */
static bool write_now(void)
{
    pthread_mutex_lock(&lock);
    write_ended(false);
    write_text();
    if (is_written() != coll_gpusym_trace_written) {
        switch_records();
    }
    const bool ok = out.fd >= 0;
    pthread_mutex_unlock(&lock);
    return ok;
}

/* An ended record, as many calls ago as the ring is long: the thread does not keep up, and the call does it itself. */
static void write_late(const coll_gpusym_record_t *r)
{
    pthread_mutex_lock(&lock);
    if (COLL_GPUSYM_RECORD_DONE == state_of(r)) { /* else the thread has just come to it */
        write_ended(true);
    }
    pthread_mutex_unlock(&lock);
}

/* The ring is half full of what waits for the thread. */
static __attribute__((noinline)) void wake_writer(void)
{
    if (0 != writer.pid) {
        coll_gpusym_writer_wake(&writer);
    }
}

/* Brings the record of the next call near, which the core of the thread has had. */
static void fetch_next(uint64_t i)
{
    const char *next = (const char *) &coll_gpusym_trace_ring[(i + 1) % RECORDS];
    for (size_t line = 0; line < sizeof *coll_gpusym_trace_ring; line += 64) {
        __builtin_prefetch(next + line, 1);
    }
}

uint32_t coll_gpusym_trace_take(void)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* who sees that records are taken sees the ring */
    for (unsigned tries = 0; tries < TRIES; tries++) {
        const uint64_t i = __atomic_fetch_add(&at.head, 1, __ATOMIC_RELAXED);
        coll_gpusym_record_t *r = &coll_gpusym_trace_ring[i % RECORDS];
        if (0 == i % WAKES && i - __atomic_load_n(&at.tail, __ATOMIC_RELAXED) >= RECORDS / 2) {
            wake_writer();
        }
        if (COLL_GPUSYM_RECORD_DONE == state_of(r)) {
            write_late(r);
        }
        uint32_t was = COLL_GPUSYM_RECORD_FREE;
        if (__atomic_compare_exchange_n(&r->state, &was, COLL_GPUSYM_RECORD_OPEN, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            memset(r, 0, offsetof(coll_gpusym_record_t, state)); /* which the thread reads */
            r->last = r->algorithm = r->reason = r->by = -1;
            fetch_next(i);
            return (uint32_t) (i % RECORDS) + 1;
        }
    }
    __atomic_fetch_add(&at.lost, 1, __ATOMIC_RELAXED);
    return 0;
}

void coll_gpusym_trace_drop(uint32_t number)
{
    __atomic_store_n(&coll_gpusym_trace_ring[number - 1].state, COLL_GPUSYM_RECORD_FREE, __ATOMIC_RELEASE);
}

void coll_gpusym_trace_lose(uint32_t number)
{
    __atomic_fetch_add(&at.lost, 1, __ATOMIC_RELAXED);
    coll_gpusym_trace_drop(number);
}

/* ---- communicators, GPUs ---- */

static comm_t *find_comm(uint64_t key, const char *name)
{
    for (uint32_t i = 0; i < out.comms; i++) {
        if (key == out.comm[i].key && 0 == strcmp(name, out.comm[i].name)) {
            return &out.comm[i];
        }
    }
    return NULL;
}

static comm_t *add_comm(uint64_t key, const char *name)
{
    if (out.comms == out.room) {
        const uint32_t room = 0 == out.room ? 16 : 2 * out.room;
        comm_t *more = realloc(out.comm, room * sizeof *more);
        if (NULL == more) {
            return NULL;
        }
        out.comm = more;
        out.room = room;
    }
    const size_t size = strlen(name) + sizeof ",\"comm\":,\"id\":\"0123456789abcdef.";
    char *copy = strdup(name), *text = malloc(size);
    if (NULL == copy || NULL == text) {
        free(copy);
        free(text);
        return NULL;
    }
    snprintf(text, size, ",\"comm\":%s,\"id\":\"%016llx.", name, (unsigned long long) key);
    out.comm[out.comms] = (comm_t){.key = key, .name = copy, .text = text, .text_size = size - 1};
    return &out.comm[out.comms++];
}

bool coll_gpusym_trace_comm(uint64_t key, const char *label, int rank, int size, uint32_t *comm, uint32_t *nth)
{
    char name[512];
    gpusym_json_text(label, name, sizeof name);
    pthread_mutex_lock(&lock);
    comm_t *c = find_comm(key, name);
    if (NULL != c) {
        c->nth++;
    } else {
        c = add_comm(key, name);
    }
    if (NULL != c) {
        c->rank = rank;
        c->size = size;
        *comm = (uint32_t) (c - out.comm);
        *nth = c->nth;
    }
    pthread_mutex_unlock(&lock);
    return NULL != c;
}

void coll_gpusym_trace_gpu(const char *text)
{
    char quoted[256];
    gpusym_json_text(text, quoted, sizeof quoted);
    pthread_mutex_lock(&lock);
    if (coll_gpusym_trace_wants_gpu) {
        __atomic_store_n(&coll_gpusym_trace_wants_gpu, false, __ATOMIC_RELAXED);
        reserve_line();
        PUT("{\"gpu\":");
        put_string(quoted);
        PUT("}\n");
    }
    pthread_mutex_unlock(&lock);
}

/* ---- the beginning and the end ---- */

void coll_gpusym_trace_start(int world_rank, const char *host)
{
    const char *pattern = coll_gpusym_params.trace;
    if (NULL == pattern || '\0' == pattern[0] || NULL != out.text) {
        return;
    }
    coll_gpusym_filename(out.name, sizeof out.name, pattern, world_rank, host);
    out.text = have_ring() ? malloc(TEXT_SIZE) : NULL;
    if (NULL == out.text) {
        gpusym_log_no_memory("the trace");
        return;
    }
    out.used = 0;
    GPUSYM_RESTART(out.fd, open(out.name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (out.fd < 0) {
        give_up();
        return;
    }
    put_head(world_rank, host);
    coll_gpusym_trace_wants_gpu = true;
    writer = (coll_gpusym_writer_t){.name = "gpusym-trace", .write = write_now, .every_ns = EVERY_NS};
    (void) coll_gpusym_writer_start(&writer); /* without it calls write where the ring is full */
    switch_records();
}

bool coll_gpusym_trace_opened(void)
{
    return NULL != out.text && out.fd >= 0;
}

static void put_end(void)
{
    reserve_line();
    PUT("{\"end\":true,\"calls\":");
    put_number(out.calls);
    PUT(",\"lost\":");
    put_number(at.lost);
    put_clocks();
    PUT("}\n");
}

static void end_file(void)
{
    coll_gpusym_trace_flush();
    coll_gpusym_trace_written = false;
    for (uint32_t i = 0; i < RECORDS; i++) {
        if (COLL_GPUSYM_RECORD_OPEN == coll_gpusym_trace_ring[i].state) {
            put_record(&coll_gpusym_trace_ring[i], false);
        }
    }
    if (out.fd >= 0) {
        put_end();
        write_text();
    }
    if (out.fd >= 0) {
        close(out.fd);
    }
}

void coll_gpusym_trace_stop(void)
{
    if (NULL == coll_gpusym_trace_ring) {
        return;
    }
    wanted = 0;
    if (NULL != out.text) {
        (void) coll_gpusym_writer_stop(&writer);
        end_file();
    }
    switch_records();
    for (uint32_t i = 0; i < out.comms; i++) {
        free(out.comm[i].name);
        free(out.comm[i].text);
    }
    free(out.comm);
    free(out.text);
    free(coll_gpusym_trace_ring);
    coll_gpusym_trace_ring = NULL;
    out.text = NULL;
    out.comm = NULL;
    out.comms = out.room = 0;
}
